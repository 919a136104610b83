"""Rolling back a pending write: scheduled under the lock, executed outside it, finished under it.

At most one rollback per target is ever pending: scheduling finds the one that is there. One process
executes it at a time, by a heartbeat of its own that is started under the lock; a process that dies
leaves everything to the next one, which repeats deletions that are harmless to repeat. The target's
state files go last, so its data files are never visible as committed.

What can go wrong: a file that cannot be deleted fails the rollback, which stays pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from lakewright.errors import ConflictError
from lakewright.format.instant import Instant, State
from lakewright.format.records import RollbackMetadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.runtime.events import Event
from lakewright.txn.access import Access
from lakewright.txn.fence import close_fence, open_fence, remove_fence
from lakewright.txn.heartbeat import Heartbeat, stop_heartbeat
from lakewright.txn.liveness import is_alive
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.markers import Marker, delete_markers
from lakewright.txn.metadata_rollback import follow_rollback
from lakewright.txn.pending_rollbacks import (
    ROLLBACK,
    PendingRollback,
    pending_rollbacks,
    rollbacks_by_target,
)
from lakewright.txn.rollback_plan import plan_rollback
from lakewright.txn.stranded_logs import delete_stranded_logs
from lakewright.txn.times import next_time
from lakewright.txn.undoing import undo

__all__ = [
    "ROLLBACK",
    "PendingRollback",
    "execute_rollback",
    "pending_rollbacks",
    "rollbacks_by_target",
    "schedule_rollback",
]

# ---- scheduling, under the lock ----------------------------------------------------------------


def schedule_rollback(
    access: Access,
    lease: Lease,
    properties: TableProperties,
    timeline: Timeline,
    target: Instant,
    *,
    markers: Sequence[Marker] | None = None,
    whole_slices: bool = False,
) -> PendingRollback:
    """Plan the rollback of a pending write; the caller holds `lease` and has listed `timeline`.

    The caller has also made sure that nobody works on the target any more. `markers` and
    `whole_slices` are those of `plan_rollback`.
    """
    close_fence(access.storage, target.requested_time)
    plan = plan_rollback(
        access.storage, properties, target, markers=markers, whole_slices=whole_slices
    )
    instant = next_time(timeline, properties, access.clock)
    lease.check()
    access.files(properties).request(instant, ROLLBACK, plan.write(properties.version))
    return PendingRollback(instant, plan)


# ---- executing ---------------------------------------------------------------------------------


def execute_rollback(
    access: Access, rollback: PendingRollback, *, keeps_plan: bool = False
) -> RollbackMetadata | None:
    """Undo what the plan says and finish; None if somebody else does it or has done it.

    With `keeps_plan` the target is a plan of the caller, who executes it again: it stays requested,
    and so does the caller's sign of life. Its markers stay too: by them the commit of the next
    attempt finds what a task of this one publishes late.
    """
    heartbeat = _claim(access, rollback)
    if heartbeat is None:
        return None
    try:
        undone = undo(access, access.properties(), rollback, heartbeat)
        metadata = _finish(access, rollback, undone, heartbeat, keeps_plan=keeps_plan)
        if metadata is None:
            return None
    finally:
        if heartbeat.leave():  # otherwise both may be those of whoever took over
            remove_fence(access.storage, rollback.instant)
    target = rollback.target.commit_time
    delete_markers(access.storage, rollback.instant)
    if not keeps_plan:
        delete_markers(access.storage, target)
        stop_heartbeat(access.storage, target)
        remove_fence(access.storage, target)
    deleted = metadata.total_files_deleted
    access.on_event(Event("rollback.done", deleted, unit="files", instant=target))
    return metadata


def _claim(access: Access, rollback: PendingRollback) -> Heartbeat | None:
    """Make this process the one that executes the rollback."""
    with ExitStack() as failing, access.locked(f"rollback {rollback.instant}") as lease:
        properties = access.properties()
        found = access.timeline(properties).get(rollback.instant, ROLLBACK)
        if found is None or found.completed or is_alive(access, rollback.instant):
            return None
        lease.check()
        # First the process, then its sign of life: an earlier owner that is known to be dead must
        # not make this one look dead.
        open_fence(access.storage, rollback.instant, access.processes.own)
        lease.check()
        heartbeat = Heartbeat.start(
            access.storage,
            rollback.instant,
            access.heartbeat,
            clock=access.clock,
            spawner=access.spawner,
        )
        failing.push(heartbeat.after_failure)
        if found.state is State.REQUESTED:
            access.files(properties).start(rollback.instant, ROLLBACK)
        close_fence(access.storage, rollback.target.commit_time)
        return heartbeat


def _finish(
    access: Access,
    rollback: PendingRollback,
    metadata: RollbackMetadata,
    heartbeat: Heartbeat,
    *,
    keeps_plan: bool,
) -> RollbackMetadata | None:
    """Take the target off the timeline and complete the rollback, under the lock; None if somebody
    else has."""
    with access.locked(f"rollback {rollback.instant}") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        found = timeline.get(rollback.instant, ROLLBACK)
        if found is None or found.completed:
            return None
        target = timeline.get(rollback.target.commit_time, rollback.target.action)
        if target is not None and target.completed:
            raise ConflictError(
                f"The write {target.requested_time} was committed while it was rolled back.",
                hint="Two writers do not share one lock. Look at the timeline before going on: "
                "its files are gone.",
                context={"instant": target.requested_time, "rollback": rollback.instant},
            )
        heartbeat.check()
        lease.check()
        if not keeps_plan:
            storage = access.storage
            metadata = delete_stranded_logs(storage, properties, timeline, rollback, metadata)
        latest = follow_rollback(access, lease, properties, timeline, rollback, metadata)
        after = max(rollback.instant, latest or "")
        completed = next_time(timeline, properties, access.clock, after=after)
        access.clock.sleep(access.skew_s())
        heartbeat.check()
        lease.check()
        files = access.files(properties)
        if target is not None and keeps_plan:
            files.withdraw(target.requested_time, target.action)
        elif target is not None:
            files.remove(target.requested_time, target.action)
        lease.check()
        content = metadata.write(properties.version)
        files.complete(rollback.instant, ROLLBACK, content, completed)
        return metadata
