"""DataFrames to be written: their columns in Arrow, and their keys as Spark forms them.

Meta columns of a frame are left out before anything else: a write makes its own. What Spark sends
to its workers is brought to the types told here (`as_sent`), because the zone of timestamps and the
width of text depend on settings of the session; no value changes by that.

What can go wrong: a type that no table can hold is a `SchemaError` that names the column; a stream,
or something that is no DataFrame, an `InputError`. Both before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
    UserDefinedType,
)

from lakewright.engine.new_table_checks import column_type
from lakewright.errors import InputError, SchemaError
from lakewright.format.key_spec import KeySpec
from lakewright.format.table_schema import META_COLUMNS
from lakewright.spark.key_columns import partition_path_column, record_key_column

__all__ = [
    "KeyColumns",
    "as_sent",
    "finite_frame",
    "incoming_frame",
    "key_columns",
    "sent_schema",
]

_ATOMS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "char": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("ns"),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
"""By the name of the Spark type; not every Spark has a class for each."""


def incoming_frame(rows: object) -> DataFrame:
    """The rows of a write without meta columns; `InputError` for what is not a finite frame."""
    return finite_frame(rows).drop(*META_COLUMNS)


def finite_frame(rows: object) -> DataFrame:
    """What is given, if it is a DataFrame that has an end; otherwise `InputError`."""
    if not isinstance(rows, DataFrame):
        raise InputError(
            f"Rows cannot be taken from {type(rows).__name__} here.",
            hint="Pass a Spark DataFrame; for Arrow data use SparkTable.table.",
            context={"type": type(rows).__name__},
        )
    if rows.isStreaming:
        raise InputError(
            "A stream has no end and cannot be written as one commit.",
            hint="Use write_stream(df, checkpoint=...), which commits batch after batch.",
        )
    return rows


def sent_schema(schema: StructType) -> pa.Schema:
    """The columns of a frame in Arrow, whatever the session's settings are."""
    return pa.schema(
        [pa.field(f.name, _arrow_type(f.dataType, f.name), nullable=f.nullable) for f in schema]
    )


def as_sent(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as Spark sent it, with the columns and types of `schema`."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.select(schema.names).columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Keys as Spark columns; None where only a worker can form them."""

    record_key: Column | None
    partition_path: Column | None


def key_columns(spec: KeySpec, sent: pa.Schema, table: pa.Schema) -> KeyColumns:
    """The keys of a frame's rows.

    `table` are the columns as they are stored: where the frame has another type, the text of a
    value may differ, and the answer is None.
    """
    paths = [field.name for field in spec.partition_fields]
    return KeyColumns(
        record_key_column(spec, table) if _alike(spec.record_key_fields, sent, table) else None,
        partition_path_column(spec, table) if _alike(paths, sent, table) else None,
    )


def _alike(names: Sequence[str], sent: pa.Schema, table: pa.Schema) -> bool:
    return all(
        (kind := column_type(sent, name)) is not None and kind == column_type(table, name)
        for name in names
    )


def _arrow_type(kind: DataType, column: str) -> pa.DataType:
    if isinstance(kind, UserDefinedType):
        return _arrow_type(kind.sqlType(), column)
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, StructType):
        return pa.struct(
            [
                pa.field(f.name, _arrow_type(f.dataType, f"{column}.{f.name}"), nullable=f.nullable)
                for f in kind
            ]
        )
    if isinstance(kind, ArrayType):
        element = _arrow_type(kind.elementType, f"{column}.element")
        return pa.list_(pa.field("element", element, nullable=kind.containsNull))
    if isinstance(kind, MapType):
        key = _arrow_type(kind.keyType, f"{column}.key")
        value = _arrow_type(kind.valueType, f"{column}.value")
        return pa.map_(
            pa.field("key", key, nullable=False),
            pa.field("value", value, nullable=kind.valueContainsNull),
        )
    found = _ATOMS.get(kind.typeName())
    if found is None:
        raise SchemaError(
            f"Column {column} is {kind.simpleString()}, which no table can hold.",
            hint="Cast it to a type that tables have, or leave the column out.",
            context={"column": column, "type": kind.simpleString()},
        )
    return found
