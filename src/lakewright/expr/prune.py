"""Pruning: whether a file (or row group, or partition) can hold a row that passes a filter.

Statistics are bounds, never values, and may be missing, wide, or from a JVM. What cannot be decided
is kept; a prune is always right. In particular:

- no range, or a missing bound: kept; a range of only nulls holds nothing to compare;
- statistics do not know of NaN, so a float column always passes what NaN passes (`>`, `>=`, `!=`,
  `NOT IN`), and a range with NaN as a bound is no range;
- JVM writers order text by UTF-16: bounds or literals with characters where this differs from the
  order of UTF-8 are not used; they order bytes as signed: bounds and literals with bytes from 128
  on are not used, nor any upper bound for `>` and `>=`, above which such bytes may hide;
- a nested field may be null because its parent is, which statistics may not count: IS NULL keeps.

Filters should be bound, so that literals have the type of the bounds; values that do not compare
keep. `can_match` asks about one range per column, `keep_mask` about many files at once; both give
the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.expr.coerce import is_bytes, is_text, work_type
from lakewright.expr.evaluate import COMPARE, scalar
from lakewright.expr.logic import negation_normal, require_bound
from lakewright.expr.tree import (
    And,
    Column,
    Comparison,
    Constant,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Or,
)

_NOT_PLAIN = "\ud800"
"""Characters from here on are ordered differently by UTF-16."""


_ODD_TEXT = r"[\x{E000}-\x{10FFFF}]"
_ODD_BYTES = r"[\x80-\xff]"
_ABOVE = (Op.GT, Op.GE)
_NAN_PASSES = (*_ABOVE, Op.NE)
_LIST_TESTS_MAX = 256
"""Longer lists are tested by their least and greatest value only."""


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """What is known of one column in one file; None is unknown. Counts are of all rows."""

    min: Any = None
    max: Any = None
    null_count: int | None = None
    value_count: int | None = None

    @property
    def only_nulls(self) -> bool:
        """Whether it is known that there is nothing but nulls."""
        return self.null_count is not None and self.null_count == self.value_count


Ranges = Callable[[str], ColumnRange | None]
"""The range of a column by its name (dotted for nested fields); None if there is none."""


def can_match(expr: Expr, stats: Ranges) -> bool:
    """Whether some row may pass `expr`; False only if none can."""
    return _possible(negation_normal(expr), stats)


def _possible(expr: Expr, stats: Ranges) -> bool:
    match expr:
        case And(operands):
            return all(_possible(o, stats) for o in operands)
        case Or(operands):
            return any(_possible(o, stats) for o in operands)
        case Constant(value):
            return value is True
        case IsNull(column):
            known = stats(column.name)
            return len(column.path) > 1 or known is None or known.null_count != 0
        case Comparison(op, column, literal):
            return _with_values(stats, column, lambda known: _compares(op, known, literal))
        case In(column, values):
            return _with_values(
                stats, column, lambda known: any(_compares(Op.EQ, known, v) for v in values)
            )
        case Not(In(column, values) as listed):
            return not listed.has_null and _with_values(
                stats, column, lambda known: all(_compares(Op.NE, known, v) for v in values)
            )
        case Like(column, pattern):
            return _with_values(stats, column, lambda known: _likes(known, pattern))
        case Not(IsNull(column)) | Not(Like(column, _)):
            return _with_values(stats, column, lambda _: True)
    return True


def _with_values(stats: Ranges, column: Column, test: Callable[[ColumnRange], bool]) -> bool:
    """Ask `test` about a range that holds more than nulls."""
    known = stats(column.name)
    if known is None:
        return test(ColumnRange())
    return not known.only_nulls and test(known)


def _compares(op: Op, known: ColumnRange, literal: Literal) -> bool:
    """Whether a value between the bounds may pass; unknown bounds pass."""
    value = literal.value
    if value is None:
        return False
    low, high = _usable(known)
    if op in _NAN_PASSES and any(isinstance(each, float) for each in (low, high, value)):
        return True
    if op in _ABOVE and isinstance(value, bytes):
        return True
    try:
        match op:
            case Op.EQ:
                return _at_most(low, value) and _at_most(value, high)
            case Op.LT:
                return low is None or not _plain(value) or bool(low < value)
            case Op.LE:
                return _at_most(low, value)
            case Op.GT:
                return high is None or not _plain(value) or bool(high > value)
            case Op.GE:
                return _at_most(value, high)
        return low is None or high is None or not (low == value == high)
    except TypeError:
        return True


def _at_most(lower: Any, upper: Any) -> bool:
    """`lower <= upper`, or True if it cannot be told."""
    if lower is None or upper is None or not _plain(lower) or not _plain(upper):
        return True
    return bool(lower <= upper)


def _usable(known: ColumnRange) -> tuple[Any, Any]:
    """The bounds that can be trusted."""
    low, high = known.min, known.max
    if low != low or high != high:  # NaN
        return None, None
    return (low if _plain(low) else None), (high if _plain(high) else None)


def _plain(value: Any) -> bool:
    """Whether every order of text and bytes agrees on this value."""
    if isinstance(value, str):
        return value.isascii() or max(value) < _NOT_PLAIN
    if isinstance(value, bytes):
        return value.isascii()
    return True


def like_prefix(pattern: str) -> tuple[str, bool]:
    """The text before the first wildcard, and whether a wildcard follows."""
    prefix: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character in "%_":
            return "".join(prefix), True
        prefix.append(next(characters) if character == "\\" else character)
    return "".join(prefix), False


def _likes(known: ColumnRange, pattern: str) -> bool:
    prefix, open_ended = like_prefix(pattern)
    if not open_ended:
        return _compares(Op.EQ, known, Literal(prefix))
    low, high = _usable(known)
    if not isinstance(low, str | None) or not isinstance(high, str | None) or not _plain(prefix):
        return True
    return (high is None or high >= prefix) and (low is None or low[: len(prefix)] <= prefix)


@dataclass(frozen=True, slots=True)
class RangeColumns:
    """What is known of one column in many files, aligned; null is unknown."""

    min: pa.Array | None = None
    max: pa.Array | None = None
    null_count: pa.Array | None = None
    value_count: pa.Array | None = None


Mask = npt.NDArray[np.bool_]


def keep_mask(expr: Expr, stats: Mapping[str, RangeColumns], n: int) -> Mask:
    """For each of `n` files whether some row may pass the bound filter `expr`."""
    require_bound(expr)
    return _kept(negation_normal(expr), stats, n)


def _kept(expr: Expr, stats: Mapping[str, RangeColumns], n: int) -> Mask:
    match expr:
        case And(operands):
            return cast("Mask", np.logical_and.reduce([_kept(o, stats, n) for o in operands]))
        case Or(operands):
            return cast("Mask", np.logical_or.reduce([_kept(o, stats, n) for o in operands]))
        case Constant(value):
            return np.full(n, value is True)
        case IsNull(column):
            return _maybe_null(stats.get(column.name, RangeColumns()), column, n)
        case Not(In() as listed) if listed.has_null:
            return np.zeros(n, dtype=bool)
        case Not(In(column) | Like(column) | IsNull(column)):
            known = stats.get(column.name, RangeColumns())
            return _Bounds(known, column, n).test(expr) & _more_than_nulls(known, n)
        case Comparison() | In() | Like():
            known = stats.get(expr.column.name, RangeColumns())
            return _Bounds(known, expr.column, n).test(expr) & _more_than_nulls(known, n)
    return np.ones(n, dtype=bool)


def _true_or_unknown(answer: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(answer, True).to_numpy(zero_copy_only=False), dtype=bool)


def _maybe_null(known: RangeColumns, column: Column, n: int) -> Mask:
    if len(column.path) > 1 or known.null_count is None:
        return np.ones(n, dtype=bool)
    return _true_or_unknown(pc.not_equal(known.null_count, 0))


def _more_than_nulls(known: RangeColumns, n: int) -> Mask:
    if known.null_count is None or known.value_count is None:
        return np.ones(n, dtype=bool)
    return _true_or_unknown(pc.not_equal(known.null_count, known.value_count))


class _Bounds:
    """The bounds of one column that can be trusted, in many files."""

    def __init__(self, known: RangeColumns, column: Column, n: int) -> None:
        self._n = n
        self._kind = column.type
        self._low = _trusted(known.min, column.type)
        self._high = _trusted(known.max, column.type)
        self._floating = bool(pa.types.is_floating(column.type))
        if self._floating:
            for bound in (self._low, self._high):
                self._drop_where(None if bound is None else pc.is_nan(bound))

    def _drop_where(self, bad: pa.Array | None) -> None:
        if bad is not None:
            bad = pc.fill_null(bad, False)
            self._low = None if self._low is None else pc.if_else(bad, None, self._low)
            self._high = None if self._high is None else pc.if_else(bad, None, self._high)

    def test(self, expr: Expr) -> Mask:
        """Which files may hold a value that passes the leaf `expr`."""
        match expr:
            case Comparison(op, _, literal):
                return self._compares(op, literal)
            case In(_, values):
                return self._in([literal for literal in values if literal.value is not None])
            case Not(In(_, values)) if 0 < len(values) <= _LIST_TESTS_MAX:
                tests = [self._compares(Op.NE, literal) for literal in values]
                return cast("Mask", np.logical_and.reduce(tests))
            case Like(_, pattern):
                return self._likes(pattern)
        return self._all()

    def _all(self) -> Mask:
        return np.ones(self._n, dtype=bool)

    def _side(self, op: Op, bound: pa.Array | None, value: pa.Scalar) -> Mask:
        """`bound op value` per file; True where it cannot be told."""
        if bound is None:
            return self._all()
        try:
            return _true_or_unknown(COMPARE[op](bound, value))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return self._all()

    def _compares(self, op: Op, literal: Literal) -> Mask:
        if not _plain(literal.value) or (self._floating and op in _NAN_PASSES):
            return self._all()
        if op in _ABOVE and is_bytes(self._kind):
            return self._all()
        value = scalar(literal)
        match op:
            case Op.EQ:
                return self._side(Op.LE, self._low, value) & self._side(Op.GE, self._high, value)
            case Op.NE:
                return self._side(op, self._low, value) | self._side(op, self._high, value)
            case Op.LT | Op.LE:
                return self._side(op, self._low, value)
        return self._side(op, self._high, value)

    def _in(self, values: list[Literal]) -> Mask:
        if not values:
            return np.zeros(self._n, dtype=bool)
        if len(values) <= _LIST_TESTS_MAX:
            tests = [self._compares(Op.EQ, literal) for literal in values]
            return cast("Mask", np.logical_or.reduce(tests))
        if not all(_plain(literal.value) for literal in values):
            return self._all()
        ordered = sorted(values, key=lambda literal: cast("Any", literal.value))
        begins = self._side(Op.LE, self._low, scalar(ordered[-1]))
        return begins & self._side(Op.GE, self._high, scalar(ordered[0]))

    def _likes(self, pattern: str) -> Mask:
        prefix, open_ended = like_prefix(pattern)
        if not open_ended:
            return self._compares(Op.EQ, Literal(prefix, type=self._kind))
        if not _plain(prefix) or not prefix:
            return self._all()
        value = pa.scalar(prefix, work_type(self._kind))
        starts = self._low
        if starts is not None:
            starts = pc.utf8_slice_codeunits(starts, 0, len(prefix))
        return self._side(Op.LE, starts, value) & self._side(Op.GE, self._high, value)


def _trusted(bound: pa.Array | None, kind: pa.DataType) -> pa.Array | None:
    """Bounds in a type and with values whose order is that of the column's values."""
    if bound is None or not _same_order(bound.type, kind):
        return None
    odd = _ODD_TEXT if is_text(kind) else _ODD_BYTES if is_bytes(kind) else None
    if odd is None:
        return bound.cast(work_type(bound.type))
    bound = bound.cast(work_type(kind))
    return pc.if_else(pc.match_substring_regex(bound, odd), None, bound)


def _same_order(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether bounds of type `found`, perhaps older than a promotion, order values of `kind`.

    Not where a promotion changes values: a float may become another double by way of its text.
    """
    types = pa.types
    if types.is_timestamp(found) and types.is_timestamp(kind):
        return (found.tz is None) == (kind.tz is None)
    families = (types.is_integer, types.is_decimal, types.is_date, types.is_time, is_text, is_bytes)
    return bool(found == kind or any(family(found) and family(kind) for family in families))
