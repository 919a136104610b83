"""Tables of every shape in memory, on a clock that jumps, and what lies in their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakewright as lw
from lakewright.engine.coexistence import open_access
from lakewright.engine.keyed.lookup import Hits, KeyLookup
from lakewright.engine.new_table import NewTable
from lakewright.engine.options import ReadOptions
from lakewright.engine.table_creation import create_table
from lakewright.engine.write_options import WriteOptions
from lakewright.format.file_names import BaseFileName, parse_data_file
from lakewright.format.file_slices import BaseFile
from lakewright.format.records import CommitMetadata, load_commit_metadata
from lakewright.runtime import ManualClock, SeededRandom
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.txn.access import Access
from tests.txn.tables import START_MS, KnownProcesses, NeverRuns

FLAG = "_hoodie_is_deleted"
BUCKETS = 2


@dataclass(frozen=True)
class Shape:
    """What kind of table it is, and how it is written."""

    type: str = "cow"
    version: int = 8
    index: str = "SIMPLE"
    partitioned: bool = True
    merging: str = "event"
    """`event`, `commit`, or `payload`: version 6 with an ordering field and its default class."""
    ordering: pa.DataType = field(default_factory=pa.int64)
    meta: bool = True
    small_files: bool = True
    moves: bool = True
    parquet_logs: bool = False

    @property
    def is_global(self) -> bool:
        """Whether a key is one row in the whole table."""
        return self.index.startswith("GLOBAL") or self.index == "RECORD_INDEX"

    @property
    def is_bucket(self) -> bool:
        """Whether rows find their file groups by a hash."""
        return self.index == "BUCKET"

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return pa.schema(
            [
                pa.field("id", pa.string(), nullable=False),
                pa.field("p", pa.string()),
                pa.field("ts", self.ordering),
                pa.field("v", pa.int64()),
                pa.field(FLAG, pa.bool_()),
            ]
        )

    @property
    def options(self) -> dict[str, str]:
        """Options of every write, in Hudi's words."""
        moves = "true" if self.moves else "false"
        told = {
            "hoodie.index.type": self.index,
            "hoodie.simple.index.update.partition.path": moves,
            "hoodie.bloom.index.update.partition.path": moves,
            "hoodie.index.bloom.num_entries": "20",
        }
        if self.index == "RECORD_INDEX":
            told["hoodie.metadata.enable"] = "true"
            told["hoodie.metadata.record.index.enable"] = "true"
        if self.index == "RECORD_LEVEL_INDEX":
            told["hoodie.metadata.enable"] = "true"
            told["hoodie.metadata.record.level.index.enable"] = "true"
        if self.is_bucket:
            told["hoodie.bucket.index.num.buckets"] = str(BUCKETS)
        if not self.small_files:
            told["hoodie.parquet.small.file.limit"] = "0"
        if self.parquet_logs:
            told["hoodie.logfile.data.block.format"] = "parquet"
        return told

    def spec(self) -> NewTable:
        """The table that does not exist yet."""
        modes = {"event": "EVENT_TIME_ORDERING", "commit": "COMMIT_TIME_ORDERING"}
        unordered = self.merging == "commit" and self.version == 6
        return NewTable(
            name="t",
            schema=self.schema,
            type=self.type,  # type: ignore[arg-type]
            version=self.version,
            key_fields=("id",),
            partition_fields=("p",) if self.partitioned else (),
            ordering_fields=() if unordered else ("ts",),
            merge_mode=modes.get(self.merging),
            populate_meta_fields=self.meta,
            timeline_timezone="UTC",
        )


class QuickTable(lw.Table):
    """A table whose writers share one manual clock, one stream of chance and no threads."""

    def __init__(self, storage: MemoryStorage, clock: ManualClock, seed: int = 1) -> None:
        super().__init__(storage, clock=clock, options=ReadOptions(threads=1))
        self.storage = storage
        self.clock = clock
        self._random = SeededRandom(seed)

    def _access(self, options: WriteOptions, how: Any) -> Access:
        return open_access(
            self._storage,
            options,
            sole_writer=self._sole_writer,
            clock=self.clock,
            random=self._random,
            spawner=NeverRuns(),
            processes=KnownProcesses(),
            on_event=self._on_event,
        )

    def access(self, options: WriteOptions | None = None) -> Access:
        """The means to change the table."""
        return self._access(options or WriteOptions(), {})

    def metadata(self, instant: str) -> CommitMetadata:
        """What a commit says."""
        found = next(i for i in self.timeline.completed() if i.requested_time == instant)
        return load_commit_metadata(self._storage, self.properties, found)

    def base_keys(self, instant: str) -> dict[str, list[tuple[str, str]]]:
        """Partition path and `id` of the rows of the base files of a commit, by file group."""
        found: dict[str, list[tuple[str, str]]] = {}
        for stat in self.metadata(instant).write_stats:
            assert stat.path is not None
            if isinstance(parse_data_file(stat.path.rpartition("/")[2]), BaseFileName):
                ids = pq.read_table(BytesIO(self._storage.read(stat.path)), columns=["id"])["id"]
                path = stat.partition_path or ""
                found[stat.file_id or ""] = [(path, key) for key in ids.to_pylist()]
        return found

    def files(self) -> dict[str, bytes]:
        """Every object with its content."""
        return {info.path: self._storage.read(info.path) for info in self._storage.walk()}


def new_table(shape: Shape, seed: int = 1, **more: Any) -> QuickTable:
    """An empty table of a shape."""
    clock = ManualClock(START_MS)
    storage = MemoryStorage(MemoryBucket(clock=clock))
    create_table(storage, shape.spec(), clock=clock, random=SeededRandom(seed))
    return QuickTable(storage, clock, seed, **more)


def rows(shape: Shape, values: Iterable[Sequence[Any]]) -> pa.Table:
    """Rows of `(id, p, ts, v, deleted)`; short ones have no flag."""
    given = [(*row, None)[:5] for row in values]
    columns = list(zip(*given, strict=True)) or [()] * 5
    return pa.table(
        [pa.array(list(c), f.type) for c, f in zip(columns, shape.schema, strict=True)],
        schema=shape.schema,
    )


def asked_files(monkeypatch: pytest.MonkeyPatch) -> list[BaseFile]:
    """The base files that keys are looked for in from now on."""
    asked: list[BaseFile] = []
    in_file = KeyLookup.in_file

    def watched(self: KeyLookup, number: int, base: BaseFile) -> Iterator[Hits]:
        asked.append(base)
        return in_file(self, number, base)

    monkeypatch.setattr(KeyLookup, "in_file", watched)
    return asked
