"""Gathering rows and laying them over a batch, against the same done with lists."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.merge import pool
from lakewright.merge.overlay import overlay
from lakewright.merge.pool import RowPool

COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": (pa.bool_(), st.booleans()),
    "tiny": (pa.int8(), st.integers(-128, 127)),
    "short": (pa.int16(), st.integers(-9, 9)),
    "int": (pa.int32(), st.integers(-9, 9)),
    "long": (pa.int64(), st.integers(-(2**62), 2**62)),
    "real": (pa.float32(), st.sampled_from([0.5, -1.5])),
    "moment": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(None))),
    "price": (pa.decimal128(20, 2), st.sampled_from([Decimal("1.25"), Decimal("-7.00")])),
    "wide": (pa.decimal256(50, 1), st.sampled_from([Decimal("1.5"), Decimal("-7.0")])),
    "text": (pa.string(), st.text(max_size=4)),
    "hash": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "list": (pa.list_(pa.int32()), st.lists(st.integers(0, 3), max_size=3)),
    "map": (pa.map_(pa.string(), pa.int32()), st.just([("k", 1)])),
    "struct": (pa.struct([("a", pa.string())]), st.fixed_dictionaries({"a": st.text(max_size=2)})),
    "nothing": (pa.null(), st.none()),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
ROWS = st.lists(
    st.fixed_dictionaries({n: st.none() | values for n, (_, values) in COLUMNS.items()}),
    min_size=1,
    max_size=20,
)


def _batch(rows: list[dict[str, Any]], skipped: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, SCHEMA).slice(skipped)


@settings(max_examples=40, deadline=None)
@given(base=ROWS, new=ROWS, data=st.data())
def test_overlay_replaces_and_drops_rows_of_every_type(
    base: list[dict[str, Any]], new: list[dict[str, Any]], data: Any
) -> None:
    skipped = data.draw(st.integers(0, len(base) - 1))
    batch, replacements = _batch(base, skipped), _batch(new, len(new) // 3)
    places = list(range(batch.num_rows))
    positions = data.draw(st.permutations(places))[: replacements.num_rows]
    replacements = replacements.slice(0, len(positions))
    keep = data.draw(
        st.none() | st.lists(st.booleans(), min_size=len(places), max_size=len(places))
    )
    expected = batch.to_pylist()
    for place, row in zip(positions, replacements.to_pylist(), strict=True):
        expected[place] = row
    if keep is not None:
        expected = [row for row, kept in zip(expected, keep, strict=True) if kept]
    mask = None if keep is None else np.array(keep, dtype=bool)
    result = overlay(batch, np.array(positions, dtype=np.int64), replacements, mask)
    result.validate(full=True)
    assert result.schema == SCHEMA
    assert result.to_pylist() == expected


def test_overlay_leaves_columns_alone_that_do_not_change() -> None:
    base = pa.RecordBatch.from_pydict({"key": ["a", "b", "c"], "text": ["x", "y", "z"]})
    new = pa.RecordBatch.from_pydict({"key": ["b"], "text": ["Y"]})
    result = overlay(base, np.array([1]), new)
    assert result.column("key") is not None
    assert result.column("key").buffers()[2].address == base.column("key").buffers()[2].address
    assert result.column("text").to_pylist() == ["x", "Y", "z"]


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(0, 9), max_size=6), joined=st.integers(1, 12), data=st.data())
def test_pool_gives_rows_back_by_number(sizes: list[int], joined: int, data: Any) -> None:
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    held: list[int] = []

    def hold(rows: pa.RecordBatch) -> pa.RecordBatch:
        held.append(rows.num_rows)
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "_JOINED_ROWS", joined)
        rows = RowPool(schema, hold)
        for size in sizes:
            first = rows.num_rows
            numbers = list(range(first, first + size))
            batch = pa.RecordBatch.from_pydict(
                {"n": numbers, "t": [str(n) for n in numbers]}, schema
            )
            assert rows.append(batch) == first
        total = sum(sizes)
        wanted = data.draw(st.lists(st.integers(-1, total - 1) if total else st.just(-1)))
        result = rows.gather(np.array(wanted, dtype=np.int64))
        expected = [None if n < 0 else n for n in wanted]
        assert result.column("n").to_pylist() == expected
        narrow = rows.gather(np.array(wanted, dtype=np.int64), ["t"])
        assert narrow.column("t").to_pylist() == [n if n is None else str(n) for n in expected]
        assert sum(held) <= total
        assert all(size for size in held)
