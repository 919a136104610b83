"""Partial updates: rows that lack columns, and values that mean "nothing".

Two mechanisms that share only the idea that the loser fills the winner. Rows of partial log blocks
lack columns; a null they do hold is a value. Full rows of a table with a partial update mode hold
placeholders: the schema's default, or a marker text for values that the source could not read.
Both answer per column, so a projection of the result is the result of the projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.merge.columns import Bools, as_bools, blend, valid
from lakewright.merge.names import PartialUpdateMode
from lakewright.merge.protocol import MergeContext, Merged, Take

Takes = npt.NDArray[np.uint8]

_CACHED_INTEGERS: Final = range(-128, 128)
"""Hudi compares references; the JVM shares only the boxed integers of this range."""


def joined_columns(
    older: frozenset[str] | None, newer: frozenset[str] | None, schema: pa.Schema
) -> frozenset[str] | None:
    """The columns that two rows hold together; None if that is every column of `schema`."""
    if older is None or newer is None:
        return None
    both = older | newer
    return None if both.issuperset(schema.names) else both


def join_columns(
    older: pa.RecordBatch, newer: pa.RecordBatch, take: Takes, ctx: MergeContext
) -> Merged:
    """Complete each winner with the columns it lacks and the loser has.

    `take` holds OLDER and NEWER only. A winner that lacks nothing, and any pair with a delete,
    stays as decided.
    """
    names = ctx.schema.names
    old = frozenset(names) if ctx.older_columns is None else ctx.older_columns.intersection(names)
    new = frozenset(names) if ctx.newer_columns is None else ctx.newer_columns.intersection(names)
    rows = ~as_bools(ctx.older_deleted, len(take)) & ~as_bools(ctx.newer_deleted, len(take))
    lacking = np.where(take == Take.NEWER, not old <= new, not new <= old)
    built = np.flatnonzero(rows & lacking)
    if not len(built):
        return Merged(pa.array(take))
    newer_wins: Bools = take == Take.NEWER
    from_newer: list[Bools | bool] = [
        newer_wins if name in old and name in new else name in new for name in names
    ]
    answer = take.copy()
    answer[built] = Take.BUILT
    return Merged(pa.array(answer), blend(older, newer, built, from_newer))


@dataclass(frozen=True, slots=True)
class Placeholders:
    """The placeholder test of a table-level partial update mode."""

    mode: PartialUpdateMode
    unavailable_value: str | None = None

    def mask(self, column: pa.Array, name: str, ctx: MergeContext) -> Bools | None:
        """Which values are placeholders; None if none can be."""
        if self.mode is PartialUpdateMode.FILL_UNAVAILABLE:
            return marker_mask(column, self.unavailable_value)
        default = ctx.defaults.get(name)
        if default is None:
            return ~valid(column) if column.null_count else None
        if isinstance(default, bool):
            shared = pt.is_boolean(column.type)
        else:
            shared = pt.is_integer(column.type) and default in _CACHED_INTEGERS
        return as_bools(pc.equal(column, default), len(column)) if shared else None

    def fill(
        self, older: pa.RecordBatch, newer: pa.RecordBatch, take: Takes, ctx: MergeContext
    ) -> Merged:
        """Fill the winners' placeholders with the losers' values.

        `take` holds OLDER and NEWER only; pairs with a delete stay as decided.
        """
        newer_wins: Bools = take == Take.NEWER
        rows = ~as_bools(ctx.older_deleted, len(take)) & ~as_bools(ctx.newer_deleted, len(take))
        holes = []
        for k, name in enumerate(newer.schema.names):
            there = self.mask(older.column(k), name, ctx)
            here = self.mask(newer.column(k), name, ctx)
            holes.append(winners_holes(newer_wins, there, here))
        return fill_holes(older, newer, newer_wins, holes, rows)


def winners_holes(newer_wins: Bools, older: Bools | None, newer: Bools | None) -> Bools | None:
    """Placeholders of the winner that the loser can fill: two placeholders are the same value."""
    if older is None and newer is None:
        return None
    if older is None or newer is None:
        return newer & newer_wins if newer is not None else _without(older, newer_wins)
    return np.where(newer_wins, newer & ~older, older & ~newer)


def fill_holes(
    older: pa.RecordBatch,
    newer: pa.RecordBatch,
    newer_wins: Bools,
    holes: Sequence[Bools | None],
    rows: Bools,
) -> Merged:
    """The winners, those of `rows` with the loser's value wherever column k has a hole."""
    take = np.where(newer_wins, Take.NEWER, Take.OLDER).astype(np.uint8)
    filled = np.zeros(len(take), dtype=np.bool_)
    for hole in holes:
        if hole is not None:
            filled |= hole
    built = np.flatnonzero(filled & rows)
    if not len(built):
        return Merged(pa.array(take))
    take[built] = Take.BUILT
    from_newer = [newer_wins if hole is None else newer_wins ^ hole for hole in holes]
    return Merged(pa.array(take), blend(older, newer, built, from_newer))


def marker_mask(column: pa.Array, marker: str | None) -> Bools | None:
    """Which texts or bytes equal the marker of an unavailable value; None if none can."""
    if marker is None:
        return None
    if pt.is_string(column.type) or pt.is_large_string(column.type):
        return as_bools(pc.equal(column, marker), len(column))
    if pt.is_binary(column.type) or pt.is_large_binary(column.type):
        return as_bools(pc.equal(column, marker.encode()), len(column))
    return None


def _without(mask: Bools | None, other: Bools) -> Bools | None:
    return None if mask is None else mask & ~other
