"""Sort modes of bulk inserts: every row once, in order, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.engine.file_options import SortMode
from lakewright.engine.sorting import Arrangement, arrangement, sorted_batches
from lakewright.engine.write_context import PARTITION_PATH, RECORD_KEY
from lakewright.errors import OptionError

SCHEMA = pa.schema(
    [
        pa.field(RECORD_KEY, pa.string(), nullable=False),
        pa.field(PARTITION_PATH, pa.string(), nullable=False),
        ("n", pa.float64()),
        ("s", pa.struct([("deep", pa.struct([("x", pa.int64())])), ("y", pa.string())])),
        ("tags", pa.list_(pa.string())),
    ]
)
KEY = (PARTITION_PATH, RECORD_KEY)


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def shuffled(count: int, partitions: int = 5) -> list[dict[str, Any]]:
    """Rows in a scrambled but fixed order; some values are null, some repeat."""
    rows = []
    for i in range(count):
        j = (i * 7919) % count
        inner = None if j % 11 == 0 else {"deep": {"x": j % 13}, "y": f"y{j % 3}"}
        number = [None, math.nan, float(j % 17)][0 if j % 19 == 0 else 1 if j % 23 == 0 else 2]
        key, path = f"k{j:06d}", f"p{j % partitions}"
        rows.append({RECORD_KEY: key, PARTITION_PATH: path, "n": number, "s": inner})
    return rows


def order(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (2,)
    return (1,) if isinstance(value, float) and math.isnan(value) else (0, value)


def run(rows: list[dict[str, Any]], arranged: Arrangement, **more: Any) -> list[dict[str, Any]]:
    batches = [batch(rows[i : i + 100]) for i in range(0, len(rows), 100)]
    made = list(sorted_batches(batches, SCHEMA, arranged, **{"memory_bytes": 1 << 20} | more))
    return [row for b in made for row in b.to_pylist()]


@pytest.mark.parametrize("memory", [6_000, 60_000, 1 << 30])
def test_a_global_sort_is_global_whatever_fits_into_memory(memory: int, tmp_path: Path) -> None:
    rows = shuffled(3000)
    arranged = arrangement(SortMode.GLOBAL_SORT)
    made = run(rows, arranged, memory_bytes=memory, folder=str(tmp_path))
    keys = [(r[PARTITION_PATH], r[RECORD_KEY]) for r in made]
    assert keys == sorted((r[PARTITION_PATH], r[RECORD_KEY]) for r in rows)
    assert list(tmp_path.iterdir()) == []
    assert arranged.groups_partitions


def test_user_columns_come_after_the_partition_and_may_be_dotted() -> None:
    rows = shuffled(2000, partitions=2)
    arranged = arrangement(SortMode.NONE, sort_columns=("s.deep.x", "n"), record_key_last=True)
    assert arranged.columns == (PARTITION_PATH, "s.deep.x", "n", RECORD_KEY)
    made = run(rows, arranged, memory_bytes=10_000)

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        deep = ((row["s"] or {}).get("deep") or {}).get("x")
        return (row[PARTITION_PATH], order(deep), order(row["n"]), row[RECORD_KEY])

    assert [place(r) for r in made] == sorted(place(r) for r in rows)


def test_many_equal_rows_are_streamed_and_none_is_lost() -> None:
    rows = [{RECORD_KEY: f"k{i}", PARTITION_PATH: "p", "n": float(i % 2)} for i in range(4000)]
    made = run(rows, arrangement(SortMode.NONE, sort_columns=("n",)), memory_bytes=20_000)
    assert [r["n"] for r in made] == [0.0] * 2000 + [1.0] * 2000
    assert {r[RECORD_KEY] for r in made} == {r[RECORD_KEY] for r in rows}


def test_a_partition_sort_orders_what_a_task_sees_at_once() -> None:
    rows = shuffled(1000)
    arranged = arrangement(SortMode.PARTITION_SORT)
    made = run(rows, arranged, memory_bytes=60_000)
    assert sorted(r[RECORD_KEY] for r in made) == sorted(r[RECORD_KEY] for r in rows)
    keys = [(r[PARTITION_PATH], r[RECORD_KEY]) for r in made]
    falls = sum(a > b for a, b in pairwise(keys))
    assert 0 < falls < 100
    assert not arranged.groups_partitions


def test_without_a_mode_rows_pass_lazily_and_as_they_are() -> None:
    taken: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for i in range(3):
            taken.append(i)
            yield batch(shuffled(5))

    made = sorted_batches(batches(), SCHEMA, arrangement(SortMode.NONE), memory_bytes=1)
    assert taken == []
    assert next(made).num_rows == 5 and taken == [0]


@pytest.mark.parametrize(
    "mode", [SortMode.PARTITION_PATH_REPARTITION, SortMode.PARTITION_PATH_REPARTITION_AND_SORT]
)
def test_repartitioning_groups_by_partition(mode: SortMode) -> None:
    arranged = arrangement(mode)
    made = run(shuffled(900), arranged, memory_bytes=10_000)
    paths = [r[PARTITION_PATH] for r in made]
    assert paths == sorted(paths) and arranged.groups_partitions


def test_key_columns_stand_for_keys_that_are_not_stored() -> None:
    arranged = arrangement(SortMode.GLOBAL_SORT, key_columns=("n",))
    assert arranged.columns == (PARTITION_PATH, "n")


@pytest.mark.parametrize("name", ["nn", "s.dep.x", "s.y.z", "tags", "s"])
def test_columns_that_cannot_be_sorted_by_are_refused_before_any_row_is_taken(name: str) -> None:
    rows = iter([batch(shuffled(1))])
    with pytest.raises(OptionError, match=name):
        sorted_batches(
            rows, SCHEMA, arrangement(SortMode.NONE, sort_columns=(name,)), memory_bytes=1
        )
    assert next(rows).num_rows == 1


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("pqr"), st.text("abé\U0001f600", max_size=3)), max_size=80),
    st.integers(600, 4000),
)
def test_external_and_plain_sorting_agree(rows: list[tuple[str, str]], memory: int) -> None:
    made = [
        {RECORD_KEY: key, PARTITION_PATH: path, "n": float(i)} for i, (path, key) in enumerate(rows)
    ]
    batches = [batch(made[i : i + 3]) for i in range(0, len(made), 3)]
    arranged = arrangement(SortMode.GLOBAL_SORT)
    got = [
        row
        for b in sorted_batches(batches, SCHEMA, arranged, memory_bytes=memory)
        for row in b.to_pylist()
    ]
    assert [(r[PARTITION_PATH], r[RECORD_KEY]) for r in got] == sorted(rows)
    assert sorted(r["n"] for r in got) == [float(i) for i in range(len(rows))]
