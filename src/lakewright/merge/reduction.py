"""Reducing all log versions of a key at once, where the merge rule allows it.

Merging is defined as a fold: each version meets the result of those before it. For rules that only
choose, the fold's result can be named without folding. Taking the latest version is one. Taking the
greatest ordering value is another: a commit-time delete makes the fold forget everything before it
and ignore further deletes without a row, until a row comes; of the versions from that row on it
keeps the greatest, the later one of equals. Both cost a few passes over vectors, whatever the
number of versions per key.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from lakewright.merge.columns import Bools, Int64s

Int32s = npt.NDArray[np.int32]


class LogOrder(Enum):
    """Which log version of a key remains; a merger's promise about its fold."""

    LATEST = "latest"
    GREATEST = "greatest"
    """The greatest ordering value, as event time has it."""
    PAYLOAD_GREATEST = "greatest payload"
    """The same for payload classes, for keys without ordered deletes from delete blocks.

    Those deletes follow other rules than rows, so their keys must be folded.
    """


@dataclass(frozen=True, slots=True)
class Versions:
    """All versions in merge order, oldest first; one entry per version in every vector."""

    codes: Int32s
    """The key of the version, as an index into the distinct keys."""
    deleted: Bools
    empty: Bools
    """Deletes without a row."""
    default_ordering: Bools
    key_count: int


def latest(versions: Versions) -> Int64s:
    """The last version of each key."""
    last = np.empty(versions.key_count, dtype=np.int64)
    last[versions.codes] = np.arange(len(versions.codes))
    return last


def greatest(versions: Versions, order: LogOrder, order_keys: Int64s, rows: Int64s) -> Int64s:
    """What the fold keeps of each key, considering only the versions `rows`.

    `order_keys` belongs to `rows`, which is ascending and holds all versions of its keys. Keys
    without a version in `rows` get -1.
    """
    codes = versions.codes[rows]
    resetting = versions.empty if order is LogOrder.PAYLOAD_GREATEST else versions.deleted
    resets = resetting[rows] & versions.default_ordering[rows]
    winner = np.full(versions.key_count, -1, dtype=np.int64)
    if resets.any():
        reset = np.full(versions.key_count, -1, dtype=np.int64)
        reset[codes[resets]] = rows[resets]
        winner[:] = reset
        after = rows > reset[codes]
        start = _first_row(versions, codes[after], rows[after])
        alive = after & ((reset[codes] < 0) | (rows >= start[codes]))
        codes, rows, order_keys = codes[alive], rows[alive], order_keys[alive]
    best = np.full(versions.key_count, np.iinfo(np.int64).min)
    np.maximum.at(best, codes, order_keys)
    remaining = order_keys == best[codes]
    winner[codes[remaining]] = rows[remaining]
    return winner


def _first_row(versions: Versions, codes: Int32s, rows: Int64s) -> Int64s:
    """For each key the first of the ascending `rows` that is not an empty delete."""
    first = np.full(versions.key_count, np.iinfo(np.int64).max)
    there = np.flatnonzero(~versions.empty[rows])[::-1]
    first[codes[there]] = rows[there]
    return first


def keys_to_fold(versions: Versions, order: LogOrder | None, partial: Bools) -> Bools:
    """Keys whose versions must be merged one after the other, a mask over the distinct keys."""
    several = np.bincount(versions.codes, minlength=versions.key_count) > 1
    if order is None:
        return several
    reason = partial
    if order is LogOrder.PAYLOAD_GREATEST:
        reason = reason | (versions.empty & ~versions.default_ordering)
    folded = np.zeros(versions.key_count, dtype=np.bool_)
    folded[versions.codes[reason]] = True
    return folded & several
