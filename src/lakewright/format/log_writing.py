"""Blocks of log files from columns: rows as Avro or Parquet, deletes, change rows.

Headers are those that every release which owns a table's version reads, and no others: 0.15 fails
on a header that it does not know. Rows carry the meta columns. Blocks stay below a size; a block of
rows with positions holds them in the order of the positions, as readers expect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO

import numpy as np
import pyarrow as pa

from lakewright.codec.avro.encode import encode_records
from lakewright.codec.avro.schema import parse_schema
from lakewright.codec.avro.types import Record
from lakewright.codec.parquet_writer import ParquetPolicy, ParquetSink
from lakewright.codec.roaring import encode_positions
from lakewright.errors import FormatError
from lakewright.format.delete_ordering import Int64s, OrderingBranch
from lakewright.format.log_block import BlockType, HeaderKey, encode_block
from lakewright.format.log_content import encode_avro_content, encode_delete_rows
from lakewright.format.version import TableVersion

__all__ = ["BlockPositions", "BlockWriter"]


@dataclass(frozen=True, slots=True, eq=False)
class BlockPositions:
    """Which rows of a base file the rows of a block are versions of."""

    base_instant: str
    positions: Int64s
    """Row numbers, one for each row of the block; distinct."""


@dataclass(frozen=True, slots=True)
class BlockWriter:
    """Makes the blocks of one instant."""

    instant: str
    schema: str
    """Avro schema of the rows, meta columns included."""
    version: TableVersion
    parquet: ParquetPolicy | None = None
    """None: rows are Avro."""
    partial: bool = False
    """Whether the rows have only some of the table's columns."""

    def __post_init__(self) -> None:
        if self.partial and not self.version.partial_log_blocks:
            raise FormatError(
                "Tables of this version have no blocks of partial rows.",
                hint="Complete the rows from what is stored before they are written.",
            )

    def rows(
        self, batch: pa.RecordBatch, positions: BlockPositions | None, *, max_bytes: int
    ) -> Iterator[bytes]:
        """Blocks of rows, each about as large as `max_bytes` at most."""
        order = None
        if positions is not None:
            order = np.argsort(positions.positions)
            batch = batch.take(pa.array(order))
        step = max(1, batch.num_rows * max_bytes // max(batch.nbytes, 1))
        for first in range(0, batch.num_rows, step):
            part = batch.slice(first, step)
            headers = self._headers()
            if positions is not None and order is not None and self.version.partial_log_blocks:
                at = positions.positions[order[first : first + step]]
                headers |= _placed(BlockPositions(positions.base_instant, at))
            if self.partial:
                headers[HeaderKey.IS_PARTIAL] = "true"
            if self.parquet is not None:
                yield encode_block(BlockType.PARQUET_DATA, headers, self._parquet_file(part))
            else:
                yield encode_block(BlockType.AVRO_DATA, headers, self._avro(part))

    def deletes(
        self,
        keys: pa.Array,
        partitions: pa.Array,
        ordering: pa.Array | None,
        positions: BlockPositions | None = None,
    ) -> bytes:
        """A block of deletes; without ordering values they win over everything before them."""
        headers = self._headers()
        if positions is not None and self.version.partial_log_blocks:
            order = np.argsort(positions.positions)
            index = pa.array(order)
            keys, partitions = keys.take(index), partitions.take(index)
            ordering = None if ordering is None else ordering.take(index)
            at = positions.positions[order]
            headers |= _placed(BlockPositions(positions.base_instant, at))
        dated = self.version.payload_semantics == "0.x"
        wrapper = OrderingBranch.DATE if dated else OrderingBranch.INT
        content = encode_delete_rows(keys, partitions, ordering, date_wrapper=wrapper)
        return encode_block(BlockType.DELETE, headers, content)

    def changes(self, batch: pa.RecordBatch) -> bytes:
        """A block of change rows, whose schema is this writer's."""
        return encode_block(BlockType.CDC_DATA, self._headers(), self._avro(batch))

    def _headers(self) -> dict[HeaderKey, str]:
        return {HeaderKey.INSTANT_TIME: self.instant, HeaderKey.SCHEMA: self.schema}

    def _avro(self, rows: pa.RecordBatch) -> bytes:
        return encode_avro_content(*encode_records(rows, _record(self.schema)))

    def _parquet_file(self, rows: pa.RecordBatch) -> bytes:
        assert self.parquet is not None
        out = BytesIO()
        sink = ParquetSink(out, rows.schema, self.parquet)
        while rows.num_rows:
            room = sink.room(rows)
            sink.write(rows.slice(0, room))
            rows = rows.slice(room)
        sink.close({"parquet.avro.schema": self.schema, "writer.model.name": "avro"})
        return out.getvalue()


def _placed(positions: BlockPositions) -> dict[HeaderKey, str]:
    return {
        HeaderKey.RECORD_POSITIONS: encode_positions(positions.positions),
        HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS: positions.base_instant,
    }


@lru_cache(maxsize=64)
def _record(schema: str) -> Record:
    parsed = parse_schema(schema)
    assert isinstance(parsed, Record)
    return parsed
