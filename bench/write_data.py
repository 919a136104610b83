"""Inputs of the write benchmarks, and what makes two written tables equal.

Inputs are plain Parquet files of the `events20` rows, made once. A larger input begins with the
files of a smaller one. Where rows are spread over partitions, the column `source` holds the
partition of a row, at random.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import CACHE, events20, uuid_keys
from lakewright import Table

FILE_ROWS = 2_000_000
GROUP_ROWS = 250_000
PARTITION = "source"
BLOOM = b"org.apache.hudi.bloomfilter"
LEAST, GREATEST = b"hoodie_min_record_key", b"hoodie_max_record_key"
NAMES = ("_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name")


@dataclass(frozen=True)
class Events:
    """An input: so many rows, over so many partitions (0: the table has none)."""

    rows: int
    partitions: int = 0
    seed: int = 47

    @property
    def field(self) -> str | None:
        """The column that holds the partition."""
        return PARTITION if self.partitions else None

    def files(self) -> list[Path]:
        """The files, made if they are not there."""
        sizes = [min(FILE_ROWS, self.rows - at) for at in range(0, self.rows, FILE_ROWS)]
        return [self._file(number, rows) for number, rows in enumerate(sizes)]

    def _file(self, number: int, rows: int) -> Path:
        spread = f"-over-{self.partitions}" if self.partitions else ""
        path = CACHE / f"events20-{rows}-{number}{spread}.parquet"
        if path.exists():
            return path
        began = time.perf_counter()
        CACHE.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng([self.seed, number])
        partial = path.with_suffix(".partial")
        writer = None
        for at in range(0, rows, GROUP_ROWS):
            part = self._rows(rng, min(GROUP_ROWS, rows - at))
            writer = writer or pq.ParquetWriter(partial, part.schema, compression="snappy")
            writer.write_table(part)
        assert writer is not None
        writer.close()
        partial.rename(path)
        print(f"built {path} in {time.perf_counter() - began:.1f} s", flush=True)
        return path

    def _rows(self, rng: np.random.Generator, rows: int) -> pa.Table:
        part = events20(rng, uuid_keys(rng, rows), rng.integers(0, 10**9, rows))
        if not self.partitions:
            return part
        names = pa.array([f"p{i:05d}" for i in range(self.partitions)])
        chosen = names.take(pa.array(rng.integers(0, self.partitions, rows)))
        return part.set_column(part.schema.get_field_index(PARTITION), PARTITION, chosen)


@dataclass(frozen=True)
class Written:
    """What a writer made."""

    contents: dict[str, int]
    """Rows, and order-free sums of hashes of every column and of whole rows."""
    files: int
    size: int
    codecs: frozenset[str]


def contents(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> dict[str, int]:
    """Rows, and order-free sums of hashes of every column and of whole rows."""
    found = dict.fromkeys(["rows", "row hashes", *schema.names], 0)
    for batch in batches:
        table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        hashes = {name: frame[name].hash(1).to_numpy() for name in schema.names}
        hashes["row hashes"] = frame.hash_rows(1).to_numpy()
        for name, values in hashes.items():
            found[name] = (found[name] + int(np.add.reduce(values))) % 2**64
        found["rows"] += table.num_rows
    return found


def source_contents(files: Sequence[Path]) -> dict[str, int]:
    """The contents of an input."""
    batches = (batch for file in files for batch in pq.ParquetFile(file).iter_batches())
    return contents(batches, pq.read_schema(files[0]))


def written(
    path: Path, source: Sequence[Path], *, partition: str | None, is_sorted: bool
) -> Written:
    """What is in the committed files of a table; `AssertionError` for what Hudi would miss.

    A folder without a timeline is a plain copy.
    """
    files = sorted(path.glob("*.parquet"))
    schema = pq.read_schema(source[0])
    hudi = (path / ".hoodie").exists()
    if hudi:
        tasks = Table.open(path).scan().plan().tasks
        files = [path / task.slice_.base.path for task in tasks if task.slice_.base is not None]
    codecs: set[str] = set()
    bounds: list[tuple[bytes, bytes]] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for file in files:  # a footer is large, so none is kept
            with pq.ParquetFile(file) as opened:
                groups = [opened.metadata.row_group(g) for g in range(opened.num_row_groups)]
                codecs.update(g.column(c).compression for g in groups for c in range(g.num_columns))
                if hudi:
                    bounds.append(_bounds(opened, file))
                for batch in opened.iter_batches():
                    if hudi:
                        _check_meta(batch, file, partition)
                    yield batch

    found = contents(batches(), schema)
    if is_sorted and partition is None:
        for (_, last), (first, _) in pairwise(sorted(bounds)):
            assert last < first, "the files of a global sort overlap"
    return Written(found, len(files), sum(file.stat().st_size for file in files), frozenset(codecs))


def _check_meta(batch: pa.RecordBatch, file: Path, partition: str | None) -> None:
    key, path, name = (batch.column(c) for c in NAMES)
    assert key.equals(batch.column("id")), f"record keys of {file}"
    assert name.unique().to_pylist() == [file.name], f"file names of {file}"
    if partition:
        assert path.equals(batch.column(partition)), f"partition paths of {file}"


def _bounds(opened: pq.ParquetFile, file: Path) -> tuple[bytes, bytes]:
    values = opened.metadata.metadata
    assert values.get(BLOOM), f"no bloom filter in {file}"
    return values[LEAST], values[GREATEST]
