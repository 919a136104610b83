"""A table in memory with something to clean, and processes that clean it, die and stand still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from lakewright.format.file_names import parse_data_file
from lakewright.format.partitions import list_table
from lakewright.format.records import CleanMetadata, load_clean_metadata
from lakewright.format.view_inputs import load_view
from lakewright.runtime import ManualClock
from lakewright.runtime.process import ProcessIdentity
from lakewright.services.clean_options import CleanOptions
from lakewright.services.clean_selection import files_of
from lakewright.storage.faults import Operation
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.txn.access import Access
from lakewright.txn.transaction import begin
from tests.txn.tables import START_MS, KnownProcesses, new_access, new_storage, prepared, write_file

DYING = ProcessIdentity("here", "boot", 66, "1")
OTHER = ProcessIdentity("there", "boot", 77, "1")
ONE = CleanOptions(commits_retained=1)
TRACES = (".hoodie/.temp/", ".hoodie/.heartbeat/", ".hoodie/.lakewright/")


@dataclass
class Meanwhile:
    """A fault hook that lets something else happen before one storage operation."""

    index: int
    action: Callable[[], None]
    happened: bool = False

    def before(self, operation: Operation) -> None:
        """Let it happen."""
        if operation.index == self.index and not self.happened:
            self.happened = True
            self.action()

    def after(self, operation: Operation) -> None:
        """Nothing."""

    def view(self, operation: Operation, newest: int) -> int:
        """The truth."""
        return newest


@dataclass
class World:
    """One table, one clock."""

    version: int = 8
    clock: ManualClock = field(default_factory=lambda: ManualClock(START_MS))
    processes: KnownProcesses = field(default_factory=KnownProcesses)
    times: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bucket = MemoryBucket(clock=self.clock)
        self.storage = new_storage(self.version, "cow", MemoryStorage(self.bucket))

    @classmethod
    def with_history(cls, version: int = 8) -> World:
        """Six writes: old slices in two partitions, and a partition whose only group went."""
        times, objects = _history(version)
        world = cls(version, times=[*times])
        for path, (content, modified_ms) in objects.items():
            world.storage.replace(path, content)
            world.storage.set_modified(path, modified_ms)
        return world

    @property
    def expected(self) -> dict[str, set[str]]:
        """What a clean that retains one commit deletes of that history."""
        t = self.times
        return {
            "a": {_name("g1", t[0]), _name("g1", t[1]), _name("g1", t[2])},
            "b": {_name("g2", t[0])},
            "c": {_name("g3", t[0])},
        }

    def access(
        self,
        storage: MemoryStorage | None = None,
        own: ProcessIdentity | None = None,
        **more: Any,
    ) -> Access:
        """The table in the hands of a process."""
        processes = self.processes
        if own is not None:
            processes = KnownProcesses(own=own, dead=self.processes.dead)
        return new_access(storage or self.storage, self.clock, processes=processes, **more)

    def faulty(self, hook: Any) -> MemoryStorage:
        """Another client of the same bucket, with faults."""
        return MemoryStorage(self.bucket, faults=hook)

    def commit(self, *groups: str, replaced: dict[str, list[str]] | None = None) -> str:
        """A write of a new base file for each group, named partition/group."""
        access = self.access()
        transaction = begin(access, action="replacecommit" if replaced else "commit")
        transaction.start()
        stats = []
        for group in groups:
            partition, _, file_id = group.rpartition("/")
            known = any(f"{file_id}_" in path for path in self.data())
            stat = write_file(self.storage, transaction, partition, file_id)
            stats.append(replace(stat, prev_commit="1" if known else "null"))
        transaction.commit(prepared(access, *stats, replaced=replaced))
        self.times.append(transaction.instant)
        return transaction.instant

    def data(self) -> set[str]:
        """Paths of all data files."""
        return {path for path in self.bucket.objects() if parse_data_file(path.rpartition("/")[2])}

    def needed(self, as_of: str | None = None) -> set[str]:
        """Files that a reader of a moment reads."""
        access = self.access()
        properties = access.properties()
        timeline = access.timeline(properties)
        view = load_view(self.storage, properties, timeline, listing=list_table(self.storage))
        return {f.path for s in view.latest_merged_slices(as_of) for f in files_of(s)}

    def cleans(self) -> list[CleanMetadata]:
        """What the completed cleans say."""
        access = self.access()
        properties = access.properties()
        timeline = access.timeline(properties)
        assert not timeline.duplicates
        completed = timeline.filter_actions("clean").completed()
        return [load_clean_metadata(self.storage, properties, i) for i in completed]

    def pending(self) -> list[str]:
        """What is not completed."""
        access = self.access()
        return [str(i) for i in access.timeline(access.properties()).pending()]

    def traces(self) -> list[str]:
        """Files of processes that are over."""
        return [path for path in self.bucket.objects() if path.startswith(TRACES)]


@cache
def _history(version: int) -> tuple[tuple[str, ...], dict[str, tuple[bytes, int]]]:
    """The writes of the history, and the objects that they leave."""
    world = World(version)
    world.commit("a/g1", "b/g2", "c/g3")
    world.commit("a/g1")
    world.commit("a/g1", "b/g2")
    world.commit(replaced={"c": ["g3"]})
    world.commit("a/g1")
    world.commit("a/g1")
    objects = world.bucket.objects().items()
    found = {p: (bytes(c), world.storage.stat(p).modified_ms) for p, c in objects}
    return tuple(world.times), found


def named(metadata: CleanMetadata) -> dict[str, set[str]]:
    """File names that a completed clean lists, by partition."""
    found = {}
    for partition, said in metadata.partition_metadata.items():
        assert said.success_delete_files == said.delete_path_patterns
        assert not said.failed_delete_files
        found[partition] = set(said.success_delete_files)
    return found


def _name(file_id: str, time: str) -> str:
    return f"{file_id}_0-0-0_{time}.parquet"
