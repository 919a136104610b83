"""Executing the plan of a clean, of ours or of Hudi: claimed under the lock, deleted without it.

Files are found by partition and name, because plans hold full paths that may be of another machine.
A partition that a plan empties loses its partition metadata only under the lock, while no write is
pending and none came since its folder was seen to be empty: a write into it would make files that
nobody lists. Otherwise it stays, as an empty partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from lakewright.errors import (
    FencedError,
    IndexesChangedError,
    NotFoundError,
)
from lakewright.format.cleaned_files import files_of_plan
from lakewright.format.instant import Instant, State
from lakewright.format.partitions import PARTITION_METADATA_FILE, list_files
from lakewright.format.records import (
    CleanerPlan,
    CleanMetadata,
    CleanPartitionMetadata,
    load_cleaner_plan,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.batch import FILE_INDEXES, batch_of_files, indexes_of
from lakewright.metadata.file_changes import cleaned_files
from lakewright.metadata.index_changes import IndexChange, IndexChanges
from lakewright.metadata.removed_records import removed_changes
from lakewright.metadata.table import MetadataTable
from lakewright.runtime.events import Event
from lakewright.runtime.lanes import FEW, in_lanes
from lakewright.storage.base import Storage
from lakewright.txn.access import Access
from lakewright.txn.fence import open_fence, remove_fence
from lakewright.txn.heartbeat import Heartbeat
from lakewright.txn.liveness import is_alive
from lakewright.txn.metadata_commit import publish_metadata, until_indexes_agree
from lakewright.txn.metadata_gate import pass_metadata_gate
from lakewright.txn.recovery import INGESTION
from lakewright.txn.states import InstantFiles
from lakewright.txn.times import next_time

__all__ = ["CLEAN", "execute_clean"]

CLEAN: Final = "clean"
DELETES_TOLD_TOGETHER: Final = 256
"""So many files go, several at a time, before what went is told."""
_METADATA_VERSION: Final = 2


def execute_clean(access: Access, instant: str) -> CleanMetadata | None:
    """Delete what a planned clean says and complete it; None if somebody else does or has done so.

    Cancelling stops between two files; the clean stays pending then. A process that stood still for
    too long ends with `FencedError`, and leaves the rest to the one that took over.
    """
    pass_metadata_gate(access, drop=False)
    claimed = _claim(access, instant)
    if claimed is None:
        return None
    plan, heartbeat = claimed
    started_s = access.clock.monotonic_s()
    try:
        files = files_of_plan(plan)
        _delete(access, instant, files, heartbeat)
        before, empty = _emptied(access, plan)
        took_ms = int((access.clock.monotonic_s() - started_s) * 1000)
        done = _Done(instant, plan, files, took_ms)
        metadata = _finish(access, done, heartbeat, before, empty)
    finally:
        _let_go(access, instant, heartbeat)
    if metadata is not None:
        deleted = metadata.total_files_deleted
        access.on_event(Event("clean.done", deleted, unit="files", instant=instant))
    return metadata


# ---- the beginning, under the lock -------------------------------------------------------------


def _claim(access: Access, instant: str) -> tuple[CleanerPlan, Heartbeat] | None:
    """Make this process the one that executes the clean."""
    with ExitStack() as failing, access.locked(f"clean {instant}") as lease:
        properties = access.properties()
        found = access.timeline(properties).get(instant, CLEAN)
        if found is None or found.completed or is_alive(access, instant):
            return None
        files = access.files(properties)
        content = _plan_bytes(access.storage, files, instant)
        lease.check()
        if not content:
            files.remove(instant, CLEAN)  # its process died before it wrote the plan
            return None
        plan = load_cleaner_plan(access.storage, properties, found)
        files_of_plan(plan)
        lease.check()
        open_fence(access.storage, instant, access.processes.own)
        lease.check()
        heartbeat = Heartbeat.start(
            access.storage, instant, access.heartbeat, clock=access.clock, spawner=access.spawner
        )
        failing.push(heartbeat.after_failure)
        if found.state is State.REQUESTED:
            files.start(instant, CLEAN, content)
        return plan, heartbeat


def _plan_bytes(storage: Storage, files: InstantFiles, instant: str) -> bytes:
    for state in (State.REQUESTED, State.INFLIGHT):
        try:
            content = storage.read(files.path(instant, CLEAN, state))
        except NotFoundError:
            continue
        if content:
            return content
    return b""


def _let_go(access: Access, instant: str, heartbeat: Heartbeat) -> None:
    """Stop beating, unless the signs of life may be those of the process that took over."""
    try:
        heartbeat.check()
    except FencedError:
        return
    heartbeat.stop()
    remove_fence(access.storage, instant)


# ---- deleting, without the lock ----------------------------------------------------------------


def _delete(
    access: Access, instant: str, files: dict[str, list[str]], heartbeat: Heartbeat
) -> None:
    paths = list(_paths(files))

    def delete(path: str) -> None:
        access.cancel.check()
        heartbeat.check()
        access.storage.delete(path)

    step = DELETES_TOLD_TOGETHER if len(paths) > FEW else 1
    for first in range(0, len(paths), step):
        part = paths[first : first + step]
        in_lanes(delete, part, spawner=access.spawner)
        for done, path in enumerate(part, first + 1):
            event = Event("clean.delete", done, len(paths), "files", instant=instant, path=path)
            access.on_event(event)


def _paths(files: dict[str, list[str]]) -> Iterator[str]:
    for partition, names in files.items():
        for name in names:
            yield f"{partition}/{name}" if partition else name


def _emptied(access: Access, plan: CleanerPlan) -> tuple[Timeline, list[str]]:
    """Partitions of the plan that have no data file left, and the timeline before that look."""
    before = access.timeline(access.properties())
    wanted = [p for p in plan.partitions_to_be_deleted or () if p]
    return before, [p for p in wanted if not list_files(access.storage, p)]


@dataclass(frozen=True, slots=True)
class _TakenBack:
    """What the indexes of the metadata table have about the files."""

    changes: IndexChanges
    looked_into: frozenset[str]
    """The indexes that were there to be looked into; others were being built, at the most."""

    @classmethod
    def of(cls, access: Access, instant: str, files: dict[str, list[str]]) -> _TakenBack:
        """Look into the indexes."""
        properties = access.properties()
        built = frozenset(properties.metadata_partitions)
        changes = {index: IndexChange() for index in indexes_of(properties)}
        if FILE_INDEXES.isdisjoint(changes):
            return cls(changes, built)
        timeline = access.timeline(properties)
        table = MetadataTable.open(access.storage, properties, timeline, check=False)
        assert table is not None
        found = removed_changes(table, files, instant=instant, version=properties.version)
        return cls(changes | found, built)

    def check(self, properties: TableProperties, instant: str) -> None:
        """`IndexesChangedError` if an index is there now that was not looked into: it may have
        begun with these files."""
        new = {*properties.metadata_partitions} - self.looked_into
        if new:
            raise IndexesChangedError(
                f"The index {', '.join(sorted(new))} was built while the clean deleted files.",
                hint="Nothing was published. Run the clean again.",
                context={"instant": instant},
                retryable=True,
            )


# ---- the end, under the lock -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Done:
    """What was deleted."""

    instant: str
    plan: CleanerPlan
    files: dict[str, list[str]]
    took_ms: int

    def metadata(self, removed: set[str]) -> CleanMetadata:
        """The record of the completed clean; `removed` are the partitions that are gone."""
        retained = self.plan.earliest_instant_to_retain
        partitions = sorted({*self.files, *removed})
        return CleanMetadata(
            start_clean_time=self.instant,
            time_taken_in_millis=self.took_ms,
            total_files_deleted=sum(map(len, self.files.values())),
            earliest_commit_to_retain=retained.timestamp if retained else "",
            last_completed_commit_timestamp=self.plan.last_completed_commit_timestamp,
            partition_metadata={p: self._partition(p, p in removed) for p in partitions},
            version=_METADATA_VERSION,
            extra_metadata=self.plan.extra_metadata or {},
        )

    def _partition(self, partition: str, removed: bool) -> CleanPartitionMetadata:
        names = self.files.get(partition, [])
        return CleanPartitionMetadata(
            partition_path=partition,
            policy=self.plan.policy,
            delete_path_patterns=names,
            success_delete_files=names,
            failed_delete_files=[],
            is_partition_deleted=removed,
        )


def _finish(
    access: Access, done: _Done, heartbeat: Heartbeat, before: Timeline, empty: list[str]
) -> CleanMetadata | None:
    """Complete the clean; None if another process has. Again, if the table got other indexes."""

    def attempt() -> CleanMetadata | None:
        indexed = _TakenBack.of(access, done.instant, done.files)
        return _complete(access, done, indexed, heartbeat, before, empty)

    return until_indexes_agree(attempt)


def _complete(
    access: Access,
    done: _Done,
    indexed: _TakenBack,
    heartbeat: Heartbeat,
    before: Timeline,
    empty: list[str],
) -> CleanMetadata | None:
    with access.locked(f"clean {done.instant}") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        found = timeline.get(done.instant, CLEAN)
        if found is None or found.completed:
            return None
        heartbeat.check()
        lease.check()
        indexed.check(properties, done.instant)
        removed = _remove_partitions(access.storage, timeline, before, empty)
        metadata = done.metadata(removed)
        changes = cleaned_files(metadata)
        batch = batch_of_files(access.storage, properties, done.instant, changes, indexed.changes)
        latest = publish_metadata(access, lease, properties, timeline, batch)
        after = max(done.instant, latest or "")
        completed = next_time(timeline, properties, access.clock, after=after)
        access.clock.sleep(access.skew_s())
        heartbeat.check()
        lease.check()
        content = metadata.write(properties.version)
        access.files(properties).complete(done.instant, CLEAN, content, completed)
        return metadata


def _remove_partitions(
    storage: Storage, timeline: Timeline, before: Timeline, empty: list[str]
) -> set[str]:
    """Take emptied partitions away, if surely nobody writes into them."""
    writes = _writes(timeline)
    if writes != _writes(before) or any(not i.completed for i in writes):
        return set()
    for partition in empty:
        for ending in ("", ".parquet"):
            storage.delete(f"{partition}/{PARTITION_METADATA_FILE}{ending}")
    return set(empty)


def _writes(timeline: Timeline) -> list[Instant]:
    return [i for i in timeline if i.action in INGESTION]
