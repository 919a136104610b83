"""Pruning never loses a row, and prunes what it should."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import FilterError
from lakewright.expr import (
    ColumnRange,
    Expr,
    RangeColumns,
    bind,
    can_match,
    col,
    keep_mask,
    parse,
    to_sql_text,
)
from lakewright.expr.logic import columns_of
from tests.expr.worlds import SCHEMA, filters, meaning, rows

File = dict[str, ColumnRange]


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


def _signed(data: bytes) -> list[int]:
    return [byte - 256 if byte > 127 else byte for byte in data]


ORDERS: dict[str, list[Callable[[Any], Any]]] = {
    "text": [str.encode, _utf16],
    "code": [str.encode, _utf16],
    "inner.t": [str.encode, _utf16],
    "raw": [bytes, _signed],
    "fixed": [bytes, _signed],
}
COLUMNS: dict[str, pa.DataType] = {
    **{f.name: f.type for f in SCHEMA if f.name != "inner"},
    "code": pa.string(),
    "inner.n": pa.int32(),
    "inner.t": pa.string(),
}


def _values(data: list[dict[str, Any]], column: str) -> list[Any]:
    if "." not in column:
        return [row[column] for row in data]
    outer, inner = column.split(".")
    return [None if row[outer] is None else row[outer][inner] for row in data]


@st.composite
def _statistics(draw: st.DrawFn, expr: Expr, data: list[dict[str, Any]]) -> File:
    """True statistics of the rows, as different writers would make them, some left out."""
    known: File = {}
    for column in sorted({c.name for c in columns_of(expr)}):
        kept = draw(st.sampled_from(["all", "all", "all", "some", "none"]))
        if kept == "none":
            continue
        values = _values(data, column)
        present = [v for v in values if v is not None and v == v]
        order = draw(st.sampled_from(ORDERS.get(column, [lambda v: v])))
        low = min(present, key=order) if present else None
        high = max(present, key=order) if present else None
        if any(v is not None and v != v for v in values) and draw(st.booleans()):
            high = math.nan
        nulls: int | None = values.count(None)
        if "." in column:  # a writer that does not count fields of missing parents
            nulls = sum(row["inner"] is not None for row in data) - len(present)
        count: int | None = len(data)
        if kept == "some":
            low, high, nulls, count = (
                value if draw(st.booleans()) else None for value in (low, high, nulls, count)
            )
        known[column] = ColumnRange(low, high, nulls, count)
    return known


@settings(max_examples=60, deadline=None)
@given(filters(), rows(max_size=3), st.data())
def test_a_file_with_a_matching_row_is_always_kept(
    expr: Expr, data: list[dict[str, Any]], draw: st.DataObject
) -> None:
    known = draw.draw(_statistics(expr, data))
    if any(meaning(expr, row) is True for row in data):
        assert can_match(expr, known.get)
        assert can_match(bind(expr, SCHEMA), known.get)
        assert keep_mask(bind(expr, SCHEMA), _columns([known]), 1).tolist() == [True]


@settings(max_examples=60, deadline=None)
@given(filters(), st.lists(rows(max_size=2), max_size=4), st.data())
def test_many_files_at_once_get_the_same_answers_as_each_alone(
    expr: Expr, files: list[list[dict[str, Any]]], draw: st.DataObject
) -> None:
    known = [draw.draw(_statistics(expr, data)) for data in files]
    bound = bind(expr, SCHEMA)
    mask = keep_mask(bound, _columns(known), len(files))
    assert mask.dtype == np.bool_
    assert mask.tolist() == [can_match(bound, file.get) for file in known], to_sql_text(bound)


def _columns(files: list[File]) -> dict[str, RangeColumns]:
    empty = ColumnRange()
    columns = {}
    for name, kind in COLUMNS.items():
        found = [file.get(name, empty) for file in files]
        if any(name in file for file in files):
            columns[name] = RangeColumns(
                pa.array([f.min for f in found], kind),
                pa.array([f.max for f in found], kind),
                pa.array([f.null_count for f in found], pa.int64()),
                pa.array([f.value_count for f in found], pa.int64()),
            )
    return columns


CORNERS: dict[str, list[Any]] = {
    "text": [None, "", "a", "é", "\ue000", "\U0001f600", "a\ue000", "a\U0001f600"],
    "raw": [None, b"", b"\x01", b"\x80", b"\xff", b"\x01\x80"],
    "double": [None, math.nan, -math.inf, -0.0, 0.0, 1.5, math.inf],
    "single": [None, math.nan, -1.5, 0.0, 5.5],
    "money": [None, Decimal("-1.00"), Decimal("0.00"), Decimal("5.50")],
    "tiny": [None, -128, 0, 5, 127],
    "flag": [None, True, False],
}
EXTRA_LITERALS: dict[str, list[Any]] = {
    "money": [Decimal("5.505"), 5, 2000],
    "tiny": [Decimal("5.5"), 128, -129.5],
    "double": [Decimal("0.1"), 1],
    "single": [0.1],
}


def _corner_filters(name: str) -> list[Expr]:
    literals = [v for v in CORNERS[name] if v is not None and v == v]
    literals += EXTRA_LITERALS.get(name, [])
    column = col(name)
    leaves: list[Expr] = [column.is_null()]
    for value in literals:
        leaves += [column == value, column < value, column <= value]
        leaves += [column.isin([value, literals[0]]), column.isin([value, None])]
        if isinstance(value, str):
            leaves += [column.startswith(value), column.like("_" + value), column.like(value)]
    return [filter_ for leaf in leaves for filter_ in (leaf, ~leaf)]


@pytest.mark.parametrize("name", CORNERS)
def test_every_pair_of_corner_values_is_kept_by_every_filter_one_of_them_passes(name: str) -> None:
    files: list[tuple[list[Any], ColumnRange]] = []
    for order in ORDERS.get(name, [lambda v: v]):
        for values in itertools.combinations_with_replacement(CORNERS[name], 2):
            present = [v for v in values if v is not None and v == v]
            low = min(present, key=order) if present else None
            high = max(present, key=order) if present else None
            known = ColumnRange(low, high, values.count(None), 2)
            files.append((list(values), known))
            if any(v is not None and v != v for v in values):
                files.append((list(values), ColumnRange(low, math.nan, values.count(None), 2)))
                files.append((list(values), ColumnRange(math.nan, high, values.count(None), 2)))
    ranges = _columns([{name: known} for _, known in files])
    for written in _corner_filters(name):
        bound = bind(written, SCHEMA)
        kept = [can_match(bound, {name: known}.get) for _, known in files]
        assert keep_mask(bound, ranges, len(files)).tolist() == kept, to_sql_text(written)
        for (values, known), keep in zip(files, kept, strict=True):
            passes = any(meaning(written, {name: value}) is True for value in values)
            assert keep or not passes, (to_sql_text(written), values, known)


SCHEMA_AB = pa.schema([("a", pa.int64()), ("s", pa.string()), ("d", pa.float64())])
PRUNED = [
    ("a = 9", ColumnRange(10, 20, 0, 5)),
    ("a = 21", ColumnRange(10, 20, 0, 5)),
    ("a < 10", ColumnRange(10, 20, 0, 5)),
    ("a <= 9.5", ColumnRange(10, 20, 0, 5)),
    ("a > 20", ColumnRange(10, 20, 0, 5)),
    ("a >= 21", ColumnRange(10, 20, 0, 5)),
    ("a != 10", ColumnRange(10, 10, 1, 5)),
    ("a IN (1, 30)", ColumnRange(10, 20, 0, 5)),
    ("a NOT IN (1, 10)", ColumnRange(10, 10, 0, 5)),
    ("a IS NULL", ColumnRange(10, 20, 0, 5)),
    ("a IS NOT NULL", ColumnRange(None, None, 5, 5)),
    ("a = 15", ColumnRange(None, None, 5, 5)),
    ("NOT (a > 5 OR a IS NULL)", ColumnRange(10, 20, 0, 5)),
    ("a > 15 AND a < 9", ColumnRange(10, 20, 0, 5)),
    ("a = 15 AND a = NULL", ColumnRange(10, 20, 0, 5)),
    ("a = 10.5", ColumnRange(10, 20, 0, 5)),
]


@pytest.mark.parametrize(("text", "known"), PRUNED)
def test_ranges_that_exclude_the_filter_are_pruned(text: str, known: ColumnRange) -> None:
    bound = bind(parse(text), SCHEMA_AB)
    assert not can_match(bound, {"a": known}.get)
    columns = {
        "a": RangeColumns(
            pa.array([known.min], pa.int64()),
            pa.array([known.max], pa.int64()),
            pa.array([known.null_count]),
            pa.array([known.value_count]),
        )
    }
    assert keep_mask(bound, columns, 1).tolist() == [False]


def test_text_prefixes_prune_by_the_prefix() -> None:
    bound = bind(parse("s LIKE 'ab%'"), SCHEMA_AB)
    for low, high, kept in [
        ("aa", "abz", True),
        ("abc", "abd", True),
        ("ac", "b", False),
        ("a", "aa", False),
        ("a", "ab", True),
        ("x\U0001f600", "z", True),
    ]:
        assert can_match(bound, {"s": ColumnRange(low, high, 0, 1)}.get) is kept
    assert not can_match(bind(parse("s LIKE 'ab'"), SCHEMA_AB), {"s": ColumnRange("b", "c")}.get)


def test_doubles_that_may_hide_nan_are_kept_where_nan_would_pass() -> None:
    known = {"d": ColumnRange(1.0, 2.0, 0, 5)}
    for text, kept in [
        ("d > 3", True),
        ("d >= 3", True),
        ("NOT d < 3", True),
        ("d != 1", True),
        ("d NOT IN (1)", True),
        ("d < 1", False),
        ("d = 3", False),
        ("NOT d > 0", False),
    ]:
        assert can_match(bind(parse(text), SCHEMA_AB), known.get) is kept, text
    nan = {"d": ColumnRange(1.0, math.nan, 0, 5)}
    assert can_match(bind(parse("d < 0"), SCHEMA_AB), nan.get)


def test_bounds_of_another_type_prune_only_where_the_order_is_the_same() -> None:
    def kept(text: str, kind: pa.DataType, low: pa.Array, high: pa.Array) -> bool:
        bound = bind(parse(text), pa.schema([("c", kind)]))
        return bool(keep_mask(bound, {"c": RangeColumns(low, high)}, 1)[0])

    int32 = pa.array([5], pa.int32())
    assert not kept("c > 5", pa.int64(), int32, int32)
    single = pa.array([0.1], pa.float32())
    assert kept("c = 0.1", pa.float64(), single, single)  # may have become the double 0.1
    assert kept("c = '6'", pa.string(), int32, int32)
    narrow, wide = pa.array([Decimal("1.5")], pa.decimal128(5, 1)), pa.decimal128(20, 4)
    assert not kept("c > 1.5", wide, narrow, narrow)
    assert kept("c >= 1.5", wide, narrow, narrow)
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    millis = pa.array([moment], pa.timestamp("ms", "UTC"))
    assert not kept("c > '2024-01-01'", pa.timestamp("us", "UTC"), millis, millis)
    assert kept("c > '2024-01-01'", pa.timestamp("us"), millis, millis)


def test_a_long_list_prunes_by_its_ends() -> None:
    bound = bind(col("a").isin(range(1000, 2000)), SCHEMA_AB)
    columns = {"a": RangeColumns(pa.array([0, 0, 1500, 2000]), pa.array([999, 1000, 1500, 3000]))}
    assert keep_mask(bound, columns, 4).tolist() == [False, True, True, False]
    assert keep_mask(~bound, columns, 4).tolist() == [True] * 4


def test_files_without_statistics_are_kept_and_unbound_filters_refused() -> None:
    assert keep_mask(bind(parse("a = 1"), SCHEMA_AB), {}, 3).tolist() == [True] * 3
    assert keep_mask(bind(parse("a = 1"), SCHEMA_AB), {"a": RangeColumns()}, 2).all()
    assert keep_mask(bind(parse("FALSE"), SCHEMA_AB), {}, 2).tolist() == [False, False]
    with pytest.raises(FilterError):
        keep_mask(parse("a = 1"), {}, 1)
