"""Reading what a clean is planned on, and whether it still holds under the lock.

Everything that protects files is read from storage: savepoints, the plans of pending compactions,
log compactions and clusterings, and the heartbeats of writes. A plan that cannot be read fails the
clean: what it needs is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lakewright.errors import NotFoundError
from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import WRITE_ACTIONS, Instant
from lakewright.format.records import (
    CleanMetadata,
    load_compaction_plan,
    load_record,
    load_requested_replace,
    load_savepoint,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline, is_pending_clustering
from lakewright.format.view_inputs import CompletionTimes, load_replaced
from lakewright.services.clean_plan import CleanBasis, PreviousClean
from lakewright.services.clean_selection import Protection
from lakewright.services.full_scans import full_scan_demands
from lakewright.services.needed_files import planned_clean
from lakewright.services.planned_files import (
    PlannedFiles,
    files_of_clustering,
    files_of_compaction,
)
from lakewright.storage.base import Storage
from lakewright.txn.access import Access
from lakewright.txn.heartbeat import HEARTBEAT_FOLDER
from lakewright.txn.liveness import is_alive
from lakewright.txn.rollback import pending_rollbacks
from lakewright.txn.times import latest_time

__all__ = ["load_basis", "previous_clean", "still_holds"]


@dataclass(slots=True)
class _Plans:
    """What pending plans say, gathered."""

    times: set[str] = field(default_factory=set)
    names: dict[str, set[str]] = field(default_factory=dict)
    compacting: dict[FileGroupId, str] = field(default_factory=dict)
    compactions: dict[FileGroupId, str] = field(default_factory=dict)

    def reads(self, files: PlannedFiles) -> None:
        """Remember files that a plan is going to read."""
        for partition, names in files.items():
            self.names.setdefault(partition, set()).update(names)

    def compacts(self, id_: FileGroupId, base_instant: str) -> None:
        """Remember from which slice on a compaction needs a group."""
        self.compacting[id_] = min(base_instant, self.compacting.get(id_, base_instant))


def load_basis(access: Access, properties: TableProperties) -> CleanBasis:
    """The table now; what demands a full scan is read before the timeline."""
    storage = access.storage
    full_scans = full_scan_demands(storage)
    timeline = access.timeline(properties)
    plans = _read_plans(access, properties, timeline)
    return CleanBasis(
        timeline=timeline,
        version=properties.version,
        zone=properties.timeline_zone,
        now_ms=access.clock.now_ms(),
        completion_time_of=CompletionTimes(storage, properties, timeline),
        merge_on_read=properties.is_merge_on_read,
        previous=previous_clean(storage, properties, timeline),
        promised=_promised(access, properties, timeline),
        protection=Protection(
            savepointed=_savepointed(access, properties, timeline),
            planned={p: frozenset(names) for p, names in plans.names.items()},
            compacting=plans.compacting,
            live=frozenset(_live_writes(access, timeline, plans.times)),
        ),
        pending_compactions=plans.compactions,
        replaced=load_replaced(storage, properties, timeline),
        plans=frozenset(plans.times),
        undone=_undone(access, properties, timeline),
        full_scans=full_scans,
    )


def still_holds(access: Access, properties: TableProperties, basis: CleanBasis) -> bool:
    """Whether a plan made on `basis` may be published; the caller holds the lock.

    New commits do no harm: what was the newest slice is in no plan. A savepoint, a plan, another
    clean or a rollback of something committed does, and so does a write that was alive already when
    the basis was read and was not seen.
    """
    timeline = access.timeline(properties)
    old = basis.timeline
    if not (
        _names(timeline, "savepoint") <= _names(old, "savepoint")
        and _names(timeline, "clean") <= _names(old, "clean")
    ):
        return False
    plans = {i.requested_time for i in _pending_plans(access, properties, timeline)}
    if not plans <= basis.plans or _undone(access, properties, timeline):
        return False
    if any(not timeline.contains_completed_or_archived(t) for t in old.completion_times):
        return False
    known = latest_time(old, properties) or ""
    unseen = set(_live_writes(access, timeline, plans)) - basis.protection.live
    return all(began > known for began in unseen)


def _names(timeline: Timeline, action: str) -> set[str]:
    return {i.file_name for i in timeline.filter_actions(action)}


# ---- plans -------------------------------------------------------------------------------------


def _pending_plans(
    access: Access, properties: TableProperties, timeline: Timeline
) -> Iterator[Instant]:
    for instant in timeline.pending():
        if instant.action in ("compaction", "logcompaction") or is_pending_clustering(
            access.storage, properties, instant
        ):
            yield instant


def _read_plans(access: Access, properties: TableProperties, timeline: Timeline) -> _Plans:
    plans = _Plans()
    for instant in _pending_plans(access, properties, timeline):
        plans.times.add(instant.requested_time)
        if instant.completed_action == "replacecommit":
            _read_clustering(access, properties, instant, plans)
        else:
            _read_compaction(access, properties, instant, plans)
    return plans


def _read_compaction(
    access: Access, properties: TableProperties, instant: Instant, plans: _Plans
) -> None:
    plan = load_compaction_plan(access.storage, properties, instant)
    plans.reads(files_of_compaction(plan))
    for operation in plan.operations or ():
        id_ = FileGroupId(operation.partition_path or "", operation.file_id or "")
        plans.compacts(id_, operation.base_instant_time or "")
        if instant.action == "compaction":
            plans.compactions[id_] = instant.requested_time


def _read_clustering(
    access: Access, properties: TableProperties, instant: Instant, plans: _Plans
) -> None:
    request = load_requested_replace(access.storage, properties, instant)
    plans.reads(files_of_clustering(request))


# ---- the rest ----------------------------------------------------------------------------------


def previous_clean(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> PreviousClean | None:
    """The last completed clean, if it says what it did."""
    last = timeline.last_clean()
    record = None if last is None else load_record(storage, properties, last)
    return PreviousClean(record) if isinstance(record, CleanMetadata) else None


def _promised(access: Access, properties: TableProperties, timeline: Timeline) -> str:
    """The latest moment that a pending clean retains; empty if none says one."""
    pending = timeline.filter_actions("clean").pending()
    plans = (planned_clean(access, properties, clean) for clean in pending)
    moments = (plan.earliest_instant_to_retain for plan in plans if plan is not None)
    return max((m.timestamp or "" for m in moments if m is not None), default="")


def _savepointed(
    access: Access, properties: TableProperties, timeline: Timeline
) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for instant in timeline.savepoints():
        metadata = load_savepoint(access.storage, properties, instant)
        for partition, kept in metadata.partition_metadata.items():
            found[partition] = found.get(partition, frozenset()).union(kept.savepoint_data_file)
    return found


def _undone(access: Access, properties: TableProperties, timeline: Timeline) -> frozenset[str]:
    """Completed writes that a pending rollback is going to take back."""
    targets = (r.target for r in pending_rollbacks(access, properties, timeline).values())
    return frozenset(t.commit_time for t in targets if t.commit_time in timeline.completion_times)


def _live_writes(access: Access, timeline: Timeline, plans: set[str]) -> Iterator[str]:
    """Times of writes that are alive; services name what they read, so they are left out."""
    try:
        names = access.storage.names(HEARTBEAT_FOLDER)
    except NotFoundError:
        return
    for time in names:
        if not time.isdigit() or time in plans:
            continue
        found = timeline.get(time)
        if found is not None and (found.completed or found.action not in WRITE_ACTIONS):
            continue
        if is_alive(access, time):
            yield time
