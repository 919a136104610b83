"""Cleaning a table: what is deleted, who may delete it, and what a crash leaves."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lakewright.errors import (
    CancelledError,
    ConflictError,
    CorruptFileError,
    InstantNotFoundError,
    LockHeldError,
    TableError,
    UnsupportedTableError,
)
from lakewright.format import property_keys as keys
from lakewright.format.instant import Instant, State
from lakewright.format.partitions import ListedFile, list_partitions
from lakewright.format.properties import update_properties
from lakewright.format.records import (
    CleanerPlan,
    CleanFileInfo,
    CompactionOperation,
    CompactionPlan,
    RestorePlan,
    load_clean_metadata,
    load_cleaner_plan,
)
from lakewright.format.records.instants import instant_path
from lakewright.format.timeline import Timeline
from lakewright.format.version import TableVersion
from lakewright.runtime import ManualClock
from lakewright.runtime.cancel import CancelToken
from lakewright.runtime.events import Event
from lakewright.runtime.lanes import FEW
from lakewright.runtime.spawn import ThreadSpawner
from lakewright.services.clean import (
    CleanResult,
    execute_clean,
    pending_cleans,
    run_clean,
    schedule_clean,
)
from lakewright.services.clean_options import CleanOptions, CleanPolicy
from lakewright.services.clean_plan import CleanBasis, plan_clean
from lakewright.services.full_scans import full_scan_demands
from lakewright.services.savepoint import create_savepoint, delete_savepoint
from lakewright.storage.faults import FaultPlan, SimulatedCrash, crash
from lakewright.storage.local import LocalStorage
from lakewright.txn.access import FailedWrites
from lakewright.txn.times import next_time
from lakewright.txn.transaction import begin
from tests.corpus import committed_tables
from tests.services.clean_histories import deleted
from tests.services.clean_worlds import DYING, ONE, OTHER, Meanwhile, World, named
from tests.txn.tables import START_MS, new_access, write_file

VERSIONS_ONE = CleanOptions(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions_retained=1)


def _check_cleaned(world: World, before: set[str]) -> None:
    """Exactly what was expected is gone, one clean says so, and nothing is left behind."""
    gone = {f"{p}/{n}" for p, names in world.expected.items() for n in names}
    assert before - world.data() == gone
    (metadata,) = world.cleans()
    assert named(metadata) == world.expected
    assert metadata.total_files_deleted == len(gone)
    assert metadata.earliest_commit_to_retain == world.times[5]
    assert metadata.partition_metadata["c"].is_partition_deleted is True
    assert list_partitions(world.storage) == ["a", "b"]
    assert world.pending() == []
    assert world.traces() == []


# ---- one process -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, 8])
def test_a_clean_deletes_old_slices_and_replaced_groups_and_says_so(version: int) -> None:
    world = World.with_history(version)
    before, needed = world.data(), world.needed()
    events: list[Event] = []
    result = run_clean(world.access(on_event=events.append), ONE)
    _check_cleaned(world, before)
    assert world.needed() == needed
    assert result.files_deleted == 5
    assert [i for i, _ in result.executed] == [result.scheduled]
    progress = [(e.done, e.total) for e in events if e.kind == "clean.delete"]
    assert progress == [(n, 5) for n in range(1, 6)]
    assert run_clean(world.access(), ONE) == CleanResult()


def test_a_dry_run_tells_the_plan_and_changes_nothing() -> None:
    world = World.with_history()
    before = world.bucket.objects()
    plan = run_clean(world.access(), ONE, dry_run=True).plan
    assert plan is not None and deleted(plan) == world.expected
    assert plan.partitions_to_be_deleted == ["c"]
    assert run_clean(world.access(), CleanOptions(), dry_run=True).plan is None
    assert world.bucket.objects() == before


@pytest.mark.parametrize("version", [6, 8])
def test_the_next_clean_looks_only_where_something_was_written(version: int) -> None:
    world = World.with_history(version)
    run_clean(world.access(), ONE)
    world.commit("a/g1")
    world.commit("a/g1")
    looked: list[Event] = []
    result = run_clean(world.access(on_event=looked.append), ONE)
    assert [e.total for e in looked if e.kind == "clean.plan"] == [1]
    ((_, metadata),) = result.executed
    assert {p: len(n) for p, n in named(metadata).items()} == {"a": 2}


def test_a_clean_waits_for_enough_commits_and_for_the_clean_that_is_pending() -> None:
    world = World.with_history()
    access = world.access()
    assert schedule_clean(access, replace(ONE, trigger_commits=7)) is None
    first = schedule_clean(access, ONE)
    assert first is not None and pending_cleans(access) == [first]
    world.commit("a/g1")
    assert schedule_clean(access, ONE) is None
    second = schedule_clean(access, replace(ONE, allow_multiple=True))
    assert second is not None and second > first
    result = run_clean(access, replace(ONE, trigger_commits=99))
    assert [i for i, _ in result.executed] == [first, second]
    assert world.pending() == []


def test_a_partition_into_which_somebody_may_write_stays() -> None:
    world = World.with_history()
    transaction = begin(world.access(own=OTHER), action="commit")
    transaction.start()
    run_clean(world.access(), ONE)
    (metadata,) = world.cleans()
    assert named(metadata) == world.expected
    assert metadata.partition_metadata["c"].is_partition_deleted is False
    assert list_partitions(world.storage) == ["a", "b", "c"]


def test_what_a_living_write_reads_stays_until_it_is_over() -> None:
    world = World()
    world.commit("a/g1")
    access = world.access(own=OTHER)
    transaction = begin(access, action="commit")
    transaction.start()
    world.commit("a/g1")
    world.commit("a/g1")
    world.commit("b/g2")
    first, second, third = (f"a/g1_0-0-0_{t}.parquet" for t in world.times[:3])
    run_clean(world.access(), VERSIONS_ONE)
    assert first in world.data() and second not in world.data() and third in world.data()
    assert full_scan_demands(world.storage)
    write_file(world.storage, transaction, "b", "g9")
    transaction.abort()
    run_clean(world.access(), VERSIONS_ONE)
    assert first not in world.data() and third in world.data()
    assert not full_scan_demands(world.storage)


@pytest.mark.parametrize("version", [6, 8])
def test_files_of_a_deleted_savepoint_go_with_the_next_clean(version: int) -> None:
    world = World.with_history(version)
    access = world.access()
    create_savepoint(access, world.times[1])
    kept = world.needed(world.times[1])
    run_clean(access, ONE)
    assert kept <= world.data()
    assert kept == world.needed(world.times[1])
    delete_savepoint(access, world.times[1])
    run_clean(access, ONE)
    gone = {f"{p}/{n}" for p, names in world.expected.items() for n in names}
    assert not gone & world.data()
    assert not full_scan_demands(world.storage)


def test_dead_writes_are_rolled_back_first_unless_that_is_forbidden() -> None:
    world = World.with_history()
    dead = begin(world.access(own=DYING), action="commit")
    dead.start()
    world.processes.dead.add(DYING)
    left = run_clean(world.access(failed_writes=FailedWrites.NEVER), ONE, dry_run=False)
    assert left.rolled_back == () and len(world.pending()) == 1
    assert run_clean(world.access(), ONE).rolled_back == (dead.instant,)
    assert world.pending() == []


def test_a_metadata_table_is_refused_or_dropped() -> None:
    world = World.with_history()
    claim = {keys.METADATA_PARTITIONS: "files,expr_index_x"}
    update_properties(world.storage, claim, clock=world.clock)
    before = world.data()
    for refused in (run_clean, schedule_clean):
        with pytest.raises(UnsupportedTableError):
            refused(world.access(), ONE)
    assert world.data() == before and world.pending() == []
    run_clean(world.access(), replace(ONE, drop_metadata_table=True))
    _check_cleaned(world, before)


def test_nothing_is_planned_while_the_table_is_being_restored() -> None:
    world = World.with_history()
    access = world.access()
    properties = access.properties()
    restore = next_time(access.timeline(properties), properties, world.clock)
    plan = RestorePlan(savepoint_to_restore_timestamp=world.times[0])
    access.files(properties).request(restore, "restore", plan.write(properties.version))
    with pytest.raises(TableError):
        run_clean(access, ONE)


# ---- plans of others ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v6_cow_archived_simple", "v8_mor_archived_simple"])
def test_a_pending_clean_of_hudi_is_executed_as_hudi_would_have(name: str, tmp_path: Path) -> None:
    (table,) = (t for t in committed_tables() if t.name == name)
    root = table.unpack(tmp_path)
    access = new_access(LocalStorage(root), ManualClock(START_MS * 2))
    properties = access.properties()
    clean = access.timeline(properties).last_clean()
    assert clean is not None
    real = load_clean_metadata(access.storage, properties, clean)
    for partition, names in named(real).items():
        for file in names:
            (root / partition / file).write_bytes(b"x")
    (root / instant_path(properties, clean.file_name)).unlink()
    options = CleanOptions(trigger_commits=99, drop_metadata_table=True)
    ((instant, ours),) = run_clean(access, options).executed
    assert instant == clean.requested_time
    assert named(ours) == named(real)
    same = replace(ours, time_taken_in_millis=0, partition_metadata={})
    assert same == replace(real, time_taken_in_millis=0, partition_metadata={})
    for partition, names in named(real).items():
        assert not any((root / partition / file).exists() for file in names)


def test_a_plan_of_version_1_is_executed_by_names() -> None:
    world = World.with_history()
    access = world.access()
    properties = access.properties()
    name = min(world.expected["a"])
    plan = CleanerPlan(
        policy="KEEP_LATEST_COMMITS",
        version=1,
        files_to_be_deleted_per_partition={"a": [f"/elsewhere/a/{name}"]},
    )
    instant = next_time(access.timeline(properties), properties, world.clock)
    access.files(properties).request(instant, "clean", plan.write(properties.version))
    metadata = execute_clean(access, instant)
    assert metadata is not None and named(metadata) == {"a": {name}}
    assert f"a/{name}" not in world.data()


@pytest.mark.parametrize("path", ["file:/t/a/.hoodie_partition_metadata", "", None])
def test_a_plan_that_names_no_data_file_deletes_nothing(path: str | None) -> None:
    world = World.with_history()
    access = world.access()
    properties = access.properties()
    good = CleanFileInfo(file_path=f"/t/a/{min(world.expected['a'])}")
    plan = CleanerPlan(
        policy="KEEP_LATEST_COMMITS",
        file_paths_to_be_deleted_per_partition={"a": [good, CleanFileInfo(file_path=path)]},
    )
    instant = next_time(access.timeline(properties), properties, world.clock)
    access.files(properties).request(instant, "clean", plan.write(properties.version))
    before = world.data()
    with pytest.raises(CorruptFileError):
        execute_clean(access, instant)
    assert world.data() == before


def test_the_plan_of_a_process_that_died_before_writing_it_is_removed() -> None:
    world = World.with_history()
    access = world.access()
    properties = access.properties()
    instant = next_time(access.timeline(properties), properties, world.clock)
    access.files(properties).request(instant, "clean")
    before = world.data()
    run_clean(access, ONE)
    _check_cleaned(world, before)


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("planned", [True, False])
def test_an_empty_completed_clean_is_executed_again_or_removed(version: int, planned: bool) -> None:
    world = World.with_history(version)
    before = world.data()
    access = world.access()
    run_clean(access, ONE)
    properties = access.properties()
    clean = access.timeline(properties).last_clean()
    assert clean is not None
    world.storage.replace(instant_path(properties, clean.file_name), b"")
    if not planned:
        files = access.files(properties)
        for state in (State.REQUESTED, State.INFLIGHT):
            world.storage.replace(files.path(clean.requested_time, "clean", state), b"")
    result = run_clean(access, replace(ONE, trigger_commits=99))
    if planned:
        assert [i for i, _ in result.executed] == [clean.requested_time]
        _check_cleaned(world, before)
    else:
        assert result.executed == () and world.cleans() == [] and world.pending() == []


# ---- several processes -------------------------------------------------------------------------


def _crashes(version: int, effect: bool, stride: int) -> Iterator[tuple[int, World, set[str]]]:
    """A world for every storage operation of a clean, or some, at which its process died."""
    for index in count(0, stride):
        world = World.with_history(version)
        before = world.data()
        dying = world.faulty(FaultPlan({index: crash(effect=effect)}))
        try:
            run_clean(world.access(dying, own=DYING), ONE)
        except SimulatedCrash:
            world.processes.dead.add(DYING)
            yield index, world, before
        else:
            return


def _check_crashes(version: int, effect: bool, stride: int) -> None:
    crashed = 0
    for _, world, before in _crashes(version, effect, stride):
        crashed += 1
        assert before - world.data() <= {
            f"{p}/{n}" for p, names in world.expected.items() for n in names
        }
        newest = {p for p in before if world.times[5] in p or world.times[4] in p}
        assert newest <= world.data()
        run_clean(world.access(), ONE)
        _check_cleaned(world, before)
    assert crashed > 40 / stride


@pytest.mark.parametrize(("version", "effect"), [(6, True), (8, False)])
def test_a_crash_at_any_operation_is_finished_by_the_next_cleaner(
    version: int, effect: bool
) -> None:
    _check_crashes(version, effect, stride=2)


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("effect", [False, True])
def test_a_crash_at_every_operation_is_finished_by_the_next_cleaner(
    version: int, effect: bool
) -> None:
    _check_crashes(version, effect, stride=1)


def _interleaved(stall_s: float, stride: int) -> Iterator[tuple[World, set[str], list[str]]]:
    """A second cleaner that runs before every operation of the first, or some."""
    for index in count(0, stride):
        world = World.with_history()
        before = world.data()
        told: list[str] = []

        def second(world: World = world, told: list[str] = told) -> None:
            world.clock.advance(stall_s)
            try:
                done = run_clean(world.access(own=OTHER), ONE)
                told.append("done" if done.executed else "nothing to do")
            except LockHeldError:
                told.append("no lock")

        hook = Meanwhile(index, second)
        try:
            run_clean(world.access(world.faulty(hook)), ONE)
        except ConflictError as error:
            told.append(error.code)
        if not hook.happened:
            return
        yield world, before, told


@pytest.mark.parametrize("stall_s", [0.0, 3600.0])
def test_two_cleaners_at_once_delete_what_one_would(stall_s: float) -> None:
    seen: set[str] = set()
    for world, before, told in _interleaved(stall_s, stride=3):
        seen.update(told)
        world.clock.advance(3600.0)
        run_clean(world.access(), ONE)
        _check_cleaned(world, before)
    assert {"done", "nothing to do", "no lock"} <= seen
    # Only a process that stood still for too long is turned away.
    assert ("conflict.fenced" in seen) == bool(stall_s)


def test_a_process_that_lost_its_clean_leaves_the_signs_of_life_of_the_next_one() -> None:
    world = World.with_history()
    instant = schedule_clean(world.access(), ONE)
    assert instant is not None
    beats = f".hoodie/.heartbeat/{instant}"

    def taken_over() -> None:
        world.clock.advance(3600.0)
        world.storage.replace(beats, b"")  # the first beat of another process

    events: list[Event] = []

    def on_event(event: Event) -> None:
        if event.kind == "clean.delete" and event.done == 1:
            taken_over()
        events.append(event)

    with pytest.raises(ConflictError):
        execute_clean(world.access(on_event=on_event), instant)
    assert world.storage.exists(beats)
    assert [e.done for e in events if e.kind == "clean.delete"] == [1]


def test_a_savepoint_that_appears_while_a_clean_is_planned_wins() -> None:
    outcomes = set()
    for index in count(0, 2):
        world = World.with_history()
        target = world.times[1]
        kept = world.needed(target)
        told: list[str] = []

        def keep(world: World = world, told: list[str] = told, target: str = target) -> None:
            try:
                create_savepoint(world.access(own=OTHER), target)
                told.append("kept")
            except (LockHeldError, ConflictError, InstantNotFoundError) as error:
                told.append(error.code)

        hook = Meanwhile(index, keep)
        run_clean(world.access(world.faulty(hook)), ONE)
        if not hook.happened:
            break
        outcomes.update(told)
        if told == ["kept"]:
            assert kept <= world.data(), index
        else:
            (metadata,) = world.cleans()
            assert named(metadata) == world.expected
    assert "kept" in outcomes and "table.instant_not_found" in outcomes


def test_a_plan_that_appears_while_a_clean_is_planned_wins() -> None:
    protected = 0
    for index in count(0, 2):
        world = World.with_history()
        name = f"g1_0-0-0_{world.times[1]}.parquet"
        first: list[bool] = []

        def plan(world: World = world, name: str = name, first: list[bool] = first) -> None:
            access = world.access(own=OTHER)
            try:
                with access.locked("test"):
                    properties = access.properties()
                    timeline = access.timeline(properties)
                    first.append(timeline.filter_actions("clean").first() is None)
                    operation = CompactionOperation(
                        base_instant_time=world.times[1],
                        data_file_path=name,
                        file_id="g1",
                        partition_path="a",
                    )
                    content = CompactionPlan(operations=[operation]).write(properties.version)
                    instant = next_time(timeline, properties, world.clock)
                    access.files(properties).request(instant, "compaction", content)
            except LockHeldError:
                return

        hook = Meanwhile(index, plan)
        run_clean(world.access(world.faulty(hook)), ONE)
        if not hook.happened:
            break
        if first == [True]:
            protected += 1
            assert f"a/{name}" in world.data(), index
    assert protected > 5


def test_a_cancelled_clean_stops_between_two_files_and_is_finished_later() -> None:
    world = World.with_history()
    before = world.data()
    cancel = CancelToken()

    def after_two(event: Event) -> None:
        if event.kind == "clean.delete" and event.done == 2:
            cancel.cancel()

    with pytest.raises(CancelledError):
        run_clean(world.access(cancel=cancel, on_event=after_two), ONE)
    assert len(before - world.data()) == 2
    assert len(world.pending()) == 1
    run_clean(world.access(), replace(ONE, trigger_commits=99))
    _check_cleaned(world, before)


# ---- many files --------------------------------------------------------------------------------


class _LanesOnly(ThreadSpawner):
    """Runs lanes; heartbeats beat once."""

    def __init__(self) -> None:
        self.lanes: list[str] = []

    def spawn(self, fn: Any, name: str) -> Any:
        if not name.startswith("lane-"):
            return None
        self.lanes.append(name)
        return super().spawn(fn, name)


def test_many_files_go_several_at_a_time_and_are_told_one_by_one() -> None:
    world = World.with_history()
    groups = [f"b/g{n:02d}" for n in range(20)]
    for _ in range(4):
        world.commit(*groups)
    before = world.data()
    told: list[int] = []
    spawner = _LanesOnly()

    def hear(event: Event) -> None:
        if event.kind == "clean.delete":
            told.append(event.done)

    result = run_clean(world.access(spawner=spawner, on_event=hear), ONE)
    assert result.files_deleted == len(before - world.data()) > FEW
    assert told == list(range(1, result.files_deleted + 1))
    assert len(set(spawner.lanes)) > 1
    assert run_clean(world.access(), ONE) == CleanResult()


@pytest.mark.slow
def test_planning_on_100_000_files_holds_one_partition_at_a_time() -> None:
    times = [f"202501010000{n:02d}000" for n in range(10)]
    instants = [Instant(t, "commit", State.COMPLETED, t, f"{t}.commit") for t in times]
    timeline = Timeline.of(instants)
    basis = CleanBasis(
        timeline=timeline,
        version=TableVersion.of(8),
        zone=UTC,
        now_ms=0,
        completion_time_of=timeline.completion_time_of,
    )

    def listing() -> Iterator[tuple[str, list[ListedFile]]]:
        for partition in range(100):
            yield (
                f"p{partition:03d}",
                [
                    ListedFile(f"group-{partition:03d}-{group:03d}-0_0-0-0_{t}.parquet", 1)
                    for group in range(100)
                    for t in times
                ],
            )

    options = CleanOptions(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions_retained=9)
    tracemalloc.start()
    planned = plan_clean(basis, options, listing(), base_path="mem://t")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert planned.files == 10_000
    assert peak < 16 << 20


def test_a_completed_clean_keeps_its_plan_readable() -> None:
    world = World.with_history()
    run_clean(world.access(), ONE)
    access = world.access()
    properties = access.properties()
    clean = access.timeline(properties).last_clean()
    assert clean is not None
    assert deleted(load_cleaner_plan(world.storage, properties, clean)) == world.expected
