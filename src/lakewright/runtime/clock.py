"""Clocks: wall time for what is written down, monotonic time for what is measured.

Guarantees: `monotonic_s` never goes back; `now_ms` may jump either way, and nobody may assume that
two machines agree on it. `ManualClock` moves only when told or when somebody sleeps on it, so a
test with a year of waiting takes no time.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from lakewright.errors import ConfigError


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; zero or less returns at once."""
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; zero or less returns at once."""
        if seconds > 0:
            time.sleep(seconds)

    def __repr__(self) -> str:
        return "SystemClock()"


class ManualClock:
    """A clock that stands still until it is moved; safe to share between threads."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._lock = threading.Lock()
        self._wall_ms = float(now_ms)
        self._monotonic_s = 0.0
        self.slept_s: list[float] = []
        """Every wait asked for, in order."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC."""
        with self._lock:
            return int(self._wall_ms)

    def monotonic_s(self) -> float:
        """Seconds since the clock was made."""
        with self._lock:
            return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        """Move the clock by `seconds` and return at once."""
        if seconds > 0:
            self.slept_s.append(seconds)
            self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass, on both the wall and the monotonic side."""
        if seconds < 0:
            raise ConfigError(
                f"Time cannot pass backwards by {-seconds} s.",
                hint="Use jump_wall to step the wall clock alone.",
            )
        with self._lock:
            self._wall_ms += seconds * 1000
            self._monotonic_s += seconds

    def jump_wall(self, milliseconds: int) -> None:
        """Step the wall clock alone, either way, as an operator or NTP does."""
        with self._lock:
            self._wall_ms += milliseconds
