"""Record positions: 64-bit Roaring bitmaps in the portable format, as Base64 text.

Decoding checks every length against what is there and every order the format asks for, and never
makes more than `limit` positions: a run container says "65536 values" in ten bytes. Encoding is
run-optimised with the same rule as the JVM's library, so equal sets give equal text.
Anything malformed is a `CorruptFileError`; its `offset` counts decoded bytes.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lakewright.errors import CorruptFileError

__all__ = ["decode_positions", "encode_positions"]

Positions = npt.NDArray[np.int64]

_NO_RUNS: Final = 12346
_WITH_RUNS: Final = 12347
_ARRAY_MAX: Final = 4096
_OFFSETS_FROM: Final = 4
"""With run containers, the offset table is left out below this many containers."""
DEFAULT_LIMIT: Final = 1 << 26


def decode_positions(text: str, *, limit: int = DEFAULT_LIMIT, path: str = "") -> Positions:
    """The positions in ascending order. Give the block's record count as `limit` where known."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as broken:
        raise _corrupt("record positions are not Base64", path, 0) from broken
    reader = _Reader(data, path, limit)
    parts: list[Positions] = []
    last_high = -1
    (bitmaps,) = reader.unpack("<Q")
    for _ in range(reader.plausible(bitmaps, 12)):
        (high,) = reader.unpack("<I")
        if high <= last_high or high >= 1 << 31:
            raise _corrupt("high words of record positions are not ascending", path, reader.at)
        parts.extend(_read_bitmap(reader, high << 32))
        last_high = high
    if reader.at != len(data):
        raise _corrupt("bytes are left behind the record positions", path, reader.at)
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def encode_positions(positions: npt.ArrayLike) -> str:
    """The text of a set of positions, given ascending and distinct."""
    values = np.asarray(positions, np.int64)
    if len(values) and (values[0] < 0 or (np.diff(values) <= 0).any()):
        raise ValueError("positions must be distinct, ascending and not negative")
    highs, starts = np.unique(values >> 32, return_index=True)
    bounds = np.append(starts, len(values))
    out = [struct.pack("<Q", len(highs))]
    for i, high in enumerate(highs.tolist()):
        low = (values[bounds[i] : bounds[i + 1]] & 0xFFFFFFFF).astype(np.int64)
        out += [struct.pack("<I", high), _bitmap_bytes(low)]
    return base64.b64encode(b"".join(out)).decode("ascii")


@dataclass(slots=True)
class _Reader:
    data: bytes
    path: str
    limit: int
    at: int = 0
    made: int = 0

    def unpack(self, fields: str) -> tuple[int, ...]:
        size = struct.calcsize(fields)
        self._need(size)
        self.at += size
        return struct.unpack_from(fields, self.data, self.at - size)

    def shorts(self, count: int) -> npt.NDArray[np.int64]:
        self._need(2 * count)
        self.at += 2 * count
        return np.frombuffer(self.data, "<u2", count, self.at - 2 * count).astype(np.int64)

    def take(self, size: int) -> bytes:
        self._need(size)
        self.at += size
        return self.data[self.at - size : self.at]

    def plausible(self, count: int, least_bytes: int) -> int:
        """A declared count, if so many items of at least `least_bytes` can still follow."""
        self._need(count * least_bytes)
        return count

    def count_made(self, positions: int) -> None:
        self.made += positions
        if self.made > self.limit:
            message = f"more than {self.limit} record positions"
            raise _corrupt(message, self.path, self.at)

    def _need(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise _corrupt("record positions end too early", self.path, self.at)


def _read_bitmap(reader: _Reader, base: int) -> list[Positions]:
    start = reader.at
    (cookie,) = reader.unpack("<I")
    runs = np.zeros(0, np.bool_)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(reader.take(-(-count // 8)), np.uint8)
        runs = np.unpackbits(flags, bitorder="little")[:count].astype(np.bool_)
    elif cookie == _NO_RUNS:
        (count,) = reader.unpack("<I")
        runs = np.zeros(reader.plausible(count, 10), np.bool_)
    else:
        raise _corrupt(f"unknown Roaring cookie {cookie:#x}", reader.path, start)
    described = reader.shorts(2 * count).reshape(count, 2)
    keys, sizes = described[:, 0], described[:, 1] + 1
    if (np.diff(keys) <= 0).any():
        raise _corrupt("Roaring containers are not ascending", reader.path, start)
    if cookie == _NO_RUNS or count >= _OFFSETS_FROM:
        reader.take(4 * count)
    parts = []
    for key, size, is_run in zip(keys.tolist(), sizes.tolist(), runs.tolist(), strict=True):
        reader.count_made(size)
        parts.append(_read_container(reader, size, is_run) + (base | key << 16))
    return parts


def _read_container(reader: _Reader, size: int, is_run: bool) -> Positions:
    start = reader.at
    if is_run:
        (count,) = reader.unpack("<H")
        pairs = reader.shorts(2 * count).reshape(count, 2)
        firsts, lengths = pairs[:, 0], pairs[:, 1] + 1
        ends = firsts + lengths
        if count == 0 or (firsts[1:] < ends[:-1]).any() or ends[-1] > 1 << 16:
            raise _corrupt("Roaring runs overlap", reader.path, start)
        before = np.cumsum(lengths) - lengths
        values = np.repeat(firsts - before, lengths) + np.arange(lengths.sum())
    elif size <= _ARRAY_MAX:
        values = reader.shorts(size)
        if (np.diff(values) <= 0).any():
            raise _corrupt("a Roaring array is not ascending", reader.path, start)
    else:
        bits = np.unpackbits(np.frombuffer(reader.take(8192), np.uint8), bitorder="little")
        values = np.flatnonzero(bits).astype(np.int64)
    if len(values) != size:
        raise _corrupt("a Roaring container has another cardinality", reader.path, start)
    return values


def _bitmap_bytes(low: Positions) -> bytes:
    keys, starts = np.unique(low >> 16, return_index=True)
    bounds = np.append(starts, len(low))
    bodies: list[bytes] = []
    runs: list[bool] = []
    for i in range(len(keys)):
        body, is_run = _container_bytes(low[bounds[i] : bounds[i + 1]] & 0xFFFF)
        bodies.append(body)
        runs.append(is_run)
    described = np.stack([keys, np.diff(bounds) - 1], axis=1).astype("<u2").tobytes()
    if any(runs):
        flags = np.packbits(np.array(runs), bitorder="little").tobytes()
        head = struct.pack("<I", _WITH_RUNS | (len(keys) - 1) << 16) + flags + described
    else:
        head = struct.pack("<II", _NO_RUNS, len(keys)) + described
    if not any(runs) or len(keys) >= _OFFSETS_FROM:
        sizes = np.array([len(b) for b in bodies])
        head += (len(head) + 4 * len(keys) + np.cumsum(sizes) - sizes).astype("<u4").tobytes()
    return head + b"".join(bodies)


def _container_bytes(values: Positions) -> tuple[bytes, bool]:
    """The smallest form of one container; a run container only if it is really smaller."""
    first = np.flatnonzero(np.diff(values, prepend=-2) > 1)
    plain_size = 2 * len(values) if len(values) <= _ARRAY_MAX else 8192
    if 2 + 4 * len(first) < plain_size:
        last = np.append(first[1:], len(values)) - 1
        pairs = np.stack([values[first], values[last] - values[first]], axis=1)
        return struct.pack("<H", len(first)) + pairs.astype("<u2").tobytes(), True
    if len(values) <= _ARRAY_MAX:
        return values.astype("<u2").tobytes(), False
    bits = np.zeros(1 << 16, np.uint8)
    bits[values] = 1
    return np.packbits(bits, bitorder="little").tobytes(), False


def _corrupt(what: str, path: str, offset: int) -> CorruptFileError:
    return CorruptFileError(
        f"Broken RECORD_POSITIONS: {what}.",
        hint="The log block's header is damaged; merge by key instead of by position.",
        context={"path": path, "offset": offset},
    )
