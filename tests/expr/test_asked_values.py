"""Which values a filter asks for in a column."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakewright.expr import bind, parse
from lakewright.expr.logic import asked_values

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int32()), ("s", pa.struct({"x": pa.int64()}))])


@pytest.mark.parametrize(
    ("text", "column", "values"),
    [
        ("id = 'a'", "id", ["a"]),
        ("id = 'a' and n > 3", "id", ["a"]),
        ("n > 3 and id in ('a', 'b')", "id", ["a", "b"]),
        ("s.x = 5", "s.x", [5]),
        ("n in (1, null)", "n", [1]),
        ("n = 1 and n = 2", "n", [1]),
        ("n = 5000000000", "n", []),
        ("id = 'a' or n = 1", "id", None),
        ("not (id = 'a')", "id", None),
        ("id > 'a'", "id", None),
        ("n = 1", "id", None),
    ],
)
def test_values_are_those_that_a_passing_row_must_have_one_of(
    text: str, column: str, values: list[object] | None
) -> None:
    found = asked_values(bind(parse(text), SCHEMA), column)
    assert (found if found is None else found.to_pylist()) == values
