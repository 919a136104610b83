"""Rolling back by name: the table is what it was before, or the reason is told."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from lakewright.errors import (
    ConflictError,
    InstantNotFoundError,
    PlanBusyError,
    PlanStateError,
    ServiceError,
    WriteConflictError,
)
from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import Instant, State
from lakewright.format.records import CommitMetadata, load_rollback_metadata
from lakewright.format.timeline import Timeline
from lakewright.services.archive import ArchiveOptions, run_archive
from lakewright.services.clean import CleanOptions, run_clean, schedule_clean
from lakewright.services.clean_options import CleanPolicy
from lakewright.services.compaction import Compaction
from lakewright.services.rollback import (
    RolledBack,
    plan_rollback_of,
    roll_back_instant,
)
from lakewright.services.rollback_checks import Becomes, RollbackFacts, decide
from lakewright.services.savepoint import create_savepoint, delete_savepoint
from lakewright.storage.faults import FaultPlan, SimulatedCrash, crash
from lakewright.storage.memory import MemoryStorage
from lakewright.table import Table
from lakewright.txn.transaction import Prepared, begin
from tests.engine.test_crash_everywhere import (
    BEFORE,
    DYING,
    STEPS,
    Rows,
    Step,
    World,
    orphans,
    rows,
    upsert,
)
from tests.services.undoing import (
    ALWAYS,
    SURVIVOR,
    access_of,
    compact,
    copied,
    crashes,
    newest,
    pending,
    timeline,
    unchanged,
)
from tests.txn.tables import new_access, new_storage, prepared, write, write_file

KINDS = pytest.mark.parametrize(
    ("version", "type_"), [(6, "cow"), (6, "mor"), (8, "cow"), (8, "mor")]
)
BOTH = pytest.mark.parametrize(("version", "type_"), [(6, "mor"), (8, "cow")])
MOR = pytest.mark.parametrize("version", [6, 8])
FOLLOWING = upsert(rows("z1"))
NEWEST_ONLY = CleanOptions(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions_retained=1)


def written(version: int, type_: str, step: Step) -> World:
    """A table with one more commit."""
    world = World.new(version, type_, step.buckets)
    world.clock.advance(1)
    world.write(step.write)
    world.clock.advance(1)
    return world


def undo(world: World, instant: str | None = None, *, unschedule: bool = False) -> RolledBack:
    return roll_back_instant(access_of(world), instant or newest(world), unschedule=unschedule)


# ---- completed writes --------------------------------------------------------------------------


def check_newest(name: str, version: int, type_: str) -> None:
    step = STEPS[name]
    world = written(version, type_, step)
    instant = newest(world)
    assert world.rows() == step.after
    draft = plan_rollback_of(access_of(world), instant)
    done = undo(world)
    assert world.rows() == BEFORE
    assert (draft.becomes, done.becomes) == (Becomes.NOTHING, Becomes.NOTHING)
    assert done.files_deleted == len(draft.files)
    assert done.command_blocks == draft.command_blocks
    assert not any(instant in line for line in timeline(world))
    assert orphans(world) == []
    world.write(step.write)
    assert world.rows() == step.after
    assert orphans(world) == []


@pytest.mark.parametrize(
    ("name", "version", "type_"),
    [
        ("upsert", 6, "mor"),
        ("delete_buckets", 6, "mor"),
        ("upsert", 8, "mor"),
        ("delete_partition", 6, "cow"),
        ("overwrite", 8, "mor"),
        ("delete", 8, "cow"),
    ],
)
def test_the_newest_commit_is_taken_back_and_can_be_written_again(
    name: str, version: int, type_: str
) -> None:
    check_newest(name, version, type_)


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("name", STEPS)
def test_the_newest_commit_of_every_verb_is_taken_back(name: str, version: int, type_: str) -> None:
    check_newest(name, version, type_)


@BOTH
def test_commits_are_taken_back_one_after_the_other_down_to_an_empty_table(
    version: int, type_: str
) -> None:
    world = World.new(version, type_)
    world.write(upsert(rows("a1", "c1", n=9)))
    seen: list[Rows] = []
    for _ in range(3):
        seen.append(world.rows())
        world.clock.advance(1)
        undo(world)
    assert seen == [
        {"a1": 9, "a2": 1, "b1": 1, "c1": 9},
        BEFORE,
        {"a1": 1, "a2": 1, "b1": 1},
    ]
    assert world.rows() == {} and orphans(world) == []
    world.write(FOLLOWING)
    assert world.rows() == {"z1": 1}


def test_the_completed_rollback_says_what_was_deleted() -> None:
    world = written(8, "cow", STEPS["append"])
    instant = newest(world)
    done = undo(world)
    table = Table(world.storage, clock=world.clock)
    found = table.timeline.get(done.rollback or "", "rollback")
    assert found is not None and found.completed
    metadata = load_rollback_metadata(world.storage, table.properties, found)
    assert list(metadata.commits_rollback) == [instant]
    assert metadata.total_files_deleted == done.files_deleted == 1


def test_a_plan_changes_nothing() -> None:
    world = written(6, "mor", STEPS["upsert"])
    before = world.bucket.objects()
    draft = plan_rollback_of(access_of(world), newest(world))
    assert world.bucket.objects() == before
    assert draft.command_blocks == 1 and draft.files and draft.state == "COMPLETED"
    assert draft.to_dict()["becomes"] == "nothing"


def check_crashes(name: str, version: int, type_: str, effect: bool, stride: int) -> None:
    """Readers see the state before or after; whoever comes next finishes, or can do it again."""
    step = STEPS[name]
    start = written(version, type_, step)
    instant = newest(start)
    seen: list[Rows] = []
    count = 0
    worlds = crashes(
        lambda: copied(start),
        lambda access: roll_back_instant(access, instant),
        effect=effect,
        stride=stride,
    )
    for index, world in worlds:
        count += 1
        found = world.rows()
        assert found in (step.after, BEFORE), index
        seen.append(found)
        if index % 2 or found == step.after:
            if any(instant in line for line in timeline(world)) or pending(world):
                undo(world, instant)
            assert world.rows() == BEFORE, index
        world.write(upsert(rows("z1")) if not step.buckets else step.write)
        if not step.buckets:
            assert world.rows() == BEFORE | {"z1": 1}, index
        assert orphans(world) == [], index
        assert not any(instant in line for line in timeline(world)), index
    assert count > 30 / stride and step.after in seen and BEFORE in seen


@pytest.mark.parametrize(
    ("name", "version", "type_", "effect"),
    [("upsert", 6, "mor", True), ("upsert", 8, "mor", False), ("overwrite", 8, "cow", True)],
)
def test_a_crash_at_any_operation_leaves_the_state_before_or_after(
    name: str, version: int, type_: str, effect: bool
) -> None:
    check_crashes(name, version, type_, effect, stride=17)


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("effect", [False, True])
def test_every_rollback_survives_a_crash_at_every_operation(
    name: str, version: int, type_: str, effect: bool
) -> None:
    check_crashes(name, version, type_, effect, stride=1)


# ---- what is refused ---------------------------------------------------------------------------


@BOTH
def test_a_commit_on_which_others_are_built_is_refused_until_they_are_gone(
    version: int, type_: str
) -> None:
    world = World.new(version, type_)
    first = newest(world)
    world.clock.advance(1)
    world.write(FOLLOWING)
    later = newest(world)
    assert later in unchanged(world, lambda: undo(world, first), ServiceError)
    undo(world, later)
    undo(world, first)
    assert world.rows() == {"a1": 1, "a2": 1, "b1": 1}


def test_a_savepointed_commit_is_refused_until_its_savepoint_is_deleted() -> None:
    world = World.new(8, "cow")
    instant = newest(world)
    create_savepoint(access_of(world), instant)
    told = unchanged(world, lambda: undo(world), ServiceError)
    assert "kept by a savepoint" in told
    delete_savepoint(access_of(world), instant)
    undo(world)


@BOTH
def test_a_commit_whose_former_state_was_cleaned_is_refused(version: int, type_: str) -> None:
    step = STEPS["overwrite"]
    world = written(version, type_, step)
    assert run_clean(access_of(world), NEWEST_ONLY).files_deleted
    told = unchanged(world, lambda: undo(world), ServiceError)
    assert "deleted files of the state before it" in told
    assert world.rows() == step.after


def test_a_clean_that_is_only_planned_protects_nothing_but_is_respected() -> None:
    world = written(8, "cow", STEPS["overwrite"])
    assert schedule_clean(access_of(world), NEWEST_ONLY) is not None
    told = unchanged(world, lambda: undo(world), ServiceError)
    assert "is going to delete files of the state before it" in told


def test_a_clean_that_took_nothing_of_the_former_state_is_no_obstacle() -> None:
    world = World.new(8, "cow")
    world.write(upsert(rows("a1", n=3)))
    world.write(upsert(rows("b1", n=3)))
    world.clock.advance(1)
    assert run_clean(access_of(world), CleanOptions(commits_retained=2)).files_deleted
    undo(world)
    assert world.rows() == {"a1": 3, "a2": 1, "b1": 1}


def test_the_last_commit_on_the_timeline_stays_if_older_ones_are_archived() -> None:
    world = World.new(8, "cow")
    options = ArchiveOptions(
        keep_min_commits=2, keep_max_commits=3, clean=CleanOptions(commits_retained=1)
    )
    for n in range(4):
        world.write(upsert(rows("b1", n=n)))
        run_clean(access_of(world), CleanOptions(commits_retained=1))
        run_archive(access_of(world), options)
    world.clock.advance(1)
    before = world.rows()
    for _ in range(10):
        try:
            undo(world)
        except ServiceError as error:
            told = str(error)
            break
    assert "archived" in told or "deleted files" in told
    assert world.rows().keys() == before.keys()


@BOTH
def test_a_write_that_is_alive_is_refused_and_its_process_named(version: int, type_: str) -> None:
    world = World.new(version, type_)
    world.clock.advance(1)
    action = "commit" if type_ == "cow" else "deltacommit"
    other = begin(access_of(world, own=DYING), action=action)
    told = unchanged(world, lambda: undo(world, other.instant), ConflictError)
    assert "process 66 on here" in told
    told = unchanged(world, lambda: undo(world), ConflictError)
    assert other.instant in told and "process 66 on here" in told
    world.processes.dead.add(DYING)
    told = unchanged(world, lambda: undo(world), ConflictError)
    assert f"Roll back {other.instant} first" in told
    assert undo(world, other.instant).becomes is Becomes.NOTHING
    undo(world)
    assert pending(world) == []


@pytest.mark.parametrize("action", ["clean", "savepoint", "rollback"])
def test_only_writes_and_plans_are_rolled_back(action: str) -> None:
    world = World.new(8, "cow")
    world.write(upsert(rows("a1", n=3)))
    world.clock.advance(1)
    if action == "savepoint":
        world.storage.replace(".hoodie/timeline/20200101000000000.savepoint.inflight", b"")
    elif action == "clean":
        run_clean(access_of(world), CleanOptions(commits_retained=1))
    else:
        undo(world)
    table = Table(world.storage, clock=world.clock)
    found = table.timeline.filter_actions(action).last()
    assert found is not None
    told = unchanged(world, lambda: undo(world, found.requested_time), ServiceError)
    assert f"is of the action {action}" in told


def test_what_is_not_there_is_told_with_its_rollback() -> None:
    world = World.new(8, "cow")
    instant = newest(world)
    done = undo(world)
    told = unchanged(world, lambda: undo(world, instant), InstantNotFoundError)
    assert str(done.rollback) in told
    unchanged(world, lambda: undo(world, "20200101000000000"), InstantNotFoundError)


def done(time: str, completed: str, action: str = "deltacommit") -> Instant:
    return Instant(time, action, State.COMPLETED, completed, f"{time}_{completed}.{action}")


def facts(*instants: Instant, **more: Any) -> RollbackFacts:
    """What is known about the first of some instants."""
    chosen = {"by_completion": True, "merge_on_read": True, **more}
    return RollbackFacts(timeline=Timeline.of(instants), target=instants[0], **chosen)


TARGET = done("03", "05")
GROUP = FileGroupId("p", "f")


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (facts(TARGET, done("02", "06")), "later commits .02."),
        (facts(TARGET, done("04", "04")), "later commits .04."),
        (facts(TARGET, done("03", "06")), "completed twice"),
        (facts(TARGET, rolling_back=True), "completed while it was rolled back"),
        (facts(TARGET, rests_on_archive=True), "older ones are archived"),
        (facts(TARGET, groups=frozenset({GROUP}), plans={"04": frozenset({GROUP})}), "plan 04"),
        (facts(TARGET, unschedule=True), "has no plan to take away"),
        (facts(done("03", "05", "restore")), "of the action restore"),
        (facts(done("03", "05", "indexing")), "of the action indexing"),
    ],
)
def test_every_reason_against_a_rollback_is_told(known: RollbackFacts, words: str) -> None:
    with pytest.raises(ServiceError, match=words):
        decide(known)


def test_what_is_not_built_on_a_commit_does_not_keep_it() -> None:
    assert decide(facts(TARGET, done("02", "06", "commit"))) is Becomes.NOTHING
    assert decide(facts(TARGET, done("02", "06"), by_completion=False)) is Becomes.NOTHING
    earlier = {"02": frozenset({GROUP}), "04": frozenset({FileGroupId("p", "g")})}
    assert decide(facts(TARGET, groups=frozenset({GROUP}), plans=earlier)) is Becomes.NOTHING


# ---- writes of dead processes ------------------------------------------------------------------


@BOTH
def test_a_dead_write_is_rolled_back_by_name_whatever_it_left(version: int, type_: str) -> None:
    step = STEPS["upsert"]
    for index in range(8, 60, 11):
        world = World.new(version, type_)
        dying = MemoryStorage(world.bucket, faults=FaultPlan({index: crash(effect=True)}))
        with pytest.raises(SimulatedCrash):
            world.write(step.write, dying, own=DYING)
        world.processes.dead.add(DYING)
        found = Table(world.storage, clock=world.clock).timeline.pending().last()
        if found is None:
            continue
        undo(world, found.requested_time)
        assert world.rows() == BEFORE and pending(world) == [], index


# ---- plans -------------------------------------------------------------------------------------


def begun_plan(version: int) -> tuple[World, str]:
    """A compaction whose process died in the middle."""
    world = World.new(version, "mor")
    instant = Compaction(access_of(world), ALWAYS).schedule()
    assert instant is not None
    for index in range(200):
        trial = copied(world)
        dying = MemoryStorage(trial.bucket, faults=FaultPlan({index: crash(effect=True)}))
        try:
            Compaction(access_of(trial, dying, DYING), ALWAYS).execute(instant)
        except SimulatedCrash:
            trial.processes.dead.add(DYING)
        if any(path.endswith(f"_{instant}.parquet") for path in trial.bucket.objects()):
            return trial, instant
    raise AssertionError


@cache
def _begun(version: int) -> tuple[World, str]:
    return begun_plan(version)


@MOR
def test_an_attempt_at_a_plan_is_undone_and_the_plan_stays(version: int) -> None:
    start, instant = _begun(version)
    world = copied(start)
    world.processes.dead.add(DYING)
    done = undo(world, instant)
    assert done.becomes is Becomes.PLAN and done.files_deleted == 1
    assert [line for line in timeline(world) if instant in line] == [
        f"{instant} compaction REQUESTED"
    ]
    assert world.rows() == BEFORE
    told = unchanged(world, lambda: undo(world, instant), PlanStateError)
    assert "was not begun" in told
    assert compact(world) == instant
    assert world.rows() == BEFORE and orphans(world) == []


@MOR
@pytest.mark.parametrize("begun", [False, True])
def test_a_plan_is_taken_away_when_that_is_asked_for(version: int, begun: bool) -> None:
    start, instant = _begun(version)
    world = copied(start)
    world.processes.dead.add(DYING)
    if not begun:
        undo(world, instant)
    draft = plan_rollback_of(access_of(world), instant, unschedule=True)
    done = undo(world, instant, unschedule=True)
    assert draft.becomes is done.becomes is Becomes.NOTHING
    assert (done.rollback is not None) == begun
    assert pending(world) == [] and world.rows() == BEFORE
    world.clock.advance(1)
    assert compact(world) > instant
    assert world.rows() == BEFORE and orphans(world) == []


@MOR
def test_logs_behind_a_plan_survive_its_end_or_keep_it(version: int) -> None:
    world = World.new(version, "mor")
    instant = Compaction(access_of(world), ALWAYS).schedule()
    assert instant is not None
    world.clock.advance(1)
    world.write(upsert(rows("a1", n=5)))
    after = BEFORE | {"a1": 5}
    if version == 6:
        told = unchanged(world, lambda: undo(world, instant, unschedule=True), PlanStateError)
        assert "log files lie behind" in told
    else:
        undo(world, instant, unschedule=True)
        assert pending(world) == []
    assert world.rows() == after
    compact(world)
    assert world.rows() == after and orphans(world) == []


@MOR
def test_a_plan_is_not_taken_away_while_logs_may_be_on_their_way(version: int) -> None:
    world = World.new(version, "mor")
    instant = Compaction(access_of(world), ALWAYS).schedule()
    assert instant is not None
    world.clock.advance(1)
    begin(access_of(world, own=DYING), action="deltacommit")
    if version == 6:
        told = unchanged(world, lambda: undo(world, instant, unschedule=True), ConflictError)
        assert "may put logs behind" in told
    else:
        undo(world, instant, unschedule=True)


@MOR
@pytest.mark.parametrize("unschedule", [False, True])
def test_a_completed_compaction_becomes_a_plan_again_or_goes(
    version: int, unschedule: bool
) -> None:
    world = World.new(version, "mor")
    instant = compact(world)
    done = undo(world, instant, unschedule=unschedule)
    assert done.files_deleted == 1 and world.rows() == BEFORE
    left = [] if unschedule else [f"{instant} compaction REQUESTED"]
    assert pending(world) == left
    world.write(upsert(rows("a1", n=5)))
    assert compact(world) == instant or unschedule
    assert world.rows() == BEFORE | {"a1": 5} and orphans(world) == []


@MOR
def test_a_commit_whose_files_a_plan_takes_is_refused(version: int) -> None:
    world = World.new(version, "mor")
    write = newest(world)
    plan = Compaction(access_of(world), ALWAYS).schedule()
    assert plan is not None
    told = unchanged(world, lambda: undo(world, write), ServiceError)
    assert f"the plan {plan} takes" in told
    undo(world, plan, unschedule=True)
    undo(world, write)
    assert world.rows() == {"a1": 1, "a2": 1, "b1": 1}


def check_plan_crashes(version: int, effect: bool, stride: int) -> None:
    """Whatever a dying process left of a compaction that it took back, rows stay as they are."""
    start = World.new(version, "mor")
    instant = compact(start)
    count = 0
    for index, world in crashes(
        lambda: copied(start),
        lambda access: roll_back_instant(access, instant, unschedule=True),
        effect=effect,
        stride=stride,
    ):
        count += 1
        assert world.rows() == BEFORE, index
        if index % 2:
            world.write(upsert(rows("a1", n=5)))
            assert world.rows() == BEFORE | {"a1": 5}, index
        else:
            if any(instant in line for line in timeline(world)):
                undo(world, instant, unschedule=True)
            assert not any(f"{instant} comm" in line for line in timeline(world)), index
        wanted = world.rows()
        world.clock.advance(1)
        Compaction(access_of(world), ALWAYS).run()
        assert world.rows() == wanted and pending(world) == [], index
        assert orphans(world) == [], index
    assert count > 30 / stride


@pytest.mark.parametrize(("version", "effect"), [(6, False), (8, True)])
def test_a_crash_while_a_compaction_is_taken_back_changes_no_row(
    version: int, effect: bool
) -> None:
    check_plan_crashes(version, effect, stride=37)


@pytest.mark.slow
@MOR
@pytest.mark.parametrize("effect", [False, True])
def test_every_crash_while_a_compaction_is_taken_back_changes_no_row(
    version: int, effect: bool
) -> None:
    check_plan_crashes(version, effect, stride=1)


# ---- writes that were planned before -----------------------------------------------------------


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("other_write", [False, True])
def test_a_write_that_is_based_on_what_was_taken_back_is_refused(
    version: int, other_write: bool
) -> None:
    access = new_access(new_storage(version))
    instant = write(access, "f1")
    late = prepared(access)
    roll_back_instant(access, instant)
    if other_write:
        write(access, "f2")
    transaction = begin(access, action="commit")
    transaction.start()
    write_file(access.storage, transaction, "a", "f1")
    with pytest.raises(WriteConflictError, match="taken back"):
        transaction.commit(late)
    transaction.abort()
    assert transaction.instant not in {
        i.requested_time for i in access.timeline(access.properties())
    }


def test_a_write_that_is_based_on_a_plan_that_was_taken_away_is_refused() -> None:
    world = World.new(6, "mor")
    access = access_of(world)
    plan = Compaction(access, ALWAYS).schedule()
    assert plan is not None
    late = Prepared(CommitMetadata(), access.timeline(access.properties()))
    undo(world, plan, unschedule=True)
    world.clock.advance(1)
    transaction = begin(access, action="deltacommit")
    transaction.start()
    with pytest.raises(WriteConflictError, match=plan):
        transaction.commit(late)


def test_two_processes_that_roll_back_the_same_commit_do_it_once() -> None:
    world = written(8, "cow", STEPS["append"])
    instant = newest(world)
    worlds = crashes(
        lambda: copied(world),
        lambda access: roll_back_instant(access, instant),
        effect=False,
        stride=19,
    )
    for index, half in worlds:
        half.processes.dead.clear()  # the first one only stands still
        with suppress(PlanBusyError, ConflictError, InstantNotFoundError):
            undo(half, instant)
        half.clock.advance(3600)
        half.processes.dead.add(DYING)
        half.write(FOLLOWING)
        assert half.rows() in (BEFORE | {"z1": 1}, STEPS["append"].after | {"z1": 1}), index


def test_a_rollback_that_is_gone_on_with_is_the_one_on_the_timeline() -> None:
    start = written(8, "mor", STEPS["upsert"])
    instant = newest(start)
    for _, world in crashes(
        lambda: copied(start), lambda access: roll_back_instant(access, instant), effect=True
    ):
        found = Table(world.storage, clock=world.clock).timeline.filter_actions("rollback")
        if found.pending().first() is None:
            continue
        known = found.instants[0]
        assert known.state is not State.COMPLETED
        draft = plan_rollback_of(access_of(world, own=SURVIVOR), instant)
        assert draft.rollback == known.requested_time
        assert undo(world, instant).rollback == known.requested_time
        return
    raise AssertionError
