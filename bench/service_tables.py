"""Tables that services are measured on, each made once.

`Merging` is a merge-on-read table with changes in its logs, written by the product. `ManyFiles` and
`LongTimeline` have more files and instants than anybody wants to write one by one: their commits
are made by the product's own records, their data files are links to a few small ones that nothing
opens.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import CACHE, cached
from bench.keyed import Base
from bench.write_data import Events
from lakewright import Table
from lakewright.codec.avro.arrow_types import from_arrow
from lakewright.codec.avro.schema import to_json
from lakewright.engine.base_file import NO_PREVIOUS_COMMIT
from lakewright.format.instant import State, format_instant_name
from lakewright.format.partitions import PARTITION_METADATA_FILE, format_partition_metadata
from lakewright.format.properties import load_properties
from lakewright.format.records import CommitMetadata, WriteStat
from lakewright.format.table_properties import TableProperties
from lakewright.runtime.clock import SystemClock
from lakewright.storage.resolve import open_storage
from lakewright.txn.mark import marked

SEED = 7
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("part", pa.string())])
FILE_BYTES = 4096


@dataclass(frozen=True)
class Merging:
    """A table of full base files, and updates of its rows in one log for each."""

    rows: int = 2_000_000
    updates: int = 400_000
    groups: int = 4

    def table(self) -> Path:
        """Where it is, made if it is not there."""
        return cached(f"merging-{self.rows}-{self.updates}-{self.groups}", self._fill)

    def _fill(self, path: Path) -> None:
        shutil.copytree(Base("mor", self.rows, self.groups).table(), path)
        Table.open(path).upsert(self._updates(), options={"hoodie.index.type": "SIMPLE"})

    def _updates(self) -> pa.Table:
        """Rows of the table, at random; one in ten is older than what is stored, and loses."""
        rng = np.random.default_rng([SEED, self.updates])
        rows = pa.concat_tables([pq.read_table(file) for file in Events(self.rows).files()])
        chosen = rows.take(pa.array(rng.choice(rows.num_rows, self.updates, replace=False)))
        other = rows.take(pa.array(rng.integers(0, rows.num_rows, self.updates)))
        step = np.where(rng.random(self.updates) < 0.1, -1, 1) * 10**9
        later = pa.array(chosen["ts"].to_numpy() + step)
        changed = other.set_column(0, rows.schema.field(0), chosen["id"])
        return changed.set_column(1, rows.schema.field(1), later).combine_chunks()


@dataclass(frozen=True)
class ManyFiles:
    """A copy-on-write table of which every commit rewrote every file group."""

    version: int
    files: int = 100_000
    commits: int = 10
    partitions: int = 200

    @property
    def groups(self) -> int:
        """File groups of each partition."""
        return self.files // self.commits // self.partitions

    def table(self) -> Path:
        """Where it is, made if it is not there."""
        return cached(f"files-{self.version}-{self.files}-{self.commits}", self._fill)

    def _fill(self, path: Path) -> None:
        properties = _created(path, self.version)
        for partition in self._partitions():
            _mark(path / partition)
        ids = {p: [_file_id(f"{p}-{n}") for n in range(self.groups)] for p in self._partitions()}
        before = None
        for number in range(self.commits):
            instant = _time(number)
            model = path / f".{number}"
            model.write_bytes(b"x" * FILE_BYTES)
            names = {p: [f"{i}_0-{number}-0_{instant}.parquet" for i in ids[p]] for p in ids}
            for partition, of_partition in names.items():
                for name in of_partition:
                    os.link(model, path / partition / name)
            model.unlink()
            stats = {p: [_stat(p, name, before) for name in names[p]] for p in names}
            _commit(path, properties, number, stats)
            before = instant

    def _partitions(self) -> list[str]:
        return [f"p{number:04d}" for number in range(self.partitions)]


@dataclass(frozen=True)
class LongTimeline:
    """A copy-on-write table with many completed commits, and a data file for the newest."""

    version: int
    instants: int = 10_000
    stats: int = 4
    """Files that each commit names."""

    def table(self) -> Path:
        """Where it is, made if it is not there."""
        return cached(f"instants-{self.version}-{self.instants}", self._fill)

    def _fill(self, path: Path) -> None:
        properties = _created(path, self.version)
        _mark(path / "p0")
        ids = [_file_id(str(n)) for n in range(self.stats)]
        before = None
        for number in range(self.instants):
            instant = _time(number)
            names = [f"{i}_0-{number}-0_{instant}.parquet" for i in ids]
            _commit(path, properties, number, {"p0": [_stat("p0", n, before) for n in names]})
            before = instant
        for name in names:
            (path / "p0" / name).write_bytes(b"x" * FILE_BYTES)


def _created(path: Path, version: int) -> TableProperties:
    Table.create(
        path,
        name="services",
        schema=SCHEMA,
        version=version,
        key=["id"],
        ordering=["ts"],
        partition=["part"],
    )
    return load_properties(open_storage(path), clock=SystemClock())


def _time(number: int) -> str:
    moment = BEGIN + timedelta(seconds=10 * number)
    return moment.strftime("%Y%m%d%H%M%S") + "000"


def _file_id(of: str) -> str:
    return f"{of:0>36}-0"


def _mark(partition: Path) -> None:
    partition.mkdir(parents=True)
    said = format_partition_metadata(_time(0), 1, now_ms=0)
    (partition / PARTITION_METADATA_FILE).write_bytes(said)


def _stat(partition: str, name: str, before: str | None) -> WriteStat:
    return WriteStat(
        file_id=name.partition("_")[0],
        path=f"{partition}/{name}",
        prev_commit=before or NO_PREVIOUS_COMMIT,
        partition_path=partition,
        num_writes=100,
        num_deletes=0,
        num_update_writes=100 if before else 0,
        num_inserts=0 if before else 100,
        total_write_bytes=FILE_BYTES,
        total_write_errors=0,
        file_size_in_bytes=FILE_BYTES,
    )


def _commit(
    path: Path, properties: TableProperties, number: int, stats: Mapping[str, list[WriteStat]]
) -> None:
    """Put a completed commit on the timeline, as a writer would have left it."""
    schema = to_json(from_arrow(SCHEMA, name="services", namespace="bench"))
    metadata = CommitMetadata(
        partition_to_write_stats=stats,
        compacted=False,
        extra_metadata=marked({"schema": schema}, alone=True),
        operation_type="UPSERT",
    )
    content = metadata.write(properties.version)
    named = properties.version.completion_time_in_name
    completed = str(int(_time(number)) + 5000) if named else None
    folder = path / properties.timeline_folder
    for state, said in (
        (State.REQUESTED, b""),
        (State.INFLIGHT, content),
        (State.COMPLETED, content),
    ):
        name = format_instant_name(
            _time(number),
            "commit",
            state,
            layout=properties.version.layout_version,
            completion_time=completed if state is State.COMPLETED else None,
        )
        (folder / name).write_bytes(said)


@contextmanager
def linked(table: Path) -> Iterator[Path]:
    """A copy of a table of many files, removed afterwards; data files are links."""
    folder = Path(tempfile.mkdtemp(prefix="out-", dir=CACHE)).resolve()

    def copy(source: str, target: str) -> str:
        if source.endswith(".parquet") and ".hoodie" not in source:
            os.link(source, target)
        else:
            shutil.copy2(source, target)
        return target

    shutil.copytree(table, folder / "table", copy_function=copy)
    os.sync()  # nobody pays for what another one left to be written
    try:
        yield folder / "table"
    finally:
        shutil.rmtree(folder)
