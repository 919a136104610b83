"""Logs of version 6 that nothing stands behind any more, deleted when a rollback is finished.

A write may put a log behind a slice that is taken back while it runs. It can never be committed
then, and is rolled back as well. Whichever of the two rollbacks is finished last, both under the
lock, deletes the log and what cancels it: when their slice is before the start of the timeline and
forgotten, readers would take them for the newest slice of their file group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.partitions import list_files
from lakewright.format.records import RollbackMetadata, RollbackPartitionMetadata, file_name
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage
from lakewright.txn.pending_rollbacks import PendingRollback
from lakewright.txn.rollback_plan import full_path, touched_partitions

__all__ = ["delete_stranded_logs"]


def delete_stranded_logs(
    storage: Storage,
    properties: TableProperties,
    timeline: Timeline,
    rollback: PendingRollback,
    metadata: RollbackMetadata,
) -> RollbackMetadata:
    """Delete logs behind the target, which goes, and logs of it behind what has gone; what the
    rollback did, with that. The caller holds the lock."""
    if not properties.version.rollback_by_log_block or not properties.is_merge_on_read:
        return metadata
    by_partition = dict(metadata.partition_metadata)
    deleted = 0
    for partition in sorted({*by_partition, *touched_partitions(rollback.plan, None)}):
        names = {
            *_behind_target(storage, partition, rollback.target.commit_time),
            *_behind_nothing(by_partition.get(partition), timeline),
        }
        for name in names:
            storage.delete(f"{partition}/{name}" if partition else name)
        if names:
            deleted += len(names)
            by_partition[partition] = _told(storage, by_partition.get(partition), partition, names)
    return replace(
        metadata,
        total_files_deleted=metadata.total_files_deleted + deleted,
        partition_metadata=by_partition,
    )


def _behind_target(storage: Storage, partition: str, target: str) -> Iterator[str]:
    for file in list_files(storage, partition):
        name = parse_data_file(file.name)
        if isinstance(name, LogFileName) and name.instant == target:
            yield file.name


def _behind_nothing(done: RollbackPartitionMetadata | None, timeline: Timeline) -> Iterator[str]:
    """Logs of the target, and the command blocks behind them, whose slice was taken back."""
    if done is None:
        return
    for path in (*(done.rollback_log_files or ()), *(done.log_files_from_failed_commit or ())):
        text = file_name(path) or ""
        name = parse_data_file(text)
        if not isinstance(name, LogFileName):
            continue
        if timeline.get(name.instant) is None and not timeline.is_archived(name.instant):
            yield text


def _told(
    storage: Storage,
    done: RollbackPartitionMetadata | None,
    partition: str,
    deleted: set[str],
) -> RollbackPartitionMetadata:
    done = done or RollbackPartitionMetadata(
        partition_path=partition,
        success_delete_files=[],
        failed_delete_files=[],
        rollback_log_files={},
        log_files_from_failed_commit={},
    )
    paths = [full_path(storage, f"{partition}/{n}" if partition else n) for n in sorted(deleted)]
    return replace(
        done,
        success_delete_files=[*done.success_delete_files, *paths],
        rollback_log_files={
            path: size
            for path, size in (done.rollback_log_files or {}).items()
            if file_name(path) not in deleted
        },
        log_files_from_failed_commit={
            path: size
            for path, size in (done.log_files_from_failed_commit or {}).items()
            if file_name(path) not in deleted
        },
    )
