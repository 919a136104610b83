"""Whether Arrow reads from a Parquet file exactly what Spark would.

Both follow the format where it is plain, and differ at its edges: calendars of the past, unsigned
and annotated types, old forms of lists, names that differ in case, decimals wider than they are
declared. So a column passes only if the file stores it under its very name, in the one form of the
format that both take for its type, and, where the meaning of a value depends on how large it is,
the statistics of every row group say that all values are ordinary. Everything else is a reason to
let Spark read the file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakewright.codec.parquet import ParquetFile
from lakewright.codec.parquet_footer import RawChunk, check_chunks
from lakewright.spark.routing import plain_type

__all__ = ["LEGACY", "NAMES", "TYPES", "UNREADABLE", "VALUES", "mismatch"]

LEGACY = "legacy_calendar"
NAMES = "names"
TYPES = "types"
VALUES = "values"
UNREADABLE = "unreadable"

LEGACY_MARK = b"org.apache.spark.legacy"
DAY_OF_1900 = -25_567
MICROS_OF_1900 = DAY_OF_1900 * 86_400_000_000
"""From then on all calendars and all rules of time zones that Spark has for old files agree."""
DECIMAL_BYTES_MAX = 16

_STORED = {
    pa.bool_(): ("BOOLEAN", "None"),
    pa.float32(): ("FLOAT", "None"),
    pa.float64(): ("DOUBLE", "None"),
    pa.string(): ("BYTE_ARRAY", "String"),
    pa.binary(): ("BYTE_ARRAY", "None"),
    pa.date32(): ("INT32", "Date"),
}
_ENTRIES, _ELEMENT = "key_value", "element"


def mismatch(file: ParquetFile, chunks: list[list[RawChunk]], wanted: pa.Schema) -> str | None:
    """Why a file must not be read by Arrow for the columns `wanted`; None if it may.

    `chunks` are the columns of each row group, as the file's footer has them.
    """
    metadata = file.metadata
    if any(key.startswith(LEGACY_MARK) for key in _values(metadata.metadata)):
        return LEGACY
    stored = file.schema_arrow
    alike = Counter(name.lower() for name in stored.names)
    leaves = [metadata.schema.column(i) for i in range(len(metadata.schema))]
    told = [(leaf.path, leaf.physical_type) for leaf in leaves]
    if len(chunks) != metadata.num_row_groups or check_chunks(chunks, told, file.footer_offset):
        return UNREADABLE
    for field in wanted:
        if alike[field.name.lower()] != 1 or field.name not in stored.names or _dotted(field):
            return NAMES
        if plain_type(stored.field(field.name).type) != plain_type(field.type):
            return TYPES
        own = [i for i, leaf in enumerate(leaves) if leaf.path.partition(".")[0] == field.name]
        expected = dict(_leaves(field.name, field.type))
        if _is_ambiguous(field.type) or [leaves[i].path for i in own] != [*expected]:
            return TYPES
        for i, kind in zip(own, expected.values(), strict=True):
            if not _is_stored_as(leaves[i], kind):
                return TYPES
            if not all(_is_ordinary(group[i], kind) for group in chunks):
                return VALUES
    return None


def _values(raw: Mapping[bytes, bytes] | None) -> Mapping[bytes, bytes]:
    return raw or {}


def _dotted(field: pa.Field) -> bool:
    """Whether a name cannot be told from a path."""
    return "." in field.name or any(map(_dotted, _fields(field.type)))


def _fields(kind: pa.DataType) -> Iterator[pa.Field]:
    if pt.is_map(kind):
        yield from (kind.key_field, kind.item_field)
    elif pt.is_nested(kind):
        yield from (kind.field(i) for i in range(kind.num_fields))


def _is_ambiguous(kind: pa.DataType) -> bool:
    """Whether elements of a list may be taken for the group around them."""
    if pt.is_list(kind) and pt.is_struct(kind.value_type):
        fields = [*_fields(kind.value_type)]
        if [field.name for field in fields] == [_ELEMENT]:
            return True
    return any(_is_ambiguous(field.type) for field in _fields(kind))


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Where the file has the values of a column, in the form of the format that is in use today."""
    if pt.is_struct(kind):
        for field in _fields(kind):
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pt.is_map(kind):
        yield from _leaves(f"{path}.{_ENTRIES}.key", kind.key_type)
        yield from _leaves(f"{path}.{_ENTRIES}.value", kind.item_type)
    elif pt.is_list(kind):
        yield from _leaves(f"{path}.list.{_ELEMENT}", kind.value_type)
    else:
        yield path, kind


def _is_stored_as(leaf: Any, kind: pa.DataType) -> bool:
    """Whether both take what is stored for values of `kind`."""
    physical, told = leaf.physical_type, json.loads(leaf.logical_type.to_json())
    if pt.is_decimal(kind):
        fits = physical in ("INT32", "INT64") or (
            physical == "FIXED_LEN_BYTE_ARRAY" and leaf.length <= DECIMAL_BYTES_MAX
        )
        same = (told.get("precision"), told.get("scale")) == (kind.precision, kind.scale)
        return bool(fits and told["Type"] == "Decimal" and same)
    if pt.is_timestamp(kind):
        adjusted = told.get("isAdjustedToUTC") is (kind.tz is not None)
        micros = told.get("timeUnit") == "microseconds" and kind.unit == "us"
        return bool(physical == "INT64" and told["Type"] == "Timestamp" and adjusted and micros)
    if pt.is_integer(kind):
        bits = kind.bit_width
        declared = told["Type"] == "Int" and (told["bitWidth"], told["isSigned"]) == (bits, True)
        bare = told["Type"] == "None" and bits >= 32
        return bool(physical == ("INT64" if bits == 64 else "INT32") and (declared or bare))
    return (physical, told["Type"]) == _STORED.get(kind)


def _is_ordinary(chunk: RawChunk, kind: pa.DataType) -> bool:
    """Whether no value of a row group is one that the two may take differently."""
    if not (pt.is_date(kind) or pt.is_timestamp(kind) or pt.is_decimal(kind)):
        return True
    if not chunk.values or chunk.null_count == chunk.values:
        return True
    low, high = _number(chunk.minimum, chunk), _number(chunk.maximum, chunk)
    if low is None or high is None:
        return False
    if pt.is_decimal(kind):
        end = int(10**kind.precision)
        return -end < low and high < end
    return low >= (DAY_OF_1900 if pt.is_date(kind) else MICROS_OF_1900)


def _number(raw: bytes | None, chunk: RawChunk) -> int | None:
    if not raw:
        return None
    width = {"INT32": 4, "INT64": 8}.get(chunk.type_name)
    if width is None:
        return int.from_bytes(raw, "big", signed=True)
    return int.from_bytes(raw, "little", signed=True) if len(raw) == width else None
