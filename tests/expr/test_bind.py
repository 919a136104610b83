"""Binding: columns found, literals fitted, errors that help."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from lakewright.errors import FilterError
from lakewright.expr import bind, col, parse, to_sql_text
from tests.expr.worlds import SCHEMA

FITTED = [
    ("tiny < 5.5", "tiny <= 5"),
    ("tiny >= 5.5", "tiny > 5"),
    ("tiny = 5.5", "tiny IN ()"),
    ("tiny != 5.5", "tiny NOT IN ()"),
    ("tiny < -5.5", "tiny <= -6"),
    ("tiny > 126.5", "tiny > 126"),
    ("tiny > 127.5", "tiny IN ()"),
    ("tiny > 128", "tiny IN ()"),
    ("tiny <= 128", "tiny NOT IN ()"),
    ("tiny > -1e999", "tiny NOT IN ()"),
    ("tiny IN (5, 5.0, 5.5, 200, 1e1, NULL)", "tiny IN (5, 10, NULL)"),
    ("big = 9223372036854775808", "big IN ()"),
    ("money < 1.005", "money <= 1.00"),
    ("money = 5", "money = 5.00"),
    ("money >= 1000", "money IN ()"),
    ("double = 5", "double = 5.0e0"),
    ("single = 0.1", "single = 0.1e0"),
    ("day > TIMESTAMP '2024-01-31 10:00'", "day > DATE '2024-01-31'"),
    ("day = TIMESTAMP '2024-01-31 10:00'", "day IN ()"),
    ("day = '2024-1-31'", "day = DATE '2024-01-31'"),
    ("at = '2024-01-31'", "at = TIMESTAMP '2024-01-31 00:00:00Z'"),
    ("at = TIMESTAMP '2024-01-31 10:00'", "at = TIMESTAMP '2024-01-31 10:00:00Z'"),
    ("local < TIMESTAMP '2024-01-31 10:00:00.0005'", "local <= TIMESTAMP '2024-01-31 10:00:00'"),
    ("clock > '10:00:00.5'", "clock > TIME '10:00:00'"),
    ("raw = 'ab'", "raw = X'6162'"),
    ("tiny = NULL", "NULL"),
    ("code = 'x'", "code = 'x'"),
]


@pytest.mark.parametrize(("written", "bound"), FITTED)
def test_literals_are_fitted_to_the_column_without_changing_the_meaning(
    written: str, bound: str
) -> None:
    assert to_sql_text(bind(parse(written), SCHEMA)) == bound


MISFITS = [
    ("tiny = '5'", "Write a number."),
    ("text = 5", "text in single quotes"),
    ("flag = 1", "TRUE or FALSE"),
    ("day = 'soon'", "DATE '2024-01-31'"),
    ("local = TIMESTAMP '2024-01-31 10:00Z'", "without time zone"),
    ("raw = 5", "X'00ff'"),
    ("tiny IN (1, 'x')", "a number"),
    ("tiny LIKE 'x%'", "= or BETWEEN"),
    ("inner = 5", "IS NULL"),
    ("tiny = TRUE", "a number"),
    ("double = '5'", "a number"),
    ("clock = 5", "TIME"),
]


@pytest.mark.parametrize(("written", "hint"), MISFITS)
def test_a_literal_that_cannot_fit_is_refused_with_what_would(written: str, hint: str) -> None:
    with pytest.raises(FilterError) as caught:
        bind(parse(written), SCHEMA)
    assert hint in caught.value.hint
    assert isinstance(caught.value.context["position"], int)


def test_an_unknown_column_is_refused_with_the_nearest_names_and_its_position() -> None:
    with pytest.raises(FilterError, match=r"no column Txet \(character 14") as caught:
        bind(parse("tiny = 1 AND Txet = 'x'"), SCHEMA)
    assert "text" in caught.value.hint
    with pytest.raises(FilterError, match=r"no column inner\.m") as caught:
        bind(parse("inner.m = 1"), SCHEMA)
    assert caught.value.hint == "There are: n, t."
    with pytest.raises(FilterError, match="has no fields"):
        bind(parse("tiny.x = 1"), SCHEMA)


def test_columns_with_dots_in_their_name_need_quotes() -> None:
    schema = pa.schema([("a.b", pa.int32())])
    assert bind(parse("`a.b` = 1"), schema) == (col("a.b") == 1)
    with pytest.raises(FilterError):
        bind(parse("a.b = 1"), schema)


def test_binding_twice_to_the_same_schema_changes_nothing() -> None:
    for written, _ in FITTED:
        once = bind(parse(written), SCHEMA)
        assert bind(once, SCHEMA) == once


def test_timestamps_beyond_nanoseconds_are_beyond_the_grid() -> None:
    schema = pa.schema([("t", pa.timestamp("ns"))])
    assert to_sql_text(bind(parse("t < TIMESTAMP '9999-01-01 00:00'"), schema)) == "t NOT IN ()"
    assert to_sql_text(bind(parse("t > TIMESTAMP '2024-01-01 00:00:00.000001'"), schema)) == (
        "t > TIMESTAMP '2024-01-01 00:00:00.000001'"
    )


def test_a_huge_number_is_no_double() -> None:
    schema = pa.schema([("d", pa.float64())])
    assert to_sql_text(bind(col("d") < Decimal(10) ** 79, schema)) == "d < 1e+79"
