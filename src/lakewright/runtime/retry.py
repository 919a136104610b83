"""Bounded retry: the only loop that tries something again.

Guarantees: only errors that say `retryable` are tried again; never more than `attempts` calls; no
wait is begun that would end after the budget's seconds; the last error is raised unchanged in type,
with the number of attempts and the time spent in its context. Waits grow exponentially with jitter,
so that clients that failed together do not come back together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lakewright.errors import LakewrightError, OptionError
from lakewright.runtime.cancel import NEVER_CANCELLED, CancelToken
from lakewright.runtime.clock import Clock
from lakewright.runtime.random import Random

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """How often and for how long something may be tried."""

    attempts: int = 6
    seconds: float = 60.0
    delay_s_first: float = 0.1
    delay_s_max: float = 10.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.seconds < 0:
            raise OptionError(
                f"A retry budget of {self.attempts} attempts in {self.seconds} s allows nothing.",
                hint="Allow at least one attempt and no negative time.",
            )
        if not 0 <= self.delay_s_first <= self.delay_s_max:
            raise OptionError(
                f"Delays cannot grow from {self.delay_s_first} s to {self.delay_s_max} s.",
                hint="Choose 0 <= delay_s_first <= delay_s_max.",
            )

    def delay_s(self, failures: int, random: Random) -> float:
        """The wait after `failures` failed attempts: between half and all of the doubling delay."""
        doublings = min(failures - 1, 32)
        full = min(self.delay_s_max, self.delay_s_first * 2.0**doublings)
        return random.uniform(full / 2, full)


NO_RETRY = RetryBudget(attempts=1, seconds=0.0)


def retry(
    operation: Callable[[], T],
    *,
    budget: RetryBudget,
    clock: Clock,
    random: Random,
    cancel: CancelToken = NEVER_CANCELLED,
    on_retry: Callable[[LakewrightError], None] | None = None,
) -> T:
    """Call `operation` until it returns, fails for good, or the budget is spent.

    `on_retry` hears every error that is going to be tried again. Cancelling is noticed before each
    attempt and before each wait.
    """
    started_s = clock.monotonic_s()
    failures = 0
    while True:
        cancel.check()
        try:
            return operation()
        except LakewrightError as error:
            failures += 1
            if not error.retryable:
                raise
            delay_s = budget.delay_s(failures, random)
            spent_s = clock.monotonic_s() - started_s
            if failures >= budget.attempts or spent_s + delay_s > budget.seconds:
                error.context["attempts"] = failures
                error.context["spent_s"] = round(spent_s, 3)
                raise
            if on_retry is not None:
                on_retry(error)
        cancel.check()
        clock.sleep(delay_s)
