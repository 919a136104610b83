"""A lease that is kept alive in the background, whatever the lock is made of.

The lock itself is behind `Tenure`, whose three calls must be conditional on the lock still being
ours: a call that comes too late changes nothing. So the background renewal and the holder need not
wait for each other, and a renewal that is on its way while the lock is released does no harm.

Time is counted on the monotonic clock from before the request that obtained or renewed the lock, so
that this side always believes in less time than others grant. When that time is over the lease is
lost for good: it is not renewed again, even if nobody has taken the lock yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

from lakewright.errors import LakewrightError, LockLostError
from lakewright.runtime.clock import Clock
from lakewright.runtime.spawn import Spawner
from lakewright.txn.locks.protocol import LockHolder

__all__ = ["Pace", "RenewedLease", "Tenure"]

_LOOK_S_MAX: Final = 0.5
_LOOKS_PER_RENEWAL: Final = 10
_LATE: Final = "it was not renewed in time"
_TAKEN: Final = "somebody else took it or removed it"


class Tenure(Protocol):
    """One held lock, as its provider knows it; any call may raise its infrastructure's errors."""

    def extend(self) -> bool:
        """Prolong it; False: it is not ours any more."""
        ...

    def confirm(self) -> bool:
        """Ask whether it is still ours."""
        ...

    def free(self, *, in_time: Callable[[], bool]) -> None:
        """Give it back if it is still ours; `in_time()`: others cannot have been granted it yet,
        to be asked last where the call below cannot be conditional."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a lock is ours after each renewal, and how often it is renewed."""

    valid_s: float | None
    """None: until it is given back."""
    renew_s: float


class RenewedLease:
    """A lock that is ours until it is released, or could not be renewed in time."""

    def __init__(
        self, holder: LockHolder, tenure: Tenure, pace: Pace, *, begun_s: float, clock: Clock
    ) -> None:
        self._holder = holder
        self._tenure = tenure
        self._pace = pace
        self._clock = clock
        self._renewed_s = begun_s
        self._lost = ""
        self._released = False

    @classmethod
    def start(
        cls,
        holder: LockHolder,
        tenure: Tenure,
        pace: Pace,
        *,
        begun_s: float,
        clock: Clock,
        spawner: Spawner,
    ) -> RenewedLease:
        """A lease over a lock that was obtained by a request sent at `begun_s`, kept alive from now
        on."""
        lease = cls(holder, tenure, pace, begun_s=begun_s, clock=clock)
        spawner.spawn(lease._keep_alive, name=f"lock-renewal {holder.place}")
        return lease

    @property
    def holder(self) -> LockHolder:
        """What others are told about us."""
        return self._holder

    @property
    def tenure(self) -> Tenure:
        """The lock below."""
        return self._tenure

    def check(self) -> None:
        """Raise `LockLostError` unless the lock is surely still ours."""
        self._demand_time()
        try:
            ours = self._tenure.confirm()
        except LakewrightError as error:
            self._raise(f"it cannot be told whether it is still ours ({error.message})", error)
        if not ours:
            self._lose(_TAKEN)
        self._demand_time()

    def renew(self) -> bool:
        """Prolong the lock now; whether it is still ours as far as this side knows."""
        begun_s = self._clock.monotonic_s()
        if self._active and not self._in_time(begun_s):
            self._lose(_LATE)
        if not self._active:
            return False
        try:
            extended = self._tenure.extend()
        except LakewrightError:
            return True  # tried again at the next look, for as long as there is time left
        if extended:
            self._renewed_s = begun_s
        else:
            self._lose(_TAKEN)
        return extended

    def release(self) -> None:
        """Give the lock back; again, or after it was lost, does nothing."""
        if self._released:
            return
        self._released = True
        try:
            self._tenure.free(
                in_time=lambda: not self._lost and self._in_time(self._clock.monotonic_s())
            )
        except LakewrightError:
            self._released = False
            self._lose("it was being given back")
            raise

    def _keep_alive(self) -> None:
        look_s = min(_LOOK_S_MAX, self._pace.renew_s / _LOOKS_PER_RENEWAL)
        while True:
            self._clock.sleep(look_s)
            if not self._active:
                return
            if self._clock.monotonic_s() >= self._renewed_s + self._pace.renew_s:
                self.renew()

    @property
    def _active(self) -> bool:
        return not self._released and not self._lost

    def _lose(self, reason: str) -> None:
        self._lost = self._lost or reason

    def _in_time(self, now_s: float) -> bool:
        valid_s = self._pace.valid_s
        return valid_s is None or now_s < self._renewed_s + valid_s

    def _demand_time(self) -> None:
        if self._released:
            self._raise("it was given back before")
        if not self._in_time(self._clock.monotonic_s()):
            self._lose(_LATE)
        if self._lost:
            self._raise(self._lost)

    def _raise(self, reason: str, cause: LakewrightError | None = None) -> NoReturn:
        raise LockLostError(
            f"The lock must not be relied upon: {reason}.",
            hint="Nothing was published; run it again. If this happens often, raise the lock's "
            "validity, or look why the process stood still.",
            context={"lock": self._holder.place, "holder": self._holder.who},
            retryable=True,
        ) from cause
