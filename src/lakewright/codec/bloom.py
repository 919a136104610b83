"""Hudi's bloom filters: the text in base file footers, in HFiles and in the metadata table.

Two kinds: `SIMPLE` is one bit vector, `DYNAMIC_V0` a growing list of them. Both are read, asked and
written for whole columns of keys; a filter built from a file's keys in file order is byte-equal to
the JVM's. `might_contain` never says no for a key that was added. Text that is not such a filter is
a `CorruptFileError`; nothing larger than the text itself is allocated for it.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lakewright.codec.hashing import ByteRows, MurmurChain
from lakewright.errors import CorruptFileError, FormatError

__all__ = [
    "DEFAULT_ENTRIES",
    "DEFAULT_FPP",
    "DEFAULT_MAX_ENTRIES",
    "DYNAMIC",
    "SIMPLE",
    "BloomBuilder",
    "BloomFilter",
    "bits_for",
    "hashes_for",
]

SIMPLE: Final = "SIMPLE"
DYNAMIC: Final = "DYNAMIC_V0"

DEFAULT_ENTRIES: Final = 60_000
DEFAULT_FPP: Final = 0.000000001
DEFAULT_MAX_ENTRIES: Final = 100_000

_HEADER: Final = struct.Struct(">iibi")
_GROWTH: Final = struct.Struct(">iii")
_VERSION: Final = -1
_MURMUR: Final = 1
_KEYS_AT_ONCE: Final = 1 << 16
_KEYS_ADDED_AT_ONCE: Final = 1 << 15
_FEW_KEYS: Final = 1 << 10
_FIRST_LOOK: Final = 4
"""Hashes asked of every key before the rest is asked only of those that are still possible."""

_Bits = npt.NDArray[np.uint8]


def bits_for(entries: int, fpp: float) -> int:
    """Bits of one vector for so many entries at this false-positive rate."""
    return math.ceil(entries * (-math.log(fpp) / (math.log(2) * math.log(2))))


def hashes_for(bits: int, entries: int) -> int:
    """Hash functions for that vector."""
    return math.ceil(math.log(2) * bits / entries)


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """One filter: bit vectors (one for `SIMPLE`), and how the dynamic kind has grown."""

    kind: str
    hashes: int
    bits: int
    vectors: tuple[_Bits, ...]
    """Each of ceil(bits / 8) bytes; bit p is mask 1 << (p & 7) of byte p >> 3."""
    row_entries: int = 0
    """Dynamic: entries per vector before another one is added."""
    current_entries: int = 0
    """Dynamic: entries counted for the current vector."""

    @classmethod
    def decode(cls, text: str | bytes, kind: str, *, path: str = "") -> BloomFilter:
        """Read the stored text; `kind` is the type code stored beside it."""
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as broken:
            raise _corrupt("it is not Base64", path) from broken
        hashes, bits = _read_header(data, 0, path)
        if kind == SIMPLE:
            return cls(SIMPLE, hashes, bits, (_read_vector(data, 0, hashes, bits, path),))
        if kind != DYNAMIC:
            raise FormatError(
                f"Bloom filter type {kind!r} is unknown.",
                hint="Supported are SIMPLE and DYNAMIC_V0; look the key up without the filter.",
                context={"path": path},
            )
        if len(data) < _HEADER.size + _GROWTH.size:
            raise _corrupt("it ends inside its header", path)
        row_entries, current, rows = _GROWTH.unpack_from(data, _HEADER.size)
        first = _HEADER.size + _GROWTH.size
        stride = _HEADER.size + (bits + 7) // 8
        if rows < 1 or len(data) != first + rows * stride:
            raise _corrupt(f"{rows} vectors of {bits} bits do not fill {len(data)} bytes", path)
        vectors = tuple(
            _read_vector(data, first + r * stride, hashes, bits, path) for r in range(rows)
        )
        return cls(DYNAMIC, hashes, bits, vectors, row_entries, current)

    @classmethod
    def build(
        cls,
        keys: Any,
        *,
        kind: str = DYNAMIC,
        entries: int = DEFAULT_ENTRIES,
        fpp: float = DEFAULT_FPP,
        max_entries: int = DEFAULT_MAX_ENTRIES,
    ) -> BloomFilter:
        """The filter of a column of keys, added in order (repeated keys count again)."""
        builder = BloomBuilder(kind=kind, entries=entries, fpp=fpp, max_entries=max_entries)
        builder.add(keys)
        return builder.finish()

    def encode(self) -> str:
        """The stored text."""
        head = _HEADER.pack(_VERSION, self.hashes, _MURMUR, self.bits)
        body = b"".join(head + v.tobytes() for v in self.vectors)
        if self.kind == DYNAMIC:
            growth = _GROWTH.pack(self.row_entries, self.current_entries, len(self.vectors))
            body = head + growth + body
        return base64.b64encode(body).decode("ascii")

    def might_contain(self, keys: Any) -> npt.NDArray[np.bool_]:
        """For every key: may it have been added? An empty key always may: no filter holds one."""
        rows = ByteRows.of(keys)
        out = np.ones(len(rows), np.bool_)
        for first in range(0, len(rows), _KEYS_AT_ONCE):
            part = slice(first, first + _KEYS_AT_ONCE)
            out[part] = self._ask(_part(rows, part))
        return np.asarray(out | (rows.lengths == 0))

    def _ask(self, rows: ByteRows) -> npt.NDArray[np.bool_]:
        hits = np.ones((len(self.vectors), len(rows)), np.bool_)
        chain = MurmurChain(rows)
        for _ in range(min(_FIRST_LOOK, self.hashes)):
            state = self._look(chain, hits)
        left = np.flatnonzero(hits.any(axis=0))
        if self.hashes <= _FIRST_LOOK or not len(left):
            return np.asarray(hits.any(axis=0))
        rest = ByteRows(rows.data, rows.starts[left], rows.lengths[left])
        rest_hits = hits[:, left]
        chain = MurmurChain(rest, state[left])
        for _ in range(self.hashes - _FIRST_LOOK):
            self._look(chain, rest_hits)
        out = np.zeros(len(rows), np.bool_)
        out[left] = rest_hits.any(axis=0)
        return out

    def _look(self, chain: MurmurChain, hits: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
        state = chain.next()
        at = _reduced(state, self.bits)
        for hit, vector in zip(hits, self.vectors, strict=True):
            hit &= (vector[at >> 3] >> (at & 7).astype(np.uint8) & 1).astype(np.bool_)
        return state


class BloomBuilder:
    """A filter that grows with the keys of a file, batch by batch; nothing is kept but its bits."""

    def __init__(
        self,
        *,
        kind: str = DYNAMIC,
        entries: int = DEFAULT_ENTRIES,
        fpp: float = DEFAULT_FPP,
        max_entries: int = DEFAULT_MAX_ENTRIES,
    ) -> None:
        self._kind = kind
        self._entries = entries
        self._bits = bits_for(entries, fpp)
        self._hashes = hashes_for(self._bits, entries)
        self._most = max(1, -(-max_entries // entries)) if kind == DYNAMIC else 1
        self._added = 0
        self._few: list[npt.NDArray[np.intp]] = []
        self._wanted: list[npt.NDArray[np.bool_]] = []

    @classmethod
    def resumed(cls, filter_: BloomFilter, *, max_entries: int) -> BloomBuilder:
        """A builder that goes on with a finished filter, in its own sizes."""
        made = cls(kind=filter_.kind, entries=filter_.row_entries or 1, max_entries=max_entries)
        made._bits, made._hashes = filter_.bits, filter_.hashes
        wanted = (np.unpackbits(v, count=filter_.bits, bitorder="little") for v in filter_.vectors)
        made._wanted = [bits.view(np.bool_) for bits in wanted]
        made._added = (len(filter_.vectors) - 1) * made._entries + filter_.current_entries
        return made

    def add(self, keys: Any) -> None:
        """Add the keys of a column, in order."""
        rows = ByteRows.of(keys)
        if not len(rows):
            return
        if (rows.lengths == 0).any():
            raise FormatError(
                "An empty or missing key cannot be added to a bloom filter.",
                hint="Record keys are never empty; check the key fields of the written rows.",
            )
        if not self._wanted and self._added + len(rows) <= min(_FEW_KEYS, self._entries):
            self._few += (places.copy() for places in self._places(rows))
        else:
            self._add_to_vectors(rows)
        self._added += len(rows)

    def finish(self) -> BloomFilter:
        """The filter of all keys so far."""
        vectors = tuple(np.packbits(wanted, bitorder="little") for wanted in self._wanted)
        vectors = vectors or (self._few_bits(),)
        if self._kind == SIMPLE:
            return BloomFilter(SIMPLE, self._hashes, self._bits, vectors)
        current = self._added - (len(vectors) - 1) * self._entries
        return BloomFilter(DYNAMIC, self._hashes, self._bits, vectors, self._entries, current)

    def _few_bits(self) -> _Bits:
        """The one vector of a few keys, without going through a byte for each bit."""
        bits = np.zeros((self._bits + 7) // 8, np.uint8)
        if self._few:
            at = np.concatenate(self._few)
            np.bitwise_or.at(bits, at >> 3, np.left_shift(1, at & 7).astype(np.uint8))
        return bits

    def _add_to_vectors(self, rows: ByteRows) -> None:
        if not self._wanted:
            self._wanted.append(np.zeros(self._bits, np.bool_))
            for places in self._few:
                self._wanted[0][places] = True
            self._few = []
        for vector, part in self._parts(len(rows)):
            while len(self._wanted) <= vector:
                self._wanted.append(np.zeros(self._bits, np.bool_))
            for places in self._places(_part(rows, part)):
                self._wanted[vector][places] = True

    def _parts(self, count: int) -> Iterator[tuple[int, slice]]:
        """Which vector takes which of the next keys.

        Vectors fill one after the other until together they hold the most entries; then the key
        that finds them full goes to the first, and all later ones go round.
        """
        if self._kind == SIMPLE:
            yield 0, slice(0, count)
            return
        begin, end, full = self._added, self._added + count, self._most * self._entries
        at = begin
        while at < min(end, full):
            vector = at // self._entries
            stop = min(end, (vector + 1) * self._entries)
            yield vector, slice(at - begin, stop - begin)
            at = stop
        if at == full and at < end:
            yield 0, slice(at - begin, at - begin + 1)
            at += 1
        for vector in range(self._most if at < end else 0):
            first = at + (vector - (at - full - 1)) % self._most
            yield vector, slice(first - begin, count, self._most)

    def _places(self, rows: ByteRows) -> Iterator[npt.NDArray[np.intp]]:
        for first in range(0, len(rows), _KEYS_ADDED_AT_ONCE):
            chain = MurmurChain(_part(rows, slice(first, first + _KEYS_ADDED_AT_ONCE)))
            yield from _places(chain, self._hashes, self._bits)


def _places(chain: MurmurChain, hashes: int, bits: int) -> Iterator[npt.NDArray[np.intp]]:
    """Positions of the next `hashes` hashes of all rows, in no order; each overwrites the former.

    A quotient by a constant is vectorised where a remainder is not.
    """
    divisor = np.array(bits, np.uint32)
    signed = np.empty(len(chain), np.int32)
    size, quotient = signed.view(np.uint32), np.empty(len(chain), np.uint32)
    places = np.empty(len(chain), np.intp)
    for _ in range(hashes):
        np.abs(chain.advance().view(np.int32), out=signed)
        np.floor_divide(size, divisor, out=quotient)
        np.multiply(quotient, divisor, out=quotient)
        np.subtract(size, quotient, out=places, casting="unsafe")
        yield places


def _reduced(state: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.int64]:
    return np.abs(state.astype(np.int32).astype(np.int64)) % bits


def _part(rows: ByteRows, part: slice) -> ByteRows:
    return ByteRows(rows.data, rows.starts[part], rows.lengths[part])


def _read_header(data: bytes, at: int, path: str) -> tuple[int, int]:
    if len(data) < at + _HEADER.size:
        raise _corrupt("it ends inside its header", path)
    version, hashes, hash_type, bits = _HEADER.unpack_from(data, at)
    if version != _VERSION or hash_type != _MURMUR:
        raise _corrupt(f"version {version} with hash type {hash_type} is unknown", path)
    if not (0 < hashes <= 1 << 10) or bits <= 0:
        raise _corrupt(f"{hashes} hashes over {bits} bits make no sense", path)
    return hashes, bits


def _read_vector(data: bytes, at: int, hashes: int, bits: int, path: str) -> _Bits:
    if _read_header(data, at, path) != (hashes, bits):
        raise _corrupt("its vectors have different sizes", path)
    first, size = at + _HEADER.size, (bits + 7) // 8
    if len(data) < first + size:
        raise _corrupt(f"{bits} bits do not fit into {len(data)} bytes", path)
    return np.frombuffer(data, np.uint8, size, first)


def _corrupt(what: str, path: str) -> CorruptFileError:
    return CorruptFileError(
        f"A bloom filter cannot be read: {what}.",
        hint="The footer is damaged or of an ancient release; look keys up without the filter.",
        context={"path": path},
    )
