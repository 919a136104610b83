"""The scheduler of a simulated world: many threads, of which exactly one runs at a time.

A `Fiber` is an operating system thread that runs only while it holds the world's baton. It gives
the baton away in `pause` alone, and always to the fiber that is due first; ties go to the one that
asked first. Time is what the fibers say it is: it jumps to the next due moment, so that a year of
sleeping costs nothing. Nothing here depends on real time, on thread priorities or on the order of
hash tables, hence the same calls give the same world.

A killed fiber gets `SimulatedCrash` where it stands and every time it asks again; what it does
while it unwinds has no effect on the world. A fiber that blocks on anything but `pause` (a lock
that another fiber holds, a socket) would stop the world for ever: `run` notices and tells where.
"""

from __future__ import annotations

import heapq
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final

from lakewright.storage.faults import SimulatedCrash

__all__ = ["NEVER", "Fiber", "Scheduler", "StuckError"]

NEVER: Final = float("inf")
REAL_SECONDS_MAX: Final = 60.0
"""A step takes microseconds; a world that stands still for so long never moves again."""


class StuckError(RuntimeError):
    """A simulated world cannot go on: its fibers wait for each other, for ever, or outside it."""


class Fiber:
    """One thread of one simulated process."""

    def __init__(self, name: str, owner: Any, fn: Callable[[], Any]) -> None:
        self.name = name
        self.owner = owner
        self.fn = fn
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.killed = False
        self.due = 0.0
        self.ticket = -1
        """Number of its newest entry in the queue; older entries are void."""
        self.baton = threading.Lock()
        self.baton.acquire()
        self.carrier: _Carrier | None = None
        self.thread = 0
        """Which operating system thread carries it."""
        self.waiters: list[Fiber] = []


class _Carrier:
    """An operating system thread that carries one fiber after another."""

    _idle: list[_Carrier] = []  # noqa: RUF012 - shared by all worlds of the process on purpose

    def __init__(self) -> None:
        self._job: Callable[[], Callable[[], None]] | None = None
        self._start = threading.Lock()
        self._start.acquire()
        self.thread = threading.Thread(target=self._loop, name="simulated", daemon=True)
        self.thread.start()

    @classmethod
    def take(cls) -> _Carrier:
        """A free carrier, or a new one."""
        return cls._idle.pop() if cls._idle else cls()

    def carry(self, job: Callable[[], Callable[[], None]]) -> None:
        """Run `job`, which returns how to pass the baton on."""
        self._job = job
        self._start.release()

    def _loop(self) -> None:
        while True:
            self._start.acquire()
            assert self._job is not None
            pass_on = self._job()
            self._job = None
            self._idle.append(self)
            pass_on()


# The threads of idle carriers do not exist in a forked process.
os.register_at_fork(after_in_child=_Carrier._idle.clear)  # noqa: SLF001


class Scheduler:
    """Who runs, and what time it is."""

    def __init__(self, *, resume_at: Callable[[Any], float] | None = None) -> None:
        self.now = 0.0
        """True time in seconds since the world began."""
        self.steps = 0
        self.current: Fiber | None = None
        self._queue: list[tuple[float, int, Fiber]] = []
        self._tickets = 0
        self._alive: dict[Fiber, None] = {}
        self._resume_at = resume_at or (lambda _: 0.0)
        """Until when the process of a fiber stands still."""
        self._over = threading.Lock()
        self._over.acquire()
        self.failure: BaseException | None = None
        self.steps_max = sys.maxsize

    def start(self, fiber: Fiber, *, delay: float = 0.0) -> None:
        """Let a new fiber run from `delay` seconds on."""
        self._alive[fiber] = None
        self._push(fiber, self.now + delay)

    def pause(self, until: float) -> None:
        """Let the current fiber go on at `until`, and everybody who is due before it first."""
        fiber = self.current
        if fiber is None or fiber.thread != threading.get_ident():
            raise StuckError("A thread that no Spawner of this world started takes part in it.")
        if fiber.killed:
            raise SimulatedCrash(f"{fiber.name} is dead")
        self.steps += 1
        if self.steps > self.steps_max:
            self._give_up()
        queue = self._queue
        if (not queue or queue[0][0] > until) and self._resume_at(fiber.owner) <= until != NEVER:
            self.now = until
            return
        self._push(fiber, until)
        self._switch(fiber)

    def wait(self, other: Fiber, until: float = NEVER) -> bool:
        """Pause until `other` is done, at most until `until`; whether it is."""
        fiber = self.current
        assert fiber is not None
        if not other.done:
            other.waiters.append(fiber)
            self.pause(until)
            if fiber in other.waiters:
                other.waiters.remove(fiber)
        return other.done

    def wake(self, fiber: Fiber) -> None:
        """Let a fiber that pauses go on now."""
        self._push(fiber, self.now)

    def kill(self, doomed: Callable[[Fiber], bool]) -> None:
        """End fibers: those that are parked unwind at once, in the order in which they started."""
        for fiber in self._alive:
            if doomed(fiber) and not fiber.killed:
                fiber.killed = True
                if fiber is not self.current:
                    self._push(fiber, self.now)

    def alive(self) -> list[Fiber]:
        """Fibers that have not ended, in the order in which they started."""
        return list(self._alive)

    def run(self) -> None:
        """Run until nobody is left; called from outside the world."""
        if self._alive:
            self._pass_on()
            steps = -1
            while not self._over.acquire(timeout=REAL_SECONDS_MAX):
                if steps == self.steps:
                    raise StuckError(f"The simulated world stands still:\n{self._stack()}")
                steps = self.steps
        if self.failure is not None:
            raise self.failure

    def _stack(self) -> str:
        carrier = self.current.carrier if self.current else None
        frame = sys._current_frames().get(carrier.thread.ident or 0) if carrier else None  # noqa: SLF001
        return "".join(traceback.format_stack(frame)) if frame else "unknown"

    def _push(self, fiber: Fiber, due: float) -> None:
        self._tickets += 1
        fiber.due, fiber.ticket = due, self._tickets
        if due != NEVER:
            heapq.heappush(self._queue, (due, self._tickets, fiber))

    def _next(self) -> Fiber | None:
        """The fiber that is due first, and the time it brings; None when nobody is left."""
        queue = self._queue
        while queue:
            due, ticket, fiber = heapq.heappop(queue)
            if ticket != fiber.ticket or fiber.done:
                continue
            later = 0.0 if fiber.killed else self._resume_at(fiber.owner)
            if later > due:
                self._push(fiber, later)
                continue
            self.now = max(self.now, due)
            return fiber
        return None

    def _switch(self, fiber: Fiber) -> None:
        """Hand the baton to whoever is due, and wait until it comes back."""
        following = self._next()
        if following is not fiber:
            self.current = following
            if following is None:
                self._nobody()
            else:
                self._wake(following)
            fiber.baton.acquire()
        if fiber.killed:
            raise SimulatedCrash(f"{fiber.name} is dead")

    def _wake(self, fiber: Fiber) -> None:
        if fiber.carrier is None:
            fiber.carrier = _Carrier.take()
            fiber.carrier.carry(lambda: self._life(fiber))
        else:
            fiber.baton.release()

    def _nobody(self) -> None:
        """Fibers wait for each other for ever."""
        waiting = ", ".join(f.name for f in self._alive)
        self.failure = StuckError(f"Everybody waits for somebody else: {waiting}.")
        self.kill(lambda _: True)
        self._pass_on()

    def _give_up(self) -> None:
        """The world is longer than it may be."""
        running = ", ".join(f.name for f in self._alive)
        self.failure = StuckError(f"Not over after {self.steps_max} steps; running: {running}.")
        self.kill(lambda _: True)
        self.steps_max = sys.maxsize
        raise SimulatedCrash("the world ends here")

    def _pass_on(self) -> None:
        following = self._next()
        self.current = following
        if following is not None:
            self._wake(following)
        elif self._alive:
            self._nobody()
        else:
            self._over.release()

    def _life(self, fiber: Fiber) -> Callable[[], None]:
        """What a carrier does for one fiber; the answer passes the baton on."""
        fiber.thread = threading.get_ident()
        if not fiber.killed:
            try:
                fiber.value = fiber.fn()
            except BaseException as error:  # kept for whoever asks for the result
                fiber.error = error
        else:
            fiber.error = SimulatedCrash(f"{fiber.name} is dead")
        fiber.done = True
        fiber.carrier = None
        del self._alive[fiber]
        for waiter in fiber.waiters:
            if not waiter.done:
                self._push(waiter, self.now)
        return self._pass_on
