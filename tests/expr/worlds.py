"""Rows, filters and a plain row-by-row meaning of filters, for property tests."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lakewright.expr import Expr, col, conjunction, disjunction
from lakewright.expr.tree import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    literal_of,
)

SCHEMA = pa.schema(
    [
        ("tiny", pa.int8()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("fixed", pa.binary(2)),
        ("money", pa.decimal128(5, 2)),
        ("wide", pa.decimal256(50, 3)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("ms")),
        ("clock", pa.time32("s")),
        ("flag", pa.bool_()),
        ("code", pa.dictionary(pa.int32(), pa.string())),
        ("inner", pa.struct([("n", pa.int32()), ("t", pa.string())])),
    ]
)

_EPOCH = datetime(1970, 1, 1)
_MOMENTS = st.integers(-5, 5).map(lambda n: _EPOCH + timedelta(microseconds=n * 250))
_TEXTS = st.text(alphabet="ab%_\\é\ue000😀\n'", max_size=3)
_FLOATS = st.sampled_from([-1.5, -0.0, 0.0, 0.1, 5.0, 5.5, math.inf, -math.inf, math.nan, 1e300])
_SINGLES = st.sampled_from([-1.5, -0.0, 0.0, 5.0, 5.5, math.inf, -math.inf, math.nan])

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tiny": st.sampled_from([-128, -1, 0, 5, 6, 127]),
    "big": st.sampled_from([-(2**63), -1, 0, 5, 6, 2**53 + 1, 2**63 - 1]),
    "single": _SINGLES,
    "double": _FLOATS,
    "text": _TEXTS,
    "raw": st.binary(max_size=2),
    "fixed": st.binary(min_size=2, max_size=2),
    "money": st.sampled_from(["-999.99", "-0.01", "0.00", "5.00", "5.50", "999.99"]).map(Decimal),
    "wide": st.sampled_from(["-5.500", "0.000", "5.000", "5.500", "1" * 40 + ".125"]).map(Decimal),
    "day": st.integers(-2, 2).map(lambda n: date(1970, 1, 1) + timedelta(days=n)),
    "at": _MOMENTS.map(lambda m: m.replace(tzinfo=UTC)),
    "local": st.integers(-2, 2).map(lambda n: _EPOCH + timedelta(milliseconds=n)),
    "clock": st.integers(0, 3).map(lambda n: time(0, 0, n)),
    "flag": st.booleans(),
    "code": _TEXTS,
}
_INNER = {"n": st.sampled_from([-1, 0, 5]), "t": _TEXTS}

_NUMBERS = st.one_of(
    st.sampled_from([-129, -128, -1, 0, 5, 6, 127, 128, 2**53 + 1, 2**63 - 1, 2**63, -(2**70)]),
    st.sampled_from(["5.5", "5.005", "0.0", "-999.995", "1000", "99999999999.5"]).map(Decimal),
    st.sampled_from([5.0, 5.5, 0.1, -0.0, 1e300, -1e300, math.inf, -math.inf]),
)
_MOMENT_LITERALS = st.one_of(
    _MOMENTS,
    st.integers(-1, 1).map(lambda n: date(1970, 1, 1) + timedelta(days=n)),
    st.sampled_from(["1970-01-01", "1970-01-01 00:00:00.0005", "1969-12-31T23:59:59.999"]),
)
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("tiny", "big", "single", "double", "money", "wide"), _NUMBERS),
    **dict.fromkeys(("text", "code"), _TEXTS),
    **dict.fromkeys(("day", "local"), _MOMENT_LITERALS),
    "at": st.one_of(_MOMENT_LITERALS, _MOMENTS.map(lambda m: m.replace(tzinfo=UTC))),
    "raw": st.one_of(st.binary(max_size=2), _TEXTS),
    "fixed": st.binary(max_size=3),
    "clock": st.sampled_from([time(0, 0, 1), time(0, 0, 1, 500_000), "00:00:02"]),
    "flag": st.booleans(),
}
_PATHS: dict[tuple[str, ...], st.SearchStrategy[Any]] = {
    **{(name,): values for name, values in LITERALS.items()},
    ("inner", "n"): _NUMBERS,
    ("inner", "t"): _TEXTS,
}
_TEXT_PATHS = [("text",), ("code",), ("inner", "t")]
_PATTERNS = st.lists(
    st.sampled_from(["a", "b", "é", "😀", "\n", "'", "%", "_", "\\%", "\\_", "\\\\"]), max_size=4
).map("".join)


def rows(max_size: int = 8) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows of `SCHEMA`."""
    inner = st.one_of(
        st.none(), st.fixed_dictionaries({k: st.one_of(st.none(), v) for k, v in _INNER.items()})
    )
    row = st.fixed_dictionaries(
        {**{k: st.one_of(st.none(), v) for k, v in VALUES.items()}, "inner": inner}
    )
    return st.lists(row, max_size=max_size)


def to_batch(data: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as a batch of `SCHEMA`."""
    arrays = []
    for field in SCHEMA:
        values = [row[field.name] for row in data]
        if pa.types.is_dictionary(field.type):
            encoded = pa.array(values, field.type.value_type).dictionary_encode()
            arrays.append(encoded.cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@st.composite
def _leaf(draw: st.DrawFn) -> Expr:
    path = draw(st.sampled_from(sorted(_PATHS)))
    values = _PATHS[path]
    column = col(*path)
    kind = draw(st.sampled_from(["compare", "compare", "in", "null", "like", "between"]))
    if kind == "compare":
        op = draw(st.sampled_from(list(Op)))
        literal = literal_of(draw(st.one_of(values, values, values, st.none())))
        return Comparison(op, column._column, literal)
    if kind == "in":
        return column.isin(draw(st.lists(st.one_of(values, values, st.none()), max_size=3)))
    if kind == "between":
        return column.between(draw(values), draw(values))
    if kind == "like":
        return col(*draw(st.sampled_from(_TEXT_PATHS))).like(draw(_PATTERNS))
    return column.is_null()


def filters() -> st.SearchStrategy[Expr]:
    """Filters over `SCHEMA`, not bound."""
    constants = st.sampled_from([Constant(True), Constant(False), Constant(None)])
    return st.recursive(
        st.one_of(_leaf(), _leaf(), _leaf(), constants),
        lambda inner: st.one_of(
            inner.map(Not),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: conjunction(*parts)),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: disjunction(*parts)),
        ),
        max_leaves=5,
    )


def meaning(expr: Expr, row: Mapping[str, Any]) -> bool | None:
    """What the filter says about one row, by the book."""
    match expr:
        case Constant(value):
            return value
        case Not(operand):
            inner = meaning(operand, row)
            return None if inner is None else not inner
        case And(operands):
            answers = [meaning(o, row) for o in operands]
            return False if False in answers else None if None in answers else True
        case Or(operands):
            answers = [meaning(o, row) for o in operands]
            return True if True in answers else None if None in answers else False
        case IsNull(column):
            return _value(row, column.path) is None
        case Comparison(op, column, literal):
            return _compare(op, column.path, _value(row, column.path), literal.value)
        case In(column, values):
            value = _value(row, column.path)
            if value is None:
                return None
            answers = [_compare(Op.EQ, column.path, value, v.value) for v in values]
            return True if True in answers else None if None in answers else False
        case Like(column, pattern):
            value = _value(row, column.path)
            return None if value is None else bool(_regex(pattern).fullmatch(value))
    raise AssertionError(expr)


def _value(row: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = row
    for name in path:
        value = None if value is None else value[name]
    return value


def _compare(op: Op, path: tuple[str, ...], value: Any, literal: Any) -> bool | None:
    if value is None or literal is None:
        return None
    left = _rank(path[0], value)
    right = _rank(path[0], literal)
    return {
        Op.EQ: left == right,
        Op.NE: left != right,
        Op.LT: left < right,
        Op.LE: left <= right,
        Op.GT: left > right,
        Op.GE: left >= right,
    }[op]


def _rank(column: str, value: Any) -> Any:
    """A value that Python orders as SQL orders the column's values."""
    if column in ("single", "double"):
        number = float(value)
        return (1, 0.0) if math.isnan(number) else (0, number)
    if isinstance(value, bool | bytes):
        return value
    if isinstance(value, float) and math.isinf(value):
        return value
    if isinstance(value, int | float | Decimal):
        return Fraction(value)
    if column in ("day", "at", "local"):
        return _micros(value)
    if isinstance(value, str) and column == "clock":
        return time.fromisoformat(value)
    return value.encode() if isinstance(value, str) else value


def _micros(value: Any) -> timedelta:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return value.replace(tzinfo=None) - _EPOCH


def _regex(pattern: str) -> re.Pattern[str]:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return re.compile("".join(wild.get(p) or re.escape(p[-1]) for p in parts), re.DOTALL)
