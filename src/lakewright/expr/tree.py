"""The syntax tree of filters: one frozen value, whatever wrote it and whatever runs it.

A filter is an `Expr`; its leaves compare one column with literals. `BETWEEN`, `NOT IN`, `IS NOT
NULL` and `NOT LIKE` are written with the nodes below, and nested ANDs and ORs are flat, so that one
meaning has one tree. Nulls follow SQL: a comparison with null is unknown, NOT unknown is unknown,
and a row passes only if the filter is true. NaN follows Spark: equal to itself, greater than all
other numbers. `In` without values is false for every value and unknown for null, which is how a
bound filter says "no value of this type can match".

Positions (where the text said it, counted from 1) and types (set by `bind`) are carried along but
are no part of a node's identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from lakewright.errors import FilterError

_LONG = 2**63
_DIGITS_MAX = 80
"""A little more than the widest decimal type."""

Value = bool | int | float | Decimal | str | bytes | date | datetime | time | None


class Op(StrEnum):
    """Comparison operators."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def negated(self) -> Op:
        """The operator that is true exactly where this one is false."""
        return _NEGATED[self]

    @property
    def mirrored(self) -> Op:
        """The operator with its sides exchanged."""
        return _MIRRORED[self]


_NEGATED = {
    Op.EQ: Op.NE,
    Op.NE: Op.EQ,
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.GT: Op.LE,
    Op.LE: Op.GT,
}
_MIRRORED = {
    Op.EQ: Op.EQ,
    Op.NE: Op.NE,
    Op.LT: Op.GT,
    Op.GT: Op.LT,
    Op.LE: Op.GE,
    Op.GE: Op.LE,
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field inside struct columns: `("a", "b")` is `a.b`."""

    path: tuple[str, ...]
    position: int | None = field(default=None, compare=False, repr=False)
    type: pa.DataType | None = field(default=None, compare=False, repr=False)
    dictionary: bool = field(default=False, compare=False, repr=False)
    """Whether the values are dictionary-encoded; `type` is what they encode."""

    @property
    def name(self) -> str:
        """The path with dots, as statistics name it."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Literal:
    """A plain Python value."""

    value: Value
    position: int | None = field(default=None, compare=False, repr=False)
    type: pa.DataType | None = field(default=None, compare=False, repr=False)


class Expr:
    """A filter. Combine filters with `&`, `|` and `~`."""

    __slots__ = ()

    def __and__(self, other: Expr) -> Expr:
        return conjunction(self, other)

    def __or__(self, other: Expr) -> Expr:
        return disjunction(self, other)

    def __invert__(self) -> Expr:
        return Not(self)

    def __bool__(self) -> bool:
        raise FilterError(
            "A filter has no truth value before it meets a row.",
            hint="Combine filters with & | ~ and parentheses instead of and, or, not.",
        )


@dataclass(frozen=True, slots=True)
class Constant(Expr):
    """TRUE, FALSE, or NULL for unknown."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Comparison(Expr):
    """`column op literal`."""

    op: Op
    column: Column
    literal: Literal


@dataclass(frozen=True, slots=True)
class In(Expr):
    """`column IN (values)`."""

    column: Column
    values: tuple[Literal, ...]
    array: Any = field(default=None, compare=False, repr=False)
    """Set by `bind`: the values that are not null, in the type in which Arrow looks them up."""

    @property
    def has_null(self) -> bool:
        """Whether the list holds NULL, which makes every miss unknown."""
        return any(literal.value is None for literal in self.values)


@dataclass(frozen=True, slots=True)
class Like(Expr):
    """`column LIKE 'pattern'` with `%` for any text, `_` for one character, `\\` before either."""

    column: Column
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull(Expr):
    """`column IS NULL`."""

    column: Column


@dataclass(frozen=True, slots=True)
class And(Expr):
    """All of them; made by `conjunction`."""

    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or(Expr):
    """Any of them; made by `disjunction`."""

    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Not(Expr):
    """The opposite."""

    operand: Expr


def conjunction(*operands: Expr) -> Expr:
    """All of `operands`, flat; TRUE if there are none."""
    flat = _flat(And, operands)
    if len(flat) == 1:
        return flat[0]
    return And(flat) if flat else Constant(True)


def disjunction(*operands: Expr) -> Expr:
    """Any of `operands`, flat; FALSE if there are none."""
    flat = _flat(Or, operands)
    if len(flat) == 1:
        return flat[0]
    return Or(flat) if flat else Constant(False)


def _flat(kind: type[And] | type[Or], operands: tuple[Expr, ...]) -> tuple[Expr, ...]:
    flat: list[Expr] = []
    for operand in operands:
        if not isinstance(operand, Expr):
            raise FilterError(
                f"A filter cannot be combined with {type(operand).__name__}.",
                hint="Compare a column first: col('a') == 5.",
            )
        flat.extend(operand.operands if isinstance(operand, kind) else [operand])
    return tuple(flat)


def literal_of(value: Any, position: int | None = None) -> Literal:
    """`value` as a literal; `FilterError` if filters have no such values."""
    if type(value) is int and -_LONG <= value < _LONG:  # long lists are mostly of these
        return Literal(value, position)
    if isinstance(value, Literal):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, bytearray | memoryview):
        value = bytes(value)
    if isinstance(value, datetime):
        value = _plain_datetime(value)
    reason = _unusable(value)
    if reason:
        raise FilterError(
            f"{reason} cannot be compared with.",
            hint="Use numbers, text, bytes, booleans, dates, times or None.",
        )
    return Literal(value, position)


def _unusable(value: Any) -> str:
    """Why filters have no such value; empty if they have."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, Decimal) and (
        not value.is_finite() or abs(value.adjusted()) > _DIGITS_MAX
    ):
        return "A decimal without end"
    if isinstance(value, int) and abs(value) >= 10**_DIGITS_MAX:
        return "A number of this size"
    if isinstance(value, str) and not _encodable(value):
        return "Text that is not valid Unicode"
    if isinstance(value, time) and value.tzinfo is not None:
        return "A time of day with a time zone"
    if value is None or isinstance(value, bool | int | float | Decimal | str | bytes | date | time):
        return ""
    return f"A value of type {type(value).__name__}"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain_datetime(value: datetime) -> datetime:
    """In UTC if it has a zone; without the nanoseconds that subclasses may add."""
    if getattr(value, "nanosecond", 0):
        raise FilterError(
            "Timestamps in filters have microseconds at most.",
            hint="Round the value to microseconds.",
        )
    try:
        moment = value if value.tzinfo is None else value.astimezone(UTC)
        return datetime.combine(moment.date(), moment.timetz())
    except OverflowError:
        raise FilterError(
            "A timestamp in a filter is outside of the years 1 to 9999 in UTC.",
            hint="Use a moment inside of them.",
        ) from None


def check_pattern(pattern: str, position: int | None = None) -> str:
    """`pattern` if its escapes are whole: a backslash stands before `%`, `_` or itself."""
    rest = pattern.replace("\\\\", "").replace("\\%", "").replace("\\_", "")
    if "\\" in rest:
        raise FilterError(
            f"In the pattern {pattern!r} a backslash stands before an ordinary character.",
            hint="Write \\\\ for a backslash; it escapes only %, _ and itself.",
            context={} if position is None else {"position": position},
        )
    return pattern
