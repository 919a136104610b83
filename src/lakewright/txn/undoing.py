"""Undoing what a rollback's plan says: files deleted, blocks cancelled, late files swept.

Everything here is harmless to repeat, so whoever takes a rollback over begins again. The `watch` is
what tells that nobody has: a heartbeat, or the lock itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from lakewright.errors import AlreadyExistsError, ConflictError, NotFoundError
from lakewright.format.log_block import rollback_block
from lakewright.format.own_files import UNFINISHED_FOLDER
from lakewright.format.partitions import list_files
from lakewright.format.records import (
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackRequest,
    file_name,
    load_rollback_metadata,
)
from lakewright.format.table_properties import TableProperties
from lakewright.storage.base import Storage
from lakewright.txn.access import Access
from lakewright.txn.log_names import command_log_names
from lakewright.txn.markers import Marker, MarkerType, create_marker, read_markers
from lakewright.txn.pending_rollbacks import PendingRollback
from lakewright.txn.rollback_plan import (
    COMPACTION,
    files_of_instant,
    full_path,
    touched_partitions,
)

__all__ = ["Watch", "undo"]


class Watch(Protocol):
    """What tells that the rollback is still this process's."""

    def check(self) -> None:
        """Raise a `ConflictError` if it is not."""
        ...


def undo(
    access: Access, properties: TableProperties, rollback: PendingRollback, watch: Watch
) -> RollbackMetadata:
    """Do everything that the plan says; the record of the rollback, which is not completed yet."""
    started_s = access.clock.monotonic_s()
    done = _Undone()
    for request in rollback.plan.rollback_requests or ():
        watch.check()
        _undo(access, properties, rollback, request, watch, done)
    _collect_command_logs(access.storage, rollback.instant, done)
    _sweep_late_files(access, rollback, watch, done)
    return done.metadata(rollback, int((access.clock.monotonic_s() - started_s) * 1000))


@dataclass(slots=True)
class _Undone:
    """What was undone so far, by partition."""

    deleted: dict[str, list[str]] = field(default_factory=dict)
    command_logs: dict[str, dict[str, int]] = field(default_factory=dict)
    failed_logs: dict[str, dict[str, int]] = field(default_factory=dict)

    def metadata(self, rollback: PendingRollback, took_ms: int) -> RollbackMetadata:
        """The record of the completed rollback."""
        partitions = sorted({*self.deleted, *self.command_logs, *self.failed_logs})
        return RollbackMetadata(
            start_rollback_time=rollback.instant,
            time_taken_in_millis=took_ms,
            total_files_deleted=sum(map(len, self.deleted.values())),
            commits_rollback=[rollback.target.commit_time],
            partition_metadata={p: self._partition(p) for p in partitions},
            instants_rollback=[rollback.target],
        )

    def _partition(self, partition: str) -> RollbackPartitionMetadata:
        return RollbackPartitionMetadata(
            partition_path=partition,
            success_delete_files=self.deleted.get(partition, []),
            failed_delete_files=[],
            rollback_log_files=self.command_logs.get(partition, {}),
            log_files_from_failed_commit=self.failed_logs.get(partition, {}),
        )


def _undo(
    access: Access,
    properties: TableProperties,
    rollback: PendingRollback,
    request: RollbackRequest,
    watch: Watch,
    done: _Undone,
) -> None:
    partition = request.partition_path
    for path in request.files_to_be_deleted:
        name = file_name(path)
        assert name is not None
        _delete(access.storage, partition, name, done)
    blocks = request.log_blocks_to_be_deleted or {}
    if blocks and properties.version.rollback_by_log_block:
        _write_command_block(access, properties, rollback, request, watch)
        done.failed_logs.setdefault(partition, {}).update(_sizes(access.storage, partition, blocks))


def _sizes(storage: Storage, partition: str, logs: Iterable[str]) -> dict[str, int]:
    """The sizes of log files as they are; a plan of Hudi's says 1 of all of them."""
    found: dict[str, int] = {}
    for path in logs:
        name = file_name(path)
        with suppress(NotFoundError):
            found[path] = storage.stat(f"{partition}/{name}" if partition else f"{name}").size
    return found


def _delete(storage: Storage, partition: str, name: str, done: _Undone) -> None:
    path = f"{partition}/{name}" if partition else name
    storage.delete(path)
    done.deleted.setdefault(partition, []).append(full_path(storage, path))


def _write_command_block(
    access: Access,
    properties: TableProperties,
    rollback: PendingRollback,
    request: RollbackRequest,
    watch: Watch,
) -> None:
    """Cancel the target's blocks in one file group, by a log file of its own.

    One that came after another process had finished the rollback is taken back: nobody knows of it.
    Otherwise it stays, as a plan or a savepoint may name it: whoever finishes finds its marker.
    """
    partition, file_id = request.partition_path, request.file_id or ""
    base_instant = request.latest_base_instant or ""
    block = rollback_block(instant=rollback.instant, target=rollback.target.commit_time)
    for name in command_log_names(access.storage, partition, file_id, base_instant):
        create_marker(access.storage, rollback.instant, Marker(partition, name, MarkerType.APPEND))
        path = f"{partition}/{name}" if partition else name
        try:
            access.storage.create_if_absent(path, block)
        except AlreadyExistsError:
            watch.check()
            continue
        try:
            watch.check()
        except ConflictError:
            if _finished_without(access, properties, rollback.instant, path):
                access.storage.delete(path)
            raise
        return


def _finished_without(access: Access, properties: TableProperties, instant: str, path: str) -> bool:
    """Whether a rollback is completed and does not tell of a log."""
    found = access.timeline(properties).get(instant, "rollback")
    if found is None or not found.completed:
        return False
    metadata = load_rollback_metadata(access.storage, properties, found)
    told = (p.rollback_log_files or {} for p in metadata.partition_metadata.values())
    return full_path(access.storage, path) not in {log for logs in told for log in logs}


def _collect_command_logs(storage: Storage, instant: str, done: _Undone) -> None:
    """The log files of command blocks, those of earlier attempts at this rollback included."""
    for marker in read_markers(storage, instant) or ():
        with suppress(NotFoundError):
            size = storage.stat(marker.data_path).size
            logs = done.command_logs.setdefault(marker.partition, {})
            logs[full_path(storage, marker.data_path)] = size


def _sweep_late_files(
    access: Access, rollback: PendingRollback, watch: Watch, done: _Undone
) -> None:
    """Delete what task attempts published after the plan was made, and what they left unfinished.

    Their fence is closed by now, so nothing more can come. Nothing that is found may be of an
    attempt that began since: whoever looks must have been alive all the time, or another process
    may have finished the rollback and executed the target again.
    """
    storage, target = access.storage, rollback.target.commit_time
    markers = read_markers(storage, target)
    logs = rollback.target.action != COMPACTION
    found = {
        partition: files_of_instant(list_files(storage, partition), target, logs=logs)
        for partition in touched_partitions(rollback.plan, markers)
    }
    watch.check()
    for marker in markers or ():
        if marker.type is not MarkerType.APPEND and storage.delete(marker.data_path):
            done.deleted.setdefault(marker.partition, []).append(
                full_path(storage, marker.data_path)
            )
    for partition, names in found.items():
        for name in names:
            _delete(storage, partition, name, done)
    storage.sweep(UNFINISHED_FOLDER)
