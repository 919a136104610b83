"""The grammar: texts, errors, and the way back."""

from __future__ import annotations

import doctest
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakewright.expr.builder
import lakewright.expr.parser
from lakewright.errors import FilterError, LakewrightError
from lakewright.expr import Expr, bind, col, columns, lit, parse, to_sql_text
from lakewright.expr.tree import Comparison, Constant, Not
from tests.expr.worlds import SCHEMA, filters

SAME = [
    ("a = 5", col("a") == 5),
    ("5 < a", lit(5) < col("a")),
    ("a <> -5", col("a") != -5),
    ("a == 1.50", col("a") == Decimal("1.5")),
    ("a >= 1e3", col("a") >= 1000.0),
    ("a IN (1, 'x', NULL, TRUE)", col("a").isin([1, "x", None, True])),
    ("a not in (1)", ~col("a").isin([1])),
    ("a BETWEEN 1 AND 2 and b", col("a").between(1, 2) & (col("b") == True)),  # noqa: E712
    ("a IS NOT NULL OR b.c is null", col("a").is_not_null() | col("b", "c").is_null()),
    ("name LIKE 'it''s%'", col("name").like("it's%")),
    (r"name LIKE '50\%%'", col("name").startswith("50%")),
    ('`odd name`."with.dot" = 1', col("odd name", "with.dot") == 1),
    ("date > DATE '2024-01-31'", col("date") > date(2024, 1, 31)),
    ("t = TIME '1:02:03.5'", col("t") == time(1, 2, 3, 500_000)),
    ("t = TIMESTAMP '2024-01-31 10:00'", col("t") == datetime(2024, 1, 31, 10)),
    (
        "t = TIMESTAMP '2024-01-31T10:00:00.25+02:00'",
        col("t") == datetime(2024, 1, 31, 8, 0, 0, 250_000, tzinfo=UTC),
    ),
    ("x = X'00FF'", col("x") == b"\x00\xff"),
    ("NOT (a = 1 OR b = 2) AND c = 3", ~((col("a") == 1) | (col("b") == 2)) & (col("c") == 3)),
    ("TRUE", Constant(True)),
    ("((a = 1))", col("a") == 1),
]


@pytest.mark.parametrize(("text", "expected"), SAME, ids=[text for text, _ in SAME])
def test_text_and_python_build_the_same_tree(text: str, expected: Expr) -> None:
    assert parse(text) == expected
    assert parse(to_sql_text(expected)) == expected


WRONG = [
    ("", 1),
    ("a =", 4),
    ("a = b", 5),
    ('a = "b"', 5),
    ("1 = 1", 5),
    ("5", 2),
    ("a = 1 b = 2", 7),
    ("(a = 1", 7),
    ("a = 'x", 5),
    ("a = 5x", 5),
    ("a @ 5", 3),
    ("a IN 5", 6),
    ("a IN (5", 8),
    ("a NOT = 5", 7),
    ("a IS 5", 6),
    ("a LIKE b", 8),
    (r"a LIKE 'x\y'", 8),
    ("a BETWEEN 1 OR 2", 13),
    ("a = DATE '2024-02-30'", 10),
    ("a = TIMESTAMP '2024-01-01 25:00'", 15),
    ("a = TIMESTAMP '2024-01-01 00:00:00.1234567'", 15),
    ("a = TIMESTAMP '2024-01-01 00:00+99:99'", 15),
    ("a = X'0'", 6),
    ("a = --5", 6),
    ("a. = 5", 4),
    ("a = " + "9" * 81, 5),
    ("(" * 101 + "a" + ")" * 101, 101),
    ("NOT " * 101 + "a", 401),
]


@pytest.mark.parametrize(("text", "position"), WRONG)
def test_errors_name_the_position_and_what_to_write(text: str, position: int) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert caught.value.context["position"] == position
    assert caught.value.hint


@settings(max_examples=150, deadline=None)
@given(filters())
def test_every_filter_survives_the_way_through_text(expr: Expr) -> None:
    again = parse(to_sql_text(expr))
    assert again == expr
    assert repr(again) == repr(expr)  # 1, 1.0 and TRUE are equal in Python but not in filters
    bound = bind(expr, SCHEMA)
    assert parse(to_sql_text(bound)) == bound


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab15.eE'`\"()<>=!,+-xX \n\\%éNOTIULKAD_DATE", max_size=30))
def test_any_text_parses_or_raises_a_filter_error(text: str) -> None:
    try:
        expr = parse(text)
    except FilterError:
        return
    assert parse(to_sql_text(expr)) == expr


def test_columns_are_the_top_level_names() -> None:
    assert columns(parse("a.b = 1 AND NOT (c IN (1) OR d LIKE 'x') OR a.c IS NULL")) == {
        "a",
        "c",
        "d",
    }
    assert columns(Constant(True)) == frozenset()


def test_a_filter_has_no_truth_value_of_its_own() -> None:
    with pytest.raises(FilterError, match="truth value"):
        bool(col("a") == 5)
    with pytest.raises(FilterError):
        _ = 1 < col("a") < 5


def test_unusable_values_are_refused_when_they_are_written() -> None:
    for value in (float("nan"), Decimal("Infinity"), Decimal("sNaN"), object(), "\ud800", 10**90):
        with pytest.raises(LakewrightError):
            _ = col("a") == value
    with pytest.raises(FilterError):
        _ = col("a") == col("b")
    with pytest.raises(FilterError):
        col("a").isin("abc")


def test_numpy_and_arrow_scalars_are_plain_values() -> None:
    import numpy as np
    import pyarrow as pa

    assert (col("a") == np.int64(5)) == (col("a") == 5)
    assert (col("a") == pa.scalar("x")) == (col("a") == "x")
    literal = (col("a") == np.datetime64("2024-01-01T00:00:00")).literal  # type: ignore[attr-defined]
    assert literal.value == datetime(2024, 1, 1)


def test_a_large_filter_is_parsed_quickly_and_flat() -> None:
    expr = parse(" OR ".join(f"a = {i}" for i in range(20_000)))
    assert len(expr.operands) == 20_000  # type: ignore[attr-defined]
    assert isinstance(expr.operands[0], Comparison)  # type: ignore[attr-defined]
    assert isinstance(~expr, Not)


@pytest.mark.parametrize("module", [lakewright.expr.parser, lakewright.expr.builder])
def test_examples_in_the_documentation_are_true(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]
