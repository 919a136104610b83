"""What every room may ask of the world without touching bytes: time, chance, patience, background.

`Clock`, `Random` and `Spawner` are parameters everywhere, so that one simulator can replace them
together; nothing outside this room reads a clock, draws a random number or starts a thread.
"""

from __future__ import annotations

from lakewright.runtime.cancel import NEVER_CANCELLED, CancelToken
from lakewright.runtime.clock import Clock, ManualClock, SystemClock
from lakewright.runtime.events import Event, EventHook, ignore_events
from lakewright.runtime.random import Random, SeededRandom, SystemRandom
from lakewright.runtime.retry import NO_RETRY, RetryBudget, retry
from lakewright.runtime.spawn import Spawner, Task, ThreadSpawner, spawn

__all__ = [
    "NEVER_CANCELLED",
    "NO_RETRY",
    "CancelToken",
    "Clock",
    "Event",
    "EventHook",
    "ManualClock",
    "Random",
    "RetryBudget",
    "SeededRandom",
    "Spawner",
    "SystemClock",
    "SystemRandom",
    "Task",
    "ThreadSpawner",
    "ignore_events",
    "retry",
    "spawn",
]
