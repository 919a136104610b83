"""Comparing two tables by key gives exactly the differences that a dictionary would."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.metadata.verification import Difference, DifferenceKind, compared, enclosing

SIDES = st.dictionaries(
    st.tuples(st.sampled_from(["", "p", "q/r"]), st.sampled_from(["a", "b", "a\0b"])),
    st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from(["x", "y"])),
    max_size=6,
)
SCHEMA = pa.schema(
    [("place", pa.string()), ("name", pa.string()), ("n", pa.int64()), ("t", pa.string())]
)


def table(side: dict[tuple[str, str], tuple[Any, Any]]) -> pa.Table:
    rows = [(*key, *value) for key, value in side.items()]
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA
    )


@settings(max_examples=50)
@given(SIDES, SIDES)
def test_differences_are_those_of_dictionaries(
    expected: dict[tuple[str, str], tuple[Any, Any]], found: dict[tuple[str, str], tuple[Any, Any]]
) -> None:
    told = list(compared("i", table(expected), table(found), key=("place", "name"), label="{}:{}"))
    kinds: dict[str, DifferenceKind] = {}
    for key in expected.keys() | found.keys():
        if expected.get(key) == found.get(key) and key in expected and key in found:
            continue
        kind = DifferenceKind.DIFFERENT
        if key not in found:
            kind = DifferenceKind.MISSING
        elif key not in expected:
            kind = DifferenceKind.UNEXPECTED
        kinds[":".join(key)] = kind
    assert {d.key: d.kind for d in told} == kinds and len(told) == len(kinds)
    for each in told:
        if each.kind is DifferenceKind.DIFFERENT:
            assert each.expected is not None and each.found is not None
            assert all(each.expected[n] != each.found[n] for n in each.expected)


def statistics(**values: Any) -> pa.Table:
    row = {"partition": "p", "min": 3, "max": 7, "value_count": 10, "null_count": 2, "mute": False}
    return pa.Table.from_pylist([row | values])


def enclosed(found: pa.Table, **expected: Any) -> list[Difference]:
    wanted = statistics(**expected).drop_columns("mute")
    return list(enclosing("i", wanted, found, key=("partition",), label="{}", mute="mute"))


def test_statistics_that_are_wide_enclose() -> None:
    assert enclosed(statistics()) == []
    assert enclosed(statistics(min=0, max=9, value_count=20, null_count=4)) == []
    assert enclosed(statistics(min=None, max=None, mute=True)) == []
    assert enclosed(statistics(), min=None, max=None, value_count=2, null_count=2) == []


def test_statistics_that_would_hide_a_row_do_not_enclose() -> None:
    for narrow in ({"min": 4}, {"max": 6}, {"min": None, "max": None}, {"null_count": 0}):
        (told,) = enclosed(statistics(**narrow))
        assert told.kind is DifferenceKind.DIFFERENT
        assert told.found is not None and set(told.found) == set(narrow)
    (only_nulls,) = enclosed(statistics(null_count=10))
    assert only_nulls.found == {"null_count": 10}
