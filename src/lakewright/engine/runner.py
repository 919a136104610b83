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
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from lakewright.runtime.spawn import Spawner, ThreadSpawner

Task = TypeVar("Task")
Result = TypeVar("Result")

QUEUED_PER_THREAD = 2
STOP_CHECK_S = 0.1
"""How often a producer that waits for room looks whether the consumer is gone."""


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


class ThreadRunner:
    """A few threads and one bounded queue."""

    def __init__(self, threads: int, *, spawner: Spawner | None = None) -> None:
        self._threads = threads
        self._spawner = spawner or ThreadSpawner()

    def stream(
        self, tasks: Sequence[Task], work: Callable[[Task], Iterable[Result]]
    ) -> Iterator[Result]:
        """All results of all tasks; tasks run concurrently."""
        threads = min(self._threads, len(tasks))
        if threads <= 1:
            return InlineRunner().stream(tasks, work)
        return _Stream(tasks, work, threads).results(self._spawner)


def ahead(items: Callable[[], Iterable[Result]], spawner: Spawner | None) -> Iterator[Result]:
    """The same items, made a few ahead of whoever takes them; without a spawner just as asked."""
    if spawner is None:
        return iter(items())
    return _Stream([items], lambda make: make(), 1).results(spawner)


class _ConsumerGoneError(Exception):
    """Nobody takes results any more."""


class _Stream(Generic[Task, Result]):
    """One run: tasks are picked by whichever producer is free."""

    def __init__(
        self, tasks: Sequence[Task], work: Callable[[Task], Iterable[Result]], threads: int
    ) -> None:
        self._pending = iter(tasks)
        self._pick = threading.Lock()
        self._work = work
        self._threads = threads
        self._stop = threading.Event()
        self._queue: queue.Queue[Result | BaseException | None] = queue.Queue(
            maxsize=threads * QUEUED_PER_THREAD
        )

    def results(self, spawner: Spawner) -> Iterator[Result]:
        """Hand the results to the consumer; None from a producer means that it is done."""
        producers = [
            spawner.spawn(self._produce, name=f"producer-{i}") for i in range(self._threads)
        ]
        running = self._threads
        try:
            while running:
                item = self._queue.get()
                if item is None:
                    running -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            self._stop.set()
            for producer in producers:
                producer.join()

    def _produce(self) -> None:
        try:
            self._put_all()
        except _ConsumerGoneError:
            return
        except BaseException as error:
            with suppress(_ConsumerGoneError):
                self._put(error)

    def _put_all(self) -> None:
        while not self._stop.is_set():
            with self._pick:
                task = next(self._pending, None)
            if task is None:
                break
            for result in self._work(task):
                self._put(result)
        self._put(None)

    def _put(self, item: Result | BaseException | None) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=STOP_CHECK_S)
            except queue.Full:
                continue
            return
        raise _ConsumerGoneError
