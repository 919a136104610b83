"""Restoring a table to a commit: every later write is taken back, the newest first.

The plan is made without the lock and published under it if the timeline is still the same and
nobody works on the table; from then on nothing else begins until the restore is completed. Each
write is turned back into a failed one and rolled back, by a rollback of its own on the timeline.
One process executes a restore at a time, by a heartbeat that begins under the lock. A process that
dies leaves the rest to the next `run_restore`, which goes on with the same plan: what is gone is
not looked for again. A metadata table is dropped before the first write goes, and built anew from a
listing after the last: what it knows of all these writes is not worth taking back one by one.

What can go wrong: a file that cannot be deleted ends the restore, which stays pending.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from lakewright.engine.index_building import bring_back
from lakewright.errors import ConflictError, PlanBusyError
from lakewright.format.instant import Instant, State
from lakewright.format.records import (
    InstantInfo,
    RestoreMetadata,
    RestorePlan,
    RollbackMetadata,
    load_restore_plan,
    load_rollback_metadata,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.batch import indexes_of
from lakewright.runtime.events import Event
from lakewright.services.restore_facts import look, workers
from lakewright.services.restore_plan import (
    Restored,
    RestoreDraft,
    RestorePlanned,
    refuse_unsafe,
)
from lakewright.services.rollback import executed
from lakewright.txn.access import Access
from lakewright.txn.fence import open_fence, remove_fence
from lakewright.txn.heartbeat import Heartbeat
from lakewright.txn.liveness import who_works_on
from lakewright.txn.metadata_creation import drop_metadata_table
from lakewright.txn.metadata_gate import pass_metadata_gate
from lakewright.txn.restoring import RESTORE, pending_restore
from lakewright.txn.rollback import (
    ROLLBACK,
    PendingRollback,
    pending_rollbacks,
    schedule_rollback,
)
from lakewright.txn.rollback_plan import COMPACTION
from lakewright.txn.times import next_time
from lakewright.txn.unpublish import unpublish

__all__ = ["RestorePlanned", "Restored", "plan_restore", "run_restore"]

TRIES: Final = 5
"""How often others may change the timeline between the look at it and the lock."""


def plan_restore(access: Access, to: str | None = None) -> RestorePlanned:
    """What `run_restore` would do now; raises what it would raise, and changes nothing."""
    properties = access.properties()
    timeline = access.timeline(properties)
    pending = pending_restore(timeline)
    if pending is not None:
        plan = _pending_plan(access, properties, pending, to)
        target = plan.savepoint_to_restore_timestamp or ""
        infos = plan.instants_to_rollback
        left = tuple(i for i in infos if timeline.get(i.commit_time, i.action) is not None)
        kept = target in timeline.savepointed_times
        return RestorePlanned(target, kept, left, pending.requested_time)
    seen = look(access, to)
    refuse_unsafe(seen.timeline, seen.draft, seen.facts)
    return RestorePlanned(seen.draft.to, seen.draft.savepointed, _infos(seen.draft))


def run_restore(
    access: Access,
    to: str | None = None,
    *,
    drop_metadata_table: bool = False,
    registry: MergerRegistry | None = None,
) -> Restored:
    """Restore the table to a commit, by default to the newest savepoint; or go on with a restore
    that is pending.

    Raises `InstantNotFoundError` if there is no such commit, `ConflictError` while somebody works
    on the table, `ServiceError` where something has to be done first or files of that state are
    gone, `PlanBusyError` if another process executes the pending restore.
    """
    pass_metadata_gate(access, drop=drop_metadata_table)
    for _ in range(TRIES):
        properties = access.properties()
        pending = pending_restore(access.timeline(properties))
        if pending is not None:
            plan = _pending_plan(access, properties, pending, to)
            return _executed(access, pending.requested_time, plan, registry, resumed=True)
        scheduled = _scheduled(access, to)
        if isinstance(scheduled, Restored):
            return scheduled
        if scheduled is not None:
            return _executed(access, *scheduled, registry, resumed=False)
    raise ConflictError(
        "The timeline changed again and again while a restore was planned.",
        hint="Stop every writer and service of the table, then restore it.",
        context={"table": access.storage.uri, "tries": TRIES},
        retryable=True,
    )


def _pending_plan(
    access: Access, properties: TableProperties, restore: Instant, to: str | None
) -> RestorePlan:
    plan = load_restore_plan(access.storage, properties, restore)
    wanted = plan.savepoint_to_restore_timestamp
    if to is not None and to != wanted:
        raise ConflictError(
            f"The table is being restored to {wanted} ({restore.requested_time}), not to {to}.",
            hint="Finish that restore first: run it without naming a commit.",
            context={"restore": restore.requested_time, "to": to, "pending_to": wanted or ""},
        )
    return plan


# ---- scheduling --------------------------------------------------------------------------------


def _scheduled(access: Access, to: str | None) -> tuple[str, RestorePlan] | Restored | None:
    """A new restore; None if somebody changed the timeline, perhaps by another restore."""
    seen = look(access, to)
    if pending_restore(seen.timeline) is not None:
        return None
    refuse_unsafe(seen.timeline, seen.draft, seen.facts)
    if not seen.draft.undone:
        return Restored(seen.draft.to, None)
    with access.locked(f"restore to {seen.draft.to}") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        if timeline != seen.timeline or properties != seen.properties:
            return None
        refuse_unsafe(timeline, seen.draft, workers(access, timeline, seen.draft))
        plan = RestorePlan(
            instants_to_rollback=list(_infos(seen.draft)),
            savepoint_to_restore_timestamp=seen.draft.to,
        )
        instant = next_time(timeline, properties, access.clock)
        lease.check()
        access.files(properties).request(instant, RESTORE, plan.write(properties.version))
        access.clock.sleep(access.skew_s())
    count = len(seen.draft.undone)
    access.on_event(Event("restore.planned", count, unit="instants", instant=instant))
    return instant, plan


def _infos(draft: RestoreDraft) -> tuple[InstantInfo, ...]:
    return tuple(InstantInfo(commit_time=i.requested_time, action=i.action) for i in draft.undone)


# ---- executing ---------------------------------------------------------------------------------


def _executed(
    access: Access,
    instant: str,
    plan: RestorePlan,
    registry: MergerRegistry | None,
    *,
    resumed: bool,
) -> Restored:
    heartbeat = _claim(access, instant)
    started_s = access.clock.monotonic_s()
    try:
        if indexes_of(access.properties()):
            drop_metadata_table(access, to_return=True)
        total = len(plan.instants_to_rollback)
        for count, info in enumerate(plan.instants_to_rollback, 1):
            access.cancel.check()
            heartbeat.check()
            _take_back(access, instant, info)
            access.on_event(Event("restore.instants", count, total, "instants", instant))
        took_ms = int((access.clock.monotonic_s() - started_s) * 1000)
        metadata = _finish(access, instant, plan, heartbeat, took_ms)
    finally:
        if heartbeat.leave():  # otherwise both may be those of whoever took over
            remove_fence(access.storage, instant)
    bring_back(access, registry or MergerRegistry())
    files = sum(r.total_files_deleted for r in _rollbacks_of(metadata))
    access.on_event(Event("restore.done", files, unit="files", instant=instant))
    return Restored(
        plan.savepoint_to_restore_timestamp or "",
        instant,
        tuple(info.commit_time for info in plan.instants_to_rollback),
        files,
        resumed,
    )


def _rollbacks_of(metadata: RestoreMetadata) -> list[RollbackMetadata]:
    found = metadata.hoodie_restore_metadata.values()
    return [rollback for rollbacks in found for rollback in rollbacks if rollback is not None]


def _claim(access: Access, instant: str) -> Heartbeat:
    """Make this process the one that executes the restore."""
    with ExitStack() as failing, access.locked(f"restore {instant}") as lease:
        properties = access.properties()
        found = access.timeline(properties).get(instant, RESTORE)
        worker = who_works_on(access, instant)
        if found is None or found.completed or worker is not None:
            raise PlanBusyError(
                f"The restore {instant} was finished by another process."
                if worker is None
                else f"The restore {instant} is executed by {worker}.",
                hint="Look at the table; run the restore again if that process is dead.",
                context={"instant": instant, "owner": worker or ""},
                retryable=True,
            )
        lease.check()
        # First the process, then its sign of life: an earlier owner that is known to be dead must
        # not make this one look dead.
        open_fence(access.storage, instant, access.processes.own)
        lease.check()
        heartbeat = Heartbeat.start(
            access.storage, instant, access.heartbeat, clock=access.clock, spawner=access.spawner
        )
        failing.push(heartbeat.after_failure)
        if found.state is State.REQUESTED:
            access.files(properties).start(instant, RESTORE)
        return heartbeat


def _take_back(access: Access, restore: str, info: InstantInfo) -> None:
    """Take one write or plan off the timeline, with all its files."""
    rollback, attempt_only = _rollback_of(access, restore, info)
    if rollback is None:
        return
    executed(access, rollback, keeps_plan=attempt_only)
    if attempt_only:
        _take_back(access, restore, info)


def _rollback_of(
    access: Access, restore: str, info: InstantInfo
) -> tuple[PendingRollback | None, bool]:
    """The rollback of an instant, and whether it only undoes an attempt at a plan; None if the
    instant is gone."""
    with access.locked(f"restore {restore}") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        known = pending_rollbacks(access, properties, timeline).get(info.commit_time)
        found = timeline.get(info.commit_time, info.action)
        if known is not None:
            # One that was scheduled before the restore leaves the logs behind a compaction alone.
            before = known.instant < restore
            return known, before and found is not None and found.action == COMPACTION
        if found is None:
            return None, False
        markers = None
        if found.completed:
            found, markers = unpublish(access, lease, properties, found)
        rollback = schedule_rollback(
            access, lease, properties, timeline, found, markers=markers, whole_slices=True
        )
        access.clock.sleep(access.skew_s())
        return rollback, False


def _finish(
    access: Access, instant: str, plan: RestorePlan, heartbeat: Heartbeat, took_ms: int
) -> RestoreMetadata:
    with access.locked(f"restore {instant}") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        found = timeline.get(instant, RESTORE)
        if found is None or found.completed:
            # It beats as it should, and yet was taken for dead: clocks are too far apart.
            raise PlanBusyError(
                f"The restore {instant} was finished by another process.",
                hint="There is nothing left to do. Look at the clocks of both machines.",
                context={"instant": instant},
            )
        metadata = RestoreMetadata(
            start_restore_time=instant,
            time_taken_in_millis=took_ms,
            instants_to_rollback=[info.commit_time for info in plan.instants_to_rollback],
            hoodie_restore_metadata=_done(access, properties, timeline, instant, plan),
            restore_instant_info=list(plan.instants_to_rollback),
        )
        completed = next_time(timeline, properties, access.clock, after=instant)
        access.clock.sleep(access.skew_s())
        heartbeat.check()
        lease.check()
        content = metadata.write(properties.version)
        access.files(properties).complete(instant, RESTORE, content, completed)
        return metadata


def _done(
    access: Access,
    properties: TableProperties,
    timeline: Timeline,
    restore: str,
    plan: RestorePlan,
) -> dict[str, list[RollbackMetadata]]:
    """What was undone for each instant, by whichever process that was."""
    wanted = {info.commit_time for info in plan.instants_to_rollback}
    found: dict[str, list[RollbackMetadata]] = {}
    for rollback in timeline.filter_actions(ROLLBACK).completed().after(restore):
        metadata = load_rollback_metadata(access.storage, properties, rollback)
        for time in wanted.intersection(metadata.commits_rollback):
            found.setdefault(time, []).append(metadata)
    return found
