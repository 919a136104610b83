"""Record keys and partition paths as Spark columns, from the same spec as the Arrow kernels.

Guarantees: the columns hold byte for byte what `format.keys.record_keys` and
`format.partition_paths.partition_paths` give for the same rows, whatever the session's time zone,
ANSI mode or Java is. A row without a key has a null key, for `refuse_rows_without_key` to show.
Where that cannot be promised the answer is None, and keys are formed where rows become Arrow:
floating point (newer Javas choose other digits), decimals that may need an exponent, timestamps as
texts, times by pattern, keys that are generated.

The DataFrame must have the table's columns in the table's types.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it

from lakewright.engine.new_table_checks import column_type
from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.key_spec import KeySpec, PartitionField, PartitionKind, TextPath
from lakewright.format.keys import DEFAULT_PARTITION, EMPTY_PLACEHOLDER, NULL_PLACEHOLDER
from lakewright.format.partition_values import escape

__all__ = ["partition_path_column", "record_key_column"]

PLAIN_SCALE_MAX = 6
"""Decimals of up to so many digits after the point never have an exponent."""
_ESCAPED = "%" + "".join(map(chr, range(0x20))) + "\x7f\"#'*/:=?\\{[]^"
"""What `escape` escapes, the escape character itself first."""


def record_key_column(spec: KeySpec, schema: pa.Schema) -> Column | None:
    """The record key of every row of a DataFrame with these columns, null in rows without one."""
    if spec.generator is KeyGeneratorType.USER_PROVIDED or not spec.record_key_fields:
        return None
    texts = [_text(name, spec, schema) for name in spec.record_key_fields]
    known = [text for text in texts if text is not None]
    if len(known) < len(texts):
        return None
    hollow = reduce(lambda a, b: a & b, [F.coalesce(t == "", F.lit(True)) for t in known])
    named = spec.names_single_key or spec.generator is KeyGeneratorType.GLOBAL_DELETE
    if len(known) == 1 and not named:
        key = known[0]
    else:
        parts = [
            F.concat(F.lit(f"{name}:"), _with_placeholders(text))
            for name, text in zip(spec.record_key_fields, known, strict=True)
        ]
        key = F.concat_ws(",", *parts)
    return F.when(~hollow, key)


def partition_path_column(spec: KeySpec, schema: pa.Schema) -> Column | None:
    """The partition path of every row of a DataFrame with these columns."""
    if not spec.forms_partition_paths:
        return None
    if not spec.partition_fields:
        return F.lit("")
    parts = [_segment(field, spec, schema) for field in spec.partition_fields]
    known = [part for part in parts if part is not None]
    return F.concat_ws("/", *known) if len(known) == len(parts) else None


def _segment(field: PartitionField, spec: KeySpec, schema: pa.Schema) -> Column | None:
    kind = column_type(schema, field.name)
    is_time = kind is not None and pt.is_timestamp(kind)
    if field.kind is not PartitionKind.SIMPLE or (is_time and spec.sql_timestamps):
        return None
    text = _text(field.name, spec, schema)
    if text is None:
        return None
    if spec.slash_separated_dates:
        text = F.regexp_replace(text, "-", "/")
    text = F.when(text != "", text).otherwise(F.lit(DEFAULT_PARTITION))
    if spec.url_encode:
        text = _escaped(text)
    return F.concat(F.lit(f"{field.name}="), text) if spec.hive_style else text


def _with_placeholders(text: Column) -> Column:
    return F.when(text == "", F.lit(EMPTY_PLACEHOLDER)).otherwise(
        F.coalesce(text, F.lit(NULL_PLACEHOLDER))
    )


def _escaped(text: Column) -> Column:
    """Escaped one character after the other, and only where there is something to escape."""
    escaped = text
    for char in _ESCAPED:
        escaped = F.regexp_replace(escaped, _literal(char), escape(char))
    any_of = "[" + "".join(map(_literal, _ESCAPED)) + "]"
    return F.when(text.rlike(any_of), escaped).otherwise(text)


def _literal(char: str) -> str:
    """A regular expression for one character, in Java's syntax."""
    return f"\\x{ord(char):02x}"


def _text(name: str, spec: KeySpec, schema: pa.Schema) -> Column | None:
    """Values as key text; None if Spark cannot be trusted to write the same text."""
    kind = column_type(schema, name)
    if kind is None:
        return None
    column = F.col(".".join(f"`{part}`" for part in name.split(".")))
    if pt.is_string(kind):
        return column
    if pt.is_boolean(kind) or pt.is_integer(kind) or pt.is_date32(kind):
        return column.cast("string")
    if pt.is_decimal(kind) and kind.scale <= PLAIN_SCALE_MAX:
        return column.cast("string")
    if pt.is_binary(kind) and spec.text_path is TextPath.AVRO:
        return F.lower(F.hex(column))
    if kind == pa.timestamp("us", "UTC") and spec.text_path is TextPath.AVRO:
        return F.unix_micros(column).cast("string")
    return None
