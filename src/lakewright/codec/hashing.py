"""The hash functions Hudi stores results of, over whole Arrow columns.

All work on UTF-8 bytes in lockstep: one step handles the same word of every row, so the cost per
step is a few vector operations and no Python object is made per row. Rows are visited longest
first, which turns "rows that still have a word here" into a prefix. Results are bit-exact with the
JVM's: Hadoop's Murmur2 (signed tail bytes), XXH64, `String.hashCode`, `List<String>.hashCode`.
A null row hashes like an empty one; callers that care mask it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakewright.codec.crc32c import crc32c, crc32c_chunks

__all__ = [
    "ByteRows",
    "MurmurChain",
    "crc32c",
    "crc32c_chunks",
    "java_list_hash",
    "java_string_hash",
    "murmur2",
    "xxh64",
]

UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]

_UNITS_AT_ONCE: Final = 1 << 17
_MURMUR: Final = np.uint32(0x5BD1E995)
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


@dataclass(frozen=True, slots=True)
class ByteRows:
    """The bytes of a column of strings or binaries, seen by numpy without copying them."""

    data: npt.NDArray[np.uint8]
    """All bytes, padded so that an eight-byte word may be read at any row's byte."""
    starts: Int64s
    lengths: Int64s

    @classmethod
    def of(cls, column: Any) -> ByteRows:
        """View of a (large) string or binary array, or of a sequence of `str` or `bytes`."""
        array = column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if pa.types.is_null(array.type):
            array = array.cast(pa.binary())
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        _, offset_buffer, data_buffer = array.buffers()
        n, first = len(array), array.offset
        if n == 0 or offset_buffer is None:
            return cls(np.zeros(8, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
        stored = np.frombuffer(offset_buffer, np.int64 if wide else np.int32, n + 1 + first)
        offsets: Int64s = stored[first:].astype(np.int64)
        begin, end = int(offsets[0]), int(offsets[-1])
        data = np.zeros(end - begin + 8, np.uint8)
        if end > begin:
            data[:-8] = np.frombuffer(data_buffer, np.uint8, end - begin, begin)
        lengths = np.diff(offsets)
        if array.null_count:
            lengths[np.asarray(array.is_null())] = 0
        return cls(data, offsets[:-1] - begin, lengths)

    def words(self, dtype: str, at: Int64s) -> npt.NDArray[Any]:
        """A little-endian word of `dtype` at each of the byte positions `at`, aligned or not."""
        size = np.dtype(dtype).itemsize
        view: npt.NDArray[Any] = np.ndarray(
            (len(self.data) - size + 1,), dtype, self.data.data, 0, (1,)
        )
        return view[at]

    def __len__(self) -> int:
        return len(self.starts)


class MurmurChain:
    """Murmur2 of every row, again and again with the former result as the seed.

    The mixing of the rows' words does not depend on the seed and is done once. `next()` gives the
    next hash of every row, in the rows' order; `advance()` gives the same hashes longest row first,
    for callers to whom the order does not matter.
    """

    def __init__(self, rows: ByteRows, seeds: UInt32s | None = None) -> None:
        counts = rows.lengths >> 2
        self._order: Any = slice(None)  # rows of one size need no order
        if len(counts) and counts.min() != counts.max():
            self._order = np.argsort(-counts, kind="stable")
        counts = counts[self._order]
        starts = rows.starts[self._order]
        self._lengths = rows.lengths[self._order].astype(np.uint32)
        self._words: list[UInt32s] = []
        for i in range(int(counts[0]) if len(counts) else 0):  # bounded by the longest row / 4
            active = starts[: np.searchsorted(-counts, -i, side="left")]
            k = _words_at(rows, active, 4 * i) * _MURMUR
            k ^= k >> np.uint32(24)
            k *= _MURMUR
            self._words.append(k)
        self._tail, self._has_tail = _murmur_tail(rows, self._order)
        self._tails = bool(self._has_tail.any())
        zeros = np.zeros(len(rows), np.uint32)
        self._state = zeros if seeds is None else seeds[self._order].copy()
        self._spare = np.empty_like(self._state)

    def __len__(self) -> int:
        return len(self._state)

    def advance(self) -> UInt32s:
        """The next hashes, longest row first; overwritten by the next call."""
        h: UInt32s = self._state
        spare = self._spare
        h ^= self._lengths
        for k in self._words:
            active = h[: len(k)]
            active *= _MURMUR
            active ^= k
        if self._tails:
            h ^= self._tail
            np.multiply(h, _MURMUR, out=h, where=self._has_tail)
        h ^= np.right_shift(h, np.uint32(13), out=spare)
        h *= _MURMUR
        h ^= np.right_shift(h, np.uint32(15), out=spare)
        return h

    def next(self) -> UInt32s:
        """The hash of every row with its former hash (0 at first) as the seed."""
        out = np.empty_like(self._state)
        out[self._order] = self.advance()
        return out


def murmur2(column: Any, seed: int = 0) -> UInt32s:
    """Hadoop's 32-bit Murmur2 of every row."""
    rows = ByteRows.of(column)
    return MurmurChain(rows, np.full(len(rows), seed, np.uint32)).next()


def _words_at(rows: ByteRows, starts: Int64s, offset: int) -> UInt32s:
    """The word at `offset` of each row; rows that lie evenly are read with a stride."""
    if len(starts) > 1:
        step = int(starts[1] - starts[0])
        if step >= 0 and (starts[1:] - starts[:-1] == step).all():
            first = int(starts[0]) + offset
            even: UInt32s = np.ndarray((len(starts),), "<u4", rows.data.data, first, (step,))
            return even
    return rows.words("<u4", starts + offset)


def _murmur_tail(rows: ByteRows, order: Any) -> tuple[UInt32s, Any]:
    """The last `length % 4` bytes, each sign-extended as in Java, and which rows have any."""
    rest = (rows.lengths & 3)[order]
    ends = (rows.starts + rows.lengths)[order]
    tail = np.zeros(len(rows), np.uint32)
    for back in (1, 2, 3):
        some = rest >= back
        signed = rows.data[ends[some] - back].astype(np.int8).astype(np.int32)
        tail[some] ^= signed.astype(np.uint32) << np.uint32(8 * (back - 1))
    return tail, rest > 0


def xxh64(column: Any, seed: int = 0) -> UInt64s:
    """XXH64 of every row; `seed` is taken modulo 2^64."""
    rows = ByteRows.of(column)
    start = np.uint64(seed % (1 << 64))
    with np.errstate(over="ignore"):
        h, at = _xxh64_stripes(rows, start)
        h += rows.lengths.astype(np.uint64)
        left = rows.lengths & 31
        for _ in range(3):
            some = np.flatnonzero(left >= 8)
            word = _xxh64_round(np.uint64(0), rows.words("<u8", at[some]))
            h[some] = _rotated(h[some] ^ word, 27) * _P1 + _P4
            at[some] += 8
            left[some] -= 8
        some = np.flatnonzero(left >= 4)
        word = rows.words("<u4", at[some]).astype(np.uint64) * _P1
        h[some] = _rotated(h[some] ^ word, 23) * _P2 + _P3
        at[some] += 4
        left[some] -= 4
        for i in range(3):
            some = np.flatnonzero(left > i)
            word = rows.data[at[some] + i].astype(np.uint64) * _P5
            h[some] = _rotated(h[some] ^ word, 11) * _P1
        h ^= h >> np.uint64(33)
        h *= _P2
        h ^= h >> np.uint64(29)
        h *= _P3
        h ^= h >> np.uint64(32)
    return h


def _xxh64_stripes(rows: ByteRows, seed: np.uint64) -> tuple[UInt64s, Int64s]:
    """The state after all whole 32-byte stripes, and the position behind them."""
    h = np.full(len(rows), seed + _P5, np.uint64)
    stripes = rows.lengths >> 5
    order = np.argsort(-stripes, kind="stable")
    order = order[: np.count_nonzero(stripes)]
    if len(order):
        counts, starts = stripes[order], rows.starts[order]
        lanes = np.empty((4, len(order)), np.uint64)
        lanes[:] = np.array([seed + _P1 + _P2, seed + _P2, seed, seed - _P1])[:, None]
        for i in range(int(counts[0])):  # bounded by the longest row / 32
            active = int(np.searchsorted(-counts, -i, side="left"))
            for lane in range(4):
                word = rows.words("<u8", starts[:active] + (32 * i + 8 * lane))
                lanes[lane, :active] = _xxh64_round(lanes[lane, :active], word)
        mixed = np.zeros(len(order), np.uint64)
        for lane_state, bits in zip(lanes, (1, 7, 12, 18), strict=True):
            mixed += _rotated(lane_state, bits)
        for lane_state in lanes:
            mixed = (mixed ^ _xxh64_round(np.uint64(0), lane_state)) * _P1 + _P4
        h[order] = mixed
    return h, rows.starts + 32 * stripes


def _xxh64_round(state: Any, word: Any) -> Any:
    return _rotated(state + word * _P2, 31) * _P1


def _rotated(x: Any, bits: int) -> Any:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def java_string_hash(column: Any) -> npt.NDArray[np.int32]:
    """Java's `String.hashCode` of every row, over its UTF-16 code units. Rows must be UTF-8.

    The hash is a sum of units, each times 31 to the power of the units behind it.
    """
    units, offsets = _utf16_units(ByteRows.of(column))
    lengths = np.diff(offsets)
    out = np.zeros(len(lengths), np.uint32)
    powers = _powers_of_31(int(lengths.max(initial=0)))
    first = 0
    while first < len(lengths):  # a stretch that stays in cache, or one row, per turn
        begin = int(offsets[first])
        last = max(int(np.searchsorted(offsets, begin + _UNITS_AT_ONCE, "right")) - 1, first + 1)
        counts = lengths[first:last]
        some = units[begin : int(offsets[last])]
        if counts.min() == counts.max() > 0:
            weighted = some.reshape(len(counts), -1) * powers[int(counts[0]) - 1 :: -1]
            out[first:last] = weighted.sum(axis=1, dtype=np.uint32)
        elif len(some):
            behind = np.repeat(offsets[first + 1 : last + 1] - begin - 1, counts)
            weighted = some * powers[behind - np.arange(len(some))]
            filled = np.flatnonzero(counts)  # an empty stretch would take its neighbour's unit
            starts = offsets[first:last][filled] - begin
            out[first + filled] = np.add.reduceat(weighted, starts, dtype=np.uint32)
        first = last
    return out.astype(np.int32)


def _powers_of_31(count: int) -> UInt32s:
    powers = np.full(max(count, 1), 31, np.uint32)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint32)


def java_list_hash(columns: Sequence[Any]) -> npt.NDArray[np.int32]:
    """Java's `List<String>.hashCode` over the columns of every row; a null element counts 0."""
    total: UInt32s | None = None
    for column in columns:
        array = column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column)
        element = java_string_hash(array).astype(np.uint32)
        before = np.ones(len(element), np.uint32) if total is None else total
        total = before * np.uint32(31) + element
    if total is None:
        raise ValueError("a list hash needs at least one column")
    return total.astype(np.int32)


def _utf16_units(rows: ByteRows) -> tuple[UInt32s, Int64s]:
    """The UTF-16 code units of all rows, and the n + 1 offsets of the rows among them."""
    contiguous = np.append(rows.starts, rows.starts[-1:] + rows.lengths[-1:])
    if not len(rows):
        return np.zeros(0, np.uint32), np.zeros(1, np.int64)
    if (np.diff(contiguous) != rows.lengths).any():
        return _utf16_units(_packed(rows))
    data = rows.data[: contiguous[-1]]
    if not (data & 0x80).any():
        return data.astype(np.uint32), contiguous
    leads = np.flatnonzero((data & 0xC0) != 0x80)
    points = _code_points(rows.data, leads)
    wide = points > 0xFFFF
    counts = 1 + wide
    ends = np.cumsum(counts)
    units = np.repeat(np.where(wide, 0xD7C0 + (points >> 10), points), counts)
    units[ends[wide] - 1] = 0xDC00 | (points[wide] & 0x3FF)
    before = np.concatenate([[0], ends])
    return units.astype(np.uint32), before[np.searchsorted(leads, contiguous)]


def _packed(rows: ByteRows) -> ByteRows:
    """The same rows without the bytes that null rows may cover (rare: Arrow leaves them empty)."""
    pieces = [rows.data[s : s + n] for s, n in zip(rows.starts, rows.lengths, strict=True)]
    ends = np.cumsum(rows.lengths)
    return ByteRows(
        np.concatenate([*pieces, np.zeros(8, np.uint8)]), ends - rows.lengths, rows.lengths
    )


def _code_points(data: npt.NDArray[np.uint8], leads: Int64s) -> Int64s:
    lead = data[leads].astype(np.int64)
    points = lead.copy()
    for size, mask in ((2, 0x1F), (3, 0x0F), (4, 0x07)):
        some = np.flatnonzero(lead >= (0xC0, 0xE0, 0xF0)[size - 2])
        value = lead[some] & mask
        for i in range(1, size):
            value = (value << 6) | (data[leads[some] + i] & 0x3F)
        points[some] = value
    return points
