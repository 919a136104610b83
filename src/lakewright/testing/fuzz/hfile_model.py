"""HFiles by a second, plain reader: one cell after the other, in the order of the index.

Written from the format alone, slowly and without sharing code with the product: trailer, index
levels, blocks, cells. It trusts what the product must check (checksums, order), so it may read more
than the product, but never other cells.
"""

from __future__ import annotations

import struct
import zlib

__all__ = ["UnreadableError", "model_cells"]

_TRAILER = 4096
_HEADER = 33
_GZIP = 1


class UnreadableError(Exception):
    """The model does not find its way through the bytes."""


def model_cells(data: bytes) -> list[tuple[bytes, bytes]]:
    """Rows and values of all cells."""
    try:
        return _cells(data)
    except (ValueError, IndexError, KeyError, struct.error, zlib.error) as error:
        raise UnreadableError(f"{type(error).__name__}: {error}") from error


def _cells(data: bytes) -> list[tuple[bytes, bytes]]:
    trailer = _trailer(data[-_TRAILER:])
    if not trailer[7]:
        return []
    codec = trailer.get(12, 2)
    root = _payload(data, trailer[2], codec)
    blocks = _root_entries(root, trailer[5])
    for _ in range(trailer[8] - 1):
        blocks = [b for offset in blocks for b in _node_entries(_payload(data, offset, codec))]
    return [cell for offset in blocks for cell in _block_cells(_payload(data, offset, codec))]


def _trailer(tail: bytes) -> dict[int, int]:
    """The numbers of the protobuf message behind the magic."""
    size, at = _varint(tail, 8)
    end = at + size
    numbers: dict[int, int] = {}
    while at < end:
        tag, at = _varint(tail, at)
        if tag & 7 == 0:
            numbers[tag >> 3], at = _varint(tail, at)
        elif tag & 7 == 2:
            length, at = _varint(tail, at)
            at += length
        else:
            at += {1: 8, 5: 4}[tag & 7]
    return numbers


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value & (1 << 64) - 1, at


def _payload(data: bytes, offset: int, codec: int) -> bytes:
    without_header, raw = struct.unpack_from(">ii", data, offset + 8)
    (stored,) = struct.unpack_from(">i", data, offset + 29)
    if not _HEADER <= stored <= _HEADER + without_header or offset + stored > len(data):
        raise ValueError("a block does not fit")
    content = data[offset + _HEADER : offset + stored]
    if codec != _GZIP:
        return content
    plain = zlib.decompressobj(31).decompress(content, raw + 1)
    if len(plain) != raw:
        raise ValueError("a block inflates to another size")
    return plain


def _root_entries(payload: bytes, count: int) -> list[int]:
    offsets, at = [], 0
    for _ in range(count):
        offsets.append(struct.unpack_from(">q", payload, at)[0])
        length, at = _vint(payload, at + 12)
        at += length
    return offsets


def _vint(data: bytes, at: int) -> tuple[int, int]:
    first = struct.unpack_from(">b", data, at)[0]
    if first >= -112:
        return first, at + 1
    size = -(first + 112) if first >= -120 else -(first + 120)
    number = int.from_bytes(data[at + 1 : at + 1 + size], "big")
    return (number if first >= -120 else ~number), at + 1 + size


def _node_entries(payload: bytes) -> list[int]:
    (count,) = struct.unpack_from(">i", payload, 0)
    places = struct.unpack_from(f">{count + 1}i", payload, 4)
    first = 4 + 4 * (count + 1)
    return [struct.unpack_from(">q", payload, first + place)[0] for place in places[:-1]]


def _block_cells(payload: bytes) -> list[tuple[bytes, bytes]]:
    cells, at = [], 0
    while at < len(payload):
        key, value = struct.unpack_from(">ii", payload, at)
        if key < 2 or value < 0:
            raise ValueError("a cell has a negative length")
        (row,) = struct.unpack_from(">H", payload, at + 8)
        begin, end = at + 8 + key, at + 8 + key + value
        if end >= len(payload) or row > key - 2:
            raise ValueError("a cell does not fit")
        cells.append((payload[at + 10 : at + 10 + row], payload[begin:end]))
        at = end + 1
    return cells
