"""Transactions: the way of a write from its request to its commit.

`begin` puts a write on the timeline under the lock; tasks then write files behind its fence; and
`commit`, under the lock again, reads the timeline anew, checks that the write is still ours and
against whom it stands, removes what failed task attempts left, and publishes. Readers see nothing
before the completed file and everything from then on. A process may die at any storage operation:
what it leaves is rolled back by the next writer.

Nothing that takes long happens under the lock: no data file is read or written there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from lakewright.codec.avro.schema import parse_schema
from lakewright.errors import (
    ConflictError,
    FencedError,
    LakewrightError,
    OutcomeUnknownError,
    StorageError,
    WriteConflictError,
)
from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import Instant, State
from lakewright.format.own_files import OUTCOME_FOLDER
from lakewright.format.records import (
    CommitMetadata,
    WriteStat,
    load_commit_metadata,
    load_compaction_plan,
    load_requested_replace,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline, is_pending_clustering
from lakewright.metadata.batch import FILE_INDEXES, MetadataBatch, batch_of_commit
from lakewright.metadata.file_groups import FILES
from lakewright.metadata.index_changes import Indexing, nothing_indexed
from lakewright.runtime.cancel import NEVER_CANCELLED
from lakewright.runtime.events import Event
from lakewright.txn.access import Access, FailedWrites
from lakewright.txn.carried import carried_forward
from lakewright.txn.conflict import (
    Mutation,
    Other,
    completed_since,
    find_conflict,
    groups_of_commit,
    groups_of_compaction,
    groups_of_replacement,
    raise_conflict,
    refuse_overtaken,
    undone_since,
)
from lakewright.txn.fence import Fence, close_fence, open_fence, remove_fence
from lakewright.txn.heartbeat import Heartbeat
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.mark import marked
from lakewright.txn.markers import MarkerType, delete_markers, read_markers
from lakewright.txn.metadata_commit import publish_metadata, until_indexes_agree
from lakewright.txn.recovery import roll_back, roll_back_failed, sweep_traces
from lakewright.txn.restoring import refuse_restore
from lakewright.txn.rollback import ROLLBACK, pending_rollbacks, rollbacks_by_target
from lakewright.txn.times import next_time

__all__ = ["Committed", "Prepared", "Transaction", "begin"]

TIME_TRIES: Final = 20
"""How often another process may have taken the same time without the lock."""
"""How often a write is told anew what it means for indexes."""
SCHEMA_KEY: Final = "schema"
"""Where a commit tells its columns."""
NO_PREVIOUS: Final = (None, "", "null")
"""What a write stat says of a file group that is new."""

Guard = Callable[[Timeline], None]
"""A last look at the timeline, under the lock; raises if the write must not be committed."""


def _no_guard(timeline: Timeline) -> None:
    """Let it be committed."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a write did, ready to be committed."""

    metadata: CommitMetadata
    basis: Timeline
    """The timeline on which the write is based."""
    overwritten: frozenset[str] | None = None
    """Partitions of which everything older goes, also what was committed since; None is none."""
    whole_table: bool = False
    """Whether everything older goes, in all partitions."""
    guard: Guard = field(default=_no_guard)
    non_blocking: bool = False
    """Logs that others wrote to the same file groups are no conflict: readers order them."""
    rewrites: bool = False
    """The same rows in other files: no write is a conflict, and the columns are those of the newest
    one."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A write that readers see."""

    instant: str
    completion_time: str
    lock_held_ms: int
    metadata: CommitMetadata
    removed_files: tuple[str, ...] = ()
    """Files of failed task attempts."""
    warnings: tuple[str, ...] = ()


def begin(
    access: Access,
    *,
    action: str,
    requested: bytes = b"",
    profile: CommitMetadata | None = None,
    basis: Timeline | None = None,
) -> Transaction:
    """Put a new write on the timeline; inflight at once if it is known what it is going to do.

    With a `basis` a write that was overtaken since, in what its profile says, does not even begin:
    readers of Hudi 0.x stop at the first block of a log that is newer than all commits, also after
    it was taken back, and miss what others have written behind it.

    Raises `LockHeldError` if the lock is not to be had, `TableError` while a restore is pending.
    """
    if access.failed_writes is FailedWrites.EAGER:
        roll_back_failed(access)
    with access.locked(f"begin of a {action}") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        refuse_restore(timeline, "written")
        if basis is not None and profile is not None:
            changed = {_group(s) for s in profile.write_stats if s.prev_commit not in NO_PREVIOUS}
            refuse_overtaken(access.storage, properties, changed, basis, timeline)
        instant, heartbeat = _request(access, properties, timeline, lease, action, requested)
        transaction = Transaction(access, properties, instant, action, heartbeat)
        if profile is not None:
            transaction.start_under(lease, profile)
        access.clock.sleep(access.skew_s())
    return transaction


def _request(
    access: Access,
    properties: TableProperties,
    timeline: Timeline,
    lease: Lease,
    action: str,
    requested: bytes,
) -> tuple[str, Heartbeat]:
    """Take a time that nobody else has, and request the write at it.

    Who it is and that it lives is known before the write is on the timeline.
    """
    files = access.files(properties)
    for _ in range(TIME_TRIES):
        instant = next_time(timeline, properties, access.clock)
        open_fence(access.storage, instant, access.processes.own)
        heartbeat = Heartbeat.start(
            access.storage,
            instant,
            access.heartbeat,
            clock=access.clock,
            spawner=access.spawner,
        )
        try:
            lease.check()
            files.request(instant, action, requested)
            timeline = access.timeline(properties)
            if not any(i.requested_time == instant and i.action != action for i in timeline):
                return instant, heartbeat
            # A writer that takes its times without the lock was here at the same millisecond.
            files.remove(instant, action)
        except LakewrightError:
            heartbeat.stop()
            remove_fence(access.storage, instant)
            raise
        heartbeat.stop()
        remove_fence(access.storage, instant)
    raise ConflictError(
        "No free instant time was found: others take times at the same moments.",
        hint="Make every writer of the table use the same lock.",
        context={"table": access.storage.uri},
        retryable=True,
    )


class Transaction:
    """A write on the timeline that is not committed yet."""

    def __init__(
        self,
        access: Access,
        properties: TableProperties,
        instant: str,
        action: str,
        heartbeat: Heartbeat,
        *,
        attempt: str = "",
        completes_as: str | None = None,
    ) -> None:
        """`attempt`: which one at a plan that may be executed again. `completes_as`: the action
        that a plan has when it is completed."""
        self._access = access
        self._properties = properties
        self._heartbeat = heartbeat
        self._over = False
        self._invalid: tuple[str, ...] = ()
        """Files of task attempts that are not in the commit."""
        self.instant = instant
        self.action = action
        self._completes_as = completes_as or action
        files = access.files(properties)
        self.fence = Fence(instant, files.path(instant, action, State.INFLIGHT), attempt, own=True)

    def start(self, profile: CommitMetadata | None = None) -> None:
        """Become inflight; `profile` tells what is going to be written, as far as is known.

        Under the lock, as rollbacks are scheduled and finished under it: the inflight file of a
        write that is being rolled back would survive its rollback.
        """
        with self._access.locked(f"start of {self.instant}") as lease:
            self.start_under(lease, profile or CommitMetadata(operation_type="UNKNOWN"))

    def start_under(self, lease: Lease, profile: CommitMetadata) -> None:
        """Become inflight; the caller holds the lock."""
        access = self._access
        extra = marked(profile.extra_metadata, alone=access.alone)
        content = replace(profile, extra_metadata=extra).write(self._properties.version)
        files = access.files(self._properties)
        requested = Fence(self.instant, files.path(self.instant, self.action, State.REQUESTED))
        requested.check(access.storage)
        lease.check()
        files.start(self.instant, self.action, content)
        try:
            requested.check(access.storage)
        except FencedError:
            # The lease was lost on the way, to somebody who took this process for dead.
            files.withdraw(self.instant, self.action)
            raise

    def commit(self, prepared: Prepared, indexing: Indexing = nothing_indexed) -> Committed:
        """Publish the write, in the metadata table too; until this returns, or fails with an
        unknown outcome, nobody sees it. `indexing` tells what it means for indexes besides `files`,
        again if the table got others while it was written.

        Raises `WriteConflictError` or `FencedError` (both retryable as a whole new write) and
        leaves the write pending then, to be aborted.
        """
        return until_indexes_agree(lambda: self._commit(prepared, self._batch(prepared, indexing)))

    def _batch(self, prepared: Prepared, indexing: Indexing) -> MetadataBatch:
        storage, content = self._access.storage, prepared.metadata
        properties = self._access.properties()
        return batch_of_commit(storage, properties, self.instant, content, indexing(properties))

    def _commit(self, prepared: Prepared, metadata: MetadataBatch) -> Committed:
        self._access.cancel.check()
        self._heartbeat.check()
        done: list[Committed] = []
        warnings: list[str] = []
        try:
            with self._access.locked(f"commit of {self.instant}") as lease:
                done.append(self._publish(lease, prepared, metadata))
        except LakewrightError as error:
            if not done:
                raise
            # The write is committed; only giving the lock back failed, and it will expire.
            warnings.append(str(error))
        self._over = True
        self._clear_up(done[0], warnings)
        return replace(done[0], warnings=tuple(warnings))

    def abort(self) -> str:
        """Give the write up and roll it back; in a sentence, what became of it.

        What cannot be rolled back now is left to the next writer. A write that turns out to have
        been committed, because it was interrupted right after that, stays committed.
        """
        if self._over:
            return f"The write {self.instant} was committed."
        self._over = True
        undisturbed = replace(self._access, cancel=NEVER_CANCELLED)
        try:
            if self.instant in roll_back(undisturbed, self.instant).rolled_back:
                return f"The write {self.instant} was rolled back."
            found = self._access.timeline(self._properties).get(self.instant, self.action)
            if found is not None and found.completed:
                return f"The write {self.instant} had been committed already."
            return f"The write {self.instant} is being rolled back by another process."
        except LakewrightError as error:
            return f"The write {self.instant} is pending, to be rolled back by the next: {error}"
        finally:
            with suppress(LakewrightError):
                self._heartbeat.stop()

    # ---- under the lock ------------------------------------------------------------------------

    def _publish(self, lease: Lease, prepared: Prepared, metadata: MetadataBatch) -> Committed:
        access = self._access
        held_s = access.clock.monotonic_s()
        properties = access.properties()
        timeline = access.timeline(properties)
        self._check_still_ours(properties, timeline)
        prepared.guard(timeline)
        content = self._resolved(prepared, properties, timeline)
        if metadata.indexes - FILE_INDEXES - {FILES}:
            self._refuse_more_replaced(prepared, content)
        removed = self._reconcile(lease, content)
        self._heartbeat.check()
        lease.check()
        latest = publish_metadata(access, lease, properties, timeline, metadata)
        after = max(self.instant, latest or "")
        completion_time = next_time(timeline, properties, access.clock, after=after)
        access.clock.sleep(access.skew_s())
        self._heartbeat.check()
        lease.check()
        self._complete(properties, content, completion_time)
        held_ms = int((access.clock.monotonic_s() - held_s) * 1000)
        return Committed(self.instant, completion_time, held_ms, content, tuple(removed))

    def _check_still_ours(self, properties: TableProperties, timeline: Timeline) -> None:
        if properties.version != self._properties.version:
            raise self._fenced("began at another table version")
        found = timeline.get(self.instant, self.action)
        if found is None:
            raise self._fenced("is no longer on the timeline: another process rolled it back")
        if found.state is not State.INFLIGHT:
            raise self._fenced(f"is {found.state.name.lower()} and not inflight")
        if self.instant in pending_rollbacks(self._access, properties, timeline):
            raise self._fenced("is being rolled back by another process")
        if self.fence.attempt:
            # Another attempt may have rolled this one back, and be inflight in its place.
            self.fence.check(self._access.storage)

    def _fenced(self, why: str) -> FencedError:
        return FencedError(
            f"The write {self.instant} {why}.",
            hint="Nothing was published; run the write again. If it happens again and again, raise "
            "the heartbeat's tolerance, or let other writers use the LAZY policy.",
            context={"instant": self.instant, "table": self._access.storage.uri},
            retryable=True,
        )

    def _resolved(
        self, prepared: Prepared, properties: TableProperties, timeline: Timeline
    ) -> CommitMetadata:
        """The commit's content, after it has stood against everything that was committed since."""
        storage = self._access.storage
        self._refuse_undone(prepared.basis, properties, timeline)
        since = [
            (i, load_commit_metadata(storage, properties, i))
            for i in completed_since(prepared.basis, timeline)
        ]
        content = self._overwriting(prepared, since)
        if prepared.rewrites:
            content = self._with_newest_columns(content, properties, timeline)
        else:
            self._refuse_other_schema(prepared.metadata, since)
        mine = _mutation(self.instant, prepared.metadata)
        if mine.groups and not prepared.rewrites:
            others = [
                Other(
                    i,
                    metadata.operation_type or "",
                    groups_of_commit(metadata),
                    known=_knows(prepared.basis, i),
                )
                for i, metadata in since
            ]
            others.extend(self._plans(properties, timeline, prepared.basis))
            if prepared.non_blocking:
                others = [other for other in others if other.instant.action == "replacecommit"]
            found = find_conflict(mine, others, properties.version)
            if found is not None:
                raise_conflict(mine, *found)
        extra = carried_forward(storage, properties, timeline, content.extra_metadata)
        return replace(content, extra_metadata=marked(extra, alone=self._access.alone))

    def _refuse_more_replaced(self, prepared: Prepared, content: CommitMetadata) -> None:
        """Which keys go was found out before the lock."""
        known, now = (m.partition_to_replace_file_ids or {} for m in (prepared.metadata, content))
        if {p: set(ids) for p, ids in known.items()} != {p: set(ids) for p, ids in now.items()}:
            raise WriteConflictError(
                "Rows came into the overwritten partitions meanwhile, and the indexes of records "
                "must know which.",
                hint="Nothing was published. Run the write again.",
                context={"instant": self.instant},
                retryable=True,
            )

    def _refuse_undone(
        self, basis: Timeline, properties: TableProperties, timeline: Timeline
    ) -> None:
        """What the write is based on must not have been taken back."""
        new = timeline.filter(
            lambda i: i.action == ROLLBACK and basis.get(i.requested_time, ROLLBACK) is None
        )
        targets = rollbacks_by_target(self._access, properties, new)
        undone = undone_since(basis, timeline, targets)
        if undone is not None:
            raise WriteConflictError(
                f"What this write is based on was taken back meanwhile ({undone}).",
                hint="Nothing was published. Run the write again: it will be based on the state "
                "that is there now.",
                context={"instant": self.instant, "undone": undone},
                retryable=True,
            )

    def _with_newest_columns(
        self, content: CommitMetadata, properties: TableProperties, timeline: Timeline
    ) -> CommitMetadata:
        """A commit's schema becomes the table's: that of the newest write stays."""
        storage = self._access.storage
        for instant in reversed(timeline.commits().completed().instants):
            newest = load_commit_metadata(storage, properties, instant).schema
            if newest:
                extra = {**(content.extra_metadata or {}), SCHEMA_KEY: newest}
                return replace(content, extra_metadata=extra)
        return content

    def _refuse_other_schema(
        self, mine: CommitMetadata, since: Sequence[tuple[Instant, CommitMetadata]]
    ) -> None:
        """A commit's schema becomes the table's, so it must not take back what another added."""
        for instant, metadata in since:
            theirs = metadata.schema
            if theirs and mine.schema and parse_schema(theirs) != parse_schema(mine.schema):
                raise WriteConflictError(
                    f"The write {instant.requested_time} changed the table's columns meanwhile.",
                    hint="Nothing was published. Run the write again: it will start from the new "
                    "columns.",
                    context={"instant": self.instant, "other": instant.requested_time},
                    retryable=True,
                )

    def _overwriting(
        self, prepared: Prepared, since: Sequence[tuple[Instant, CommitMetadata]]
    ) -> CommitMetadata:
        """The content, with file groups replaced that came into overwritten partitions meanwhile.

        What others committed since comes before this write, except where order is that of requested
        times and theirs is later.
        """
        if prepared.overwritten is None and not prepared.whole_table:
            return prepared.metadata
        by_completion = self._properties.version.slices_by_completion_time
        replaced = {
            p: list(ids)
            for p, ids in (prepared.metadata.partition_to_replace_file_ids or {}).items()
        }
        for instant, metadata in since:
            if not by_completion and instant.requested_time > self.instant:
                continue
            for group in sorted(_new_groups(metadata)):
                covered = prepared.whole_table or group.partition in (prepared.overwritten or ())
                ids = replaced.setdefault(group.partition, []) if covered else None
                if ids is not None and group.file_id not in ids:
                    ids.append(group.file_id)
        return replace(prepared.metadata, partition_to_replace_file_ids=replaced)

    def _plans(
        self, properties: TableProperties, timeline: Timeline, basis: Timeline
    ) -> list[Other]:
        """Pending plans that take file groups: compactions and clusterings."""
        storage = self._access.storage
        found: list[Other] = []
        for instant in timeline.pending():
            if instant.action == "compaction":
                plan = load_compaction_plan(storage, properties, instant)
                groups, known = groups_of_compaction(plan), _knows(basis, instant)
                found.append(Other(instant, "COMPACT", groups, known))
            elif is_pending_clustering(storage, properties, instant):
                request = load_requested_replace(storage, properties, instant)
                found.append(Other(instant, "CLUSTER", groups_of_replacement(request)))
        return found

    def _reconcile(self, lease: Lease, content: CommitMetadata) -> list[str]:
        """Close the fence and delete the files of task attempts that are not in the commit.

        Whoever lost the lock on the way may have found files of a process that took over.
        """
        storage = self._access.storage
        close_fence(storage, self.instant)
        valid = content.data_paths
        invalid = [
            marker.data_path
            for marker in read_markers(storage, self.instant) or ()
            if marker.type is not MarkerType.APPEND and marker.data_path not in valid
        ]
        self._heartbeat.check()
        lease.check()
        self._invalid = tuple(invalid)
        return [path for path in invalid if storage.delete(path)]

    def _complete(
        self, properties: TableProperties, content: CommitMetadata, completion_time: str
    ) -> None:
        files = self._access.files(properties)
        data = content.write(properties.version)
        try:
            files.complete(self.instant, self._completes_as, data, completion_time)
        except OutcomeUnknownError as error:
            with suppress(StorageError):
                found = self._access.timeline(properties).get(self.instant, self.action)
                if found is not None and found.completed:
                    return
            raise error from None

    # ---- after it ------------------------------------------------------------------------------

    def _clear_up(self, committed: Committed, warnings: list[str]) -> None:
        """Remove the traces of a committed write; what fails is told and left to others.

        While this process gives signs of life nobody takes the commit back; so the heartbeat goes
        last. A process that stood still leaves the traces alone: they may be those of another
        attempt at the same plan.
        """
        access = self._access
        try:
            if self._heartbeat.is_ours():
                for path in self._invalid:  # a late attempt may have published it since
                    access.storage.delete(path)
                delete_markers(access.storage, self.instant)
                access.storage.delete_tree(f"{OUTCOME_FOLDER}/{self.instant}")
                remove_fence(access.storage, self.instant)
            self._heartbeat.leave()
            if access.failed_writes is FailedWrites.LAZY:
                roll_back_failed(access)
            if access.failed_writes is not FailedWrites.NEVER:
                sweep_traces(access)
        except LakewrightError as error:
            warnings.append(str(error))
        access.on_event(
            Event("commit.done", committed.lock_held_ms, unit="ms", instant=self.instant)
        )


# ---- what a commit's content says --------------------------------------------------------------


def _mutation(instant: str, content: CommitMetadata) -> Mutation:
    """What a write changes of what was there before."""
    replaced = content.partition_to_replace_file_ids or {}
    groups = {FileGroupId(p, file_id) for p, ids in replaced.items() for file_id in ids}
    changed = {_group(s) for s in content.write_stats if s.prev_commit not in NO_PREVIOUS}
    bases = [s for s in content.write_stats if s.prev_commit not in NO_PREVIOUS and not _is_log(s)]
    rewritten = {_group(s) for s in bases}
    if any((s.prev_commit or "") >= instant for s in bases):
        raise WriteConflictError(
            f"The write {instant} is based on files that are newer than itself.",
            hint="Nothing was published. Load the snapshot before the write begins, and run it "
            "again.",
            context={"instant": instant},
            retryable=True,
        )
    return Mutation(instant, frozenset(groups | changed), frozenset(rewritten))


def _knows(basis: Timeline, instant: Instant) -> bool:
    return basis.get(instant.requested_time, instant.completed_action) is not None


def _new_groups(content: CommitMetadata) -> set[FileGroupId]:
    return {_group(stat) for stat in content.write_stats if stat.file_id}


def _group(stat: WriteStat) -> FileGroupId:
    return FileGroupId(stat.partition_path or "", stat.file_id or "")


def _is_log(stat: WriteStat) -> bool:
    return ".log." in (stat.path or "").rpartition("/")[2]
