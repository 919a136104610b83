"""Partition paths and what they say about partition columns.

Escaping is Hive's, not that of URLs: control characters and `"#%'*/:=?\\{[]^` become `%XX` of the
UTF-16 code unit, everything else stays. `unescape` undoes it and leaves stray `%` alone.

`partition_path_values` reads column values off a path only where that is certain. Where columns are
stored in the files, a value is left out if the path may not tell it exactly (formatted times, the
default partition of a text column, text that is not the one spelling of a value): such a partition
is never skipped. Where partition columns are not stored, the path is all there is and is believed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakewright.format.java_text import decimal_text, floating_text
from lakewright.format.key_spec import KeySpec, PartitionField, PartitionKind

__all__ = ["DEFAULT_PARTITION", "escape", "partition_path_values", "unescape"]

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_ESCAPE = re.compile(r"%(\+[0-9a-fA-F]|[0-9a-fA-F]{2})")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?", re.ASCII)
_UNKNOWN = object()


def escape(value: str | None) -> str:
    """A partition value as a folder name; null and empty become the default partition."""
    if not value:
        return DEFAULT_PARTITION
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value)


def unescape(name: str) -> str:
    """The value behind an escaped folder name."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), name)


def partition_path_values(path: str, spec: KeySpec, schema: pa.Schema) -> Mapping[str, Any] | None:
    """Values of partition columns that follow from a partition path, typed as in `schema`.

    Columns whose value does not follow are left out. None: the path does not have the table's
    shape, so it says nothing.
    """
    if not spec.forms_partition_paths:
        return None
    texts = _segments(path, spec)
    if texts is None:
        return None
    values = {}
    for field, text in zip(spec.partition_fields, texts, strict=True):
        kind = _type_at(schema, field.name)
        if kind is None:
            continue
        value = _value(text, field, kind, spec)
        if value is not _UNKNOWN:
            values[field.name] = value
    return values


def _segments(path: str, spec: KeySpec) -> list[str] | None:
    """The text of each partition field, without hive prefixes; None if the path has another shape.

    With one field the whole path is its value, slashes and all.
    """
    fields = spec.partition_fields
    if not fields:
        return [] if not path else None
    parts = [path] if len(fields) == 1 else path.split("/")
    if len(parts) != len(fields):
        return None
    texts = []
    for field, part in zip(fields, parts, strict=True):
        prefix = f"{field.name}="
        if part.startswith(prefix) and (spec.hive_style or spec.drops_partition_columns):
            texts.append(part[len(prefix) :])
        elif spec.hive_style:
            return None
        else:
            texts.append(part)
    return texts


def _type_at(schema: pa.Schema, name: str) -> pa.DataType | None:
    index = schema.get_field_index(name)
    if index >= 0:
        return schema.field(index).type
    first, *rest = name.split(".")
    index = schema.get_field_index(first)
    kind = schema.field(index).type if index >= 0 else None
    for part in rest:
        if kind is None or not pt.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(kind.get_field_index(part)).type
    return kind


def _value(text: str, field: PartitionField, kind: pa.DataType, spec: KeySpec) -> Any:
    believed = spec.drops_partition_columns
    is_text = pt.is_string(kind) or pt.is_large_string(kind)
    if text == DEFAULT_PARTITION:
        # In a text column both null and "" live here.
        return None if believed or not is_text else _UNKNOWN
    if field.kind is not PartitionKind.SIMPLE and not (believed and is_text):
        return _UNKNOWN
    if spec.slash_separated_dates:
        if not believed:
            return _UNKNOWN
        text = text.replace("/", "-")
    # SQL writers escape timestamps whatever the table says.
    plain = unescape(text) if spec.url_encode or pt.is_timestamp(kind) else text
    if is_text:
        stray_prefix = not spec.hive_style and plain.startswith(f"{field.name}=")
        return _UNKNOWN if stray_prefix and not believed else plain
    return _parsed(plain, kind, believed=believed)


def _parsed(text: str, kind: pa.DataType, *, believed: bool) -> Any:
    """The value with exactly this text, or unknown."""
    if pt.is_boolean(kind):
        return {"true": True, "false": False}.get(text, _UNKNOWN)
    if pt.is_integer(kind):
        return _integer(text, kind)
    if pt.is_date32(kind):
        return _date(text)
    if pt.is_decimal(kind):
        return _decimal(text, kind)
    if kind in (pa.float32(), pa.float64()):
        return _floating(text, kind)
    if pt.is_timestamp(kind) and believed:
        return _timestamp(text, kind)
    return _UNKNOWN


def _integer(text: str, kind: pa.DataType) -> Any:
    if not _INTEGER.fullmatch(text) or str(int(text)) != text:
        return _UNKNOWN
    number = int(text)
    limit = 1 << (kind.bit_width - 1)
    return number if -limit <= number < limit else _UNKNOWN


def _date(text: str) -> Any:
    if not _DATE.fullmatch(text):
        return _UNKNOWN
    try:
        return date.fromisoformat(text)
    except ValueError:
        return _UNKNOWN


def _decimal(text: str, kind: pa.DataType) -> Any:
    try:
        found = pa.array([Decimal(text)], kind)
    except (ArithmeticError, ValueError, pa.ArrowException):
        return _UNKNOWN
    return found[0].as_py() if decimal_text(found)[0].as_py() == text else _UNKNOWN


def _floating(text: str, kind: pa.DataType) -> Any:
    try:
        found = pa.array([float(text)], pa.float64()).cast(kind, safe=False)
    except ValueError:
        return _UNKNOWN
    number = found[0].as_py()
    ordinary = number == number and number != 0
    return number if ordinary and floating_text(found)[0].as_py() == text else _UNKNOWN


def _timestamp(text: str, kind: pa.DataType) -> Any:
    if _INTEGER.fullmatch(text):
        return pa.scalar(int(text), pa.int64()).cast(kind).as_py()
    if not _TIMESTAMP.fullmatch(text):
        return _UNKNOWN
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _UNKNOWN
    return moment if kind.tz is None else moment.replace(tzinfo=UTC)
