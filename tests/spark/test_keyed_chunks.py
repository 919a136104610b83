"""Chunks and routes: every row arrives where it was sent, in order, with what is known of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.spark.keyed_chunks import (
    GONE,
    INSERTED,
    Route,
    decoded,
    encoded,
    gathered,
    split,
)
from lakewright.spark.keyed_tasks import spread
from lakewright.spark.keyed_writer import Repeats

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


def chunk(first: int, count: int) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    return pa.RecordBatch.from_pydict({"k": [f"k{n}" for n in numbers], "n": numbers}, SCHEMA)


STEP = st.tuples(st.integers(0, 5), st.booleans(), st.booleans(), st.integers(-1, 50))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.lists(STEP, max_size=2), min_size=1, max_size=20), min_size=1, max_size=4),
    st.lists(st.integers(0, 2), min_size=6, max_size=6),
    st.booleans(),
)
def test_routed_rows_arrive_whole_and_in_order(
    chunks: list[list[list[tuple[int, bool, bool, int]]]], task_of: list[int], placed: bool
) -> None:
    sent: dict[int, list[tuple[int, int, bytes]]] = {}
    wanted: dict[int, list[tuple[bool, int, bool, int]]] = {}
    start = 0
    for number, steps in enumerate(chunks):
        flat = [(row, *step) for row, own in enumerate(steps) for step in own]
        index = np.array([row for row, *_ in flat], np.int32)
        route = Route(
            index,
            np.array([slot for _, slot, *_ in flat], np.int32),
            np.array([i * INSERTED + g * GONE for *_, i, g, _ in flat], np.uint8),
            np.array([position for *_, position in flat], np.int64) if placed else None,
        )
        route = Route.unpacked(route.packed())
        for task, packed in split(chunk(start, len(steps)), route, task_of):
            sent.setdefault(task, []).append((0, number, packed))
        for row, slot, inserted, gone, position in flat:
            wanted.setdefault(slot, []).append((inserted, start + row, gone, position))
        start += len(steps)
    found: dict[int, list[tuple[bool, int, bool, int]]] = {}
    for task, parts in sent.items():
        for slot, came in gathered(reversed(parts), SCHEMA).items():
            assert task_of[slot] == task
            new = np.arange(came.rows.num_rows) >= came.rows.num_rows - came.inserts
            positions = came.positions if came.positions is not None else [-2] * len(new)
            told = zip(new, came.rows["n"].to_pylist(), came.gone, positions, strict=True)
            found[slot] = [(bool(i), n, bool(g), int(p)) for i, n, g, p in told]
    if not placed:
        wanted = {s: [(i, n, g, -2) for i, n, g, _ in own] for s, own in wanted.items()}
    assert found == {s: sorted(own, key=lambda w: (w[0], w[1])) for s, own in wanted.items()}


def test_a_route_of_every_row_needs_no_numbers() -> None:
    route = Route(None, np.zeros(3, np.int32), np.zeros(3, np.uint8), None)
    ((task, packed),) = split(chunk(5, 3), route, [4])
    assert task == 4
    assert gathered([(0, 0, packed)], SCHEMA)[0].rows.equals(chunk(5, 3))


def test_rows_come_back_as_they_were_packed() -> None:
    rows = chunk(0, 1000)
    assert decoded(encoded(rows)).equals(rows)
    assert decoded(encoded(rows.slice(0, 0))).schema == rows.schema


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.integers(1, 4))
def test_work_is_spread_over_few_tasks_evenly(costs: list[int], cores: int) -> None:
    tasks = spread(costs, cores)
    used = set(tasks)
    assert used == set(range(max(used) + 1)) and len(used) <= min(len(costs), 4 * cores)
    loads = [sum(max(1, c) for c, t in zip(costs, tasks, strict=True) if t == n) for n in used]
    assert max(loads) <= min(loads) + max(1, *costs)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=40))
def test_all_rows_of_a_key_are_found(codes: list[int]) -> None:
    keys = list(dict.fromkeys(codes))
    numbered = np.array([keys.index(code) for code in codes], np.int32)
    repeats = Repeats.of(numbered, len(keys))
    asked = np.arange(len(keys))[::-2]
    rows, places = repeats.rows_of(asked)
    told: dict[int, list[int]] = {}
    for row, place in zip(rows.tolist(), places.tolist(), strict=True):
        told.setdefault(int(asked[place]), []).append(row)
    assert told == {int(k): np.flatnonzero(numbered == k).tolist() for k in asked}
