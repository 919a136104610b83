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
from functools import lru_cache
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


Place = int | Fraction | float
"""Where a literal lies on a grid, in steps and exact; an infinity is beyond every step."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The values of a type, as whole numbers of steps from `first` to `last`."""

    first: int
    last: int

    def point(self, place: Place) -> int | None:
        """The step that is exactly there, if there is one."""
        if isinstance(place, float) or place.denominator != 1:
            return None
        return int(place) if self.first <= place <= self.last else None

    def compared(self, op: Op, place: Place) -> tuple[Op, int] | bool:
        """A comparison with a step that selects the same values; or none (False) or all (True)."""
        exact = self.point(place)
        if exact is not None:
            return op, exact
        if op in (Op.EQ, Op.NE):
            return op is Op.NE
        below = op in (Op.LT, Op.LE)
        if place > self.last:
            return below
        if place < self.first:
            return not below
        return (Op.LE if below else Op.GT), math.floor(place)


def compared(op: Op, column: Column, literal: Literal) -> Expr:
    """`column op literal` for a column whose type is set; raises `MismatchError`."""
    kind = column.type
    try:
        grid = _grid(kind)
        if grid is None:
            return Comparison(op, column, _plain_literal(kind, literal))
        answer = grid.compared(op, _place(kind, literal.value))
    except _Unfit as unfit:
        raise MismatchError(literal, str(unfit)) from None
    if isinstance(answer, bool):
        none = in_list(column, ())
        return Not(none) if answer else none
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
    return in_list(column, tuple(kept.values()))


def in_list(column: Column, values: tuple[Literal, ...]) -> In:
    """A bound list with its values as an Arrow array, in which zero has both signs."""
    found: list[Any] = [literal.value for literal in values if literal.value is not None]
    kind = work_type(column.type)
    if pa.types.is_floating(kind):
        kind = pa.float64()
        found += [0.0, -0.0] if 0.0 in found else []
    return In(column, values, pa.array(found, kind))


def _list_item(kind: pa.DataType, literal: Literal) -> Literal | None:
    if literal.value is None:
        return replace(literal, type=kind)
    grid = _grid(kind)
    if grid is None:
        return _plain_literal(kind, literal)
    steps = grid.point(_place(kind, literal.value))
    if steps is None:
        return None
    return Literal(_from_steps(kind, steps), literal.position, kind)


def _plain_literal(kind: pa.DataType, literal: Literal) -> Literal:
    """A literal for types that are no grid; doubles stay doubles."""
    value = _plain(kind, literal.value)
    kind = pa.float64() if isinstance(value, float) else kind
    return Literal(value, literal.position, kind)


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


def work_type(kind: pa.DataType) -> pa.DataType:
    """The type in which Arrow has every comparison that filters need."""
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_float16(kind):
        return pa.float32()
    return kind


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _double(value: Value) -> float:
    if not _is_number(value):
        raise _Unfit("a number")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise _Unfit("a number in the range of doubles") from None


@lru_cache(maxsize=256)
def _grid(kind: pa.DataType) -> Grid | None:
    """The grid of a type; None if it has none."""
    types = pa.types
    if types.is_signed_integer(kind):
        return Grid(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    if types.is_unsigned_integer(kind):
        return Grid(0, 2**kind.bit_width - 1)
    if types.is_decimal(kind):
        last = 10**kind.precision - 1
        return Grid(-last, last)
    if types.is_date(kind):
        return Grid((date.min - _EPOCH_DAY).days, (date.max - _EPOCH_DAY).days)
    if types.is_time(kind):
        return Grid(0, _DAY_MICROS // _UNIT_MICROS[kind.unit] - 1)
    if types.is_timestamp(kind):
        unit = _UNIT_MICROS[kind.unit]
        if kind.unit == "ns":
            return Grid(-_NS_MICROS_MAX, _NS_MICROS_MAX)
        return Grid(_FIRST_MICROS // unit, _LAST_MICROS // unit)
    return None


def _place(kind: pa.DataType, value: Value) -> Place:
    """Where `value` lies on the grid of `kind`."""
    types = pa.types
    if types.is_integer(kind):
        return _exact(value, 1)
    if types.is_decimal(kind):
        return _exact(value, 10**kind.scale)
    if types.is_date(kind):
        return Fraction(_timestamp_micros(kind, value), _DAY_MICROS)
    if types.is_time(kind):
        return Fraction(_time_micros(value), _UNIT_MICROS[kind.unit])
    return Fraction(_timestamp_micros(kind, value), _UNIT_MICROS[kind.unit])


def _exact(value: Value, scale: int) -> Place:
    if isinstance(value, int) and not isinstance(value, bool):
        return value * scale
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
