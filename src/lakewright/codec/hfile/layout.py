"""The parts of an HFile that are read once: trailer, block index, file info.

Pure functions from bytes to values. Every length is checked against what is there; a violation is a
`CorruptFileError` with the file and the offset, built by `Site`. Nothing here reads storage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from lakewright.errors import CorruptFileError, FormatError

__all__ = [
    "CODEC_GZ",
    "CODEC_NONE",
    "DATA_MAGIC",
    "FILE_INFO_MAGIC",
    "INTERMEDIATE_MAGIC",
    "LEAF_MAGIC",
    "META_MAGIC",
    "ROOT_MAGIC",
    "TRAILER_SIZE",
    "BlockIndex",
    "Site",
    "Trailer",
    "cell_row",
    "parse_file_info",
    "parse_node_index",
    "parse_root_index",
    "parse_trailer",
]

DATA_MAGIC: Final = b"DATABLK*"
LEAF_MAGIC: Final = b"IDXLEAF2"
INTERMEDIATE_MAGIC: Final = b"IDXINTE2"
ROOT_MAGIC: Final = b"IDXROOT2"
META_MAGIC: Final = b"METABLKc"
FILE_INFO_MAGIC: Final = b"FILEINF2"
TRAILER_MAGIC: Final = b'TRABLK"$'
TRAILER_SIZE: Final = 4096
MAJOR_VERSION: Final = 3
MAX_LEVELS: Final = 16

CODEC_GZ: Final = 1
CODEC_NONE: Final = 2
_CODEC_NAMES: Final = {0: "lzo", 1: "gz", 2: "none", 3: "snappy", 4: "lz4", 5: "bz2", 6: "zstd"}

_ENTRY: Final = struct.Struct(">qi")
_PROTOBUF_MAGIC: Final = b"PBUF"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Site:
    """Where an HFile is, to say so in errors."""

    path: str
    base_offset: int = 0
    """Offset of the HFile's first byte in `path`: not 0 inside a log block."""

    def corrupt(self, what: str, offset: int) -> CorruptFileError:
        """An error at `offset` of the HFile."""
        return CorruptFileError(
            f"HFile is damaged: {what}.",
            hint="Rebuild the metadata table, or read the table without it.",
            context={"path": self.path, "offset": self.base_offset + offset},
        )


@dataclass(frozen=True, slots=True)
class Trailer:
    """The fields of the trailer that a reader needs."""

    file_info_offset: int
    load_on_open_offset: int
    data_index_count: int
    meta_index_count: int
    entry_count: int
    levels: int
    comparator: str
    codec: int
    minor_version: int

    @property
    def codec_name(self) -> str:
        """`gz` or `none`."""
        return _CODEC_NAMES[self.codec]


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """Blocks in file order: offset, length with header and checksums, and first key of each."""

    offsets: list[int]
    sizes: list[int]
    keys: list[bytes]

    def __len__(self) -> int:
        return len(self.offsets)


def parse_trailer(tail: memoryview, site: Site, offset: int) -> Trailer:
    """Read the last 4096 bytes, which start at `offset` of the HFile."""
    if bytes(tail[:8]) != TRAILER_MAGIC:
        raise site.corrupt("the trailer's magic is missing", offset)
    (version,) = struct.unpack(">I", tail[-4:])
    if version & 0xFFFFFF != MAJOR_VERSION:
        raise site.corrupt(f"major version {version & 0xFFFFFF} is not 3", offset)
    size, at = _varint(tail, 8, site, offset)
    if at + size > TRAILER_SIZE - 4:
        raise site.corrupt("the trailer is longer than its place", offset)
    fields: dict[int, int | memoryview] = dict(_fields(tail[at : at + size], site, offset + at))

    def number(field: int, default: int | None = None) -> int:
        value = fields.get(field, default)
        if not isinstance(value, int):
            raise site.corrupt(f"the trailer has no usable field {field}", offset)
        return value

    comparator = fields.get(11, memoryview(b""))
    trailer = Trailer(
        file_info_offset=number(1),
        load_on_open_offset=number(2),
        data_index_count=number(5),
        meta_index_count=number(6),
        entry_count=number(7),
        levels=number(8),
        comparator=bytes(comparator).decode("utf-8", "replace")
        if isinstance(comparator, memoryview)
        else "",
        codec=number(12, CODEC_NONE),
        minor_version=version >> 24,
    )
    _check_trailer(trailer, site, offset)
    return trailer


def _check_trailer(trailer: Trailer, site: Site, offset: int) -> None:
    if trailer.codec not in (CODEC_GZ, CODEC_NONE):
        name = _CODEC_NAMES.get(trailer.codec)
        if name is None:
            raise site.corrupt(f"compression codec {trailer.codec} is unknown", offset)
        raise FormatError(
            f"HFile is compressed with {name}, which Hudi's own readers do not accept either.",
            hint="Rebuild the metadata table with gz or none, or read the table without it.",
            context={"path": site.path, "offset": site.base_offset + offset, "codec": name},
        )
    if not trailer.load_on_open_offset <= trailer.file_info_offset < offset:
        raise site.corrupt("the trailer points outside of the file", offset)
    if not 1 <= trailer.levels <= MAX_LEVELS:
        raise site.corrupt(f"{trailer.levels} index levels make no sense", offset)


def parse_root_index(payload: memoryview, count: int, site: Site, offset: int) -> BlockIndex:
    """The root data index or the meta index: `count` entries; the rest (mid-key) is ignored."""
    index = BlockIndex([], [], [])
    if count * (_ENTRY.size + 1) > len(payload):
        raise site.corrupt(f"{count} index entries do not fit into {len(payload)} bytes", offset)
    at = 0
    for _ in range(count):  # bounded by the payload, checked above
        if at + _ENTRY.size >= len(payload):
            raise site.corrupt("the index ends inside an entry", offset)
        position, size = _ENTRY.unpack_from(payload, at)
        length, at = _vint(payload, at + _ENTRY.size, site, offset)
        if not 0 <= length <= len(payload) - at:
            raise site.corrupt("an index key is longer than its block", offset)
        index.offsets.append(position)
        index.sizes.append(size)
        index.keys.append(bytes(payload[at : at + length]))
        at += length
    return index


def parse_node_index(payload: memoryview, site: Site, offset: int) -> BlockIndex:
    """A leaf or intermediate index block: a count, relative offsets, then the entries."""
    if len(payload) < 8:
        raise site.corrupt("an index block is too short", offset)
    (count,) = struct.unpack_from(">i", payload, 0)
    first = 4 + 4 * (count + 1)
    if count < 0 or first > len(payload):
        raise site.corrupt(f"an index block of {count} entries is too short", offset)
    relative = struct.unpack_from(f">{count + 1}i", payload, 4)
    index = BlockIndex([], [], [])
    for begin, end in pairwise(relative):  # bounded by the payload
        if not 0 <= begin <= end - _ENTRY.size or first + end > len(payload):
            raise site.corrupt("an index entry lies outside of its block", offset)
        position, size = _ENTRY.unpack_from(payload, first + begin)
        index.offsets.append(position)
        index.sizes.append(size)
        index.keys.append(bytes(payload[first + begin + _ENTRY.size : first + end]))
    return index


def cell_row(key: bytes, site: Site, offset: int) -> bytes:
    """The row of a cell key, with or without the family, timestamp and type behind it."""
    if len(key) < 2:
        raise site.corrupt("a cell key has no row", offset)
    length = int.from_bytes(key[:2], "big")
    if length > len(key) - 2:
        raise site.corrupt("a cell key is shorter than its row", offset)
    return key[2 : 2 + length]


def parse_file_info(payload: memoryview, site: Site, offset: int) -> dict[str, bytes]:
    """The file info block's names and values; names that are not UTF-8 are made readable."""
    if bytes(payload[:4]) != _PROTOBUF_MAGIC:
        raise site.corrupt("the file info is not a protobuf message", offset)
    size, at = _varint(payload, 4, site, offset)
    if size > len(payload) - at:
        raise site.corrupt("the file info is longer than its block", offset)
    info: dict[str, bytes] = {}
    for field, pair in _fields(payload[at : at + size], site, offset):
        if field != 1 or not isinstance(pair, memoryview):
            continue
        name, value = b"", b""
        for part, content in _fields(pair, site, offset):
            if isinstance(content, memoryview):
                name, value = (bytes(content), value) if part == 1 else (name, bytes(content))
        info[name.decode("utf-8", "backslashreplace")] = value
    return info


def _fields(message: memoryview, site: Site, offset: int) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a protobuf message; numbers as unsigned, byte strings as views."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at, site, offset)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _varint(message, at, site, offset)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            size, at = _varint(message, at, site, offset)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise site.corrupt(f"protobuf wire type {wire} is unknown", offset)
        if size > len(message) - at:
            raise site.corrupt("a protobuf field is longer than its message", offset)
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(data: memoryview, at: int, site: Site, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise site.corrupt("a protobuf number does not end", offset)


def _vint(data: memoryview, at: int, site: Site, offset: int) -> tuple[int, int]:
    """A Hadoop variable-length integer: one byte, or a size byte and big-endian bytes."""
    if at >= len(data):
        raise site.corrupt("a number lies behind the end of its block", offset)
    first = data[at] - 256 if data[at] > 127 else data[at]
    if first >= -112:
        return first, at + 1
    negative = first < -120
    size = -(first + 120) if negative else -(first + 112)
    if at + 1 + size > len(data):
        raise site.corrupt("a number reaches behind the end of its block", offset)
    value = int.from_bytes(data[at + 1 : at + 1 + size], "big")
    return (~value if negative else value), at + 1 + size
