"""Column values as the text that record keys and partition paths are made of.

Text is what Hudi's JVM writers leave on disk: Java's `toString` for numbers, ISO dates, lower-case
hex for bytes. Timestamps depend on the writer's code path (`TextPath`). Nested columns, and bytes
on the row path, have no text and are refused with a `SchemaError`. Nulls stay null.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.errors import SchemaError
from lakewright.format.java_text import (
    date_text,
    decimal_text,
    floating_text,
    hex_text,
    sql_timestamp_text,
)
from lakewright.format.key_spec import TextPath

__all__ = ["column_at", "key_text"]


def column_at(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The column with a (dotted) name; dots lead into structs. `SchemaError` if there is none."""
    if name in batch.schema.names:
        return batch.column(batch.schema.get_field_index(name))
    first, *rest = name.split(".")
    index = batch.schema.get_field_index(first)
    array = batch.column(index) if index >= 0 else None
    for part in rest:
        if array is None or not pt.is_struct(array.type) or array.type.get_field_index(part) < 0:
            array = None
            break
        array = pc.struct_field(array, part)
    if array is None:
        raise SchemaError(
            f"The key field {name} is not among the columns.",
            hint="Check hoodie.table.recordkey.fields and hoodie.table.partition.fields, or read "
            "all key columns.",
            context={"field": name, "columns": ", ".join(batch.schema.names)},
        )
    return array


def key_text(
    array: pa.Array, *, field: str, path: TextPath = TextPath.AVRO, zone: str = "UTC"
) -> pa.Array:
    """Values as key text (`string`), nulls as null."""
    kind = array.type
    if pt.is_dictionary(kind):
        return key_text(array.dictionary_decode(), field=field, path=path, zone=zone)
    if pt.is_string(kind):
        return array
    if pt.is_large_string(kind) or pt.is_string_view(kind) or pt.is_boolean(kind):
        return array.cast(pa.string())
    if pt.is_integer(kind) or pt.is_null(kind):
        return array.cast(pa.string())
    if kind in (pa.float32(), pa.float64()):
        return floating_text(array)
    if pt.is_decimal(kind):
        return decimal_text(array)
    if pt.is_date32(kind):
        return date_text(array)
    if pt.is_timestamp(kind):
        # Timestamps without zone are plain numbers to both paths.
        if path is TextPath.ROW and kind.tz is not None:
            return sql_timestamp_text(array, zone=zone)
        return array.view(pa.int64()).cast(pa.string())
    is_bytes = pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind)
    if is_bytes and path is TextPath.AVRO:
        return hex_text(array)
    raise SchemaError(
        f"The key field {field} has type {kind}, which has no text as a key.",
        hint="Use columns of text, numbers, dates or timestamps for keys and partitions.",
        context={"field": field, "type": str(kind)},
    )
