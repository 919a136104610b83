"""The payload classes' rules, one function per rule, for all pairs at once.

Hudi asks a payload two questions. *Pre-combine*: which of two versions that are not stored yet goes
on; *combine*: what becomes of the stored row when a version meets it. Each rule here answers one of
them for aligned pairs with a `Decision`: who wins, and in which columns the winner takes the
loser's value. What a deleted winner means, and pairs that are settled without asking the payload,
are the business of the bridge (`lakewright.merge.payloads`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.errors import MergeError
from lakewright.merge.columns import META_COLUMNS, Bools, as_bools, column_at, valid
from lakewright.merge.deletes import DeleteRule
from lakewright.merge.names import DEBEZIUM_UNAVAILABLE
from lakewright.merge.ordering import Int8s, compare, ordering_values
from lakewright.merge.partial import marker_mask, winners_holes
from lakewright.merge.protocol import MergeContext, Phase

MYSQL_SEQUENCE = "_event_seq"
POSTGRES_LSN = "_event_lsn"


class Pairs:
    """Two aligned batches with what the rules ask of them, computed when first asked."""

    def __init__(
        self,
        older: pa.RecordBatch,
        newer: pa.RecordBatch,
        ctx: MergeContext,
        *,
        update_on_tie: bool = True,
        compares_empties: bool = False,
    ) -> None:
        self.older = older
        self.newer = newer
        self.ctx = ctx
        self.size = newer.num_rows
        self.update_on_tie = update_on_tie
        self.compares_empties = compares_empties
        """Whether a delete without a row is compared with the stored row (1.x)."""
        self.older_deleted = as_bools(ctx.older_deleted, self.size)
        self.newer_deleted = as_bools(ctx.newer_deleted, self.size)
        self.older_empty = as_bools(ctx.older_empty, self.size)
        self.newer_empty = as_bools(ctx.newer_empty, self.size)
        self.older_unordered = as_bools(ctx.older_unordered, self.size) & self.older_deleted
        self.newer_unordered = as_bools(ctx.newer_unordered, self.size) & self.newer_deleted

    @cached_property
    def order(self) -> Int8s:
        """1 where the older version has the greater ordering value, -1 where the newer has."""
        paths = self.ctx.ordering_columns
        return compare(
            ordering_values(self.older, paths), ordering_values(self.newer, paths), self.size
        )

    @cached_property
    def stored_ordering(self) -> Bools:
        """Pairs whose older row has an ordering value; rows from before its column have none."""
        return self._has_ordering(self.older)

    @cached_property
    def incoming_ordering(self) -> Bools:
        """Pairs whose newer row has an ordering value."""
        return self._has_ordering(self.newer)

    def _has_ordering(self, rows: pa.RecordBatch) -> Bools:
        columns = ordering_values(rows, self.ctx.ordering_columns)
        return valid(columns[0]) if len(columns) == 1 else self.all(True)

    @property
    def in_log(self) -> Bools:
        """All pairs in the log phase, where entries of delete blocks are not the payload's."""
        return self.all(self.ctx.phase is Phase.LOG)

    def all(self, value: bool) -> Bools:
        """The same answer for every pair."""
        return np.full(self.size, value, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Decision:
    """Who wins each pair, and what the winner takes from the loser."""

    newer_wins: Bools
    holes: Sequence[Bools | None] | None = None
    """Per column the pairs whose winner takes the loser's value; None: winners stay as they are."""
    fills_deleted: Bools | None = None
    """Pairs whose winner is filled although it is a delete."""
    deleted: Bools | None = None
    """Pairs that become a delete whoever wins."""


Rule = Callable[[Pairs], Decision]


def newer(pairs: Pairs) -> Decision:
    """The newer version, whatever it is."""
    return Decision(pairs.all(True))


def older(pairs: Pairs) -> Decision:
    """The older version, whatever it is."""
    return Decision(pairs.all(False))


def delete(pairs: Pairs) -> Decision:
    """No row."""
    return Decision(pairs.all(True), deleted=pairs.all(True))


def refuse(pairs: Pairs) -> Decision:
    """Hudi has no answer either."""
    raise MergeError(
        "The table's payload class cannot combine versions that are not stored yet.",
        hint="Hudi refuses this too; compact the table with the writer that made it.",
        context={"pairs": pairs.size},
    )


def greater(pairs: Pairs) -> Decision:
    """Pre-combine of most classes: the greater ordering value, but an empty older one loses."""
    keeps = (pairs.order > 0) & ~pairs.older_empty & ~_commit_time(pairs)
    # The log compares a delete block's value only with one of its own class, not with a default.
    incomparable = pairs.newer_empty & pairs.in_log & ~pairs.stored_ordering
    return Decision(~keeps | incomparable)


def greater_unless_empty(pairs: Pairs) -> Decision:
    """As `greater`, but a newer delete without a row is not compared."""
    return Decision(greater(pairs).newer_wins | pairs.newer_empty)


def first_greatest(pairs: Pairs) -> Decision:
    """Pre-combine of the first-value class: as `greater`, but a tie goes to the older row."""
    tie = (pairs.order == 0) & ~(pairs.newer_empty & pairs.in_log)
    keeps = ((pairs.order > 0) & ~_commit_time(pairs)) | tie
    return Decision(~(keeps & ~pairs.older_empty))


def smaller(pairs: Pairs) -> Decision:
    """Pre-combine of the reverse-order class."""
    return Decision(~((pairs.order < 0) & ~pairs.older_empty & ~_commit_time(pairs)))


def combine_ordered(pairs: Pairs) -> Decision:
    """The newer row unless the stored one has a greater ordering value; ties by configuration."""
    keeps = pairs.order > 0 if pairs.update_on_tie else pairs.order >= 0
    return _against_stored(pairs, keeps)


def combine_deletes_first(pairs: Pairs) -> Decision:
    """As `combine_ordered`, but a delete wins without being compared."""
    ordered = combine_ordered(pairs)
    return Decision(ordered.newer_wins | pairs.newer_deleted)


def combine_first_value(pairs: Pairs) -> Decision:
    """The newer row only if its ordering value is really greater."""
    return _against_stored(pairs, pairs.order >= 0)


def combine_reverse(pairs: Pairs) -> Decision:
    """The newer row if its ordering value is not greater; ties by configuration."""
    keeps = pairs.order < 0 if pairs.update_on_tie else pairs.order <= 0
    return _against_stored(pairs, keeps)


def combine_non_defaults(pairs: Pairs) -> Decision:
    """The newer row, with the stored value wherever it holds the schema's default."""
    defaults = pairs.ctx.defaults
    holes: list[Bools | None] = []
    for k, field in enumerate(pairs.newer.schema):
        mask = _default_mask(pairs.newer.column(k), field, defaults)
        same = None if mask is None else _default_mask(pairs.older.column(k), field, defaults)
        holes.append(mask if mask is None or same is None else mask & ~same)
    return Decision(pairs.all(True), holes)


def pre_combine_partial(pairs: Pairs) -> Decision:
    """The greater ordering value wins and takes the other's value wherever it has null."""
    keeps = ~greater(pairs).newer_wins & (~pairs.newer_empty | pairs.in_log)
    filled = pairs.all(True)
    if META_COLUMNS[0] not in pairs.newer.schema.names:
        # Hudi finds nothing to fill in a deleted older row and falls back to the newer one.
        filled = ~(keeps & pairs.older_deleted)
        keeps = keeps & ~pairs.older_deleted
    holes = [_and(hole, filled) for hole in _null_holes(pairs, ~keeps)]
    return Decision(~keeps, holes, fills_deleted=keeps)


def combine_partial(pairs: Pairs) -> Decision:
    """As `pre_combine_partial` against a stored row; a delete is not compared."""
    compared = pairs.stored_ordering & pairs.incoming_ordering & ~pairs.newer_deleted
    keeps = (pairs.order > 0) & compared
    # The one class that looks at the flag of a stored row, which a bulk insert may have left there.
    flagged = DeleteRule(operation=False).mask(pairs.older)
    deleted = None if flagged is None else keeps & flagged
    return Decision(~keeps, _null_holes(pairs, ~keeps), deleted=deleted)


def pre_combine_mysql(pairs: Pairs) -> Decision:
    """The greater binlog position, compared as numbers."""
    keeps = (_compare_positions(pairs) > 0) & ~pairs.newer_unordered
    return Decision(~(keeps & ~pairs.older_empty))


def combine_mysql(pairs: Pairs) -> Decision:
    """The newer row unless its binlog position is smaller; ties by configuration."""
    order = _compare_positions(pairs)
    keeps = order > 0 if pairs.update_on_tie else order >= 0
    there = valid(column_at(pairs.older, MYSQL_SEQUENCE))
    return Decision(~(keeps & there & ~pairs.newer_empty))


def combine_postgres(pairs: Pairs) -> Decision:
    """The newer row unless its LSN is smaller, with stored values for unavailable ones."""
    stored, incoming = _required(pairs, POSTGRES_LSN)
    keeps = (compare([stored], [incoming], pairs.size) > 0) & valid(stored) & ~pairs.newer_empty
    if pairs.compares_empties:
        keeps |= pairs.newer_empty & ~pairs.newer_unordered & (pairs.order > 0)
    holes: list[Bools | None] = []
    for column in pairs.newer.columns:
        mask = marker_mask(column, DEBEZIUM_UNAVAILABLE)
        holes.append(None if mask is None or not mask.any() else mask & ~keeps)
    return Decision(~keeps, holes)


def _and(mask: Bools | None, other: Bools) -> Bools | None:
    return None if mask is None else mask & other


def _commit_time(pairs: Pairs) -> Bools:
    return pairs.newer_empty & pairs.newer_unordered


def _against_stored(pairs: Pairs, keeps: Bools) -> Decision:
    if not pairs.ctx.ordering_columns:
        return Decision(pairs.all(True))
    compared = pairs.stored_ordering
    if not pairs.compares_empties:
        compared = compared & ~pairs.newer_empty
    return Decision(~(keeps & compared))


def _null_holes(pairs: Pairs, newer_wins: Bools) -> list[Bools | None]:
    """Nulls of the winner that the loser can fill; meta columns always come from the newer row."""
    holes: list[Bools | None] = []
    for k, name in enumerate(pairs.newer.schema.names):
        there, here = valid(pairs.older.column(k)), valid(pairs.newer.column(k))
        if name in META_COLUMNS:
            holes.append(np.where(newer_wins, ~here & there, here))
        else:
            holes.append(winners_holes(newer_wins, ~there, ~here))
    return holes


def _default_mask(
    column: pa.Array, field: pa.Field, defaults: Mapping[str, object]
) -> Bools | None:
    default = defaults.get(field.name)
    if default is None:
        return ~valid(column) if column.null_count else None
    # Hudi compares a nullable text with its default as objects of two classes: never equal.
    textual = not (pt.is_primitive(column.type) or pt.is_decimal(column.type))
    if textual and (field.nullable or not pt.is_string(column.type)):
        return None
    try:
        scalar = pa.scalar(default, column.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None
    return as_bools(pc.equal(column, scalar), len(column))


def _required(pairs: Pairs, name: str) -> tuple[pa.Array, pa.Array]:
    """A column that every incoming row must have; null is replaced where it does not matter."""
    stored, incoming = column_at(pairs.older, name), column_at(pairs.newer, name)
    if (~valid(incoming) & ~pairs.newer_empty).any():
        raise MergeError(
            f"A row to merge has no value in {name}, which its payload class needs.",
            hint="Rows of this table come from a Debezium source; project all of its columns.",
            context={"column": name},
        )
    return stored, incoming


def _compare_positions(pairs: Pairs) -> Int8s:
    stored, incoming = _required(pairs, MYSQL_SEQUENCE)
    return compare(_position(stored), _position(incoming), pairs.size)


def _position(sequence: pa.Array) -> list[pa.Array]:
    """File number and offset of `<file>.<offset>`, null where there is no sequence."""
    parts = pc.split_pattern(sequence.cast(pa.string()), ".")
    lengths = pc.list_value_length(parts).fill_null(2)
    try:
        if len(lengths) and pc.min(lengths).as_py() < 2:
            raise pa.ArrowInvalid("no dot in the position")
        return [_part(parts, k).cast(pa.int64()) for k in (0, 1)]
    except pa.ArrowInvalid as cause:
        raise MergeError(
            f"A value of {MYSQL_SEQUENCE} is not a binlog position: {cause}.",
            hint="The column holds <binlog file number>.<offset>; correct the source rows.",
            context={"column": MYSQL_SEQUENCE},
        ) from cause


def _part(parts: pa.Array, k: int) -> pa.Array:
    """The k-th part of each list, null for null lists."""
    starts = np.asarray(parts.offsets)[:-1].astype(np.int64) + k
    return parts.values.take(pa.array(starts, mask=~valid(parts)))
