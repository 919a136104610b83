"""The end of a Parquet file: finding it, and reading column statistics out of it safely.

Arrow's own view of a footer ends the process when a column's metadata contradicts the schema, so
statistics are read here, from the footer's bytes (Thrift compact protocol). Every length is checked
against the bytes that are there; nesting is limited; the work is linear in the footer's size.

`check_chunks` finds what Arrow takes without a word: columns whose names or types in the schema and
in the row groups differ (one of the two is damaged; Arrow goes by the schema and by position, so a
column would come out under another's name), and pages that two columns share or that lie outside
of the file.

Only bounds that are true are given: the `min_value`/`max_value` pair, and the deprecated
`min`/`max` for numbers only, because old writers ordered bytes by sign.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from lakewright.codec.thrift import CompactReader, Kind
from lakewright.errors import CorruptFileError, UnsupportedTableError

__all__ = [
    "ChunkStatistics",
    "RawChunk",
    "check_chunks",
    "corrupt",
    "encrypted",
    "read_footer",
    "row_group_chunks",
    "typed_bounds",
]

MAGIC, ENCRYPTED_MAGIC = b"PAR1", b"PARE"
TAIL_BYTES = 1 << 16
TRAILER_BYTES = 8
SIGNATURE_BYTES = 28
"""Nonce and tag that follow a readable footer of a file with encrypted columns."""

_BOOLEAN, _INT32, _INT64, _INT96, _FLOAT, _DOUBLE_TYPE, _BYTE_ARRAY, _FIXED = range(8)
_TYPE_NAMES = (
    "BOOLEAN",
    "INT32",
    "INT64",
    "INT96",
    "FLOAT",
    "DOUBLE",
    "BYTE_ARRAY",
    "FIXED_LEN_BYTE_ARRAY",
)
_WIDTHS = {_BOOLEAN: 1, _INT32: 4, _INT64: 8, _FLOAT: 4, _DOUBLE_TYPE: 8}
_ORDERED_BY_SIGN = frozenset({_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE_TYPE})


class ChunkStatistics(NamedTuple):
    """Bounds of one column in one row group; None is unknown. Bounds hold for non-null values."""

    minimum: Any | None
    maximum: Any | None
    null_count: int | None
    row_count: int


@dataclass(frozen=True, slots=True)
class RawChunk:
    """What a footer says about one column in one row group, values still encoded."""

    names: tuple[str, ...]
    """Names on the way from the top of the schema to the column."""
    physical: int
    values: int
    begin: int
    """Offset of its first page, dictionary or not."""
    size: int
    """Bytes of its pages as stored."""
    minimum: bytes | None
    maximum: bytes | None
    null_count: int | None
    plain_size: int = -1
    """Bytes of its pages when decompressed; -1 if that is not told."""

    @property
    def type_name(self) -> str:
        """How the stored type is called."""
        return _TYPE_NAMES[self.physical] if 0 <= self.physical < len(_TYPE_NAMES) else ""

    @property
    def column(self) -> str | None:
        """Name of a top-level column that is not nested; None for parts of nested columns."""
        return self.names[0] if len(self.names) == 1 else None


def read_footer(source: Any, path: str, base_offset: int = 0) -> bytes:
    """The Thrift bytes of the footer of an open `pyarrow.NativeFile`, the signature included."""
    size = source.size()
    if size < len(MAGIC) + TRAILER_BYTES:
        raise corrupt(
            f"it has {size} bytes, fewer than an empty Parquet file", path, base_offset + size
        )
    trailer = base_offset + size - TRAILER_BYTES
    start = max(size - TAIL_BYTES, 0)
    tail = bytes(source.read_at(size - start, start))
    if tail[-4:] == ENCRYPTED_MAGIC:
        raise encrypted(path)
    if tail[-4:] != MAGIC:
        raise corrupt("it does not end like a Parquet file", path, trailer + 4)
    length = int.from_bytes(tail[-8:-4], "little")
    if length > size - len(MAGIC) - TRAILER_BYTES:
        raise corrupt(f"its footer claims {length} of {size} bytes", path, trailer)
    if length <= len(tail) - TRAILER_BYTES:
        return tail[-TRAILER_BYTES - length : -TRAILER_BYTES]
    missing = length + TRAILER_BYTES - len(tail)
    return bytes(source.read_at(missing, start - missing)) + tail[:-TRAILER_BYTES]


def encrypted(path: str) -> UnsupportedTableError:
    """The error for files with encrypted columns or an encrypted footer."""
    return UnsupportedTableError(
        "The file uses Parquet encryption, which lakewright does not read.",
        hint="Rewrite the table without Parquet encryption, or read it with Hudi.",
        context={"path": path},
    )


def row_group_chunks(footer: bytes) -> list[list[RawChunk]]:
    """The columns of each row group, nested ones by their leaves; empty if it does not parse."""
    thrift = CompactReader(footer)
    groups: list[list[RawChunk]] = []
    try:
        for field, kind in thrift.fields():
            if field == 4 and kind == Kind.LIST:
                groups = [_row_group(thrift) for _ in range(thrift.list_of(Kind.STRUCT))]
                break
            thrift.skip(kind)
    except (IndexError, ValueError, struct.error):
        return []
    return groups


def check_chunks(
    groups: list[list[RawChunk]], leaves: list[tuple[str, str]], end: int
) -> str | None:
    """What is wrong with the columns of a file whose pages end at `end`; None if nothing is.

    `leaves` are the columns of the schema: names joined by dots, and the name of the stored type.
    """
    taken = []
    for group in groups:
        told = [(".".join(chunk.names), chunk.type_name) for chunk in group]
        if told != leaves:
            other = next((t for t, leaf in zip(told, leaves, strict=False) if t != leaf), None)
            return f"the columns of a row group are not those of the schema ({other})"
        taken += [(chunk.begin, chunk.size) for chunk in group if chunk.values]
    before = len(MAGIC)
    for begin, size in sorted(taken):
        if begin < before or size < 0:
            return f"two columns share the pages at {begin}"
        before = begin + size
    return f"the pages of a column reach to {before} of {end}" if before > end else None


def typed_bounds(chunk: RawChunk, kind: pa.DataType, rows: int) -> ChunkStatistics:
    """Bounds as Python values of the column's Arrow type."""
    low = _value(chunk.minimum, chunk.physical, kind)
    high = _value(chunk.maximum, chunk.physical, kind)
    if low is None or high is None:
        return ChunkStatistics(None, None, chunk.null_count, rows)
    return ChunkStatistics(low, high, chunk.null_count, rows)


def corrupt(why: str, path: str, offset: int) -> CorruptFileError:
    """The error for a file that contradicts the format or itself."""
    return CorruptFileError(
        f"The Parquet file cannot be read: {why}.",
        hint="The file is damaged or cut; restore it, or roll back the instant that wrote it.",
        context={"path": path, "offset": offset},
    )


def _row_group(thrift: CompactReader) -> list[RawChunk]:
    chunks: list[RawChunk] = []
    for field, kind in thrift.fields():
        if field == 1 and kind == Kind.LIST:
            for _ in range(thrift.list_of(Kind.STRUCT)):
                chunk = _column_chunk(thrift)
                if chunk is not None:
                    chunks.append(chunk)
        else:
            thrift.skip(kind)
    return chunks


def _column_chunk(thrift: CompactReader) -> RawChunk | None:
    found = None
    for field, kind in thrift.fields():
        if field == 3 and kind == Kind.STRUCT:
            found = _column_metadata(thrift)
        else:
            thrift.skip(kind)
    return found


def _column_metadata(thrift: CompactReader) -> RawChunk:
    names: tuple[str, ...] = ()
    # Type, values, bytes decompressed, bytes as stored, data page, dictionary.
    numbers = {1: -1, 5: -1, 6: -1, 7: -1, 9: -1, 11: 0}
    statistics: dict[int, bytes | int] = {}
    for field, kind in thrift.fields():
        if field in numbers and kind in (Kind.I32, Kind.I64):
            numbers[field] = thrift.zigzag()
        elif field == 3 and kind == Kind.LIST:
            raw = [thrift.binary() for _ in range(thrift.list_of(Kind.BINARY))]
            names = tuple(name.decode("utf-8", "replace") for name in raw)
        elif field == 12 and kind == Kind.STRUCT:
            statistics = _statistics(thrift)
        else:
            thrift.skip(kind)
    physical, values, plain_size, size, data, dictionary = numbers.values()
    low, high = statistics.get(6), statistics.get(5)
    if low is None and high is None and physical in _ORDERED_BY_SIGN:
        low, high = statistics.get(2), statistics.get(1)
    nulls = statistics.get(3)
    return RawChunk(
        names,
        physical,
        values,
        min(dictionary, data) if dictionary > 0 else data,
        size,
        low if isinstance(low, bytes) else None,
        high if isinstance(high, bytes) else None,
        nulls if isinstance(nulls, int) and nulls >= 0 else None,
        plain_size,
    )


def _statistics(thrift: CompactReader) -> dict[int, bytes | int]:
    found: dict[int, bytes | int] = {}
    for field, kind in thrift.fields():
        if kind == Kind.BINARY:
            found[field] = thrift.binary()
        elif kind == Kind.I64:
            found[field] = thrift.zigzag()
        else:
            thrift.skip(kind)
    return found


def _value(raw: bytes | None, physical: int, kind: pa.DataType) -> Any | None:
    """One bound as a Python value; None where it cannot be told."""
    if raw is None or len(raw) != _WIDTHS.get(physical, len(raw)):
        return None
    if physical in (_INT32, _INT64):
        return _integer_value(int.from_bytes(raw, "little", signed=True), raw, kind)
    if physical in (_FLOAT, _DOUBLE_TYPE) and pt.is_floating(kind):
        number = struct.unpack("<f" if physical == _FLOAT else "<d", raw)[0]
        return None if math.isnan(number) else number
    if physical == _BOOLEAN and pt.is_boolean(kind):
        return raw != b"\x00"
    if physical in (_BYTE_ARRAY, _FIXED):
        return _bytes_value(raw, kind)
    return None


def _integer_value(number: int, raw: bytes, kind: pa.DataType) -> Any | None:
    if pt.is_unsigned_integer(kind):
        return int.from_bytes(raw, "little")
    if pt.is_integer(kind):
        return number
    if pt.is_decimal(kind):
        return Decimal(number).scaleb(-kind.scale)
    if pt.is_date32(kind) or pt.is_timestamp(kind) or pt.is_time(kind):
        if getattr(kind, "unit", "") == "ns":
            return None
        try:
            width = pa.int64() if len(raw) == 8 else pa.int32()
            return pa.scalar(number, width).cast(kind).as_py()
        except (OverflowError, ValueError, pa.ArrowException):
            return None  # beyond the years that Python's dates have
    return None


def _bytes_value(raw: bytes, kind: pa.DataType) -> Any | None:
    if pt.is_decimal(kind):
        if not raw or len(raw) > 32:
            return None
        return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-kind.scale)
    if pt.is_string(kind) or pt.is_large_string(kind):
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return None
    is_bytes = pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind)
    return raw if is_bytes else None
