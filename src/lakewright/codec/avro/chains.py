"""Where the items of one long array begin, found in many places at once.

Items follow each other without an index, so one array is a chain that seems to have to be walked
item by item. Instead, the bytes are cut into segments; in each, a place is guessed where an item
might begin (the first one from which several items in a row can be skipped), and from all guesses
the items are walked in lockstep. A guess counts only when the chain before it, which is known to be
right, steps exactly onto a place that was visited from the guess; where it does not, items are
walked one by one until it does. So the result never depends on a guess, only the time does.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lakewright.codec.avro.cursor import PADDING, Chunk, Flags, Lanes, Positions
from lakewright.codec.avro.readers import Reader
from lakewright.codec.avro.scalar import Skipper

__all__ = ["MANY_ITEMS", "ROBUST_SIZE", "item_starts"]

MANY_ITEMS: Final = 16_384
"""From this many items on the guesses pay,"""
ROBUST_SIZE: Final = 3
"""if the smallest item has enough bytes to expose a wrong one."""

_SAMPLE: Final = 64
_SEGMENT_ITEMS_MAX: Final = 128
_PROOF_ITEMS: Final = 4
_REACH_MAX: Final = 1024
_FEW_CHAINS: Final = 32  # the rest is walked one by one


class _Probes(Lanes):
    """Lanes that may be wrong: one that fails is parked behind every frame instead of reported."""

    __slots__ = ()

    def select(self, index: Positions) -> Lanes:
        return _Probes(self.chunk, self.pos[index], self.end[index])

    def fail(self, bad: Flags, what: str) -> None:  # noqa: ARG002 - nobody hears about a wrong guess
        spot = _parking(self.chunk)
        self.pos = np.where(bad, spot, self.pos)
        self.end = np.where(bad, spot, self.end)


def _parking(chunk: Chunk) -> int:
    return len(chunk.data) - PADDING + 1


def item_starts(
    item: Reader, step: Skipper, chunk: Chunk, pos: int, end: int, count: int
) -> tuple[list[int], int]:
    """Where each of `count` items from `pos` on begins, and where the last one ends.

    `item` must not hold arrays or maps. Raises `Damage` as a walk one by one does.
    """
    starts: list[int] = []
    for _ in range(min(_SAMPLE, count)):
        starts.append(pos)
        pos = step(chunk.raw, pos, end)
    left = count - len(starts)
    if not left:
        return starts, pos
    # Longer segments mean more steps, shorter ones more guesses.
    segment_items = min(int(left**0.5) // 3 + 1, _SEGMENT_ITEMS_MAX)
    sizes = np.diff([*starts, pos])
    span = min(end - pos, int(1.25 * sizes.mean() * left))  # later items may be longer
    cuts = pos + np.arange(segment_items, left, segment_items) * span // left
    reach = min(2 * int(np.median(sizes)) + 1, _REACH_MAX)
    heads = np.append(pos, _guesses(item, chunk, cuts, reach, end))
    chains = _walk(item, chunk, heads, end, 3 * segment_items)
    segment = 0
    while left:  # at most once per segment and once per item
        chain = chains[segment]
        place = int(chain.searchsorted(pos))
        if place < len(chain) - 1 and chain[place] == pos:
            known = chain[place : place + left + 1]
            starts += known[:-1].tolist()
            pos = int(known[-1])
            left -= len(known) - 1
        else:
            starts.append(pos)
            pos = step(chunk.raw, pos, end)
            left -= 1
        while segment + 1 < len(heads) and pos >= heads[segment + 1]:
            segment += 1
    return starts, pos


def _guesses(item: Reader, chunk: Chunk, cuts: Positions, reach: int, end: int) -> Positions:
    """For each cut the first place behind it where an item seems to begin, if there is one."""
    places = (cuts[:, None] + np.arange(reach)).ravel()
    owner = np.repeat(np.arange(len(cuts)), reach)
    inside = places < end
    places, owner = places[inside], owner[inside]
    probes: Lanes = _Probes(chunk, places, np.full(len(places), end))
    for _ in range(_PROOF_ITEMS):
        item.skip(probes)
        alive = np.flatnonzero(probes.pos <= end)
        places, owner, probes = places[alive], owner[alive], probes.select(alive)
    _, first = np.unique(owner, return_index=True)
    return np.unique(places[first])


def _walk(item: Reader, chunk: Chunk, heads: Positions, end: int, steps: int) -> list[Positions]:
    """From every head the places visited up to the next head, and the first one at or behind it.

    A chain that meets damage, or is not done after `steps` items, is shorter.
    """
    limit = np.append(heads[1:], end)
    ids = np.arange(len(heads))
    visited_ids, visited = [ids], [heads]
    probes: Lanes = _Probes(chunk, heads.copy(), np.full(len(heads), end))
    for _ in range(steps):
        item.skip(probes)
        alive = np.flatnonzero(probes.pos <= end)
        visited_ids.append(ids[alive])
        visited.append(probes.pos[alive])
        going = np.flatnonzero(probes.pos < limit[ids])
        if len(going) < _FEW_CHAINS:
            break
        ids, probes = ids[going], probes.select(going)
    lanes = np.concatenate(visited_ids)
    order = np.argsort(lanes, kind="stable")
    bounds = np.cumsum(np.bincount(lanes, minlength=len(heads)))[:-1]
    return np.split(np.concatenate(visited)[order], bounds)
