"""One form for values of both sides, so that what is equal compares equal and nothing else does.

Normalisation, complete:

| what | becomes | why |
|---|---|---|
| timestamps in ms or ns | microseconds | Spark has only these; nanoseconds must divide evenly |
| large, view and fixed strings and bytes, dictionaries | string, binary | one Spark type |
| maps | entries sorted by key | a map has no order |
| nullability, names of list and map fields | ignored | writers differ, readers see the same |
| order of columns | by name | Spark moves partition columns to the end of some relations |
| NaN | one NaN | bits of a NaN carry no value |

Everything else is compared as it is: column names, types with units, precision
and zone, nulls, signed zeros, nested values.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa


def type_name(t: pa.DataType) -> str:
    """The normal name of a type."""
    if pa.types.is_dictionary(t):
        return type_name(t.value_type)
    if pa.types.is_timestamp(t):
        return "timestamp(us)" if t.tz is None else "timestamp(us, UTC)"
    if pa.types.is_large_string(t) or t == pa.string_view():
        return "string"
    if _is_bytes(t):
        return "binary"
    if pa.types.is_map(t):
        return f"map<{type_name(t.key_type)}, {type_name(t.item_type)}>"
    if _is_list(t):
        return f"list<{type_name(t.value_type)}>"
    if pa.types.is_struct(t):
        return "struct<" + ", ".join(f"{f.name}: {type_name(f.type)}" for f in t) + ">"
    return str(t)


def columns_of(table: pa.Table) -> dict[str, str]:
    """Column names in order with their normal types."""
    return {field.name: type_name(field.type) for field in table.schema}


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows with hashable, comparable cells."""
    columns = [_cells(column) for column in table.columns]
    names = table.column_names
    return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _cells(column: pa.ChunkedArray) -> list[Any]:
    return [cell(value, column.type) for value in _in_micros(column).to_pylist()]


def _in_micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    t = column.type
    if pa.types.is_timestamp(t):
        return column.cast(pa.timestamp("us", t.tz)).cast(pa.int64())
    return column


def cell(value: Any, t: pa.DataType) -> Any:
    """One value in its normal, hashable form."""
    if value is None:
        return None
    if pa.types.is_map(t):
        pairs = ((cell(k, t.key_type), cell(v, t.item_type)) for k, v in value)
        return ("map", *sorted(pairs, key=repr))
    if _is_list(t):
        return ("list", *(cell(v, t.value_type) for v in value))
    if pa.types.is_struct(t):
        return ("struct", *((f.name, cell(value[f.name], f.type)) for f in t))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    return value


def _is_list(t: pa.DataType) -> bool:
    return bool(pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t))


def _is_bytes(t: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(t)
        or pa.types.is_large_binary(t)
        or pa.types.is_fixed_size_binary(t)
        or t == pa.binary_view()
    )
