"""The metadata table beside every write: it says what the folders say, wherever a process died."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pytest

from lakewright.engine.coexistence import open_access
from lakewright.engine.index_building import build_indexes
from lakewright.engine.options import ReadOptions
from lakewright.engine.slice_keys import slice_rows
from lakewright.engine.snapshot import load_snapshot
from lakewright.format.partitions import list_table
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.creation import NewIndex
from lakewright.metadata.definitions import secondary_index_on
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.file_groups import BLOOM_FILTERS, COLUMN_STATS, RECORD_INDEX
from lakewright.metadata.payloads import secondary_index_records
from lakewright.metadata.secondary_text import secondary_texts
from lakewright.metadata.verification import Compared, Difference
from lakewright.runtime import SeededRandom
from lakewright.storage.faults import FaultPlan, SimulatedCrash, crash
from lakewright.storage.memory import MemoryStorage
from lakewright.table import Table
from lakewright.txn.access import Access
from lakewright.txn.metadata_creation import build_metadata_table
from tests.engine.test_crash_everywhere import (
    BEFORE,
    DYING,
    OPTIONS,
    STEPS,
    Step,
    World,
    delete,
    orphans,
    rows,
    upsert,
)
from tests.txn.tables import NeverRuns

FOLLOWING = upsert(rows("z1"))
SECONDARY = "secondary_index_n"
ALL = (COLUMN_STATS, BLOOM_FILTERS, RECORD_INDEX)
VERSIONS = [6, 8]
TYPES = ["cow", "mor"]
WRITES = {name: step for name, step in STEPS.items() if not step.buckets}


def access_of(world: World, storage: MemoryStorage | None = None) -> Access:
    """Means of a living process to change the table."""
    return open_access(
        storage or world.storage,
        OPTIONS,
        clock=world.clock,
        random=SeededRandom(world.bucket.changes),
        spawner=NeverRuns(),
        processes=world.processes,
    )


@cache
def _start(version: int, type_: str, statistics: bool, per_partition: bool) -> dict[str, bytes]:
    world = World.new(version, type_)
    snapshot = load_snapshot(world.storage, clock=world.clock)
    wanted = ALL if statistics else ()
    assert build_indexes(
        access_of(world), snapshot, wanted, MergerRegistry(), per_partition=per_partition
    )
    return {path: bytes(content) for path, content in world.bucket.objects().items()}


STATISTICS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
}


def indexed(
    version: int, type_: str, *, statistics: bool = False, per_partition: bool = False
) -> World:
    """A table with a metadata table."""
    world = World()
    for path, content in _start(version, type_, statistics, per_partition).items():
        world.storage.replace(path, content)
    world.clock.advance(1)
    return world


def check_listed(world: World, where: object = "") -> None:
    """The metadata table is trusted, has nothing pending, and says what the folders say."""
    table = Table(world.storage, clock=world.clock)
    opened = table.snapshot().opened
    assert opened.metadata is not None, (where, opened.warnings.told)
    listed = list_table(world.storage)
    filled = {partition for partition, files in listed.items() if files}
    assert filled <= set(opened.metadata.partitions()) <= set(listed), where
    found = [f for f in table.metadata.verify() if isinstance(f, Difference)]
    assert found == [], where


def pending_in_metadata(world: World) -> list[str]:
    """Instants of the metadata table that nobody finished."""
    folder = ".hoodie/metadata/.hoodie/"
    names = {p.rpartition("/")[2] for p in world.bucket.objects() if p.startswith(folder)}
    unfinished = (".requested", ".inflight")
    begun = {n.partition(".")[0] for n in names if n.endswith(unfinished)}
    done = {n.partition(".")[0].partition("_")[0] for n in names if not n.endswith(unfinished)}
    return sorted(begun - done)


def crashes(begun: Callable[[], World], step: Step, effect: bool, stride: int) -> Iterator[World]:
    """A world for every storage operation of a write, or some, at which its process died."""
    index = 0
    while True:
        world = begun()
        dying = MemoryStorage(world.bucket, faults=FaultPlan({index: crash(effect=effect)}))
        try:
            world.write(step.write, dying, own=DYING)
        except SimulatedCrash:
            world.processes.dead.add(DYING)
            yield world
        else:
            return
        index += stride


def check_crashes(name: str, begun: Callable[[], World], effect: bool, stride: int = 1) -> None:
    step, seen, count = STEPS[name], [], 0
    for count, world in enumerate(crashes(begun, step, effect, stride), 1):
        where = (count - 1) * stride
        found = world.rows()
        assert found in (BEFORE, step.after), where
        seen.append(found)
        world.write(FOLLOWING)
        assert world.rows() == found | {"z1": 1}, where
        check_listed(world, where)
        assert orphans(world) == [], where
        assert pending_in_metadata(world) == [], where
        if found == BEFORE:
            world.write(step.write)
            assert {**world.rows(), "z1": 1} == {**step.after, "z1": 1}, where
            check_listed(world, where)
    assert count > 80 // stride
    assert BEFORE in seen and (stride > 1 or step.after in seen)


def check_write(name: str, version: int, type_: str, statistics: bool) -> None:
    step = WRITES[name]
    world = indexed(version, type_, statistics=statistics)
    world.write(step.write)
    assert world.rows() == step.after
    check_listed(world)
    world.write(FOLLOWING)
    check_listed(world)


@pytest.mark.parametrize(
    ("name", "version", "type_"),
    [("upsert", 6, "mor"), ("delete", 8, "mor"), ("overwrite", 8, "cow")],
)
def test_a_write_tells_every_index(name: str, version: int, type_: str) -> None:
    check_write(name, version, type_, statistics=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("statistics", [False, True])
def test_every_write_tells_every_index(
    name: str, version: int, type_: str, statistics: bool
) -> None:
    check_write(name, version, type_, statistics)


@pytest.mark.parametrize(
    ("name", "version", "type_", "effect"),
    [("upsert", 6, "mor", True), ("append", 8, "cow", False)],
)
def test_a_crash_at_any_operation_leaves_a_metadata_table_that_the_next_writer_repairs(
    name: str, version: int, type_: str, effect: bool
) -> None:
    check_crashes(name, partial(indexed, version, type_), effect, stride=29)


def test_a_crash_leaves_a_record_index_per_partition_that_the_next_writer_repairs() -> None:
    begun = partial(indexed, 8, "mor", statistics=True, per_partition=True)
    check_crashes("upsert", begun, True, stride=41)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["append", "overwrite", "upsert", "delete"])
@pytest.mark.parametrize("type_", TYPES)
def test_a_record_index_per_partition_survives_a_crash_at_every_operation(
    name: str, type_: str
) -> None:
    begun = partial(indexed, 8, type_, statistics=True, per_partition=True)
    check_crashes(name, begun, True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["append", "overwrite", "upsert", "delete"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("effect", [False, True])
def test_every_write_with_a_metadata_table_survives_a_crash_at_every_operation(
    name: str, version: int, type_: str, effect: bool
) -> None:
    check_crashes(name, partial(indexed, version, type_, statistics=effect), effect)


BACK_AND_FORTH = (
    delete("a1", "b1"),
    upsert(rows("a1", "c1", n=5)),
    delete("a1", "c1"),
    upsert(rows("b1", n=6)),
    upsert(rows("b1", "c1", n=7)),
)


def test_logs_of_some_columns_have_no_statistics(tmp_path: Path) -> None:
    """What is changed in one file and what is kept in another must not hide a row together."""
    schema = pa.schema([("id", pa.string()), *((name, pa.int64()) for name in ("c", "d", "ts"))])
    table = Table.create(
        tmp_path / "t", schema=schema, type="mor", version=8, key=["id"], ordering=["ts"]
    )
    first = pa.table({"id": ["a"], "c": [1], "d": [4], "ts": [1]}, schema=schema)
    table.append(first, options=STATISTICS)
    part = pa.table({"id": ["a"], "d": [5], "ts": [2]})
    table.upsert(part, columns=["d"], options=STATISTICS)
    metadata = table.snapshot().opened.metadata
    assert metadata is not None
    told = metadata.column_stats(pa.schema([("d", pa.int64())]))["d"]
    assert told["max"].to_pylist() == [4]
    assert table.scan(where="c = 1 and d = 5").to_arrow().num_rows == 1
    assert [f for f in table.metadata.verify() if isinstance(f, Difference)] == []


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_keys_that_come_into_buckets_are_in_the_record_index(
    version: int, type_: str, tmp_path: Path
) -> None:
    """Nobody looks for keys in buckets, so that nobody knows which of them are new."""
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    table = Table.create(
        tmp_path / "t", schema=schema, type=type_, version=version, key=["id"], ordering=["ts"]
    )
    options = {
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
    }
    for number in range(3):
        ids = [f"k{i}" for i in range(0, 4 * (number + 1), 2)]
        rows = pa.table({"id": ids, "ts": [number] * len(ids)}, schema=schema)
        table.upsert(rows, options=options)
        found = [f for f in table.metadata.verify() if isinstance(f, Difference)]
        assert found == [], number
    assert len({*table.scan().to_arrow()["_hoodie_file_name"].to_pylist()}) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_statistics_stay_about_the_columns_that_were_chosen(version: int, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), *((name, pa.int64()) for name in ("c", "d", "ts"))])
    table = Table.create(
        tmp_path / "t", schema=schema, type="mor", version=version, key=["id"], ordering=["ts"]
    )
    chosen = {**STATISTICS, "hoodie.metadata.index.column.stats.column.list": "d, ts, later"}
    first = pa.table({"id": ["a", "b"], "c": [1, 2], "d": [4, 5], "ts": [1, 1]}, schema=schema)
    table.append(first, options=chosen)
    saved = table.services.savepoints.create(comment="")
    more = first.append_column("more", pa.array([7, 8]))
    table.upsert(more, options=STATISTICS)

    def check() -> None:
        metadata = table.snapshot().opened.metadata
        assert metadata is not None
        told = metadata.statistics_columns()
        kept = [n for n in ("id", "c", "d", "ts", "more") if n in told]
        assert kept == (["d", "ts"] if version == 8 else ["id", "c", "d", "ts", "more"])
        assert [f for f in table.metadata.verify() if isinstance(f, Difference)] == []
        assert table.scan(where="c = 2 and d = 5").to_arrow()["id"].to_pylist() == ["b"]

    check()
    table.metadata.rebuild()
    check()
    later = more.append_column("later", pa.array([9, None]))
    table.upsert(later, options=chosen)
    metadata = table.snapshot().opened.metadata
    assert metadata is not None and "later" in metadata.statistics_columns()
    assert table.scan(where="later = 9").to_arrow()["id"].to_pylist() == ["a"]
    check()
    table.services.restore.run(saved.instant)
    check()


@pytest.mark.parametrize(
    "version", [8, pytest.param(6, marks=pytest.mark.slow, id="6 of the longer ones")]
)
def test_keys_that_come_back_are_in_the_record_index_again(version: int) -> None:
    world = indexed(version, "mor", statistics=True)
    for write in BACK_AND_FORTH:
        world.write(write)
    check_listed(world)
    assert world.rows() == {"a2": 1, "b1": 7, "c1": 7}
    table = Table(world.storage, clock=world.clock)
    compared = [f for f in table.metadata.verify(RECORD_INDEX) if isinstance(f, Compared)]
    assert sum(f.records for f in compared) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "type_", ["mor", pytest.param("cow", marks=pytest.mark.slow, id="cow of the longer ones")]
)
def test_a_secondary_index_follows_values_and_keys(type_: str) -> None:
    world = indexed(8, type_, statistics=True)
    begin_secondary(world, "n")
    check_listed(world)
    for write in (*BACK_AND_FORTH, *(STEPS[n].write for n in ("overwrite", "delete_partition"))):
        world.write(write)
        check_listed(world)
    found = list(Table(world.storage, clock=world.clock).metadata.verify(SECONDARY))
    assert [f.records for f in found if isinstance(f, Compared)][-1] > 0


def begin_secondary(world: World, column: str) -> None:
    """A secondary index with everything that the table has, as if Hudi had built it."""
    access = access_of(world)
    properties = access.properties()
    snapshot = load_snapshot(world.storage, clock=world.clock)
    records = [
        secondary_index_records(texts, some.keys, version=properties.version)
        for some in slice_rows(snapshot, ReadOptions(), MergerRegistry(), column=column)
        if (texts := secondary_texts(some.values)) is not None
    ]
    definition = secondary_index_on(SECONDARY, column)
    new = NewIndex.of(SECONDARY, 2, MetadataRecords.joined(records), definition)
    assert build_metadata_table(access, lambda *_: [new])
