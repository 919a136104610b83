"""What a lock is, and how to wait for one.

A provider tries once and never waits: it answers with a `Lease`, or with the `LockHolder` that is
in the way. Waiting is `acquire`'s: bounded, with growing jittered pauses, cancellable. A lease is
asked with `check` right before something is published; it raises `LockLostError` unless the lock is
surely still ours. `release` never frees what is not ours, so that calling it twice, late, or after
the lock was lost does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol, runtime_checkable

from lakewright.errors import LakewrightError, LockHeldError
from lakewright.runtime.cancel import NEVER_CANCELLED, CancelToken
from lakewright.runtime.clock import Clock
from lakewright.runtime.events import Event, EventHook, ignore_events
from lakewright.runtime.random import Random
from lakewright.runtime.retry import RetryBudget

__all__ = ["Lease", "LockHolder", "LockProvider", "WatchedLock", "acquire"]

_PAUSES: Final = RetryBudget(delay_s_first=0.05, delay_s_max=1.0)


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds a lock, as far as can be told."""

    who: str
    since_ms: int | None
    place: str
    """What the lock is and where, free of secrets."""
    expires_ms: int | None = None
    """When others may take it, if its holder does not renew it; None: never, or not known."""
    if_dead: str = "Find out whether that process still runs; its lock is freed when it ends."
    """What to do if the holder does not run any more."""

    def __str__(self) -> str:
        since = "" if self.since_ms is None else f" since {_moment(self.since_ms)}"
        until = "" if self.expires_ms is None else f" (expires {_moment(self.expires_ms)})"
        return f"{self.who}{since}{until}"


class Lease(Protocol):
    """A lock that was obtained."""

    @property
    def holder(self) -> LockHolder:
        """What others are told about us."""
        ...

    def check(self) -> None:
        """Raise `LockLostError` unless the lock is surely still ours."""
        ...

    def release(self) -> None:
        """Give the lock back; again, or after it was lost, does nothing.

        If the lock's infrastructure fails, its error is raised: the lock is left to expire, and the
        same provider can take it again.
        """
        ...


class LockProvider(Protocol):
    """One table's lock."""

    @property
    def place(self) -> str:
        """What the lock is and where, for messages; free of secrets."""
        ...

    @property
    def shared(self) -> bool:
        """Whether it excludes other processes."""
        ...

    def try_acquire(self, who: str) -> Lease | LockHolder:
        """The lock, or who is in the way; raises only if the lock's infrastructure is broken."""
        ...


@runtime_checkable
class WatchedLock(Protocol):
    """A lock that tells who holds it to somebody who does not want it."""

    def held_by(self) -> LockHolder | None:
        """Who holds it now; None if it is free. Nothing is changed by asking."""
        ...


def acquire(
    provider: LockProvider,
    who: str,
    *,
    wait_s: float,
    clock: Clock,
    random: Random,
    cancel: CancelToken = NEVER_CANCELLED,
    on_event: EventHook = ignore_events,
) -> Lease:
    """The lock, waited for `wait_s` seconds at most; at least one attempt is made.

    Raises `LockHeldError` that names the holder, or the error of an infrastructure that was not to
    be had in all that time. Each pause is told as an event `lock.wait` in milliseconds.
    """
    begun_s = clock.monotonic_s()
    attempts = 0
    while True:
        cancel.check()
        attempts += 1
        trouble: LakewrightError | None = None
        holder: LockHolder | None = None
        try:
            answer = provider.try_acquire(who)
            if not isinstance(answer, LockHolder):
                return answer
            holder = answer
        except LakewrightError as error:
            if not error.retryable:
                raise
            trouble = error
        waited_s = clock.monotonic_s() - begun_s
        left_s = wait_s - waited_s
        if left_s <= 0:
            raise trouble or _held(provider, holder, wait_s)
        progress = Event(
            "lock.wait", int(waited_s * 1000), int(wait_s * 1000), "ms", path=provider.place
        )
        on_event(progress)
        cancel.check()
        clock.sleep(min(left_s, _PAUSES.delay_s(attempts, random)))


def _held(provider: LockProvider, holder: LockHolder | None, wait_s: float) -> LockHeldError:
    assert holder is not None
    return LockHeldError(
        f"The lock was held for {wait_s:g} s by {holder}.",
        hint=f"Wait longer, or let the holder finish. If it is dead: {holder.if_dead}",
        context={
            "lock": provider.place,
            "holder": holder.who,
            "since_ms": holder.since_ms,
            "expires_ms": holder.expires_ms,
            "waited_s": wait_s,
        },
        retryable=True,
    )


def _moment(epoch_ms: int) -> str:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms"
