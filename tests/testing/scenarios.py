"""Crashes and meetings of writers and services, each with the outcome that it must have.

The numbers are those of the list of scenarios that every engine has to stand. Left out is what
there is no code for yet: the metadata table, delegation to a server, upgrades.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lakewright.errors import (
    ConflictError,
    FencedError,
    InstantNotFoundError,
    LakewrightError,
    LockHeldError,
    LockLostError,
    PlanStateError,
    TableError,
    WriteConflictError,
)
from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import State
from lakewright.format.records import CommitMetadata
from lakewright.services.archive import run_archive
from lakewright.services.archive_options import ArchiveOptions
from lakewright.services.clean import run_clean, schedule_clean
from lakewright.services.clean_options import CleanOptions, CleanPolicy
from lakewright.services.restore import run_restore
from lakewright.services.rollback import roll_back_instant
from lakewright.services.savepoint import create_savepoint, delete_savepoint
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
from lakewright.testing.sim.story_writes import Write, publish
from lakewright.txn.access import Access, FailedWrites
from lakewright.txn.heartbeat import HeartbeatOptions
from lakewright.txn.locks.file_system import FileSystemLock
from lakewright.txn.markers import Marker, MarkerType, marker_folder
from lakewright.txn.recovery import roll_back, sweep_traces
from lakewright.txn.transaction import Prepared, Transaction, begin
from tests.testing.interleavings import (
    CLUSTERINGS,
    COMMIT,
    CREATE,
    INFLIGHT,
    PAST,
    PLANNED,
    SCHEDULING,
    begun_and_dead,
    gone,
)
from tests.testing.scene import KEPT, NEW, ONE, OTHER, REMOVABLE, TWO, Cases, Scene

SCENARIOS = Cases()
COMPACTIONS = KEPT[:2]
"""One table of each version."""
VERSION_6, VERSION_8 = (KEPT[0],), (KEPT[1],)
LOG_COMPACTIONS = REMOVABLE[:2]


def told(number: int, title: str, kinds: Any = COMPACTIONS, **more: Any) -> Any:
    """Register a scenario on a table without a plan."""
    return SCENARIOS.told(number, title, kinds, planned=False, **more)


def told_of_plan(number: int, title: str, kinds: Any = COMPACTIONS, **more: Any) -> Any:
    """Register a scenario on a table with a plan."""
    return SCENARIOS.told(number, title, kinds, **more)


def written(scene: Scene) -> str:
    """The time of the write that is pending, or was completed last."""
    writes = scene.table.state.timeline.writes()
    return (writes.pending().last() or writes.last() or "").requested_time  # type: ignore[union-attr]


# ---- a writer dies -----------------------------------------------------------------------------

HEARTBEAT = "*/.heartbeat/*"
FENCE = "*/fence/*"
COMPLETED = "*.deltacommit"
DEATHS: dict[tuple[int, str], tuple[tuple[Point, ...], bool]] = {
    (1, "after its heartbeat, before it is requested"): ((after("replace", HEARTBEAT),), False),
    (2, "after it is requested"): ((after(CREATE, "*.requested"),), False),
    (3, "after it is inflight, before its first marker"): ((after(CREATE, INFLIGHT),), False),
    (4, "after a marker, before its data file"): ((after(CREATE, "*.marker.*"),), False),
    (5, "while it writes a base file"): ((before("create_from", "*.parquet"),), False),
    (6, "while it writes a log"): ((before("create_from", "*.log.*"),), False),
    (7, "after it wrote a log"): ((after("create_from", "*.log.*"),), False),
    (8, "after all its files, before the lock"): ((before(LOCK, COMMIT),), False),
    (9, "holding the lock"): ((before(LOCK, COMMIT), after("list")), False),
    (10, "after it closed its fence"): ((before(LOCK, COMMIT), after("replace", FENCE)), False),
    (13, "just before its completed file"): ((before(CREATE, COMPLETED),), False),
    (14, "after its completed file, holding the lock"): ((after(CREATE, COMPLETED),), True),
    (15, "after it gave the lock back"): ((after(UNLOCK, COMMIT),), True),
    (16, "after its markers are gone"): ((after("delete", "*.marker.*"),), True),
}
"""Where a writer dies, and whether its write is committed by then."""


def _dies(points: tuple[Point, ...], committed: bool, *, eager: bool) -> Callable[[Scene], None]:
    def story(scene: Scene) -> None:
        writer = scene.writer("dead", NEW, ONE)
        for point in points:
            writer.to(point)
        writer.crash()
        time = written(scene)
        scene.wait(LEASE_S)
        assert scene.cleaner("early").finish() == ()
        assert scene.rollbacks == []
        scene.wait(PAST)
        if eager:
            policy = {"failed_writes": FailedWrites.EAGER}
            scene.writer("next", OTHER, access=policy).finish()
        else:
            scene.cleaner("late").finish()
        if committed:
            assert scene.state_of(time) is State.COMPLETED and scene.rollbacks == []
        elif time != scene.second:
            assert scene.state_of(time) is None and scene.files_of(time) == []
            assert [(s, t) for _, s, t in scene.rollbacks] == [(State.COMPLETED, time)]

    return story


for (_number, _where), (_points, _committed) in DEATHS.items():
    for _eager in (False, True):
        _who = "the next writer" if _eager else "a cleaner"
        told(_number, f"a writer dies {_where}, {_who} cleans up")(
            _dies(_points, _committed, eager=_eager)
        )


@told(17, "a writer dies, and its markers are lost")
def _(scene: Scene) -> None:
    scene.writer("dead", NEW).to(before(LOCK, COMMIT)).crash()
    time = written(scene)
    assert scene.files_of(time)
    scene.run("accident", lambda a: a.storage.delete_tree(marker_folder(time)))
    scene.wait(PAST)
    assert scene.cleaner("cleaner").finish() == (time,)
    assert scene.files_of(time) == []


@told(18, "a task is tried again after it published its file")
def _(scene: Scene) -> None:
    time = scene.writer("writer", NEW, failed_attempts=2).finish()
    assert scene.files_of(time) == [f"p0/{NEW.file_id}_0-1-1_{time}.parquet"]


def late_task(scene: Scene, *, committed: bool) -> tuple[Process, Process]:
    """A writer about to commit or abort, and a task of it that is at work and nobody waits for."""
    tasks: list[Process] = []

    def write(access: Access) -> None:
        transaction = begin(access, action="deltacommit")
        transaction.start()
        marker = Marker(
            "p0", f"{NEW.file_id}_0-66-6_{transaction.instant}.parquet", MarkerType.CREATE
        )
        fence = transaction.fence
        tasks.append(scene.process("late task", lambda a: publish(a, fence, marker, b"")))
        access.storage.exists("everything is written")
        if committed:
            _commit_nothing(scene, access, transaction)
        else:
            transaction.abort()

    writer = scene.process("writer", write).to(after("exists", "everything is written"))
    return writer, tasks[0]


def _commit_nothing(scene: Scene, access: Access, transaction: Transaction) -> None:
    scene.table.model.intend(transaction.instant, Effect())
    basis = access.timeline(scene.table.properties)
    transaction.commit(Prepared(CommitMetadata(operation_type="INSERT"), basis))


@told(19, "a late attempt publishes after the files of failed ones were deleted")
def _(scene: Scene) -> None:
    writer, task = late_task(scene, committed=True)
    task.to(after(CREATE, "*.marker.*"))
    writer.to(before(CREATE, COMPLETED))
    published = task.towards(before("create_from"))
    writer.finish()
    if published:
        task.to(after("create_from")).crash()
    assert isinstance(task.error, FencedError)


@told(19, "a late attempt is past its last look when its writer is rolled back")
def _(scene: Scene) -> None:
    writer, task = late_task(scene, committed=False)
    task.to(before("create_from"))
    writer.to(after(UNLOCK, "*rollback of*"))
    task.to(after("create_from")).crash()
    writer.finish()


@told(19, "a late attempt publishes when the files of the rollback's plan are deleted")
def _(scene: Scene) -> None:
    writer, task = late_task(scene, committed=False)
    task.to(before("create_from"))
    writer.to(after("delete", "*.parquet"))
    task.to(after("create_from")).crash()
    writer.finish()


@told(19, "a late attempt looks at its fence when its writer was rolled back")
def _(scene: Scene) -> None:
    writer, task = late_task(scene, committed=False)
    task.to(after(CREATE, "*.marker.*"))
    writer.finish()
    if task.towards(after("create_from")):
        task.crash()
    assert isinstance(task.error, FencedError)


@told(19, "a late attempt publishes when its writer was rolled back, and takes its file back")
def _(scene: Scene) -> None:
    writer, task = late_task(scene, committed=False)
    task.to(before("create_from"))
    writer.finish()
    task.fails(FencedError)


@told(19, "a late attempt comes while its writer is being rolled back")
def _(scene: Scene) -> None:
    writer, task = late_task(scene, committed=False)
    # The last thing that a rollback looks at without the lock are files of the instant.
    writer.to(before(LOCK, "*rollback 2*", nth=2))
    if task.towards(after("create_from")):
        task.crash()
    assert isinstance(task.error, FencedError)
    writer.finish()


# ---- two writers -------------------------------------------------------------------------------


@told(21, "two writers change different file groups")
def _(scene: Scene) -> None:
    first = scene.writer("first", ONE, rewrites=True).to(before(LOCK, COMMIT))
    scene.writer("second", TWO, rewrites=True).finish()
    first.finish()


@told(22, "two writers change one file group")
def _(scene: Scene) -> None:
    first = scene.writer("first", ONE, rewrites=True).to(before(LOCK, COMMIT))
    scene.writer("second", ONE, rewrites=True).finish()
    first.fails(WriteConflictError)


@told(23, "two writers insert one new key")
def _(scene: Scene) -> None:
    first = scene.process("first", _insert(scene, NEW)).to(before(LOCK, COMMIT))
    scene.process("second", _insert(scene, OTHER)).finish()
    first.finish()


def _insert(scene: Scene, group: FileGroupId) -> Callable[[Access], Any]:
    return Write(scene.table, {"the same key": "new"}, (group,))


@told(24, "an overwrite is committed before an update of what it replaces")
def _(scene: Scene) -> None:
    update = scene.writer("update", ONE).to(before(LOCK, COMMIT))
    scene.writer("overwrite", NEW, overwrites=frozenset({"p0"})).finish()
    update.fails(WriteConflictError)


@told(24, "an update is committed before an overwrite of what it changed")
def _(scene: Scene) -> None:
    overwrite = scene.writer("overwrite", NEW, overwrites=frozenset({"p0"}))
    overwrite.to(before(LOCK, COMMIT))
    scene.writer("update", ONE).finish()
    overwrite.fails(WriteConflictError)


@told(24, "an overwrite takes what was inserted meanwhile")
def _(scene: Scene) -> None:
    overwrite = scene.writer("overwrite", NEW, overwrites=frozenset({"p0"}))
    overwrite.to(before(LOCK, COMMIT))
    late = FileGroupId("p0", OTHER.file_id)
    scene.writer("insert", late).finish()
    overwrite.finish()


@told(25, "version 6: an update that began before a compaction was planned", VERSION_6)
def _(scene: Scene) -> None:
    update = scene.writer("update", ONE).to(before(LOCK, COMMIT))
    scene.plan = scene.run("planner", scene.plans.schedule)
    update.fails(WriteConflictError)
    scene.executor("executor").finish()


@told(26, "version 8: an update that began before a compaction was planned", VERSION_8)
def _(scene: Scene) -> None:
    update = scene.writer("update", ONE).to(before(LOCK, COMMIT))
    scene.plan = scene.run("planner", scene.plans.schedule)
    update.finish()
    scene.executor("executor").finish()


@told(27, "a writer wakes up when its rollback is scheduled")
def _(scene: Scene) -> None:
    writer = scene.writer("writer", NEW).to(before(LOCK, COMMIT)).stall(2 * PAST)
    scene.wait(PAST)
    cleaner = scene.cleaner("cleaner").to(after(UNLOCK, SCHEDULING))
    writer.fails(FencedError)
    cleaner.finish()


@told(27, "a writer wakes up when it is rolled back")
def _(scene: Scene) -> None:
    writer = scene.writer("writer", NEW).to(before(LOCK, COMMIT)).stall(2 * PAST)
    scene.wait(PAST)
    assert len(scene.cleaner("cleaner").finish()) == 1
    writer.fails(FencedError)


def _with_a_plan_for_its_log(scene: Scene) -> tuple[Process, str]:
    """A writer that stands still behind its log, for which a compaction is planned then."""
    writer = scene.writer("writer", ONE).to(after("create_from", "*.log.*")).stall(2 * PAST)
    time = written(scene)
    scene.plan = scene.run("planner", scene.plans.schedule)
    scene.wait(PAST)
    return writer, time


@told(27, "version 6: a writer wakes up when it is rolled back and a plan has its log", VERSION_6)
def _(scene: Scene) -> None:
    writer, time = _with_a_plan_for_its_log(scene)
    assert scene.cleaner("cleaner").finish() == (time,)
    writer.fails(FencedError)
    scene.executor("executor").finish()


@told(27, "version 6: a writer wakes up when its rollback is planned, as its log is", VERSION_6)
def _(scene: Scene) -> None:
    writer, _ = _with_a_plan_for_its_log(scene)
    cleaner = scene.cleaner("cleaner").to(after(UNLOCK, SCHEDULING))
    writer.fails(FencedError)
    cleaner.finish()
    scene.executor("executor").finish()


@told(28, "a writer commits between a cleaner's look and its lock")
def _(scene: Scene) -> None:
    writer = scene.writer("writer", NEW).to(before(LOCK, COMMIT)).stall(TOLERANCE_S - 2)
    scene.wait(TOLERANCE_S - 3)
    cleaner = scene.cleaner("cleaner").to(before(LOCK, SCHEDULING))
    time = writer.finish()
    scene.wait(PAST)
    assert cleaner.finish() == ()
    assert scene.state_of(time) is State.COMPLETED


@told(29, "a cleaner that tolerates little meets a writer that beats rarely")
def _(scene: Scene) -> None:
    beat = HeartbeatOptions(interval_ms=60_000, misses=10)
    writer = scene.writer("writer", NEW, access={"heartbeat": beat}).to(before(LOCK, COMMIT))
    writer.stall(180.0)
    scene.wait(170.0)
    strict = HeartbeatOptions(interval_ms=60_000, misses=2)
    assert scene.cleaner("cleaner", heartbeat=strict).finish() == ()
    writer.finish()


def _with_lock_file(deed: Callable[[Access], Any], expire_s: float) -> Callable[[Access], Any]:
    def locked(access: Access) -> Any:
        lock = FileSystemLock(
            access.storage,
            expire_s=expire_s,
            clock=access.clock,
            random=access.random,
            spawner=access.spawner,
            processes=access.processes,
        )
        return deed(replace(access, lock=lock))

    return locked


@told(30, "the holder of a lock file dies; a lock that never expires names it")
def _(scene: Scene) -> None:
    dead = scene.process("dead", _with_lock_file(_insert(scene, NEW), 0.0))
    dead.to(after(CREATE, "*.requested")).crash()
    scene.wait(600.0)
    waiter = scene.process("waiter", _with_lock_file(_insert(scene, OTHER), 0.0))
    error = waiter.fails(LockHeldError)
    assert "dead" in str(error.context)
    scene.run("operator", lambda a: a.storage.delete(".hoodie/lock"))


@told(30, "the holder of a lock file dies; of two who wait, one takes over at a time")
def _(scene: Scene) -> None:
    dead = scene.process("dead", _with_lock_file(_insert(scene, NEW), 60.0))
    dead.to(after(CREATE, "*.requested")).crash()
    scene.wait(61.0)
    first = scene.process("first", _with_lock_file(_insert(scene, OTHER), 60.0))
    first.to(after(CREATE, "*.requested"))
    late = FileGroupId("p0", OTHER.file_id)
    second = scene.process("second", _with_lock_file(_insert(scene, late), 60.0))
    assert not second.towards(after(CREATE, "*.requested")) or scene.table.ledger.holder is not None
    first.end()
    second.end()


@told(31, "a writer stands still in its commit, and loses the lock")
def _(scene: Scene) -> None:
    writer = scene.writer("writer", NEW).to(before(LOCK, COMMIT)).to(after("replace", FENCE))
    time = written(scene)
    writer.stall(2 * LEASE_S)
    scene.wait(LEASE_S + 1)
    scene.writer("other", OTHER).finish()
    writer.fails(LockLostError)
    assert scene.state_of(time) is not State.COMPLETED


# ---- compactions -------------------------------------------------------------------------------


@told_of_plan(34, "a compaction dies after one of its files, and runs again", KEPT)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    [orphan] = scene.files_of(scene.plan)
    scene.executor("next").finish()
    assert len(scene.files_of(scene.plan)) == 2 and orphan not in scene.files_of(scene.plan)


@told_of_plan(35, "logs are written behind a compaction that dies")
def _(scene: Scene) -> None:
    time = scene.writer("writer", ONE).finish()
    begun_and_dead(scene)
    logs = [p for p in scene.table.state.data_files if ".log." in p]
    executor = scene.executor("next").to(before(LOCK, COMMIT))
    assert [p for p in scene.table.state.data_files if ".log." in p] == logs
    executor.finish()
    assert scene.state_of(time) is State.COMPLETED


def _behind_what_goes(scene: Scene) -> tuple[Process, Process, str]:
    """A writer that is about to publish a log behind a commit, and who takes that commit back."""
    base = scene.writer("base", ONE, rewrites=True).finish()
    late = scene.writer("late", ONE).to(before(LOCK, "*begin of*"))
    scene.table.model.take_back(base)
    operator = scene.process("operator", lambda a: roll_back_instant(a, base))
    operator.to(after(UNLOCK, "*rollback of*"))
    late.to(before("create_from", f"*_{base}.log.*"))
    return late, operator, base


@told(35, "version 6: a log comes behind a commit that is being taken back", VERSION_6)
def _(scene: Scene) -> None:
    late, operator, base = _behind_what_goes(scene)
    operator.to(before(LOCK, "*rollback 2*", nth=2))
    late.fails(WriteConflictError)
    operator.finish()
    assert scene.files_of(base) == []


@told(35, "version 6: a log comes behind a commit that was taken back", VERSION_6)
def _(scene: Scene) -> None:
    late, operator, base = _behind_what_goes(scene)
    operator.finish()
    late.fails(WriteConflictError)
    assert scene.files_of(base) == []


@told(
    37,
    "version 8: a log completes after a compaction was planned, then files are cleaned",
    VERSION_8,
)
def _(scene: Scene) -> None:
    late = scene.writer("late", ONE).to(before(LOCK, COMMIT))
    scene.plan = scene.run("planner", scene.plans.schedule)
    time = late.finish()
    scene.executor("executor").finish()
    scene.writer("again", TWO).finish()
    scene.run("cleaner", lambda a: run_clean(a, CleanOptions(commits_retained=1)))
    assert scene.files_of(time)


# ---- removable plans ---------------------------------------------------------------------------


@told_of_plan(38, "a log compaction dies, and the next one can be planned", LOG_COMPACTIONS)
def _(scene: Scene) -> None:
    begun_and_dead(scene)
    scene.wait(DELAY_S)
    scene.cleaner("cleaner").finish()
    gone(scene)
    scene.plan = scene.run("planner", scene.plans.schedule)
    scene.executor("executor").finish()


@told_of_plan(
    39, "a log compaction that waits is left alone until it is old enough", LOG_COMPACTIONS
)
def _(scene: Scene) -> None:
    for number in range(9):
        scene.wait(DELAY_S / 10)
        assert scene.cleaner(f"cleaner{number}").finish() == ()
        assert scene.plan_state is State.REQUESTED
    scene.wait(DELAY_S / 10)
    assert scene.cleaner("last").finish() == (scene.plan,)
    gone(scene)


@told_of_plan(42, "a partition is overwritten that a pending clustering takes", CLUSTERINGS)
def _(scene: Scene) -> None:
    overwrite = scene.writer("overwrite", NEW, overwrites=frozenset({"p0"}))
    overwrite.fails(WriteConflictError)
    scene.executor("executor").finish()


CLUSTERING_DEATHS = {
    "before it is inflight": before(CREATE, INFLIGHT),
    "after it is inflight": after(CREATE, INFLIGHT),
    "after its first file": after("create_from"),
    "after its last file": before(LOCK, COMMIT),
    "before its completed file": before(CREATE, "*.replacecommit"),
    "after its completed file": after(CREATE, "*.replacecommit"),
}


def _clustering_dies(point: Point) -> Callable[[Scene], None]:
    def story(scene: Scene) -> None:
        scene.executor("dead").to(point).crash()
        scene.wait(PAST)
        if scene.plan_state is State.COMPLETED:
            scene.executor("next").fails(PlanStateError, match="completed")
        elif scene.kind.removable and scene.plan_state is State.INFLIGHT:
            scene.executor("next").fails(PlanStateError, match="was begun")
            scene.wait(DELAY_S)
            scene.cleaner("cleaner").finish()
            gone(scene)
        else:
            scene.executor("next").finish()

    return story


for _title, _point in CLUSTERING_DEATHS.items():
    told_of_plan(43, f"a clustering dies {_title}", CLUSTERINGS)(_clustering_dies(_point))


@told_of_plan(44, "a partition is deleted that a pending compaction takes")
def _(scene: Scene) -> None:
    scene.writer("delete", overwrites=frozenset({"p0"})).end()
    scene.executor("executor").finish()


# ---- cleans and savepoints ---------------------------------------------------------------------

LAST = CleanOptions(commits_retained=1)
NEWEST = CleanOptions(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions_retained=1)


def old_slices(scene: Scene) -> list[str]:
    """Writes that left three old base files of one group; their times."""
    return [scene.writer(f"w{number}", NEW, rewrites=True).finish() for number in range(4)]


@told(45, "a cleaner dies while it deletes old files, and another one comes")
def _(scene: Scene) -> None:
    times = old_slices(scene)
    clean = lambda a: run_clean(a, LAST)  # noqa: E731
    scene.process("dead", clean).to(after("delete", "*.parquet")).crash()
    scene.run("early", clean)
    assert scene.table.state.timeline.filter_actions("clean").pending().instants
    scene.wait(PAST)
    done = scene.run("next", clean)
    assert [m.total_files_deleted for _, m in done.executed] == [2]
    assert [bool(scene.files_of(t)) for t in times] == [False, False, True, True]


@told(45, "two cleaners at once")
def _(scene: Scene) -> None:
    old_slices(scene)
    clean = lambda a: run_clean(a, LAST)  # noqa: E731
    first = scene.process("first", clean).to(before("delete", "*.parquet"))
    assert scene.run("second", clean).executed == ()
    assert len(first.finish().executed) == 1
    assert len(scene.table.state.timeline.filter_actions("clean").instants) == 1


@told(47, "the completed file of a clean is empty")
def _(scene: Scene) -> None:
    old_slices(scene)
    done = scene.run("cleaner", lambda a: run_clean(a, LAST))
    [file] = [f for f in scene.table.state.completed() if f.action == "clean"]
    folder = scene.table.properties.timeline_folder

    def accident(access: Access) -> None:
        with access.locked("accident"):
            access.storage.replace(f"{folder}/{file.name}", b"")

    scene.run("accident", accident)
    scene.run("next", lambda a: run_clean(a, LAST))
    [file] = [f for f in scene.table.state.completed() if f.action == "clean"]
    assert file.stored.content and done.scheduled == file.requested_time


@told(48, "a clean spares a savepoint, until it is deleted")
def _(scene: Scene) -> None:
    times = old_slices(scene)
    scene.run("keeper", lambda a: create_savepoint(a, times[1]))
    scene.run("cleaner", lambda a: run_clean(a, LAST))
    assert [bool(scene.files_of(t)) for t in times] == [False, True, True, True]
    scene.run("forgetter", lambda a: delete_savepoint(a, times[1]))
    scene.run("again", lambda a: run_clean(a, LAST))
    assert [bool(scene.files_of(t)) for t in times] == [False, False, True, True]


@told(48, "a savepoint is made while a clean is planned")
def _(scene: Scene) -> None:
    times = old_slices(scene)
    cleaner = scene.process("cleaner", lambda a: run_clean(a, LAST))
    cleaner.to(before(LOCK, "*scheduling of a clean*"))
    scene.run("keeper", lambda a: create_savepoint(a, times[1]))
    cleaner.finish()
    assert scene.files_of(times[1])


@told(48, "a clean by versions runs while a writer works on what was the newest")
def _(scene: Scene) -> None:
    times = old_slices(scene)
    writer = scene.writer("slow", ONE).to(before(LOCK, COMMIT))
    for number in range(3):
        scene.writer(f"quick{number}", NEW, rewrites=True).finish()
    scene.run("cleaner", lambda a: run_clean(a, NEWEST))
    assert [bool(scene.files_of(t)) for t in times] == [False, False, False, True]
    writer.finish()


@told(53, "a savepoint is asked for while a clean is pending that retains less")
def _(scene: Scene) -> None:
    times = old_slices(scene)
    scene.run("planner", lambda a: schedule_clean(a, LAST))
    keeper = scene.process("keeper", lambda a: create_savepoint(a, times[0]))
    keeper.fails(InstantNotFoundError, ConflictError)
    scene.run("cleaner", lambda a: run_clean(a, LAST))


# ---- rollbacks ---------------------------------------------------------------------------------

ROLLBACK_DEATHS = {
    "after its plan": after(CREATE, PLANNED),
    "after it is inflight": after(CREATE, "*.rollback.inflight"),
    "while it deletes files": after("delete", "*.parquet"),
    "after the inflight file of its target is gone": after("delete", "*commit.inflight"),
    "after its target is off the timeline": after("delete", "*commit.requested"),
    "after its completed file": after(CREATE, "*.rollback"),
    "before it removes the traces of its target": after("delete", HEARTBEAT),
}


def _rollback_dies(point: Point) -> Callable[[Scene], None]:
    def story(scene: Scene) -> None:
        scene.writer("dead writer", NEW, ONE).to(before(LOCK, COMMIT)).crash()
        time = written(scene)
        scene.wait(PAST)
        scene.cleaner("dead").to(point).crash()
        [(rollback, _, _)] = scene.rollbacks
        scene.wait(PAST)
        scene.cleaner("next").finish()
        assert scene.rollbacks == [(rollback, State.COMPLETED, time)]
        assert scene.state_of(time) is None and scene.files_of(time) == []

    return story


for _title, _point in ROLLBACK_DEATHS.items():
    told(49, f"a rollback dies {_title}")(_rollback_dies(_point))


@told(50, "two processes roll one write back by name")
def _(scene: Scene) -> None:
    scene.writer("dead", NEW).to(before(LOCK, COMMIT)).crash()
    time = written(scene)
    scene.wait(PAST)
    first = scene.process("first", lambda a: roll_back(a, time)).to(after(UNLOCK, "*rollback of*"))
    second = scene.process("second", lambda a: roll_back(a, time))
    second.to(after(UNLOCK, "*rollback of*"))
    assert len(scene.rollbacks) == 1
    done = [p.finish().rolled_back for p in (first, second)]
    assert done in ([(time,), ()], [(), (time,)])


@told(50, "a cleaner stands still while it schedules, and loses the lock")
def _(scene: Scene) -> None:
    scene.writer("dead", NEW).to(before(LOCK, COMMIT)).crash()
    scene.wait(PAST)
    cleaner = scene.cleaner("stalled").to(before(LOCK, SCHEDULING)).to(after("walk", "*/.temp/*"))
    cleaner.stall(2 * LEASE_S)
    scene.wait(LEASE_S + 1)
    scene.writer("other", OTHER).finish()
    cleaner.fails(LockLostError)


@told(50, "a cleaner stands still at the end of its rollback, and loses the lock")
def _(scene: Scene) -> None:
    scene.writer("dead", NEW).to(before(LOCK, COMMIT)).crash()
    time = written(scene)
    scene.wait(PAST)
    cleaner = scene.cleaner("stalled").to(before(LOCK, "*rollback 2*", nth=2)).to(after("list"))
    cleaner.stall(2 * LEASE_S)
    scene.wait(LEASE_S + 1)
    scene.writer("other", OTHER, access={"failed_writes": FailedWrites.NEVER}).finish()
    cleaner.fails(LockLostError)
    assert scene.state_of(time) is State.INFLIGHT


@told(50, "a cleaner sweeps while a write begins")
def _(scene: Scene) -> None:
    writer = scene.writer("writer", NEW).to(after("replace", HEARTBEAT))
    sweeper = scene.process("sweeper", sweep_traces).to(before(LOCK))
    writer.to(after(UNLOCK, "*begin of*"))
    sweeper.finish()
    writer.finish()


@told(51, "the plan of a rollback cannot be read", rules=("14.6",))
def _(scene: Scene) -> None:
    scene.writer("dead writer", NEW).to(before(LOCK, COMMIT)).crash()
    time = written(scene)
    scene.wait(PAST)
    scene.cleaner("dead").to(after(UNLOCK, SCHEDULING)).crash()
    [(torn, _, _)] = scene.rollbacks
    properties = scene.table.properties
    folder = properties.timeline_folder

    def accident(access: Access) -> None:
        with access.locked("accident"):
            access.storage.replace(f"{folder}/{torn}.rollback.requested", b"")

    scene.run("accident", accident)
    assert scene.cleaner("next").finish() == (time,)  # by another rollback
    assert scene.state_of(time) is None and scene.files_of(time) == []
    assert scene.state_of(torn) is State.REQUESTED  # left to an operator, who is told of it
    scene.run("operator", lambda a: a.files(properties).remove(torn, "rollback"))


@told(52, "a restore dies after it took one write back; others wait until it is finished")
def _(scene: Scene) -> None:
    model = scene.table.model
    times = [scene.writer(f"w{number}", NEW).finish() for number in range(2)]
    for time in times:
        model.take_back(time)
    restore = lambda a: run_restore(a, scene.second)  # noqa: E731
    scene.process("dead", restore).to(after(CREATE, "*.rollback")).crash()
    scene.writer("early", OTHER).fails(TableError)
    scene.wait(PAST)
    assert scene.run("next", restore).resumed
    assert scene.state_of(times[0]) is None and scene.files_of(times[0]) == []
    scene.writer("late", OTHER).finish()


# ---- archiving, clocks, hanging storage --------------------------------------------------------

SOON = ArchiveOptions(
    keep_min_commits=1, keep_max_commits=2, compaction_delta_commits=1, clean=LAST
)


@told_of_plan(54, "the timeline is archived with a clustering at its head", CLUSTERINGS)
def _(scene: Scene) -> None:
    scene.executor("dead").to(after("create_from")).crash()
    for number in range(5):
        scene.writer(f"w{number}", NEW).finish()
    scene.run("archiver", lambda a: run_archive(a, SOON))
    assert scene.plan_state is State.INFLIGHT
    scene.run("reader", lambda _: None)


@told(54, "the timeline is archived while replaced files are there")
def _(scene: Scene) -> None:
    scene.writer("overwrite", NEW, overwrites=frozenset({"p0"})).finish()
    for number in range(5):
        scene.writer(f"w{number}", NEW, rewrites=True).finish()
    scene.run("archiver", lambda a: run_archive(a, SOON))


def _skewed(process: Process, seconds: float) -> Process:
    process.actor.clock.offset_ms = seconds * 1000
    return process


@told(57, "the clocks of a writer and a cleaner differ by half the tolerance", rules=())
def _(scene: Scene) -> None:
    for skew in (-TOLERANCE_S / 2, TOLERANCE_S / 2):
        writer = scene.writer(f"writer{skew:+.0f}", NEW if skew < 0 else OTHER)
        writer.to(before(LOCK, COMMIT))
        scene.wait(3 * TOLERANCE_S)
        assert _skewed(scene.cleaner(f"cleaner{skew:+.0f}"), skew).finish() == ()
        writer.finish()


@told(57, "the clock of a cleaner is ahead by more than the tolerance", rules=("14.31",))
def _(scene: Scene) -> None:
    writer = scene.writer("writer", NEW).to(before(LOCK, COMMIT))
    cleaner = _skewed(scene.cleaner("cleaner"), 2 * TOLERANCE_S)
    assert len(cleaner.finish()) == 1
    writer.fails(FencedError)


@told(
    57,
    "the clock of a cleaner is ahead; its rollback is scheduled when the writer commits",
    rules=("14.31",),
)
def _(scene: Scene) -> None:
    writer = scene.writer("writer", NEW).to(before(LOCK, COMMIT))
    cleaner = _skewed(scene.cleaner("cleaner"), 2 * TOLERANCE_S).to(after(UNLOCK, SCHEDULING))
    writer.fails(FencedError)
    cleaner.finish()


@told_of_plan(
    57,
    "the clock of an executor is ahead by more than the tolerance",
    KEPT,
    rules=("14.29a", "14.29c", "14.31"),
)
def _(scene: Scene) -> None:
    executor = scene.executor("executor").to(before(LOCK, COMMIT))
    second = _skewed(scene.executor("second"), 2 * TOLERANCE_S).to(before(LOCK, COMMIT))
    executor.fails(FencedError)
    second.end()
    scene.wait(PAST)


@told(58, "the storage hangs when a writer beats")
def _(scene: Scene) -> None:
    writer = scene.writer("writer", NEW, takes_s=2 * PAST).to(before("replace", HEARTBEAT, nth=2))
    scene.wait(PAST)
    assert len(scene.cleaner("cleaner").finish()) == 1
    scene.wait(2 * PAST)
    writer.fails(LakewrightError)
