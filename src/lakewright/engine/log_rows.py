"""Rows of log blocks as they are stored, for looking at them: no merging, no read schema."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakewright.codec.parquet import read_columns
from lakewright.format.block_rows import avro_rows, open_parquet_block, placed
from lakewright.format.log_block import BlockType, LogBlock
from lakewright.format.log_content import delete_rows

BLOCK_COLUMN = "_block"
KIND_COLUMN = "_block_type"


def stored_rows(blocks: Sequence[LogBlock]) -> pa.Table:
    """All rows and deletes of the blocks; `_block` is the block's number in the file."""
    parts = [
        _numbered(table, number, block.type)
        for number, block in enumerate(blocks)
        if (table := _rows(block)) is not None
    ]
    if not parts:
        return pa.table({BLOCK_COLUMN: pa.array([], pa.int64())})
    return pa.concat_tables(parts, promote_options="permissive")


def _numbered(table: pa.Table, number: int, kind: BlockType) -> pa.Table:
    rows = table.num_rows
    table = table.add_column(0, KIND_COLUMN, pa.repeat(pa.scalar(kind.name), rows))
    return table.add_column(0, BLOCK_COLUMN, pa.repeat(pa.scalar(number, pa.int64()), rows))


def _rows(block: LogBlock) -> pa.Table | None:
    if block.type in (BlockType.AVRO_DATA, BlockType.CDC_DATA):
        return pa.Table.from_batches([avro_rows([block])])
    if block.type is BlockType.PARQUET_DATA:
        file = open_parquet_block(block)
        with placed(block):
            return read_columns(file, path=block.path)
    if block.type is BlockType.DELETE:
        rows = delete_rows(block)
        return pa.table(
            {"_hoodie_record_key": rows.keys, "_hoodie_partition_path": rows.partitions}
        )
    return None
