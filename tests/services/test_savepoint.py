"""Savepoints: what they keep, when they are refused, and what a crash leaves."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lakewright.engine.options import ReadOptions
from lakewright.errors import ConflictError, InstantNotFoundError
from lakewright.format.archived_timeline import archived_times
from lakewright.format.instant import State
from lakewright.format.records import load_savepoint
from lakewright.runtime import ManualClock
from lakewright.runtime.events import Event
from lakewright.services import savepoint
from lakewright.services.archive import ArchiveOptions, run_archive
from lakewright.services.clean import run_clean, schedule_clean
from lakewright.services.clean_options import CleanOptions, CleanPolicy
from lakewright.services.savepoint import (
    Savepoint,
    create_savepoint,
    delete_savepoint,
    list_savepoints,
)
from lakewright.storage.faults import FaultPlan, SimulatedCrash, crash
from lakewright.storage.local import LocalStorage
from lakewright.table import Table
from lakewright.txn.transaction import begin
from tests.corpus import CommittedTable, committed_tables
from tests.services.clean_worlds import DYING, ONE, World
from tests.txn.tables import START_MS, new_access, prepared, write_file

VERSIONS_ONE = CleanOptions(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions_retained=1)


def _kept(world: World, instant: str) -> set[str]:
    """Paths of the files that a savepoint names."""
    access = world.access()
    properties = access.properties()
    found = access.timeline(properties).get(instant, "savepoint")
    assert found is not None and found.completed
    metadata = load_savepoint(world.storage, properties, found)
    return {
        f"{partition}/{name}"
        for partition, said in metadata.partition_metadata.items()
        for name in said.savepoint_data_file
    }


@pytest.mark.parametrize("version", [6, 8])
def test_a_savepoint_names_every_file_that_a_reader_of_its_commit_needs(version: int) -> None:
    world = World.with_history(version)
    told: list[Event] = []
    access = world.access(on_event=told.append)
    made = create_savepoint(access, world.times[2], by="me", comment="before the move")
    assert made == Savepoint(world.times[2], "me", "before the move", START_MS, 3, 3)
    assert _kept(world, world.times[2]) == world.needed(world.times[2])
    newest = create_savepoint(access)
    assert newest.instant == world.times[5]
    assert list_savepoints(access) == [made, newest]
    assert [e.kind for e in told] == ["savepoint.created"] * 2


def test_a_replacement_that_began_before_and_ends_meanwhile_is_kept_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.commit("a/g1", "b/g2")
    access = world.access()
    late = begin(access, action="replacecommit")
    late.start()
    new = write_file(world.storage, late, "a", "g9")
    commit = world.commit("b/g2")
    assert late.instant < commit
    looked = savepoint.needed_files
    calls: list[str] = []

    def look(*given: Any, **how: Any) -> Any:
        found = looked(*given, **how)
        if not calls:
            late.commit(prepared(access, new, replaced={"a": ["g1"]}))
        calls.append("look")
        return found

    monkeypatch.setattr(savepoint, "needed_files", look)
    create_savepoint(world.access(), commit)
    assert len(calls) == 2
    assert _kept(world, commit) == world.needed(commit) and any("g9" in p for p in world.data())
    assert not any("g1" in path for path in _kept(world, commit))


def test_a_commit_that_is_kept_already_stays_as_it_is() -> None:
    world = World.with_history()
    first = create_savepoint(world.access(), world.times[2], comment="first")
    before = world.bucket.objects()
    assert create_savepoint(world.access(), world.times[2], comment="second") == first
    assert world.bucket.objects() == before


@pytest.mark.parametrize("instant", ["20200101000000000", "", None])
def test_only_a_completed_commit_can_be_kept(instant: str | None) -> None:
    world = World() if instant is None else World.with_history()
    with pytest.raises(InstantNotFoundError):
        create_savepoint(world.access(), instant)
    assert list_savepoints(world.access()) == []


@pytest.mark.parametrize("completed", [True, False])
def test_commits_below_the_moment_that_a_clean_retains_are_refused(completed: bool) -> None:
    world = World.with_history()
    options = CleanOptions(commits_retained=2)
    if completed:
        run_clean(world.access(), options)
    else:
        assert schedule_clean(world.access(), options) is not None
    for time in world.times[:4]:
        with pytest.raises(InstantNotFoundError):
            create_savepoint(world.access(), time)
    for time in world.times[4:]:
        create_savepoint(world.access(), time)
        assert _kept(world, time) == world.needed(time)
    run_clean(world.access(), ONE)
    for time in world.times[4:]:
        assert _kept(world, time) <= world.data()


@pytest.mark.parametrize("completed", [True, False])
def test_after_a_clean_by_versions_only_the_newest_commit_can_be_kept(completed: bool) -> None:
    world = World.with_history()
    if completed:
        run_clean(world.access(), VERSIONS_ONE)
    else:
        assert schedule_clean(world.access(), VERSIONS_ONE) is not None
    for time in world.times[:5]:
        with pytest.raises((InstantNotFoundError, ConflictError)):
            create_savepoint(world.access(), time)
    create_savepoint(world.access(), world.times[5])
    run_clean(world.access(), VERSIONS_ONE)
    assert _kept(world, world.times[5]) <= world.data()


@pytest.mark.parametrize("version", [6, 8])
def test_a_deleted_savepoint_leaves_nothing_on_the_timeline(version: int) -> None:
    world = World.with_history(version)
    access = world.access()
    create_savepoint(access, world.times[2])
    delete_savepoint(access, world.times[2])
    assert list_savepoints(access) == []
    assert not any(".savepoint" in path for path in world.bucket.objects())
    with pytest.raises(InstantNotFoundError):
        delete_savepoint(access, world.times[2])


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("effect", [False, True])
def test_a_crash_while_a_savepoint_is_made_or_deleted_can_be_done_again(
    version: int, effect: bool
) -> None:
    for index in count():
        world = World.with_history(version)
        faults = FaultPlan({index: crash(effect=effect)})
        dying = world.access(world.faulty(faults), own=DYING)
        try:
            create_savepoint(dying, world.times[2])
            delete_savepoint(dying, world.times[2])
        except SimulatedCrash:
            pass
        else:
            break
        made = create_savepoint(world.access(), world.times[2])
        assert list_savepoints(world.access()) == [made]
        assert _kept(world, world.times[2]) == world.needed(world.times[2])
        delete_savepoint(world.access(), world.times[2])
        assert list_savepoints(world.access()) == [] and world.pending() == []
    assert index > 10


def test_the_inflight_file_of_a_dead_process_is_completed() -> None:
    world = World.with_history()
    access = world.access()
    files = access.files(access.properties())
    files.start(world.times[2], "savepoint")
    create_savepoint(access, world.times[2])
    assert _kept(world, world.times[2]) == world.needed(world.times[2])
    inflight = files.path(world.times[2], "savepoint", State.INFLIGHT)
    assert world.storage.exists(inflight)


def _mor_tables() -> list[CommittedTable]:
    names = ("v6_mor_pending_compaction_simple", "v8_mor_pending_compaction_complex")
    return [t for t in committed_tables() if t.name in names]


@pytest.mark.parametrize("table", _mor_tables(), ids=lambda t: t.name)
def test_a_savepoint_of_a_real_table_is_read_as_it_was_after_a_clean_of_everything(
    table: CommittedTable, tmp_path: Path
) -> None:
    root = table.unpack(tmp_path)
    clock = ManualClock(START_MS * 2)
    access = new_access(LocalStorage(root), clock)
    commits = access.timeline(access.properties()).commits().completed()
    first = commits.instants[0].requested_time
    create_savepoint(access, first)

    def rows() -> list[dict[str, object]]:
        opened = Table(LocalStorage(root), clock=clock, options=ReadOptions(threads=1))
        found = opened.scan(as_of=f"savepoint:{first}").to_arrow()
        return sorted(found.to_pylist(), key=repr)

    before = rows()
    newest = Table(LocalStorage(root), clock=clock).scan().to_arrow().num_rows
    options = CleanOptions(
        policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS,
        file_versions_retained=1,
        drop_metadata_table=True,
    )
    assert run_clean(access, options).files_deleted > 0
    assert rows() == before
    assert Table(LocalStorage(root), clock=clock).scan().to_arrow().num_rows == newest


# ---- savepoints behind which the timeline was archived -------------------------------------------


def _archived_beyond(version: int) -> World:
    """A savepoint of the second commit, with later ones archived."""
    world = World.with_history(version)
    create_savepoint(world.access(), world.times[1])
    world.clock.advance(1)
    world.commit("b/g2")
    run_clean(world.access(), ONE)
    options = ArchiveOptions(
        keep_min_commits=2, keep_max_commits=3, clean=ONE, beyond_savepoint=True
    )
    assert run_archive(world.access(), options).archived
    left = world.access().timeline(world.access().properties()).commits()
    assert [i.requested_time for i in left] == [world.times[1], *world.times[3:]]
    return world


@pytest.mark.parametrize("version", [6, 8])
def test_no_file_disappears_with_a_savepoint_behind_which_all_is_archived(version: int) -> None:
    world = _archived_beyond(version)
    before = world.needed()
    delete_savepoint(world.access(), world.times[1])
    assert world.needed() == before
    access = world.access()
    left = access.timeline(access.properties())
    assert world.times[1] not in {i.requested_time for i in left}
    archived = archived_times(world.storage, access.properties())["requested_time"].to_pylist()
    assert archived.count(world.times[1]) == 1


@pytest.mark.parametrize(("version", "effect"), [(6, True), (8, False)])
def test_no_file_disappears_wherever_the_deletion_of_such_a_savepoint_dies(
    version: int, effect: bool
) -> None:
    start = _archived_beyond(version)
    needed = start.needed()
    for index in count():
        world = World(version, times=[*start.times])
        for path, content in start.bucket.objects().items():
            world.storage.replace(path, bytes(content))
            world.storage.set_modified(path, start.storage.stat(path).modified_ms)
        world.clock.advance(start.clock.monotonic_s())
        dying = world.access(world.faulty(FaultPlan({index: crash(effect=effect)})), own=DYING)
        try:
            delete_savepoint(dying, world.times[1])
        except SimulatedCrash:
            assert world.needed() == needed, index
        else:
            break
        with suppress(InstantNotFoundError):
            delete_savepoint(world.access(), world.times[1])
        assert world.needed() == needed and list_savepoints(world.access()) == [], index
        assert world.pending() == [], index
    assert index > 10


def test_a_replacement_whose_files_are_still_there_is_not_archived_with_its_savepoint() -> None:
    world = World()
    world.commit("a/g1", "b/g2")
    oldest = create_savepoint(world.access()).instant
    world.clock.advance(1)
    world.commit("a/g3", replaced={"a": ["g1"]})
    kept = create_savepoint(world.access()).instant
    for _ in range(6):
        world.clock.advance(1)
        world.commit("b/g2")
    run_clean(world.access(), ONE)
    options = ArchiveOptions(
        keep_min_commits=2, keep_max_commits=3, clean=ONE, beyond_savepoint=True
    )
    assert run_archive(world.access(), options).archived
    before = world.needed()
    with pytest.raises(ConflictError, match="replaced are still there"):
        delete_savepoint(world.access(), kept)
    delete_savepoint(world.access(), oldest)
    run_clean(world.access(), ONE)
    delete_savepoint(world.access(), kept)
    assert world.needed() == before
