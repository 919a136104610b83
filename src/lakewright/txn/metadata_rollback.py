"""What the rollback of a write means for the metadata table, before the write leaves the timeline.

The metadata commit of the same time is rolled back with it, at the time of the data table's
rollback. Where there is none, because the metadata table began later, files that it lists are taken
off the list. If a base file holds its records by now, by a compaction or because an index began
with them, nothing takes them out of there again: the metadata table is dropped, and may be built
anew. Version 6 leaves log files behind that a rollback made or cancelled; they are put on the list.
All that is a commit at the rollback's own time, which counts when the rollback is completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from lakewright.errors import NotFoundError
from lakewright.format.instant import Instant
from lakewright.format.log_block import BlockType, read_blocks
from lakewright.format.records import RollbackMetadata, load_commit_metadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.batch import FILE_INDEXES, batch_of_files, indexes_of
from lakewright.metadata.file_changes import (
    FileChanges,
    cancelled_logs,
    deleted_files,
    rollback_logs,
)
from lakewright.metadata.file_groups import FILES
from lakewright.metadata.index_changes import IndexChange
from lakewright.metadata.removed_records import removed_changes
from lakewright.metadata.table import MetadataTable
from lakewright.storage.base import Storage
from lakewright.txn.access import Access
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.metadata_beginnings import BEGINNING
from lakewright.txn.metadata_commit import publish_metadata
from lakewright.txn.metadata_creation import drop_under
from lakewright.txn.metadata_store import ROLLBACK_SUFFIX, MetadataStore, open_store
from lakewright.txn.metadata_undo import DELTA_COMMIT, finished, taken_back
from lakewright.txn.pending_rollbacks import ROLLBACK, PendingRollback
from lakewright.txn.times import latest_time

__all__ = ["follow_rollback"]


def follow_rollback(
    access: Access,
    lease: Lease,
    properties: TableProperties,
    timeline: Timeline,
    rollback: PendingRollback,
    metadata: RollbackMetadata,
) -> str | None:
    """Let the metadata table follow a rollback that is about to be completed.

    The caller holds the lock, and `timeline` has the target still pending. The greatest time that
    was taken, if any was.
    """
    if not indexes_of(properties):
        return None
    store = finished(open_store(access, lease, properties, timeline), lease)
    target = rollback.target.commit_time
    commit = store.timeline.get(target, DELTA_COMMIT)
    if commit is not None and (_is_compacted(store, target) or _begun_since(store, commit)):
        drop_under(access, lease, to_return=True)
        return None
    if commit is not None:
        store = _unplanned(store, lease)
        suffixed = properties.version.metadata_operation_suffixes
        time = f"{rollback.instant}{ROLLBACK_SUFFIX}" if suffixed else rollback.instant
        if store.timeline.get(time, ROLLBACK) is not None:
            time = store.rollback_time()
        store = taken_back(store, lease, commit, time)
    table = _read(store, access)
    removed = _listed(table, deleted_files(metadata))
    further = indexes_of(properties) - {FILES}
    unreadable = removed and further - FILE_INDEXES  # keys of files that are gone
    told = _listed(table, cancelled_logs(metadata)) if further else {}
    if unreadable or _has_blocks(access.storage, told, target):
        drop_under(access, lease, to_return=True)
        return None
    changes = FileChanges(written=rollback_logs(metadata).written, removed=removed)
    if changes.is_empty:
        return latest_time(store.timeline, properties)
    indexed = {index: IndexChange() for index in indexes_of(properties)}
    if removed:
        version = properties.version
        indexed |= removed_changes(table, removed, instant=rollback.instant, version=version)
    batch = batch_of_files(access.storage, properties, rollback.instant, changes, indexed)
    return publish_metadata(access, lease, properties, timeline, batch)


def _is_compacted(store: MetadataStore, instant: str) -> bool:
    """Whether a base file of the metadata table may hold the records of a commit."""
    compactions = store.timeline.filter_actions("commit").completed()
    return any(c.requested_time >= instant for c in compactions)


def _read(store: MetadataStore, access: Access) -> MetadataTable:
    """The metadata table as it is now, to be read."""
    return MetadataTable(
        access.storage, store.data_properties, store.data_timeline, store.properties, store.timeline
    )


def _unplanned(store: MetadataStore, lease: Lease) -> MetadataStore:
    """Without a planned compaction whose process died, if it could name a file that goes away.

    At version 6 none does, and logs that were written since are named after the plan.
    """
    if store.properties.version.log_name_has_delta_instant:
        for planned in store.timeline.pending_compactions():
            store = taken_back(store, lease, planned, store.rollback_time())
    return store


def _begun_since(store: MetadataStore, commit: Instant) -> bool:
    """Whether an index began after a commit of the metadata table, with first records of what its
    table had then."""
    if not commit.completed:
        return False
    for other in store.timeline.filter_actions(DELTA_COMMIT).completed():
        if _may_have_seen(store, other, commit):
            told = load_commit_metadata(store.storage, store.properties, other)
            if (told.operation_type or "").startswith(BEGINNING):
                return True
    return False


def _may_have_seen(store: MetadataStore, beginning: Instant, commit: Instant) -> bool:
    """Whether what began with a commit could know another one. At version 6 its time begins with
    that of the newest write that it knows; later it is no time at all."""
    if store.properties.version.metadata_operation_suffixes:
        return beginning.requested_time > commit.requested_time
    return (beginning.completion_time or "") > (commit.completion_time or "")


def _has_blocks(storage: Storage, logs: Mapping[str, Sequence[str]], instant: str) -> bool:
    """Whether one of some logs has blocks of an instant: not where a write died before it wrote."""
    for partition, names in logs.items():
        for name in names:
            path = f"{partition}/{name}" if partition else name
            with suppress(NotFoundError):
                blocks = read_blocks(storage.read(path), path=path)
                if any(b.instant == instant and b.type is not BlockType.COMMAND for b in blocks):
                    return True
    return False


def _listed(table: MetadataTable, files: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Those of some files that the metadata table lists, by partition."""
    if not files:
        return {}
    partitions = sorted(files.keys() & set(table.partitions()))
    listed = table.files(partitions)
    found = {p: sorted(files[p].intersection(f.name for f in listed[p])) for p in partitions}
    return {partition: names for partition, names in found.items() if names}
