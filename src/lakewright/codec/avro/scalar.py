"""Avro values one at a time: numbers, and skipping over a value of any type.

This is the road for what has no width to spread over lanes: a handful of records with long arrays,
and single values (`datum`). A skipper never loops more often than there are bytes before `end`, and
never returns a position behind it without raising `Damage` first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lakewright.codec.avro.types import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    fixed_size,
    min_size,
)

__all__ = ["Damage", "Skipper", "block_count", "read_long", "skip_entry", "skipper"]

Skipper: TypeAlias = Callable[[bytes | memoryview, int, int], int]
"""(data, position, end of the frame) to the position behind the value."""


class Damage(Exception):  # noqa: N818 - never leaves this package, see CorruptFileError
    """The bytes at `offset` do not follow the schema."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset
        self.what = what


def read_long(data: bytes | memoryview, pos: int, end: int) -> tuple[int, int]:
    """A zig-zag varint and the position behind it."""
    value = shift = 0
    start = pos
    while pos < end:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise Damage(start, "a number has more than 64 bits")
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
        if shift > 63:
            raise Damage(start, "a number has more than 64 bits")
    raise Damage(start, "a value ends behind the end of the record")


def block_count(
    data: bytes | memoryview, pos: int, end: int, item_min: int
) -> tuple[int, int | None, int]:
    """The items of the next array block, its byte size where it is told, and where they begin.

    The count is bounded by the bytes that are left, unless items have no bytes at all.
    """
    start = pos
    count, pos = read_long(data, pos, end)
    size = None
    if count < 0:
        size, pos = read_long(data, pos, end)
        count = -count
        if not 0 <= size <= end - pos:
            raise Damage(start, "the byte size of an array block does not fit the record")
    if count * item_min > end - pos:
        raise Damage(start, f"{count} array items do not fit the record")
    return count, size, pos


def skipper(schema: AvroType) -> Skipper:
    """The function that steps over one value of `schema`."""
    width = fixed_size(schema)
    if width is not None:
        return _skip_fixed(width)
    match schema:
        case Primitive(kind="int" | "long") | Enum():
            return _skip_long
        case Array(items=items):
            return _skip_blocks(skipper(items), min_size(items))
        case Map(values=values):
            return _skip_blocks(skip_entry(skipper(values)), 1 + min_size(values))
        case Union(branches=branches):
            steps = [skipper(branch) for branch in branches]
            return _skip_optional(steps) if schema.optional is not None else _skip_union(steps)
        case Record(fields=fields):
            return _skip_record([skipper(entry.type) for entry in fields])
        case Primitive() | Fixed():
            return _skip_bytes


def _checked(pos: int, end: int, start: int) -> int:
    if pos > end:
        raise Damage(start, "a value ends behind the end of the record")
    return pos


def _skip_fixed(width: int) -> Skipper:
    return lambda _data, pos, end: _checked(pos + width, end, pos)


def _skip_long(data: bytes | memoryview, pos: int, end: int) -> int:
    if pos < end and data[pos] < 0x80:
        return pos + 1
    return read_long(data, pos, end)[1]


def _skip_bytes(data: bytes | memoryview, pos: int, end: int) -> int:
    # The usual length fits one byte; the rest takes the long way, which checks everything.
    if pos < end and (byte := data[pos]) < 0x80 and not byte & 1:
        behind = pos + 1 + (byte >> 1)
        if behind <= end:
            return behind
    size, behind = read_long(data, pos, end)
    if size < 0:
        raise Damage(pos, "a length is negative")
    return _checked(behind + size, end, pos)


def skip_entry(value: Skipper) -> Skipper:
    """A map entry: its key and its value."""
    return lambda data, pos, end: value(data, _skip_bytes(data, pos, end), end)


def _skip_record(fields: list[Skipper]) -> Skipper:
    if len(fields) == 1:
        return fields[0]

    def skip(data: bytes | memoryview, pos: int, end: int) -> int:
        for field in fields:
            pos = field(data, pos, end)
        return pos

    return skip


def _skip_optional(branches: list[Skipper]) -> Skipper:
    """Two branches; the flag is one byte in all that encoders write."""
    first, second = branches
    general = _skip_union(branches)

    def skip(data: bytes | memoryview, pos: int, end: int) -> int:
        if pos < end:
            flag = data[pos]
            if flag == 2:
                return second(data, pos + 1, end)
            if flag == 0:
                return first(data, pos + 1, end)
        return general(data, pos, end)

    return skip


def _skip_union(branches: list[Skipper]) -> Skipper:
    limit = 2 * len(branches)

    def skip(data: bytes | memoryview, pos: int, end: int) -> int:
        if pos < end and (byte := data[pos]) < 0x80 and not byte & 1 and byte < limit:
            return branches[byte >> 1](data, pos + 1, end)
        index, behind = read_long(data, pos, end)
        if not 0 <= index < len(branches):
            raise Damage(pos, f"there is no union branch {index}")
        return branches[index](data, behind, end)

    return skip


def _skip_blocks(item: Skipper, item_min: int) -> Skipper:
    def skip(data: bytes | memoryview, pos: int, end: int) -> int:
        while True:
            count, size, pos = block_count(data, pos, end, item_min)
            if not count:
                return pos
            if size is not None:
                pos += size
            elif item_min:
                for _ in range(count):  # bounded by the bytes of the record, see block_count
                    pos = item(data, pos, end)

    return skip
