"""Thrift's compact protocol, as far as Parquet footers use it: reading, passing over, writing.

`CompactReader` takes values one by one or a whole struct as plain values (`Fields`), which
`struct_bytes` writes again. Every length is checked against the bytes that are there and nesting is
limited, so that the work is linear in the size of the input. Bad bytes raise `IndexError` or
`ValueError`; maps, which no footer has, can be passed over only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

__all__ = ["CompactReader", "Field", "Fields", "Items", "Kind", "struct_bytes"]

NESTING_MAX = 32


class Kind(IntEnum):
    """Types of values on the wire."""

    TRUE = 1
    FALSE = 2
    BYTE = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    MAP = 11
    STRUCT = 12


class Field(NamedTuple):
    """A value of a struct: a number, bytes, a truth value, `Items` or `Fields`."""

    kind: Kind
    value: Any


class Items(NamedTuple):
    """A list."""

    kind: Kind
    values: list[Any]


Fields = Mapping[int, Field]
"""A struct by field ids."""

_NUMBERS = frozenset({Kind.I16, Kind.I32, Kind.I64})
_BOOLS = frozenset({Kind.TRUE, Kind.FALSE})
_LISTS = frozenset({Kind.LIST, Kind.SET})


class CompactReader:
    """A reader of the compact protocol; bad bytes raise `IndexError` or `ValueError`."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Ids and types of the fields of a struct; each value must be taken before the next."""
        last = 0
        while True:
            head = self._data[self._at]
            self._at += 1
            if head == 0:
                return
            delta = head >> 4
            last = last + delta if delta else self.zigzag()
            yield last, head & 15

    def varint(self) -> int:
        """An unsigned number of up to ten bytes."""
        value = shift = 0
        data, at = self._data, self._at
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._at = at
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")

    def zigzag(self) -> int:
        """A signed number."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        """Bytes after their length."""
        return self._taken(self.varint())

    def list_of(self, kind: int) -> int:
        """The length of a list whose elements must have a type."""
        length, found = self._list_head()
        if length and found != kind:
            raise ValueError("a list has elements of another type")
        return length

    def struct(self, depth: int = 0) -> dict[int, Field]:
        """All fields of a struct."""
        if depth > NESTING_MAX:
            raise ValueError("nested too deeply")
        return {
            number: Field(Kind(kind), self._value(Kind(kind), depth))
            for number, kind in self.fields()
        }

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass over a value."""
        if depth > NESTING_MAX:
            raise ValueError("nested too deeply")
        if kind in _BOOLS:
            return
        if kind in _NUMBERS:
            self.varint()
        elif kind == Kind.BINARY:
            self.binary()
        elif kind == Kind.STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in _LISTS:
            length, inner = self._list_head()
            for _ in range(length):
                self._skip_element(inner, depth + 1)
        elif kind == Kind.MAP:
            self._skip_map(depth)
        elif kind == Kind.BYTE:
            self._at += 1
        elif kind == Kind.DOUBLE:
            self._at += 8
        else:
            raise ValueError("unknown type")

    def _value(self, kind: Kind, depth: int) -> Any:
        if kind in _BOOLS:
            return kind is Kind.TRUE
        if kind in _NUMBERS:
            return self.zigzag()
        if kind is Kind.BINARY:
            return self.binary()
        if kind is Kind.STRUCT:
            return self.struct(depth + 1)
        if kind in _LISTS:
            length, inner = self._list_head()
            return Items(Kind(inner), [self._element(Kind(inner), depth) for _ in range(length)])
        if kind is Kind.BYTE:
            return self._taken(1)[0]
        if kind is Kind.DOUBLE:
            return struct.unpack("<d", self._taken(8))[0]
        raise ValueError("a map")

    def _element(self, kind: Kind, depth: int) -> Any:
        if kind in _BOOLS:
            return self._taken(1) == b"\x01"
        return self._value(kind, depth + 1)

    def _taken(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise ValueError("bytes reach beyond the footer")
        value = self._data[self._at : end]
        self._at = end
        return value

    def _list_head(self) -> tuple[int, int]:
        head = self._data[self._at]
        self._at += 1
        length = head >> 4
        if length == 15:
            length = self.varint()
        if length > len(self._data) - self._at:
            raise ValueError("a list reaches beyond the footer")
        return length, head & 15

    def _skip_element(self, kind: int, depth: int) -> None:
        if kind in _BOOLS:
            self._at += 1
        else:
            self.skip(kind, depth)

    def _skip_map(self, depth: int) -> None:
        length = self.varint()
        if not length:
            return
        if length > len(self._data) - self._at:
            raise ValueError("a map reaches beyond the footer")
        head = self._data[self._at]
        self._at += 1
        for _ in range(length):
            self._skip_element(head >> 4, depth + 1)
            self._skip_element(head & 15, depth + 1)


def struct_bytes(fields: Fields) -> bytes:
    """A struct on the wire."""
    out = bytearray()
    _put_struct(out, fields)
    return bytes(out)


def _put_struct(out: bytearray, fields: Fields) -> None:
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if kind in _BOOLS:
            kind = Kind.TRUE if value else Kind.FALSE
        delta = number - last
        if 0 < delta <= 15:
            out.append(delta << 4 | kind)
        else:
            out.append(kind)
            _put_varint(out, _zigzag(number))
        last = number
        if kind not in _BOOLS:
            _put(out, kind, value)
    out.append(0)


def _put(out: bytearray, kind: Kind, value: Any) -> None:
    if kind in _NUMBERS:
        _put_varint(out, _zigzag(value))
    elif kind is Kind.BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind is Kind.STRUCT:
        _put_struct(out, value)
    elif kind in _LISTS:
        _put_list(out, value)
    elif kind is Kind.BYTE:
        out.append(value)
    elif kind is Kind.DOUBLE:
        out += struct.pack("<d", value)
    else:
        raise ValueError("a map")


def _put_list(out: bytearray, items: Items) -> None:
    length = len(items.values)
    out.append(min(length, 15) << 4 | items.kind)
    if length >= 15:
        _put_varint(out, length)
    for value in items.values:
        if items.kind in _BOOLS:
            out.append(1 if value else 2)
        else:
            _put(out, items.kind, value)


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63)
