"""Rolling back one instant by name: a write that failed, an attempt at a plan, the newest commit.

Everything that may forbid it is looked at without the lock, and is known to hold under it if the
timeline is still the same; otherwise it is looked at again. Under the lock a completed write is
turned back into a failed one, and its rollback is scheduled; from the moment its completed file is
gone, readers see the state before it, whole. Files are deleted without the lock. A process that
dies leaves a failed write, and perhaps its rollback, to the next one: a write is finished by any
other writer, a plan by whoever executes it or rolls it back again.

Taking a plan away is one more step, under the lock: its request is removed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from lakewright.engine.index_building import bring_back
from lakewright.errors import ConflictError, PlanBusyError
from lakewright.format.instant import State
from lakewright.format.records import (
    RollbackMetadata,
    load_rollback_metadata,
)
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.batch import indexes_of
from lakewright.services.rollback_checks import Becomes, RollbackFacts, decide
from lakewright.services.rollback_facts import Seen, look, workers
from lakewright.txn.access import Access
from lakewright.txn.fence import remove_fence
from lakewright.txn.heartbeat import stop_heartbeat
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.markers import create_missing, delete_markers
from lakewright.txn.metadata_gate import pass_metadata_gate
from lakewright.txn.rollback import (
    ROLLBACK,
    PendingRollback,
    execute_rollback,
    schedule_rollback,
)
from lakewright.txn.unpublish import markers_of, unpublish

__all__ = ["RollbackDraft", "RolledBack", "executed", "plan_rollback_of", "roll_back_instant"]

TRIES: Final = 5
"""How often others may change the timeline between the look at it and the lock."""


@dataclass(frozen=True, slots=True)
class RollbackDraft:
    """What a rollback would do."""

    instant: str
    action: str
    state: str
    becomes: Becomes
    files: tuple[str, ...]
    """Data files that would be deleted."""
    command_blocks: int
    """File groups of version 6 in which blocks would be cancelled."""
    rollback: str | None = None
    """The rollback that is on the timeline already, and would be finished."""

    def to_dict(self) -> dict[str, object]:
        """As plain values."""
        return {
            "instant": self.instant,
            "action": self.action,
            "state": self.state,
            "becomes": self.becomes.value,
            "rollback": self.rollback,
            "files": list(self.files),
            "command_blocks": self.command_blocks,
        }


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What a rollback did."""

    instant: str
    action: str
    becomes: Becomes
    rollback: str | None
    """The rollback on the timeline; None if only a plan was taken away that was not begun."""
    files_deleted: int = 0
    command_blocks: int = 0

    def to_dict(self) -> dict[str, object]:
        """As plain values."""
        return {
            "instant": self.instant,
            "action": self.action,
            "becomes": self.becomes.value,
            "rollback": self.rollback,
            "files_deleted": self.files_deleted,
            "command_blocks": self.command_blocks,
        }


def plan_rollback_of(access: Access, instant: str, *, unschedule: bool = False) -> RollbackDraft:
    """What `roll_back_instant` would do now; raises what it would raise, and changes nothing."""
    seen = look(access, instant, unschedule=unschedule)
    plan = seen.plan(access)
    requests = plan.rollback_requests or ()
    return RollbackDraft(
        instant,
        seen.facts.target.action,
        seen.facts.target.state.name,
        decide(seen.facts),
        tuple(path for request in requests for path in request.files_to_be_deleted),
        sum(bool(request.log_blocks_to_be_deleted) for request in requests),
        seen.rollback.instant if seen.rollback is not None else None,
    )


def roll_back_instant(
    access: Access,
    instant: str,
    *,
    unschedule: bool = False,
    drop_metadata_table: bool = False,
    registry: MergerRegistry | None = None,
) -> RolledBack:
    """Roll back one instant; with `unschedule` the plan that it is, or was, goes too.

    Raises `InstantNotFoundError` if there is no such instant, `ConflictError` if somebody works on
    it or on what was built on it, `ServiceError` where something has to be undone first.
    """
    pass_metadata_gate(access, drop=drop_metadata_table)
    rollback, facts = _scheduled(access, instant, unschedule=unschedule)
    done = RolledBack(instant, facts.target.action, decide(facts), None)
    if rollback is not None:
        metadata = executed(access, rollback, keeps_plan=facts.runs_again)
        done = _told(done, rollback, metadata)
    if not indexes_of(access.properties()):  # perhaps it could not follow
        bring_back(access, registry or MergerRegistry())
    if facts.runs_again and unschedule:
        _take_plan_away(access, instant)
    return done


def executed(
    access: Access, rollback: PendingRollback, *, keeps_plan: bool = False
) -> RollbackMetadata:
    """Execute a rollback; `PlanBusyError` if another process is at it."""
    metadata = execute_rollback(access, rollback, keeps_plan=keeps_plan)
    if metadata is not None:
        return metadata
    properties = access.properties()
    found = access.timeline(properties).get(rollback.instant, ROLLBACK)
    if found is not None and found.completed:
        return load_rollback_metadata(access.storage, properties, found)
    raise PlanBusyError(
        f"Another process executes the rollback {rollback.instant} of "
        f"{rollback.target.commit_time}.",
        hint="Try again when it is completed, or when the heartbeat of that process has expired.",
        context={"instant": rollback.target.commit_time, "rollback": rollback.instant},
        retryable=True,
    )


def _told(done: RolledBack, rollback: PendingRollback, metadata: RollbackMetadata) -> RolledBack:
    partitions = metadata.partition_metadata.values()
    return replace(
        done,
        rollback=rollback.instant,
        files_deleted=metadata.total_files_deleted,
        command_blocks=sum(len(p.rollback_log_files or ()) for p in partitions),
    )


# ---- under the lock ----------------------------------------------------------------------------


def _scheduled(
    access: Access, instant: str, *, unschedule: bool
) -> tuple[PendingRollback | None, RollbackFacts]:
    """The rollback of the instant on the timeline; None if there is nothing to roll back."""
    for _ in range(TRIES):
        seen = look(access, instant, unschedule=unschedule)
        decide(seen.facts)
        if seen.metadata is not None:  # most of the markers, before the lock is taken
            markers = markers_of(seen.properties, seen.facts.target, seen.metadata)
            create_missing(access.storage, instant, markers)
        with access.locked(f"rollback of {instant}") as lease:
            timeline = access.timeline(seen.properties)
            if timeline != seen.timeline or access.properties() != seen.properties:
                continue
            facts = replace(seen.facts, workers=workers(access, timeline, instant))
            decide(facts)
            rollback = seen.rollback
            if rollback is None and _has_begun(facts):
                rollback = _schedule(access, lease, seen)
            return rollback, facts
    raise ConflictError(
        f"The timeline changed again and again while {instant} was to be rolled back.",
        hint="Others are writing; run it again when it is calmer.",
        context={"instant": instant, "tries": TRIES},
        retryable=True,
    )


def _has_begun(facts: RollbackFacts) -> bool:
    """Whether there is anything to undo: a plan that was not begun only goes."""
    return not facts.runs_again or facts.target.state is not State.REQUESTED


def _schedule(access: Access, lease: Lease, seen: Seen) -> PendingRollback:
    target, markers = seen.facts.target, None
    if target.completed:
        target, markers = unpublish(access, lease, seen.properties, target)
    rollback = schedule_rollback(
        access, lease, seen.properties, seen.timeline, target, markers=markers
    )
    access.clock.sleep(access.skew_s())
    return rollback


def _take_plan_away(access: Access, instant: str) -> None:
    """Remove the request of a plan of which nothing is left, if it may still go."""
    with access.locked(f"removal of the plan {instant}") as lease:
        properties = access.properties()
        found = access.timeline(properties).get(instant)
        if found is None:
            return
        facts = look(access, instant, unschedule=True).facts
        decide(facts)
        if found.state is not State.REQUESTED or facts.rolling_back:
            raise ConflictError(
                f"The plan {instant} was begun again meanwhile.",
                hint="Look at the timeline, and roll it back again.",
                context={"instant": instant},
                retryable=True,
            )
        lease.check()
        access.files(properties).remove(instant, found.action)
        delete_markers(access.storage, instant)
        stop_heartbeat(access.storage, instant)
        remove_fence(access.storage, instant)
