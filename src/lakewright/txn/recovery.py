"""Cleaning up after dead writers: their pending writes, and the traces of writes that are over.

In two steps, so that no lock is held while files are deleted: all rollbacks are scheduled in one
lock section, which also decides who is dead, then each is executed outside it. Plans that are
executed again are left alone, and so are rollbacks of them, which belong to their executor.
Removable plans go when they are old enough and nobody works on them. While a restore is pending
everything is left to it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from lakewright.errors import NotFoundError
from lakewright.format.instant import Instant
from lakewright.format.instant_times import time_ms
from lakewright.format.own_files import FENCE_FOLDER, OUTCOME_FOLDER, UNFINISHED_FOLDER
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage
from lakewright.txn.access import Access
from lakewright.txn.fence import owner_of, remove_fence
from lakewright.txn.heartbeat import HEARTBEAT_FOLDER, heartbeat_alive, stop_heartbeat
from lakewright.txn.liveness import is_alive
from lakewright.txn.markers import MARKER_FOLDER, delete_markers
from lakewright.txn.plan_kinds import is_removable, plan_kind
from lakewright.txn.restoring import pending_restore
from lakewright.txn.rollback import (
    PendingRollback,
    execute_rollback,
    pending_rollbacks,
    schedule_rollback,
)

__all__ = [
    "Recovered",
    "failed_writes",
    "left_over",
    "roll_back",
    "roll_back_failed",
    "sweep_traces",
]

INGESTION = frozenset({"commit", "deltacommit", "replacecommit"})
"""Actions of writes, as opposed to plans that are executed again."""
PENDING = INGESTION | {"logcompaction", "clustering"}
"""Actions that may be rolled back for good while they are pending."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was cleaned up."""

    rolled_back: tuple[str, ...] = ()
    """Times of the writes that were rolled back by this process."""


def failed_writes(access: Access, properties: TableProperties, timeline: Timeline) -> list[Instant]:
    """Pending writes, and removable plans, that nobody works on any more, newest first."""
    pending = timeline.filter(lambda i: i.action in PENDING and not i.completed)
    return [
        instant
        for instant in reversed(pending.instants)
        if _may_go(access, properties, instant) and not is_alive(access, instant.requested_time)
    ]


def _may_go(access: Access, properties: TableProperties, instant: Instant) -> bool:
    """Whether a pending instant is rolled back for good, once nobody works on it."""
    kind = plan_kind(access.storage, properties, instant)
    if kind is None:
        return True
    if not is_removable(access.storage, properties, instant, kind):
        return False
    requested_ms = time_ms(instant.requested_time, zone=properties.timeline_zone)
    age_ms = None if requested_ms is None else access.clock.now_ms() - requested_ms
    return age_ms is not None and age_ms >= access.rollback_delay_ms


def _is_ours(
    access: Access, properties: TableProperties, timeline: Timeline, rollback: PendingRollback
) -> bool:
    """Whether a pending rollback may be executed here.

    Not one that belongs to the executor of its target, and not one whose target was committed: its
    files are the table's.
    """
    target = timeline.get(rollback.target.commit_time, rollback.target.action)
    if target is None:
        return True  # only the end of the rollback is missing
    if target.completed:
        return False
    kind = plan_kind(access.storage, properties, target)
    if kind is not None and not is_removable(access.storage, properties, target, kind):
        return False
    return not is_alive(access, target.requested_time)


def roll_back_failed(access: Access) -> Recovered:
    """Roll back every write of a dead process, and finish rollbacks that were not finished."""
    if not _anything_pending(access):
        return Recovered()
    with access.locked("scheduling of rollbacks") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        if pending_restore(timeline) is not None:
            return Recovered()
        known = pending_rollbacks(access, properties, timeline)
        scheduled = [r for r in known.values() if _is_ours(access, properties, timeline, r)]
        failed = failed_writes(access, properties, timeline)
        new = [target for target in failed if target.requested_time not in known]
        for target in new:
            scheduled.append(schedule_rollback(access, lease, properties, timeline, target))
            timeline = access.timeline(properties)
        if new:
            access.clock.sleep(access.skew_s())
    return _execute(access, scheduled)


def roll_back(access: Access, target: str) -> Recovered:
    """Roll back one pending write, whose process has given it up."""
    with access.locked(f"rollback of {target}") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        scheduled = pending_rollbacks(access, properties, timeline).get(target)
        if scheduled is None:
            found = timeline.filter(
                lambda i: i.requested_time == target and i.action in INGESTION and not i.completed
            ).first()
            if found is None:
                return Recovered()
            scheduled = schedule_rollback(access, lease, properties, timeline, found)
            access.clock.sleep(access.skew_s())
    return _execute(access, [scheduled])


def _execute(access: Access, scheduled: list[PendingRollback]) -> Recovered:
    newest_first = sorted(scheduled, key=lambda r: r.target.commit_time, reverse=True)
    done = [r for r in newest_first if execute_rollback(access, r) is not None]
    return Recovered(tuple(r.target.commit_time for r in done))


def _anything_pending(access: Access) -> bool:
    """Whether a lock is worth taking."""
    pending = access.timeline(access.properties()).pending()
    return any(i.action in PENDING or i.action == "rollback" for i in pending)


# ---- traces of writes that are over ------------------------------------------------------------


def sweep_traces(access: Access) -> int:
    """Remove heartbeats, fences and markers of writes that are over; how many writes left some.

    Our writes leave their first trace under the lock and are on the timeline when they give it
    back; so what the lock's holder finds of ours that is not pending is over. Others may begin
    without the lock, by a heartbeat: one that beats is left alone. Unfinished files of dead
    processes go as well.
    """
    storage, properties = access.storage, access.properties()
    storage.sweep(UNFINISHED_FOLDER)
    if not left_over(access, properties):
        return 0
    with access.locked("sweeping of traces") as lease:
        over = left_over(access, properties)
        for instant in over:
            lease.check()
            stop_heartbeat(storage, instant)
            delete_markers(storage, instant)
            storage.delete_tree(f"{OUTCOME_FOLDER}/{instant}")
            remove_fence(storage, instant)
    return len(over)


def left_over(access: Access, properties: TableProperties) -> list[str]:
    """Times of writes that are over and have left traces; the folders are listed first."""
    left = {
        name
        for folder in (HEARTBEAT_FOLDER, FENCE_FOLDER, MARKER_FOLDER, OUTCOME_FOLDER)
        for name in _names(access.storage, folder)
        if name.isdigit()
    }
    if not left:
        return []
    timeline = access.timeline(properties)
    left -= {i.requested_time for i in timeline.pending()}
    return [
        t
        for t in sorted(left)
        if timeline.get(t) is not None
        or owner_of(access.storage, t) is not None
        or not heartbeat_alive(access.storage, t, access.heartbeat, access.clock)
    ]


def _names(storage: Storage, folder: str) -> list[str]:
    with suppress(NotFoundError):
        return storage.names(folder)
    return []
