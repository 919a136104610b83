"""Parquet files as the source of a write: workers read them, and the JVM never sees a row.

Turning rows into Arrow is the dearest thing that the JVM does in a write. Where a DataFrame is
nothing but a scan of Parquet files (`parquet_scan`) and Arrow reads from every one of them exactly
what Spark would (`parquet_match`), its row groups are divided among tasks that read them
themselves. In all other cases the answer is a reason, and the rows come through Spark.

Files are opened with the table's own storage: local ones, and those of the table's bucket. They are
pinned when their footers are read, and must be as Spark listed them; a task looks before it reads
a file and after, and a file that has changed or gone is an `InputError` that names it. The write
then ends as with any other error: nothing of it is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakewright.codec.parquet import open_parquet, read_row_group
from lakewright.codec.parquet_footer import read_footer, row_group_chunks
from lakewright.engine.runner import ThreadRunner
from lakewright.errors import ConfigError, InputError, LakewrightError, NotFoundError
from lakewright.spark.parquet_match import UNREADABLE, mismatch
from lakewright.spark.parquet_scan import ScannedFile, scanned_files
from lakewright.storage.base import ObjectInfo, Storage
from lakewright.storage.resolve import StorageRef
from lakewright.storage.uri import StorageUri, parse_uri

__all__ = ["ParquetSource", "Piece", "PinnedFile", "StoredGroup", "divided", "parquet_source"]

ELSEWHERE = "elsewhere"
CHANGED = "changed"

FOOTER_THREADS = 16
BATCH_ROWS = 65_536
TASKS_PER_CORE = 2
TASK_BYTES_MIN = 16 << 20
TASK_BYTES_MAX = 256 << 20
"""A task reads about so many bytes, before compression, where the number of cores leaves a choice:
not less, because every task makes files of its own, and not more, because it may have to be
repeated."""


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file at the moment when its footer was read."""

    path: str
    size: int
    modified_ms: int

    @classmethod
    def of(cls, info: ObjectInfo) -> PinnedFile:
        """What the storage says about a file; the same on every machine that sees it."""
        return cls(info.path, info.size, info.modified_ms)


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups of one file."""

    file: PinnedFile
    row_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """The rows of a write as row groups of files, divided among tasks; a value that travels."""

    storage: StorageRef
    columns: tuple[str, ...]
    tasks: tuple[tuple[Piece, ...], ...]

    @property
    def files(self) -> int:
        """How many files are read."""
        return len({piece.file.path for task in self.tasks for piece in task})

    def frame(self, spark: SparkSession) -> DataFrame:
        """A frame with one partition for each task and nothing to read in it."""
        return spark.range(0, len(self.tasks), 1, len(self.tasks))

    def batches(self, task: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        storage = self.storage.open()
        for piece in self.tasks[task]:
            _refuse_changed(storage, piece.file)
            try:
                yield from self._read(storage, piece)
            except LakewrightError:
                _refuse_changed(storage, piece.file)
                raise
            _refuse_changed(storage, piece.file)

    def _read(self, storage: Storage, piece: Piece) -> Iterator[pa.RecordBatch]:
        path = piece.file.path
        with storage.open_input(path) as source:
            file = open_parquet(source, path=path)
            for group in piece.row_groups:
                yield from read_row_group(
                    file, group, path=path, columns=self.columns, batch_rows=BATCH_ROWS
                )


def parquet_source(
    frame: DataFrame,
    wanted: pa.Schema,
    table: StorageRef,
    *,
    tasks_per_core: int = TASKS_PER_CORE,
    tasks_max: int = 0,
) -> ParquetSource | str:
    """The files that a frame is a scan of, if workers may read them; otherwise why not.

    `wanted` are the columns of the frame in Arrow, and `table` is the storage of the table, with
    which the files are opened. There are about `tasks_per_core` tasks for each core, but not more
    than `tasks_max`, unless that is 0.
    """
    listed = scanned_files(frame)
    if isinstance(listed, str):
        return listed
    place = _place([file.uri for file in listed], parse_uri(table.uri))
    if place is None:
        return ELSEWHERE
    # Only what is remote needs what the table was opened with.
    ref = StorageRef(str(place)) if place.scheme == "file" else replace(table, uri=str(place))
    looked = _looked(ref.open(), place, listed, wanted)
    if isinstance(looked, str):
        return looked
    groups = [group for file in listed for group in looked[file.uri]]
    tasks = _number_of_tasks(groups, frame.sparkSession, tasks_per_core)
    tasks = min(tasks, tasks_max) if tasks_max else tasks
    return ParquetSource(ref, tuple(wanted.names), divided(groups, tasks))


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """One row group."""

    file: PinnedFile
    index: int
    size: int
    """Bytes before compression."""


def _place(uris: Sequence[str], table: StorageUri) -> StorageUri | None:
    """The root of the one storage in which all files are, if the table opens it."""
    local = StorageUri("file", "", "/")
    roots = {replace(place, path="") for place in map(_parsed, uris) if place is not None}
    if len(roots) > 1 or any(_parsed(uri) is None for uri in uris):
        return None
    if roots <= {replace(local, path="")}:
        return local
    return roots.pop() if roots == {replace(table, path="")} else None


def _parsed(uri: str) -> StorageUri | None:
    try:
        return parse_uri(uri)
    except ConfigError:
        return None


def _looked(
    storage: Storage, place: StorageUri, listed: Sequence[ScannedFile], wanted: pa.Schema
) -> dict[str, list[StoredGroup]] | str:
    """The row groups of every file; or what is against one of them."""

    def look(file: ScannedFile) -> Iterator[tuple[str, list[StoredGroup] | str]]:
        precision = 1 if place.scheme == "file" else 1000  # object stores tell seconds
        try:
            yield file.uri, _groups(storage, file, wanted, precision)
        except LakewrightError:
            yield file.uri, UNREADABLE  # Spark's own error says more, if it is one

    found: dict[str, list[StoredGroup]] = {}
    distinct = [*{file.uri: file for file in listed}.values()]
    for uri, groups in ThreadRunner(FOOTER_THREADS).stream(distinct, look):
        if isinstance(groups, str):
            return groups
        found[uri] = groups
    return found


def _groups(
    storage: Storage, file: ScannedFile, wanted: pa.Schema, precision: int
) -> list[StoredGroup] | str:
    path = parse_uri(file.uri).path.lstrip("/")
    info = storage.stat(path)
    same_time = info.modified_ms // precision == file.modified_ms // precision
    if info.size != file.size or not same_time:
        return CHANGED
    with storage.open_input(path) as source:
        opened = open_parquet(source, path=path)
        against = mismatch(opened, row_group_chunks(read_footer(source, path)), wanted)
        if against is not None:
            return against
        metadata = opened.metadata
        sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
        rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    pinned = PinnedFile.of(info)
    return [StoredGroup(pinned, i, max(1, size)) for i, size in enumerate(sizes) if rows[i]]


def _number_of_tasks(groups: Sequence[StoredGroup], spark: SparkSession, per_core: int) -> int:
    size = sum(group.size for group in groups)
    most = max(spark.sparkContext.defaultParallelism * per_core, size // TASK_BYTES_MAX)
    return max(1, min(most, -(-size // TASK_BYTES_MIN), len(groups)))


def divided(groups: Sequence[StoredGroup], tasks: int) -> tuple[tuple[Piece, ...], ...]:
    """Row groups in order, divided into tasks of about the same number of bytes."""
    size, before = sum(group.size for group in groups), 0
    taken: dict[int, list[StoredGroup]] = {}
    for group in groups:
        taken.setdefault((2 * before + group.size) * tasks // (2 * size), []).append(group)
        before += group.size
    return tuple(tuple(_pieces(own)) for own in taken.values())


def _pieces(groups: Sequence[StoredGroup]) -> Iterator[Piece]:
    """Row groups that follow each other in a file, put together."""
    file, own = groups[0].file, [groups[0].index]
    for group in groups[1:]:
        if group.file != file or group.index <= own[-1]:
            yield Piece(file, tuple(own))
            file, own = group.file, []
        own.append(group.index)
    yield Piece(file, tuple(own))


def _refuse_changed(storage: Storage, pinned: PinnedFile) -> None:
    try:
        found = PinnedFile.of(storage.stat(pinned.path))
    except NotFoundError:
        found = None
    if found != pinned:
        raise InputError(
            f"The file {pinned.path} has {'changed' if found else 'gone'} since it was to be "
            "written to the table.",
            hint="Read the files again when nobody changes them any more, where all workers see "
            "them. Nothing was written.",
            context={"path": pinned.path, "storage": storage.uri},
        )
