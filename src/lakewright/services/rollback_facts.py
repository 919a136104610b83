"""What speaks for and against the rollback of an instant, read from storage and changing nothing.

The state that a completed write would leave behind is looked at as a whole, which lists the table;
so this is done without the lock. Whoever holds the lock afterwards has to see the same timeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lakewright.errors import InstantNotFoundError, NotFoundError
from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import Instant, State
from lakewright.format.partitions import list_files
from lakewright.format.records import (
    CommitMetadata,
    RollbackPlan,
    load_commit_metadata,
    load_compaction_plan,
    load_requested_replace,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.services.archive_limits import archived_after
from lakewright.services.needed_files import Taken, taken_of
from lakewright.services.rollback_checks import RollbackFacts
from lakewright.txn.access import Access
from lakewright.txn.conflict import groups_of_commit, groups_of_compaction, groups_of_replacement
from lakewright.txn.liveness import who_works_on
from lakewright.txn.plan_kinds import CLUSTERING, COMPACTION, is_removable, plan_kind
from lakewright.txn.recovery import INGESTION
from lakewright.txn.restoring import refuse_restore
from lakewright.txn.rollback import (
    ROLLBACK,
    PendingRollback,
    pending_rollbacks,
    rollbacks_by_target,
)
from lakewright.txn.rollback_plan import plan_rollback
from lakewright.txn.unpublish import completed_kind, markers_of, pending_form

__all__ = ["Seen", "look", "workers"]


@dataclass(frozen=True, slots=True)
class Seen:
    """An instant, and all that speaks for and against its rollback."""

    properties: TableProperties
    timeline: Timeline
    facts: RollbackFacts
    rollback: PendingRollback | None
    metadata: CommitMetadata | None
    """Of a completed write."""

    def plan(self, access: Access) -> RollbackPlan:
        """What will be undone, or is being undone."""
        if self.rollback is not None:
            return self.rollback.plan
        target, markers = self.facts.target, None
        if self.metadata is not None:
            markers = markers_of(self.properties, target, self.metadata)
            target = pending_form(self.properties, target, self.metadata)
        return plan_rollback(access.storage, self.properties, target, markers=markers)


def look(access: Access, instant: str, *, unschedule: bool) -> Seen:
    """The instant as it is now; `InstantNotFoundError` if there is none."""
    properties = access.properties()
    timeline = access.timeline(properties)
    refuse_restore(timeline, "rolled back")
    rollback = pending_rollbacks(access, properties, timeline).get(instant)
    target = timeline.get(instant)
    if target is None:
        if rollback is None:
            raise _unknown(access, properties, timeline, instant)
        # Only the end of its rollback is missing.
        target = Instant(instant, rollback.target.action, State.REQUESTED, None, "")
    facts = RollbackFacts(
        timeline=timeline,
        target=target,
        by_completion=properties.version.completion_time_in_name,
        merge_on_read=properties.is_merge_on_read,
        rolling_back=rollback is not None,
        unschedule=unschedule,
        workers=workers(access, timeline, instant),
        pending_writes=tuple(
            i.requested_time for i in _pending_writes(access, properties, timeline, instant)
        ),
    )
    metadata = None
    if target.completed and target.action in INGESTION:
        metadata = load_commit_metadata(access.storage, properties, target)
        facts = _facts_of_completed(access, properties, facts, metadata)
    elif not target.completed:
        facts = _facts_of_pending(access, properties, facts)
    return Seen(properties, timeline, facts, rollback, metadata)


def _unknown(
    access: Access, properties: TableProperties, timeline: Timeline, instant: str
) -> InstantNotFoundError:
    done = rollbacks_by_target(access, properties, timeline.filter_actions(ROLLBACK)).get(instant)
    return InstantNotFoundError(
        f"There is no instant {instant} on the active timeline.",
        hint=f"It was rolled back by {done.instant}."
        if done is not None
        else "Look at the timeline (lakewright timeline show); archived instants stay.",
        context={"instant": instant, "table": access.storage.uri},
    )


def workers(access: Access, timeline: Timeline, instant: str) -> dict[str, str]:
    """Who works on the instant and on those that are pending, by their times."""
    times = {i.requested_time for i in timeline.pending()} | {instant}
    found = ((time, who_works_on(access, time)) for time in sorted(times))
    return {time: worker for time, worker in found if worker is not None}


def _pending_writes(
    access: Access, properties: TableProperties, timeline: Timeline, instant: str
) -> list[Instant]:
    """Other writes that are pending, plans left out."""
    return [
        i
        for i in timeline.pending()
        if i.action in INGESTION
        and i.requested_time != instant
        and plan_kind(access.storage, properties, i) is None
    ]


def _facts_of_pending(
    access: Access, properties: TableProperties, facts: RollbackFacts
) -> RollbackFacts:
    if not facts.target.file_name:
        return facts
    kind = plan_kind(access.storage, properties, facts.target)
    if kind is None:
        return facts
    facts = replace(
        facts,
        kind=kind,
        removable=is_removable(access.storage, properties, facts.target, kind),
    )
    return _with_logs_behind(access, properties, facts)


def _with_logs_behind(
    access: Access, properties: TableProperties, facts: RollbackFacts
) -> RollbackFacts:
    """With what version 6 has put behind a compaction whose plan is to go."""
    compaction = facts.kind is COMPACTION and properties.version.rollback_by_log_block
    if not compaction or not facts.unschedule:
        return facts
    return replace(
        facts,
        logs_behind=_logs_behind(access, properties, facts.target),
        logs_may_come=bool(facts.pending_writes),
    )


def _logs_behind(access: Access, properties: TableProperties, plan: Instant) -> int:
    """Log files that carry the time of a compaction."""
    operations = load_compaction_plan(access.storage, properties, plan).operations or ()
    partitions = {operation.partition_path or "" for operation in operations}
    names = (
        parse_data_file(file.name)
        for partition in sorted(partitions)
        for file in list_files(access.storage, partition)
    )
    logs = (name for name in names if isinstance(name, LogFileName))
    return sum(name.instant == plan.requested_time for name in logs)


def _facts_of_completed(
    access: Access, properties: TableProperties, facts: RollbackFacts, metadata: CommitMetadata
) -> RollbackFacts:
    timeline, target = facts.timeline, facts.target
    kind = completed_kind(metadata)
    pending = pending_form(properties, target, metadata)
    removable = False
    if kind is not None:
        try:
            removable = is_removable(access.storage, properties, pending, kind)
        except NotFoundError:
            removable = False  # its plan is being archived; `unpublish` will say so
    others = [i for i in timeline.commits().completed() if i != target]
    archived = not others and bool(archived_after(access.storage, properties, ""))
    plans = dict(_plans(access, properties, timeline))
    facts = replace(
        facts,
        kind=kind,
        removable=removable,
        groups=groups_of_commit(metadata),
        plans={time: groups for time, groups in plans.items() if time > target.requested_time},
        rests_on_archive=archived,
    )
    facts = replace(facts, taken=_taken(access, properties, facts, pending))
    return _with_logs_behind(access, properties, facts)


def _taken(
    access: Access, properties: TableProperties, facts: RollbackFacts, pending: Instant
) -> Taken | None:
    """A file of the state before a completed write that is missing, or will be."""
    timeline, target = facts.timeline, facts.target
    left = (pending if i == target else i for i in timeline if i != target or facts.runs_again)
    cleans = timeline.filter_actions("clean").after(target.requested_time)
    return taken_of(access, properties, cleans, Timeline(tuple(left)))


def _plans(
    access: Access, properties: TableProperties, timeline: Timeline
) -> Iterator[tuple[str, frozenset[FileGroupId]]]:
    """File groups that pending plans take, by the times of the plans."""
    for instant in timeline.pending():
        kind = plan_kind(access.storage, properties, instant)
        if kind is None:
            continue
        if kind is CLUSTERING:
            request = load_requested_replace(access.storage, properties, instant)
            yield instant.requested_time, groups_of_replacement(request)
        else:
            plan = load_compaction_plan(access.storage, properties, instant)
            yield instant.requested_time, groups_of_compaction(plan)
