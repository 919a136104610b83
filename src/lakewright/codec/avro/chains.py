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

__all__ = ["MANY_ITEMS", "item_starts"]

MANY_ITEMS: Final = 4096
"""From this many items on the guesses pay."""

_SAMPLE: Final = 64
_SEGMENT_ITEMS_MAX: Final = 128
_PROOF_ITEMS: Final = 4
_REACH_MAX: Final = 1024
_STEPS_MAX: Final = 8 * _SEGMENT_ITEMS_MAX
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
    starts = []
    for _ in range(min(_SAMPLE, count)):
        starts.append(pos)
        pos = step(chunk.raw, pos, end)
    if len(starts) == count:
        return starts, pos
    left = count - len(starts)
    sizes = np.diff([*starts, pos])
    heads = _guesses(item, chunk, pos, end, left, sizes)
    chains, tails = _walk(item, chunk, heads, end)
    parked = _parking(chunk)
    segment = 0
    while left:  # at most once per segment and once per item
        chain = chains[segment]
        place = int(np.searchsorted(chain, pos))
        if (
            place < len(chain)
            and chain[place] == pos
            and (tails[segment] != parked or place < len(chain) - 1)
        ):
            # The last item of a chain that broke off is left to be walked, or to fail, below.
            whole = tails[segment] != parked
            known = chain[place:] if whole else chain[place:-1]
            behind = int(tails[segment] if whole else chain[-1])
            starts += known[:left].tolist()
            pos = behind if left >= len(known) else int(known[left])
            left -= min(left, len(known))
        else:
            starts.append(pos)
            pos = step(chunk.raw, pos, end)
            left -= 1
        while segment + 1 < len(heads) and pos >= heads[segment + 1]:
            segment += 1
    return starts, pos


def _guesses(
    item: Reader, chunk: Chunk, pos: int, end: int, count: int, sizes: Positions
) -> Positions:
    """`pos`, and one place per segment where an item seems to begin."""
    # Longer segments mean more steps, shorter ones more guesses.
    segments = count // min(int(count**0.5) // 3 + 1, _SEGMENT_ITEMS_MAX) + 1
    span = min(end - pos, int(1.25 * sizes.mean() * count))  # later items may be longer
    cuts = pos + np.arange(1, segments) * span // segments
    reach = min(2 * int(np.median(sizes)) + 1, _REACH_MAX)
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
    return np.concatenate([[pos], np.unique(places[first])])


def _walk(
    item: Reader, chunk: Chunk, heads: Positions, end: int
) -> tuple[list[Positions], Positions]:
    """From every head the places visited before the next head, and the place behind them."""
    limit = np.append(heads[1:], end)
    ids = np.arange(len(heads))
    tails = np.full(len(heads), _parking(chunk))
    visited_ids, visited = [], []
    probes: Lanes = _Probes(chunk, heads.copy(), np.full(len(heads), end))
    for _ in range(_STEPS_MAX):
        visited_ids.append(ids)
        visited.append(probes.pos)
        item.skip(probes)
        arrived = (probes.pos >= limit[ids]) & (probes.pos <= end)
        tails[ids[arrived]] = probes.pos[arrived]
        going = np.flatnonzero(probes.pos < limit[ids])
        if len(going) < _FEW_CHAINS:
            break
        ids, probes = ids[going], probes.select(going)
    lanes = np.concatenate(visited_ids)
    order = np.argsort(lanes, kind="stable")
    bounds = np.cumsum(np.bincount(lanes, minlength=len(heads)))[:-1]
    return np.split(np.concatenate(visited)[order], bounds), tails
