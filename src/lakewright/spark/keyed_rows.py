"""Where the rows of a keyed write wait while it is decided where they go.

The keys of all rows must be known before any of them has a place. `KeptRows` are those of a
DataFrame: they leave the JVM once, get their keys in the workers, and are kept (`persist`) as
chunks of Arrow, so that a source that would answer differently the second time cannot split the
write. `FileRows` are those of Parquet files that workers read themselves; the files are pinned and
read twice, and nothing is kept. From both, what decides comes to the driver (`chunks`), and all
rows go to the tasks that write them (`split`).

What can go wrong with the rows themselves (a missing key, a value that does not fit) reaches the
caller as it is. Chunks that are not those of the first look, because what Spark had kept was lost
and its source has changed, are an `InputError`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it

from lakewright.errors import LakewrightError, StorageError
from lakewright.spark.filters import column_of
from lakewright.spark.keyed_chunks import (
    CHUNK_BYTES,
    Keying,
    Route,
    chunked,
    decoded,
    encoded,
    mark_of,
    other_rows,
    split,
)
from lakewright.spark.parquet_source import ParquetSource
from lakewright.spark.tasks import pack
from lakewright.spark.write_places import task_names
from lakewright.spark.write_run import arrow_batches, attempt_here, attempts, watched
from lakewright.txn.access import Access

__all__ = ["Chunk", "FileRows", "KeptRows", "Routes", "WaitingRows", "arrow_rows", "may_pass"]

CHUNK_SCHEMA = (
    "part int, number int, rows long, size long, mark long, brief binary, whole binary, "
    "sent boolean, error binary"
)
SPLIT_SCHEMA = "task int, part int, number int, rows binary"
ERROR_PART = -1
EAGER_PARTS = 16
EAGER_BYTES = 4 << 20
"""So many bytes of so many tasks come along at once, so that a small write needs one job."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Rows that are waiting, as the driver knows them."""

    part: int
    number: int
    rows: int
    size: int
    """Bytes of the packed rows."""
    mark: int
    brief: pa.RecordBatch
    whole: bytes | None
    """The packed rows, if they came along."""

    @property
    def place(self) -> tuple[int, int]:
        """What it is known by."""
        return self.part, self.number


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Where all rows go."""

    by_chunk: Mapping[tuple[int, int], tuple[int, bytes]]
    """Mark and packed route of every chunk."""
    task_of: npt.NDArray[np.int32]
    """The task of every file group."""
    tasks: int


class WaitingRows(Protocol):
    """Rows that are not here."""

    def chunks(self, access: Access) -> list[Chunk]:
        """What decides about all rows, in their order."""
        ...

    def split(self, routes: Routes) -> DataFrame:
        """A frame that has the rows of every task in its place, as packed parts of chunks."""
        ...


@dataclass(frozen=True)
class KeptRows:
    """Rows of a DataFrame, kept as chunks until `close`."""

    kept: DataFrame

    @classmethod
    def of(cls, frame: DataFrame, keying: Keying) -> KeptRows:
        """Begin to keep; nothing happens before the first look."""
        shared = pack(keying)
        tries = attempts(frame.sparkSession.sparkContext)

        def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            keying: Keying = pickle.loads(shared)  # noqa: S301 - made by `pack`
            yield from _told(lambda _: batches, keying, tries, keeps=True)

        names = map(column_of, (*keying.rows.source.names, *keying.marks))
        with arrow_batches(frame):
            return cls(frame.select(*names).mapInArrow(tell, CHUNK_SCHEMA).persist())

    def close(self) -> None:
        """Let the rows go."""
        self.kept.unpersist()

    def chunks(self, access: Access) -> list[Chunk]:
        """What decides about all rows; small writes come along as a whole."""
        whole = F.when(F.col("sent"), F.col("whole")).alias("whole")
        told = [F.col(name) for name in ("part", "number", "rows", "size", "mark", "brief")]
        return _chunks(access, self.kept.select(*told, whole, "error"))

    def whole(self, access: Access, chunks: Sequence[Chunk]) -> Iterator[pa.RecordBatch]:
        """All rows, in order."""
        rest: dict[tuple[int, int], bytes] = {}
        if any(chunk.whole is None for chunk in chunks):
            frame = self.kept.where(~F.col("sent")).select("part", "number", "whole")
            for batch in arrow_rows(access, frame):
                part, number, packed = (batch.column(k).to_pylist() for k in range(3))
                rest.update(zip(zip(part, number, strict=True), packed, strict=True))
        for chunk in chunks:
            packed = rest.get(chunk.place) if chunk.whole is None else chunk.whole
            if packed is None or mark_of(packed) != chunk.mark:
                raise other_rows()
            yield decoded(packed)

    def split(self, routes: Routes) -> DataFrame:
        """The rows of every task in its place."""
        frame = self.kept.select("part", "number", "whole")

        def rows(batches: Iterator[pa.RecordBatch], way: _Way) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for k in range(batch.num_rows):
                    part, number = batch.column(0)[k].as_py(), batch.column(1)[k].as_py()
                    packed = batch.column(2)[k].as_buffer()
                    yield from way.parts(part, number, decoded(packed), mark_of(packed))

        return _moved(frame, routes, rows)


@dataclass(frozen=True)
class FileRows:
    """Rows of Parquet files that workers read."""

    spark: SparkSession
    source: ParquetSource
    keying: Keying

    def chunks(self, access: Access) -> list[Chunk]:
        """What decides about all rows; nothing else is read."""
        brief = self.keying.in_brief()
        source = replace(self.source, columns=tuple(brief.rows.source.names))
        shared = pack((source, brief))
        tries = attempts(self.spark.sparkContext)

        def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            source, brief = pickle.loads(shared)  # noqa: S301 - made by `pack`
            _finish(batches)
            yield from _told(source.batches, brief, tries, keeps=False)

        frame = self.source.frame(self.spark).mapInArrow(tell, CHUNK_SCHEMA)
        names = ("part", "number", "rows", "size", "mark", "brief", "whole", "error")
        return _chunks(access, frame.select(*names))

    def split(self, routes: Routes) -> DataFrame:
        """The rows of every task in its place."""
        shared = pack((self.source, self.keying))
        tries = attempts(self.spark.sparkContext)

        def rows(batches: Iterator[pa.RecordBatch], way: _Way) -> Iterator[pa.RecordBatch]:
            source, keying = pickle.loads(shared)  # noqa: S301 - made by `pack`
            _finish(batches)
            attempt = attempt_here(tries)
            try:
                read = chunked(source.batches(attempt.task), keying, max_bytes=None)
                for number, chunk in enumerate(read):
                    yield from way.parts(attempt.task, number, chunk, chunk.num_rows)
            except LakewrightError as error:
                if may_pass(error) and not attempt.is_last:
                    raise
                yield way.error(error)

        return _moved(self.source.frame(self.spark), routes, rows)


@dataclass(frozen=True, slots=True)
class _Way:
    """The routes, at a worker."""

    by_chunk: Mapping[tuple[int, int], tuple[int, bytes]]
    task_of: npt.NDArray[np.int32]
    names: npt.NDArray[np.int32]
    """For every task the number that leads Spark there."""

    def parts(
        self, part: int, number: int, rows: pa.RecordBatch, mark: int
    ) -> Iterator[pa.RecordBatch]:
        """A chunk, split by task."""
        expected, packed = self.by_chunk.get((part, number), (None, b""))
        if expected != mark:
            yield self.error(other_rows())
            return
        for task, own in split(rows, Route.unpacked(packed), self.task_of):
            yield _row(int(self.names[task]), part, number, own)

    def error(self, error: LakewrightError) -> pa.RecordBatch:
        """An error, for the first task to raise."""
        return _row(int(self.names[0]), ERROR_PART, 0, pickle.dumps(error))


def _row(task: int, part: int, number: int, rows: bytes) -> pa.RecordBatch:
    ints = [pa.array([value], pa.int32()) for value in (task, part, number)]
    return pa.RecordBatch.from_arrays(
        [*ints, pa.array([rows], pa.binary())], names=["task", "part", "number", "rows"]
    )


def _moved(
    frame: DataFrame,
    routes: Routes,
    rows: Callable[[Iterator[pa.RecordBatch], _Way], Iterator[pa.RecordBatch]],
) -> DataFrame:
    by_id = hasattr(DataFrame, "repartitionById")
    names = np.arange(routes.tasks, dtype=np.int32) if by_id else task_names(routes.tasks)
    shared = pack(_Way(routes.by_chunk, routes.task_of, names))

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows(batches, pickle.loads(shared))  # noqa: S301 - made by `pack`

    parts = frame.mapInArrow(send, SPLIT_SCHEMA)
    if by_id:
        return parts.repartitionById(routes.tasks, F.col("task"))
    return parts.repartition(routes.tasks, F.col("task"))


def _told(
    batches_of: Callable[[int], Iterable[pa.RecordBatch]],
    keying: Keying,
    tries: int,
    *,
    keeps: bool,
) -> Iterator[pa.RecordBatch]:
    """The chunks of one task, as rows of `CHUNK_SCHEMA`."""
    attempt = attempt_here(tries)
    number = total = 0
    try:
        # Files are read twice, with more columns then: their chunks are cut by rows alone.
        limit = CHUNK_BYTES if keeps else None
        for rows in chunked(batches_of(attempt.task), keying, max_bytes=limit):
            whole = encoded(rows) if keeps else b""
            total += len(whole)
            eager = attempt.task < EAGER_PARTS and total <= EAGER_BYTES
            yield _told_row(
                part=attempt.task,
                number=number,
                rows=rows.num_rows,
                size=len(whole),
                mark=mark_of(whole) if keeps else rows.num_rows,
                brief=encoded(rows.select([*keying.brief_schema.names, *keying.marks])),
                whole=whole if keeps else None,
                sent=eager,
            )
            number += 1
    except LakewrightError as error:
        if may_pass(error) and not attempt.is_last:
            raise
        yield _told_row(part=attempt.task, number=number, error=pickle.dumps(error))


def _told_row(
    *,
    part: int,
    number: int,
    rows: int = 0,
    size: int = 0,
    mark: int = 0,
    brief: bytes | None = None,
    whole: bytes | None = None,
    sent: bool = False,
    error: bytes | None = None,
) -> pa.RecordBatch:
    ints = [pa.array([n], pa.int32()) for n in (part, number)]
    longs = [pa.array([n], pa.int64()) for n in (rows, size, mark)]
    packed = [pa.array([b], pa.binary()) for b in (brief, whole)]
    last = [pa.array([sent], pa.bool_()), pa.array([error], pa.binary())]
    names = ["part", "number", "rows", "size", "mark", "brief", "whole", "sent", "error"]
    return pa.RecordBatch.from_arrays([*ints, *longs, *packed, *last], names=names)


def _chunks(access: Access, frame: DataFrame) -> list[Chunk]:
    found: list[Chunk] = []
    for batch in arrow_rows(access, frame):
        for row in batch.to_pylist():  # some ten thousand rows each
            if row["error"] is not None:
                raise pickle.loads(row["error"])  # noqa: S301 - made by `_told`
            brief = decoded(row.pop("brief"))
            row.pop("error")
            found.append(Chunk(brief=brief, **row))
    return sorted(found, key=lambda chunk: chunk.place)


def arrow_rows(access: Access, frame: DataFrame) -> list[pa.RecordBatch]:
    """All rows of a frame, here, as Spark sends them."""
    context: SparkContext = frame.sparkSession.sparkContext
    classic: Any = frame  # its own way to Arrow is public from Spark 4 on only
    batches: list[pa.RecordBatch] = watched(access, context, classic._collect_as_arrow)  # noqa: SLF001
    return batches


def _finish(batches: Iterable[pa.RecordBatch]) -> None:
    for _ in batches:
        pass  # of a frame that is there for its tasks only


def may_pass(error: LakewrightError) -> bool:
    """Whether another attempt at a task may do better."""
    return error.retryable or isinstance(error, StorageError)
