"""Rollbacks: what is planned, what is undone, and who may do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from lakewright.errors import ConflictError, FencedError
from lakewright.format.instant import Instant, State
from lakewright.format.log_block import BlockType, HeaderKey, encode_block, read_blocks
from lakewright.format.partitions import format_partition_metadata
from lakewright.format.records import (
    CommitMetadata,
    RollbackMetadata,
    RollbackRequest,
    WriteStat,
    load_rollback_metadata,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.runtime import ManualClock
from lakewright.storage.base import Storage
from lakewright.storage.faults import NoFaults, Operation
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.txn.access import Access
from lakewright.txn.markers import Marker, MarkerType, create_marker
from lakewright.txn.recovery import roll_back, roll_back_failed
from lakewright.txn.rollback import (
    PendingRollback,
    execute_rollback,
    pending_rollbacks,
    schedule_rollback,
)
from lakewright.txn.undoing import undo
from tests.txn.tables import START_MS, new_access, new_storage, on_disk, write

BASE, TARGET = "20250101000000000", "20250102000000000"
LOG = f".g-0_{BASE}.log.1_0-1-1"


def _appended(markers: bool, access: Access | None = None) -> Access:
    """A version 6 table on which a dead delta commit appended to a log of an older slice."""
    access = access or new_access(MemoryStorage())
    new_storage(6, "mor", access.storage)
    storage, files = access.storage, access.files(access.properties())
    files.request(BASE, "deltacommit")
    files.start(BASE, "deltacommit")
    files.complete(BASE, "deltacommit", CommitMetadata().write(files.properties.version), BASE)
    storage.replace("a/.hoodie_partition_metadata", format_partition_metadata(BASE, 1, now_ms=0))
    storage.replace(f"a/g-0_0-0-0_{BASE}.parquet", b"base")
    storage.replace(f"a/{LOG}", encode_block(BlockType.AVRO_DATA, _headers(TARGET), b""))
    files.request(TARGET, "deltacommit")
    stats = {"a": [WriteStat(file_id="g-0", prev_commit=BASE), WriteStat(file_id="")]}
    profile = CommitMetadata(partition_to_write_stats=stats)
    files.start(TARGET, "deltacommit", profile.write(files.properties.version))
    storage.replace(f"a/n-0_0-0-0_{TARGET}.parquet", b"new")
    if markers:
        create_marker(storage, TARGET, Marker("a", LOG, MarkerType.APPEND))
        new = Marker("a", f"n-0_0-0-0_{TARGET}.parquet", MarkerType.CREATE)
        create_marker(storage, TARGET, new)
    return access


def _scheduled(
    access: Access, properties: TableProperties, timeline: Timeline, target: Instant
) -> PendingRollback:
    with access.locked("test") as lease:
        return schedule_rollback(access, lease, properties, timeline, target)


def _planned(access: Access) -> PendingRollback:
    """The rollback of the target, scheduled."""
    properties = access.properties()
    timeline = access.timeline(properties)
    target = timeline.get(TARGET, "deltacommit")
    assert target is not None
    return _scheduled(access, properties, timeline, target)


def _headers(instant: str) -> dict[HeaderKey, str]:
    return {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: '"string"'}


@pytest.mark.parametrize("markers", [True, False])
def test_version_6_undoes_appended_blocks_by_a_command_block(markers: bool) -> None:
    access = _appended(markers)
    assert roll_back(access, TARGET).rolled_back == (TARGET,)
    storage = access.storage
    command = f"a/.g-0_{BASE}.log.2_1-0-1"
    (block,) = read_blocks(storage.read(command), path=command)
    assert block.type is BlockType.COMMAND and block.target_instant == TARGET
    assert storage.exists(f"a/{LOG}") and not storage.exists(f"a/n-0_0-0-0_{TARGET}.parquet")
    done = _last_rollback(access)
    assert done.commits_rollback == [TARGET]
    partition = done.partition_metadata["a"]
    assert [p.rpartition("/")[2] for p in partition.rollback_log_files or {}] == [
        command.rpartition("/")[2]
    ]
    assert [p.rpartition("/")[2] for p in partition.log_files_from_failed_commit or {}] == [LOG]
    assert not any(TARGET in p for p in on_disk(storage))


class _Alone:
    """The watch of a process that nobody takes anything from."""

    def check(self) -> None:
        """It is its own."""


def test_logs_of_the_failed_write_are_told_with_their_sizes_whatever_a_plan_says() -> None:
    access = _appended(markers=True)
    pending = _planned(access)
    gone = f"a/.never-0_{BASE}.log.1_0-0-0"

    def like_hudi(request: RollbackRequest) -> RollbackRequest:
        logs = request.log_blocks_to_be_deleted
        if not logs:
            return request
        return replace(request, log_blocks_to_be_deleted=dict.fromkeys([*logs, gone], 1))

    requests = [like_hudi(request) for request in pending.plan.rollback_requests or ()]
    plan = replace(pending.plan, rollback_requests=requests)
    done = undo(access, access.properties(), replace(pending, plan=plan), _Alone())
    told = done.partition_metadata["a"].log_files_from_failed_commit or {}
    size = access.storage.stat(f"a/{LOG}").size
    assert size > 1 and {p.rpartition("/")[2]: n for p, n in told.items()} == {LOG: size}


OLDEST = "20241231000000000"


def _undone_base(access: Access) -> Access:
    """The same table after the slice that the log is behind was taken back."""
    properties = access.properties()
    files = access.files(properties)
    files.request(OLDEST, "deltacommit")
    files.start(OLDEST, "deltacommit")
    files.complete(OLDEST, "deltacommit", CommitMetadata().write(properties.version), OLDEST)
    for instant in access.timeline(properties).filter(lambda i: i.requested_time == BASE):
        files.drop(instant)
    files.remove(BASE, "deltacommit")
    access.storage.delete(f"a/g-0_0-0-0_{BASE}.parquet")
    return access


def test_a_log_behind_what_was_taken_back_meanwhile_goes_with_its_write() -> None:
    access = _undone_base(_appended(markers=True))
    assert roll_back(access, TARGET).rolled_back == (TARGET,)
    assert not any(".log." in path for path in on_disk(access.storage))
    partition = _last_rollback(access).partition_metadata["a"]
    gone = [path.rpartition("/")[2] for path in partition.success_delete_files]
    assert LOG in gone and not partition.rollback_log_files
    assert not partition.log_files_from_failed_commit


def test_a_log_that_others_put_behind_the_target_goes_with_the_target() -> None:
    access = _appended(markers=True)
    late = f"a/.n-0_{TARGET}.log.1_0-1-1"
    properties = access.properties()
    target = access.timeline(properties).get(TARGET, "deltacommit")
    assert target is not None
    rollback = _scheduled(access, properties, access.timeline(properties), target)
    comes_late = MemoryStorage(access.storage.bucket, faults=_ComesLate(access.storage, late))  # type: ignore[attr-defined]
    assert execute_rollback(replace(access, storage=comes_late), rollback) is not None
    assert not access.storage.exists(late)


class _ComesLate(NoFaults):
    """A log that another process publishes after a rollback has looked for late files."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._listed = 0

    def after(self, operation: Operation) -> None:
        """Publish it when the partition was listed for the last time outside the lock."""
        if operation.name == "list" and operation.path == "a":
            self._listed += 1
            if self._listed == 2:
                self._storage.replace(self._path, b"")


class _StandsStill(NoFaults):
    """A process that stands still for an hour, before or after it writes a command block."""

    def __init__(
        self, clock: ManualClock, *, effect: bool, others: Callable[[], None] | None
    ) -> None:
        self._clock = clock
        self._effect = effect
        self._others = others

    def before(self, operation: Operation) -> None:
        """Stand still before the block is there."""
        if not self._effect:
            self._stand(operation)

    def after(self, operation: Operation) -> None:
        """Stand still when it is."""
        if self._effect:
            self._stand(operation)

    def _stand(self, operation: Operation) -> None:
        if operation.name == "create_if_absent" and operation.path.endswith(".log.2_1-0-1"):
            self._clock.advance(3600)
            if self._others is not None:
                others, self._others = self._others, None
                others()


def _finish(access: Access, *, silently: bool) -> None:
    """What another process does: it rolls back, or it had done so and completes the rollback."""
    if not silently:
        assert roll_back_failed(access).rolled_back == (TARGET,)
        return
    properties = access.properties()
    rollback = access.timeline(properties).filter_actions("rollback").pending().last()
    assert rollback is not None
    files = access.files(properties)
    time = rollback.requested_time
    done = RollbackMetadata(
        start_rollback_time=time,
        time_taken_in_millis=1,
        total_files_deleted=0,
        commits_rollback=[TARGET],
        partition_metadata={},
    )
    files.remove(TARGET, "deltacommit")
    files.complete(time, "rollback", done.write(properties.version), time)


@pytest.mark.parametrize("effect", [True, False])
@pytest.mark.parametrize("silently", [None, False, True])
def test_a_late_command_block_goes_only_if_the_rollback_was_finished_without_it(
    effect: bool, silently: bool | None
) -> None:
    clock = ManualClock(START_MS)
    bucket = MemoryBucket(clock=clock)
    access = _appended(markers=True, access=new_access(MemoryStorage(bucket), clock))
    others = None if silently is None else partial(_finish, access, silently=silently)
    late = MemoryStorage(bucket, faults=_StandsStill(clock, effect=effect, others=others))
    with pytest.raises(FencedError):
        roll_back(replace(access, storage=late), TARGET)
    path = f"a/.g-0_{BASE}.log.2_1-0-1"
    assert access.storage.exists(path) == (silently is not True)
    if silently is None:
        assert roll_back_failed(access).rolled_back == (TARGET,)
    parts = _last_rollback(access).partition_metadata
    told = (parts["a"].rollback_log_files or {}) if parts else {}
    assert any(log.endswith(path) for log in told) == (silently is not True)


def _last_rollback(access: Access) -> RollbackMetadata:
    properties = access.properties()
    last = access.timeline(properties).filter_actions("rollback").completed().last()
    assert last is not None
    return load_rollback_metadata(access.storage, properties, last)


def test_a_rollback_that_died_is_finished_by_the_next_process_under_the_same_instant() -> None:
    access = _appended(markers=True)
    scheduled = _planned(access)
    access.files(access.properties()).start(scheduled.instant, "rollback")
    access.storage.delete(f"a/n-0_0-0-0_{TARGET}.parquet")
    assert roll_back_failed(access).rolled_back == (TARGET,)
    rollbacks = access.timeline(access.properties()).filter_actions("rollback")
    assert [i.requested_time for i in rollbacks] == [scheduled.instant]
    assert execute_rollback(access, scheduled) is None


def test_a_rollback_whose_target_is_already_off_the_timeline_is_completed() -> None:
    access = _appended(markers=True)
    properties = access.properties()
    timeline = access.timeline(properties)
    target = timeline.get(TARGET, "deltacommit")
    assert target is not None
    _scheduled(access, properties, timeline, target)
    access.files(properties).remove(TARGET, "deltacommit")
    assert roll_back_failed(access).rolled_back == (TARGET,)
    assert access.timeline(properties).pending().instants == ()


def test_at_most_one_rollback_of_a_target_is_ever_pending() -> None:
    access = _appended(markers=True)
    properties = access.properties()
    timeline = access.timeline(properties)
    target = timeline.get(TARGET, "deltacommit")
    assert target is not None
    scheduled = _scheduled(access, properties, timeline, target)
    found = pending_rollbacks(access, properties, access.timeline(properties))
    assert found[TARGET].instant == scheduled.instant
    roll_back(access, TARGET)
    assert len(access.timeline(properties).filter_actions("rollback")) == 1


def test_a_rollback_that_another_process_executes_is_left_to_it() -> None:
    clock = ManualClock(START_MS)
    storage = new_storage(8, storage=MemoryStorage(MemoryBucket(clock=clock)))
    access = new_access(storage, clock)
    files = access.files(access.properties())
    files.request(TARGET, "commit")
    files.start(TARGET, "commit")
    properties = access.properties()
    target = access.timeline(properties).get(TARGET, "commit")
    assert target is not None
    scheduled = _scheduled(access, properties, access.timeline(properties), target)
    storage.replace(f".hoodie/.heartbeat/{scheduled.instant}", b"")
    assert execute_rollback(access, scheduled) is None
    clock.advance(3600)
    assert execute_rollback(access, scheduled) is not None


def test_a_write_that_commits_under_its_rollback_is_told_loudly() -> None:
    access = new_access(new_storage(8))
    files = access.files(access.properties())
    files.request(TARGET, "commit")
    files.start(TARGET, "commit")
    properties = access.properties()
    target = access.timeline(properties).get(TARGET, "commit")
    assert target is not None and target.state is State.INFLIGHT
    scheduled = _scheduled(access, properties, access.timeline(properties), target)
    # A writer that does not take the lock.
    content = CommitMetadata().write(properties.version)
    files.complete(TARGET, "commit", content, "20250102000000001")
    with pytest.raises(ConflictError, match="committed while it was rolled back"):
        execute_rollback(access, scheduled)


def test_rolling_back_what_is_not_pending_does_nothing() -> None:
    access = new_access(new_storage(8))
    instant = write(access, "f1")
    assert roll_back(access, instant).rolled_back == ()
    assert roll_back(replace(access), "20990101000000000").rolled_back == ()
