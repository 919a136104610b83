"""Avro records to Arrow columns, all records in lockstep.

One cursor per record moves over the payload; each field is read for all records of a chunk by a few
vector operations. Columns that nobody asked for are stepped over, and nothing behind the last
wanted one is looked at. A record whose last field was read must end exactly where its frame ends.

Guarantees: bytes that do not follow the schema end in a `CorruptFileError` with path, record number
and offset; time and memory are bounded by the size of the payload times the width of the schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from lakewright.codec.avro.arrow_types import arrow_schema, arrow_type, merged_union
from lakewright.codec.avro.blocks import ItemShape
from lakewright.codec.avro.cursor import (
    EMPTY_ITEMS_PER_BYTE,
    PADDING,
    Bytes,
    Chunk,
    Lanes,
    Positions,
)
from lakewright.codec.avro.nested import (
    ArrayReader,
    MapReader,
    MergedReader,
    OptionalReader,
    RecordReader,
    UnionReader,
)
from lakewright.codec.avro.readers import (
    BooleanReader,
    DecimalReader,
    EnumReader,
    FixedReader,
    FloatReader,
    NullReader,
    NumberReader,
    Reader,
    TextReader,
)
from lakewright.codec.avro.scalar import skipper
from lakewright.codec.avro.types import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    fixed_size,
    min_size,
    nests_blocks,
)
from lakewright.errors import CorruptFileError, FormatError, SchemaError

__all__ = ["CHUNK_RECORDS", "decode_batches", "decode_records"]

CHUNK_RECORDS: Final = 8192
CHUNK_BYTES: Final = 8 << 20
"""A chunk stays in the processor's cache, and bounds what bad bytes can make us allocate."""
SPAN_MAX: Final = 1 << 20
"""Bytes between the frames of a chunk; beyond it the frames are copied together."""


def decode_records(
    payload: bytes | memoryview | pa.Buffer,
    starts: Positions,
    ends: Positions,
    schema: Record,
    *,
    columns: Collection[str] | None = None,
    path: str = "",
) -> pa.RecordBatch:
    """Decode the records in `payload[starts[i]:ends[i]]`, written with `schema`, into one batch.

    `columns` are names of top-level fields; the result has them in schema order. A column whose
    text or items exceed what one Arrow array can hold is a `FormatError`: see `decode_batches`.
    """
    plan = _plan(schema, None if columns is None else frozenset(columns))
    chunks = [_decode_chunk(plan, *part) for part in _chunks(payload, starts, ends, path)]
    if len(chunks) == 1:
        return _batch(chunks[0], plan.schema, len(starts))
    joined = []
    for number, field in enumerate(plan.schema):
        parts = [chunk[number] for chunk in chunks]
        try:
            joined.append(pa.concat_arrays(parts) if parts else pa.nulls(0, field.type))
        except pa.ArrowInvalid as error:
            raise FormatError(
                f"Column '{field.name}' does not fit one Arrow array: {error}.",
                hint="Decode fewer records at once, or use decode_batches.",
                context={"path": path, "column": field.name},
            ) from error
    return _batch(joined, plan.schema, len(starts))


def decode_batches(
    payload: bytes | memoryview | pa.Buffer,
    starts: Positions,
    ends: Positions,
    schema: Record,
    *,
    columns: Collection[str] | None = None,
    path: str = "",
) -> Iterator[pa.RecordBatch]:
    """As `decode_records`, in batches of at most `CHUNK_RECORDS` records; for any payload size."""
    plan = _plan(schema, None if columns is None else frozenset(columns))
    for chunk, lanes in _chunks(payload, starts, ends, path):
        yield _batch(_decode_chunk(plan, chunk, lanes), plan.schema, len(lanes))


def _batch(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    # Without columns, only a struct still knows the number of rows.
    none = pa.Array.from_buffers(pa.struct([]), rows, [None], children=[])
    return pa.RecordBatch.from_struct_array(none)


class _Plan:
    """The readers of a record, up to the last wanted column."""

    def __init__(self, record: Record, wanted: frozenset[str] | None) -> None:
        names = [entry.name for entry in record.fields]
        unknown = sorted((wanted or frozenset()) - set(names))
        if unknown:
            raise SchemaError(
                f"The record '{record.name}' has no column {', '.join(map(repr, unknown))}.",
                hint="Ask for columns of the schema that the records were written with.",
            )
        keep = [wanted is None or name in wanted for name in names]
        last = max((number for number, kept in enumerate(keep) if kept), default=-1)
        self.whole = last == len(names) - 1
        self.steps: list[tuple[str, Reader | int, bool]] = []
        for entry, kept in zip(record.fields[: last + 1], keep, strict=False):
            width = None if kept else fixed_size(entry.type)
            self.steps.append(
                (entry.name, reader_for(entry.type) if width is None else width, kept)
            )
        self.schema = pa.schema(
            [field for field, kept in zip(arrow_schema(record), keep, strict=True) if kept]
        )


@lru_cache(maxsize=256)
def _plan(record: Record, wanted: frozenset[str] | None) -> _Plan:
    return _Plan(record, wanted)


def _decode_chunk(plan: _Plan, chunk: Chunk, lanes: Lanes) -> list[pa.Array]:
    arrays = []
    for name, reader, kept in plan.steps:
        chunk.column = name
        if isinstance(reader, int):
            lanes.move(reader, None)
        elif kept:
            arrays.append(reader.read(lanes))
        else:
            reader.skip(lanes)
    if plan.whole:
        chunk.column = ""
        short = lanes.pos != lanes.end
        if short.any():
            lanes.fail(short, "the record is longer than its fields")
    return arrays


def _chunks(
    payload: bytes | memoryview | pa.Buffer, starts: Positions, ends: Positions, path: str
) -> Iterator[tuple[Chunk, Lanes]]:
    data: Bytes = np.frombuffer(payload, np.uint8)
    starts, ends = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    _check_frames(len(data), starts, ends, path)
    behind = np.cumsum(ends - starts)
    first = 0
    while first < len(starts):
        done = int(behind[first - 1]) if first else 0
        by_bytes = int(np.searchsorted(behind, done + CHUNK_BYTES, side="right"))
        last = max(first + 1, min(first + CHUNK_RECORDS, by_bytes))
        yield _chunk(data, starts[first:last], ends[first:last], first, path)
        first = last


def _chunk(
    data: Bytes, begin: Positions, end: Positions, first: int, path: str
) -> tuple[Chunk, Lanes]:
    low, high = int(begin.min()), int(end.max())
    size = end - begin
    total = int(size.sum())
    base: int | Positions = low
    if high - low > 2 * total + SPAN_MAX:  # frames far apart, or in any order
        pieces = [data[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
        piece = np.concatenate([*pieces, np.zeros(PADDING, np.uint8)])
        base = begin - (np.cumsum(size) - size)
    elif high + PADDING <= len(data):
        piece = data[low : high + PADDING]
    else:
        piece = np.concatenate([data[low:high], np.zeros(PADDING, np.uint8)])
    chunk = Chunk(piece, base=base, first=first, path=path)
    chunk.empty_items = EMPTY_ITEMS_PER_BYTE * (total + PADDING)
    return chunk, Lanes(chunk, begin - base, end - base)


def _check_frames(size: int, starts: Positions, ends: Positions, path: str) -> None:
    if len(starts) != len(ends):
        raise FormatError(
            f"{len(starts)} starts and {len(ends)} ends of records.",
            hint="Pass one start and one end per record.",
            context={"path": path},
        )
    bad = (starts < 0) | (ends < starts) | (ends > size) | (ends - starts >= 1 << 31)
    if bad.any():
        record = int(np.argmax(bad))
        raise CorruptFileError(
            f"Avro record {record} claims the bytes {starts[record]} to {ends[record]} of {size}.",
            hint="The record lengths in the file are damaged; compare it with another copy.",
            context={"path": path, "record": record, "offset": int(starts[record])},
        )


def reader_for(schema: AvroType) -> Reader:
    """The reader of one type."""
    dtype = arrow_type(schema)
    match schema:
        case Primitive():
            return _primitive_reader(schema, dtype)
        case Fixed():
            if schema.logical == "decimal":
                return DecimalReader(dtype, schema.size)
            return FixedReader(schema.size)
        case Enum(symbols=symbols):
            return EnumReader(symbols)
        case Array(items=items):
            shape = ItemShape(min_size(items), fixed_size(items), nests_blocks(items))
            return ArrayReader(dtype, reader_for(items), skipper(items), shape)
        case Map(values=values):
            shape = ItemShape(1 + min_size(values), None, nests_blocks(values))
            return MapReader(dtype, reader_for(values), skipper(values), shape)
        case Record(fields=fields):
            return RecordReader(dtype, [reader_for(entry.type) for entry in fields])
        case Union():
            return _union_reader(schema, dtype)


def _primitive_reader(schema: Primitive, dtype: pa.DataType) -> Reader:
    match schema.kind:
        case "null":
            return NullReader()
        case "boolean":
            return BooleanReader()
        case "int" | "long":
            return NumberReader(dtype)
        case "float" | "double":
            return FloatReader(dtype)
        case _:
            return DecimalReader(dtype, None) if schema.logical == "decimal" else TextReader(dtype)


def _union_reader(schema: Union, dtype: pa.DataType) -> Reader:
    null_index = schema.null_index
    if schema.optional is not None and null_index is not None:
        return OptionalReader(reader_for(schema.optional), null_index)
    branches = [reader_for(branch) for branch in schema.branches]
    if merged_union(schema) is not None:
        return MergedReader(dtype, branches, null_index)
    return UnionReader(dtype, branches, null_index)
