"""Blocks of an HFile: headers, checksums and payloads, many at a time.

A `Region` is a stretch of the file in memory. Headers of all wanted blocks are parsed and checked
as vectors, checksums are computed together, and each payload is inflated to at most the size its
header declares, which in turn is checked against what gzip can hold. So the memory used is bounded
by the file's own size times gzip's greatest ratio, whatever the bytes say.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from lakewright.codec.crc32c import crc32c_chunks
from lakewright.codec.hfile.layout import CODEC_GZ, Site

__all__ = ["HEADER_SIZE", "Blocks", "Payloads", "Region", "read_blocks"]

Int64s = npt.NDArray[np.int64]

HEADER_SIZE: Final = 33
_NO_CHECKSUM, _CRC32, _CRC32C = 0, 1, 2
_GZIP_RATIO: Final = 1032
_GZIP_SLACK: Final = 1024
_GZIP_FLAGS: Final = slice(3, 4)
_GZIP_RESERVED: Final = 0xE0
_GZIP_WINDOW: Final = 31


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes `[offset, offset + len)` of an HFile."""

    data: npt.NDArray[np.uint8]
    offset: int

    @property
    def end(self) -> int:
        """Offset behind the last byte."""
        return self.offset + len(self.data)

    def view(self, begin: int, end: int) -> memoryview:
        """The bytes between two offsets of the file, which must lie in the region."""
        return self.data.data[begin - self.offset : end - self.offset]


@dataclass(frozen=True, slots=True)
class Payloads:
    """Decompressed payloads: payload i is `data[starts[i] : ends[i]]`."""

    data: npt.NDArray[np.uint8]
    starts: Int64s
    ends: Int64s

    def one(self) -> memoryview:
        """The first payload, of a single block."""
        return self.data.data[int(self.starts[0]) : int(self.ends[0])]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Checked headers of blocks that lie in one region."""

    region: Region
    offsets: Int64s
    """Of the headers, in the file."""
    stored_ends: Int64s
    """Offsets behind the stored payloads, in the file; checksums follow."""
    raw_sizes: Int64s
    sizes: Int64s
    """With header and checksums."""
    summed: bool
    """Whether all of them carry checksums."""

    def payloads(self, codec: int, site: Site) -> Payloads:
        """All payloads; views of the region where nothing is compressed."""
        starts = self.offsets + HEADER_SIZE
        if codec != CODEC_GZ:
            wrong = np.flatnonzero(self.stored_ends - starts != self.raw_sizes)
            if len(wrong):
                raise site.corrupt("a block has another size than declared", self._at(wrong))
            base = self.region.offset
            return Payloads(self.region.data, starts - base, self.stored_ends - base)
        limit = _GZIP_RATIO * (self.stored_ends - starts) + _GZIP_SLACK
        wrong = np.flatnonzero(self.raw_sizes > limit)
        if len(wrong):
            raise site.corrupt("a block cannot hold what it declares", self._at(wrong))
        ends = np.cumsum(self.raw_sizes)
        out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        for i in range(len(starts)):  # bounded by the number of blocks
            at, size = int(self.offsets[i]), int(self.raw_sizes[i])
            stored = self.region.view(at + HEADER_SIZE, int(self.stored_ends[i]))
            raw = _inflated(stored, size, site, at)
            out[int(ends[i]) - size : int(ends[i])] = np.frombuffer(raw, np.uint8)
        return Payloads(out, ends - self.raw_sizes, ends)

    def part(self, first: int, last: int) -> Blocks:
        """Blocks `first` to `last` (exclusive)."""
        s = slice(first, last)
        return Blocks(
            self.region,
            self.offsets[s],
            self.stored_ends[s],
            self.raw_sizes[s],
            self.sizes[s],
            self.summed,
        )

    def _at(self, wrong: npt.NDArray[np.intp]) -> int:
        return int(self.offsets[wrong[0]])


def read_blocks(
    region: Region,
    offsets: Int64s,
    magic: bytes,
    site: Site,
    *,
    end: int,
    sizes: Int64s | None = None,
    verify: bool = True,
) -> Blocks:
    """Check the headers at `offsets`: all of one kind, none reaching behind `end`.

    `sizes` are what an index says about them. `verify` computes the checksums that are stored.
    """
    end = min(end, region.end)
    _refuse((offsets < region.offset) | (offsets + HEADER_SIZE > end), "is outside", offsets, site)
    local = offsets - region.offset
    head = region.data[local[:, None] + np.arange(HEADER_SIZE)]
    wrong_magic = (head[:, :8] != np.frombuffer(magic, np.uint8)).any(axis=1)
    _refuse(wrong_magic, f"is not a {magic.decode()} block", offsets, site)
    without_header, raw, chunk, stored = (
        np.ascontiguousarray(head[:, at : at + 4]).view(">i4")[:, 0].astype(np.int64)
        for at in (8, 12, 25, 29)
    )
    kind = head[:, 24]
    _refuse(
        (without_header < 0) | (raw < 0) | (stored < HEADER_SIZE), "has bad sizes", offsets, site
    )
    size = HEADER_SIZE + without_header
    _refuse(offsets + size > end, "reaches behind its section", offsets, site)
    if sizes is not None:
        _refuse(size != sizes, "has another size than its index entry", offsets, site)
    chunks = np.where(chunk > 0, -(-stored // np.maximum(chunk, 1)), 0)
    checksums = size - stored
    summed = kind != _NO_CHECKSUM
    _refuse(kind > _CRC32C, "has an unknown checksum type", offsets, site)
    _refuse(
        (checksums != 4 * chunks) & (summed | (checksums != 0)) | (summed & (chunk <= 0)),
        "has no place for its checksums",
        offsets,
        site,
    )
    if verify:
        for wanted in (_CRC32, _CRC32C):
            some = np.flatnonzero(kind == wanted)
            bad = _wrong_checksums(region, local[some], stored[some], chunk[some], wanted)
            _refuse(bad, "has a wrong checksum", offsets[some], site)
    return Blocks(region, offsets, offsets + stored, raw, size, bool(summed.all()))


def _wrong_checksums(
    region: Region, local: Int64s, stored: Int64s, chunk: Int64s, kind: int
) -> npt.NDArray[np.bool_]:
    """Which blocks have a chunk whose checksum differs from the stored one."""
    if not len(local):
        return np.zeros(0, np.bool_)
    counts = -(-stored // chunk)
    block = np.repeat(np.arange(len(local)), counts)
    number = np.arange(len(block)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = local[block] + number * chunk[block]
    lengths = np.minimum(chunk[block], local[block] + stored[block] - starts)
    places = local[block] + stored[block] + 4 * number
    told = region.data[places[:, None] + np.arange(4)].view(">u4")[:, 0]
    if kind == _CRC32C:
        found: npt.NDArray[Any] = crc32c_chunks(region.data, starts, lengths)
    else:
        pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
        found = np.array([zlib.crc32(region.data.data[s : s + n]) for s, n in pairs], np.uint32)
    out = np.zeros(len(local), np.bool_)
    out[block[found != told]] = True
    return out


def _inflated(stored: memoryview, size: int, site: Site, offset: int) -> bytes:
    """One gzip member that must give exactly `size` bytes; what follows the member is ignored."""
    if any(flags & _GZIP_RESERVED for flags in stored[_GZIP_FLAGS]):  # isal does not look at them
        raise site.corrupt("a block cannot be inflated (unknown header flags)", offset)
    inflater = isal_zlib.decompressobj(_GZIP_WINDOW)
    try:
        raw = inflater.decompress(stored, size + 1)
    except isal_zlib.error as broken:  # type: ignore[misc]  # its stub names no class
        raise site.corrupt(f"a block cannot be inflated ({broken})", offset) from broken
    if len(raw) != size or not inflater.eof:
        raise site.corrupt(f"a block does not inflate to {size} bytes", offset)
    return raw


def _refuse(wrong: npt.NDArray[np.bool_], what: str, offsets: Int64s, site: Site) -> None:
    if wrong.any():
        raise site.corrupt(f"a block {what}", int(offsets[np.argmax(wrong)]))
