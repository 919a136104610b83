"""The parts of an HFile as bytes: cell keys, indexes, file info, trailer. The inverse of `layout`.

Pure functions from values to bytes, in the form of HBase 2.4, which every reader of Hudi accepts:
cell keys with their whole suffix, file info sorted by name, no field that makes HBase look for tags
or encryption.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lakewright.codec.hfile.layout import MAJOR_VERSION, TRAILER_MAGIC, TRAILER_SIZE

__all__ = [
    "CELL_SUFFIX",
    "INDEX_LEVELS",
    "IndexEntry",
    "TrailerFields",
    "cell_key",
    "encode_file_info",
    "encode_root_index",
    "encode_trailer",
]

CELL_SUFFIX: Final = b"\x00" + b"\x7f" + b"\xff" * 7 + b"\x04"
"""No family, the greatest time, a put: HBase's look-ups compare all of it."""
INDEX_LEVELS: Final = 1
"""Hudi 1.0 cannot follow more."""

_MINOR_VERSION: Final = 3
_ENTRY: Final = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A block as its index names it."""

    offset: int
    size: int
    """With header and checksums."""
    key: bytes
    """A whole cell key, or the name of a meta block."""


@dataclass(frozen=True, slots=True)
class TrailerFields:
    """What the trailer tells; offsets of data blocks are -1 where there is none."""

    file_info_offset: int
    load_on_open_offset: int
    data_index_bytes: int
    uncompressed_bytes: int
    data_index_count: int
    meta_index_count: int
    entry_count: int
    first_data_block: int
    last_data_block: int
    comparator: str
    codec: int


def cell_key(row: bytes) -> bytes:
    """The key of a cell with this row."""
    return struct.pack(">H", len(row)) + row + CELL_SUFFIX


def encode_root_index(entries: Iterable[IndexEntry]) -> bytes:
    """The payload of the root data index or of the meta index."""
    return b"".join(_ENTRY.pack(e.offset, e.size) + _vint(len(e.key)) + e.key for e in entries)


def encode_file_info(pairs: Mapping[str, bytes]) -> bytes:
    """The payload of the file info block."""
    named = sorted((name.encode(), value) for name, value in pairs.items())
    body = b"".join(_field(1, _field(1, name) + _field(2, value)) for name, value in named)
    return b"PBUF" + _varint(len(body)) + body


def encode_trailer(fields: TrailerFields) -> bytes:
    """The last 4096 bytes."""
    values: tuple[int | bytes, ...] = (
        fields.file_info_offset,
        fields.load_on_open_offset,
        fields.data_index_bytes,
        fields.uncompressed_bytes,
        fields.data_index_count,
        fields.meta_index_count,
        fields.entry_count,
        INDEX_LEVELS,
        fields.first_data_block,
        fields.last_data_block,
        fields.comparator.encode(),
        fields.codec,
    )
    body = b"".join(_field(number, value) for number, value in enumerate(values, start=1))
    head = TRAILER_MAGIC + _varint(len(body)) + body
    version = struct.pack(">I", _MINOR_VERSION << 24 | MAJOR_VERSION)
    return head.ljust(TRAILER_SIZE - len(version), b"\x00") + version


def _field(number: int, value: int | bytes) -> bytes:
    """One field of a protobuf message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value % (1 << 64))
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _vint(value: int) -> bytes:
    """Hadoop's variable-length integer, of a length."""
    if value <= 0x7F:
        return bytes([value])
    body = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([0x90 - len(body)]) + body
