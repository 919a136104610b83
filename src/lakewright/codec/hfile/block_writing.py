"""Blocks of an HFile, many at a time: compressed, summed and put behind one another.

A block is a header, the payload (a gzip member, or as it is) and one CRC32C per started 16 KiB of
header and payload. Checksums of all blocks of a call are computed together. A block names the one
of its kind before it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lakewright.codec.crc32c import crc32c_chunks
from lakewright.codec.hfile.blocks import HEADER_SIZE
from lakewright.codec.hfile.layout import CODEC_GZ

__all__ = ["CHECKSUM_CHUNK", "NO_BLOCK", "EncodedBlocks", "encode_blocks"]

CHECKSUM_CHUNK: Final = 16_384
NO_BLOCK: Final = -1

_HEADER: Final = struct.Struct(">8siiqbii")
_CRC32C: Final = 2
_GZIP_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x00"
"""As Java writes it: no time, no system."""
_GZIP_TAIL: Final = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class EncodedBlocks:
    """Blocks as they are stored, one behind the other."""

    data: bytes
    offsets: tuple[int, ...]
    """Where each begins, in the file."""
    sizes: tuple[int, ...]


def encode_blocks(
    magic: bytes,
    payloads: Sequence[bytes | memoryview],
    *,
    codec: int,
    level: int,
    at: int,
    previous: int = NO_BLOCK,
) -> EncodedBlocks:
    """The blocks of the payloads, from offset `at` of the file; `previous` is of the same kind."""
    stored = [_gzipped(p, level) if codec == CODEC_GZ else p for p in payloads]
    lengths = np.array([HEADER_SIZE + len(s) for s in stored], np.int64)
    chunks = -(-lengths // CHECKSUM_CHUNK)
    sizes = (lengths + 4 * chunks).tolist()
    pieces: list[bytes | memoryview] = []
    offsets = []
    for raw, packed, length, size in zip(payloads, stored, lengths.tolist(), sizes, strict=True):
        pieces += (
            _HEADER.pack(
                magic, size - HEADER_SIZE, len(raw), previous, _CRC32C, CHECKSUM_CHUNK, length
            ),
            packed,
        )
        offsets.append(at)
        previous = at
        at += size
    return EncodedBlocks(_summed(pieces, lengths, chunks), tuple(offsets), tuple(sizes))


def _summed(pieces: list[bytes | memoryview], lengths: Any, chunks: Any) -> bytes:
    """Headers and payloads (two pieces each) with the checksums behind every payload."""
    joined = np.frombuffer(b"".join(pieces), np.uint8)
    block = np.repeat(np.arange(len(lengths)), chunks)
    number = np.arange(len(block)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
    ends = np.cumsum(lengths)
    starts = (ends - lengths)[block] + number * CHECKSUM_CHUNK
    sums = crc32c_chunks(joined, starts, np.minimum(CHECKSUM_CHUNK, ends[block] - starts))
    told = sums.astype(">u4").tobytes()
    out: list[bytes | memoryview] = []
    done = 0
    for i, count in enumerate(chunks.tolist()):  # bounded by the number of blocks
        out += (pieces[2 * i], pieces[2 * i + 1], told[4 * done : 4 * (done + count)])
        done += count
    return b"".join(out)


def _gzipped(raw: bytes | memoryview, level: int) -> bytes:
    """One gzip member."""
    deflater = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflater.compress(raw)
    tail = _GZIP_TAIL.pack(zlib.crc32(raw), len(raw))
    return b"".join((_GZIP_HEAD, body, deflater.flush(), tail))
