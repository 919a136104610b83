"""Indexes that are built while others write: nothing is missed, whoever dies."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakewright.engine.first_records import FirstRecords
from lakewright.engine.index_building import build_beside_writers
from lakewright.engine.snapshot import load_snapshot
from lakewright.engine.write_options import WriteOptions
from lakewright.errors import FencedError, PlanBusyError
from lakewright.format.instant import State
from lakewright.format.partitions import list_table
from lakewright.format.properties import load_properties
from lakewright.format.records import load_plan, load_record
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.definitions import IndexDefinition, secondary_index_on
from lakewright.metadata.file_groups import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    IndexGroups,
)
from lakewright.runtime import Event
from lakewright.services import clean_execution
from lakewright.services.clean import CleanOptions, run_clean
from lakewright.services.rollback import roll_back_instant
from lakewright.storage.faults import FaultPlan, SimulatedCrash, crash
from lakewright.storage.memory import MemoryStorage
from lakewright.table import Table
from lakewright.txn.access import Access
from lakewright.txn.metadata_creation import drop_indexes, drop_metadata_table
from lakewright.txn.metadata_indexing import begin_building
from tests.engine.test_crash_everywhere import BEFORE, DYING, World, delete, rows, upsert
from tests.engine.test_metadata_everywhere import (
    ALL,
    SECONDARY,
    TYPES,
    VERSIONS,
    access_of,
    begin_secondary,
    check_listed,
    indexed,
    pending_in_metadata,
)

NEW = (COLUMN_STATS, BLOOM_FILTERS, RECORD_INDEX)


def build(
    access: Access, indexes: Collection[str], defined: Collection[IndexDefinition] = ()
) -> list[str]:
    """Build indexes; their names."""
    return build_beside_writers(access, indexes, MergerRegistry(), defined=defined)


def built(world: World) -> tuple[str, ...]:
    return load_properties(world.storage, clock=world.clock).metadata_partitions


def when(kind: str, deed: Callable[[], object]) -> Callable[[Event], None]:
    """Something that others do once, at an event."""
    left = [deed]

    def hear(event: Event) -> None:
        if event.kind == kind and left:
            left.pop()()

    return hear


def building(world: World, deed: Callable[[], object], kind: str = "indexing.begun") -> Access:
    """A process that builds, and what others do at an event of it."""
    return replace(access_of(world), on_event=when(kind, deed))


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_written_meanwhile_is_in_the_indexes(version: int, type_: str) -> None:
    world = indexed(version, type_)

    def others() -> None:
        assert built(world) == (FILES,), "not usable before they are whole"
        world.write(upsert(rows("a1", "c1", n=5)))
        world.write(delete("b1"))
        assert Table(world.storage, clock=world.clock).snapshot().opened.metadata is not None

    done = build(building(world, others), NEW)
    assert {*NEW} <= {*done} == {*built(world)} - {FILES}
    assert world.rows() == {"a1": 5, "a2": 1, "c1": 5}
    check_listed(world)
    world.write(upsert(rows("a1", "d1", n=6)))
    check_listed(world)
    assert pending_in_metadata(world) == []


@pytest.mark.parametrize("type_", TYPES)
def test_a_new_secondary_index_knows_what_is_written_meanwhile(type_: str) -> None:
    world = indexed(8, type_)

    def others() -> None:
        assert SECONDARY not in built(world), "not usable before it is whole"
        world.write(upsert(rows("a1", "c1", n=5)))
        world.write(delete("b1"))

    defined = [secondary_index_on(SECONDARY, "n")]
    done = build(building(world, others), [RECORD_INDEX, SECONDARY], defined)
    assert done == [RECORD_INDEX, SECONDARY]
    world.write(upsert(rows("a2", "d1", n=6)))
    check_listed(world)
    table = Table(world.storage, clock=world.clock)
    metadata = table.snapshot().opened.metadata
    assert metadata is not None
    found = metadata.secondary_index(SECONDARY, ["1", "5", "6"])
    told = sorted(zip(found["value"].to_pylist(), found["key"].to_pylist(), strict=True))
    assert told == [("5", "a1"), ("5", "c1"), ("6", "a2"), ("6", "d1")]
    asked = table.scan(where="n = 5").to_arrow()["id"].to_pylist()
    assert sorted(asked) == ["a1", "c1"]


@pytest.mark.parametrize("version", VERSIONS)
def test_columns_that_come_meanwhile_are_in_the_statistics(version: int) -> None:
    world = indexed(version, "mor")
    begun: list[Event] = []
    grown = rows("a1", "d1", n=5).append_column("more", pa.array([7, 8]))
    hear = when("indexing.begun", lambda: world.write(upsert(grown)))

    def listen(event: Event) -> None:
        begun.extend([event] if event.kind == "indexing.begun" else [])
        hear(event)

    build(replace(access_of(world), on_event=listen), NEW)
    assert len(begun) == 2
    metadata = Table(world.storage, clock=world.clock).snapshot().opened.metadata
    assert metadata is not None
    assert "more" in metadata.statistics_columns()
    told = metadata.column_stats(pa.schema([("more", pa.int64())]))["more"]
    assert pc.max(told["max"]).as_py() == 8
    if PARTITION_STATS in metadata.indexes:
        told = metadata.partition_stats(pa.schema([("more", pa.int64())]))["more"]
        nulls = dict(zip(*(told[n].to_pylist() for n in ("partition", "null_count")), strict=True))
        assert nulls["a"] and nulls["b"] and not nulls["d"]
    check_listed(world)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_an_indexing_action_on_the_timeline(version: int) -> None:
    world = indexed(version, "mor")
    build(access_of(world), [RECORD_INDEX])
    access = access_of(world)
    properties = access.properties()
    timeline = access.timeline(properties)
    [found] = timeline.filter_actions("indexing")
    assert found.state is State.COMPLETED
    plan = load_plan(world.storage, properties, found)
    record = load_record(world.storage, properties, found)
    for said in (plan, record):
        [info] = said.index_partition_infos
        assert info.metadata_partition_path == RECORD_INDEX
        assert info.index_upto_instant == max(
            i.requested_time for i in timeline.completed() if i.action != "indexing"
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_write_that_was_ready_before_tells_the_new_indexes_too(version: int) -> None:
    world = indexed(version, "mor")
    access = building(
        world,
        lambda: build(access_of(world), NEW),
        kind="write.files",
    )
    upsert(rows("a1", "c1", n=5))(access)
    assert RECORD_INDEX in built(world)
    assert world.rows() == BEFORE | {"a1": 5, "c1": 5}
    check_listed(world)


@pytest.mark.parametrize("version", VERSIONS)
def test_who_was_cleaned_away_or_not_told_begins_anew(version: int) -> None:
    world = indexed(version, "cow")
    begun: list[Event] = []

    def clean() -> None:
        world.write(upsert(rows("a1", n=8)))
        world.write(upsert(rows("a1", n=9)))
        assert run_clean(access_of(world), CleanOptions(commits_retained=1)).files_deleted

    hear = when("indexing.begun", clean)

    def listen(event: Event) -> None:
        begun.extend([event] if event.kind == "indexing.begun" else [])
        hear(event)

    build(replace(access_of(world), on_event=listen), NEW)
    assert len(begun) == 2
    assert world.rows() == BEFORE | {"a1": 9}
    check_listed(world)


def test_only_one_process_builds_and_the_dead_are_succeeded() -> None:
    world = indexed(8, "mor")
    dying = replace(access_of(world), processes=replace(world.processes, own=DYING))
    first = begin_building(dying, {RECORD_INDEX: IndexGroups.whole(RECORD_INDEX, 10)}, lambda: None)
    assert first is not None
    with pytest.raises(PlanBusyError, match="builds record_index already"):
        build(access_of(world), [RECORD_INDEX])
    world.write(upsert(rows("c1")))
    world.processes.dead.add(DYING)
    assert build(access_of(world), [RECORD_INDEX]) == [RECORD_INDEX]
    check_listed(world)
    assert [
        i.state
        for i in access_of(world).timeline(access_of(world).properties()).filter_actions("indexing")
    ] == [State.COMPLETED]


def test_dropping_the_metadata_table_ends_a_build() -> None:
    world = indexed(8, "mor")
    access = building(world, lambda: drop_metadata_table(access_of(world)))
    with pytest.raises(FencedError, match="is over"):
        build(access, [RECORD_INDEX])
    assert built(world) == ()
    assert world.rows() == BEFORE
    assert not access_of(world).timeline(access_of(world).properties()).pending()


def test_a_table_without_metadata_table_gets_one_first() -> None:
    world = World.new(8, "cow")
    assert {*build(access_of(world), NEW)} >= {*NEW}
    assert FILES in built(world)
    check_listed(world)
    assert build(access_of(world), NEW) == []


@pytest.mark.slow
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_wherever_it_dies_others_go_on_and_the_next_one_builds(version: int, type_: str) -> None:
    check_deaths(version, type_, stride=1)


@pytest.mark.parametrize("version", VERSIONS)
def test_wherever_it_dies_others_go_on(version: int) -> None:
    check_deaths(version, "mor", stride=37)


def check_deaths(version: int, type_: str, *, stride: int) -> None:
    index = 0
    defined = [secondary_index_on(SECONDARY, "n")] if version == 8 else []
    wanted = (*ALL, *(each.name for each in defined))
    while True:
        world = indexed(version, type_)
        fault = crash(effect=index % 2 == 0)
        dying = MemoryStorage(world.bucket, faults=FaultPlan({index: fault}))
        own = replace(world.processes, own=DYING)
        try:
            build(replace(access_of(world, dying), processes=own), wanted, defined)
        except SimulatedCrash:
            world.processes.dead.add(DYING)
        else:
            break
        world.write(upsert(rows("a1", "c1", n=5)))
        assert world.rows() == BEFORE | {"a1": 5, "c1": 5}, index
        check_listed(world, index)
        build(access_of(world), wanted, defined)
        assert {*wanted} <= {*built(world)}, index
        world.write(delete("a2"))
        assert world.rows() == {"a1": 5, "b1": 1, "c1": 5}, index
        check_listed(world, index)
        assert pending_in_metadata(world) == [], index
        index += stride
    assert index > 60


def test_a_write_begins_the_secondary_index_again_that_a_table_defines() -> None:
    """Hudi's restore takes it away; its next write would begin it before all archived commits."""
    world = indexed(8, "mor")
    build(access_of(world), [RECORD_INDEX, SECONDARY], [secondary_index_on(SECONDARY, "n")])
    drop_indexes(access_of(world), [SECONDARY])
    world.write(upsert(rows("a1", n=5)))
    assert SECONDARY not in built(world), "nobody asked for indexes of records"
    wanted = {"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true"}
    world.write(upsert(rows("a1", "c1", n=6), WriteOptions.from_hudi(wanted)))
    assert SECONDARY in built(world)
    check_listed(world)


def test_a_rebuild_brings_every_index_back() -> None:
    world = indexed(8, "mor", statistics=True)
    begin_secondary(world, "n")
    had = {*built(world)}
    drop_metadata_table(access_of(world))
    world.write(upsert(rows("a1", "c1", n=5)))
    build(access_of(world), had)
    assert {*built(world)} == had and SECONDARY in had
    check_listed(world)


@pytest.mark.parametrize("moment", ["indexing.begun", "indexing.written"])
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_index_does_not_begin_with_a_commit_that_is_taken_back_meanwhile(
    version: int, type_: str, moment: str
) -> None:
    world = indexed(version, type_)
    newest = world.write(upsert(rows("a1", "c1", n=5))).instant
    assert newest is not None
    world.clock.advance(1)
    build(building(world, lambda: roll_back_instant(access_of(world), newest), moment), NEW)
    assert world.rows() == BEFORE
    if not built(world):  # the rollback could not be followed
        build(access_of(world), NEW)
    check_listed(world)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clean_looks_again_into_an_index_that_was_built_while_it_deleted_files(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = indexed(version, "cow")
    world.write(upsert(rows("a1", n=8)))
    world.write(upsert(rows("a1", n=9)))
    world.clock.advance(1)
    access = access_of(world)
    now = load_snapshot(world.storage, clock=world.clock, use_metadata_table=False)
    first = FirstRecords(now, MergerRegistry(), access.spawner)
    indexes = (COLUMN_STATS, BLOOM_FILTERS)
    started = begin_building(access, first.groups(first.able(indexes)), lambda: now)
    assert started is not None
    new = first.of(started.groups, list_table(world.storage))
    publish, finished = clean_execution._complete, list[bool]()

    def later(*args: Any) -> Any:
        if not finished:
            finished.append(started.finish(new, now.schema.arrow.names))
        return publish(*args)

    monkeypatch.setattr(clean_execution, "_complete", later)
    assert run_clean(access_of(world), CleanOptions(commits_retained=1)).files_deleted
    assert finished == [True]
    assert {*indexes} <= {*built(world)}
    check_listed(world)
