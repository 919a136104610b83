"""Rolling back a pending write: scheduled under the lock, executed outside it, finished under it.

At most one rollback per target is ever pending: scheduling finds the one that is there. One process
executes it at a time, by a heartbeat of its own that is started under the lock; a process that dies
leaves everything to the next one, which repeats deletions that are harmless to repeat. The target's
state files go last, so its data files are never visible as committed.

What can go wrong: a file that cannot be deleted fails the rollback, which stays pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lakewright.errors import (
    AlreadyExistsError,
    ConflictError,
    FencedError,
    FormatError,
    NotFoundError,
)
from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.instant import Instant, State
from lakewright.format.log_block import rollback_block
from lakewright.format.own_files import UNFINISHED_FOLDER
from lakewright.format.partitions import list_files
from lakewright.format.records import (
    InstantInfo,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
    file_name,
    load_rollback_plan,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.runtime.events import Event
from lakewright.storage.base import Storage
from lakewright.txn.access import Access
from lakewright.txn.fence import close_fence, open_fence, remove_fence
from lakewright.txn.heartbeat import Heartbeat, stop_heartbeat
from lakewright.txn.liveness import is_alive
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.markers import (
    Marker,
    MarkerType,
    create_marker,
    delete_markers,
    read_markers,
)
from lakewright.txn.rollback_plan import (
    COMPACTION,
    files_of_instant,
    full_path,
    plan_rollback,
    touched_partitions,
)
from lakewright.txn.times import next_time

__all__ = [
    "ROLLBACK",
    "PendingRollback",
    "execute_rollback",
    "pending_rollbacks",
    "rollbacks_by_target",
    "schedule_rollback",
]

ROLLBACK = "rollback"
_COMMAND_TOKEN = "1-0-1"  # noqa: S105 - a write token, as Hudi's rollbacks have


@dataclass(frozen=True, slots=True)
class PendingRollback:
    """A rollback on the timeline that is not completed."""

    instant: str
    plan: RollbackPlan

    @property
    def target(self) -> InstantInfo:
        """What it rolls back."""
        assert self.plan.instant_to_rollback is not None
        return self.plan.instant_to_rollback


# ---- scheduling, under the lock ----------------------------------------------------------------


def pending_rollbacks(
    access: Access, properties: TableProperties, timeline: Timeline
) -> dict[str, PendingRollback]:
    """Pending rollbacks by the time of their targets."""
    return rollbacks_by_target(access, properties, timeline.filter_actions(ROLLBACK).pending())


def rollbacks_by_target(
    access: Access, properties: TableProperties, rollbacks: Iterable[Instant]
) -> dict[str, PendingRollback]:
    """Rollbacks by the time of their targets; those whose plan cannot be read are left out.

    Such a plan is being written, or was cut by a crash; what it was for is planned again.
    """
    found: dict[str, PendingRollback] = {}
    for instant in rollbacks:
        try:
            plan = load_rollback_plan(access.storage, properties, instant)
        except (FormatError, NotFoundError):
            continue
        if plan.instant_to_rollback is not None:
            found[plan.instant_to_rollback.commit_time] = PendingRollback(
                instant.requested_time, plan
            )
    return found


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
    started_s = access.clock.monotonic_s()
    try:
        properties = access.properties()
        done = _Undone()
        for request in rollback.plan.rollback_requests or ():
            heartbeat.check()
            _undo(access, properties, rollback, request, heartbeat, done)
        _collect_command_logs(access.storage, rollback.instant, done)
        _sweep_late_files(access, rollback, heartbeat, done)
        took_ms = int((access.clock.monotonic_s() - started_s) * 1000)
        metadata = done.metadata(rollback, took_ms)
        if not _finish(access, rollback, metadata, heartbeat, keeps_plan=keeps_plan):
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
    with access.locked(f"rollback {rollback.instant}") as lease:
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
) -> bool:
    """Take the target off the timeline and complete the rollback, under the lock."""
    with access.locked(f"rollback {rollback.instant}") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        found = timeline.get(rollback.instant, ROLLBACK)
        if found is None or found.completed:
            return False
        target = timeline.get(rollback.target.commit_time, rollback.target.action)
        if target is not None and target.completed:
            raise ConflictError(
                f"The write {target.requested_time} was committed while it was rolled back.",
                hint="Two writers do not share one lock. Look at the timeline before going on: "
                "its files are gone.",
                context={"instant": target.requested_time, "rollback": rollback.instant},
            )
        heartbeat.check()
        completed = next_time(timeline, properties, access.clock, after=rollback.instant)
        access.clock.sleep(access.skew_s())
        lease.check()
        files = access.files(properties)
        if target is not None and keeps_plan:
            files.withdraw(target.requested_time, target.action)
        elif target is not None:
            files.remove(target.requested_time, target.action)
        lease.check()
        content = metadata.write(properties.version)
        files.complete(rollback.instant, ROLLBACK, content, completed)
        return True


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
    heartbeat: Heartbeat,
    done: _Undone,
) -> None:
    partition = request.partition_path
    for path in request.files_to_be_deleted:
        name = file_name(path)
        assert name is not None
        _delete(access.storage, partition, name, done)
    blocks = request.log_blocks_to_be_deleted or {}
    if blocks and properties.version.rollback_by_log_block:
        _write_command_block(access, rollback, request, heartbeat)
        done.failed_logs.setdefault(partition, {}).update(blocks)


def _delete(storage: Storage, partition: str, name: str, done: _Undone) -> None:
    path = f"{partition}/{name}" if partition else name
    storage.delete(path)
    done.deleted.setdefault(partition, []).append(full_path(storage, path))


def _write_command_block(
    access: Access, rollback: PendingRollback, request: RollbackRequest, heartbeat: Heartbeat
) -> None:
    """Cancel the target's blocks in one file group, by a log file of its own.

    One that comes too late is taken back: whoever finished the rollback does not know of it.
    """
    partition, file_id = request.partition_path, request.file_id or ""
    base_instant = request.latest_base_instant or ""
    block = rollback_block(instant=rollback.instant, target=rollback.target.commit_time)
    for version in _free_versions(access.storage, partition, file_id, base_instant):
        name = LogFileName(file_id, base_instant, version, _COMMAND_TOKEN).text
        create_marker(access.storage, rollback.instant, Marker(partition, name, MarkerType.APPEND))
        path = f"{partition}/{name}" if partition else name
        try:
            access.storage.create_if_absent(path, block)
        except AlreadyExistsError:
            heartbeat.check()
            continue
        try:
            heartbeat.check()
        except FencedError:
            access.storage.delete(path)
            raise
        return


def _collect_command_logs(storage: Storage, instant: str, done: _Undone) -> None:
    """The log files of command blocks, those of earlier attempts at this rollback included."""
    for marker in read_markers(storage, instant) or ():
        with suppress(NotFoundError):
            size = storage.stat(marker.data_path).size
            logs = done.command_logs.setdefault(marker.partition, {})
            logs[full_path(storage, marker.data_path)] = size


def _free_versions(
    storage: Storage, partition: str, file_id: str, base_instant: str
) -> Iterator[int]:
    """Log versions above all that a slice has."""
    names = (parse_data_file(file.name) for file in list_files(storage, partition))
    logs = (n for n in names if isinstance(n, LogFileName))
    taken = [n.version for n in logs if (n.file_id, n.instant) == (file_id, base_instant)]
    version = max(taken, default=0)
    while True:
        version += 1
        yield version


def _sweep_late_files(
    access: Access, rollback: PendingRollback, heartbeat: Heartbeat, done: _Undone
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
    heartbeat.check()
    for marker in markers or ():
        if marker.type is not MarkerType.APPEND and storage.delete(marker.data_path):
            done.deleted.setdefault(marker.partition, []).append(
                full_path(storage, marker.data_path)
            )
    for partition, names in found.items():
        for name in names:
            _delete(storage, partition, name, done)
    storage.sweep(UNFINISHED_FOLDER)
