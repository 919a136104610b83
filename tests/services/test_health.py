"""Health: what is said of a table, by whom it is resolved, and that looking changes nothing."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

import lakewright as lw
from lakewright.cli.app import app
from lakewright.engine.write_options import WriteOptions
from lakewright.format.instant import Instant, State
from lakewright.format.records import CompactionPlan, InstantInfo
from lakewright.format.timeline import Timeline
from lakewright.metadata.file_groups import IndexGroups
from lakewright.runtime import ManualClock
from lakewright.runtime.process import ProcessIdentity
from lakewright.services.clean import CleanOptions, schedule_clean
from lakewright.services.health import Finding, Health, Severity
from lakewright.services.health_commands import Commands
from lakewright.services.health_facts import Pending, TableFacts
from lakewright.services.health_pending import pending_findings
from lakewright.services.health_upkeep import upkeep_findings
from lakewright.services.savepoint import create_savepoint
from lakewright.services.watching import look_at_facts, look_at_health
from lakewright.storage.base import Storage
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.txn.access import Access
from lakewright.txn.fence import open_fence
from lakewright.txn.heartbeat import HEARTBEAT_FOLDER
from lakewright.txn.liveness import LifeSigns
from lakewright.txn.locks.in_process import InProcessLock, Registry
from lakewright.txn.locks.protocol import LockHolder
from lakewright.txn.lost_indexes import lost_indexes
from lakewright.txn.metadata_creation import build_metadata_table, drop_metadata_table
from lakewright.txn.metadata_indexing import begin_building
from lakewright.txn.plan_kinds import CLUSTERING, COMPACTION, LOG_COMPACTION, REMOVABLE_KEY
from lakewright.txn.rollback import schedule_rollback
from lakewright.txn.transaction import begin
from tests.corpus import committed_tables
from tests.engine.keyed.tables import QuickTable, Shape, new_table, rows
from tests.services.test_compaction import changed, compaction
from tests.txn.tables import START_MS, KnownProcesses, NeverRuns, new_access, new_storage, write

MINUTE = 60
HERE = ProcessIdentity("here", "boot", 66, "1")
TOLERANCE_S = 600
VERSIONS = pytest.mark.parametrize("version", [6, 8])


class Untouchable:
    """A lock that must not be taken."""

    place, shared = "a lock", True

    def try_acquire(self, who: str) -> Any:
        raise AssertionError("health takes no lock")

    def held_by(self) -> LockHolder | None:
        return None


def health(access: Access, options: dict[str, str] | None = None) -> Health:
    """A look that must not change anything."""
    before = contents(access.storage)
    write = WriteOptions.from_hudi(options or {}, table=access.properties())
    found = look_at_health(replace(access, lock=Untouchable()), write)
    assert contents(access.storage) == before
    return found


def contents(storage: Storage) -> dict[str, tuple[int, int]]:
    return {info.path: (info.size, info.modified_ms) for info in storage.walk()}


def codes(found: Health) -> list[str]:
    return [finding.code for finding in found.findings]


def one(found: Health, code: str) -> Finding:
    [finding] = found.of_code(code)
    return finding


def table_access(version: int = 8, type_: str = "cow", **more: Any) -> tuple[Access, ManualClock]:
    clock = ManualClock(START_MS)
    storage = new_storage(version, type_, MemoryStorage(MemoryBucket(clock=clock)))
    return new_access(storage, clock, **more), clock


def requested(
    access: Access, time: str, action: str, content: bytes, *, begun: bool = False
) -> None:
    files = access.files(access.properties())
    files.request(time, action, content)
    if begun:
        files.start(time, action)


# ---- writes ------------------------------------------------------------------------------------


@VERSIONS
def test_a_table_without_anything_is_healthy(version: int) -> None:
    access, _ = table_access(version)
    assert health(access).findings == ()
    write(access, "g1")
    found = health(access)
    assert found.healthy and found.findings == () and "healthy" in str(found)


def test_a_write_is_alive_until_its_heartbeat_is_too_old() -> None:
    processes = KnownProcesses(own=HERE)
    access, clock = table_access(processes=processes)
    pending = begin(access, action="commit")
    alive = one(health(access), "write.alive")
    assert alive.severity is Severity.NOTE and alive.instant == pending.instant
    assert alive.owner == "process 66 on here" and alive.since_ms == START_MS
    clock.advance(TOLERANCE_S + 1)
    found = health(access)
    dead = one(found, "write.dead")
    assert not found.healthy and "heartbeat is 10 min old" in dead.why
    assert dead.command == Commands(access.storage.uri).roll_back(pending.instant)


def test_a_process_that_is_known_to_be_dead_needs_no_waiting() -> None:
    processes = KnownProcesses(own=HERE)
    access, _ = table_access(processes=processes)
    begin(access, action="commit").start()
    processes.dead.add(HERE)
    dead = one(health(access), "write.dead")
    assert "does not run any more" in dead.why and "which is dead" in (dead.owner or "")


@VERSIONS
def test_a_write_of_hudi_without_signs_of_life_is_unknown_and_then_needs_action(
    version: int,
) -> None:
    access, clock = table_access(version)
    requested(access, "20251009085320000", "commit", b"")
    assert one(health(access), "write.unknown").severity is Severity.NOTE
    clock.advance(TOLERANCE_S + 1)
    unknown = one(health(access), "write.unknown")
    assert unknown.severity is Severity.ACTION and unknown.owner is None and unknown.command


def test_a_heartbeat_of_hudi_says_that_somebody_is_there_but_not_who() -> None:
    access, clock = table_access()
    requested(access, "20251009085320000", "commit", b"")
    access.storage.replace(f"{HEARTBEAT_FOLDER}/20251009085320000", b"")
    assert one(health(access), "write.alive").owner == "a Hudi process"
    clock.advance(TOLERANCE_S + 1)
    assert one(health(access), "write.dead").severity is Severity.ACTION


# ---- plans -------------------------------------------------------------------------------------


def planned(version: int = 8) -> tuple[QuickTable, str]:
    _, table = changed(version)
    instant = compaction(table).schedule()
    assert instant is not None
    return table, instant


@VERSIONS
def test_a_plan_waits_and_is_overdue_after_the_delay(version: int) -> None:
    table, instant = planned(version)
    waiting = one(health(table.access()), "plan.requested")
    assert waiting.severity is Severity.NOTE and waiting.action == "compaction"
    assert waiting.command == f"lakewright compaction run {table.uri} --instant {instant}"
    table.clock.advance(61 * MINUTE)
    assert one(health(table.access()), "plan.overdue").severity is Severity.ACTION
    patient = {"table_service_rollback_delay": "90"}
    access = table.opened(patient)[0]
    assert one(health(access, patient), "plan.requested").severity is Severity.NOTE


def test_a_plan_in_the_works_is_alive_then_dead_and_never_removed() -> None:
    table, instant = planned()
    access = table.access()
    access.files(table.properties).start(instant, "compaction")
    unknown = one(health(access), "plan.unknown")
    assert unknown.severity is Severity.NOTE
    open_fence(table.storage, instant, HERE)
    table.storage.replace(f"{HEARTBEAT_FOLDER}/{instant}", b"")
    assert one(health(access), "plan.alive").owner == "process 66 on here"
    table.clock.advance(TOLERANCE_S + 1)
    dead = one(health(access), "plan.dead")
    assert dead.severity is Severity.ACTION and "--instant" in (dead.command or "")
    table.clock.advance(10_000 * MINUTE)
    assert one(health(access), "plan.dead").command == dead.command


@VERSIONS
def test_a_removable_plan_tells_how_long_it_still_stays(version: int) -> None:
    access, clock = table_access(version, "mor")
    write(access, "g1", action="deltacommit")
    clock.advance(1)
    plan = CompactionPlan(operations=[]).write(access.properties().version)
    requested(access, "20251009085330000", "logcompaction", plan)
    young = one(health(access), "plan.requested")
    assert young.severity is Severity.NOTE and "Cleaning removes it in" in young.why
    clock.advance(61 * MINUTE)
    expired = one(health(access), "plan.expired")
    assert expired.command == Commands(access.storage.uri).clean()
    assert "table_service_rollback_delay" in expired.why
    access.files(access.properties()).start("20251009085330000", "logcompaction")
    assert "never executed again" in one(health(access), "plan.expired").why


def test_what_a_plan_says_of_itself_wins() -> None:
    access, clock = table_access(8, "mor")
    lasting = CompactionPlan(operations=[], extra_metadata={REMOVABLE_KEY: "false"})
    content = lasting.write(access.properties().version)
    requested(access, "20251009085330000", "logcompaction", content)
    clock.advance(61 * MINUTE)
    finding = one(health(access), "plan.overdue")
    assert "--unschedule" in (finding.command or "") and "Hudi" in finding.why


def test_a_plan_whose_files_are_gone_is_damage() -> None:
    table, _ = planned()
    [log] = [p for p in table.files() if ".log." in p and p.startswith("a/")][:1]
    table.storage.delete(log)
    found = health(table.access())
    assert one(found, "plan.files_missing").severity is Severity.DAMAGE
    assert log in one(found, "plan.files_missing").why


@pytest.mark.parametrize(
    "action", ["compaction", "logcompaction", "clean", "rollback", "clustering"]
)
def test_plans_that_cannot_be_read_are_told_and_do_not_stop_the_rest(action: str) -> None:
    access, clock = table_access(8, "mor")
    write(access, "g1", action="deltacommit")
    requested(access, "20251009085330000", action, b"neither Avro nor anything")
    finding = next(f for f in health(access).findings if f.code.endswith(".unreadable"))
    assert finding.severity is Severity.DAMAGE and finding.instant == "20251009085330000"
    clock.advance(TOLERANCE_S + 1)
    assert not health(access).healthy


# ---- rollbacks, cleans, restores ---------------------------------------------------------------


def test_a_rollback_tells_what_it_undoes_and_who_finishes_it() -> None:
    access, clock = table_access()
    pending = begin(access, action="commit")
    clock.advance(TOLERANCE_S + 1)
    properties = access.properties()
    timeline = access.timeline(properties)
    target = timeline.get(pending.instant)
    assert target is not None
    with access.locked("a test") as lease:
        schedule_rollback(access, lease, properties, timeline, target)
    found = health(access)
    assert "write.rolled_back" in codes(found)
    assert pending.instant in one(found, "rollback.pending").why


def test_a_rollback_of_a_plan_belongs_to_its_executor() -> None:
    table, instant = planned()
    access = table.access()
    access.files(table.properties).start(instant, "compaction")
    timeline = table.timeline
    target = timeline.get(instant)
    assert target is not None
    with access.locked("a test") as lease:
        schedule_rollback(access, lease, table.properties, timeline, target)
    finding = one(health(access), "rollback.of_plan")
    assert finding.command == Commands(table.uri).compact(instant)


def test_a_clean_that_was_not_finished_is_pending() -> None:
    shape = Shape(partitioned=False)
    table = new_table(shape)
    for number in range(3):
        table.upsert(rows(shape, [("k", "a", number, 1)]), options=shape.options)
        table.clock.advance(1)
    instant = schedule_clean(table.access(), CleanOptions(commits_retained=1))
    assert instant is not None
    finding = one(health(table.access()), "clean.pending")
    assert finding.instant == instant and finding.command == f"lakewright clean run {table.uri}"
    table.storage.replace(f"{HEARTBEAT_FOLDER}/{instant}", b"")
    assert one(health(table.access()), "clean.alive").severity is Severity.NOTE


@pytest.mark.parametrize(
    ("action", "code", "command"),
    [("restore", "restore.pending", True), ("indexing", "indexing.pending", False)],
)
def test_restores_and_index_builds_are_told(action: str, code: str, command: bool) -> None:
    access, clock = table_access()
    write(access, "g1")
    requested(access, "20251009085330000", action, b"", begun=True)
    clock.advance(2 * TOLERANCE_S)
    finding = one(health(access), code)
    assert finding.severity is Severity.ACTION and (finding.command is not None) == command


def test_a_build_of_indexes_is_alive_or_to_be_run_again() -> None:
    access, clock = table_access()
    write(access, "g1")
    build_metadata_table(access)
    building = begin_building(
        access, {"record_index": IndexGroups.whole("record_index", 10)}, lambda: None
    )
    assert building is not None
    assert one(health(access), "indexing.alive").severity is Severity.NOTE
    clock.advance(2 * TOLERANCE_S)
    finding = one(health(access), "indexing.dead")
    assert finding.severity is Severity.ACTION
    uri = access.storage.uri
    assert finding.command == f"lakewright metadata build {uri} record_index"


def test_indexes_that_are_to_come_back_are_told_until_they_are_back() -> None:
    access, _ = table_access()
    write(access, "g1")
    build_metadata_table(access)
    drop_metadata_table(access, to_return=True)
    finding = one(health(access), "metadata_table.lost")
    assert finding.severity is Severity.ACTION
    assert finding.command == f"lakewright metadata build {access.storage.uri} files"
    build_metadata_table(access)
    assert all(f.code != "metadata_table.lost" for f in health(access).findings)
    assert lost_indexes(access.storage) == frozenset()


@pytest.mark.parametrize("folder", [".hoodie/metadata/files", ".hoodie/metadata/.hoodie/timeline"])
def test_a_damaged_or_stale_metadata_table_is_to_be_built_anew(folder: str) -> None:
    access, _ = table_access()
    write(access, "g1")
    build_metadata_table(access)
    assert one(health(access), "metadata_table.present").severity is Severity.NOTE
    for file in access.storage.list(folder):
        if file.path.endswith(".hfile"):
            access.storage.replace(file.path, access.storage.read(file.path)[:50])
        elif file.path.endswith(".deltacommit"):
            access.storage.delete(file.path)
    finding = one(health(access), "metadata_table.untrusted")
    assert finding.severity is Severity.ACTION
    assert finding.command == f"lakewright metadata rebuild {access.storage.uri}"


# ---- the table as a whole ----------------------------------------------------------------------


@VERSIONS
def test_a_compaction_is_overdue_when_its_trigger_says_so(version: int) -> None:
    _, table = changed(version)
    two = {"hoodie.compact.inline.max.delta.commits": "2"}
    assert health(table.access()).healthy
    overdue = one(health(table.access(), two), "compaction.overdue")
    assert "3 writes" in overdue.why and "2 commits" in overdue.why
    compaction(table).run()
    assert health(table.access(), two).healthy


def test_a_clean_is_overdue_when_files_are_older_than_what_is_retained() -> None:
    shape = Shape(partitioned=False)
    table = new_table(shape)
    off = {**shape.options, "hoodie.clean.automatic": "false"}
    for number in range(5):
        table.upsert(rows(shape, [("k", "a", number, 1)]), options=off)
        table.clock.advance(1)
    assert health(table.access()).healthy
    one_kept = {"hoodie.clean.commits.retained": "1"}
    assert "3 files" in one(health(table.access(), one_kept), "clean.overdue").why
    table.services.clean.run(one_kept)
    assert health(table.access(), one_kept).healthy


def test_what_keeps_the_timeline_long_is_named_with_what_resolves_it() -> None:
    access, clock = table_access()
    first = write(access, "g0")
    for number in range(1, 8):
        clock.advance(1)
        write(access, f"g{number}")
    few = {
        "hoodie.keep.min.commits": "3",
        "hoodie.keep.max.commits": "4",
        "hoodie.clean.commits.retained": "1",
    }
    assert health(access).healthy
    assert one(health(access, few), "archive.overdue").command is not None
    create_savepoint(access, first, comment="the first")
    found = health(access, few)
    blocked = one(found, "archive.blocked")
    assert "savepoint" in blocked.why and blocked.instant == first
    assert blocked.command == f"lakewright savepoint delete {access.storage.uri} {first}"
    holds = one(found, "savepoint.holds")
    assert holds.severity is Severity.NOTE and "the first" in holds.why
    assert "savepoint.holds" in codes(health(access)) and health(access).healthy


def test_who_holds_the_lock_is_told_and_for_how_long() -> None:
    access, clock = table_access()
    registry = Registry()
    lock = InProcessLock("t", clock=clock, registry=registry)
    write_options = WriteOptions()
    assert lock.held_by() is None
    lease = lock.try_acquire("somebody else")
    facts = look_at_facts(replace(access, lock=lock), write_options)
    [held] = [f for f in upkeep_findings(facts) if f.code.startswith("lock.")]
    assert (held.code, held.owner, held.severity) == ("lock.held", "somebody else", Severity.NOTE)
    clock.advance(TOLERANCE_S + 1)
    later = look_at_facts(replace(access, lock=lock), write_options)
    [long] = [f for f in upkeep_findings(later) if f.code.startswith("lock.")]
    assert long.code == "lock.held_long" and long.severity is Severity.ACTION
    assert not isinstance(lease, LockHolder)
    lease.release()
    assert lock.held_by() is None


def test_traces_of_writes_that_are_over_are_told() -> None:
    access, _ = table_access()
    instant = write(access, "g1")
    access.storage.replace(f".hoodie/.temp/{instant}/a/x.parquet.marker.CREATE", b"")
    access.storage.replace(f"{HEARTBEAT_FOLDER}/20200101000000000", b"")
    found = health(access)
    assert found.healthy
    left = one(found, "traces.left")
    assert left.instant == instant and "(1)" in left.why  # the other one may be alive


def test_a_table_that_others_write_says_so() -> None:
    access, _ = table_access()
    other = begin(access, action="commit")
    other.abort()
    requested(access, "20251009085320500", "commit", b"")
    assert "lock.needed" in codes(health(access))


# ---- whatever the table ------------------------------------------------------------------------


@pytest.mark.parametrize("table", committed_tables(), ids=lambda t: t.name)
def test_real_tables_of_every_version_can_be_looked_at(table: Any, tmp_path: Path) -> None:
    path = table.unpack(tmp_path)
    before = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
    found = lw.Table.open(path).health()
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == before
    assert not found.of_code("health.not_known"), str(found)
    assert not [f for f in found.findings if f.severity is Severity.DAMAGE], str(found)


@pytest.mark.parametrize("version", [6, 8])
def test_a_plan_of_hudi_is_told_in_each_of_its_states(version: int, tmp_path: Path) -> None:
    name = f"v{version}_mor_pending_compaction_{'simple' if version == 6 else 'complex'}"
    path = next(t for t in committed_tables() if t.name == name).unpack(tmp_path)
    [inflight] = path.glob(".hoodie/**/*.compaction.inflight")
    instant = inflight.name.partition(".")[0]
    next(inflight.parent.glob(f"{instant}*.commit")).unlink()
    begun = one(lw.Table.open(path).health(), "plan.unknown")
    assert (begun.instant, begun.severity) == (instant, Severity.ACTION)
    assert "before 1.2" in begun.why and begun.owner is None
    heartbeat = path / HEARTBEAT_FOLDER / instant
    heartbeat.parent.mkdir()
    heartbeat.touch()
    assert one(lw.Table.open(path).health(), "plan.alive").owner == "a Hudi process"
    os.utime(heartbeat, (1_700_000_000, 1_700_000_000))
    assert "heartbeat" in one(lw.Table.open(path).health(), "plan.dead").why
    inflight.unlink()
    heartbeat.unlink()
    overdue = one(lw.Table.open(path).health(), "plan.overdue")
    assert overdue.command == f"lakewright compaction run {path} --instant {instant}"


STATES = st.sampled_from([State.REQUESTED, State.INFLIGHT])
PENDING = st.builds(
    lambda number, action, state, signs, kind, target, removable, missing, unreadable: Pending(
        Instant(f"2025100908533{number:04}", action, state, None, ""),
        START_MS,
        signs,
        kind if action in ("compaction", "logcompaction", "clustering") else None,
        removable,
        InstantInfo(commit_time=target, action="commit") if action == "rollback" else None,
        unreadable,
        missing,
    ),
    st.integers(0, 9999),
    st.sampled_from(
        [
            "commit",
            "deltacommit",
            "replacecommit",
            "clustering",
            "compaction",
            "logcompaction",
            "clean",
            "rollback",
            "restore",
            "savepoint",
            "indexing",
        ]
    ),
    STATES,
    st.builds(
        LifeSigns,
        st.sampled_from([None, HERE]),
        st.booleans(),
        st.none() | st.integers(START_MS - 10**7, START_MS + 10**7),
    ),
    st.sampled_from([COMPACTION, LOG_COMPACTION, CLUSTERING]),
    st.sampled_from(["20251009085330001", "20200101000000000"]),
    st.booleans(),
    st.sampled_from([(), ("a/f.parquet",)]),
    st.sampled_from([None, "It is cut."]),
)


def _commands() -> dict[str, Any]:
    """Every command of the command line by its words."""
    root: Any = typer.main.get_command(app)
    return {
        f"{noun} {verb}": command
        for noun, group in root.commands.items()
        for verb, command in getattr(group, "commands", {}).items()
    }


COMMANDS = _commands()


def assert_real(command: str) -> None:
    """A command that the command line has, with arguments that it takes."""
    words = shlex.split(command)
    assert words[0] == "lakewright"
    found = COMMANDS[" ".join(words[1:3])]
    found.make_context("x", words[3:], resilient_parsing=False).close()


@settings(max_examples=80)
@given(st.lists(PENDING, max_size=4), st.integers(0, 10**8))
def test_every_pending_instant_has_a_finding_with_a_real_command_if_any(
    pending: list[Pending], later_ms: int
) -> None:
    facts = TableFacts(
        uri="/data/my trips",
        now_ms=START_MS + later_ms,
        tolerance_ms=TOLERANCE_S * 1000,
        rollback_delay_ms=3_600_000,
        zone=UTC,
        timeline=Timeline.of(p.instant for p in pending),
        pending=tuple(pending),
    )
    found = Health.of(facts.uri, facts.now_ms, pending_findings(facts))
    assert {f.instant for f in found.findings} == {p.instant.requested_time for p in pending}
    assert len({f.code for f in found.findings}) <= len(found.findings)
    ranks = [f.severity.rank for f in found.findings]
    assert ranks == sorted(ranks, reverse=True)
    for finding in found.findings:
        assert finding.why.endswith(".") and found.to_dict() and str(found)
        if finding.command is not None:
            assert_real(finding.command)


def test_all_commands_that_health_names_are_real() -> None:
    commands = Commands("/data/my trips")
    for command in (
        commands.compact(),
        commands.compact("20251009085330001"),
        commands.clean(),
        commands.archive(),
        commands.roll_back("20251009085330001"),
        commands.unschedule("20251009085330001"),
        commands.finish_restore(),
        commands.create_savepoint("20251009085330001"),
        commands.delete_savepoint("20251009085330001"),
    ):
        assert_real(command)


def test_spawning_is_not_needed() -> None:
    access, _ = table_access(spawner=NeverRuns())
    assert health(access).healthy
