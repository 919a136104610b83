"""Reading the log files of a slice: from bytes to versions of rows in merge order.

Blocks are chosen by the format's rules (visibility, rollbacks, log compaction), adjacent data
blocks of one schema are decoded together, and every row is brought to the read schema before it
meets another version. Decoded rows go through `hold`, which spills them above a budget. Where the
log files themselves exceed the budget, only their block index is kept and contents are read again,
block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from lakewright.codec.avro.arrow_types import arrow_schema
from lakewright.codec.parquet import read_row_group
from lakewright.errors import UnsupportedTableError
from lakewright.format.block_rows import avro_batches, open_parquet_block, placed, record_schema
from lakewright.format.evolution import Conversion, conversion
from lakewright.format.file_slices import LogFile
from lakewright.format.log_block import BlockType, LogBlock, read_blocks
from lakewright.format.log_content import block_runs, delete_rows_of
from lakewright.format.log_index import index_blocks
from lakewright.format.log_scan import BlockSelection, select_blocks
from lakewright.merge.columns import path_type
from lakewright.merge.fold import LogVersions
from lakewright.storage.base import Storage

RUN_BYTES_MAX = 64 << 20
BATCH_ROWS = 65_536

Renames = Callable[[str], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class LogReader:
    """Feeds the log rows of a slice into `LogVersions`."""

    storage: Storage
    schema: pa.Schema
    """What rows are brought to: the columns the merge and the scan need."""
    ordering_columns: tuple[str, ...]
    is_visible: Callable[[str], bool] | None
    latest: str | None
    resident_bytes: int
    """Log files above this size in all are indexed first and read again block by block."""
    with_key: Callable[[pa.RecordBatch], pa.RecordBatch]
    """Adds the record key where it is not stored."""
    constants: Mapping[str, Any]
    """Values of columns that the files lack (dropped partition columns)."""
    renames: Renames | None = None
    """Old column names by new ones, for the instant that wrote a block."""
    instants: Container[str] | None = None
    """Blocks of other instants are left out; None takes all."""
    keeps_lone: bool = True
    """Whether log compactions count of which no merged instant is left."""

    def read_into(self, versions: LogVersions, logs: Sequence[LogFile]) -> BlockSelection:
        """Add every visible version of the slice, oldest first; what was read, without contents."""
        selection = self.select(logs)
        by_instant = self.renames is not None
        for run in block_runs(selection.blocks, bytes_max=RUN_BYTES_MAX, by_instant=by_instant):
            blocks = [self._with_content(b) for b in run]
            if blocks[0].type is BlockType.DELETE:
                self._add_deletes(versions, blocks)
            else:
                self._add_rows(versions, blocks)
        return selection.without_contents()

    def _add_rows(self, versions: LogVersions, blocks: Sequence[LogBlock]) -> None:
        for batch, made in self._decoded(blocks):
            present = None
            if blocks[0].is_partial:
                present = frozenset(self.schema.names) - frozenset(made.absent)
            rows = made.apply(batch, self.constants)
            versions.add_rows(self.with_key(rows), columns=present)

    def select(self, logs: Sequence[LogFile]) -> BlockSelection:
        """The blocks that count, oldest first."""
        return select_blocks(
            self._blocks(logs),
            is_visible=self.is_visible,
            latest=self.latest,
            instants=self.instants,
            keeps_lone=self.keeps_lone,
        )

    def _blocks(self, logs: Sequence[LogFile]) -> Iterator[LogBlock]:
        resident = sum(log.size for log in logs) <= self.resident_bytes
        for log in logs:
            path = log.path
            if resident:
                yield from read_blocks(self.storage.read(path), path=path)
            else:
                read = partial(self.storage.read_range, path)
                yield from index_blocks(read, self.storage.stat(path).size, path=path)

    def _with_content(self, block: LogBlock) -> LogBlock:
        if block.has_content:
            return block
        data = self.storage.read_range(block.path, block.offset, block.length)
        return read_blocks(data, path=block.path, file_offset=block.offset)[0]

    def _decoded(self, blocks: Sequence[LogBlock]) -> Iterator[tuple[pa.RecordBatch, Conversion]]:
        """Rows as stored, in the columns that are needed, and how to bring them to the schema."""
        first = blocks[0]
        if first.type is BlockType.AVRO_DATA:
            with placed(first):
                made = self._conversion(arrow_schema(record_schema(first)), first)
            columns = made.source_columns
            for batch in avro_batches(blocks, columns=columns, rows_max=BATCH_ROWS):
                yield batch, made
        elif first.type is BlockType.PARQUET_DATA:
            for block in blocks:
                file = open_parquet_block(block)
                with placed(block):
                    made = self._conversion(file.schema_arrow.remove_metadata(), block)
                    for group in range(file.metadata.num_row_groups):
                        for batch in read_row_group(
                            file, group, path=block.path, columns=made.source_columns
                        ):
                            yield batch, made
        else:
            raise UnsupportedTableError(
                f"Log block type {first.type.name} is not legal in a data table.",
                hint="Only the metadata table may hold HFile blocks; check what wrote this file.",
                context={"path": first.path, "offset": first.offset},
            )

    def _conversion(self, source: pa.Schema, block: LogBlock) -> Conversion:
        renames = self.renames(block.instant or "") if self.renames is not None else {}
        return conversion(source, self.schema, renames=renames, path=block.path)

    def _add_deletes(self, versions: LogVersions, blocks: Sequence[LogBlock]) -> None:
        rows = delete_rows_of(blocks)
        types = [path_type(self.schema, path) for path in self.ordering_columns]
        unordered = rows.unordered
        if len(types) == 1:
            unordered = unordered | rows.ordering.of_other_class(types[0])
        versions.add_deletes(rows.keys, rows.ordering_as(types), unordered)
