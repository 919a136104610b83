"""Archiving runs: nothing is lost, nothing appears, wherever a run dies and whoever reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lakewright.engine.options import ReadOptions
from lakewright.errors import CorruptFileError, LockHeldError, LockLostError, UnsupportedTableError
from lakewright.format import property_keys as keys
from lakewright.format.archived_timeline import archived_instants, archived_times
from lakewright.format.history import current_history
from lakewright.format.history_writing import HistoryPolicy
from lakewright.format.instant import COMMIT_ACTIONS
from lakewright.format.properties import update_properties
from lakewright.format.records import (
    CleanerPlan,
    CleanMetadata,
    CommitMetadata,
    CompactionPlan,
    InstantInfo,
    RollbackMetadata,
    RollbackPlan,
    SavepointMetadata,
)
from lakewright.format.view_inputs import load_replaced
from lakewright.runtime import ManualClock, SeededRandom
from lakewright.runtime.cancel import CancelToken
from lakewright.runtime.events import Event
from lakewright.services.archive import ARCHIVED, run_archive
from lakewright.services.archive_options import ArchiveOptions
from lakewright.services.archive_plan import LimitKind
from lakewright.services.clean_options import CleanOptions
from lakewright.storage.faults import FaultPlan, SimulatedCrash, crash
from lakewright.storage.local import LocalStorage
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.table import Table
from lakewright.txn.access import Access, FailedWrites
from lakewright.txn.locks.in_process import InProcessLock
from lakewright.txn.markers import MARKER_FOLDER, Marker, MarkerType, create_marker
from lakewright.txn.times import next_time
from lakewright.txn.transaction import begin
from tests.corpus import CommittedTable, committed_tables
from tests.txn.tables import START_MS, new_access, new_storage, prepared, visible, write, write_file

OPTIONS = ArchiveOptions(
    keep_min_commits=2,
    keep_max_commits=3,
    clean=CleanOptions(commits_retained=1),
    history=HistoryPolicy(join_files=2, manifests_kept=1),
    batch_instants=2,
)
VERSIONS = pytest.mark.parametrize("version", [6, 8])
History = set[tuple[str, str | None, str]]


class World:
    """A table in memory on one clock."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.clock = ManualClock(START_MS)
        self.bucket = MemoryBucket(clock=self.clock)
        self.storage = MemoryStorage(self.bucket)

    @classmethod
    def new(cls, version: int) -> World:
        """A copy of the table that most tests begin with."""
        world = cls(version)
        for path, content, modified_ms in _start(version):
            world.storage.replace(path, content)
            world.storage.set_modified(path, modified_ms)
        world.clock.advance(100)
        return world

    def access(self, storage: MemoryStorage | None = None, **more: Any) -> Access:
        """The means to change it, each with a lock of its own: a dead process holds none."""
        more.setdefault("random", SeededRandom(self.bucket.changes))
        return new_access(storage or self.storage, self.clock, **more)

    def archive(self, options: ArchiveOptions = OPTIONS, **more: Any) -> int:
        """A whole run; how many instants went."""
        return run_archive(self.access(**more), options).archived

    def commit(self, file_id: str) -> str:
        """A write of one file."""
        self.clock.advance(1)
        return write(self.access(), file_id)

    def overwrite(self, file_id: str, replaced: str) -> str:
        """A write of one file that replaces a file group."""
        self.clock.advance(1)
        access = self.access()
        transaction = begin(access, action="replacecommit")
        transaction.start()
        stat = write_file(self.storage, transaction, "a", file_id)
        transaction.commit(prepared(access, stat, replaced={"a": [replaced]}))
        return transaction.instant

    def service(self, action: str, plan: bytes, result: bytes | None) -> str:
        """An action that was planned and done by somebody else; pending without a result."""
        self.clock.advance(1)
        access = self.access()
        properties = access.properties()
        timeline = access.timeline(properties)
        instant = next_time(timeline, properties, self.clock)
        files = access.files(properties)
        files.request(instant, action, plan)
        files.start(instant, action, plan if action == "clean" else b"")
        if result is not None:
            self.clock.advance(0.1)
            done_at = next_time(timeline, properties, self.clock, after=instant)
            files.complete(instant, action, result, done_at)
        return instant

    def clean(self) -> str:
        """A clean that deleted nothing."""
        v = self.access().properties().version
        done = CleanMetadata(
            start_clean_time="1",
            time_taken_in_millis=1,
            total_files_deleted=0,
            earliest_commit_to_retain="",
            partition_metadata={},
        )
        return self.service("clean", CleanerPlan(policy="X").write(v), done.write(v))

    def rollback(self) -> str:
        """A rollback of something that is gone."""
        v = self.access().properties().version
        plan = RollbackPlan(instant_to_rollback=InstantInfo(commit_time="1", action="commit"))
        done = RollbackMetadata(
            start_rollback_time="1",
            time_taken_in_millis=1,
            total_files_deleted=0,
            commits_rollback=["1"],
            partition_metadata={},
        )
        return self.service("rollback", plan.write(v), done.write(v))

    def compact(self) -> str:
        """A compaction that wrote nothing."""
        v = self.access().properties().version
        done = CommitMetadata(operation_type="COMPACT", compacted=True)
        return self.service("compaction", CompactionPlan(operations=[]).write(v), done.write(v))

    def tell_columns(self) -> str:
        """A write that tells the columns of the table, which the others here do not."""
        told = CommitMetadata(operation_type="UPSERT", extra_metadata={"schema": '"string"'})
        return self.service("commit", b"", told.write(self.access().properties().version))

    def savepoint(self, instant: str) -> str:
        """Keep the state of a commit; the path of the savepoint."""
        access = self.access()
        properties = access.properties()
        files = access.files(properties)
        files.start(instant, "savepoint")
        kept = SavepointMetadata(
            savepointed_by="t", savepointed_at=1, comments="", partition_metadata={}
        )
        completed = next_time(access.timeline(properties), properties, self.clock)
        return files.complete(instant, "savepoint", kept.write(properties.version), completed)

    def state(self) -> tuple[set[str], History, list[str]]:
        """What readers see, every completed instant wherever it is, and what is pending."""
        access = self.access()
        properties = access.properties()
        timeline = access.timeline(properties)
        history = {(i.requested_time, i.completion_time, i.action) for i in timeline.completed()}
        for row in archived_times(self.storage, properties).to_pylist():
            history.add((row["requested_time"], row["completion_time"], row["action"]))
        return visible(access), history, [str(i) for i in timeline.pending()]

    def active(self) -> list[str]:
        """Names of the state files."""
        folder = self.access().properties().timeline_folder
        return sorted(
            i.name for i in self.storage.list(folder) if not i.is_dir and i.name[0].isdigit()
        )

    def archived(self) -> list[tuple[str, str, bool, bool]]:
        """Time, action, and whether metadata and plan are there, of all archived instants."""
        found = archived_instants(self.storage, self.access().properties())
        return [
            (i.requested_time, i.action, i.metadata is not None, i.plan is not None) for i in found
        ]

    def check_no_hole(self) -> None:
        """Of all commits, those that are active are the newest."""
        access = self.access()
        commits = access.timeline(access.properties()).commits().completed()
        every = sorted(t for t, _, action in self.state()[1] if action in COMMIT_ACTIONS)
        active = [i.requested_time for i in commits]
        assert active == every[-len(active) :]


@cache
def _start(version: int) -> list[tuple[str, bytes, int]]:
    """Six commits of all kinds, with a clean and a rollback, and a marker folder left behind."""
    world = World(version)
    new_storage(version, "mor", storage=world.storage)
    first = world.commit("f0-0")
    world.clean()
    world.overwrite("f1-0", "f0-0")
    for info in world.storage.list("a"):
        if info.name.startswith("f0-0"):  # As a clean would have done.
            world.storage.delete(info.path)
    world.rollback()
    world.compact()
    world.commit("f2-0")
    world.clean()
    world.commit("f3-0")
    world.commit("f4-0")
    create_marker(world.storage, first, Marker("a", "left", MarkerType.CREATE))
    return [(i.path, world.storage.read(i.path), i.modified_ms) for i in world.storage.walk()]


# ---- a whole run -------------------------------------------------------------------------------


@VERSIONS
def test_the_oldest_instants_move_and_readers_see_the_same(version: int) -> None:
    world = World.new(version)
    before = world.state()
    events: list[Event] = []
    result = run_archive(world.access(on_event=events.append), OPTIONS)
    assert world.state() == before
    world.check_no_hole()
    moved = [i.action for i in result.plan.instants]
    services = ["clean", "rollback"] if version == 8 else []
    assert sorted(moved) == sorted(["commit", "replacecommit", "commit", "commit", *services])
    assert [a for _, a, _, _ in world.archived()] == moved
    assert all(metadata for _, _, metadata, _ in world.archived())
    planned = {a for _, a, _, plan in world.archived() if plan}
    assert planned == ({"commit", "clean", "replacecommit"} if version == 8 else {"commit"})
    assert result.archived == len(moved) and result.batches == len(moved) // 2
    assert result.removed_files == 3 * len(moved)
    told = [(e.done, e.total) for e in events if e.kind == ARCHIVED]
    assert told == [(n, len(moved)) for n in range(2, len(moved) + 1, 2)]
    assert not list(world.storage.walk(MARKER_FOLDER))
    assert world.archive() == 0


@VERSIONS
def test_the_records_of_archived_instants_are_those_of_the_active_ones(version: int) -> None:
    world = World.new(version)
    access = world.access()
    properties = access.properties()
    active = {
        i.requested_time: CommitMetadata.read(
            world.storage.read(f"{properties.timeline_folder}/{i.file_name}")
        )
        for i in access.timeline(properties).commits().completed()
    }
    world.archive()
    for instant in archived_instants(world.storage, properties):
        if instant.action not in COMMIT_ACTIONS:
            continue
        assert isinstance(instant.metadata, CommitMetadata)
        was = active[instant.requested_time]
        assert instant.metadata.operation_type == was.operation_type
        assert instant.metadata.partition_to_replace_file_ids == was.partition_to_replace_file_ids
        paths = [s.path for s in instant.metadata.write_stats]
        assert paths == [s.path for s in was.write_stats]


@VERSIONS
def test_a_dry_run_tells_the_plan_and_changes_nothing(version: int) -> None:
    world = World.new(version)
    changes = world.bucket.changes
    told = run_archive(world.access(), OPTIONS, dry_run=True)
    assert told.dry_run and told.archived == 0 and world.bucket.changes == changes
    assert run_archive(world.access(), OPTIONS).plan == told.plan


@VERSIONS
def test_many_runs_keep_the_whole_history_and_tidy_it(version: int) -> None:
    world = World.new(version)
    levels = 0
    for n in range(8):
        world.commit(f"g{n}-0")
        before = world.state()
        levels = max(levels, run_archive(world.access(), OPTIONS).joined_levels)
        assert world.state() == before
        world.check_no_hole()
    properties = world.access().properties()
    if version == 8:
        assert levels >= 2
        named = {f.name for f in current_history(world.storage, properties).files}
        kept = {i.name for i in world.storage.list(properties.history_folder)}
        assert len([n for n in kept if n.startswith("manifest_")]) <= 1 + levels
        assert named <= kept and len(named) < 5


# ---- a run that dies ---------------------------------------------------------------------------


def crashes(version: int, stride: int = 1) -> Iterator[tuple[int, World]]:
    """A world for every storage operation of a run, or some, after which the process died."""
    index = 0
    while True:
        world = World.new(version)
        dying = MemoryStorage(world.bucket, faults=FaultPlan({index: crash(effect=True)}))
        try:
            run_archive(world.access(dying), OPTIONS)
        except SimulatedCrash:
            yield index, world
        else:
            return
        index += stride


@VERSIONS
def test_a_run_that_dies_anywhere_changes_nothing_and_is_finished_by_the_next(
    version: int,
) -> None:
    whole = World.new(version)
    before = whole.state()
    whole.archive()
    changes = count = 0
    for index, world in crashes(version):
        count += 1
        if world.bucket.changes == changes:  # Only read since the last crash.
            continue
        changes = world.bucket.changes
        assert world.state() == before, index
        world.check_no_hole()
        world.archive()
        assert world.state() == before, index
        assert world.active() == whole.active(), index
        assert world.archived() == whole.archived(), index
    assert count > 30


@VERSIONS
def test_a_dead_run_is_finished_although_nothing_is_due(version: int) -> None:
    patient = replace(OPTIONS, keep_max_commits=50)
    seen = 0
    for index, world in crashes(version, stride=5):
        before, active = world.state(), len(world.active())
        begun = len(world.archived())
        gone = world.archive(patient)
        assert gone == 0 or begun, index
        assert world.state() == before, index
        access = world.access()
        twice = {time for time, *_ in world.archived()} & {
            i.requested_time for i in access.timeline(access.properties())
        }
        assert not twice, index
        seen += len(world.active()) < active
    assert seen


@VERSIONS
def test_a_savepoint_that_was_made_after_a_crash_keeps_its_commit(version: int) -> None:
    for _, world in crashes(version, stride=3):
        access = world.access()
        first = access.timeline(access.properties()).commits().completed().first()
        begun = {time for time, *_ in world.archived()}
        if first is None or first.requested_time not in begun:
            continue
        world.savepoint(first.requested_time)
        before = world.state()
        world.archive()
        assert world.state() == before
        assert any(n.startswith(first.requested_time) for n in world.active())
        return
    pytest.fail("no crash left an instant in both places")


@VERSIONS
def test_what_cleaning_retains_is_not_archived(version: int) -> None:
    world = World.new(version)
    world.commit("h0-0")
    options = replace(OPTIONS, clean=CleanOptions(commits_retained=4))
    assert run_archive(world.access(), options).plan.keep_min == 5
    access = world.access()
    assert len(access.timeline(access.properties()).commits()) == 5


# ---- limits that files tell --------------------------------------------------------------------


@VERSIONS
def test_a_reader_that_listed_the_timeline_before_still_finds_what_was_replaced(
    version: int,
) -> None:
    world = World.new(version)
    access = world.access()
    properties = access.properties()
    listed = access.timeline(properties)
    before = load_replaced(world.storage, properties, listed)
    assert before
    assert world.archive() > 0
    now = access.timeline(properties).filter_actions("replacecommit").completed()
    assert len(now) < len(listed.filter_actions("replacecommit").completed())
    assert load_replaced(world.storage, properties, listed) == before


@VERSIONS
def test_a_replacement_stays_until_its_replaced_files_are_cleaned(version: int) -> None:
    world = World.new(version)
    at = world.overwrite("h0-0", "f4-0")
    for n in range(1, 6):
        world.commit(f"h{n}-0")
    before = world.state()
    told = run_archive(world.access(), OPTIONS).plan
    assert world.state() == before
    assert told.blocked_by is not None and told.blocked_by.kind is LimitKind.REPLACED_FILES
    assert any(n.startswith(at) for n in world.active())
    for info in world.storage.list("a"):
        if info.name.startswith("f4-0"):
            world.storage.delete(info.path)
    before = world.state()
    assert world.archive()
    assert world.state() == before
    assert not any(n.startswith(at) for n in world.active())


@VERSIONS
@pytest.mark.parametrize("saved", [False, True])
def test_a_commit_that_tells_the_columns_stays(version: int, saved: bool) -> None:
    """Hudi takes no columns from compactions: a restore would lose those that came later."""
    world = World.new(version)
    telling = world.tell_columns()
    compacted = [world.compact() for _ in range(4)]
    if saved:
        world.savepoint(compacted[0])
        for _ in range(5):
            world.tell_columns()
    before = world.state()
    plan = run_archive(world.access(), OPTIONS).plan
    assert plan.instants
    assert plan.limits[0].kind is LimitKind.SCHEMA
    assert world.state() == before
    assert any(n.startswith(telling) for n in world.active())
    world.check_no_hole()


@VERSIONS
def test_an_orphan_of_a_dead_write_never_becomes_visible(version: int) -> None:
    world = World.new(version)
    world.clock.advance(1)
    dead = begin(world.access(), action="deltacommit")
    dead.start()
    write_file(world.storage, dead, "a", "orphan-0")
    never = world.access(failed_writes=FailedWrites.NEVER)
    for n in range(5):
        world.clock.advance(1)
        write(never, f"h{n}-0")
        before = world.state()
        told = run_archive(world.access(), OPTIONS).plan
        assert world.state() == before
        assert all(i.requested_time < dead.instant for i in told.instants)
    assert not any("orphan" in path for path in world.state()[0])


@VERSIONS
def test_a_pending_rollback_without_a_plan_and_a_restore_stop_archiving(version: int) -> None:
    for action in ("rollback", "restore"):
        world = World.new(version)
        world.service(action, b"", None)
        assert world.archive() == 0


@VERSIONS
def test_a_metadata_table_must_have_been_compacted_since(version: int) -> None:
    world = World.new(version)
    commits = world.access().timeline(world.access().properties()).commits().completed()
    update_properties(world.storage, {keys.METADATA_PARTITIONS: "files"}, clock=world.clock)
    assert world.archive() == 0
    properties = world.access().properties()
    inside = ".hoodie/metadata/"
    values = world.storage.read(".hoodie/hoodie.properties")
    world.storage.replace(f"{inside}.hoodie/hoodie.properties", values)
    second = commits.instants[2]
    time = second.requested_time if version == 6 else second.completion_time
    name = f"{time}001.commit" if version == 6 else f"{time}_{time}9.commit"
    folder = properties.timeline_folder
    world.storage.replace(f"{inside}{folder}/{name}", b"x")
    assert world.archive()
    left = world.access().timeline(properties).commits().completed().first()
    assert left == commits.instants[3]


def test_a_commit_whose_savepoint_is_gone_leaves_at_once() -> None:
    world = World.new(8)
    access = world.access()
    commits = access.timeline(access.properties()).commits().completed().instants
    savepoint = world.savepoint(commits[1].requested_time)
    before = world.state()
    beyond = replace(OPTIONS, beyond_savepoint=True)
    assert world.archive(beyond)
    assert world.state() == before
    kept = world.access().timeline(access.properties()).commits().completed().instants
    assert commits[1] in kept and commits[2] not in kept
    for name in (savepoint.rsplit("/", 1)[1], f"{commits[1].requested_time}.savepoint.inflight"):
        world.storage.delete(f"{access.properties().timeline_folder}/{name}")
    assert world.archive(replace(OPTIONS, keep_max_commits=99)) == 1
    assert world.state()[0] == before[0]


# ---- refusals ----------------------------------------------------------------------------------


def test_a_state_file_that_cannot_be_read_ends_the_run_before_its_batch() -> None:
    world = World.new(6)
    access = world.access()
    first = access.timeline(access.properties()).commits().completed().instants[0]
    world.storage.replace(f".hoodie/{first.file_name}", b"no metadata")
    active = world.active()
    with pytest.raises(CorruptFileError):
        world.archive()
    assert world.active() == active and world.archived() == []


def test_a_held_lock_keeps_archiving_out() -> None:
    world = World.new(8)
    lock = InProcessLock("held", clock=world.clock)
    first = world.access(lock=lock)
    second = world.access(lock=InProcessLock("held", clock=world.clock))
    with first.locked("something else"), pytest.raises(LockHeldError):
        run_archive(second, OPTIONS)


@dataclass
class _LosingLock:
    """A lock that is lost at its nth look."""

    inner: InProcessLock
    looks: int
    place: str = "test"
    shared: bool = False

    def try_acquire(self, who: str) -> Any:
        lease, losing = self.inner.try_acquire(who), self

        class Lease:
            holder = getattr(lease, "holder", None)

            def check(self) -> None:
                losing.looks -= 1
                if losing.looks < 0:
                    raise LockLostError("lost", hint="run it again")

            def release(self) -> None:
                lease.release()  # type: ignore[union-attr]

        return Lease()


@VERSIONS
def test_a_lock_that_is_lost_ends_the_run_and_the_next_finishes_it(version: int) -> None:
    whole = World.new(version)
    whole.archive()
    for looks in range(20):
        world = World.new(version)
        before = world.state()
        lock = _LosingLock(InProcessLock("t", clock=world.clock), looks)
        try:
            world.archive(lock=lock)
        except LockLostError:
            pass
        else:
            assert looks > 3
            return
        assert world.state() == before
        world.archive()
        assert world.active() == whole.active() and world.archived() == whole.archived()
    pytest.fail("the lock was looked at too often")


def test_a_cancelled_run_stops_between_batches() -> None:
    world = World.new(8)
    token = CancelToken()
    before = world.state()
    with pytest.raises(Exception, match="cancelled"):
        world.archive(cancel=token, on_event=lambda _: token.cancel())
    assert world.state() == before
    assert len(world.archived()) == 2
    assert world.archive() == 4


def test_versions_that_are_not_written_are_refused() -> None:
    world = World.new(8)
    update_properties(world.storage, {keys.VERSION: "9"}, clock=world.clock)
    with pytest.raises(UnsupportedTableError):
        world.archive()


# ---- real tables -------------------------------------------------------------------------------

WRITABLE = [t for t in committed_tables() if t.table_version in (6, 8)]


@pytest.mark.parametrize("table", WRITABLE, ids=[t.name for t in WRITABLE])
def test_tables_of_hudi_read_the_same_after_their_instants_were_archived(
    table: CommittedTable, tmp_path: Path
) -> None:
    storage = LocalStorage(table.unpack(tmp_path))
    access = new_access(storage)
    properties = access.properties()
    options = replace(OPTIONS, keep_min_commits=1, keep_max_commits=2, compaction_delta_commits=1)

    def read() -> tuple[Any, set[Any]]:
        found = Table(storage, clock=access.clock, options=ReadOptions(threads=1)).scan().to_arrow()
        rows = sorted(map(repr, found.to_pylist()))
        timeline = access.timeline(properties)
        history = {(i.requested_time, i.completion_time, i.action) for i in timeline.completed()}
        archived = archived_times(storage, properties).to_pylist()
        return rows, history | {
            (r["requested_time"], r["completion_time"], r["action"]) for r in archived
        }

    before = read()
    result = run_archive(access, options)
    assert read() == before
    pending = access.timeline(properties).pending().first()
    if pending is None and result.plan.due and "schema_on_read" not in table.name:
        assert result.archived
    for instant in archived_instants(storage, properties):
        assert instant.metadata is not None


# ---- many instants -----------------------------------------------------------------------------


@pytest.mark.slow
@VERSIONS
def test_ten_thousand_instants_are_archived_in_bounded_batches(version: int) -> None:
    world = World(version)
    new_storage(version, "cow", storage=world.storage)
    access = world.access()
    properties = access.properties()
    files = access.files(properties)
    content = CommitMetadata(operation_type="INSERT", extra_metadata={"x": "y" * 4000})
    data = content.write(properties.version)
    for n in range(10_000):
        time = f"{20250101000000000 + n}"
        files.request(time, "commit")
        files.start(time, "commit")
        files.complete(time, "commit", data, f"{20250102000000000 + n}")
    options = ArchiveOptions(batch_bytes=4 << 20)
    result = run_archive(access, options)
    assert result.archived == 10_000 - 20
    # No batch holds much more than was allowed.
    assert result.batches >= result.archived * len(data) // options.batch_bytes
    assert len(access.timeline(properties).commits()) == 20
    assert archived_times(world.storage, properties).num_rows == 10_000 - 20
