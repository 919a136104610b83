"""Runners: every result once, order within a task, errors and early stops without leaks."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.engine.runner import InlineRunner, Runner, ThreadRunner


def numbers(task: tuple[int, int]) -> Iterator[tuple[int, int]]:
    name, count = task
    for i in range(count):
        yield name, i


@settings(max_examples=30, deadline=None)
@given(counts=st.lists(st.integers(0, 6), max_size=8), threads=st.integers(1, 4))
def test_every_result_arrives_once_and_in_order_within_its_task(
    counts: list[int], threads: int
) -> None:
    tasks = list(enumerate(counts))
    for runner in (InlineRunner(), ThreadRunner(threads)):
        results = list(runner.stream(tasks, numbers))
        assert sorted(results) == [(n, i) for n, c in tasks for i in range(c)]
        for name, count in tasks:
            assert [i for n, i in results if n == name] == list(range(count))


@pytest.mark.parametrize("runner", [InlineRunner(), ThreadRunner(3)])
def test_the_first_error_reaches_the_consumer(runner: Runner) -> None:
    def work(task: int) -> Iterator[int]:
        if task == 2:
            raise ValueError("task 2")
        yield task

    with pytest.raises(ValueError, match="task 2"):
        list(runner.stream([0, 1, 2, 3], work))


def test_closing_the_stream_stops_the_producers() -> None:
    made: list[int] = []

    def endless(task: int) -> Iterator[int]:
        while True:
            made.append(task)
            yield task

    before = set(threading.enumerate())
    stream = ThreadRunner(2).stream([0, 1], endless)
    assert next(stream) in (0, 1)
    stream.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before
    assert len(made) < 20
