"""Background work: the only way to run something beside the caller.

Guarantees: a task's error is kept and raised where its result is asked for, never printed and lost
by the thread; tasks never keep the process alive (the timeline on storage is the only truth, so a
process may always end). `Spawner` is a protocol: a simulator steps its tasks itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Task(Protocol[T_co]):
    """Something that runs in the background."""

    @property
    def name(self) -> str:
        """What it was spawned as."""
        ...

    @property
    def done(self) -> bool:
        """Whether it returned or failed."""
        ...

    @property
    def error(self) -> BaseException | None:
        """Why it failed; None while it runs and after it returned."""
        ...

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; whether it came in time."""
        ...

    def result(self) -> T_co:
        """Wait for its end and return what it returned or raise what it raised."""
        ...


class Spawner(Protocol):
    """Who runs background work."""

    def spawn(self, fn: Callable[[], T], name: str) -> Task[T]:
        """Start `fn` in the background under a name that shows up in debuggers."""
        ...


class ThreadTask(Generic[T]):
    """A task on its own daemon thread."""

    def __init__(self, fn: Callable[[], T], name: str) -> None:
        self._fn = fn
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value.append(self._fn())
        except BaseException as error:  # kept for whoever asks for the result
            self._error = error

    @property
    def name(self) -> str:
        """What it was spawned as."""
        return self._thread.name

    @property
    def done(self) -> bool:
        """Whether it returned or failed."""
        return bool(self._value) or self._error is not None

    @property
    def error(self) -> BaseException | None:
        """Why it failed; None while it runs and after it returned."""
        return self._error

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; whether it came in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def result(self) -> T:
        """Wait for its end and return what it returned or raise what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value[0]


class ThreadSpawner:
    """Runs every task on its own thread."""

    def spawn(self, fn: Callable[[], T], name: str) -> Task[T]:
        """Start `fn` on a new daemon thread."""
        return ThreadTask(fn, name)


def spawn(fn: Callable[[], T], name: str) -> Task[T]:
    """Start `fn` on a thread, for callers who were not given a `Spawner`."""
    return ThreadSpawner().spawn(fn, name)
