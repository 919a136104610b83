"""Avro types and Arrow types, both ways.

Avro to Arrow follows what Spark makes of the same schema: `[null, T]` is a nullable T,
`[int, long]` is a long, `[float, double]` a double, any other union a struct of nullable members
`member0`, `member1`, … in branch order without the null branch. Fields are nullable exactly where
the union has a null branch (members and the null type always).

Arrow to Avro writes the schemas that Hudi writes: nullable fields are `["null", T]` with default
null, decimals are fixed, nested records are named after their field below the full name of their
parent.

A type without a counterpart is a `SchemaError`.
"""

from __future__ import annotations

from typing import Final, NoReturn

import pyarrow as pa

from lakewright.codec.avro.types import (
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)
from lakewright.errors import SchemaError

__all__ = ["arrow_schema", "arrow_type", "from_arrow", "is_nullable", "merged_union"]

PRECISION_MAX: Final = 76
FIXED_COLUMN_SIZE_MAX: Final = 1 << 16

_NULL: Final = Primitive("null")
_PLAIN: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_TIMES: Final = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}


def arrow_schema(record: Record) -> pa.Schema:
    """The Arrow schema of a record's fields."""
    return pa.schema([_arrow_field(entry.name, entry.type) for entry in record.fields])


def arrow_type(schema: AvroType) -> pa.DataType:
    """The Arrow type that holds every value of an Avro type."""
    match schema:
        case Primitive(kind=kind, logical=logical):
            if logical == "decimal":
                return _decimal(schema)
            return _TIMES[logical] if logical in _TIMES else _PLAIN[kind]
        case Fixed():
            if schema.logical == "decimal":
                return _decimal(schema)
            if schema.size > FIXED_COLUMN_SIZE_MAX:
                _refuse(f"fixed '{schema.name}' of {schema.size} bytes is too wide for a column")
            return pa.binary(schema.size)
        case Enum():
            return pa.string()
        case Array(items=items):
            return pa.list_(_arrow_field("element", items))
        case Map(values=values):
            return pa.map_(pa.string(), _arrow_field("value", values))
        case Record(fields=fields):
            return pa.struct([_arrow_field(entry.name, entry.type) for entry in fields])
        case Union():
            return _union_type(schema)


def is_nullable(schema: AvroType) -> bool:
    """Whether a column of this type may hold nulls."""
    if isinstance(schema, Union):
        return schema.null_index is not None
    return isinstance(schema, Primitive) and schema.kind == "null"


def merged_union(schema: Union) -> AvroType | None:
    """The one type that Spark reads a union of several values as: long or double."""
    kinds = [b for b in schema.branches if b != _NULL]
    plain = {b.kind for b in kinds if isinstance(b, Primitive) and b.logical is None}
    if len(kinds) == 2 and plain == {"int", "long"}:
        return Primitive("long")
    if len(kinds) == 2 and plain == {"float", "double"}:
        return Primitive("double")
    return None


def _arrow_field(name: str, schema: AvroType) -> pa.Field:
    return pa.field(name, arrow_type(schema), nullable=is_nullable(schema))


def _union_type(schema: Union) -> pa.DataType:
    values = [branch for branch in schema.branches if branch != _NULL]
    if not schema.branches:
        _refuse("a union without branches has no value")
    if not values:
        return pa.null()
    if len(values) == 1:
        return arrow_type(values[0])
    merged = merged_union(schema)
    if merged is not None:
        return arrow_type(merged)
    members = [
        pa.field(f"member{index}", arrow_type(branch), nullable=True)
        for index, branch in enumerate(values)
    ]
    return pa.struct(members)


def _decimal(schema: Primitive | Fixed) -> pa.DataType:
    precision, scale = schema.precision or 0, schema.scale or 0
    if precision > PRECISION_MAX:
        _refuse(f"a decimal of {precision} digits, more than {PRECISION_MAX}")
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _refuse(message: str) -> NoReturn:
    raise SchemaError(
        f"No column type for this schema: {message}.",
        hint="Change the type of that field, or leave the column out.",
    )


def from_arrow(schema: pa.Schema, *, name: str, namespace: str) -> Record:
    """The Avro record that Hudi declares for these columns.

    `name` and `namespace` are taken as they are; nested names are derived from them.
    """
    full = f"{namespace}.{name}" if namespace else name
    return _record(full, list(schema))


def _record(full: str, columns: list[pa.Field]) -> Record:
    return Record(full, tuple(_avro_field(full, column) for column in columns))


def _avro_field(parent: str, column: pa.Field) -> Field:
    schema = _avro_type(parent, column.name, column.type)
    if not column.nullable:
        return Field(column.name, schema)
    if schema == _NULL:
        return Field(column.name, schema, default=None)
    return Field(column.name, Union((_NULL, schema)), default=None)


def _optional(parent: str, field_name: str, item: pa.Field) -> AvroType:
    schema = _avro_type(parent, field_name, item.type)
    return Union((_NULL, schema)) if item.nullable and schema != _NULL else schema


def _avro_type(parent: str, name: str, dtype: pa.DataType) -> AvroType:
    if pa.types.is_decimal(dtype):
        if dtype.scale < 0:
            _refuse(f"'{parent}.{name}': a decimal with the negative scale {dtype.scale}")
        size = _decimal_size(dtype.precision)
        return Fixed(f"{parent}.{name}.fixed", size, "decimal", dtype.precision, dtype.scale)
    if pa.types.is_struct(dtype):
        return _record(f"{parent}.{name}", list(dtype.fields))
    if pa.types.is_map(dtype):
        if not _is_text(dtype.key_type):
            _refuse(f"'{parent}.{name}': map keys of type {dtype.key_type}; Avro has text keys")
        return Map(_optional(parent, name, dtype.item_field))
    if _is_list(dtype):
        return Array(_optional(parent, name, dtype.value_field))
    if pa.types.is_fixed_size_binary(dtype):
        return Fixed(f"{parent}.{name}.fixed", dtype.byte_width)
    if pa.types.is_dictionary(dtype):
        return _avro_type(parent, name, dtype.value_type)
    return _primitive(f"{parent}.{name}", dtype)


def _primitive(path: str, dtype: pa.DataType) -> Primitive:
    types = pa.types
    if types.is_null(dtype):
        return _NULL
    if types.is_boolean(dtype):
        return Primitive("boolean")
    if types.is_integer(dtype) and dtype != pa.uint64():
        return Primitive("long" if dtype.bit_width == 64 or dtype == pa.uint32() else "int")
    if types.is_floating(dtype):
        return Primitive("double" if dtype == pa.float64() else "float")
    if _is_text(dtype):
        return Primitive("string")
    if types.is_binary(dtype) or types.is_large_binary(dtype) or types.is_binary_view(dtype):
        return Primitive("bytes")
    if types.is_date(dtype):
        return Primitive("int", "date")
    if types.is_time32(dtype):
        return Primitive("int", "time-millis")
    if types.is_time64(dtype):
        return Primitive("long", "time-micros")
    if types.is_timestamp(dtype):
        unit = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}[dtype.unit]
        return Primitive("long", f"timestamp-{unit}" if dtype.tz else f"local-timestamp-{unit}")
    _refuse(f"'{path}' has the Arrow type {dtype}")


def _is_text(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(dtype)
        or pa.types.is_large_string(dtype)
        or pa.types.is_string_view(dtype)
    )


def _is_list(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(dtype)
        or pa.types.is_large_list(dtype)
        or pa.types.is_fixed_size_list(dtype)
    )


def _decimal_size(precision: int) -> int:
    """The fewest bytes that hold every value of that many digits."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8
