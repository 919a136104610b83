"""Columns of a table as Spark sees them, and the Arrow form in which rows are handed to Spark.

Spark follows what it makes of the same Avro schema: times of day are whole numbers (milliseconds as
INT, microseconds as LONG), fixed bytes are BINARY, timestamps with zone are TIMESTAMP and without
are TIMESTAMP_NTZ, both in microseconds; nanoseconds are rounded down, because Spark has none.
Everything is nullable, also inside of nested columns, as in every file source of Spark.

Guarantees: `wire_schema` and `spark_schema` of one schema fit each other exactly, so that Spark
takes the batches without a copy. A type that Spark lacks is a `SchemaError` that names the column.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakewright.errors import SchemaError
from lakewright.format.evolution import Conversion, conversion

__all__ = ["check_types", "spark_schema", "spark_type", "to_wire", "wire_schema", "wire_type"]

DECIMAL_DIGITS_MAX = 38

_UTC_MICROS = pa.timestamp("us", "UTC")
_LOCAL_MICROS = pa.timestamp("us")
_SAME = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.null(): NullType(),
    _UTC_MICROS: TimestampType(),
    _LOCAL_MICROS: TimestampNTZType(),
}
_WIDENED = {pa.time32("ms"): pa.int32(), pa.time64("us"): pa.int64()}


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of a table as Spark's."""
    return StructType([StructField(f.name, spark_type(f.type, f.name)) for f in schema])


def wire_schema(schema: pa.Schema) -> pa.Schema:
    """The Arrow schema of batches that Spark takes for `spark_schema(schema)`."""
    return pa.schema([pa.field(f.name, wire_type(f.type, f.name)) for f in schema])


def to_wire(schema: pa.Schema) -> Conversion:
    """How batches of `schema` become batches of `wire_schema(schema)`."""
    return conversion(schema, wire_schema(schema))


def wire_type(kind: pa.DataType, column: str) -> pa.DataType:
    """The Arrow type in which Spark takes values of `kind`."""
    if kind in _SAME:
        return kind
    if kind in _WIDENED:
        return _WIDENED[kind]
    if pt.is_timestamp(kind):
        return _LOCAL_MICROS if kind.tz is None else _UTC_MICROS
    if pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS_MAX:
        return pa.decimal128(kind.precision, kind.scale)
    if pt.is_struct(kind):
        return pa.struct(
            [pa.field(f.name, wire_type(f.type, f"{column}.{f.name}")) for f in kind.fields]
        )
    if pt.is_list(kind):
        return pa.list_(pa.field("element", wire_type(kind.value_type, f"{column}.element")))
    if pt.is_map(kind):
        key = wire_type(kind.key_type, f"{column}.key")
        value = wire_type(kind.item_type, f"{column}.value")
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))
    raise SchemaError(
        f"Spark has no type for column {column}, which is {kind}.",
        hint="Name the columns to read and leave this one out; lakewright.Table reads it.",
        context={"column": column, "type": str(kind)},
    )


def spark_type(kind: pa.DataType, column: str) -> DataType:
    """The Spark type of a column."""
    wire = wire_type(kind, column)
    if wire in _SAME:
        return _SAME[wire]
    if pt.is_decimal(wire):
        return DecimalType(wire.precision, wire.scale)
    if pt.is_struct(wire):
        return StructType(
            [StructField(f.name, spark_type(f.type, f"{column}.{f.name}")) for f in wire.fields]
        )
    if pt.is_list(wire):
        return ArrayType(spark_type(wire.value_type, f"{column}.element"))
    return MapType(
        spark_type(wire.key_type, f"{column}.key"), spark_type(wire.item_type, f"{column}.value")
    )


def check_types(asked: StructType, schema: pa.Schema) -> None:
    """Raise `SchemaError` unless `schema` gives the columns that Spark was told of."""
    for field, known in zip(asked, spark_schema(schema), strict=True):
        if field.dataType != known.dataType:
            raise SchemaError(
                f"Column {field.name} was asked for as {field.dataType.simpleString()}, "
                f"but is {known.dataType.simpleString()}.",
                hint="Leave the schema out and cast the column afterwards. If none was given, the "
                "table's schema has changed since: start the query again.",
                context={"column": field.name},
            )
