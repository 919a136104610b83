"""The scheduler of a simulated world: many fibers, of which exactly one runs at a time.

A `Fiber` is a greenlet: it runs until it gives control away in `pause`, and always to the fiber
that is due first; ties go to the one that asked first. All of them share the thread that called
`run`, so that a switch costs a fraction of a microsecond. Time is what the fibers say it is: it
jumps to the next due moment, so that a year of sleeping costs nothing. Nothing here depends on real
time or on the order of hash tables, hence the same calls give the same world.

A killed fiber gets `SimulatedCrash` where it stands and every time it asks again; what it does
while it unwinds has no effect on the world. A fiber that blocks on anything but `pause` (a lock
that another fiber holds, a socket) stops the world for ever.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from typing import Any, Final

import greenlet

from lakewright.storage.faults import SimulatedCrash

__all__ = ["NEVER", "Fiber", "Scheduler", "StuckError"]

NEVER: Final = float("inf")


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
        self.running: greenlet.greenlet | None = None
        self.waiters: list[Fiber] = []


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
        self._outside: greenlet.greenlet | None = None
        """Who called `run`, and switches to the fibers."""
        self.failure: BaseException | None = None
        self.steps_max = sys.maxsize

    def start(self, fiber: Fiber, *, delay: float = 0.0) -> None:
        """Let a new fiber run from `delay` seconds on."""
        self._alive[fiber] = None
        self._push(fiber, self.now + delay)

    def pause(self, until: float) -> None:
        """Let the current fiber go on at `until`, and everybody who is due before it first."""
        fiber = self.current
        if fiber is None or greenlet.getcurrent() is not fiber.running:
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
        self._outside = greenlet.getcurrent()
        while self._alive:
            self._let_run(self._next())
        self.current = None
        if self.failure is not None:
            raise self.failure

    def _let_run(self, fiber: Fiber | None) -> None:
        """Let a fiber run until it pauses or ends."""
        self.current = fiber
        if fiber is None:
            self._nobody()
            return
        if fiber.running is None:
            fiber.running = greenlet.greenlet(lambda: self._life(fiber))
        fiber.running.switch()

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
        """Let others run until the turn comes back."""
        assert self._outside is not None
        self._outside.switch()
        if fiber.killed:
            raise SimulatedCrash(f"{fiber.name} is dead")

    def _nobody(self) -> None:
        """Fibers wait for each other for ever."""
        waiting = ", ".join(f.name for f in self._alive)
        self.failure = StuckError(f"Everybody waits for somebody else: {waiting}.")
        self.kill(lambda _: True)

    def _give_up(self) -> None:
        """The world is longer than it may be."""
        running = ", ".join(f.name for f in self._alive)
        self.failure = StuckError(f"Not over after {self.steps_max} steps; running: {running}.")
        self.kill(lambda _: True)
        self.steps_max = sys.maxsize
        raise SimulatedCrash("the world ends here")

    def run_alone(self, fiber: Fiber) -> None:
        """Run a fiber that was not started to its end, before the world begins."""
        if not fiber.done:
            self._live(fiber)

    def _live(self, fiber: Fiber) -> None:
        try:
            fiber.value = fiber.fn()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # kept for whoever asks for the result
            fiber.error = error
        fiber.done = True

    def _life(self, fiber: Fiber) -> None:
        if fiber.killed:
            fiber.error = SimulatedCrash(f"{fiber.name} is dead")
            fiber.done = True
        else:
            self._live(fiber)
        fiber.running = None
        del self._alive[fiber]
        for waiter in fiber.waiters:
            if not waiter.done:
                self._push(waiter, self.now)
