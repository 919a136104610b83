"""Byte strings put together lane by lane: what a column-lockstep encoder writes into.

An `Assembly` has a number of lanes; every call appends some bytes to each of them. Short pieces of
up to eight bytes travel as 64-bit words with a size; neighbours are shifted together and written
with overlapping eight-byte stores: in the order of the lanes, the unused tail of a store is
overwritten by the next lane. Longer pieces stay where they are (no copy) until `finish` joins all.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.avro.cursor import Flags, Positions, Words
from lakewright.errors import FormatError

__all__ = ["Assembly", "Sizes"]

Sizes: TypeAlias = npt.NDArray[Any]
"""Bytes per lane, of any integer type."""

_U = np.uint64
_WORD: Final = 8
_CONTINUE: Final = _U(0x8080808080808080)
_SPREADS: Final = (
    (_U(0x000000000FFFFFFF), _U(0x00FFFFFFF0000000), _U(4)),
    (_U(0x00003FFF00003FFF), _U(0x0FFFC0000FFFC000), _U(2)),
    (_U(0x007F007F007F007F), _U(0x3F803F803F803F80), _U(1)),
)
_INT32_MAX: Final = (1 << 31) - 1


class _Atom:
    """At most `limit` ≤ 8 bytes per lane; bytes of the word beyond the size are zero."""

    __slots__ = ("limit", "size", "word")

    def __init__(self, word: Words, size: int | Sizes, limit: int) -> None:
        self.word = word
        self.size = size
        self.limit = limit

    def append(self, other: _Atom) -> None:
        if isinstance(self.size, int):
            self.word = (other.word << _U(8 * self.size)) | self.word
        else:
            self.word = (other.word << (self.size.astype(np.uint64) << _U(3))) | self.word
        self.size = self.size + other.size
        self.limit += other.limit


class Assembly:
    """See the module."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self._atoms: list[_Atom] = []
        self._pieces: list[pa.Array] = []

    def word(self, word: Words, size: int | Sizes, limit: int) -> None:
        """Append the low `size` ≤ `limit` ≤ 8 bytes of each word; the other bytes must be zero."""
        atom = _Atom(word, size, limit)
        if self._atoms and self._atoms[-1].limit + limit <= _WORD:
            self._atoms[-1].append(atom)
        else:
            self._atoms.append(atom)

    def byte(self, value: int) -> None:
        """Append the same byte to every lane."""
        self.word(np.full(self.lanes, value, np.uint64), 1, 1)

    def varint(self, value: Words, valid: Flags | None) -> None:
        """Append unsigned varints, nothing where not valid."""
        if valid is not None:
            value = value * valid
        top = int(value.max()) if self.lanes else 0
        limit = max((top.bit_length() + 6) // 7, 1)
        if limit == 1:
            self.word(value, 1 if valid is None else valid.astype(np.uint8), 1)
            return
        size = np.ones(self.lanes, np.uint8) if valid is None else valid.astype(np.uint8)
        for step in range(1, limit):
            size += value >= _U(1 << (7 * step))
        low = value
        for keep, high, shift in _SPREADS if limit > 4 else _SPREADS[1:]:
            low = ((low & high) << shift) | (low & keep)
        # Continuation bits of all but the last byte; of all eight when the number goes on.
        inner = np.minimum(np.maximum(size, 1) - 1, _WORD).astype(np.uint64) << _U(3)
        ones = (_U(1) << inner) - _U(1)
        if limit > _WORD:
            ones[size > _WORD] = _U(0xFFFFFFFFFFFFFFFF)
        low |= ones & _CONTINUE
        self.word(low, np.minimum(size, _WORD), min(limit, _WORD))
        if limit > _WORD:
            rest = value >> _U(56)
            tail = (rest & _U(0x7F)) | ((rest >> _U(7)) * _U(0x180))
            self.word(tail, np.maximum(size, _WORD) - np.uint8(_WORD), limit - _WORD)

    def signed(self, value: Positions, valid: Flags | None) -> None:
        """Append zig-zag varints, nothing where not valid."""
        self.varint(((value << 1) ^ (value >> 63)).view(np.uint64), valid)

    def binary(self, offsets: Sizes, data: pa.Buffer) -> None:
        """Append the bytes from offsets[i] to offsets[i + 1]."""
        self._flush()
        if len(offsets) and int(offsets[-1]) > _INT32_MAX:
            _too_large()
        narrow = pa.py_buffer(np.ascontiguousarray(offsets, np.int32))
        self._pieces.append(pa.Array.from_buffers(pa.binary(), self.lanes, [None, narrow, data]))

    def rows(self, matrix: npt.NDArray[np.uint8], size: Sizes | None) -> None:
        """Append the first `size` bytes of each row (all of them where it is not given)."""
        width = matrix.shape[1]
        if size is None:
            offsets = np.arange(self.lanes + 1, dtype=np.int64) * width
            self.binary(offsets, pa.py_buffer(np.ascontiguousarray(matrix)))
            return
        offsets = _running(size)
        total = int(offsets[-1])
        packed = np.empty(total + width, np.uint8)
        if self.lanes and width:
            slots = np.ndarray((total + 1,), f"V{width}", buffer=packed.data, strides=(1,))
            slots[offsets[:-1]] = np.ascontiguousarray(matrix).view(f"V{width}").ravel()
        self.binary(offsets, pa.py_buffer(packed[:total]))

    def placed(self, packed: pa.Array, valid: Flags) -> None:
        """Append byte strings to the valid lanes, one after the other."""
        _, offsets, data = packed.buffers()
        size = np.zeros(self.lanes, np.int64)
        size[valid] = np.diff(np.frombuffer(offsets, np.int32, len(packed) + 1))
        self.binary(_running(size), data)

    def finish(self) -> pa.Array:
        """The byte strings of all lanes as one binary array that begins at offset 0."""
        self._flush()
        if not self._pieces:
            return pa.array([b""] * self.lanes, pa.binary())
        if len(self._pieces) == 1 and not _first_offset(self._pieces[0]):
            return self._pieces[0]
        try:
            return pc.binary_join_element_wise(*self._pieces, b"")
        except (pa.ArrowInvalid, pa.ArrowCapacityError):
            _too_large()

    def _flush(self) -> None:
        atoms, self._atoms = self._atoms, []
        if not atoms:
            return
        width = sum(atom.limit for atom in atoms) + _WORD
        if len(atoms) == 1:
            matrix = atoms[0].word.view(np.uint8).reshape(self.lanes, _WORD)
            size = atoms[0].size
        else:
            matrix = np.empty((self.lanes, width), np.uint8)
            slots = np.ndarray(
                (max(self.lanes * width - _WORD + 1, 0),),
                f"V{_WORD}",
                buffer=matrix.data,
                strides=(1,),
            )
            place = np.arange(0, self.lanes * width, width)
            size = 0
            for atom in atoms:
                slots[place + size] = atom.word.view(f"V{_WORD}")
                size = size + (atom.size if isinstance(atom.size, int) else atom.size.astype(int))
        if isinstance(size, int):
            self.rows(matrix[:, :size], None)
        else:
            self.rows(matrix, size)


def _running(size: Sizes) -> Positions:
    offsets = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    return offsets


def _first_offset(piece: pa.Array) -> int:
    return int(np.frombuffer(piece.buffers()[1], np.int32, 1)[0])


def _too_large() -> Any:
    raise FormatError(
        "The encoded records exceed 2 GiB at once.",
        hint="Encode fewer or smaller records in one batch.",
    )
