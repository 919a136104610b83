"""Writing log files: changed rows and deletes of one file group, as one file of blocks.

The name follows the table version: the slice's base instant and the next free version, or the
writing instant and version one. The file is published as every data file is (`txn/publishing`), so
that what a failed attempt leaves is found by its marker. Rows come stamped with their meta columns;
data blocks come before delete blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakewright.engine.meta_columns import Stamp, plain
from lakewright.engine.partition_marks import mark_partition
from lakewright.engine.stored_statistics import row_statistics
from lakewright.engine.write_context import WriteContext, WriteToken
from lakewright.errors import AlreadyExistsError
from lakewright.format.file_names import LogFileName
from lakewright.format.file_slices import FileSlice
from lakewright.format.log_writing import BlockPositions, BlockWriter
from lakewright.format.records.commit import RuntimeStats, WriteStat
from lakewright.runtime.clock import Clock
from lakewright.storage.base import Storage
from lakewright.txn.markers import Marker, MarkerType
from lakewright.txn.publishing import publish_file

__all__ = ["LogEntries", "write_log_file"]

TRIES = 8
"""How often another writer may have taken the next version of a slice's log."""


@dataclass(frozen=True, slots=True, eq=False)
class LogEntries:
    """What goes into the log of one file group."""

    rows: pa.RecordBatch
    """In the write's `incoming_schema`; may be empty."""
    positions: BlockPositions | None = None
    inserts: int = 0
    """How many of the rows are new, as far as is known."""
    deleted_keys: pa.Array | None = None
    delete_ordering: pa.Array | None = None
    """Of the deletes; None for deletes that win over everything."""
    delete_positions: BlockPositions | None = None
    columns: frozenset[str] | None = None
    """Columns that the rows bring along, where they are partial."""

    @property
    def deletes(self) -> int:
        """Number of deletes."""
        return 0 if self.deleted_keys is None else len(self.deleted_keys)


def write_log_file(
    storage: Storage,
    context: WriteContext,
    *,
    partition: str,
    file_id: str,
    slice_: FileSlice | None,
    entries: LogEntries,
    token: WriteToken,
    clock: Clock,
    first_row: int = 0,
) -> WriteStat:
    """Add a log file to a file group; `slice_` is its newest slice, None for a new group."""
    begun_s = clock.monotonic_s()
    rows = _stamped(context, partition, file_id, entries, token, first_row)
    blocks = list(_blocks(context, partition, entries, rows))
    name, size = _published(storage, context, partition, file_id, slice_, blocks, token, clock)
    spent_ms = round((clock.monotonic_s() - begun_s) * 1000)
    stat = _stat(context, partition, file_id, slice_, entries, name, size, spent_ms)
    if not context.log.statistics:
        return stat
    deleted = context.log_schema(entries.columns)[0].names if entries.deletes else ()
    return replace(stat, column_facts=row_statistics(rows, deleted))


def _stamped(
    context: WriteContext,
    partition: str,
    file_id: str,
    entries: LogEntries,
    token: WriteToken,
    first_row: int,
) -> pa.RecordBatch | None:
    """The rows as the log has them; None if there are none."""
    if not entries.rows.num_rows:
        return None
    schema, _ = context.log_schema(entries.columns)
    stamp = Stamp(context, partition=partition, file_name=file_id, task=token.task)
    return plain(stamp.new(entries.rows, first_row), context.schema).select(schema.names)


def _blocks(
    context: WriteContext, partition: str, entries: LogEntries, rows: pa.RecordBatch | None
) -> Iterator[bytes]:
    _, avro = context.log_schema(entries.columns)
    writer = BlockWriter(
        context.instant,
        avro,
        context.version,
        context.parquet if context.log.parquet else None,
        partial=entries.columns is not None,
    )
    if rows is not None:
        positions = entries.positions if context.log.positions else None
        yield from writer.rows(rows, positions, max_bytes=context.log.max_block_bytes)
    for keys, ordering, positions in _delete_blocks(entries):
        paths = pa.repeat(pa.scalar(partition, pa.string()), len(keys))
        yield writer.deletes(keys, paths, ordering, positions if context.log.positions else None)


def _delete_blocks(
    entries: LogEntries,
) -> Iterator[tuple[pa.Array, pa.Array | None, BlockPositions | None]]:
    """Keys, ordering values and positions of each block of deletes.

    Deletes with and without ordering values come apart: not every reader takes both in one block.
    """
    keys, ordering, positions = (
        entries.deleted_keys,
        entries.delete_ordering,
        entries.delete_positions,
    )
    if keys is None or not len(keys):
        return
    if ordering is None or ordering.null_count in (0, len(ordering)):
        yield keys, ordering, positions
        return
    valid = ordering.is_valid().to_numpy(zero_copy_only=False)
    for places in (np.flatnonzero(valid), np.flatnonzero(~valid)):
        at = pa.array(places)
        some = positions and BlockPositions(positions.base_instant, positions.positions[places])
        yield keys.take(at), ordering.take(at), some


def _published(
    storage: Storage,
    context: WriteContext,
    partition: str,
    file_id: str,
    slice_: FileSlice | None,
    blocks: Sequence[bytes],
    token: WriteToken,
    clock: Clock,
) -> tuple[LogFileName, int]:
    def write(sink: Any) -> None:
        for block in blocks:
            sink.write(block)

    by_instant = context.version.log_name_has_delta_instant
    kind = MarkerType.CREATE if by_instant else MarkerType.APPEND
    first = _next_version(context, slice_)
    for version in range(first, first + TRIES):
        name = LogFileName(file_id, _named_after(context, slice_), version, str(token))
        try:
            info = publish_file(
                storage,
                context.fence,
                Marker(partition, name.text, kind),
                write,
                prepare=lambda: mark_partition(storage, context, partition, now_ms=clock.now_ms()),
            )
        except AlreadyExistsError:
            if version == first + TRIES - 1:
                raise
            continue
        return name, info.size
    raise AssertionError("the last try raises")


def _named_after(context: WriteContext, slice_: FileSlice | None) -> str:
    if slice_ is None or context.version.log_name_has_delta_instant:
        return context.instant
    return slice_.base_instant


def _next_version(context: WriteContext, slice_: FileSlice | None) -> int:
    if slice_ is None or context.version.log_name_has_delta_instant:
        return 1
    return max((log.version for log in slice_.logs), default=0) + 1


def _stat(
    context: WriteContext,
    partition: str,
    file_id: str,
    slice_: FileSlice | None,
    entries: LogEntries,
    name: LogFileName,
    size: int,
    spent_ms: int,
) -> WriteStat:
    """What a commit says about a log file, in the words of the release that owns the version."""
    avro = context.version.commit_metadata_avro
    older = () if avro or slice_ is None else [log.name for log in slice_.logs]
    base = slice_.base.name if slice_ and slice_.base and not avro else ""
    rows = entries.rows.num_rows
    return WriteStat(
        file_id=file_id,
        path=f"{partition}/{name.text}" if partition else name.text,
        prev_commit=name.instant,
        partition_path=partition,
        num_writes=rows,
        num_deletes=entries.deletes,
        num_update_writes=rows - entries.inserts,
        num_updates=0 if avro else None,
        num_inserts=entries.inserts,
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
        log_version=name.version,
        log_offset=0,
        base_file=base,
        log_files=[*older, name.text],
        runtime_stats=RuntimeStats(
            total_scan_time=0, total_create_time=0, total_upsert_time=spent_ms
        ),
    )
