"""Rows of data blocks, with errors that point into the log file.

The codecs know offsets in what they are given: one content, or several joined to one payload. Here
these become offsets in the file of the block at fault, and errors that have none get the place of
their block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from lakewright.codec.avro.columns import decode_records
from lakewright.codec.avro.schema import Record, parse_schema
from lakewright.codec.parquet import ParquetFile, open_parquet
from lakewright.errors import CorruptFileError, FormatError, SchemaError
from lakewright.format.log_block import LogBlock
from lakewright.format.log_content import avro_frames_of, parquet_content

__all__ = ["avro_batches", "avro_rows", "open_parquet_block", "placed", "record_schema"]


@contextmanager
def placed(block: LogBlock) -> Iterator[None]:
    """Errors of what is done inside name the block's file, and its offset if they have none."""
    try:
        yield
    except FormatError as error:
        error.context["path"] = block.path
        error.context.setdefault("offset", block.offset)
        raise


def record_schema(block: LogBlock) -> Record:
    """The schema that the rows of a block were written with."""
    with placed(block):
        schema = parse_schema(block.schema)
        if not isinstance(schema, Record):
            raise SchemaError(
                "The schema of a data block is not a record.",
                hint="The file is damaged or was not written by Hudi.",
            )
        return schema


def avro_rows(
    blocks: Sequence[LogBlock], *, columns: Collection[str] | None = None
) -> pa.RecordBatch:
    """The records of Avro (or change) blocks of one schema, as one batch."""
    (batch,) = avro_batches(blocks, columns=columns, rows_max=None)
    return batch


def avro_batches(
    blocks: Sequence[LogBlock], *, columns: Collection[str] | None = None, rows_max: int | None
) -> Iterator[pa.RecordBatch]:
    """The records of Avro (or change) blocks of one schema, at most so many at a time."""
    first = blocks[0]
    schema = record_schema(first)
    payload, starts, ends = avro_frames_of(blocks)
    step = rows_max or max(1, len(starts))
    for at in range(0, max(1, len(starts)), step):
        part = slice(at, at + step)
        try:
            with placed(first):
                yield decode_records(
                    payload, starts[part], ends[part], schema, columns=columns, path=first.path
                )
        except CorruptFileError as error:
            if "record" in error.context:
                error.context["record"] = int(str(error.context["record"])) + at
            _point_into_file(error, blocks)
            raise


def open_parquet_block(block: LogBlock) -> ParquetFile:
    """The Parquet file in a block."""
    with placed(block):
        content = parquet_content(block)
        return open_parquet(content, path=block.path, base_offset=block.content_offset)


def _point_into_file(error: CorruptFileError, blocks: Sequence[LogBlock]) -> None:
    """Turn an offset in the joined contents into the block's file and an offset in that."""
    at = error.context.get("offset")
    if not isinstance(at, int) or "record" not in error.context:
        return
    begins = np.cumsum([0, *(len(block.content) for block in blocks)])
    number = min(int(np.searchsorted(begins, at, side="right")) - 1, len(blocks) - 1)
    block = blocks[number]
    error.context["path"] = block.path
    error.context["offset"] = block.content_offset + at - int(begins[number])
