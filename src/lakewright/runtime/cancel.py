"""Cancelling: how a caller takes its word back, and how long it is willing to wait.

Guarantees: after `cancel()` or the deadline, every `check()` raises `CancelledError`; a token never
becomes un-cancelled; tokens are safe to share between threads. Work decides where to check: between
steps, never between two halves of a publication.
"""

from __future__ import annotations

import threading

from lakewright.errors import CancelledError, ConfigError
from lakewright.runtime.clock import Clock


class CancelToken:
    """A promise to stop when asked; `CancelToken.after` also stops at a deadline."""

    def __init__(self) -> None:
        self._clock: Clock | None = None
        self._deadline_s = 0.0
        self._asked = threading.Event()
        self._reason = ""

    @classmethod
    def after(cls, seconds: float, clock: Clock) -> CancelToken:
        """A token that also counts as cancelled once `seconds` have passed on `clock`."""
        token = cls()
        token._clock = clock
        token._deadline_s = clock.monotonic_s() + seconds
        return token

    def cancel(self, reason: str = "the caller asked for it") -> None:
        """Ask the work to stop at its next check; the first reason stays."""
        if not self._asked.is_set():
            self._reason = reason
            self._asked.set()

    @property
    def cancelled(self) -> bool:
        """Whether the work should stop."""
        return self._asked.is_set() or self.remaining_s() == 0.0

    def remaining_s(self) -> float | None:
        """Seconds until the deadline, never below zero; None without one."""
        if self._clock is None:
            return None
        return max(0.0, self._deadline_s - self._clock.monotonic_s())

    def check(self) -> None:
        """Raise `CancelledError` if the work should stop."""
        if self._asked.is_set():
            raise CancelledError(
                f"The work was cancelled: {self._reason}.",
                hint="Nothing was published; run it again when it is wanted.",
                context={"reason": self._reason},
            )
        if self.remaining_s() == 0.0:
            raise CancelledError(
                "The work did not finish before its deadline.",
                hint="Nothing was published; run it again with a later deadline.",
                context={"reason": "deadline"},
            )


class _Never(CancelToken):
    """A token for work that nobody can cancel."""

    def cancel(self, reason: str = "the caller asked for it") -> None:
        """Refuse: the token is shared by everybody who did not ask for one."""
        raise ConfigError(
            f"Work without a cancel token of its own cannot be cancelled ({reason}).",
            hint="Pass your own CancelToken to the verb and cancel that one.",
        )

    def check(self) -> None:
        """Nobody can have asked the work to stop."""


NEVER_CANCELLED: CancelToken = _Never()
