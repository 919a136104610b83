"""Filters on batches mean what they say, row by row."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import FilterError
from lakewright.expr import Expr, bind, col, conjuncts_over, evaluate, parse, to_arrow
from lakewright.expr.logic import negation_normal, split_conjuncts
from tests.expr.worlds import SCHEMA, filters, meaning, rows, to_batch


@settings(max_examples=100, deadline=None)
@given(filters(), rows())
def test_every_row_gets_the_answer_of_the_row_wise_meaning(
    expr: Expr, data: list[dict[str, Any]]
) -> None:
    answers = evaluate(bind(expr, SCHEMA), to_batch(data))
    assert answers.type == pa.bool_()
    assert answers.to_pylist() == [meaning(expr, row) for row in data]


@settings(max_examples=60, deadline=None)
@given(filters(), rows())
def test_arrow_expressions_select_exactly_the_true_rows(
    expr: Expr, data: list[dict[str, Any]]
) -> None:
    batch = to_batch(data)
    bound = bind(expr, SCHEMA)
    numbered = pa.table(batch).append_column("row", pa.array(range(len(data)), pa.int64()))
    selected = ds.dataset(numbered).to_table(filter=to_arrow(bound), columns=["row"])
    expected = [i for i, row in enumerate(data) if meaning(expr, row) is True]
    assert selected["row"].to_pylist() == expected


@settings(max_examples=60, deadline=None)
@given(filters(), rows())
def test_negations_can_be_pushed_to_the_leaves(expr: Expr, data: list[dict[str, Any]]) -> None:
    normal = negation_normal(expr)
    assert [meaning(normal, row) for row in data] == [meaning(expr, row) for row in data]


@settings(max_examples=60, deadline=None)
@given(filters(), rows(), st.sets(st.sampled_from(SCHEMA.names), max_size=10))
def test_conjuncts_over_some_columns_never_lose_a_row(
    expr: Expr, data: list[dict[str, Any]], names: set[str]
) -> None:
    part = conjuncts_over(expr, names)
    passing = [row for row in data if meaning(expr, row) is True]
    if part is not None:
        assert all(meaning(part, row) is True for row in passing)
    for row in data:
        every = all(meaning(c, row) is True for c in split_conjuncts(expr))
        assert every == (meaning(expr, row) is True)


def test_conjuncts_over_finds_the_part_below_a_negated_or() -> None:
    expr = parse("NOT (key = 'a' OR x > 5) AND p IN (1, 2)")
    assert conjuncts_over(expr, {"key", "p"}) == parse("key != 'a' AND p IN (1, 2)")
    assert conjuncts_over(expr, {"other"}) is None


def test_nan_is_equal_to_nothing_written_and_greater_than_every_number() -> None:
    batch = pa.record_batch({"x": [math.nan, math.inf, None, 1.0]})
    assert evaluate(parse("x > 1e300"), batch).to_pylist() == [True, True, None, False]
    assert evaluate(parse("x <= 1e999"), batch).to_pylist() == [False, True, None, True]
    assert evaluate(parse("NOT x < 5"), batch).to_pylist() == [True, True, None, False]


def test_a_batch_of_another_type_than_bound_is_refused() -> None:
    bound = bind(parse("x = 5"), pa.schema([("x", pa.int32())]))
    with pytest.raises(FilterError, match="bound to int32"):
        evaluate(bound, pa.record_batch({"x": ["5"]}))
    with pytest.raises(FilterError, match="no single column"):
        evaluate(bound, pa.record_batch({"y": [5]}))


def test_unusual_arrow_types_are_filtered_too() -> None:
    kinds = [pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.large_string())]
    for kind in kinds:
        batch = pa.record_batch({"x": pa.array(["ab", None, "b"]).cast(kind)})
        assert evaluate(parse("x LIKE 'a%' OR x IN ('c')"), batch).to_pylist() == [
            True,
            None,
            False,
        ]
    for kind in [pa.decimal32(5, 2), pa.decimal64(7, 2)]:
        batch = pa.record_batch({"x": pa.array([Decimal(1), None, Decimal(2)], kind)})
        assert evaluate(parse("x IN (1, 3) OR x > 1.5"), batch).to_pylist() == [True, None, True]
    nulls = pa.record_batch({"x": pa.nulls(2)})
    assert evaluate(parse("x = 5 OR x IN ('a') OR x LIKE 'a'"), nulls).to_pylist() == [None, None]
    assert evaluate(parse("x IS NULL"), nulls).to_pylist() == [True, True]


def test_a_long_list_costs_one_pass() -> None:
    batch = pa.record_batch({"x": pa.array(range(1000))})
    answers = evaluate(col("x").isin(range(500, 100_000)), batch)
    assert answers.true_count == 500
