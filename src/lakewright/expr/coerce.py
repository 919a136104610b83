"""Literals in a column's own type: what a comparison means when the literal does not fit exactly.

Whole numbers, decimals, dates, times and timestamps are points on a grid. A literal between two
points (5.5 for an integer, microseconds for a column of milliseconds) or beyond the last one is
replaced by the comparison with a grid point that selects exactly the same values, or by "none" or
"all that are not null". So a bound filter compares equal types only, exactly, and without casting a
column. Doubles are compared as doubles; a float column is widened and the literal is not narrowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from lakewright.expr.moments import (
    micros_of,
    micros_of_day,
    moment_of,
    parse_date,
    parse_time,
    parse_timestamp,
    time_of_day,
)
from lakewright.expr.tree import Column, Comparison, Expr, In, Literal, Not, Op, Value

_EPOCH_DAY = date(1970, 1, 1)
_DAY_MICROS = 86_400_000_000
_UNIT_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_NS_MICROS_MAX = (2**63 - 1) // 1000
_FIRST_MICROS = micros_of(datetime.min)
_LAST_MICROS = micros_of(datetime.max)


class MismatchError(Exception):
    """A literal that cannot be compared with a column; `bind` says so with the position."""

    def __init__(self, literal: Literal, fitting: str) -> None:
        super().__init__(fitting)
        self.literal = literal
        self.fitting = fitting


class _Unfit(Exception):  # noqa: N818 - never leaves this module
    """What would fit instead."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The values of a type as whole numbers of steps, and the literal's place among them."""

    first: int
    last: int
    place: Fraction | float
    """Exact; an infinity is beyond every step."""

    def point(self) -> int | None:
        """The step that equals the literal, if there is one."""
        if isinstance(self.place, float) or self.place.denominator != 1:
            return None
        steps = int(self.place)
        return steps if self.first <= steps <= self.last else None

    def compared(self, op: Op) -> tuple[Op, int] | bool:
        """A comparison with a step that selects the same values; or none (False) or all (True)."""
        exact = self.point()
        if exact is not None:
            return op, exact
        if op in (Op.EQ, Op.NE):
            return op is Op.NE
        below = op in (Op.LT, Op.LE)
        if self.place > self.last:
            return below
        if self.place < self.first:
            return not below
        return (Op.LE if below else Op.GT), math.floor(self.place)


def compared(op: Op, column: Column, literal: Literal) -> Expr:
    """`column op literal` for a column whose type is set; raises `MismatchError`."""
    kind = column.type
    try:
        if not _on_grid(kind):
            return Comparison(op, column, _plain_literal(kind, literal))
        answer = _grid(kind, literal.value).compared(op)
    except _Unfit as unfit:
        raise MismatchError(literal, str(unfit)) from None
    if isinstance(answer, bool):
        return Not(In(column, ())) if answer else In(column, ())
    op, steps = answer
    return Comparison(op, column, Literal(_from_steps(kind, steps), literal.position, kind))


def listed(column: Column, values: tuple[Literal, ...]) -> Expr:
    """`column IN (values)` for a column whose type is set; impossible values are left out."""
    kept: dict[Value, Literal] = {}
    for literal in values:
        try:
            fitted = _list_item(column.type, literal)
        except _Unfit as unfit:
            raise MismatchError(literal, str(unfit)) from None
        if fitted is not None:
            kept.setdefault(fitted.value, fitted)
    return In(column, tuple(kept.values()))


def _list_item(kind: pa.DataType, literal: Literal) -> Literal | None:
    if literal.value is None:
        return replace(literal, type=kind)
    if not _on_grid(kind):
        return _plain_literal(kind, literal)
    steps = _grid(kind, literal.value).point()
    if steps is None:
        return None
    return Literal(_from_steps(kind, steps), literal.position, kind)


def _plain_literal(kind: pa.DataType, literal: Literal) -> Literal:
    """A literal for types that are no grid; doubles stay doubles."""
    value = _plain(kind, literal.value)
    kind = pa.float64() if isinstance(value, float) else kind
    return Literal(value, literal.position, kind)


def _on_grid(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_decimal(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_time(kind)
    )


def _plain(kind: pa.DataType, value: Value) -> Value:
    """The value for types that are no grid."""
    types = pa.types
    if types.is_boolean(kind):
        if isinstance(value, bool):
            return value
        raise _Unfit("TRUE or FALSE")
    if types.is_floating(kind):
        return _double(value)
    if is_text(kind):
        if isinstance(value, str):
            return value
        raise _Unfit("text in single quotes")
    if is_bytes(kind):
        if isinstance(value, bytes | str):
            return value.encode() if isinstance(value, str) else value
        raise _Unfit("bytes, X'00ff'")
    raise _Unfit("IS NULL or IS NOT NULL only")


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are bytes."""
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _double(value: Value) -> float:
    if not _is_number(value):
        raise _Unfit("a number")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise _Unfit("a number in the range of doubles") from None


def _grid(kind: pa.DataType, value: Value) -> Grid:
    """Where `value` lies among the values of `kind`."""
    types = pa.types
    if types.is_integer(kind):
        bits = kind.bit_width
        signed = types.is_signed_integer(kind)
        first, last = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return Grid(first, last, _exact(value, 1))
    if types.is_decimal(kind):
        last = 10**kind.precision - 1
        return Grid(-last, last, _exact(value, 10**kind.scale))
    if types.is_date(kind):
        micros = Fraction(_timestamp_micros(kind, value), _DAY_MICROS)
        return Grid(-(10**9), 10**9, micros)
    unit = _UNIT_MICROS[kind.unit]
    if types.is_time(kind):
        return Grid(0, _DAY_MICROS // unit - 1, Fraction(_time_micros(value), unit))
    last = _NS_MICROS_MAX if kind.unit == "ns" else _LAST_MICROS // unit
    first = -_NS_MICROS_MAX if kind.unit == "ns" else _FIRST_MICROS // unit
    return Grid(first, last, Fraction(_timestamp_micros(kind, value), unit))


def _exact(value: Value, scale: int) -> Fraction | float:
    if not _is_number(value):
        raise _Unfit("a number")
    if isinstance(value, float) and math.isinf(value):
        return value
    return Fraction(value) * scale  # type: ignore[arg-type]


def _timestamp_micros(kind: pa.DataType, value: Value) -> int:
    """A date or timestamp for a column of dates or timestamps, in microseconds since 1970."""
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    if isinstance(value, str):
        value = parse_date(value) or parse_timestamp(value)
    if isinstance(value, datetime):
        if value.tzinfo is not None and not zoned:
            raise _Unfit("a date or timestamp without time zone")
        return micros_of(value)
    if isinstance(value, date):
        return (value - _EPOCH_DAY).days * _DAY_MICROS
    raise _Unfit("DATE '2024-01-31' or TIMESTAMP '2024-01-31 23:59:59'")


def _time_micros(value: Value) -> int:
    if isinstance(value, str):
        value = parse_time(value)
    if isinstance(value, time):
        return micros_of_day(value)
    raise _Unfit("TIME '23:59:59'")


def _from_steps(kind: pa.DataType, steps: int) -> Any:
    """The value that lies `steps` steps from zero."""
    types = pa.types
    if types.is_integer(kind):
        return steps
    if types.is_decimal(kind):
        digits = tuple(int(digit) for digit in str(abs(steps)))
        return Decimal((int(steps < 0), digits, -kind.scale))
    if types.is_date(kind):
        return _EPOCH_DAY + timedelta(days=steps)
    micros = steps * _UNIT_MICROS[kind.unit]
    if types.is_time(kind):
        return time_of_day(micros)
    return moment_of(micros, zoned=kind.tz is not None)
