"""Building indexes beside writers: Hudi's `indexing` action.

It begins under the lock: the plan is on the timeline, the file groups are there, and the table says
that the indexes are being built. From then on every commit, of ours and of Hudi, writes its changes
behind the stubs. The first records are made without the lock, from the table as it was at that
moment, and lie in base files that are older than all changes. It ends under the lock: the base
files are committed, and the table says that it has the indexes.

A process that dies leaves indexes to which everybody goes on writing and which nobody reads.
Whoever builds next begins anew, with file groups of a later time: what the dead process wrote, or
writes should it only have stood still, is older than they and counts for nothing. The end is
refused, and the build begins anew, if a commit came meanwhile that the indexes do not know or that
brought columns which they know nothing of, if one was taken back that they know, or if somebody
compacted them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from lakewright.codec.avro.schema import Record, parse_schema
from lakewright.errors import (
    FencedError,
    IndexesChangedError,
    MetadataTableError,
    PlanBusyError,
)
from lakewright.format.file_names import BaseFileName, parse_data_file
from lakewright.format.instant import COMMIT_ACTIONS, Instant, State
from lakewright.format.partitions import list_files
from lakewright.format.records import (
    CommitMetadata,
    IndexCommitMetadata,
    IndexPartitionInfo,
    IndexPlan,
    WriteStat,
    load_commit_metadata,
    load_compaction_plan,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.batch import FILE_INDEXES, indexes_of
from lakewright.metadata.creation import NewIndex
from lakewright.metadata.definitions import IndexDefinition
from lakewright.metadata.file_groups import FILES, IndexGroups
from lakewright.runtime.events import Event
from lakewright.txn.access import Access
from lakewright.txn.fence import Fence, open_fence, owner_of, remove_fence
from lakewright.txn.heartbeat import Heartbeat
from lakewright.txn.liveness import is_alive, who_works_on
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.metadata_beginnings import (
    INDEXING,
    beginning_time,
    claim,
    commit_beginning,
    lay_out,
    write_records,
)
from lakewright.txn.metadata_definitions import define
from lakewright.txn.metadata_store import MetadataStore, open_store
from lakewright.txn.metadata_undo import DELTA_COMMIT, cleared
from lakewright.txn.restoring import refuse_restore
from lakewright.txn.times import next_time

__all__ = ["Building", "begin_building"]

_OPERATION: Final = "INDEX"
_CLEAN: Final = "clean"
T = TypeVar("T")


def begin_building(
    access: Access,
    groups: Mapping[str, IndexGroups],
    look: Callable[[], T],
    *,
    defined: Collection[IndexDefinition] = (),
) -> Building[T] | None:
    """Begin indexes with these file groups; None if the table has them all.

    `look` is called under the lock: what it gives is the table as it is when everybody begins to
    write to the indexes. For that they must know what an index is about: `defined` is stored first,
    as far as it is about indexes that begin. Raises `PlanBusyError` while another process builds
    any.
    """
    with ExitStack() as failing, access.locked("beginning of indexes") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        refuse_restore(timeline, "indexed")
        present = properties.metadata_partitions
        if not indexes_of(properties):
            raise _dropped(access)
        if FILES not in present:
            raise MetadataTableError(
                "The table has no list of files in a metadata table, which indexes need.",
                hint="Build the metadata table first.",
                context={"table": access.storage.uri},
            )
        _forget_dead(access, lease, properties, timeline)
        wanted = {name: each for name, each in groups.items() if name not in present}
        if not wanted:
            if properties.metadata_partitions_inflight:
                claim(access, lease, built=present)
            return None
        instant = next_time(timeline, properties, access.clock)
        lease.check()
        open_fence(access.storage, instant, access.processes.own)
        heartbeat = Heartbeat.start(
            access.storage, instant, access.heartbeat, clock=access.clock, spawner=access.spawner
        )
        failing.push(heartbeat.after_failure)
        infos = _infos(timeline, instant, wanted)
        files = access.files(properties)
        plan = IndexPlan(index_partition_infos=infos).write(properties.version)
        lease.check()
        files.request(instant, INDEXING, plan)
        store = cleared(open_store(access, lease, properties, timeline), lease, "")
        if properties.metadata_partitions_inflight:
            claim(access, lease, built=present)  # nobody writes to file groups that go away
        begins: dict[str, str] = {}
        for name, each in wanted.items():
            begins[name] = beginning_time(store, name, begins.values())
            lay_out(store, lease, each, begins[name])
        define(access, lease, properties, [d for d in defined if d.name in wanted])
        claim(access, lease, built=present, building=wanted)
        files.start(instant, INDEXING)
        basis = look()
        access.clock.sleep(access.skew_s())
    access.on_event(Event("indexing.begun", len(wanted), unit="indexes", instant=instant))
    return Building(access, store, instant, wanted, begins, timeline, infos, basis, heartbeat)


def _dropped(access: Access) -> IndexesChangedError:
    return IndexesChangedError(
        "The metadata table was dropped while indexes of it were to begin.",
        hint="Nothing was begun. Run it again: it is made anew then.",
        context={"table": access.storage.uri},
        retryable=True,
    )


def _infos(timeline: Timeline, instant: str, wanted: Collection[str]) -> list[IndexPartitionInfo]:
    """What the plan says of each index: up to which commit its first records go."""
    latest = timeline.completed().last()
    upto = latest.requested_time if latest is not None else instant
    return [
        IndexPartitionInfo(metadata_partition_path=name, index_upto_instant=upto) for name in wanted
    ]


def _forget_dead(
    access: Access, lease: Lease, properties: TableProperties, timeline: Timeline
) -> None:
    """Take plans of dead processes of ours off the timeline; refuse if anybody else builds."""
    files = access.files(properties)
    for found in timeline.filter_actions(INDEXING).pending():
        time = found.requested_time
        if is_alive(access, time) or owner_of(access.storage, time) is None:
            raise _busy(access, properties, found)
        lease.check()
        files.remove(time, INDEXING)
        remove_fence(access.storage, time)


def _busy(access: Access, properties: TableProperties, found: Instant) -> PlanBusyError:
    names = ", ".join(properties.metadata_partitions_inflight)
    who = who_works_on(access, found.requested_time) or "a process that is not ours"
    return PlanBusyError(
        f"The indexing {found.requested_time} builds {names or 'indexes'} already: {who}.",
        hint="Let it finish. If a Hudi indexer died, run it again with that instant, or drop the "
        "metadata table.",
        context={"table": access.storage.uri, "instant": found.requested_time},
        retryable=True,
    )


@dataclass(frozen=True, slots=True)
class Building(Generic[T]):
    """Indexes that are being built by this process."""

    access: Access
    store: MetadataStore
    """Where base files go; that needs no lock, since nobody reads them."""
    instant: str
    groups: Mapping[str, IndexGroups]
    begins: Mapping[str, str]
    """The time of the file groups of each index."""
    timeline: Timeline
    """The table's, when everybody began to write to the indexes."""
    infos: Sequence[IndexPartitionInfo]
    basis: T
    """The table as it was then."""
    heartbeat: Heartbeat

    def finish(self, indexes: Sequence[NewIndex], columns: Collection[str]) -> bool:
        """Write the first records, of a table with these columns, and let it have the indexes.

        False: something came in between, and they must be built anew. `FencedError`: another
        process builds them now.
        """
        access = self.access
        written: dict[str, list[WriteStat]] = {}
        for index in indexes:
            begun = self.begins[index.name]
            written[index.name] = write_records(self.store, index, begun, self._check)
            done = len(written)
            told = Event("indexing.written", done, len(indexes), "indexes", instant=self.instant)
            access.on_event(told)
        with access.locked(f"indexing {self.instant}") as lease:
            properties = access.properties()
            timeline = access.timeline(properties)
            self._check()
            if not self._is_whole(properties, timeline) or self._is_undone(timeline):
                return False
            store = cleared(open_store(access, lease, properties, timeline), lease, "")
            if any(_is_compacted(store, index, at) for index, at in self.begins.items()):
                return False
            if not all(self._knows(store, commit, columns) for commit in self._since(timeline)):
                return False
            present = properties.metadata_partitions
            left = [i for i in properties.metadata_partitions_inflight if i not in self.groups]
            # Whoever takes back what this process leaves behind takes the file groups with it.
            claim(access, lease, built=present, building=left)
            for name, stats in written.items():
                commit_beginning(store, lease, name, self.begins[name], stats)
            about = [d for i in indexes if (d := i.definition) is not None]
            define(access, lease, properties, about)
            self._check()
            claim(access, lease, built=(*present, *self.groups), building=left)
            self._complete(lease, properties, timeline)
        self.leave()
        access.on_event(Event("indexing.done", len(indexes), unit="indexes", instant=self.instant))
        return True

    def leave(self) -> None:
        """Stop working on it, unless another process has taken over."""
        try:
            self.heartbeat.check()
        except FencedError:
            return
        self.heartbeat.stop()

    def _check(self) -> None:
        self.access.cancel.check()
        self.heartbeat.check()
        files = self.access.files(self.access.properties())
        pending = files.path(self.instant, INDEXING, State.INFLIGHT)
        Fence(self.instant, pending).check(self.access.storage)

    def _is_whole(self, properties: TableProperties, timeline: Timeline) -> bool:
        found = timeline.get(self.instant, INDEXING)
        pending = found is not None and not found.completed
        return pending and {*self.groups} <= indexes_of(properties)

    def _is_undone(self, timeline: Timeline) -> bool:
        """Whether a write that the first records know was taken back meanwhile."""
        return not all(
            timeline.contains_completed_or_archived(i.requested_time)
            for i in self.timeline.completed()
            if i.action in COMMIT_ACTIONS
        )

    def _since(self, timeline: Timeline) -> list[Instant]:
        """Commits that the first records do not know."""
        known = {(i.requested_time, i.action) for i in self.timeline.completed()}
        told = COMMIT_ACTIONS | {_CLEAN}
        return [
            i
            for i in timeline.completed()
            if i.action in told and (i.requested_time, i.action) not in known
        ]

    def _knows(self, store: MetadataStore, commit: Instant, columns: Collection[str]) -> bool:
        """Whether the changes of a commit came into the indexes, and are of columns they know.

        Indexes of files hear of every commit that writes some, but not of files that a clean takes
        away before they can be asked about them. Of records only what changed is told, so that the
        metadata table's commit must do.
        """
        of_files = self.groups.keys() & FILE_INDEXES
        if commit.action == _CLEAN:
            return not of_files
        found = store.timeline.get(commit.requested_time, DELTA_COMMIT)
        if found is None or not found.completed:
            return False
        data = load_commit_metadata(self.access.storage, store.data_properties, commit)
        if of_files and not _names(data) <= {*columns}:
            return False
        told = load_commit_metadata(store.storage, store.properties, found)
        return not data.data_paths or of_files <= told.partition_to_write_stats.keys()

    def _complete(self, lease: Lease, properties: TableProperties, timeline: Timeline) -> None:
        access = self.access
        content = IndexCommitMetadata(
            operation_type=_OPERATION, index_partition_infos=self.infos
        ).write(properties.version)
        completed = next_time(timeline, properties, access.clock, after=self.instant)
        access.clock.sleep(access.skew_s())
        lease.check()
        access.files(properties).complete(self.instant, INDEXING, content, completed)
        remove_fence(access.storage, self.instant)


def _names(commit: CommitMetadata) -> set[str]:
    """The columns that a commit tells of."""
    schema = parse_schema(commit.schema) if commit.schema else None
    return {field.name for field in schema.fields} if isinstance(schema, Record) else set()


def _is_compacted(store: MetadataStore, index: str, begun: str) -> bool:
    """Whether somebody compacted an index before it had its base files, or is about to."""
    names = [parse_data_file(file.name) for file in list_files(store.storage, index)]
    if any(isinstance(name, BaseFileName) and name.instant > begun for name in names):
        return True
    for pending in store.timeline.pending_compactions():
        plan = load_compaction_plan(store.storage, store.properties, pending)
        if any(operation.partition_path == index for operation in plan.operations or ()):
            return True
    return False
