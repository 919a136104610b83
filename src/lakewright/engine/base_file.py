"""A base file while it is being written: its rows, its footer, and what the commit says about it.

Memory is one row group. Rows keep their order. A file that follows an older version takes row
groups over from it as they are, where nothing changes in them. The footer tells the file's bounds
and, where the table has one, its bloom filter. Publishing is `txn/publishing`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakewright.codec.parquet_rows import SomeRows
from lakewright.codec.parquet_successor import SuccessorSink
from lakewright.codec.parquet_writer import ParquetPolicy, ParquetSink
from lakewright.engine.base_footer import FooterKeys
from lakewright.engine.base_reader import BaseReader
from lakewright.engine.meta_columns import REPEATED, UNIQUE, Stamp
from lakewright.engine.partition_marks import mark_partition
from lakewright.engine.write_context import FILE_NAME, RECORD_KEY, WriteContext
from lakewright.errors import CorruptFileError
from lakewright.format.file_names import BaseFileName
from lakewright.format.file_slices import BaseFile
from lakewright.format.records.commit import RuntimeStats, WriteStat
from lakewright.runtime.clock import Clock
from lakewright.runtime.spawn import Spawner
from lakewright.storage.base import Storage
from lakewright.txn.markers import Marker, MarkerType
from lakewright.txn.publishing import publish_file

__all__ = ["NO_PREVIOUS_COMMIT", "Filled", "NewVersion", "OpenFile", "RowCursor"]

NO_PREVIOUS_COMMIT = "null"
COPY_ROWS = 65_536
KEPT_SHARE = 4
"""Row groups of at least this part of a full one are taken over."""
LAST_GROUP_SHARE = 8
"""A file ends rather than get a last row group smaller than this part of a full one."""


@dataclass(frozen=True, slots=True)
class Filled:
    """How many rows went into a file, and what happened to those of its older version."""

    rows: int
    inserts: int
    updates: int = 0
    deletes: int = 0


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A base file that is about to be written."""

    context: WriteContext
    partition: str
    name: BaseFileName
    task: int
    spawner: Spawner | None

    def publish(
        self,
        storage: Storage,
        fill: Callable[[Any], Filled],
        marker: MarkerType,
        clock: Clock,
        *,
        previous: BaseFile | None,
    ) -> WriteStat:
        """Publish the file; what the commit says about it."""
        context, partition, name = self.context, self.partition, self.name.text
        begun_s = clock.monotonic_s()
        filled: list[Filled] = []
        announced = Marker(partition, name, marker)
        info = publish_file(
            storage,
            context.fence,
            announced,
            lambda sink: filled.append(fill(sink)),
            prepare=lambda: mark_partition(storage, context, partition, now_ms=clock.now_ms()),
        )
        spent_ms = round((clock.monotonic_s() - begun_s) * 1000)
        return self._stat(announced.data_path, filled[-1], info.size, spent_ms, previous)

    def fill_new(self, rows: RowCursor, first_row: int, sink: Any) -> Filled:
        """Take rows until there are none, or until the file is large enough."""
        file = OpenFile(self, sink)
        while (batch := rows.peek()) is not None:
            taken = rows.take(file.room(batch))
            if file.add_new(taken, first_row + file.rows) and file.is_full():
                break
        return Filled(file.close(), file.rows)

    def fill_appended(
        self, reader: BaseReader, batches: Iterable[pa.RecordBatch], first_row: int, sink: Any
    ) -> Filled:
        """Copy the rows of the older version, then add the new ones."""
        file = OpenFile(self, sink, older=reader)
        for group in reader.row_groups():
            if file.takes_over(group):
                file.take_over(group)
                continue
            for old in reader.batches(group, COPY_ROWS):
                file.add_copied(old)
        copied = file.rows
        rows = RowCursor(batches)
        while (batch := rows.peek()) is not None:
            taken = rows.take(file.room(batch))
            file.add_new(taken, first_row + file.rows - copied)
        return Filled(file.close(), file.rows - copied)

    def _stat(
        self, path: str, filled: Filled, size: int, spent_ms: int, previous: BaseFile | None
    ) -> WriteStat:
        avro = self.context.version.commit_metadata_avro
        return WriteStat(
            file_id=self.name.file_id,
            path=path,
            prev_commit=previous.instant if previous else NO_PREVIOUS_COMMIT,
            prev_base_file=previous.name if previous and avro else None,
            partition_path=self.partition,
            num_writes=filled.rows,
            num_inserts=filled.inserts,
            num_deletes=filled.deletes,
            num_update_writes=filled.updates,
            num_updates=0 if avro else None,
            total_write_bytes=size,
            total_write_errors=0,
            file_size_in_bytes=size,
            total_log_records=0,
            total_log_files_compacted=0,
            total_log_size_compacted=0,
            total_log_read_time_ms=0 if avro else None,
            total_updated_records_compacted=0,
            total_log_blocks=0,
            total_corrupt_log_block=0,
            total_rollback_blocks=0,
            runtime_stats=RuntimeStats(
                total_scan_time=0,
                total_create_time=0 if previous else spent_ms,
                total_upsert_time=spent_ms if previous else 0,
            ),
        )


class OpenFile:
    """The Parquet file, its footer and its stamp, while rows go in."""

    def __init__(
        self,
        version: NewVersion,
        sink: Any,
        *,
        older: BaseReader | None = None,
    ) -> None:
        """`older`: the version it goes on from, from its footer and from its row groups."""
        context = version.context
        self._context = context
        self._stamp = Stamp(
            context,
            partition=version.partition,
            file_name=version.name.text,
            task=version.task,
        )
        inherited = None
        if older is not None:
            inherited = FooterKeys.inherited(context, _footer(older), spawner=version.spawner)
        self._inherits = inherited is not None
        self._keys = inherited or FooterKeys(context, spawner=version.spawner)
        self._older = older
        self._sink = _sink(context, sink, older)
        self._name = version.name.text

    def takes_over(self, group: int) -> bool:
        """Whether a row group of the older version can stay as it is, and is large enough for it.

        Small ones are written anew together with what follows, so that they do not become many.
        """
        if not isinstance(self._sink, SuccessorSink) or self._older is None:
            return False
        rows = self._older.file.metadata.row_group(group).num_rows
        return self._is_large(rows)

    def _is_large(self, rows: int) -> bool:
        return rows >= self._context.parquet.row_group_rows // KEPT_SHARE

    def takes_columns_over(self, group: int) -> bool:
        """Whether columns of a row group can stay where rows of it change."""
        return (
            self.takes_over(group)
            and isinstance(self._sink, SuccessorSink)
            and self._sink.is_compressed_alike(group)
        )

    def take_over(self, group: int, keys: pa.Array | None = None) -> None:
        """Take a row group of the older version as it is; `keys` are its record keys if known."""
        assert self._older is not None
        rows = self._older.file.metadata.row_group(group).num_rows
        self._take(group, keys, self._stamp.named(rows))

    def take_columns_over(
        self, group: int, keys: pa.Array, rows: list[pa.RecordBatch], changed: frozenset[str]
    ) -> None:
        """Take a row group of the older version, but the `changed` columns of its new `rows`.

        The list is emptied: other columns need not be held while these are encoded.
        """
        stamped = [self._stamp.copied(batch, changed | {FILE_NAME}) for batch in rows]
        rows.clear()
        self._take(group, keys, pa.Table.from_batches(stamped).unify_dictionaries())

    def takes_rows(self, group: int, rows: int) -> bool:
        """Whether so many rows of a row group are enough for one, and can be decoded at once."""
        if self._older is None or not self._is_large(rows):
            return False
        size = self._older.file.metadata.row_group(group).total_byte_size
        return bool(size <= self._context.parquet.row_group_bytes)

    def some_rows(
        self, group: int, keep: pa.BooleanArray, known: Mapping[str, pa.Array]
    ) -> SomeRows:
        """The rows of a row group of the older version that are kept, for `take_rows`."""
        return self._successor().some_rows(group, keep, known, without=frozenset({FILE_NAME}))

    def take_rows(self, group: int, keys: pa.Array, rows: SomeRows) -> None:
        """Take some rows of a row group of the older version, which have these keys."""
        self._learn(group, keys)
        named = self._stamp.named(len(keys))
        table = rows.table.append_column(named.schema.field(0), named.column(0))
        self._successor().take_rows(group, replace(rows, table=table))

    def take_columns(
        self, group: int, keys: pa.Array, column: Callable[[str], pa.Array | None]
    ) -> None:
        """Take a row group of the older version, but the columns that are given; each is asked for
        once, in the order of the file. `keys` are those of the rows then."""
        self._learn(group, keys)

        def source(name: str) -> pa.Table | None:
            if name == FILE_NAME:
                return self._stamp.named(len(keys))
            found = column(name)
            if found is None:
                return None
            alone = pa.RecordBatch.from_arrays([found], names=[name])
            return pa.Table.from_batches([self._stamp.copied(alone, frozenset({name}))])

        self._successor().take_columns(group, len(keys), source)

    def _successor(self) -> SuccessorSink:
        if not isinstance(self._sink, SuccessorSink):
            raise AssertionError("row groups are taken over only where that is possible")
        return self._sink

    def _take(self, group: int, keys: pa.Array | None, changed: pa.Table) -> None:
        self._learn(group, keys)
        self._successor().take_over(group, changed)

    def _learn(self, group: int, keys: pa.Array | None) -> None:
        """Add the keys of a row group to the footer, which are read if they are not known."""
        if not self._inherits:
            assert self._older is not None
            keys = self._older.column(group, RECORD_KEY) if keys is None else keys
            self._keys.add(self._known(keys))

    @property
    def rows(self) -> int:
        """Rows in the file so far."""
        return self._sink.rows

    def room(self, batch: pa.RecordBatch) -> int:
        """How many rows the current row group still takes."""
        limit = self._context.max_file_bytes
        if limit is not None and not self._sink.rows_written and batch.nbytes > limit:
            # Nothing is known yet about how well rows compress: not more than fit as they are.
            fits = int(limit * batch.num_rows // batch.nbytes)
            return max(1, min(self._sink.room(batch), fits))
        return self._sink.room(batch)

    def add_new(self, batch: pa.RecordBatch, first_row: int) -> bool:
        """Stamp and write rows that fit; whether they ended a row group."""
        stamped = self._stamp.new(batch, first_row)
        if self._context.populate_meta:
            self._keys.add(batch.column(RECORD_KEY))
        ended = self._sink.write(stamped)
        limit = self._context.max_file_bytes
        if limit is not None and not ended and self._sink.waiting_bytes >= limit:
            self._sink.flush()
            return True
        return ended

    def add_copied(self, batch: pa.RecordBatch, *, inserted: bool = False) -> None:
        """Write rows that have their meta columns: those of the older version, as they are or
        merged, and `inserted` ones that it did not have."""
        while batch.num_rows:
            room = self._sink.room(batch)
            part, batch = batch.slice(0, room), batch.slice(room)
            if self._context.populate_meta:
                keys = self._known(part.column(RECORD_KEY))
                if inserted or not self._inherits:
                    self._keys.add(keys)
            self._sink.write(self._stamp.copied(part))

    def _known(self, keys: pa.Array) -> pa.Array:
        if keys.null_count:
            raise CorruptFileError(
                f"{keys.null_count} rows of the older version have no record key.",
                hint="The file does not follow the table's properties; look at it before "
                "rows are added to its file group.",
                context={"path": self._name},
            )
        return keys

    def is_full(self) -> bool:
        """Whether the next rows belong into another file; sizes the next row group if not."""
        limit = self._context.max_file_bytes
        if limit is None:
            return False
        written, rows = self._sink.bytes_written, self._sink.rows_written
        spare = (limit - written) * rows // max(1, written)
        if spare < max(1, min(rows, self._context.parquet.row_group_rows) // LAST_GROUP_SHARE):
            return True
        self._sink.limit_row_group(spare)
        return False

    def close(self) -> int:
        """Write the footer; how many rows the file has."""
        self._sink.close(self._keys.values())
        return self._sink.rows


def _sink(context: WriteContext, sink: Any, older: BaseReader | None) -> ParquetSink:
    if older is None:
        return ParquetSink(sink, context.schema, context.parquet, unique=UNIQUE, repeated=REPEATED)
    policy = _policy(context, older)
    if context.populate_meta and older.file.metadata.num_row_groups:
        found = SuccessorSink.of(
            sink,
            context.schema,
            policy,
            older=older.file,
            path=older.path,
            unique=UNIQUE,
            repeated=REPEATED,
        )
        if found is not None:
            return found
    return ParquetSink(sink, context.schema, policy, unique=UNIQUE, repeated=REPEATED)


def _policy(context: WriteContext, older: BaseReader) -> ParquetPolicy:
    """Columns get a dictionary if they have one in the older version; then no sample is needed."""
    metadata = older.file.metadata
    names = {field.name for field in older.file.schema_arrow}
    auto = context.parquet.dictionary == "auto"
    if not auto or not metadata.num_row_groups or names != set(context.schema.names):
        return context.parquet
    group = metadata.row_group(0)
    columns = (group.column(i) for i in range(group.num_columns))
    kept = (c.path_in_schema for c in columns if c.has_dictionary_page)
    chosen = dict.fromkeys((*REPEATED, *(path for path in kept if path not in UNIQUE)))
    return replace(context.parquet, dictionary=tuple(chosen))


def _footer(older: BaseReader) -> dict[str, str]:
    stored = older.file.metadata.metadata or {}
    return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in stored.items()}


class RowCursor:
    """Batches with a finger on the next row that nobody took yet."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches: Iterator[pa.RecordBatch] = iter(batches)
        self._left: pa.RecordBatch | None = None

    def peek(self) -> pa.RecordBatch | None:
        """The rows to be taken next; None at the end."""
        while self._left is None or not self._left.num_rows:
            self._left = next(self._batches, None)
            if self._left is None:
                return None
        return self._left

    def take(self, count: int) -> pa.RecordBatch:
        """The first `count` of the peeked rows."""
        batch = self.peek()
        if batch is None:
            raise AssertionError("rows are taken only after they were peeked at")
        self._left = batch.slice(count) if count < batch.num_rows else None
        return batch if self._left is None else batch.slice(0, count)
