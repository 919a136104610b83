"""Ordering values: Java's order for every type, over whole columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import MergeError
from lakewright.merge.ordering import compare, is_default, order_keys

Key = Callable[[Any], Any]


def _number(value: Any) -> Any:
    return 0 if value is None else value


def _real(value: float | None) -> tuple[int, float, float]:
    if value is None:
        value = 0.0
    if math.isnan(value):
        return (1, 0.0, 0.0)
    return (0, value, math.copysign(1.0, value))


def _text(value: str | bytes | None) -> tuple[int, bytes]:
    if value is None:
        return (0, b"")
    return (1, value.encode() if isinstance(value, str) else value)


def _flag(value: bool | None) -> int:
    return -1 if value is None else int(value)


def _reals(width: int) -> st.SearchStrategy[float]:
    special = st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf])
    return special | st.floats(width=width)  # type: ignore[arg-type]


KINDS: list[tuple[str, pa.DataType, st.SearchStrategy[Any], Key]] = [
    ("int", pa.int32(), st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1), _number),
    ("long", pa.int64(), st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), _number),
    ("unsigned", pa.uint64(), st.integers(0, 3) | st.integers(0, 2**64 - 1), _number),
    ("float", pa.float32(), _reals(32), _real),
    ("double", pa.float64(), _reals(64), _real),
    ("string", pa.string(), st.text(max_size=3), _text),
    ("large string", pa.large_string(), st.text(max_size=3), _text),
    ("bytes", pa.binary(), st.binary(max_size=3), _text),
    ("fixed", pa.binary(2), st.binary(min_size=2, max_size=2), _text),
    ("boolean", pa.bool_(), st.booleans(), _flag),
    (
        "decimal",
        pa.decimal128(9, 2),
        st.decimals(-99999, 99999, places=2, allow_nan=False),
        _number,
    ),
    (
        "wide decimal",
        pa.decimal128(30, 15),
        st.decimals(-(10**12), 10**12, places=15, allow_nan=False),
        _number,
    ),
    (
        "date",
        pa.date32(),
        st.dates(date(1950, 1, 1), date(2050, 1, 1)),
        lambda v: date(1970, 1, 1) if v is None else v,
    ),
]


@pytest.mark.parametrize(("kind", "key"), [k[1::2] for k in KINDS], ids=[k[0] for k in KINDS])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_columns_compare_as_their_values_do(kind: pa.DataType, key: Key, data: Any) -> None:
    values = next(k[2] for k in KINDS if k[1] == kind)
    pairs = data.draw(st.lists(st.tuples(st.none() | values, st.none() | values), max_size=8))
    older, newer = (pa.array([pair[side] for pair in pairs], kind) for side in (0, 1))
    expected = [(key(a) > key(b)) - (key(a) < key(b)) for a, b in pairs]
    assert compare([older], [newer]).tolist() == expected
    both = pa.concat_arrays([older, newer])
    codes = order_keys([both])
    left, right = codes[: len(pairs)], codes[len(pairs) :]
    assert ((left > right).astype(int) - (left < right).astype(int)).tolist() == expected
    sliced = compare([older.slice(1)], [newer.slice(1)])
    assert sliced.tolist() == expected[1:]


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None])), min_size=1, max_size=8
    )
)
def test_several_columns_compare_left_to_right(rows: list[tuple[int, str | None]]) -> None:
    columns = [pa.array([row[0] for row in rows]), pa.array([row[1] for row in rows])]
    key = [(number, _text(text)) for number, text in rows]
    codes = order_keys(columns)
    for i, a in enumerate(key):
        for j, b in enumerate(key):
            assert (codes[i] > codes[j]) == (a > b)
    shifted = [column.take(pa.array(np.roll(np.arange(len(rows)), 1))) for column in columns]
    rolled = [key[i] for i in np.roll(np.arange(len(rows)), 1)]
    expected = [(a > b) - (a < b) for a, b in zip(key, rolled, strict=True)]
    assert compare(columns, shifted).tolist() == expected


def test_numbers_of_different_width_compare_by_value() -> None:
    ints = pa.array([1, 5, None], pa.int32())
    assert compare([ints], [pa.array([2, 5, -1], pa.int64())]).tolist() == [-1, 0, 1]
    assert compare([ints], [pa.array([0.5, 5.0, 0.0])]).tolist() == [1, 0, 0]
    decimals = pa.array([Decimal("1.10"), Decimal("5.01"), None], pa.decimal128(10, 2))
    assert compare([ints], [decimals]).tolist() == [-1, -1, 0]
    finer = pa.array([Decimal("1.1"), Decimal("5.0"), None], pa.decimal128(20, 1))
    assert compare([decimals], [finer]).tolist() == [0, 1, 0]


def test_timestamps_of_different_units_compare_as_moments() -> None:
    millis = pa.array([1, 2], pa.timestamp("ms", "UTC"))
    micros = pa.array([1000, 1999], pa.timestamp("us", "UTC"))
    assert compare([millis], [micros]).tolist() == [0, 1]


def test_a_missing_column_is_the_default_of_the_other_side() -> None:
    missing = pa.nulls(3)
    assert compare([missing], [pa.array([1, 0, -1])]).tolist() == [-1, 0, 1]
    assert compare([missing], [missing]).tolist() == [0, 0, 0]
    assert compare([], [], 2).tolist() == [0, 0]
    assert order_keys([], 2).tolist() == [0, 0]


def test_dictionary_columns_compare_by_their_values() -> None:
    column = pa.array(["b", "a", None]).dictionary_encode()
    assert compare([column], [pa.array(["a", "b", "a"])]).tolist() == [1, -1, -1]


def test_only_null_and_the_int_zero_are_the_default() -> None:
    values = [0, None, 1]
    assert is_default([pa.array(values, pa.int32())], 3).tolist() == [True, True, False]
    assert is_default([pa.array(values, pa.int64())], 3).tolist() == [False, True, False]
    assert is_default([pa.array(["", None, "0"])], 3).tolist() == [False, True, False]
    assert is_default([pa.array(values, pa.int32())] * 2, 3).tolist() == [False] * 3
    assert is_default([pa.nulls(3)], 3).all()
    assert is_default([], 3).all()


def test_types_without_an_order_are_refused() -> None:
    structs = pa.array([{"a": 1}])
    with pytest.raises(MergeError, match="no order"):
        order_keys([structs])
    with pytest.raises(MergeError, match="cannot be compared"):
        compare([pa.array(["a"])], [pa.array([1])])
    with pytest.raises(MergeError, match="of 2 and of 1 columns"):
        compare([pa.array([1]), pa.array([1])], [pa.array([1])])
