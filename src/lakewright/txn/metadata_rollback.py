"""What the rollback of a write means for the metadata table, before the write leaves the timeline.

The metadata commit of the same time is rolled back with it, at the time of the data table's
rollback. Where there is none, because the metadata table began later, files that it lists are taken
off the list. If a base file holds its records by now, nothing takes them out of there again: the
metadata table is dropped, and may be built anew. Version 6 leaves log files behind that a rollback
made or cancelled; they are put on the list. All that is a commit at the rollback's own time, which
counts when the rollback is completed.
"""

from __future__ import annotations

from lakewright.format.records import RollbackMetadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.batch import FILE_INDEXES, batch_of_files, indexes_of
from lakewright.metadata.file_changes import FileChanges, deleted_files, rollback_logs
from lakewright.metadata.file_groups import FILES
from lakewright.metadata.index_changes import IndexChange
from lakewright.metadata.removed_records import removed_changes
from lakewright.metadata.table import MetadataTable
from lakewright.txn.access import Access
from lakewright.txn.locks.protocol import Lease
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
    if commit is not None and _is_compacted(store, target):
        drop_under(access, lease)
        return None
    if commit is not None:
        suffixed = properties.version.metadata_operation_suffixes
        time = f"{rollback.instant}{ROLLBACK_SUFFIX}" if suffixed else rollback.instant
        if store.timeline.get(time, ROLLBACK) is not None:
            time = store.rollback_time()
        store = taken_back(store, lease, commit, time)
    table = _read(store, access)
    removed = _still_listed(table, metadata)
    if removed and indexes_of(properties) - FILE_INDEXES - {FILES}:
        drop_under(access, lease)  # its keys would have to be read from files that are gone
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


def _still_listed(table: MetadataTable, metadata: RollbackMetadata) -> dict[str, list[str]]:
    """Files that the rollback deleted and the metadata table lists, by partition."""
    deleted = deleted_files(metadata)
    if not deleted:
        return {}
    partitions = sorted(deleted.keys() & set(table.partitions()))
    listed = table.files(partitions)
    found = {p: sorted(deleted[p].intersection(f.name for f in listed[p])) for p in partitions}
    return {partition: names for partition, names in found.items() if names}
