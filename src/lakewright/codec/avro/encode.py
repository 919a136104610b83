"""Arrow columns to Avro records, all rows in lockstep.

The bytes are the ones that Avro's own encoders write: arrays and maps as one block without a byte
size, unions by branch index, decimals in bytes with the fewest bytes. Rows that the schema cannot
hold (a null where it has no null branch, an unknown enum symbol, a column that is missing or has
another type) are `SchemaError`s; nothing is guessed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from lakewright.codec.avro.arrow_types import arrow_type, merged_union
from lakewright.codec.avro.assembly import Assembly
from lakewright.codec.avro.cursor import Flags, Positions
from lakewright.codec.avro.types import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)
from lakewright.codec.avro.writers import (
    BooleanWriter,
    DecimalWriter,
    EnumWriter,
    FixedWriter,
    FloatWriter,
    MaskedWriter,
    NullWriter,
    NumberWriter,
    TextWriter,
    Writer,
    refuse,
    validity,
)

__all__ = ["encode_records"]

CHUNK_ROWS: Final = 8192
CHUNK_BYTES: Final = 64 << 20


def encode_records(batch: pa.RecordBatch, schema: Record) -> tuple[bytes, Positions]:
    """Encode every row with `schema`; the bodies one after the other, and n + 1 offsets into them.

    Columns are found by name; columns that the schema does not have are left out.
    """
    writers = _field_writers(schema)
    columns = [_column(batch, name, dtype) for name, dtype, _ in writers]
    offsets = np.zeros(batch.num_rows + 1, np.int64)
    bodies = []
    row = written = 0
    step = _rows_per_chunk(batch)
    while row < batch.num_rows:
        count = min(step, batch.num_rows - row)
        out = Assembly(count)
        for column, (name, _, writer) in zip(columns, writers, strict=True):
            _write_present(column.slice(row, count), writer, out, name)
        packed = out.finish()
        _, bounds, data = packed.buffers()
        ends = np.frombuffer(bounds, np.int32, count + 1)
        offsets[row + 1 : row + count + 1] = ends[1:] + np.int64(written)
        bodies.append(memoryview(data)[: ends[-1]] if data is not None else b"")
        written += int(ends[-1])
        row += count
    return b"".join(bodies), offsets


def _rows_per_chunk(batch: pa.RecordBatch) -> int:
    per_row: int = batch.nbytes // max(batch.num_rows, 1) + 1
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // per_row))


def _column(batch: pa.RecordBatch, name: str, dtype: pa.DataType) -> pa.Array:
    if batch.schema.get_field_index(name) < 0:
        refuse(f"column '{name}' is missing")
    column = batch.column(name)
    if _relaxed(column.type) == dtype:
        return column
    try:
        return column.cast(dtype)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        refuse(f"column '{name}' has the type {column.type} and not {dtype} ({error})")


@lru_cache(maxsize=256)
def _field_writers(record: Record) -> tuple[tuple[str, pa.DataType, Writer], ...]:
    return tuple(
        (entry.name, _relaxed(arrow_type(entry.type)), writer_for(entry.type, entry.name))
        for entry in record.fields
    )


def _relaxed(dtype: pa.DataType) -> pa.DataType:
    """The type with nullable fields all the way down: nulls are checked by value."""
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(f.name, _relaxed(f.type)) for f in dtype.fields])
    if pa.types.is_map(dtype):
        return pa.map_(dtype.key_type, pa.field("value", _relaxed(dtype.item_type)))
    if pa.types.is_list(dtype):
        return pa.list_(pa.field("element", _relaxed(dtype.value_type)))
    return dtype


def _write_present(column: pa.Array, writer: Writer, out: Assembly, name: str) -> None:
    """Write a column after a look at its nulls."""
    if column.null_count and not writer.takes_null:
        refuse(f"'{name}' holds a null, and its type has no null branch")
    if len(column):  # an empty column may come without buffers
        writer.write(column, out)


class OptionalWriter(Writer):
    """`[null, T]` and `[T, null]`."""

    takes_null = True

    def __init__(self, inner: Writer, null_index: int) -> None:
        self._inner = inner
        self._null_flag = 2 * null_index
        self._value_flag = 2 - self._null_flag

    def write(self, column: pa.Array, out: Assembly) -> None:
        """Append flags, and the values that are not null."""
        present = validity(column)
        if present is None:
            out.byte(self._value_flag)
            self._inner.write(column, out)
            return
        flags = np.where(present, np.uint64(self._value_flag), np.uint64(self._null_flag))
        out.word(flags, 1, 1)
        if isinstance(self._inner, MaskedWriter):
            self._inner.write(column, out, present)
        else:
            _write_some(column, self._inner, out, present)


def _write_some(column: pa.Array, writer: Writer, out: Assembly, present: Flags) -> None:
    chosen = column.filter(pa.array(present))
    part = Assembly(len(chosen))
    writer.write(chosen, part)
    out.placed(part.finish(), present)


class RecordWriter(Writer):
    """A struct as a nested record."""

    def __init__(self, fields: list[tuple[str, Writer]]) -> None:
        self._fields = fields

    def write(self, column: pa.Array, out: Assembly) -> None:
        """Append field after field."""
        for number, (name, writer) in enumerate(self._fields):
            _write_present(column.field(number), writer, out, name)


class ArrayWriter(Writer):
    """A list as one block of items and the closing zero."""

    def __init__(self, item: Writer, name: str) -> None:
        self._item = item
        self._name = name

    def write(self, column: pa.Array, out: Assembly) -> None:
        """Append count, items and end of each list."""
        offsets = _list_offsets(column)
        items = column.values.slice(offsets[0], offsets[-1] - offsets[0])
        part = Assembly(len(items))
        _write_present(items, self._item, part, f"{self._name}.element")
        _put_blocks(offsets, part, out)


class MapWriter(Writer):
    """A map as one block of entries and the closing zero."""

    def __init__(self, value: Writer, name: str) -> None:
        self._key = TextWriter()
        self._value = value
        self._name = name

    def write(self, column: pa.Array, out: Assembly) -> None:
        """Append count, entries and end of each map."""
        offsets = _list_offsets(column)
        first, count = offsets[0], offsets[-1] - offsets[0]
        part = Assembly(int(count))
        self._key.write(column.keys.slice(first, count), part)
        values = column.items.slice(first, count)
        _write_present(values, self._value, part, f"{self._name}.value")
        _put_blocks(offsets, part, out)


def _list_offsets(column: pa.Array) -> Positions:
    buffer = column.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(len(column) + 1, np.int64)
    return np.frombuffer(buffer, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)


def _put_blocks(offsets: Positions, items: Assembly, out: Assembly) -> None:
    packed = items.finish()
    _, bounds, data = packed.buffers()
    ends = np.frombuffer(bounds, np.int32, len(packed) + 1)
    count = np.diff(offsets)
    out.signed(count, count > 0)
    out.binary(ends[offsets - offsets[0]], data if data is not None else pa.py_buffer(b""))
    out.byte(0)


class UnionWriter(Writer):
    """A struct of members as the branch of the first member that is not null."""

    takes_null = True

    def __init__(self, branches: list[Writer], null_index: int | None, name: str) -> None:
        self._branches = branches
        self._null_index = null_index
        self._name = name

    def write(self, column: pa.Array, out: Assembly) -> None:
        """Append branch indexes, and each branch where it was chosen."""
        members = self._members(column)
        chosen = np.full(len(column), -1 if self._null_index is None else self._null_index)
        present = validity(column)
        for number, member in reversed(members):
            filled = validity(member)
            here = np.ones(len(column), np.bool_) if filled is None else filled
            chosen[here if present is None else here & present] = number
        if (chosen < 0).any():
            refuse(f"'{self._name}' holds a null, and its union has no null branch")
        out.signed(chosen, None)
        for number, member in members:
            here = chosen == number
            if here.any():
                _write_some(member, self._branches[number], out, here)

    def _members(self, column: pa.Array) -> list[tuple[int, pa.Array]]:
        numbers = [n for n in range(len(self._branches)) if n != self._null_index]
        if len(numbers) == 1:
            return [(numbers[0], column)]
        return [(number, column.field(place)) for place, number in enumerate(numbers)]


class MergedWriter(UnionWriter):
    """A long into `[int, long]` (int where it fits), a double into `[float, double]`."""

    def __init__(self, schema: Union, branches: list[Writer], name: str) -> None:
        super().__init__(branches, schema.null_index, name)
        self._kinds = [b.kind if isinstance(b, Primitive) else "" for b in schema.branches]

    def _members(self, column: pa.Array) -> list[tuple[int, pa.Array]]:
        if "double" in self._kinds:
            return [(self._kinds.index("double"), column)]
        narrow = column.cast(pa.int32(), safe=False)
        fits = pa.compute.equal(narrow.cast(pa.int64()), column)
        ints = pa.compute.if_else(fits, narrow, pa.scalar(None, pa.int32()))
        return [(self._kinds.index("int"), ints), (self._kinds.index("long"), column)]


def writer_for(schema: AvroType, name: str) -> Writer:
    """The writer of one type; `name` is for messages."""
    dtype = arrow_type(schema)
    match schema:
        case Primitive():
            return _primitive_writer(schema, dtype)
        case Fixed():
            if schema.logical == "decimal":
                return DecimalWriter(dtype, schema.size)
            return FixedWriter(schema.size)
        case Enum():
            return EnumWriter(schema.name, schema.symbols)
        case Array(items=items):
            return ArrayWriter(writer_for(items, name), name)
        case Map(values=values):
            return MapWriter(writer_for(values, name), name)
        case Record(fields=fields):
            entries = [(f"{name}.{e.name}", writer_for(e.type, f"{name}.{e.name}")) for e in fields]
            return RecordWriter(entries)
        case Union():
            return _union_writer(schema, name)


def _primitive_writer(schema: Primitive, dtype: pa.DataType) -> Writer:
    match schema.kind:
        case "null":
            return NullWriter()
        case "boolean":
            return BooleanWriter()
        case "int" | "long":
            return NumberWriter(dtype)
        case "float" | "double":
            return FloatWriter(dtype)
        case _:
            return DecimalWriter(dtype, None) if schema.logical == "decimal" else TextWriter()


def _union_writer(schema: Union, name: str) -> Writer:
    if schema.optional is not None and schema.null_index is not None:
        return OptionalWriter(writer_for(schema.optional, name), schema.null_index)
    branches = [writer_for(branch, name) for branch in schema.branches]
    if merged_union(schema) is not None:
        return MergedWriter(schema, branches, name)
    return UnionWriter(branches, schema.null_index, name)
