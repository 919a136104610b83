"""Waiting for a lock: bounded, told about, cancellable; and leases that end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakewright.errors import (
    CancelledError,
    LockHeldError,
    LockLostError,
    StorageDeniedError,
    StorageUnavailableError,
)
from lakewright.runtime import CancelToken, Event, ManualClock, SeededRandom
from lakewright.txn.locks.in_process import InProcessLock, Registry
from lakewright.txn.locks.protocol import Lease, LockHolder, acquire
from lakewright.txn.locks.renewed import Pace, RenewedLease
from tests.txn.locks.contention import busy, obtained


def test_a_held_lock_is_waited_for_no_longer_than_asked_and_its_holder_is_named() -> None:
    clock = ManualClock()
    lock = InProcessLock("s3://bucket/table/", clock=clock, registry=Registry())
    lock.try_acquire("the first")
    heard: list[Event] = []
    with pytest.raises(LockHeldError) as caught:
        acquire(
            lock,
            "the second",
            wait_s=30,
            clock=clock,
            random=SeededRandom(1),
            on_event=heard.append,
        )
    assert sum(clock.slept_s) == pytest.approx(30)
    assert "the first since 2023-11-14 22:13:20 UTC" in str(caught.value)
    assert caught.value.context["holder"] == "the first"
    assert caught.value.context["lock"] == "in-process lock of s3://bucket/table"
    assert {event.kind for event in heard} == {"lock.wait"}
    assert heard[-1].total == 30_000 and heard[-1].unit == "ms"


def test_a_lock_that_becomes_free_is_obtained_while_waiting() -> None:
    clock = ManualClock()
    lock = InProcessLock("t", clock=clock, registry=Registry())
    first = obtained(lock.try_acquire("the first"))

    def free_later(event: Event) -> None:
        if event.done > 1000:
            first.release()

    lease = acquire(
        lock, "the second", wait_s=30, clock=clock, random=SeededRandom(1), on_event=free_later
    )
    lease.check()
    with pytest.raises(LockLostError):
        first.check()
    first.release()
    lease.check()


def test_no_waiting_means_one_attempt() -> None:
    clock = ManualClock()
    lock = InProcessLock("t", clock=clock, registry=Registry())
    lock.try_acquire("the first")
    with pytest.raises(LockHeldError):
        acquire(lock, "the second", wait_s=0, clock=clock, random=SeededRandom(1))
    assert clock.slept_s == []


def test_cancelling_ends_the_waiting() -> None:
    clock = ManualClock()
    lock = InProcessLock("t", clock=clock, registry=Registry())
    lock.try_acquire("the first")
    cancel = CancelToken()
    with pytest.raises(CancelledError):
        acquire(
            lock,
            "the second",
            wait_s=3600,
            clock=clock,
            random=SeededRandom(1),
            cancel=cancel,
            on_event=lambda event: cancel.cancel() if event.done > 5000 else None,
        )
    assert sum(clock.slept_s) < 60


class Broken:
    """A lock whose infrastructure fails some times before it works."""

    place = "broken lock"
    shared = True

    def __init__(self, failures: int, error: type[Exception]) -> None:
        self.failures = failures
        self.error = error

    def try_acquire(self, who: str) -> Lease | LockHolder:
        """Fail, or be busy."""
        self.failures -= 1
        if self.failures < 0:
            return LockHolder("somebody", None, self.place)
        raise self.error(
            "no answer",
            hint="try again",
            retryable=self.error is StorageUnavailableError,
        )


def test_passing_failures_are_waited_out_and_final_ones_are_not() -> None:
    clock = ManualClock()
    with pytest.raises(LockHeldError):
        acquire(
            Broken(3, StorageUnavailableError),
            "me",
            wait_s=10,
            clock=clock,
            random=SeededRandom(1),
        )
    with pytest.raises(StorageUnavailableError):
        acquire(
            Broken(10**6, StorageUnavailableError),
            "me",
            wait_s=10,
            clock=clock,
            random=SeededRandom(1),
        )
    with pytest.raises(StorageDeniedError):
        acquire(Broken(1, StorageDeniedError), "me", wait_s=10, clock=clock, random=SeededRandom(1))


class Recorded:
    """A tenure that does as it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ours = True
        self.fails = False

    def _answer(self, call: str) -> bool:
        self.calls.append(call)
        if self.fails:
            raise StorageUnavailableError("no answer", hint="try again", retryable=True)
        return self.ours

    def extend(self) -> bool:
        """Renewed, unless told otherwise."""
        return self._answer("extend")

    def confirm(self) -> bool:
        """Ours, unless told otherwise."""
        return self._answer("confirm")

    def free(self, *, in_time: Callable[[], bool]) -> None:
        """Freed."""
        self._answer(f"free {in_time()}")


def _lease(clock: ManualClock, tenure: Recorded, valid_s: float | None = 60.0) -> RenewedLease:
    holder = LockHolder("me", 0, "somewhere")
    return RenewedLease(holder, tenure, Pace(valid_s, 10.0), begun_s=0.0, clock=clock)


def test_a_lease_is_lost_when_its_time_is_over_and_is_never_renewed_again() -> None:
    clock, tenure = ManualClock(), Recorded()
    lease = _lease(clock, tenure)
    clock.advance(50)
    assert lease.renew()
    clock.advance(59)
    lease.check()
    clock.advance(2)
    assert not lease.renew()
    with pytest.raises(LockLostError, match="not renewed in time"):
        lease.check()
    assert tenure.calls == ["extend", "confirm"]
    lease.release()
    assert tenure.calls[-1] == "free False"


def test_a_lease_that_somebody_took_is_lost_for_good() -> None:
    clock, tenure = ManualClock(), Recorded()
    lease = _lease(clock, tenure, valid_s=None)
    tenure.ours = False
    assert not lease.renew()
    tenure.ours = True
    assert not lease.renew()
    with pytest.raises(LockLostError):
        lease.check()


def test_an_unanswered_check_does_not_let_anything_be_published_but_loses_nothing() -> None:
    clock, tenure = ManualClock(), Recorded()
    lease = _lease(clock, tenure)
    tenure.fails = True
    assert lease.renew(), "tried again later"
    with pytest.raises(LockLostError, match="cannot be told"):
        lease.check()
    tenure.fails = False
    lease.check()


def test_release_is_final_and_happens_once_but_a_failed_one_can_be_repeated() -> None:
    clock, tenure = ManualClock(), Recorded()
    lease = _lease(clock, tenure)
    tenure.fails = True
    with pytest.raises(StorageUnavailableError):
        lease.release()
    tenure.fails = False
    with pytest.raises(LockLostError):
        lease.check()
    lease.release()
    lease.release()
    assert tenure.calls == ["free True", "free False"]
    with pytest.raises(LockLostError, match="given back"):
        lease.check()


class TickingClock(ManualClock):
    """A clock on which background work ends the test's lease after a while."""

    def __init__(self, lease_ends: list[RenewedLease], after: int) -> None:
        super().__init__()
        self._ends = lease_ends
        self._left = after

    def sleep(self, seconds: float) -> None:
        """Let time pass, and release the lease in the end."""
        super().sleep(seconds)
        self._left -= 1
        if self._left == 0:
            self._ends[0].release()


def test_the_background_renews_at_its_pace_and_ends_with_the_release() -> None:
    leases: list[RenewedLease] = []
    tenure = Recorded()
    clock = TickingClock(leases, after=61)
    leases.append(_lease(clock, tenure))
    leases[0]._keep_alive()
    assert tenure.calls == ["extend"] * 3 + ["free True"]


def test_other_tables_have_other_locks() -> None:
    registry = Registry()
    first = obtained(InProcessLock("/a", registry=registry).try_acquire("me"))
    obtained(InProcessLock("/b", registry=registry).try_acquire("me"))
    assert busy(InProcessLock("/a/", registry=registry).try_acquire("you")) == first.holder
