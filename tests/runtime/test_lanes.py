"""Lanes: every item once, in order, a bounded number at a time, and errors that are not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.runtime.lanes import FEW, in_lanes
from lakewright.runtime.spawn import Task, ThreadSpawner


@given(items=st.lists(st.integers(), max_size=80), lanes=st.integers(1, 20))
def test_results_come_in_the_order_of_the_items(items: list[int], lanes: int) -> None:
    found = in_lanes(lambda n: n * 2, items, lanes=lanes, spawner=ThreadSpawner())
    assert found == [n * 2 for n in items]


def test_lanes_work_at_the_same_time() -> None:
    together = threading.Barrier(4, timeout=10)

    def meet(_: int) -> None:
        together.wait()

    in_lanes(meet, range(40), lanes=4, spawner=ThreadSpawner())


class Counting(ThreadSpawner):
    """Tells how many were spawned."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def spawn(self, fn: Callable[[], Any], name: str) -> Task[Any]:
        self.names.append(name)
        return super().spawn(fn, name)


@pytest.mark.parametrize(
    ("items", "lanes", "spawned"), [(0, 8, 0), (FEW, 8, 0), (FEW + 1, 8, 8), (100, 1, 0)]
)
def test_few_items_have_few_lanes(items: int, lanes: int, spawned: int) -> None:
    spawner = Counting()
    in_lanes(str, range(items), lanes=lanes, spawner=spawner)
    assert len(spawner.names) == spawned


@pytest.mark.parametrize("lanes", [1, 5])
def test_an_error_ends_all_lanes_and_is_raised(lanes: int) -> None:
    begun = []

    def work(number: int) -> None:
        begun.append(number)
        if number == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        in_lanes(work, range(1000), lanes=lanes, spawner=ThreadSpawner())
    assert len(begun) < 1000
