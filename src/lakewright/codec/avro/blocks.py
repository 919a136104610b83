"""Where the items of arrays and maps begin: the walk over their blocks.

An array is a list of blocks, each a count and that many items (a negative count is followed by the
byte size of the block), closed by a count of zero. Items have no common width, so their places are
found by walking item number k of all arrays together; the set of arrays that have a k-th item only
shrinks. The last few arrays, too few to be worth a vector, are walked one by one.

A declared count is checked against the bytes that are left before anything is allocated for it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from lakewright.codec.avro.chains import MANY_ITEMS, ROBUST_SIZE, item_starts
from lakewright.codec.avro.cursor import Chunk, Flags, Lanes, Positions
from lakewright.codec.avro.readers import Reader
from lakewright.codec.avro.scalar import Damage, Skipper, block_count

__all__ = ["BlockWalker", "ItemShape"]

FEW_LANES: Final = 96
"""Below this many lanes one pass of vector operations costs more than a Python loop over them."""

_MISFIT: Final = "an array block does not have the byte size that it tells"
_TOO_MANY: Final = "more array items than fit the record"


class ItemShape(NamedTuple):
    """What is known of an item before it is read."""

    min_size: int
    size: int | None
    nests_blocks: bool
    """Whether it holds arrays or maps itself."""


class BlockWalker:
    """Finds or skips the items of arrays whose items `item` reads and `step` skips one by one."""

    def __init__(self, item: Reader, step: Skipper, shape: ItemShape) -> None:
        self._item = item
        self._step = step
        self._item_min = shape.min_size
        self._item_size = shape.size
        self._guessable = not shape.nests_blocks and shape.min_size >= ROBUST_SIZE

    def locate(self, lanes: Lanes, active: Flags | None) -> tuple[Positions, Lanes]:
        """The number of items of each lane, and one lane per item; moves behind the arrays."""
        totals = np.zeros(len(lanes), np.int64)
        rounds: list[tuple[Positions, Positions, Positions]] = []
        ids = np.arange(len(lanes)) if active is None else np.flatnonzero(active)
        work = lanes.select(ids)
        while len(ids) >= FEW_LANES:
            count, block_end = self._headers(work)
            live = np.flatnonzero(count)
            if len(live) < len(ids):
                lanes.pos[ids] = work.pos
                ids, count, block_end = ids[live], count[live], block_end[live]
                work = work.select(live)
            self._spend(work, int(count.sum()))
            starts = np.empty(int(count.sum()), np.int64)
            self._walk(work, count, starts)
            bad = (block_end >= 0) & (block_end != work.pos)
            if bad.any():
                work.fail(bad, _MISFIT)
            rounds.append((ids, count, starts))
            totals[ids] += count
        if len(ids):
            count, starts = self._locate_few(work)
            lanes.pos[ids] = work.pos
            rounds.append((ids, count, starts))
            totals[ids] += count
        return totals, _item_lanes(lanes, totals, rounds)

    def skip(self, lanes: Lanes, active: Flags | None) -> None:
        """Move behind the arrays; a block that tells its byte size is not looked into."""
        ids = np.arange(len(lanes)) if active is None else np.flatnonzero(active)
        work = lanes.select(ids)
        while len(ids) >= FEW_LANES:
            count, block_end = self._headers(work)
            told = block_end >= 0
            work.pos = np.where(told, block_end, work.pos)
            lanes.pos[ids] = work.pos
            live = np.flatnonzero(count)
            ids, count, work = ids[live], count[live], work.select(live)
            self._walk(work, count * ~told[live], None)
        for lane in range(len(ids)):  # fewer than FEW_LANES
            self._walk_one(work, lane, None)
        lanes.pos[ids] = work.pos

    def _headers(self, work: Lanes) -> tuple[Positions, Positions]:
        """The item count of the next block of each lane, and where the block ends or -1."""
        count = work.varint(None).astype(np.int64)
        block_end = np.full(len(count), -1, np.int64)
        negative = np.flatnonzero(count < 0)
        if len(negative):
            told = work.select(negative)
            block_end[negative] = told.length(None) + told.pos
            work.merge(negative, told)
            count[negative] = -count[negative]
        bad = count < 0  # the one number that has no positive counterpart
        if self._item_min:
            bad |= count > (work.end - work.pos) // self._item_min
        if bad.any():
            work.fail(bad, _TOO_MANY)
        return count, block_end

    def _spend(self, work: Lanes, items: int) -> None:
        """Account for items that have no bytes to bound their number."""
        if self._item_min == 0 and items:
            work.chunk.empty_items -= items
            if work.chunk.empty_items < 0:
                work.fail_lane(0, int(work.pos[0]), _TOO_MANY)

    def _walk(self, work: Lanes, count: Positions, starts: Positions | None) -> None:
        """Move behind `count` items per lane; note where each begins, lane by lane."""
        first = np.cumsum(count) - count
        if self._item_size is not None:
            if starts is not None:
                inside = np.arange(len(starts)) - np.repeat(first, count)
                starts[:] = np.repeat(work.pos, count) + inside * self._item_size
            work.move(count * self._item_size, None)
            return
        order = np.argsort(-count, kind="stable")  # so that arrays with a k-th item are a prefix
        walker = work.select(order)
        first, count = first[order], count[order]
        having = len(count) - np.cumsum(np.bincount(count, minlength=1))
        for k, front in enumerate(having.tolist()):  # at most as often as the longest has items
            if front < FEW_LANES:
                self._walk_few(walker.front(front), first, count - k, k, starts)
                break
            if starts is not None:
                starts[first[:front] + k] = walker.pos[:front]
            step = walker.front(front)
            self._item.skip(step)
            walker.pos[:front] = step.pos
        work.pos[order] = walker.pos

    def _walk_few(
        self, walker: Lanes, first: Positions, count: Positions, k: int, starts: Positions | None
    ) -> None:
        """`count` more items from number k on, for fewer than FEW_LANES lanes, one by one."""
        for lane in range(len(walker)):
            pos, end = int(walker.pos[lane]), int(walker.end[lane])
            try:
                found, walker.pos[lane] = self._items(walker.chunk, pos, end, int(count[lane]))
            except Damage as damage:
                walker.fail_lane(lane, damage.offset, damage.what)
            if starts is not None:
                begin = int(first[lane]) + k
                starts[begin : begin + len(found)] = found

    def _items(self, chunk: Chunk, pos: int, end: int, count: int) -> tuple[list[int], int]:
        """Where `count` items of one array begin, and where the last one ends."""
        if self._item_size is not None:
            behind = pos + count * self._item_size  # within the record, see block_count
            return [pos + n * self._item_size for n in range(count)], behind
        if self._guessable and count >= MANY_ITEMS:
            return item_starts(self._item, self._step, chunk, pos, end, count)
        raw, step, found = chunk.raw, self._step, []
        for _ in range(count):  # bounded by the bytes of the record, see block_count
            found.append(pos)
            pos = step(raw, pos, end)
        return found, pos

    def _locate_few(self, work: Lanes) -> tuple[Positions, Positions]:
        """All blocks of fewer than FEW_LANES lanes, one by one."""
        counts = np.zeros(len(work), np.int64)
        found: list[int] = []
        for lane in range(len(work)):
            before = len(found)
            self._walk_one(work, lane, found)
            counts[lane] = len(found) - before
        return counts, np.array(found, np.int64)

    def _walk_one(self, work: Lanes, lane: int, found: list[int] | None) -> None:
        """All blocks of one lane; where items begin goes to `found`, if they are wanted."""
        chunk, pos, end = work.chunk, int(work.pos[lane]), int(work.end[lane])
        try:
            while True:
                count, size, pos = block_count(chunk.raw, pos, end, self._item_min)
                if not count:
                    break
                block = pos
                if found is None and (size is not None or not self._item_min):
                    pos += size or 0
                    continue
                self._spend(work, count)
                starts, pos = self._items(chunk, pos, end, count)
                if found is not None:
                    found += starts
                if size is not None and pos != block + size:
                    raise Damage(block, _MISFIT)
        except Damage as damage:
            work.fail_lane(lane, damage.offset, damage.what)
        work.pos[lane] = pos


def _item_lanes(
    lanes: Lanes, totals: Positions, rounds: list[tuple[Positions, Positions, Positions]]
) -> Lanes:
    """One lane per item, ordered by array and by place in it."""
    owner = np.repeat(np.arange(len(totals)), totals)
    filled = np.cumsum(totals) - totals
    starts = np.empty(len(owner), np.int64)
    for ids, count, found in rounds:
        place = np.repeat(filled[ids] - (np.cumsum(count) - count), count)
        place += np.arange(len(found))
        starts[place] = found
        filled[ids] += count
    rows = owner if lanes.rows is None else lanes.rows[owner]
    return Lanes(lanes.chunk, starts, lanes.end[owner], rows)
