"""Services of a table with a metadata table, and the metadata table's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakewright.engine.index_building import build_beside_writers, build_indexes
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
from lakewright.txn.metadata_creation import (
    build_metadata_table,
    drop_indexes,
    drop_metadata_table,
)
from tests.engine.test_crash_everywhere import World, rows, upsert
from tests.engine.test_metadata_everywhere import (
    ALL,
    TYPES,
    VERSIONS,
    access_of,
    check_listed,
    indexed,
    pending_in_metadata,
)

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
