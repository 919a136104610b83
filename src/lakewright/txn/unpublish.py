"""Turning a completed write back into a failed one, from which the usual rollback goes on.

A marker is left for every file that the commit names, as its tasks had left them; the inflight file
is there; then the completed file goes. With that one operation readers lose the write, all at once.
From then on it is the pending write of a process that is gone, and whoever comes next rolls it
back, be it the process that began this, any other writer of ours, or Hudi.

A plan that was completed becomes a plan again of which an attempt failed.
"""

from __future__ import annotations

from lakewright.errors import CorruptFileError
from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.instant import Instant, State, format_instant_name
from lakewright.format.records import CommitMetadata, load_commit_metadata
from lakewright.format.table_properties import TableProperties
from lakewright.runtime.events import Event
from lakewright.txn.access import Access
from lakewright.txn.fence import claim_fence
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.markers import Marker, MarkerType, create_missing
from lakewright.txn.plan_kinds import CLUSTERING, COMPACTION, LOG_COMPACTION, PlanKind

__all__ = ["completed_kind", "markers_of", "pending_form", "unpublish"]


def completed_kind(metadata: CommitMetadata) -> PlanKind | None:
    """Which plan a completed write executed; None if it was no plan."""
    if metadata.compacted:
        return COMPACTION
    kinds = {kind.operation: kind for kind in (COMPACTION, LOG_COMPACTION, CLUSTERING)}
    return kinds.get(metadata.operation_type or "")


def pending_form(properties: TableProperties, target: Instant, metadata: CommitMetadata) -> Instant:
    """A completed write as it is when it is inflight again."""
    actions = {
        COMPACTION: "compaction",
        LOG_COMPACTION: "logcompaction",
        CLUSTERING: properties.version.pending_clustering_action,
    }
    kind = completed_kind(metadata)
    action = target.action if kind is None else actions[kind]
    layout = properties.version.layout_version
    name = format_instant_name(target.requested_time, action, State.INFLIGHT, layout=layout)
    return Instant(target.requested_time, action, State.INFLIGHT, None, name)


def markers_of(
    properties: TableProperties, target: Instant, metadata: CommitMetadata
) -> list[Marker]:
    """The markers that the tasks of a completed write had left, one for each of its files."""
    found: dict[str, Marker] = {}
    for path in metadata.data_paths:
        partition, _, name = path.rpartition("/")
        parsed = parse_data_file(name)
        shared = isinstance(parsed, LogFileName) and parsed.instant != target.requested_time
        appended = shared and properties.version.rollback_by_log_block
        type_ = MarkerType.APPEND if appended else MarkerType.CREATE
        found[path] = Marker(partition, name, type_)
    return [found[path] for path in sorted(found)]


def unpublish(
    access: Access, lease: Lease, properties: TableProperties, target: Instant
) -> tuple[Instant, list[Marker]]:
    """Take a completed write from its readers; what it is now, and the markers of its files.

    The caller holds `lease`, has decided that the write may go, and schedules its rollback.
    """
    metadata = load_commit_metadata(access.storage, properties, target)
    pending = pending_form(properties, target, metadata)
    files = access.files(properties)
    requested = files.path(target.requested_time, pending.action, State.REQUESTED)
    if completed_kind(metadata) is not None and not access.storage.exists(requested):
        lease.check()  # whoever stood still may see what others have done since
        raise CorruptFileError(
            f"The plan of the {pending.action} {target.requested_time} is gone.",
            hint="It is being archived. Run archiving, which finishes that, and look again.",
            context={"instant": target.requested_time, "path": requested},
        )
    markers = markers_of(properties, target, metadata)
    create_missing(access.storage, target.requested_time, markers)
    # For as long as anything of it is on the timeline it must be known as ours.
    claim_fence(access.storage, target.requested_time, access.processes.own)
    lease.check()
    files.unpublish(target, pending.action, metadata.write(properties.version), lease.check)
    access.on_event(Event("rollback.unpublished", 1, instant=target.requested_time))
    return pending, markers
