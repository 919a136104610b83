"""Where the rows of a keyed write go: pure, from what the index said to one share per file group.

Rows that were found go to the file groups they are in; rows that were not go where an insert would
put them, small files first (`engine/sizing`). A file group of a MERGE_ON_READ table gets its
changes as a log file, unless new rows join its base file: then all of its changes go there. Deletes
of rows that were not found go nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lakewright.engine.keyed.lookup import Hits
from lakewright.engine.sizing import InsertPlan
from lakewright.format.file_slices import FileGroupId, FileSlice
from lakewright.merge.columns import Bools, Int64s

__all__ = ["GroupShare", "Unfound", "shares_of_buckets", "shares_of_hits", "unfound"]

Int32s = npt.NDArray[np.int32]
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class GroupShare:
    """The rows of a write that one file group gets, by the numbers of their keys."""

    partition: str
    slice_: FileSlice | None
    """The newest slice of the group; None for a new group."""
    updates: Int64s = field(default_factory=lambda: _NONE)
    """Keys that the group has, or may have."""
    positions: Int64s | None = None
    """Of the updates: their rows in the base file, where known."""
    inserts: Int64s = field(default_factory=lambda: _NONE)
    """Keys that are new."""
    removals: Int64s = field(default_factory=lambda: _NONE)
    """Keys whose rows leave the group for another partition."""
    file_id: str | None = None
    """Of a new group whose id is not free."""

    @property
    def updates_in_base(self) -> Int64s:
        """Those of the updates whose rows are known to be in the base file."""
        return _NONE if self.positions is None else self.updates[self.positions >= 0]

    @property
    def size(self) -> int:
        """Number of keys."""
        return len(self.updates) + len(self.inserts) + len(self.removals)


@dataclass(frozen=True, slots=True, eq=False)
class Unfound:
    """Keys that no file has, in the order of their partitions."""

    codes: Int64s
    counts: Mapping[str, int]
    """How many of them each partition gets, in this order."""


def unfound(
    hits: Hits, left_out: Bools, partitions: Sequence[str], partition_of: Int32s
) -> Unfound:
    """The keys to be inserted: those without a hit that are not left out."""
    fresh = ~left_out
    fresh[hits.codes] = False
    codes = np.flatnonzero(fresh)
    codes = codes[np.argsort(partition_of[codes], kind="stable")]
    counted = np.bincount(partition_of[codes], minlength=len(partitions))
    counts = {partitions[int(p)]: int(counted[p]) for p in np.flatnonzero(counted)}
    return Unfound(codes, counts)


def shares_of_hits(
    hits: Hits,
    slices: Sequence[FileSlice],
    fresh: Unfound,
    plans: Iterable[InsertPlan],
    *,
    leaving: Hits | None = None,
) -> list[GroupShare]:
    """One share for every file group that something happens to; `hits.files` number `slices`.

    `leaving` are places of rows that go to other partitions.
    """
    updates = _by_file(hits)
    removals = {} if leaving is None else _by_file(leaving)
    inserts, new = _inserts(fresh, plans)
    known = {slice_.group: number for number, slice_ in enumerate(slices)}
    shares = []
    for number in sorted({*updates, *removals, *(known[group] for group in inserts)}):
        slice_ = slices[number]
        codes, positions = updates.get(number, (_NONE, _NONE))
        shares.append(
            GroupShare(
                slice_.group.partition,
                slice_,
                codes,
                positions,
                inserts.get(slice_.group, _NONE),
                removals.get(number, (_NONE, _NONE))[0],
            )
        )
    return shares + new


def shares_of_buckets(
    kept: Int64s,
    partition_of: Int32s,
    partitions: Sequence[str],
    bucket_of: Int32s,
    slices: Mapping[tuple[str, int], FileSlice],
    new_file_id: Mapping[tuple[str, int], str],
) -> list[GroupShare]:
    """One share for every bucket that the keys `kept` fall into; if they are new is not known."""
    order = kept[np.lexsort((bucket_of[kept], partition_of[kept]))]
    pairs = np.stack((partition_of[order], bucket_of[order]), axis=1)
    cuts = np.flatnonzero((np.diff(pairs, axis=0, prepend=-1) != 0).any(axis=1))
    shares = []
    for first, end in pairwise([*cuts, len(order)]):
        partition, bucket = partitions[pairs[first, 0]], int(pairs[first, 1])
        codes = np.sort(order[first:end])
        slice_ = slices.get((partition, bucket))
        if slice_ is None:
            named = new_file_id[partition, bucket]
            shares.append(GroupShare(partition, None, inserts=codes, file_id=named))
        else:
            shares.append(GroupShare(partition, slice_, codes))
    return shares


def _by_file(hits: Hits) -> dict[int, tuple[Int64s, Int64s]]:
    """Keys and positions by file, each key once per file at its first place."""
    order = np.lexsort((hits.positions, hits.codes, hits.files))
    files, codes, at = hits.files[order], hits.codes[order], hits.positions[order]
    again = np.zeros(len(order), dtype=np.bool_)
    again[1:] = (files[1:] == files[:-1]) & (codes[1:] == codes[:-1])
    files, at = files[~again], at[~again]
    keys: Int64s = codes[~again].astype(np.int64)
    cuts = np.append(np.flatnonzero(np.diff(files, prepend=-1)), len(files))
    return {int(files[first]): (keys[first:end], at[first:end]) for first, end in pairwise(cuts)}


def _inserts(
    fresh: Unfound, plans: Iterable[InsertPlan]
) -> tuple[dict[FileGroupId, Int64s], list[GroupShare]]:
    """Keys that join groups which are there, and shares of new groups."""
    joined: dict[FileGroupId, Int64s] = {}
    new: list[GroupShare] = []
    starts = dict(zip(fresh.counts, np.cumsum([0, *fresh.counts.values()]), strict=False))
    for plan in plans:
        at = int(starts[plan.partition])
        for append in plan.appends:
            group = FileGroupId(plan.partition, append.base.file_id)
            joined[group] = fresh.codes[at : at + append.rows]
            at += append.rows
        for rows in plan.new_groups:
            new.append(GroupShare(plan.partition, None, inserts=fresh.codes[at : at + rows]))
            at += rows
    return joined, new
