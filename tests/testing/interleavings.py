"""Executors, cleaners and others on one plan, in every order that matters.

Each story is one row of the table of interleavings that safe table services have to stand (RFC-79):
who takes the lock first, who dies or stands still where, and what must come out. They are played
with plans that are kept, plans that are removable, or both.
"""

from __future__ import annotations

from lakewright.errors import (
    ConflictError,
    FencedError,
    LockHeldError,
    LockLostError,
    PlanBusyError,
    PlanStateError,
    WriteConflictError,
)
from lakewright.format.instant import State
from lakewright.format.records import CommitMetadata, WriteStat
from lakewright.services.archive import run_archive
from lakewright.services.archive_options import ArchiveOptions
from lakewright.services.clean import run_clean
from lakewright.services.clean_options import CleanOptions, CleanPolicy
from lakewright.services.restore import run_restore
from lakewright.services.rollback import roll_back_instant
from lakewright.services.rollback_checks import Becomes
from lakewright.testing.sim.model import Effect
from lakewright.testing.sim.script import (
    DELAY_S,
    LEASE_S,
    LOCK,
    TOLERANCE_S,
    UNLOCK,
    Point,
    Process,
    after,
    before,
)
from lakewright.testing.sim.story_writes import publish
from lakewright.txn.access import Access
from lakewright.txn.execution import executing
from lakewright.txn.markers import Marker, MarkerType
from lakewright.txn.plan_kinds import CLUSTERING, COMPACTION
from lakewright.txn.times import next_time
from tests.testing.scene import ALL, KEPT, NEW, ONE, REMOVABLE, TWO, Cases, Scene

CREATE = "create_if_absent"
CLAIM = "*execution of*"
COMMIT = "*commit of*"
SCHEDULING = "*scheduling of rollbacks*"
INFLIGHT = "*.inflight"
PLANNED = "*.rollback.requested"
CLUSTERINGS = tuple(kind for kind in ALL if kind.kind is CLUSTERING)
PAST = TOLERANCE_S + 5.0
"""After so long a silent process is dead to others."""


INTERLEAVINGS = Cases()
row = INTERLEAVINGS.told


# ---- parts of stories --------------------------------------------------------------------------


def busy_until_it_is_dead_then_runs(scene: Scene) -> None:
    """Somebody else is refused while the dead one may be alive, and runs afterwards."""
    scene.executor("early").fails(PlanBusyError)
    scene.wait(PAST)
    scene.executor("next").finish()
    assert scene.completed_by(scene.plan) == ["next"]


def begun_and_dead(scene: Scene, name: str = "dead") -> None:
    """An executor that died after it became inflight, long ago."""
    scene.executor(name).to(after("create_from")).crash()
    scene.wait(PAST)
    assert scene.plan_state is State.INFLIGHT


def gone(scene: Scene) -> None:
    """Neither the plan nor a file of it is left."""
    assert scene.plan_state is None
    if scene.version >= 8:
        assert scene.files_of(scene.plan) == []


def scheduled(scene: Scene, name: str) -> Process:
    """A cleaner that has scheduled its rollbacks and not begun to execute them."""
    return scene.cleaner(name).to(after(UNLOCK, SCHEDULING))


# ---- two executors -----------------------------------------------------------------------------


@row(1, "the second executor is refused while the first lives")
def _(scene: Scene) -> None:
    first = scene.executor("first").to(before(LOCK, COMMIT))
    there = scene.objects()
    scene.wait(3 * TOLERANCE_S)
    scene.executor("second").fails(PlanBusyError)
    assert scene.objects() == there
    first.finish()
    assert scene.completed_by(scene.plan) == ["first"]


@row(2, "the second executor comes after the first has finished")
def _(scene: Scene) -> None:
    scene.executor("first").finish()
    scene.executor("second").fails(PlanStateError, match="completed")
    assert scene.completed_by(scene.plan) == ["first"]


@row(3, "an executor dies with its heartbeat, holding the lock")
def _(scene: Scene) -> None:
    scene.executor("dead").to(after("replace", "*/.heartbeat/*")).crash()
    scene.executor("impatient", lock_wait_s=1.0).fails(LockHeldError)
    scene.wait(LEASE_S)
    busy_until_it_is_dead_then_runs(scene)


@row(4, "an executor dies after it gave the lock back, before it is inflight")
def _(scene: Scene) -> None:
    scene.executor("dead").to(after(UNLOCK, CLAIM)).crash()
    busy_until_it_is_dead_then_runs(scene)
    assert scene.rollbacks == []


@row(5, "an executor of a kept plan dies inflight", KEPT)
def _(scene: Scene) -> None:
    scene.executor("dead").to(after("create_from")).crash()
    assert scene.files_of(scene.plan)
    busy_until_it_is_dead_then_runs(scene)
    assert [(s, t) for _, s, t in scene.rollbacks] == [(State.COMPLETED, scene.plan)]


@row(5, "on one machine a dead executor is replaced at once, by one", KEPT, one_machine=True)
def _(scene: Scene) -> None:
    scene.executor("dead").to(after("create_from")).crash()
    second = scene.executor("second").to(after(UNLOCK, CLAIM))
    scene.executor("third").fails(PlanBusyError)
    second.finish()
    assert scene.completed_by(scene.plan) == ["second"]


@row(6, "an executor of a removable plan dies inflight", REMOVABLE)
def _(scene: Scene) -> None:
    scene.executor("dead").to(after("create_from")).crash()
    scene.wait(PAST)
    scene.executor("next").fails(PlanStateError, match="was begun")
    assert scene.cleaner("too early").finish() == ()
    scene.wait(DELAY_S)
    assert scene.cleaner("in time").finish() == (scene.plan,)
    gone(scene)


@row(6, "an executor looked at a removable plan before another one began it and died", REMOVABLE)
def _(scene: Scene) -> None:
    late = scene.executor("late", lock_wait_s=10 * PAST).to(before(LOCK, CLAIM))
    begun_and_dead(scene)
    late.fails(PlanStateError, match="was begun")
    scene.wait(DELAY_S)
    scene.cleaner("cleaner").finish()
    gone(scene)


@row(7, "an executor dies after it scheduled the rollback of an earlier attempt", KEPT)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    scene.executor("dead too").to(after(CREATE, PLANNED)).crash()
    [(rollback, _, _)] = scene.rollbacks
    scene.wait(PAST)
    scene.executor("next").finish()
    assert scene.rollbacks == [(rollback, State.COMPLETED, scene.plan)]


@row(8, "a rollback is completed, but the inflight file is there, as Hudi leaves it", KEPT)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    scene.executor("dead too").to(after(CREATE, "*.rollback")).crash()
    action = scene.table.state.timeline.get(scene.plan)
    assert action is not None and action.state is State.REQUESTED
    properties = scene.table.properties
    scene.run("hudi", lambda a: a.files(properties).start(scene.plan, action.action))
    scene.wait(PAST)
    scene.executor("next").finish()
    assert [(s, t) for _, s, t in scene.rollbacks] == [(State.COMPLETED, scene.plan)] * 2


@row(8, "an executor dies between the inflight file and the end of the rollback", KEPT)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    scene.executor("dead too").to(after("delete", INFLIGHT)).crash()
    [(rollback, _, _)] = scene.rollbacks
    scene.wait(PAST)
    scene.executor("next").finish()
    assert scene.rollbacks == [(rollback, State.COMPLETED, scene.plan)]


def zombie(scene: Scene, *, dies: bool) -> None:
    """A task of a dead executor publishes its file when another one is about to commit."""
    left: list[Process] = []

    def first(access: Access) -> None:
        with executing(access, scene.plan, scene.kind.kind) as execution:
            name = f"{ONE.file_id}_0-66-6_{scene.plan}.parquet"
            marker = Marker(ONE.partition, name, MarkerType.MERGE)
            fence = execution.fence
            left.append(scene.process("task", lambda a: publish(a, fence, marker, b"")))
            access.storage.exists("the end of the first")

    executor = scene.process("first", first).to(after("exists", "the end of the first"))
    [task] = left
    task.to(before("create_from"))
    executor.crash()
    scene.wait(PAST)
    second = scene.executor("second").to(before(LOCK, COMMIT))
    if dies:
        task.to(after("create_from")).crash()
    else:
        task.fails(FencedError)
    second.finish()
    assert not any("0-66-6" in path for path in scene.files_of(scene.plan))


@row(9, "a task of a dead executor publishes late", KEPT)
def _(scene: Scene) -> None:
    zombie(scene, dies=False)


@row(9, "a task of a dead executor publishes late, and dies before it can take its file back", KEPT)
def _(scene: Scene) -> None:
    zombie(scene, dies=True)


@row(10, "an executor dies in its commit, before the completed file", KEPT)
def _(scene: Scene) -> None:
    completed = f"*{scene.plan}*{scene.kind.kind.completed}"
    scene.executor("dead").to(before(CREATE, completed)).crash()
    scene.wait(LEASE_S)
    busy_until_it_is_dead_then_runs(scene)


@row(10, "an executor of a removable plan dies in its commit, before the completed file", REMOVABLE)
def _(scene: Scene) -> None:
    completed = f"*{scene.plan}*{scene.kind.kind.completed}"
    scene.executor("dead").to(before(CREATE, completed)).crash()
    scene.wait(DELAY_S)
    scene.executor("next").fails(PlanStateError, match="was begun")
    assert scene.cleaner("cleaner").finish() == (scene.plan,)
    gone(scene)


@row(11, "an executor dies after the completed file, holding the lock")
def _(scene: Scene) -> None:
    completed = f"*{scene.plan}*{scene.kind.kind.completed}"
    scene.executor("dead").to(after(CREATE, completed)).crash()
    scene.wait(LEASE_S)
    scene.executor("next").fails(PlanStateError, match="completed")
    assert scene.beats(scene.plan) == "dead"
    assert scene.cleaner("cleaner").finish() == ()
    assert scene.beats(scene.plan) is None
    assert scene.completed_by(scene.plan) == ["dead"]


@row(
    11,
    "another engine, without these protections, completes a plan whose rollback is pending",
    KEPT[:2],
    rules=("14.24", "14.30"),
)
def _(scene: Scene) -> None:
    scene.executor("slow").to(before(LOCK, COMMIT)).crash()
    scene.wait(PAST)
    scene.executor("dead").to(after(UNLOCK, "*rollback of compaction*")).crash()
    [(rollback, _, _)] = scene.rollbacks
    files = scene.files_of(scene.plan)
    scene.run("hudi", lambda a: _completed_by_another_engine(scene, a, files))
    scene.wait(PAST)
    scene.executor("next").fails(PlanStateError, match="completed")
    assert scene.cleaner("cleaner").finish() == ()
    assert scene.files_of(scene.plan) == files
    properties = scene.table.properties
    scene.run("operator", lambda a: a.files(properties).remove(rollback, "rollback"))


def _completed_by_another_engine(scene: Scene, access: Access, files: list[str]) -> None:
    stats = [
        WriteStat(file_id=group.file_id, path=path, partition_path=group.partition)
        for group, path in zip((ONE, TWO), files, strict=True)
    ]
    metadata = CommitMetadata(
        partition_to_write_stats={stat.partition_path or "": [stat] for stat in stats},
        operation_type=COMPACTION.operation,
    )
    scene.table.model.intend(scene.plan, Effect())
    properties = scene.table.properties
    with access.locked("commit of hudi"):
        at = next_time(access.timeline(properties), properties, access.clock)
        content = metadata.write(properties.version)
        access.files(properties).complete(scene.plan, COMPACTION.completed, content, at)


@row(12, "an executor dies after it gave the lock of its commit back")
def _(scene: Scene) -> None:
    scene.executor("dead").to(after(UNLOCK, COMMIT)).crash()
    scene.executor("next").fails(PlanStateError, match="completed")
    assert scene.cleaner("cleaner").finish() == ()
    assert scene.beats(scene.plan) is None
    assert scene.completed_by(scene.plan) == ["dead"]


# ---- an executor and a cleaner -----------------------------------------------------------------


@row(13, "a cleaner comes while an executor works")
def _(scene: Scene) -> None:
    scene.wait(DELAY_S)
    executor = scene.executor("executor").to(before(LOCK, COMMIT))
    assert scene.cleaner("cleaner").finish() == ()
    assert scene.rollbacks == []
    executor.finish()


@row(13, "a cleaner looked at an old plan before an executor came", REMOVABLE)
def _(scene: Scene) -> None:
    scene.wait(DELAY_S)
    cleaner = scene.cleaner("cleaner").to(before(LOCK, SCHEDULING))
    executor = scene.executor("executor").to(before(LOCK, COMMIT))
    assert cleaner.finish() == ()
    executor.finish()


@row(14, "a cleaner schedules the rollback of an old plan, then an executor comes", REMOVABLE)
def _(scene: Scene) -> None:
    scene.wait(DELAY_S)
    cleaner = scheduled(scene, "cleaner")
    scene.executor("executor").fails(PlanStateError, match="is being rolled back")
    assert cleaner.finish() == (scene.plan,)
    gone(scene)


@row(15, "a cleaner leaves a young plan, then an executor comes", REMOVABLE)
def _(scene: Scene) -> None:
    scene.wait(DELAY_S - 10)
    assert scene.cleaner("cleaner").finish() == ()
    scene.executor("executor").finish()


@row(16, "a cleaner leaves a plan that is kept, however old, then an executor comes", KEPT)
def _(scene: Scene) -> None:
    scene.wait(10 * DELAY_S)
    assert scene.cleaner("cleaner").finish() == ()
    scene.executor("executor").finish()
    assert scene.rollbacks == []


def stalled(scene: Scene) -> Process:
    """An executor of an old plan that stands still after its first file, for long."""
    scene.wait(DELAY_S)
    executor = scene.executor("stalled").to(after("create_from"))
    executor.stall(3 * PAST)
    scene.wait(PAST)
    return executor


@row(17, "an executor wakes up when its rollback is scheduled", REMOVABLE)
def _(scene: Scene) -> None:
    executor = stalled(scene)
    cleaner = scheduled(scene, "cleaner")
    executor.fails(FencedError)
    assert cleaner.finish() == (scene.plan,)
    gone(scene)


@row(18, "an executor wakes up when it is rolled back", REMOVABLE)
def _(scene: Scene) -> None:
    executor = stalled(scene)
    assert scene.cleaner("cleaner").finish() == (scene.plan,)
    executor.fails(FencedError)
    gone(scene)


@row(18, "an executor that is rolled back wakes up while it publishes a file", REMOVABLE)
def _(scene: Scene) -> None:
    scene.wait(DELAY_S)
    executor = scene.executor("stalled").to(before("create_from"))
    executor.stall(3 * PAST)
    scene.wait(PAST)
    assert scene.cleaner("cleaner").finish() == (scene.plan,)
    executor.fails(FencedError)
    gone(scene)


def taken_away(scene: Scene, point: Point) -> Process:
    """An executor stands still as it becomes inflight, and a cleaner takes its plan away."""
    scene.wait(DELAY_S)
    executor = scene.executor("stalled").to(before(LOCK, "*start of*")).to(point)
    executor.stall(2 * PAST)
    scene.wait(PAST)
    assert scene.cleaner("cleaner").finish() == (scene.plan,)
    return executor


@row(18, "an executor opened its fence when its plan is taken away", REMOVABLE)
def _(scene: Scene) -> None:
    taken_away(scene, after("replace", "*/fence/*")).fails(FencedError)
    gone(scene)


@row(18, "an executor becomes inflight when its plan is taken away", REMOVABLE, rules=("14.3a",))
def _(scene: Scene) -> None:
    taken_away(scene, before(CREATE, INFLIGHT)).fails(FencedError)
    gone(scene)


@row(18, "an executor becomes inflight without its plan, and dies", REMOVABLE, rules=("14.3a",))
def _(scene: Scene) -> None:
    taken_away(scene, before(CREATE, INFLIGHT)).to(after(CREATE, INFLIGHT)).crash()
    scene.executor("next").fails(PlanBusyError, PlanStateError)
    scene.wait(PAST)
    scene.executor("later").fails(PlanStateError)
    assert scene.cleaner("again").finish() == (scene.plan,)
    gone(scene)


@row(19, "an executor that stood still commits before the cleaner comes", REMOVABLE)
def _(scene: Scene) -> None:
    scene.wait(DELAY_S)
    executor = scene.executor("executor").to(after("create_from"))
    executor.stall(TOLERANCE_S / 2)
    executor.finish()
    assert scene.cleaner("cleaner").finish() == ()
    assert scene.completed_by(scene.plan) == ["executor"]


@row(20, "an executor wakes up when another one has taken over", KEPT)
def _(scene: Scene) -> None:
    executor = stalled(scene)
    second = scene.executor("second").to(before(LOCK, COMMIT))
    executor.fails(FencedError)
    assert scene.beats(scene.plan) == "second"
    second.finish()
    assert scene.completed_by(scene.plan) == ["second"]


@row(20, "an executor wakes up past the checks of its commit when another one has taken over", KEPT)
def _(scene: Scene) -> None:
    executor = scene.executor("stalled").to(before(LOCK, COMMIT))
    executor.to(after("read", "*.deltacommit"))
    executor.stall(3 * PAST)
    scene.wait(PAST)
    second = scene.executor("second").to(before(LOCK, COMMIT)).to(after("read", "*.deltacommit"))
    executor.fails(FencedError, LockLostError)
    second.finish()
    assert scene.completed_by(scene.plan) == ["second"]


@row(
    20,
    "the last beat of an executor is on its way when another one has taken over",
    KEPT,
    rules=("14.29a",),
)
def _(scene: Scene) -> None:
    executor = scene.executor("stalled").to(before(LOCK, COMMIT))
    beat = executor.also(before("replace", "*/.heartbeat/*"))
    executor.stall(3 * PAST)
    scene.wait(PAST)
    second = scene.executor("second").to(before(LOCK, COMMIT))
    executor.fails(FencedError)
    beat.go()
    scene.wait(0.3)
    scene.executor("third").fails(PlanBusyError)
    scene.wait(5.0)  # until the second one beats again
    second.finish()


@row(20, "an executor wakes up in its commit when another one has taken over", KEPT)
def _(scene: Scene) -> None:
    executor = scene.executor("stalled").to(before(LOCK, COMMIT))
    executor.stall(3 * PAST)
    scene.wait(PAST)
    second = scene.executor("second").to(before(LOCK, COMMIT))
    executor.fails(FencedError)
    assert scene.beats(scene.plan) == "second"
    second.finish()
    assert scene.completed_by(scene.plan) == ["second"]


@row(20, "an executor wakes up right after its claim when another one has taken over", KEPT)
def _(scene: Scene) -> None:
    executor = scene.executor("stalled").to(after(UNLOCK, CLAIM))
    executor.stall(3 * PAST)
    scene.wait(PAST)
    second = scene.executor("second").to(before(LOCK, COMMIT))
    executor.fails(FencedError)
    assert scene.rollbacks == []
    second.finish()
    assert scene.completed_by(scene.plan) == ["second"]


@row(20, "an executor wakes up in its rollback when another one has finished it", KEPT)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    woken_in_rollback(scene, after(UNLOCK, "*rollback 2*"))


@row(20, "an executor wakes up late in its rollback when another one has finished it", KEPT)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    woken_in_rollback(scene, after("delete", "*.parquet"))


def woken_in_rollback(scene: Scene, point: Point) -> None:
    """An executor stands still in the rollback of an earlier attempt, and another one goes on."""
    executor = scene.executor("stalled").to(point)
    executor.stall(3 * PAST)
    scene.wait(PAST)
    second = scene.executor("second").to(before(LOCK, COMMIT))
    executor.fails(FencedError)
    second.finish()
    assert scene.completed_by(scene.plan) == ["second"]


@row(21, "an executor stands still in its claim, and loses the lock", REMOVABLE)
def _(scene: Scene) -> None:
    # The last thing that it reads is whether the plan is removable.
    executor = scene.executor("stalled").to(after("stat", "*/.heartbeat/*"))
    executor.to(after("read", f"*{scene.plan}*.requested"))
    executor.stall(3 * LEASE_S)
    scene.wait(2 * LEASE_S)
    second = scene.executor("second").to(before(LOCK, COMMIT))
    executor.fails(LockLostError)
    assert scene.beats(scene.plan) == "second"
    second.finish()


@row(21, "an executor stands still in its claim, and another one claims the plan")
def _(scene: Scene) -> None:
    executor = scene.executor("stalled").to(after("read", "*/hoodie.properties"))
    executor.to(after("list"))
    executor.stall(3 * LEASE_S)
    scene.wait(2 * LEASE_S)
    second = scene.executor("second").to(before(LOCK, COMMIT))
    executor.fails(PlanBusyError)
    assert scene.beats(scene.plan) == "second"
    second.finish()


@row(21, "an executor stands still in its commit, and loses the lock")
def _(scene: Scene) -> None:
    executor = scene.executor("stalled").to(before(LOCK, COMMIT))
    executor.to(after("replace", f"*{scene.plan}"))
    executor.stall(2 * LEASE_S)
    scene.wait(LEASE_S + 1)
    scene.writer("writer", NEW).finish()
    executor.fails(LockLostError)
    assert scene.plan_state is State.INFLIGHT


# ---- cleaners ----------------------------------------------------------------------------------


@row(22, "two cleaners schedule the rollback of one plan", REMOVABLE)
def _(scene: Scene) -> None:
    scene.wait(DELAY_S)
    first = scheduled(scene, "first")
    second = scheduled(scene, "second")
    assert len(scene.rollbacks) == 1
    first.finish()
    second.finish()
    gone(scene)


@row(23, "two cleaners execute one rollback", REMOVABLE)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    scene.wait(DELAY_S)
    first = scene.cleaner("first").to(before("delete", INFLIGHT))
    [(rollback, _, _)] = scene.rollbacks
    assert scene.beats(rollback) == "first"
    with_lock_free = scene.cleaner("second")
    assert not with_lock_free.towards(before("delete", INFLIGHT))
    assert with_lock_free.error is None or isinstance(with_lock_free.error, LockHeldError)
    assert first.finish() == (scene.plan,)
    gone(scene)


@row(23, "a second cleaner comes while the first deletes files", REMOVABLE)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    scene.wait(DELAY_S)
    first = scene.cleaner("first").to(after(UNLOCK, "*rollback 2*"))
    assert scene.cleaner("second").finish() == ()
    assert first.finish() == (scene.plan,)
    gone(scene)


@row(24, "a cleaner dies between scheduling and executing", REMOVABLE)
def _(scene: Scene) -> None:
    scene.wait(DELAY_S)
    scheduled(scene, "dead").crash()
    scene.executor("executor").fails(PlanStateError, match="is being rolled back")
    assert scene.cleaner("next").finish() == (scene.plan,)
    gone(scene)


@row(25, "a cleaner dies while it deletes files", REMOVABLE)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    scene.wait(DELAY_S)
    first = scene.cleaner("dead").to(after(UNLOCK, "*rollback 2*"))
    first.to(after("list")).crash()
    [(rollback, _, _)] = scene.rollbacks
    assert scene.cleaner("early").finish() == ()
    scene.wait(PAST)
    assert scene.cleaner("next").finish() == (scene.plan,)
    assert scene.rollbacks == [(rollback, State.COMPLETED, scene.plan)]
    gone(scene)


@row(26, "a cleaner dies after the plan is off the timeline", REMOVABLE)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    scene.wait(DELAY_S)
    scene.cleaner("dead").to(after("delete", f"*{scene.plan}*.requested")).crash()
    assert scene.plan_state is None
    [(rollback, state, _)] = scene.rollbacks
    assert state is State.INFLIGHT
    scene.executor("executor").fails(PlanStateError, match="no plan")
    scene.wait(PAST)
    scene.cleaner("next").finish()
    assert scene.rollbacks == [(rollback, State.COMPLETED, scene.plan)]


@row(27, "a cleaner dies while it schedules, holding the lock", REMOVABLE)
def _(scene: Scene) -> None:
    scene.writer("dead writer", NEW).to(before(LOCK, COMMIT)).crash()
    scene.wait(DELAY_S)
    scene.cleaner("dead").to(after(CREATE, PLANNED)).crash()
    [(written, _, _)] = scene.rollbacks
    scene.wait(LEASE_S)
    assert len(scene.cleaner("next").finish()) == 2
    assert [s for _, s, _ in scene.rollbacks] == [State.COMPLETED] * 2
    assert written in {r for r, _, _ in scene.rollbacks}
    gone(scene)


# ---- others ------------------------------------------------------------------------------------


@row(28, "an operator rolls back a plan that somebody works on")
def _(scene: Scene) -> None:
    executor = scene.executor("executor").to(before(LOCK, COMMIT))
    there = scene.objects()
    for unschedule in (False, True):
        told = {"unschedule": unschedule}
        operator = scene.process(
            f"operator {unschedule}", lambda a, told=told: roll_back_instant(a, scene.plan, **told)
        )
        operator.fails(ConflictError, match="is alive")
    assert {p for p in scene.objects() if "heartbeat" not in p} == {
        p for p in there if "heartbeat" not in p
    }
    executor.finish()


@row(29, "an operator takes an idle plan away", KEPT, rules=("14.31b",))
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    kept = scene.run("operator", lambda a: roll_back_instant(a, scene.plan))
    assert kept.becomes is Becomes.PLAN and scene.plan_state is State.REQUESTED
    scene.run("purge", lambda a: roll_back_instant(a, scene.plan, unschedule=True))
    gone(scene)
    scene.executor("executor").fails(PlanStateError, match="no plan")


@row(29, "version 6: an operator may not take a compaction away that logs are behind", KEPT[:1])
def _(scene: Scene) -> None:
    scene.writer("writer", ONE).finish()
    purge = scene.process("purge", lambda a: roll_back_instant(a, scene.plan, unschedule=True))
    purge.fails(PlanStateError, match="lie behind")
    scene.executor("executor").finish()


@row(30, "another plan is scheduled while one is pending", KEPT[:2])
def _(scene: Scene) -> None:
    scene.writer("writer", ONE, NEW).finish()
    scene.writer("again", NEW).finish()
    second = scene.run("scheduler", scene.plans.schedule)
    assert second is not None and second != scene.plan
    scene.run("both", scene.plans.execute_pending)


@row(31, "a write changes a file group of a pending clustering", CLUSTERINGS)
def _(scene: Scene) -> None:
    writer = scene.writer("before", ONE).to(before(LOCK, COMMIT))
    writer.fails(WriteConflictError)
    scene.writer("elsewhere", NEW).finish()
    scene.executor("executor").finish()


@row(32, "a clean runs while a plan is pending")
def _(scene: Scene) -> None:
    for number in range(4):
        scene.writer(f"writer{number}", NEW, rewrites=True).finish()
    before_ = scene.files_of(scene.first), scene.files_of(scene.second)
    versions = CleanOptions(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions_retained=1)
    done = scene.run("by versions", lambda a: run_clean(a, versions))
    assert done.files_deleted == 3
    scene.run("by commits", lambda a: run_clean(a, CleanOptions(commits_retained=1)))
    assert (scene.files_of(scene.first), scene.files_of(scene.second)) == before_
    scene.executor("executor").finish()


@row(33, "another executor and a cleaner come while the rollback of an attempt is executed", KEPT)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    executor = scene.executor("executor").to(after(UNLOCK, "*rollback 2*"))
    scene.executor("second").fails(PlanBusyError)
    assert scene.cleaner("cleaner").finish() == ()
    executor.finish()
    assert [s for _, s, _ in scene.rollbacks] == [State.COMPLETED]
    assert scene.completed_by(scene.plan) == ["executor"]


@row(33, "a cleaner comes when the executor of a rollback has died", KEPT)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    scene.executor("dead too").to(after(UNLOCK, "*rollback 2*")).crash()
    scene.wait(PAST)
    assert scene.cleaner("cleaner").finish() == ()
    scene.executor("next").finish()


@row(34, "the timeline is archived while a plan is pending")
def _(scene: Scene) -> None:
    for number in range(5):
        scene.writer(f"writer{number}", NEW).finish()
    options = ArchiveOptions(
        keep_min_commits=1,
        keep_max_commits=2,
        compaction_delta_commits=1,
        clean=CleanOptions(commits_retained=1),
    )
    result = scene.run("archiver", lambda a: run_archive(a, options))
    assert all(i.requested_time < scene.plan for i in result.plan.instants)
    assert scene.plan_state is State.REQUESTED
    scene.executor("executor").finish()


@row(35, "the table is restored while somebody works on a plan")
def _(scene: Scene) -> None:
    executor = scene.executor("executor").to(before(LOCK, COMMIT))
    restore = scene.process("restore", lambda a: run_restore(a, scene.first))
    restore.fails(ConflictError)
    assert not scene.table.state.timeline.filter_actions("restore").instants
    executor.finish()


@row(36, "the clock of a cleaner is far ahead", REMOVABLE, rules=("14.31b",))
def _(scene: Scene) -> None:
    executor = scene.executor("executor").to(before(LOCK, CLAIM))
    cleaner = scene.cleaner("cleaner")
    cleaner.actor.clock.offset_ms = 2 * DELAY_S * 1000
    cleaner.finish()
    executor.end()
    if scene.plan_state is None:
        assert isinstance(executor.error, PlanStateError)
        gone(scene)
