"""Cells of data blocks: found in all blocks at once, gathered into Arrow arrays.

A block is a chain of cells that only tell their own lengths, so it must be walked; but all blocks
are walked together, one cell of each per step. To have more to walk at a time, cells in the middle
of blocks are guessed by the ending that all keys have in common; a walk that does not arrive at the
guessed cell shows that the guess was wrong, and is done again without guesses. Few long blocks are
walked one by one, where a step of vector operations would cost more than it saves. Keys and values
are then copied by Arrow. Cells must end exactly where their block ends.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.hfile.blocks import Payloads
from lakewright.codec.hfile.layout import Site

__all__ = ["Cells", "gather", "starting_with", "walk"]

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

_CELL_HEAD: Final = struct.Struct(">iiH")
_KEY_SHIFT: Final = np.uint64(32)
_VALUE_MASK: Final = np.uint64(0xFFFFFFFF)
_LOCKSTEP_FROM: Final = 32
"""Blocks from which walking together is faster than one by one."""
_KEY_END: Final = b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x04"
_KEY_END_SIZE: Final = len(_KEY_END)
"""No family, the greatest time, a put: how Hudi ends every key."""
_CUTS: Final = 8
"""Stretches that a block is cut into."""
_CUT_FROM: Final = 1 << 13
"""Bytes of the smallest block that is cut."""
_LOOK: Final = 1 << 10
"""How far behind a place a cell is looked for."""
_ROW_MAX: Final = 256
"""Longer rows are not guessed."""
_HEAD: Final = np.array([0, 1, 2, 3, 8, 9])
"""The bytes of a cell that tell the lengths of its key and of its row."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Where the rows (Hudi's keys) and values of cells are in `data`, in file order."""

    data: npt.NDArray[np.uint8]
    row_starts: Int64s
    row_ends: Int64s
    value_starts: Int64s
    value_ends: Int64s
    firsts: Int64s
    """Number of the first cell of each block."""

    def __len__(self) -> int:
        return len(self.row_starts)

    def edges(self) -> list[tuple[bytes, bytes] | None]:
        """The first and the last key of each block; None for a block without cells."""
        starts, ends, data = self.row_starts, self.row_ends, self.data.data

        def row(at: int) -> bytes:
            return bytes(data[int(starts[at]) : int(ends[at])])

        pairs = pairwise([*self.firsts.tolist(), len(self)])
        return [(row(a), row(b - 1)) if a < b else None for a, b in pairs]

    def rows(self) -> pa.BinaryArray:
        """The keys of all cells."""
        return gather(self.data, self.row_starts, self.row_ends)

    def values(self, at: npt.NDArray[np.intp] | None = None) -> pa.BinaryArray:
        """The values of all cells, or of those at the given indexes (ascending)."""
        if at is None:
            return gather(self.data, self.value_starts, self.value_ends)
        return gather(self.data, self.value_starts[at], self.value_ends[at])


def gather(data: npt.NDArray[np.uint8], starts: Int64s, ends: Int64s) -> pa.BinaryArray:
    """Copies of `data[start:end]`; stretches must be ascending and must not overlap."""
    offsets = np.empty(2 * len(starts) + 1, np.int64)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = ends[-1] if len(ends) else 0
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    every_second = pa.array(np.arange(0, len(offsets) - 1, 2, dtype=np.int64))
    return pieces.take(every_second).cast(pa.binary())


def starting_with(rows: pa.BinaryArray, prefixes: Sequence[bytes]) -> npt.NDArray[np.bool_]:
    """Which rows start with any of the prefixes; one pass per distinct length of them."""
    by_length: dict[int, list[bytes]] = {}
    for prefix in prefixes:
        by_length.setdefault(len(prefix), []).append(prefix)
    hit = np.full(len(rows), 0 in by_length)
    for length, members in by_length.items():
        if length:
            begin = pc.binary_slice(rows, 0, length)
            hit |= np.asarray(pc.is_in(begin, value_set=pa.array(members, pa.binary())))
    return hit


def walk(payloads: Payloads, block_offsets: Int64s, site: Site) -> Cells:
    """All cells of the given data blocks; `block_offsets` are for errors."""
    if len(payloads.starts) >= _LOCKSTEP_FROM:
        keys, rows, values, ends = _walk_together(payloads, block_offsets, site)
    else:
        keys, rows, values, ends = _walk_one_by_one(payloads, block_offsets, site)
    firsts = np.searchsorted(keys, payloads.starts).astype(np.int64)
    return Cells(payloads.data, keys + 2, keys + 2 + rows, values, ends, firsts)


_Walked = tuple[Int64s, Int64s, Int64s, Int64s]
"""Per cell: start of the key, length of the row, start and end of the value."""


def _walk_one_by_one(payloads: Payloads, block_offsets: Int64s, site: Site) -> _Walked:
    data = payloads.data.data
    unpack, head = _CELL_HEAD.unpack_from, _CELL_HEAD.size
    keys: list[int] = []
    rows: list[int] = []
    values: list[int] = []
    ends: list[int] = []
    for number, (at, end) in enumerate(
        zip(payloads.starts.tolist(), payloads.ends.tolist(), strict=True)
    ):
        while at < end:  # bounded by the block's bytes: a cell has at least eleven
            if at + head > end:
                raise _broken(site, block_offsets, number)
            key_size, value_size, row_size = unpack(data, at)
            value = at + 8 + key_size
            after = value + value_size
            if not (0 <= row_size <= key_size - 2 and value_size >= 0 and after < end):
                raise _broken(site, block_offsets, number)
            if data[after]:
                raise _versioned(site, block_offsets, number)
            keys.append(at + 8)
            rows.append(row_size)
            values.append(value)
            ends.append(after)
            at = after + 1
    return (
        np.array(keys, np.int64),
        np.array(rows, np.int64),
        np.array(values, np.int64),
        np.array(ends, np.int64),
    )


def _walk_together(payloads: Payloads, block_offsets: Int64s, site: Site) -> _Walked:
    """Cells of all blocks in lockstep; per step only where the next ones begin is computed."""
    data = payloads.data
    both_sizes = np.ndarray((max(0, len(data) - 7),), ">u8", data.data, 0, (1,))
    alive = np.flatnonzero(payloads.starts < payloads.ends)
    if len(alive) and not len(both_sizes):
        raise _broken(site, block_offsets, alive[0])
    starts, stops, owners = _stretches(payloads, alive)
    steps, wrong = _steps(both_sizes, starts, stops)
    if wrong is not None and len(starts) > len(alive):
        starts, stops, owners = payloads.starts[alive], payloads.ends[alive], alive
        steps, wrong = _steps(both_sizes, starts, stops)
    if wrong is not None:
        raise _broken(site, block_offsets, owners[wrong])
    begins, sizes, stretches = _block_by_block(steps, len(starts))
    blocks = owners[stretches]
    key_size = (sizes >> _KEY_SHIFT).astype(np.int64)
    ends = begins + 8 + key_size + (sizes & _VALUE_MASK).astype(np.int64)
    row_size = data[begins + 8].astype(np.int64) << 8 | data[np.minimum(begins + 9, len(data) - 1)]
    wrong_row = np.flatnonzero(row_size > key_size - 2)
    if len(wrong_row):
        raise _broken(site, block_offsets, blocks[wrong_row[0]])
    versioned = np.flatnonzero(data[ends])
    if len(versioned):
        raise _versioned(site, block_offsets, blocks[versioned[0]])
    return begins + 8, row_size, begins + 8 + key_size, ends


def _steps(
    both_sizes: UInt64s, starts: Int64s, stops: Int64s
) -> tuple[list[tuple[Int64s, UInt64s, Any]], int | None]:
    """Cells of stretches, one of each per step; and a stretch that does not end with a cell."""
    alive, at, end = np.arange(len(starts)), starts, stops
    last = len(both_sizes) - 1
    steps: list[tuple[Int64s, UInt64s, Any]] = []
    while len(alive):  # one cell of every stretch per step; bounded by the longest one's cells
        # Sizes that would reach behind the data are read elsewhere: their cell ends behind as well.
        sizes = both_sizes[np.minimum(at, last)].astype(np.uint64)
        after = at + ((sizes >> _KEY_SHIFT) + (sizes & _VALUE_MASK)).view(np.int64) + 9
        wrong = after > end
        if wrong.any():
            return steps, int(alive[np.argmax(wrong)])
        steps.append((at, sizes, alive))
        at = after
        going = at < end
        if not going.all():
            alive, at, end = alive[going], at[going], end[going]
    return steps, None


def _stretches(payloads: Payloads, blocks: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Blocks cut where cells seem to begin: starts, ends, and the block of each stretch."""
    starts, ends = payloads.starts[blocks], payloads.ends[blocks]
    if not len(blocks) or int((ends - starts).min()) < _CUT_FROM:
        return starts, ends, blocks
    share = np.arange(1, _CUTS) / _CUTS
    wished = (starts[:, None] + ((ends - starts)[:, None] * share).astype(np.int64)).ravel()
    first = int(starts[0])
    likely = min(int.from_bytes(payloads.data[first + 8 : first + 10].tobytes(), "big"), _ROW_MAX)
    cuts = _guessed_cells(payloads.data, wished, np.repeat(ends, _CUTS - 1), likely)
    owners = np.repeat(blocks, _CUTS - 1)[cuts >= 0]
    every = np.concatenate([starts, cuts[cuts >= 0]])
    order = np.argsort(every, kind="stable")
    owner, begin = np.concatenate([blocks, owners])[order], every[order]
    fresh = np.append(True, begin[1:] > begin[:-1])
    owner, begin = owner[fresh], begin[fresh]
    is_last = np.append(owner[1:] != owner[:-1], True)
    return begin, np.where(is_last, payloads.ends[owner], np.append(begin[1:], 0)), owner


def _guessed_cells(
    data: npt.NDArray[np.uint8], wished: Int64s, ends: Int64s, likely: int
) -> Int64s:
    """Where the first cell behind each place may begin; -1 where none shows itself.

    A key ends alike in all cells. The cell begins where its two lengths fit that ending; `likely`
    is a length of rows to begin with.
    """
    raw = data.data
    pairs = zip(wished.tolist(), np.minimum(wished + _LOOK, ends).tolist(), strict=True)
    ahead = np.array([bytes(raw[at:end]).find(_KEY_END) for at, end in pairs], np.int64)
    found = wished + ahead
    cells = np.full(len(found), -1, np.int64)
    open_ = np.flatnonzero(ahead >= 0)
    for length in [likely, *range(_ROW_MAX)]:  # of the row; one pass over open places each
        if not len(open_):
            break
        begin = found[open_] - length - 10
        head = data[begin[:, None] + _HEAD]
        fits = (head == _head_of(length)).all(axis=1)
        cells[open_[fits]] = begin[fits]
        open_ = open_[~fits]
    return cells


def _head_of(length: int) -> npt.NDArray[np.uint8]:
    """How the cell of a row of this length begins, without the length of its value."""
    return np.frombuffer(struct.pack(">iH", length + _KEY_END_SIZE + 2, length), np.uint8)


def _block_by_block(
    steps: list[tuple[Int64s, UInt64s, Any]], blocks: int
) -> tuple[Int64s, UInt64s, Int64s]:
    """What was found step by step, in file order: a cell's place in its block is its step."""
    if not steps:
        none = np.zeros(0, np.int64)
        return none, none.view(np.uint64), none
    of_block = np.concatenate([s[2] for s in steps])
    per_block = np.bincount(of_block, minlength=blocks)
    step = np.repeat(np.arange(len(steps)), [len(s[2]) for s in steps])
    place = (np.cumsum(per_block) - per_block)[of_block] + step
    begins, sizes = np.empty(len(place), np.int64), np.empty(len(place), np.uint64)
    begins[place] = np.concatenate([s[0] for s in steps])
    sizes[place] = np.concatenate([s[1] for s in steps])
    return begins, sizes, np.repeat(np.arange(blocks), per_block)


def _broken(site: Site, block_offsets: Int64s, number: Any) -> Exception:
    at = int(block_offsets[int(number)])
    return site.corrupt("the cells of a block do not end where the block ends", at)


def _versioned(site: Site, block_offsets: Int64s, number: Any) -> Exception:
    at = int(block_offsets[int(number)])
    return site.corrupt("a cell has a version number, which Hudi never writes", at)
