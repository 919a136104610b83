"""Executing a plan so that any number of processes may try, die and try again (RFC-79).

`executing` is the whole way of one attempt. Under the lock, with the timeline read anew, it refuses
a plan that is completed or gone, one that somebody else works on, and a removable one that was
begun or is being rolled back; then it gives its own sign of life and only then gives the lock back.
What an earlier attempt left of any other plan is rolled back to the plan, under this attempt's
heartbeat. The plan becomes inflight, files are written behind a fence of this attempt alone, and
the commit, under the lock again, asks everything once more: still inflight, not rolled back, still
this attempt's, heartbeat alive.

A process that dies leaves a heartbeat that expires, or that is known to be dead at once where its
process is; the next attempt takes over. One that stalls and wakes up finds its fence taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from lakewright.errors import (
    CorruptFileError,
    FencedError,
    LakewrightError,
    NotFoundError,
    PlanBusyError,
    PlanStateError,
)
from lakewright.format.instant import Instant, State
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.index_changes import Indexing, nothing_indexed
from lakewright.runtime.events import Event
from lakewright.txn.access import Access
from lakewright.txn.fence import Fence, claim_fence, open_fence
from lakewright.txn.heartbeat import Heartbeat
from lakewright.txn.liveness import is_alive
from lakewright.txn.plan_kinds import PlanKind, is_removable, plan_kind
from lakewright.txn.restoring import refuse_restore
from lakewright.txn.rollback import (
    PendingRollback,
    execute_rollback,
    pending_rollbacks,
    schedule_rollback,
)
from lakewright.txn.transaction import Committed, Prepared, Transaction

__all__ = ["Execution", "executing"]


@dataclass(frozen=True, slots=True)
class _Claim:
    """A plan that this process works on from now on."""

    properties: TableProperties
    instant: Instant
    kind: PlanKind
    heartbeat: Heartbeat


class Execution:
    """An attempt at a plan, inflight."""

    def __init__(self, access: Access, claim: _Claim) -> None:
        self._access = access
        self._claim = claim
        self._transaction = Transaction(
            access,
            claim.properties,
            claim.instant.requested_time,
            claim.instant.action,
            claim.heartbeat,
            attempt=access.random.token_hex(8),
            completes_as=claim.kind.completed,
        )

    @property
    def instant(self) -> str:
        """The time of the plan."""
        return self._transaction.instant

    @property
    def kind(self) -> PlanKind:
        """What kind of plan it is."""
        return self._claim.kind

    @property
    def fence(self) -> Fence:
        """What every task asks before it publishes a file."""
        return self._transaction.fence

    def start(self) -> None:
        """Become inflight, after the remains of earlier attempts are gone."""
        self._roll_back_earlier()
        access, properties = self._access, self._claim.properties
        with access.locked(f"start of {self.kind.service} {self.instant}") as lease:
            timeline = access.timeline(properties)
            _refuse_over(timeline, self.instant, self.kind)
            refuse_restore(timeline, "executed")
            if self.instant in pending_rollbacks(access, properties, timeline):
                raise self._fenced("is being rolled back")
            lease.check()
            open_fence(access.storage, self.instant, access.processes.own, self.fence.attempt)
            self._claim.heartbeat.check()
            lease.check()
            files = access.files(properties)
            files.start(self.instant, self._transaction.action)
            plan = files.path(self.instant, self._transaction.action, State.REQUESTED)
            if not access.storage.exists(plan):
                # The lock was lost on the way, and somebody took the plan away.
                access.storage.delete(self.fence.pending_path)
                raise self._fenced("was taken away")

    def _fenced(self, what: str) -> FencedError:
        return FencedError(
            f"The {self.kind.service} {self.instant} {what} while it was begun.",
            hint="Another process took this one for dead; nothing was done. Execute the plan again "
            "if it is still there, or schedule a new one.",
            context={"instant": self.instant},
            retryable=True,
        )

    def plan_on(self, timeline: Timeline) -> Instant:
        """The plan as a timeline has it; `PlanStateError` if somebody took it away meanwhile."""
        return _refuse_over(timeline, self.instant, self.kind)

    def commit(self, prepared: Prepared, indexing: Indexing = nothing_indexed) -> Committed:
        """Publish what the attempt did; `FencedError` if the plan is not this attempt's any more.

        No task of the attempt may still be writing.
        """
        return self._transaction.commit(prepared, indexing)

    def _roll_back_earlier(self) -> None:
        access, properties = self._access, self._claim.properties
        with access.locked(f"rollback of {self.kind.service} {self.instant}") as lease:
            timeline = access.timeline(properties)
            found = _refuse_over(timeline, self.instant, self.kind)
            self._claim.heartbeat.check()  # or what is found may be of one that took over
            known = pending_rollbacks(access, properties, timeline).get(self.instant)
            rollback: PendingRollback | None = known
            if rollback is None and found.state is State.INFLIGHT:
                rollback = schedule_rollback(access, lease, properties, timeline, found)
                access.clock.sleep(access.skew_s())
        if rollback is None:
            return
        access.on_event(Event("execution.rolls_back", 1, unit="attempts", instant=self.instant))
        if execute_rollback(access, rollback, keeps_plan=True) is None:
            raise PlanBusyError(
                f"The rollback {rollback.instant} of the {self.kind.service} {self.instant} is "
                "executed by another process.",
                hint="Try again when it is completed.",
                context={"instant": self.instant, "rollback": rollback.instant},
                retryable=True,
            )


@contextmanager
def executing(access: Access, instant: str, kind: PlanKind) -> Iterator[Execution]:
    """Work on a plan of a kind; an error inside leaves it to the next attempt.

    Raises `PlanBusyError` if another process works on it, `PlanStateError` if it cannot be executed
    as it stands, or is of another kind.
    """
    claim = _claimed(access, instant, kind)
    try:
        execution = Execution(access, claim)
        execution.start()
        yield execution
    except (NotFoundError, CorruptFileError):
        claim.heartbeat.check()  # another attempt may be done, and what this one reads be cleaned
        raise
    finally:
        with suppress(LakewrightError):
            claim.heartbeat.leave()


def _claimed(access: Access, instant: str, kind: PlanKind) -> _Claim:
    """Make this process the one that works on a plan."""
    with ExitStack() as failing, access.locked(f"execution of {instant}") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        refuse_restore(timeline, "executed")
        found = _pending_plan(access, properties, timeline, instant, kind)
        if is_alive(access, instant):
            raise PlanBusyError(
                f"Another process works on the {kind.service} {instant}.",
                hint="Let it finish; if it is dead, its heartbeat expires and the plan can be "
                "executed again.",
                context={"instant": instant, "table": access.storage.uri},
                retryable=True,
            )
        if is_removable(access.storage, properties, found, kind):
            _refuse_begun(access, properties, timeline, found, kind)
        lease.check()
        # First the process, then its sign of life: an attempt whose process is known to be dead
        # must not make this one look dead.
        claim_fence(access.storage, instant, access.processes.own)
        lease.check()
        heartbeat = Heartbeat.start(
            access.storage,
            instant,
            access.heartbeat,
            clock=access.clock,
            spawner=access.spawner,
        )
        failing.push(heartbeat.after_failure)
        return _Claim(properties, found, kind, heartbeat)


def _pending_plan(
    access: Access,
    properties: TableProperties,
    timeline: Timeline,
    instant: str,
    wanted: PlanKind,
) -> Instant:
    found = timeline.get(instant)
    if found is None:
        raise PlanStateError(
            f"There is no plan {instant}.",
            hint="It was rolled back, or never scheduled; look at the pending instants of the "
            "timeline.",
            context={"instant": instant, "table": access.storage.uri},
        )
    if found.completed:
        raise _completed(found, "plan")
    kind = plan_kind(access.storage, properties, found)
    if kind is None:
        raise PlanStateError(
            f"The {found.action} {instant} is no plan that can be executed.",
            hint="It is a write of somebody; if its process is dead it is rolled back, not "
            "executed.",
            context={"instant": instant, "action": found.action},
        )
    if kind is not wanted:
        raise PlanStateError(
            f"{instant} is a {kind.service}, not a {wanted.service}.",
            hint="Execute it by the service it belongs to.",
            context={"instant": instant, "action": found.action},
        )
    return found


def _refuse_begun(
    access: Access,
    properties: TableProperties,
    timeline: Timeline,
    found: Instant,
    kind: PlanKind,
) -> None:
    instant = found.requested_time
    begun = found.state is State.INFLIGHT
    if not begun and instant not in pending_rollbacks(access, properties, timeline):
        return
    raise PlanStateError(
        f"The {kind.service} {instant} {'was begun' if begun else 'is being rolled back'}: "
        "a removable plan is rolled back then, and never executed again.",
        hint="Cleaning removes it when it is old enough (table_service_rollback_delay); schedule a "
        "new one after that.",
        context={"instant": instant, "state": found.state.name},
    )


def _refuse_over(timeline: Timeline, instant: str, kind: PlanKind) -> Instant:
    """The plan as it is now; `PlanStateError` if it was completed or has gone meanwhile."""
    found = timeline.get(instant)
    if found is None:
        raise PlanStateError(
            f"The {kind.service} {instant} is not on the timeline any more.",
            hint="Another process removed it; look at its rollback on the timeline.",
            context={"instant": instant},
        )
    if found.completed:
        raise _completed(found, kind.service)
    return found


def _completed(found: Instant, service: str) -> PlanStateError:
    return PlanStateError(
        f"The {service} {found.requested_time} is completed.",
        hint="There is nothing left to do.",
        context={"instant": found.requested_time, "completed": found.completion_time or ""},
    )
