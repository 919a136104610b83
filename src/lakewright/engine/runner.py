"""Runners: how independent units of work are spread over threads, here or elsewhere.

A `Runner` turns tasks into one stream of results. `InlineRunner` works in the caller's thread;
`ThreadRunner` keeps `threads` tasks going at once and hands results over through a bounded queue,
so that a slow consumer slows the producers down instead of filling memory. Results of one task
arrive in order; tasks are interleaved. The first error stops everything and is raised to the
consumer; closing the stream early stops the producers at their next result.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from lakewright.runtime.spawn import Spawner, ThreadSpawner

Task = TypeVar("Task")
Result = TypeVar("Result")
TaskC = TypeVar("TaskC", contravariant=True)
ResultC = TypeVar("ResultC")

QUEUED_PER_THREAD = 2


class Runner(Protocol):
    """Runs a function over tasks; each call yields any number of results."""

    def stream(
        self, tasks: Sequence[Task], work: Callable[[Task], Iterable[Result]]
    ) -> Iterator[Result]:
        """All results of all tasks, as one stream."""
        ...


class InlineRunner:
    """One task after the other, in the caller's thread."""

    def stream(
        self, tasks: Sequence[Task], work: Callable[[Task], Iterable[Result]]
    ) -> Iterator[Result]:
        """All results of all tasks, in task order."""
        for task in tasks:
            yield from work(task)


class _Stopped(Exception):
    """The consumer is gone."""


class ThreadRunner:
    """A few threads and one bounded queue."""

    def __init__(self, threads: int, *, spawner: Spawner | None = None) -> None:
        self._threads = threads
        self._spawner = spawner or ThreadSpawner()

    def stream(
        self, tasks: Sequence[Task], work: Callable[[Task], Iterable[Result]]
    ) -> Iterator[Result]:
        """All results of all tasks; tasks run concurrently."""
        if self._threads <= 1 or len(tasks) <= 1:
            return InlineRunner().stream(tasks, work)
        return self._stream(tasks, work)

    def _stream(
        self, tasks: Sequence[Task], work: Callable[[Task], Iterable[Result]]
    ) -> Iterator[Result]:
        threads = min(self._threads, len(tasks))
        results: queue.Queue[Result | BaseException | None] = queue.Queue(
            maxsize=threads * QUEUED_PER_THREAD
        )
        stop = threading.Event()
        pending = iter(tasks)
        pick = threading.Lock()

        def put(item: Result | BaseException | None) -> None:
            while not stop.is_set():
                try:
                    results.put(item, timeout=0.1)
                    return
                except queue.Full:
                    continue
            raise _Stopped

        def produce() -> None:
            try:
                while not stop.is_set():
                    with pick:
                        task = next(pending, None)
                    if task is None:
                        break
                    for result in work(task):
                        put(result)
                put(None)
            except _Stopped:
                return
            except BaseException as error:
                try:
                    put(error)
                except _Stopped:
                    return

        workers = [self._spawner.spawn(produce, name=f"scan-{i}") for i in range(threads)]
        running = threads
        try:
            while running:
                item = results.get()
                if item is None:
                    running -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            stop.set()
            for worker in workers:
                worker.join()
