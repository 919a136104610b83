"""Services of a table with a metadata table, and the metadata table's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakewright.engine import index_building
from lakewright.engine.index_building import build_beside_writers, build_indexes
from lakewright.engine.listing import open_listing
from lakewright.engine.snapshot import load_snapshot
from lakewright.engine.write_options import WriteOptions
from lakewright.errors import UnsupportedTableError
from lakewright.format import property_keys as keys
from lakewright.format.properties import update_properties
from lakewright.format.timeline import is_beginning_time, load_timeline
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.creation import metadata_properties
from lakewright.metadata.file_groups import COLUMN_STATS
from lakewright.metadata.table import METADATA_FOLDER
from lakewright.services import metadata_upkeep
from lakewright.services.archive import run_archive
from lakewright.services.archive_options import ArchiveOptions
from lakewright.services.clean import run_clean
from lakewright.services.clean_options import CleanOptions
from lakewright.services.compaction import Compaction
from lakewright.services.compaction_plan import CompactionOptions
from lakewright.services.metadata_options import MetadataUpkeep
from lakewright.services.metadata_upkeep import Tended, tend_metadata_table
from lakewright.services.restore import run_restore
from lakewright.services.rollback import roll_back_instant
from lakewright.services.savepoint import create_savepoint
from lakewright.storage.faults import FaultPlan, SimulatedCrash, crash
from lakewright.storage.memory import MemoryStorage
from lakewright.txn.access import Access
from lakewright.txn.lost_indexes import lost_indexes
from lakewright.txn.metadata_creation import (
    build_metadata_table,
    drop_indexes,
    drop_metadata_table,
)
from tests.engine.test_crash_everywhere import DYING, OPTIONS, World, rows, upsert
from tests.engine.test_metadata_everywhere import (
    ALL,
    TYPES,
    VERSIONS,
    access_of,
    check_listed,
    indexed,
    pending_in_metadata,
)
from tests.txn.tables import KnownProcesses

KEEP_ONE = CleanOptions(commits_retained=1)
FEW = ArchiveOptions(keep_min_commits=2, keep_max_commits=3, clean=KEEP_ONE)
OFTEN = MetadataUpkeep(compact_commits=3, clean=KEEP_ONE, archive=FEW)


def compact(world: World) -> None:
    """Compact everything, if there are logs."""
    access = access_of(world)
    if access.properties().is_merge_on_read:
        Compaction(access, CompactionOptions(commits=1), WriteOptions()).run()


def tend(world: World) -> Tended:
    """Run the services of the metadata table."""
    world.clock.advance(1)
    return tend_metadata_table(access_of(world), OFTEN)


def write(world: World, n: int, *ids: str) -> str:
    """Upsert some rows; the time of the write."""
    world.clock.advance(1)
    instant = world.write(upsert(rows(*(ids or ("a1", "b1")), n=n))).instant
    assert instant is not None
    return instant


@pytest.mark.parametrize(("version", "type_"), [(6, "mor"), (8, "cow")])
def test_services_of_the_table_tell_the_metadata_table(version: int, type_: str) -> None:
    world = indexed(version, type_, statistics=True)
    write(world, 3)
    compact(world)
    check_listed(world, "compaction")
    write(world, 4)
    compact(world)
    write(world, 5)
    assert run_clean(access_of(world), KEEP_ONE).files_deleted
    check_listed(world, "clean")
    newest = write(world, 6, "a1", "e1")
    roll_back_instant(access_of(world), newest)
    check_listed(world, "rollback")
    assert world.rows() == {"a1": 5, "a2": 1, "b1": 5}
    assert pending_in_metadata(world) == []


@pytest.mark.parametrize(("version", "type_"), [(6, "mor"), (8, "cow")])
def test_a_commit_that_is_in_a_base_file_of_the_metadata_table_can_be_rolled_back(
    version: int, type_: str
) -> None:
    world = indexed(version, type_)
    for n in range(3, 6):
        newest = write(world, n)
    assert tend(world).compaction is not None
    check_listed(world, "compacted")
    roll_back_instant(access_of(world), newest)
    assert world.rows() == {"a1": 4, "a2": 1, "b1": 4}
    check_listed(world, "rolled back")


@pytest.mark.parametrize(("version", "type_"), [(6, "cow"), (8, "mor")])
def test_a_commit_from_before_the_metadata_table_can_be_rolled_back(
    version: int, type_: str
) -> None:
    world = World.new(version, type_)
    newest = write(world, 9)
    assert build_metadata_table(access_of(world))
    check_listed(world, "built")
    roll_back_instant(access_of(world), newest)
    check_listed(world, "rolled back")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("changed", [("a1", "b1"), ("a1", "e1")], ids=["updates", "inserts"])
def test_a_commit_from_before_indexes_of_records_can_be_rolled_back(
    version: int, type_: str, changed: tuple[str, ...]
) -> None:
    world = World.new(version, type_)
    newest = write(world, 9, *changed)
    snapshot = load_snapshot(world.storage, clock=world.clock)
    assert build_indexes(access_of(world), snapshot, ALL, MergerRegistry())
    check_listed(world, "built")
    roll_back_instant(access_of(world), newest)
    check_listed(world, "rolled back")
    assert world.rows() == {"a1": 2, "a2": 1, "b1": 1}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("type_", TYPES)
def test_a_commit_that_an_index_began_with_can_be_rolled_back(version: int, type_: str) -> None:
    world = indexed(version, type_)
    newest = write(world, 9, "a1", "e1")
    world.clock.advance(1)
    assert build_beside_writers(access_of(world), ALL, MergerRegistry())
    check_listed(world, "built")
    roll_back_instant(access_of(world), newest)
    check_listed(world, "rolled back")
    assert world.rows() == {"a1": 2, "a2": 1, "b1": 1}


def newest_rolled_back(access: Access) -> str:
    """Roll the newest commit back."""
    newest = access.timeline(access.properties()).last_completed_commit()
    assert newest is not None
    return roll_back_instant(access, newest.requested_time).instant


def with_commits(version: int, type_: str) -> World:
    """A table whose metadata table is due for compaction."""
    world = indexed(version, type_)
    for n in range(3, 6):
        write(world, n)
    world.clock.advance(1)
    return world


def with_compacted_commit(version: int, type_: str) -> World:
    """A table whose newest commit is in a base file of its metadata table."""
    world = with_commits(version, type_)
    assert tend(world).compaction is not None
    world.clock.advance(1)
    return world


def died(world: World, act: Callable[[Access], object], index: int) -> bool:
    """Do something in a process that dies at a storage operation; False if it came to its end."""
    dying = MemoryStorage(world.bucket, faults=FaultPlan({index: crash(effect=index % 2 > 0)}))
    mine = KnownProcesses(own=DYING, dead=world.processes.dead)
    try:
        act(replace(access_of(world, dying), processes=mine))
    except SimulatedCrash:
        world.processes.dead.add(DYING)
        return True
    return False


@pytest.mark.parametrize(
    ("version", "type_", "stride"),
    [
        (6, "mor", 9),
        (8, "cow", 9),
        *(pytest.param(v, t, 1, marks=pytest.mark.slow) for v in VERSIONS for t in TYPES),
    ],
)
def test_the_next_write_goes_on_wherever_a_rollback_of_a_compacted_commit_died(
    version: int, type_: str, stride: int
) -> None:
    index, seen = 0, []
    while died(world := with_compacted_commit(version, type_), newest_rolled_back, index):
        before = world.rows()
        seen.append(before["a1"])
        write(world, 7, "a2")
        assert world.rows() == before | {"a2": 7}, index
        if not access_of(world).properties().metadata_partitions:
            write(world, 7, "a2")  # the first one came upon the dead rollback
        check_listed(world, index)
        assert pending_in_metadata(world) == []
        index += stride
    assert set(seen) == {4, 5}


@pytest.mark.parametrize(("version", "type_"), [(6, "mor"), (8, "cow"), (8, "mor")])
def test_a_commit_that_a_dead_compaction_of_the_metadata_table_names_can_be_rolled_back(
    version: int, type_: str
) -> None:
    for index in range(200):
        world = with_commits(version, type_)
        assert died(world, lambda access: tend_metadata_table(access, OFTEN), index)
        if pending_in_metadata(world):
            break
    world.clock.advance(1)
    newest_rolled_back(access_of(world))
    check_listed(world, "rolled back")
    write(world, 7)
    assert tend(world).compaction is not None
    check_listed(world, "compacted")


@pytest.mark.parametrize("version", VERSIONS)
def test_rollbacks_that_are_archived_before_commits_leave_the_metadata_table_trusted(
    version: int,
) -> None:
    world = indexed(version, "mor")
    for n in range(3, 8):
        write(world, n)
        world.clock.advance(1)
        newest_rolled_back(access_of(world))
    for n in range(8, 12):
        write(world, n)
    assert tend(world).compaction is not None
    archived = run_archive(access_of(world), replace(FEW, keep_min_commits=3, keep_max_commits=4))
    timeline = access_of(world).timeline(access_of(world).properties())
    early = timeline.filter_actions("rollback").completed()
    if version == 6:
        assert archived.archived and len(early.instants) < 5
    check_listed(world)
    write(world, 12)
    check_listed(world)


@pytest.mark.parametrize("version", VERSIONS)
def test_indexes_begin_although_the_metadata_table_was_dropped_just_before(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = indexed(version, "cow")
    begin = index_building.begin_building
    dropped: list[bool] = []

    def too_late(access: Access, *args: Any, **more: Any) -> Any:
        if not dropped:
            dropped.append(True)
            drop_metadata_table(access_of(world))
        return begin(access, *args, **more)

    monkeypatch.setattr(index_building, "begin_building", too_late)
    built = build_beside_writers(access_of(world), ALL, MergerRegistry())
    assert {*ALL} <= {*built}
    check_listed(world)


@pytest.mark.parametrize(("version", "type_"), [(6, "mor"), (8, "cow")])
def test_a_restore_builds_the_metadata_table_anew(version: int, type_: str) -> None:
    world = indexed(version, type_)
    saved = create_savepoint(access_of(world)).instant
    write(world, 3)
    compact(world)
    write(world, 4, "a1", "f1")
    run_restore(access_of(world), saved)
    assert world.rows() == {"a1": 2, "a2": 1, "b1": 1}
    check_listed(world)
    write(world, 5)
    check_listed(world)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("type_", TYPES)
def test_compaction_of_the_metadata_table_lets_both_timelines_be_archived(
    version: int, type_: str
) -> None:
    world = indexed(version, type_, statistics=True)
    assert run_archive(access_of(world), FEW).archived == 0
    compacted = archived = deleted = moved = 0
    for n in range(3, 33):
        write(world, n)
        compact(world)
        deleted += run_clean(access_of(world), KEEP_ONE).files_deleted
        done = tend(world)
        compacted += done.compaction is not None
        moved += done.archived
        archived += run_archive(access_of(world), FEW).archived
        check_listed(world, n)
        assert world.rows() == {"a1": n, "a2": 1, "b1": n}
    assert compacted > 8 and deleted > 20 and archived > 20 and moved > 20
    data = access_of(world)
    own = load_timeline(
        world.storage.child(METADATA_FOLDER), metadata_properties(data.properties())
    )
    assert len(data.timeline(data.properties())) < 40 and len(own) < 40
    assert pending_in_metadata(world) == []


def test_logs_of_a_write_that_was_taken_back_tell_nothing_after_archiving_either() -> None:
    world = indexed(6, "mor", statistics=True)
    newest = write(world, 3)
    roll_back_instant(access_of(world), newest)
    check_listed(world, "rolled back")
    archived = 0
    for n in range(4, 20):
        write(world, n)
        tend(world)
        archived += run_archive(access_of(world), FEW).archived
    access = access_of(world)
    assert archived and min(i.requested_time for i in access.timeline(access.properties())) > newest
    check_listed(world, "archived")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_metadata_table_that_was_dropped_is_built_again(version: int) -> None:
    world = indexed(version, "mor")
    drop_metadata_table(access_of(world))
    assert not any(path.startswith(f"{METADATA_FOLDER}/") for path in world.bucket.objects())
    write(world, 3)
    assert build_metadata_table(access_of(world))
    check_listed(world)
    assert not build_metadata_table(access_of(world))


def test_a_write_that_died_after_it_told_the_metadata_table_keeps_it_from_compaction() -> None:
    world = indexed(8, "cow")
    for n in range(3, 7):
        write(world, n)
    never = replace(OFTEN, compact_commits=99)
    assert tend_metadata_table(access_of(world), never) == Tended()
    assert tend(world).compaction is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_indexes_that_are_not_kept_right_can_be_dropped_alone(version: int) -> None:
    world = indexed(version, "cow")
    claim = {keys.METADATA_PARTITIONS: "files,expr_index_x"}
    update_properties(world.storage, claim, clock=world.clock)
    world.storage.replace(f"{METADATA_FOLDER}/expr_index_x/x", b"1")
    with pytest.raises(UnsupportedTableError, match="expr_index_x"):
        write(world, 3)
    trim = WriteOptions.of(metadata_table="trim")
    world.write(upsert(rows("a1", n=7), trim))
    assert access_of(world).properties().metadata_partitions == ("files",)
    assert not any("expr_index_x" in path for path in world.bucket.objects())
    check_listed(world)


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_an_index_that_comes_after_archiving_leaves_the_others_whole(type_: str) -> None:
    world = indexed(8, type_, statistics=True)
    archived = 0
    for n in range(3, 24):
        write(world, n)
        compact(world)
        archived += tend(world).archived
        run_archive(access_of(world), FEW)
    assert archived
    drop_indexes(access_of(world), [COLUMN_STATS])
    build_beside_writers(access_of(world), [COLUMN_STATS], MergerRegistry())
    access = access_of(world)
    own = load_timeline(
        world.storage.child(METADATA_FOLDER), metadata_properties(access.properties())
    )
    assert not is_beginning_time(min(i.requested_time for i in own))
    check_listed(world, "built")
    for n in range(24, 30):
        write(world, n)
        tend(world)
        check_listed(world, n)


def test_who_looks_while_the_metadata_table_goes_finds_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = with_commits(8, "mor")
    load = metadata_upkeep.load_timeline

    def too_late(storage: Any, properties: Any) -> Any:
        drop_metadata_table(access_of(world))
        return load(storage, properties)

    monkeypatch.setattr(metadata_upkeep, "load_timeline", too_late)
    assert tend(world) == Tended()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_restore_that_died_brings_every_index_back_when_it_goes_on(version: int) -> None:
    index, saved = 0, ""

    def restore(access: Access) -> None:
        run_restore(access, saved)

    while True:
        world = indexed(version, "mor", statistics=True)
        saved = create_savepoint(access_of(world)).instant
        write(world, 3)
        world.clock.advance(1)
        if not died(world, restore, index):
            break
        access = access_of(world)
        if access.timeline(access.properties()).filter_actions("restore").pending():
            run_restore(access)
        write(world, 7, "a2")
        assert {*ALL} <= {*access_of(world).properties().metadata_partitions}, index
        check_listed(world, index)
        index += 23
    assert index > 100


@pytest.mark.parametrize("way", ["a write", "a command"])
def test_indexes_that_somebody_drops_for_good_do_not_come_back(way: str) -> None:
    world = indexed(8, "cow")
    drop_metadata_table(access_of(world), to_return=True)
    if way == "a command":
        drop_metadata_table(access_of(world))
    else:
        world.write(upsert(rows("a1", n=3), OPTIONS.model_copy(update={"metadata_table": "drop"})))
    write(world, 4)
    assert access_of(world).properties().metadata_partitions == ()
    assert lost_indexes(world.storage) == frozenset()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("anew", ["all", "one index"])
def test_a_reader_that_pinned_its_timeline_before_an_index_began_leaves_it_aside(
    version: int, anew: str
) -> None:
    world = indexed(version, "cow")
    access = access_of(world)
    properties, pinned = access.properties(), access.timeline(access.properties())
    listed = open_listing(world.storage, properties, pinned, use_metadata_table=True)
    assert listed.metadata is not None
    write(world, 3)
    write(world, 4)
    world.clock.advance(1)
    assert run_clean(access_of(world), KEEP_ONE).files_deleted
    if anew == "all":
        drop_metadata_table(access_of(world))
    assert build_beside_writers(access_of(world), ALL, MergerRegistry())
    check_listed(world, "who looks at it now")
    late = open_listing(world.storage, properties, pinned, use_metadata_table=True)
    assert late.metadata is None
    assert "behind what is read here" in late.warnings.told[0]
