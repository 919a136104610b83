"""Clocks of a simulated world: one true time, and what each process takes for it.

A process' clock may be wrong by an offset, run too fast or too slow, and be set by an operator;
its monotonic side only runs at the wrong pace. The storage has a clock of its own, whose times are
the modification times of objects. Reading a clock takes a microsecond, so that a loop that only
looks at the time comes to an end too.
"""

from __future__ import annotations

from typing import Final

from lakewright.testing.sim.scheduler import Scheduler

__all__ = ["EPOCH_MS", "ActorClock", "StoreClock"]

EPOCH_MS: Final = 1_735_689_600_000
"""Wall time at which every world begins: 2025-01-01 UTC."""
_READING_S: Final = 1e-6


class ActorClock:
    """The clock of one simulated process."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.offset_ms = 0.0
        """How far the wall clock is ahead of true time."""
        self.pace = 1.0
        """Seconds it counts in a true second."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC, as this process sees it."""
        counted_s = self.monotonic_s()
        return int(EPOCH_MS + counted_s * 1000 + self.offset_ms)

    def monotonic_s(self) -> float:
        """Seconds since the world began, as this process counts them."""
        scheduler = self._scheduler
        if scheduler.current is not None:
            scheduler.pause(scheduler.now + _READING_S)
        return scheduler.now * self.pace

    def sleep(self, seconds: float) -> None:
        """Let others run until this process has counted so many seconds."""
        if seconds > 0 and self._scheduler.current is not None:
            self._scheduler.pause(self._scheduler.now + seconds / self.pace)

    def jump(self, milliseconds: float) -> None:
        """Set the wall clock, either way, as an operator or NTP does."""
        self.offset_ms += milliseconds


class StoreClock:
    """The clock of the storage; reading it takes no time, since it is part of an operation."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.offset_ms = 0.0

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC, as the storage sees it."""
        return int(EPOCH_MS + self._scheduler.now * 1000 + self.offset_ms)

    def monotonic_s(self) -> float:
        """True seconds since the world began."""
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        """A storage does not sleep."""
