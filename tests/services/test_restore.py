"""Restores: the rows are those of the savepoint, whoever dies on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import (
    ConflictError,
    InstantNotFoundError,
    PlanBusyError,
    ServiceError,
    TableError,
)
from lakewright.format.instant import Instant, State
from lakewright.format.records import RestoreMetadata, load_record, load_restore_plan
from lakewright.format.timeline import Timeline
from lakewright.runtime.events import Event
from lakewright.services.archive import ArchiveOptions, run_archive
from lakewright.services.clean import CleanOptions, run_clean, schedule_clean
from lakewright.services.compaction import Compaction
from lakewright.services.needed_files import Taken
from lakewright.services.restore import Restored, plan_restore, run_restore
from lakewright.services.restore_plan import RestoreFacts, draft_restore, refuse_unsafe
from lakewright.services.savepoint import create_savepoint, delete_savepoint
from lakewright.table import Table
from lakewright.txn.recovery import roll_back_failed
from lakewright.txn.transaction import begin
from tests.engine.keyed.tables import QuickTable, Shape, new_table
from tests.engine.keyed.tables import rows as keyed_rows
from tests.engine.keyed.test_against_model import HISTORY, shapes
from tests.engine.test_crash_everywhere import (
    BEFORE,
    DYING,
    STEPS,
    World,
    orphans,
    rows,
    upsert,
)
from tests.services.undoing import (
    ALWAYS,
    access_of,
    compact,
    copied,
    crashes,
    newest,
    pending,
    timeline,
    unchanged,
)

KINDS = pytest.mark.parametrize(
    ("version", "type_"), [(6, "cow"), (6, "mor"), (8, "cow"), (8, "mor")]
)
BOTH = pytest.mark.parametrize(("version", "type_"), [(6, "mor"), (8, "cow")])
CLEAN = CleanOptions(commits_retained=1)


def kept(version: int, type_: str) -> tuple[World, str]:
    """A table whose newest commit is kept by a savepoint."""
    world = World.new(version, type_)
    world.clock.advance(1)
    return world, create_savepoint(access_of(world)).instant


def go_on(world: World, type_: str, *names: str) -> None:
    """Write more: updates, a compaction, an overwrite, cleans in between."""
    for name in names or ("upsert", "compact", "append", "clean", "overwrite"):
        world.clock.advance(1)
        if name == "compact" and type_ == "mor":
            compact(world)
        elif name == "clean":
            run_clean(access_of(world), CLEAN)
        elif name != "compact":
            world.write(STEPS[name].write)
    world.clock.advance(1)


def restored(world: World, to: str | None = None) -> Restored:
    return run_restore(access_of(world), to)


# ---- what is there afterwards ------------------------------------------------------------------


@BOTH
def test_everything_after_the_savepoint_is_gone_and_writing_goes_on(
    version: int, type_: str
) -> None:
    world, savepoint = kept(version, type_)
    go_on(world, type_)
    assert world.rows() != BEFORE
    planned = plan_restore(access_of(world))
    told: list[Event] = []
    done = run_restore(replace(access_of(world), on_event=told.append))
    assert world.rows() == BEFORE
    assert done.to == planned.to == savepoint and not done.resumed
    assert done.undone == tuple(info.commit_time for info in planned.undone)
    assert len(done.undone) == (4 if type_ == "mor" else 3)
    assert newest(world) == savepoint and pending(world) == []
    assert orphans(world) == []
    steps = [e for e in told if e.kind == "restore.instants"]
    assert [e.done for e in steps] == list(range(1, len(done.undone) + 1))
    world.write(STEPS["upsert"].write)
    assert world.rows() == STEPS["upsert"].after and orphans(world) == []
    restored(world)
    assert world.rows() == BEFORE


@BOTH
def test_the_savepoint_reads_and_restores_the_same_rows_after_cleans(
    version: int, type_: str
) -> None:
    world, savepoint = kept(version, type_)
    go_on(world, type_, "upsert", "clean", "delete", "clean", "overwrite_table", "clean")
    table = Table(world.storage, clock=world.clock)
    read = table.scan(as_of=f"savepoint:{savepoint}", columns=["id", "n"]).to_arrow()
    assert dict(zip(*read.to_pydict().values(), strict=True)) == BEFORE
    restored(world)
    assert world.rows() == BEFORE
    delete_savepoint(access_of(world), savepoint)
    run_clean(access_of(world), CLEAN)
    assert world.rows() == BEFORE


@BOTH
def test_any_commit_that_is_whole_can_be_gone_back_to(version: int, type_: str) -> None:
    world = World.new(version, type_)
    to = newest(world)
    go_on(world, type_, "upsert", "compact", "append")
    planned = plan_restore(access_of(world), to)
    assert not planned.savepointed
    assert restored(world, to).to == to
    assert world.rows() == BEFORE and orphans(world) == []


def test_nothing_is_done_where_nothing_came_after() -> None:
    world, savepoint = kept(8, "cow")
    before = world.bucket.objects()
    assert restored(world) == Restored(savepoint, None)
    assert world.bucket.objects() == before


@BOTH
def test_the_records_of_a_restore_say_what_was_taken_back(version: int, type_: str) -> None:
    world, savepoint = kept(version, type_)
    go_on(world, type_)
    done = restored(world)
    table = Table(world.storage, clock=world.clock)
    found = table.timeline.get(done.restore or "", "restore")
    assert found is not None and found.completed
    plan = load_restore_plan(world.storage, table.properties, found)
    assert plan.version == 2 and plan.savepoint_to_restore_timestamp == savepoint
    record = load_record(world.storage, table.properties, found)
    assert isinstance(record, RestoreMetadata)
    assert tuple(record.instants_to_rollback) == done.undone
    assert set(record.hoodie_restore_metadata) == set(done.undone)
    assert [i.action for i in record.restore_instant_info] == [
        i.action for i in plan.instants_to_rollback
    ]
    deleted = [
        r.total_files_deleted for rs in record.hoodie_restore_metadata.values() for r in rs if r
    ]
    assert sum(deleted) == done.files_deleted > 0


@pytest.mark.parametrize("version", [6, 8])
def test_archived_commits_before_the_savepoint_are_seen_after_a_restore(version: int) -> None:
    world = World.new(version, "cow")
    options = ArchiveOptions(keep_min_commits=2, keep_max_commits=3, clean=CLEAN)
    for n in range(5):
        world.clock.advance(1)
        world.write(upsert(rows("b1", n=n)))
        run_clean(access_of(world), CLEAN)
        run_archive(access_of(world), options)
    before = world.rows()
    assert before["a2"] == 1  # written by a commit that is archived
    create_savepoint(access_of(world))
    go_on(world, "cow", "upsert", "append")
    run_archive(access_of(world), options)
    restored(world)
    assert world.rows() == before
    world.clock.advance(1)
    world.write(upsert(rows("z1")))
    assert world.rows() == before | {"z1": 1}


Steps = list[tuple[str, Any]]


def play(table: QuickTable, shape: Shape, steps: Steps, services: list[str]) -> None:
    """A history of writes, with services between them."""
    for number, (verb, given_) in enumerate(steps):
        if verb == "upsert":
            batch = [(k, p, ts, 10 * number + n, gone) for n, (k, p, ts, gone) in enumerate(given_)]
            table.upsert(keyed_rows(shape, batch), options=shape.options)
        elif verb == "delete":
            batch = [(k, p, 3, 0, None) for p, k in given_]
            table.delete(keyed_rows(shape, batch), options=shape.options)
        table.clock.advance(1)
        service = services[number % len(services)]
        if service in ("compact", "plan") and shape.type == "mor":
            compaction = Compaction(table.access(), ALWAYS)
            compaction.run() if service == "compact" else compaction.schedule()
        elif service == "clean":
            run_clean(table.access(), CLEAN)
        table.clock.advance(1)


def content(table: QuickTable) -> list[dict[str, Any]]:
    found = table.scan(columns=["id", "p", "ts", "v"]).to_arrow()
    return sorted(found.to_pylist(), key=repr)


SERVICES = st.lists(st.sampled_from(["none", "compact", "plan", "clean"]), min_size=1, max_size=4)


def check_history(
    shape: Shape, before: Steps, after: Steps, services: list[str], with_savepoint: bool
) -> None:
    table = new_table(shape)
    play(table, shape, before, services)
    last = table.timeline.last_completed_commit()
    if last is None:
        return
    if with_savepoint:
        create_savepoint(table.access(), last.requested_time)
    else:
        services = [s if s != "clean" else "none" for s in services]
    wanted = content(table)
    play(table, shape, after, services)
    run_restore(table.access(), last.requested_time)
    assert content(table) == wanted
    pending_now = [i for i in table.timeline.pending() if i.action != "compaction"]
    assert pending_now == []
    newest_now = table.timeline.last_completed_commit()
    assert newest_now is not None and newest_now.requested_time == last.requested_time
    if shape.type == "mor":
        Compaction(table.access(), ALWAYS).run()
        assert content(table) == wanted
    play(table, shape, after, ["none"])


@settings(max_examples=6)
@given(shapes(), HISTORY, HISTORY, SERVICES, st.booleans())
def test_after_a_restore_the_rows_are_those_of_the_commit(
    shape: Shape, before: Steps, after: Steps, services: list[str], with_savepoint: bool
) -> None:
    check_history(shape, before, after, services, with_savepoint)


@pytest.mark.slow
@settings(max_examples=400)
@given(shapes(), HISTORY, HISTORY, SERVICES, st.booleans())
def test_after_many_restores_the_rows_are_those_of_the_commit(
    shape: Shape, before: Steps, after: Steps, services: list[str], with_savepoint: bool
) -> None:
    check_history(shape, before, after, services, with_savepoint)


# ---- processes that die ------------------------------------------------------------------------


def check_crashes(version: int, type_: str, effect: bool, stride: int) -> None:
    start, savepoint = kept(version, type_)
    go_on(start, type_, "upsert", "compact", "append")
    count, resumed = 0, 0
    for index, world in crashes(lambda: copied(start), run_restore, effect=effect, stride=stride):
        count += 1
        begun = any("restore" in line for line in pending(world))
        if begun:
            with pytest.raises(TableError, match="is being restored"):
                world.write(upsert(rows("z1")))
            before = pending(world)
            roll_back_failed(access_of(world))
            assert pending(world) == before, index
        done = restored(world)
        resumed += done.resumed
        assert done.to == savepoint and world.rows() == BEFORE, index
        world.write(upsert(rows("z1")))
        assert world.rows() == BEFORE | {"z1": 1}, index
        assert orphans(world) == [], index
        table = Table(world.storage, clock=world.clock)
        assert len(table.timeline.filter_actions("restore")) == 1, index
        if done.restore is not None:
            last = table.timeline.filter_actions("restore").instants[-1]
            record = load_record(world.storage, table.properties, last)
            assert isinstance(record, RestoreMetadata)
            assert set(record.hoodie_restore_metadata) == set(record.instants_to_rollback), index
    assert count > 80 / stride and resumed > 20 / stride


@pytest.mark.parametrize(
    ("version", "type_", "effect"), [(6, "mor", True), (8, "mor", False), (8, "cow", True)]
)
def test_a_restore_that_died_anywhere_is_gone_on_with(
    version: int, type_: str, effect: bool
) -> None:
    check_crashes(version, type_, effect, stride=47)


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("effect", [False, True])
def test_a_restore_survives_a_crash_at_every_operation(
    version: int, type_: str, effect: bool
) -> None:
    check_crashes(version, type_, effect, stride=1)


@BOTH
def test_while_a_restore_is_pending_nothing_else_begins(version: int, type_: str) -> None:
    start, savepoint = kept(version, type_)
    go_on(start, type_, "upsert", "append")
    for _, world in crashes(lambda: copied(start), run_restore, effect=True):
        if any("restore INFLIGHT" in line for line in pending(world)):
            break
    restore = pending(world)[-1].split()[0]
    with pytest.raises(TableError, match="nothing may be written"):
        begin(access_of(world), action="commit")
    with pytest.raises(TableError, match="nothing may be kept"):
        create_savepoint(access_of(world), newest(world))
    with pytest.raises(TableError, match="nothing may be let go"):
        delete_savepoint(access_of(world), savepoint)
    if type_ == "mor":
        with pytest.raises(TableError, match="nothing may be scheduled"):
            Compaction(access_of(world), ALWAYS).schedule()
    assert not run_archive(access_of(world), ArchiveOptions()).archived
    told = unchanged(world, lambda: run_restore(access_of(world), "1"), ConflictError)
    assert f"being restored to {savepoint}" in told
    assert plan_restore(access_of(world)).restore == restore
    world.processes.dead.clear()
    told = unchanged(world, lambda: restored(world), PlanBusyError)
    assert "process 66 on here" in told
    world.processes.dead.add(DYING)
    assert restored(world, savepoint).resumed
    assert world.rows() == BEFORE


# ---- what is refused ---------------------------------------------------------------------------


def test_a_restore_is_refused_while_somebody_works_on_the_table() -> None:
    world, _ = kept(8, "cow")
    go_on(world, "cow", "append")
    other = begin(access_of(world, own=DYING), action="commit")
    told = unchanged(world, lambda: restored(world), ConflictError)
    assert other.instant in told and "process 66 on here" in told
    world.processes.dead.add(DYING)
    assert other.instant in restored(world).undone
    assert world.rows() == BEFORE and orphans(world) == []


def test_later_savepoints_must_be_deleted_first() -> None:
    world, first = kept(8, "cow")
    go_on(world, "cow", "append")
    later = create_savepoint(access_of(world)).instant
    told = unchanged(world, lambda: restored(world, first), ServiceError)
    assert later in told
    delete_savepoint(access_of(world), later)
    restored(world, first)
    assert world.rows() == BEFORE


@pytest.mark.parametrize("executed", [True, False])
def test_a_commit_without_a_savepoint_must_be_whole(executed: bool) -> None:
    world = World.new(8, "cow")
    to = newest(world)
    go_on(world, "cow", "upsert", "overwrite")
    if executed:
        run_clean(access_of(world), CLEAN)
    else:
        schedule_clean(access_of(world), CLEAN)
    told = unchanged(world, lambda: restored(world, to), ServiceError)
    assert "files of that state" in told


def test_a_savepoint_that_lost_a_file_is_told() -> None:
    world, savepoint = kept(8, "cow")
    kept_files = Table(world.storage, clock=world.clock).snapshot(f"savepoint:{savepoint}")
    listing = kept_files.opened.listing
    [lost, *_] = kept_files.view(listing.files(listing.partitions())).latest_base_files()
    go_on(world, "cow", "append")
    world.storage.delete(lost.path)
    told = unchanged(world, lambda: restored(world), ServiceError)
    assert lost.path in told


@pytest.mark.parametrize("to", [None, "20200101000000000"])
def test_a_commit_that_is_not_there_is_told(to: str | None) -> None:
    world = World.new(8, "cow")
    unchanged(world, lambda: restored(world, to), InstantNotFoundError)


def test_commits_that_are_archived_beyond_the_savepoint_cannot_be_taken_back() -> None:
    world, _ = kept(8, "cow")
    options = ArchiveOptions(
        keep_min_commits=2, keep_max_commits=3, clean=CLEAN, beyond_savepoint=True
    )
    for n in range(5):
        world.clock.advance(1)
        world.write(upsert(rows("b1", n=n)))
        run_clean(access_of(world), CLEAN)
        run_archive(access_of(world), options)
    told = unchanged(world, lambda: restored(world), ServiceError)
    assert "archived" in told


# ---- which instants, pure ----------------------------------------------------------------------


def done(time: str, completed: str, action: str = "deltacommit") -> Instant:
    return Instant(time, action, State.COMPLETED, completed, f"{time}_{completed}.{action}")


def waiting(time: str, action: str) -> Instant:
    return Instant(time, action, State.REQUESTED, None, f"{time}.{action}.requested")


def undone(*instants: Instant, to: str, **more: Any) -> list[str]:
    chosen = {"by_completion": True, "merge_on_read": True, **more}
    draft = draft_restore(Timeline.of(instants), to, **chosen)
    assert [i for i in draft.left if i in draft.undone] == []
    return [i.requested_time for i in draft.undone]


def test_what_completed_after_the_savepoint_was_made_goes_though_requested_before() -> None:
    late = done("02", "09")
    commit, later = done("03", "04"), done("06", "07")
    assert undone(late, commit, later, to="03") == ["02", "06"]
    early = done("05", "05", "savepoint")
    savepoint = replace(early, requested_time="03")
    assert undone(late, commit, later, savepoint, to="03") == ["02", "06"]
    made_later = replace(savepoint, completion_time="10")
    assert undone(late, commit, later, made_later, to="03") == ["06"]
    assert undone(late, commit, later, to="03", by_completion=False) == ["06"]


def test_what_goes_may_not_be_kept_by_a_savepoint_though_requested_before() -> None:
    late, commit = done("02", "09"), done("03", "04")
    kept_commit, kept_late = (
        replace(done("05", made, "savepoint"), requested_time=time)
        for made, time in (("05", "03"), ("10", "02"))
    )
    timeline = Timeline.of([late, commit, kept_commit, kept_late])
    draft = draft_restore(timeline, "03", by_completion=True, merge_on_read=True)
    with pytest.raises(ServiceError, match="the savepoints of 02 keep later commits"):
        refuse_unsafe(timeline, draft, RestoreFacts())


def test_compactions_of_merge_on_read_tables_go_by_their_requests() -> None:
    compaction, commit = done("02", "09", "commit"), done("03", "04")
    assert undone(compaction, commit, to="03") == []
    assert undone(compaction, commit, to="03", merge_on_read=False) == ["02"]


def test_pending_clusterings_go_first_then_the_newest_in_the_order_of_effect() -> None:
    instants = (
        done("01", "02"),
        done("03", "08"),
        done("04", "05"),
        waiting("06", "clustering"),
        waiting("07", "compaction"),
    )
    clusterings = frozenset({"06"})
    assert undone(*instants, to="01", clusterings=clusterings) == ["06", "07", "03", "04"]
    by_request = undone(*instants, to="01", clusterings=clusterings, by_completion=False)
    assert by_request == ["06", "07", "04", "03"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (RestoreFacts(mixed=("01", "03")), "logs behind the compaction 03"),
        (RestoreFacts(late_rollbacks=("03",)), "while rolled back"),
        (RestoreFacts(archived_later=("02",)), "02 is later and archived"),
        (RestoreFacts(taken=Taken(waiting("04", "clean"), "p", "f")), "is going to delete"),
    ],
)
def test_every_reason_against_a_restore_is_told(facts: RestoreFacts, words: str) -> None:
    whole = Timeline.of([done("01", "01"), done("03", "03")])
    draft = draft_restore(whole, "01", by_completion=True, merge_on_read=True)
    with pytest.raises(ServiceError, match=words):
        refuse_unsafe(whole, draft, facts)


def test_a_timeline_that_only_savepoints_keep_starts_at_the_newest_of_them() -> None:
    whole = Timeline.of(
        [done("03", "03"), replace(done("03", "04", "savepoint"), requested_time="03")]
    )
    assert whole.starts_at == "03" and whole.contains_completed_or_archived("01")
    assert not whole.contains_completed_or_archived("05")
    assert timeline(World.new(8, "cow")) != []
