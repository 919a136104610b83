"""A crash at every storage operation of every write: old or new, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pytest

from lakewright.engine.arrow_write import ArrowWriter, write_with_retries
from lakewright.engine.coexistence import open_access
from lakewright.engine.new_table import NewTable
from lakewright.engine.operations import (
    APPEND,
    BULK_INSERT,
    DELETE_PARTITION,
    OVERWRITE_PARTITIONS,
    OVERWRITE_TABLE,
    Operation,
)
from lakewright.engine.row_source import RowSource
from lakewright.engine.table_creation import create_table
from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.errors import TableNotFoundError
from lakewright.runtime import ManualClock, SeededRandom
from lakewright.runtime.process import ProcessIdentity
from lakewright.storage.faults import FaultPlan, SimulatedCrash, crash
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.table import Table
from tests.txn.tables import KnownProcesses, NeverRuns

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), pa.field("p", pa.string()), ("n", pa.int64())]
)
OPTIONS = WriteOptions.of(bloom_entries=10, bloom_max_entries=100)
START_MS = 1_760_000_000_000
DYING = ProcessIdentity("here", "boot", 66, "1")
Verb = Callable[[ArrowWriter, RowSource], WriteResult]


def rows(*ids: str, p: str = "a") -> pa.Table:
    return pa.table({"id": [*ids], "p": [p] * len(ids), "n": [1] * len(ids)}, schema=SCHEMA)


@dataclass(frozen=True)
class Step:
    """One write, and the rows that are there after it."""

    operation: Operation
    verb: Verb
    rows: pa.Table | None
    after: tuple[str, ...]


BEFORE = ("a1", "a2", "b1")
STEPS = {
    "append": Step(APPEND, ArrowWriter.append, rows("a3"), (*BEFORE[:2], "a3", "b1")),
    "bulk_insert": Step(BULK_INSERT, ArrowWriter.bulk_insert, rows("c1", p="c"), (*BEFORE, "c1")),
    "overwrite": Step(
        OVERWRITE_PARTITIONS, ArrowWriter.overwrite_partitions, rows("a9"), ("a9", "b1")
    ),
    "overwrite_table": Step(
        OVERWRITE_TABLE, ArrowWriter.overwrite_table, rows("a9", p="d"), ("a9",)
    ),
    "delete_partition": Step(
        DELETE_PARTITION, lambda writer, _: writer.delete_partitions(["a"]), None, ("b1",)
    ),
}


class World:
    """A table in memory with one clock, and processes that may die."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.bucket = MemoryBucket(clock=self.clock)
        self.storage = MemoryStorage(self.bucket)
        self.processes = KnownProcesses()

    @classmethod
    def new(cls, version: int, type_: str) -> World:
        """A table with rows in two partitions."""
        world = cls()
        for path, content in _start(version, type_).items():
            world.storage.replace(path, content)
        world.clock.advance(1)
        return world

    def create(self, version: int, type_: str) -> None:
        """Make the table."""
        spec = NewTable(
            name="t",
            schema=SCHEMA,
            type=type_,  # type: ignore[arg-type]
            version=version,
            key_fields=("id",),
            partition_fields=("p",),
            timeline_timezone="UTC",
        )
        create_table(self.storage, spec, clock=self.clock, random=SeededRandom(1))
        self.write(self.storage, APPEND, ArrowWriter.append, rows("a1", "a2"))
        self.write(self.storage, APPEND, ArrowWriter.append, rows("b1", p="b"))

    def write(
        self,
        storage: MemoryStorage,
        operation: Operation,
        verb: Verb,
        data: pa.Table | None,
        own: ProcessIdentity | None = None,
    ) -> WriteResult:
        """A whole write by one process."""
        processes = self.processes
        if own is not None:
            processes = KnownProcesses(own=own, dead=self.processes.dead)
        access = open_access(
            storage,
            OPTIONS,
            clock=self.clock,
            random=SeededRandom(self.bucket.changes),
            spawner=NeverRuns(),
            processes=processes,
        )
        return write_with_retries(access, OPTIONS, operation, RowSource(data), verb)

    def ids(self) -> list[str]:
        """What a reader sees."""
        table = Table(self.storage, clock=self.clock)
        return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


@cache
def _start(version: int, type_: str) -> dict[str, bytes]:
    """The objects of the table that every world begins with."""
    world = World()
    world.create(version, type_)
    return {path: bytes(content) for path, content in world.bucket.objects().items()}


def crashes(version: int, type_: str, step: Step, effect: bool) -> Iterator[tuple[int, World]]:
    """A world for every storage operation of a write, at which its process died."""
    index = 0
    while True:
        world = World.new(version, type_)
        faults = FaultPlan({index: crash(effect=effect)})
        dying = MemoryStorage(world.bucket, faults=faults)
        try:
            world.write(dying, step.operation, step.verb, step.rows, own=DYING)
        except SimulatedCrash:
            world.processes.dead.add(DYING)
            yield index, world
        else:
            return
        index += 1


def check(name: str, version: int, type_: str, effect: bool) -> int:
    step = STEPS[name]
    old, new = sorted(BEFORE), sorted(step.after)
    seen: set[tuple[str, ...]] = set()
    count = 0
    for index, world in crashes(version, type_, step, effect):
        count += 1
        found = world.ids()
        assert found in (old, new), index
        seen.add(tuple(found))
        world.write(world.storage, APPEND, ArrowWriter.append, rows("z", p="z"))
        assert world.ids() == sorted([*found, "z"]), index
        assert orphans(world) == [], index
        if found == old:
            again = world.write(world.storage, step.operation, step.verb, step.rows)
            assert again.instant is not None, index
    assert count > 30
    assert seen == {tuple(old), tuple(new)}
    return count


def orphans(world: World) -> list[str]:
    """What nobody needs: traces of writes that are over, data files that no commit names."""
    table = Table(world.storage, clock=world.clock)
    named = {
        f"{partition}/{name}"
        for partition, name in zip(
            *(table.inspect.all_files()[c].to_pylist() for c in ("partition", "name")),
            strict=True,
        )
    }
    known = {p for p, orphan in _files(table).items() if not orphan}
    paths = [info.path for info in world.storage.walk()]
    folders = (".hoodie/.temp/", ".hoodie/.heartbeat/", ".hoodie/.lakewright/")
    traces = [p for p in paths if p.startswith(folders)]
    data = [p for p in paths if p.endswith(".parquet") and p in named and p not in known]
    pending = [str(i) for i in table.timeline.pending()]
    return traces + data + pending


def _files(table: Table) -> dict[str, bool]:
    snapshot = table.snapshot()
    listing = snapshot.opened.listing
    view = snapshot.view(listing.files(listing.partitions()))
    orphan = {f"{o.partition}/{o.name}" for o in view.orphans()}
    kept = {s.base.path for s in view.all_slices() if s.base is not None}
    return {**dict.fromkeys(kept, False), **dict.fromkeys(orphan, True)}


QUICK = [("append", 8, "cow", False), ("overwrite", 6, "mor", True)]


@pytest.mark.parametrize(("name", "version", "type_", "effect"), QUICK)
def test_a_crash_at_any_operation_leaves_old_or_new_and_no_orphan(
    name: str, version: int, type_: str, effect: bool
) -> None:
    check(name, version, type_, effect)


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("effect", [False, True])
def test_every_write_survives_a_crash_at_every_operation(
    name: str, version: int, type_: str, effect: bool
) -> None:
    check(name, version, type_, effect)


@pytest.mark.parametrize("effect", [False, True])
def test_a_creation_that_crashed_can_be_done_again_and_has_one_winner(effect: bool) -> None:
    spec = NewTable(name="t", schema=SCHEMA, key_fields=("id",), partition_fields=("p",))
    index = 0
    while True:
        bucket = MemoryBucket()
        storage = MemoryStorage(bucket, faults=FaultPlan({index: crash(effect=effect)}))
        try:
            create_table(storage, spec, clock=ManualClock(), random=SeededRandom(2))
        except SimulatedCrash:
            index += 1
        else:
            break
        survivor = MemoryStorage(bucket)
        try:
            found = Table(survivor, clock=ManualClock()).properties.name
        except TableNotFoundError:
            create_table(survivor, spec, clock=ManualClock(), random=SeededRandom(3))
            found = Table(survivor, clock=ManualClock()).properties.name
        assert found == "t"
    assert index > 2
