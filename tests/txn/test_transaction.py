"""Transactions: what readers see, who wins, and what is left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakewright.errors import (
    ConfigError,
    CorruptFileError,
    FencedError,
    LockHeldError,
    LockLostError,
    OutcomeUnknownError,
    TableError,
    WriteConflictError,
)
from lakewright.format.records import CommitMetadata, load_commit_metadata
from lakewright.runtime import ManualClock
from lakewright.runtime.process import ProcessIdentity
from lakewright.storage.faults import FaultPlan, SimulatedCrash, crash
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.txn.access import Access, FailedWrites
from lakewright.txn.carried import SINK_KEY, STREAMER_KEYS, committed_batch, sink_checkpoint
from lakewright.txn.heartbeat import HeartbeatOptions, heartbeat_alive
from lakewright.txn.locks.in_process import InProcessLock, Registry
from lakewright.txn.mark import ALONE_KEY, WRITER_KEY, is_alone
from lakewright.txn.recovery import roll_back, roll_back_failed, sweep_traces
from lakewright.txn.rollback import execute_rollback, schedule_rollback
from lakewright.txn.states import InstantFiles
from lakewright.txn.transaction import begin
from tests.txn.tables import (
    START_MS,
    KnownProcesses,
    new_access,
    new_storage,
    on_disk,
    prepared,
    visible,
    write,
    write_file,
)

BOTH = pytest.mark.parametrize("version", [6, 8])


@BOTH
def test_a_committed_write_is_seen_and_leaves_no_trace(version: int) -> None:
    access = new_access(new_storage(version))
    instant = write(access, "f1")
    assert visible(access) == {f"a/f1_0-0-0_{instant}.parquet"}
    traces = [p for p in on_disk(access.storage) if "/." in p.replace(".hoodie/", "", 1)]
    known = ("partition_metadata", "timeline/.lakewright")
    assert [p for p in traces if not p.endswith(known)] == []
    states = {p.rpartition("/")[2] for p in on_disk(access.storage) if ".commit" in p}
    assert len(states) == 2 and f"{instant}.commit.requested" in states


@BOTH
def test_nothing_is_seen_before_the_commit_and_an_abort_takes_everything_back(
    version: int,
) -> None:
    access = new_access(new_storage(version))
    before = write(access, "f1")
    transaction = begin(access, action="commit")
    transaction.start()
    write_file(access.storage, transaction, "a", "f2")
    assert visible(access) == {f"a/f1_0-0-0_{before}.parquet"}
    transaction.abort()
    left = [p for p in on_disk(access.storage) if transaction.instant in p]
    assert left == []
    rollbacks = access.timeline(access.properties()).filter_actions("rollback").completed()
    assert len(rollbacks) == 1
    assert visible(access) == {f"a/f1_0-0-0_{before}.parquet"}


@BOTH
def test_times_grow_although_the_clock_stands_still(version: int) -> None:
    access = new_access(new_storage(version))
    instants = [write(access, f"f{i}") for i in range(5)]
    assert instants == sorted(set(instants))
    timeline = access.timeline(access.properties())
    completed = [i.completion_time for i in timeline.completed()]
    if version == 8:
        assert all(c and c > i for c, i in zip(completed, instants, strict=True))
        assert completed == sorted(set(completed))


def test_a_clock_that_went_back_an_hour_keeps_the_order_and_a_day_is_refused() -> None:
    clock = ManualClock(START_MS)
    access = new_access(new_storage(), clock)
    first = write(access, "f1")
    clock.jump_wall(-3_600_000)
    second = write(access, "f2")
    assert second > first
    clock.jump_wall(-86_400_000)
    before = on_disk(access.storage)
    with pytest.raises(ConfigError, match="clock") as refused:
        begin(access, action="commit")
    assert refused.value.context["latest"]
    assert on_disk(access.storage) == before


def test_files_of_failed_task_attempts_go_with_the_commit() -> None:
    access = new_access(new_storage())
    transaction = begin(access, action="commit")
    transaction.start()
    write_file(access.storage, transaction, "a", "f1", token="0-0-1")
    kept = write_file(access.storage, transaction, "a", "f1", token="0-0-2")
    committed = transaction.commit(prepared(access, kept))
    assert [p.rpartition("/")[2] for p in committed.removed_files] == [
        f"f1_0-0-1_{transaction.instant}.parquet"
    ]
    assert visible(access) == {kept.path}
    data = [p for p in on_disk(access.storage) if p.endswith(".parquet")]
    assert data == [kept.path]


def test_a_late_attempt_finds_the_fence_closed() -> None:
    access = new_access(new_storage())
    transaction = begin(access, action="commit")
    transaction.start()
    kept = write_file(access.storage, transaction, "a", "f1")
    transaction.commit(prepared(access, kept))
    with pytest.raises(FencedError) as late:
        write_file(access.storage, transaction, "a", "f1", token="0-0-9")
    assert late.value.retryable
    assert visible(access) == {kept.path}


@BOTH
def test_two_writes_of_one_file_group_conflict_and_the_later_one_loses(version: int) -> None:
    access = new_access(new_storage(version), failed_writes=FailedWrites.LAZY)
    base = write(access, "f1")
    one, two = begin(access, action="commit"), begin(access, action="commit")
    stats = []
    for transaction in (one, two):
        transaction.start()
        stat = write_file(access.storage, transaction, "a", "f1")
        stats.append(prepared(access, replace(stat, prev_commit=base)))
    one.commit(stats[0])
    with pytest.raises(WriteConflictError) as lost:
        two.commit(stats[1])
    assert lost.value.retryable and lost.value.context["other"] == one.instant
    two.abort()
    assert visible(access) == {f"a/f1_0-0-0_{one.instant}.parquet"}


def test_writes_of_new_file_groups_do_not_conflict() -> None:
    access = new_access(new_storage(), failed_writes=FailedWrites.LAZY)
    one, two = begin(access, action="commit"), begin(access, action="commit")
    ready = []
    for number, transaction in enumerate((one, two)):
        transaction.start()
        stat = write_file(access.storage, transaction, "a", f"f{number}")
        ready.append(prepared(access, stat))
    two.commit(ready[1])
    one.commit(ready[0])
    assert len(visible(access)) == 2


@pytest.mark.parametrize(("version", "survives"), [(6, True), (8, False)])
def test_an_overwrite_takes_what_came_before_it_in_the_order_of_the_version(
    version: int, survives: bool
) -> None:
    access = new_access(new_storage(version), failed_writes=FailedWrites.LAZY)
    write(access, "old")
    overwrite = begin(access, action="replacecommit")
    overwrite.start()
    stat = write_file(access.storage, overwrite, "a", "new")
    ready = prepared(access, stat, replaced={"a": ["old"]}, overwritten=frozenset({"a"}))
    between = write(access, "between")
    overwrite.commit(ready)
    expected = {f"a/new_0-0-0_{overwrite.instant}.parquet"}
    if survives:
        expected.add(f"a/between_0-0-0_{between}.parquet")
    assert visible(access) == expected


def test_a_write_that_was_rolled_back_by_another_process_cannot_commit() -> None:
    access = new_access(new_storage())
    transaction = begin(access, action="commit")
    transaction.start()
    stat = write_file(access.storage, transaction, "a", "f1")
    roll_back(access, transaction.instant)
    with pytest.raises(FencedError, match="rolled it back"):
        transaction.commit(prepared(access, stat))
    assert visible(access) == set()


@BOTH
def test_a_write_that_is_being_rolled_back_does_not_become_inflight(version: int) -> None:
    """Its inflight file would be left behind, since the rollback may have removed it already."""
    access = new_access(new_storage(version))
    transaction = begin(access, action="replacecommit")
    with access.locked("rollback") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        target = timeline.pending().instants[0]
        scheduled = schedule_rollback(access, lease, properties, timeline, target)
    with pytest.raises(FencedError):
        transaction.start()
    assert execute_rollback(access, scheduled) is not None
    with pytest.raises(FencedError):
        transaction.start()
    assert [p for p in on_disk(access.storage) if transaction.instant in p] == []


def test_a_write_that_gave_no_sign_of_life_for_too_long_does_not_commit() -> None:
    clock = ManualClock(START_MS)
    options = HeartbeatOptions(interval_ms=1000, misses=2)
    access = new_access(new_storage(), clock, heartbeat=options)
    transaction = begin(access, action="commit")
    transaction.start()
    stat = write_file(access.storage, transaction, "a", "f1")
    clock.advance(2.5)
    with pytest.raises(FencedError, match="sign of life"):
        transaction.commit(prepared(access, stat))
    transaction.abort()
    assert visible(access) == set()


def test_others_are_judged_by_the_larger_tolerance() -> None:
    clock = ManualClock(START_MS)
    options = HeartbeatOptions(interval_ms=1000, misses=2)
    storage = MemoryStorage(MemoryBucket(clock=clock))
    access = new_access(new_storage(storage=storage), clock, heartbeat=options)
    transaction = begin(access, action="commit")
    clock.advance(9.5)
    assert heartbeat_alive(storage, transaction.instant, options, clock)
    clock.advance(1)
    assert not heartbeat_alive(storage, transaction.instant, options, clock)


def _dead_writer(access: Access) -> tuple[str, ProcessIdentity]:
    """A process that died in the middle of a write."""
    who = ProcessIdentity("here", "boot", 99, "5")
    assert isinstance(access.processes, KnownProcesses)
    theirs = replace(access, processes=KnownProcesses(own=who))
    transaction = begin(theirs, action="commit")
    transaction.start()
    write_file(access.storage, transaction, "a", "dead")
    return transaction.instant, who


@BOTH
def test_an_eager_writer_rolls_back_what_a_dead_process_left(version: int) -> None:
    processes = KnownProcesses()
    access = new_access(new_storage(version), processes=processes)
    instant, who = _dead_writer(access)
    processes.dead.add(who)
    kept = write(access, "f1")
    assert [p for p in on_disk(access.storage) if instant in p] == []
    assert visible(access) == {f"a/f1_0-0-0_{kept}.parquet"}


def test_a_writer_that_lives_is_not_rolled_back() -> None:
    access = new_access(new_storage())
    instant, _ = _dead_writer(access)
    write(access, "f1")
    assert any(instant in p for p in on_disk(access.storage))
    assert roll_back_failed(access).rolled_back == ()


def test_a_lazy_writer_cleans_up_after_its_commit_and_never_means_never() -> None:
    processes = KnownProcesses()
    lazy = new_access(new_storage(), processes=processes, failed_writes=FailedWrites.LAZY)
    instant, who = _dead_writer(lazy)
    processes.dead.add(who)
    never = replace(lazy, failed_writes=FailedWrites.NEVER)
    write(never, "f1")
    assert any(instant in p for p in on_disk(lazy.storage))
    write(lazy, "f2")
    assert not any(instant in p for p in on_disk(lazy.storage))


def test_markers_that_were_lost_do_not_leave_files_behind() -> None:
    processes = KnownProcesses()
    access = new_access(new_storage(), processes=processes)
    instant, who = _dead_writer(access)
    access.storage.delete_tree(f".hoodie/.temp/{instant}")
    processes.dead.add(who)
    assert roll_back_failed(access).rolled_back == (instant,)
    assert [p for p in on_disk(access.storage) if instant in p] == []


def test_a_heartbeat_without_a_write_is_swept_once_it_is_silent() -> None:
    clock = ManualClock(START_MS)
    storage = MemoryStorage(MemoryBucket(clock=clock))
    access = new_access(new_storage(storage=storage), clock)
    storage.replace(".hoodie/.heartbeat/20250101000000000", b"")
    assert sweep_traces(access) == 0
    clock.advance(3600)
    assert sweep_traces(access) == 1
    assert not storage.exists(".hoodie/.heartbeat/20250101000000000")


def test_a_held_lock_names_its_holder() -> None:
    registry = Registry()
    clock = ManualClock(START_MS)
    lock = InProcessLock("t", clock=clock, registry=registry)
    access = new_access(new_storage(), clock, lock=lock)
    lock.try_acquire("the nightly job")
    before = on_disk(access.storage)
    with pytest.raises(LockHeldError, match="the nightly job"):
        begin(access, action="commit")
    assert on_disk(access.storage) == before


def test_a_lock_that_is_lost_while_committing_publishes_nothing() -> None:
    registry = Registry()
    clock = ManualClock(START_MS)
    lock = InProcessLock("t", clock=clock, registry=registry)
    access = new_access(new_storage(), clock, lock=lock)
    transaction = begin(access, action="commit")
    transaction.start()
    stat = write_file(access.storage, transaction, "a", "f1")

    def lose(timeline: object) -> None:
        lease = registry.holder("t")
        assert lease is not None
        lease.release()

    with pytest.raises(LockLostError):
        transaction.commit(replace(prepared(access, stat), guard=lose))
    transaction.abort()
    assert visible(access) == set() and [p for p in on_disk(access.storage) if "a/f1" in p] == []


def test_a_pending_restore_stops_every_write() -> None:
    access = new_access(new_storage())
    files = InstantFiles(access.storage, access.properties(), access.random)
    files.request("20250101000000000", "restore")
    with pytest.raises(TableError, match="restored"):
        begin(access, action="commit")


@BOTH
def test_a_commit_whose_answer_was_lost_is_found_to_be_committed(version: int) -> None:
    bucket = MemoryBucket()
    probe = new_access(new_storage(version, storage=MemoryStorage(bucket)))
    write(probe, "f1")

    class LoseCompletion:
        def before(self, operation: object) -> None:
            return None

        def after(self, operation: object) -> None:
            name = str(getattr(operation, "path", "")).rpartition("/")[2]
            created = getattr(operation, "name", "") == "create_if_absent"
            if created and name.endswith(".commit"):
                raise OutcomeUnknownError("lost", hint="look", retryable=True)

        def view(self, operation: object, newest: int) -> int:
            return newest

    access = replace(probe, storage=MemoryStorage(bucket, faults=LoseCompletion()))
    instant = write(access, "f2")
    assert f"a/f2_0-0-0_{instant}.parquet" in visible(probe)


def test_checkpoints_of_streams_are_carried_forward_and_found() -> None:
    access = new_access(new_storage())
    transaction = begin(access, action="commit")
    transaction.start()
    extra = {STREAMER_KEYS[0]: "kafka,0:5", **sink_checkpoint("one", 3)}
    ready = prepared(access, write_file(access.storage, transaction, "a", "f1"))
    transaction.commit(replace(ready, metadata=replace(ready.metadata, extra_metadata=extra)))
    write(access, "f2")
    properties = access.properties()
    timeline = access.timeline(properties)
    last = timeline.completed().last()
    assert last is not None
    found = load_commit_metadata(access.storage, properties, last).extra_metadata
    assert found[STREAMER_KEYS[0]] == "kafka,0:5" and found[SINK_KEY] == '{"one":"3"}'
    assert committed_batch(access.storage, properties, timeline, "one") == 3
    assert committed_batch(access.storage, properties, timeline, "two") is None


def test_the_mark_tells_whether_others_write_the_table() -> None:
    access = new_access(new_storage())
    write(access, "f1")
    properties = access.properties()
    timeline = access.timeline(properties)
    assert is_alone(access.storage, properties, timeline)
    last = timeline.completed().last()
    assert last is not None
    extra = load_commit_metadata(access.storage, properties, last).extra_metadata
    assert extra[WRITER_KEY] and extra[ALONE_KEY] == "true"
    files = InstantFiles(access.storage, properties, access.random)
    foreign = "29990101000000000"
    files.request(foreign, "commit")
    assert not is_alone(access.storage, properties, access.timeline(properties))
    files.start(foreign, "commit")
    files.complete(foreign, "commit", CommitMetadata().write(properties.version), foreign)
    assert not is_alone(access.storage, properties, access.timeline(properties))


@BOTH
@pytest.mark.parametrize("effect", [False, True])
def test_a_crash_at_any_storage_operation_leaves_the_old_or_the_new_snapshot(
    version: int, effect: bool
) -> None:
    indexes = 0
    while True:
        bucket = MemoryBucket()
        storage = new_storage(version, storage=MemoryStorage(bucket))
        processes = KnownProcesses()
        survivor = new_access(storage, processes=processes, lock=_own_lock())
        first = write(survivor, "f1")
        old = {f"a/f1_0-0-0_{first}.parquet"}
        who = ProcessIdentity("here", "boot", 77, "1")
        plan = FaultPlan({indexes: crash(effect=effect)})
        dying = replace(
            survivor,
            storage=MemoryStorage(bucket, faults=plan),
            processes=KnownProcesses(own=who),
            lock=_own_lock(),
        )
        try:
            write(dying, "f2")
        except SimulatedCrash:
            pass
        else:
            break
        processes.dead.add(who)
        seen = visible(survivor)
        assert seen == old or (len(seen) == 2 and seen > old), indexes
        third = write(survivor, "f3")
        sweep_traces(survivor)
        after = visible(survivor)
        assert after == seen | {f"a/f3_0-0-0_{third}.parquet"}, indexes
        data = {p for p in on_disk(storage) if p.endswith(".parquet")}
        assert data == after, indexes
        pending = survivor.timeline(survivor.properties()).pending()
        assert len(pending) == 0, indexes
        left = [p for p in on_disk(storage) if "/.temp/" in p or "/.heartbeat/" in p]
        assert left == [], indexes
        indexes += 1
    assert indexes > 20


def _own_lock() -> InProcessLock:
    """A lock that dies with its process, as a lease does."""
    return InProcessLock("t", clock=ManualClock(START_MS), registry=Registry())


@pytest.mark.parametrize("lost", [True, False])
def test_what_looks_damaged_to_who_lost_the_lock_is_told_as_that(lost: bool) -> None:
    access = new_access(new_storage())

    def look() -> None:
        with access.locked("a look") as lease:
            if lost:
                lease.release()
            raise CorruptFileError("A file is gone.", hint="Restore it.")

    with pytest.raises(LockLostError if lost else CorruptFileError):
        look()
