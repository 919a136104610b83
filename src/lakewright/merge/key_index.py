"""Finding many keys among few: the record keys of base rows among those of a log.

A base file has many more keys than the log beside it, and most of them are not in the log. Keys are
told apart by a mark of 64 bits, made of length, first and last eight bytes; a table of bits leaves
out nearly all strangers, and what remains is compared in full. The answer is exact whatever the
keys are: if two keys of the log share a mark, Arrow's own lookup does the work.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes = npt.NDArray[np.int32]
Marks = npt.NDArray[np.uint64]

_WORD: Final = 8
_MIXERS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_TABLE_BITS: Final = (12, 24)
_ENTRIES_PER_KEY_BITS: Final = 5
"""The table has at least 2**5 entries per key, so that three strangers in a hundred pass it."""


class KeyIndex:
    """Distinct keys by their place."""

    def __init__(self, keys: pa.Array) -> None:
        """`keys` are distinct and not null."""
        self._keys = keys
        self._marks: Marks | None = None
        self._marked = False

    def locate(self, wanted: pa.Array) -> Codes:
        """For each key its place, -1 where it is null or not there."""
        if not self._marked:
            self._mark()
        marks = None if self._marks is None else _marks(wanted)
        if marks is None or self._marks is None:
            found = pc.index_in(wanted, value_set=self._keys, skip_nulls=True)
            codes: Codes = found.fill_null(-1).to_numpy(zero_copy_only=False)
            return codes
        some = np.flatnonzero(self._table[(marks >> self._shift).view(np.int64)])
        some = some[np.argsort(marks[some])]  # neighbours are found faster one after the other
        near = np.searchsorted(self._marks, marks[some])
        near[near == len(self._marks)] = 0
        same = self._marks[near] == marks[some]
        some, places = some[same], self._places[near[same]]
        equal = pc.equal(wanted.take(pa.array(some)), self._keys.take(pa.array(places)))
        hit = equal.fill_null(False).to_numpy(zero_copy_only=False)
        codes = np.full(len(wanted), -1, dtype=np.int32)
        codes[some[hit]] = places[hit]
        return codes

    def _mark(self) -> None:
        self._marked = True
        marks = _marks(self._keys)
        if marks is None:
            return
        order = np.argsort(marks)
        ordered = marks[order]
        if (ordered[1:] == ordered[:-1]).any():
            return
        least, most = _TABLE_BITS
        bits = min(max(len(marks).bit_length() + _ENTRIES_PER_KEY_BITS, least), most)
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(1 << bits, dtype=np.bool_)
        self._table[marks >> self._shift] = True
        self._places = order.astype(np.int32)
        self._marks = ordered


def _marks(keys: pa.Array) -> Marks | None:
    """The mark of each key (of a null: any); None where keys are no text or too few bytes."""
    if not (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)):
        return None
    kind = np.dtype(np.int32 if pa.types.is_string(keys.type) else np.int64)
    _, offsets_buffer, data = keys.buffers()
    if not len(keys) or data is None or data.size < _WORD:
        return None
    offsets = np.frombuffer(offsets_buffer, dtype=kind)[keys.offset :][: len(keys) + 1]
    words: Marks = np.ndarray((data.size - _WORD + 1,), "<u8", data, strides=(1,))
    begin, end = offsets[:-1], offsets[1:]
    length = (end - begin).astype(np.uint64)
    last = words[np.maximum(end - _WORD, 0)]
    first = words[np.minimum(begin, len(words) - 1)]
    short = np.flatnonzero(length < _WORD)
    if len(short):
        last[short], first[short] = _short(data, begin[short], length[short]), 0
    marks: Marks = (last ^ (length << np.uint64(56))) * _MIXERS[0]
    marks ^= first * _MIXERS[1]
    return marks


def _short(data: Any, begin: npt.NDArray[Any], length: Marks) -> Marks:
    """Keys of less than eight bytes as numbers."""
    octets = np.frombuffer(data, dtype=np.uint8)
    value = np.zeros(len(begin), dtype=np.uint64)
    for k in range(_WORD - 1):
        there = length > k
        byte = octets[np.minimum(begin + k, len(octets) - 1)].astype(np.uint64)
        value |= np.where(there, byte, np.uint64(0)) << np.uint64(8 * k)
    return value
