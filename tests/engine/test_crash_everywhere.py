"""A crash at every storage operation of every write: old or new, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pytest

from lakewright.engine.arrow_write import ArrowWriter, write_with_retries
from lakewright.engine.coexistence import open_access
from lakewright.engine.keyed.deletes import delete_where, key_batches
from lakewright.engine.keyed.writer import KeyedWriter
from lakewright.engine.new_table import NewTable
from lakewright.engine.operations import (
    APPEND,
    BULK_INSERT,
    DELETE,
    DELETE_PARTITION,
    OVERWRITE_PARTITIONS,
    OVERWRITE_TABLE,
    UPSERT,
    Operation,
)
from lakewright.engine.options import ReadOptions
from lakewright.engine.row_source import RowSource
from lakewright.engine.table_creation import create_table
from lakewright.engine.write_job import WriteJob
from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.errors import TableNotFoundError
from lakewright.format.file_names import parse_data_file
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime import ManualClock, SeededRandom
from lakewright.runtime.process import ProcessIdentity
from lakewright.storage.faults import FaultPlan, SimulatedCrash, crash
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.table import Table
from lakewright.txn.access import Access
from tests.quickly import a_few_quickly
from tests.txn.tables import KnownProcesses, NeverRuns

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), pa.field("p", pa.string()), ("n", pa.int64())]
)
OPTIONS = WriteOptions.of(bloom_entries=10, bloom_max_entries=100)
BUCKETS = WriteOptions.of(index_type="BUCKET", bucket_count=2)
START_MS = 1_760_000_000_000
DYING = ProcessIdentity("here", "boot", 66, "1")
Verb = Callable[[ArrowWriter, RowSource], WriteResult]
Write = Callable[[Access], WriteResult]
Rows = dict[str, int]
"""What a reader sees: `n` by `id`."""


def rows(*ids: str, n: int = 1) -> pa.Table:
    """Rows whose partition is the first letter of their ids."""
    return pa.table({"id": [*ids], "p": [i[0] for i in ids], "n": [n] * len(ids)}, schema=SCHEMA)


def plain(operation: Operation, verb: Verb, data: pa.Table | None) -> Write:
    """A write that looks for no keys."""
    return lambda access: write_with_retries(access, OPTIONS, operation, RowSource(data), verb)


def upsert(data: pa.Table, options: WriteOptions = OPTIONS) -> Write:
    """Rows to where their keys are."""

    def write(access: Access) -> WriteResult:
        source = RowSource(data)
        job = WriteJob.prepare(access, options, UPSERT, source.schema)
        return KeyedWriter(job, MergerRegistry()).upsert(source)

    return write


def delete(*ids: str, options: WriteOptions = OPTIONS) -> Write:
    """Deletes by key."""

    def write(access: Access) -> WriteResult:
        job = WriteJob.prepare(access, options, DELETE, None)
        return KeyedWriter(job, MergerRegistry()).delete(key_batches(RowSource(rows(*ids)), job))

    return write


def delete_by_filter(where: str) -> Write:
    """Deletes by a filter."""

    def write(access: Access) -> WriteResult:
        registry = MergerRegistry()
        job = WriteJob.prepare(access, OPTIONS, DELETE, None)
        options = ReadOptions(threads=1)
        return delete_where(job, where, lambda j: KeyedWriter(j, registry), options, registry)

    return write


@dataclass(frozen=True)
class Step:
    """One write, and the rows that are there after it."""

    write: Write
    after: Rows
    buckets: bool = False
    """On a table with a bucket index."""


BEFORE = {"a1": 2, "a2": 1, "b1": 1}
STEPS = {
    "append": Step(plain(APPEND, ArrowWriter.append, rows("a3")), BEFORE | {"a3": 1}),
    "bulk_insert": Step(
        plain(BULK_INSERT, ArrowWriter.bulk_insert, rows("c1")), BEFORE | {"c1": 1}
    ),
    "overwrite": Step(
        plain(OVERWRITE_PARTITIONS, ArrowWriter.overwrite_partitions, rows("a9")),
        {"a9": 1, "b1": 1},
    ),
    "overwrite_table": Step(
        plain(OVERWRITE_TABLE, ArrowWriter.overwrite_table, rows("d9")), {"d9": 1}
    ),
    "delete_partition": Step(
        plain(DELETE_PARTITION, lambda writer, _: writer.delete_partitions(["a"]), None),
        {"b1": 1},
    ),
    # A log behind another one, a base file that is merged, a new file group.
    "upsert": Step(
        upsert(rows("a1", "b1", "b2", "c1", n=7)), {"a1": 7, "a2": 1, "b1": 7, "b2": 7, "c1": 7}
    ),
    "delete": Step(delete("a1", "b1", "b9"), {"a2": 1}),
    "delete_where": Step(delete_by_filter("n < 2"), {"a1": 2}),
    "upsert_buckets": Step(
        upsert(rows("a1", "a3", "c1", n=7), BUCKETS),
        BEFORE | {"a1": 7, "a3": 7, "c1": 7},
        buckets=True,
    ),
    "delete_buckets": Step(delete("a1", "b1", options=BUCKETS), {"a2": 1}, buckets=True),
}


class World:
    """A table in memory with one clock, and processes that may die."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.bucket = MemoryBucket(clock=self.clock)
        self.storage = MemoryStorage(self.bucket)
        self.processes = KnownProcesses()

    @classmethod
    def new(cls, version: int, type_: str, buckets: bool = False) -> World:
        """A table with rows in two partitions, one of them updated."""
        world = cls()
        for path, content in _start(version, type_, buckets).items():
            world.storage.replace(path, content)
        world.clock.advance(1)
        return world

    def create(self, version: int, type_: str, buckets: bool) -> None:
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
        options = BUCKETS if buckets else OPTIONS
        self.write(upsert(rows("a1", "a2", "b1"), options))
        self.write(upsert(rows("a1", n=2), options))

    def write(
        self,
        write: Write,
        storage: MemoryStorage | None = None,
        own: ProcessIdentity | None = None,
    ) -> WriteResult:
        """A whole write by one process."""
        processes = self.processes
        if own is not None:
            processes = KnownProcesses(own=own, dead=self.processes.dead)
        access = open_access(
            storage or self.storage,
            OPTIONS,
            clock=self.clock,
            random=SeededRandom(self.bucket.changes),
            spawner=NeverRuns(),
            processes=processes,
        )
        return write(access)

    def rows(self) -> Rows:
        """What a reader sees."""
        table = Table(self.storage, clock=self.clock, options=ReadOptions(threads=1))
        found = table.scan(columns=["id", "n"]).to_arrow().to_pydict()
        assert len(found["id"]) == len(set(found["id"]))
        return dict(zip(found["id"], found["n"], strict=True))


@cache
def _start(version: int, type_: str, buckets: bool) -> dict[str, bytes]:
    """The objects of the table that every world begins with."""
    world = World()
    world.create(version, type_, buckets)
    return {path: bytes(content) for path, content in world.bucket.objects().items()}


def crashes(
    version: int, type_: str, step: Step, effect: bool, stride: int
) -> Iterator[tuple[int, World]]:
    """A world for every storage operation of a write, or some, at which its process died."""
    index = 0
    while True:
        world = World.new(version, type_, step.buckets)
        faults = FaultPlan({index: crash(effect=effect)})
        dying = MemoryStorage(world.bucket, faults=faults)
        try:
            world.write(step.write, dying, own=DYING)
        except SimulatedCrash:
            world.processes.dead.add(DYING)
            yield index, world
        else:
            return
        index += stride


def check(name: str, version: int, type_: str, effect: bool, stride: int = 1) -> None:
    step = STEPS[name]
    seen = []
    count = 0
    following = upsert(rows("z1"), BUCKETS if step.buckets else OPTIONS)
    for index, world in crashes(version, type_, step, effect, stride):
        count += 1
        found = world.rows()
        assert found in (BEFORE, step.after), index
        seen.append(found)
        world.write(following)
        assert world.rows() == found | {"z1": 1}, index
        assert orphans(world) == [], index
        if found == BEFORE:
            world.write(step.write)
            assert {**world.rows(), "z1": 1} == {**step.after, "z1": 1}, index
            assert orphans(world) == [], index
    assert count > 30 / stride
    assert BEFORE in seen and step.after in seen


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
    data = [p for p in paths if _is_data(p) and p in named and p not in known]
    pending = [str(i) for i in table.timeline.pending()]
    return traces + data + pending


def _is_data(path: str) -> bool:
    return parse_data_file(path.rpartition("/")[2]) is not None


def _files(table: Table) -> dict[str, bool]:
    snapshot = table.snapshot()
    listing = snapshot.opened.listing
    view = snapshot.view(listing.files(listing.partitions()))
    orphan = {f"{o.partition}/{o.name}" for o in view.orphans()}
    kept = {s.base.path for s in view.all_slices() if s.base is not None}
    kept |= {log.path for s in view.all_slices() for log in s.logs}
    return {**dict.fromkeys(kept, False), **dict.fromkeys(orphan, True)}


QUICK = [
    ("append", 8, "cow", False),
    ("overwrite", 6, "mor", True),
    ("upsert", 6, "mor", True),
    ("delete", 8, "cow", False),
]


@pytest.mark.parametrize(("name", "version", "type_", "effect"), a_few_quickly(QUICK, 1))
def test_a_crash_at_any_operation_leaves_old_or_new_and_no_orphan(
    name: str, version: int, type_: str, effect: bool
) -> None:
    check(name, version, type_, effect, stride=4)


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
