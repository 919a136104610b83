"""Services in simulated worlds: a fixed set of seeds, crashes at operations, readers that hold on.

Whole sets are run by `make sim`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakewright.errors import LockLostError
from lakewright.services.clean import CleanOptions, run_clean
from lakewright.services.compaction import Compaction
from lakewright.services.rollback import roll_back_instant
from lakewright.storage.faults import Operation
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.beginnings import table_with_past
from lakewright.testing.sim.checkers import ALL_CHECKERS
from lakewright.testing.sim.faults import NO_RATES
from lakewright.testing.sim.locks import SimLock
from lakewright.testing.sim.runner import every_crash, run_many
from lakewright.testing.sim.tables import SimTable
from lakewright.testing.sim.workloads.service_actors import (
    ALWAYS,
    ROLES,
    ServiceSetting,
    StubCompactor,
)
from lakewright.testing.sim.workloads.services import (
    PASTS,
    one_service,
    past,
    service_setting_of,
)
from lakewright.testing.sim.workloads.stub_writes import Writer
from lakewright.testing.sim.workloads.transactions import Setting, access_of, setting_of
from lakewright.testing.sim.world import World
from lakewright.txn.locks.protocol import LockHolder

MANY_LOGS = past("append", "append", "log", "log", "log")
SERVICES = ("compactor", "cleaner", "archiver", "keeper")


@pytest.mark.parametrize("workload", ["calm", "crashes", "errors", "stalls", "clocks", "storm"])
def test_services_change_no_row_whatever_goes_wrong(workload: str) -> None:
    summary = run_many(f"services-{workload}", range(8))
    assert summary.failed == 0, summary.to_text()
    assert summary.counts["reads"] >= 5 and summary.counts["files cleaned"] > 0


def test_real_files_are_serviced_as_safely_as_stubs() -> None:
    summary = run_many("real-services", range(3))
    assert summary.failed == 0, summary.to_text()


@pytest.mark.parametrize(
    ("workload", "seed"),
    [
        ("services-crashes", 4068),
        ("services-storm", 6117),
        ("keyed-storm", 1230),
    ],
)
def test_worlds_that_have_shown_mistakes_stay_whole(workload: str, seed: int) -> None:
    """A second restore planned over a dead one; a look at the lock too early before a change; a
    lock file deleted that was another's."""
    summary = run_many(workload, [seed])
    assert summary.failed == 0, summary.to_text()


def _setting(version: int, *, folders: bool) -> ServiceSetting:
    found = service_setting_of(0, NO_RATES)
    world = replace(found.world, version=version, folders=folders, merge_on_read=True, lock="ideal")
    archive = replace(found.archive, keep_min_commits=2, keep_max_commits=3)
    clean = CleanOptions(commits_retained=1)
    return replace(found, world=world, clean=clean, archive=replace(archive, clean=clean))


def _demand_recovery(role: str, setting: ServiceSetting, *, stride: int = 1) -> None:
    for run in every_crash(lambda: one_service(role, setting), "service", stride=stride):
        found = "\n".join(map(str, run.outcome.violations))
        assert run.outcome.ok, f"operation {run.index}, effect {run.effect}:\n{found}"


@pytest.mark.parametrize("role", SERVICES)
def test_a_service_may_die_at_any_operation(role: str) -> None:
    version = 6 if role in ("cleaner", "keeper") else 8
    _demand_recovery(role, _setting(version, folders=version == 6), stride=14)


@pytest.mark.slow
@pytest.mark.parametrize("role", sorted(ROLES))
@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("folders", [False, True])
def test_every_service_may_die_at_every_operation(role: str, version: int, folders: bool) -> None:
    _demand_recovery(role, _setting(version, folders=folders))


# ---- readers -----------------------------------------------------------------------------------


def _world(setting: Setting) -> tuple[World, SimTable]:
    world = World(0, folders=setting.folders)
    table = table_with_past(
        world, PASTS[1], version=setting.version, merge_on_read=True, checkers=ALL_CHECKERS
    )
    return world, table


def _clean_beside_a_reader(holds_s: float, retained: int, *, writes: int) -> World:
    """A reader pins a snapshot; others write twice, then clean."""
    setting = replace(setting_of(2, rates=NO_RATES), lock="ideal", alone=True)
    world, table = _world(setting)

    def service(actor: Actor) -> None:
        actor.clock.sleep(1.0)
        access = access_of(actor, table, setting)
        writer = Writer(actor, table, access)
        for _ in range(writes):
            assert writer.write("overwrite")
        run_clean(access, CleanOptions(commits_retained=retained))

    world.add("reader", lambda a: table.check_reader(a, holds_s=holds_s))
    world.add("service", service)
    return world


def test_a_snapshot_within_the_retention_stays_readable() -> None:
    outcome = _clean_beside_a_reader(60.0, retained=6, writes=3).run()
    assert outcome.ok and outcome.counts["reads"] == 1


def test_a_snapshot_from_before_the_retention_may_fail_but_never_shows_other_rows() -> None:
    outcome = _clean_beside_a_reader(60.0, retained=1, writes=4).run()
    assert outcome.ok, outcome.violations
    assert outcome.counts["reads.cleaned meanwhile"] == 1


def test_a_file_that_nobody_may_delete_is_missed_by_the_reader_who_holds_it() -> None:
    setting = replace(setting_of(2, rates=NO_RATES), lock="ideal")
    world, table = _world(setting)

    def vandal(actor: Actor) -> None:
        actor.clock.sleep(1.0)
        storage = table.storage(actor)
        for path in [p for p, seen in table.state.data_files.items() if seen.is_base]:
            storage.delete(path)

    world.add("reader", lambda a: table.check_reader(a, holds_s=10.0))
    world.add("vandal", vandal)
    rules = {violation.rule for violation in world.run().violations}
    assert {"retention", "14.9"} <= rules


# ---- locks that are lost -----------------------------------------------------------------------


def test_a_lock_may_be_lost_while_its_process_lives_until_it_is_looked_at() -> None:
    world = World(1)
    table = SimTable.make(world, version=8, merge_on_read=False)
    seen: list[str] = []

    def unlucky(actor: Actor) -> None:
        lease = SimLock(table.ledger, actor, lease_s=20.0, losing=1.0).try_acquire("unlucky")
        assert not isinstance(lease, LockHolder)
        actor.clock.sleep(3.0)
        with pytest.raises(LockLostError):
            lease.check()
        lease.release()
        seen.append("lost")

    def lucky(actor: Actor) -> None:
        actor.clock.sleep(2.0)
        lease = SimLock(table.ledger, actor, lease_s=20.0).try_acquire("lucky")
        assert not isinstance(lease, LockHolder)
        actor.clock.sleep(2.0)
        lease.check()
        seen.append("held")

    world.add("unlucky", unlucky)
    world.add("lucky", lucky)
    assert world.run().ok and seen == ["lost", "held"]


# ---- a process that wakes up after its commit was taken back -----------------------------------


def _woken_after(stall_s: float, version: int) -> World:
    """`first` stands still right after its compaction is completed; an operator takes the commit
    back, `second` executes the plan again, and `first` clears up in the middle of that."""
    setting = replace(
        setting_of(1, rates=NO_RATES), version=version, lock="ideal", merge_on_read=True
    )
    world = World(0, folders=setting.folders)
    table = table_with_past(
        world, MANY_LOGS, version=version, merge_on_read=True, checkers=ALL_CHECKERS
    )

    def compaction(actor: Actor) -> Compaction:
        access = access_of(actor, table, setting)
        return Compaction(access, ALWAYS, compactor=StubCompactor(actor, table))

    def first(actor: Actor) -> None:
        def stand_still(operation: Operation, effect: bool) -> None:
            if effect and operation.path.endswith(".commit") and not actor.stalled_at:
                actor.stall(stall_s)
                world.scheduler.pause(world.now)

        actor.on_operation = stand_still
        compaction(actor).run()

    def operator(actor: Actor) -> None:
        actor.clock.sleep(24.0)
        access = access_of(actor, table, setting)
        newest = access.timeline(table.properties).last_completed_commit()
        assert newest is not None
        done = roll_back_instant(access, newest.requested_time)
        world.count(f"became {done.becomes.value}")

    def second(actor: Actor) -> None:
        actor.clock.sleep(26.0)
        service = compaction(actor)
        for instant in service.pending():
            service.execute(instant)
            world.count("executed again")

    for name, life in (("first", first), ("operator", operator), ("second", second)):
        world.add(name, life)
    world.at_rest("reader", table.check_reader)
    return world


@pytest.mark.parametrize("version", [6, 8])
def test_who_wakes_up_after_its_commit_was_taken_back_deletes_nothing_of_the_next_attempt(
    version: int,
) -> None:
    for step in range(12):
        outcome = _woken_after(24.2 + step * 0.12, version).run()
        assert outcome.ok, f"woken at step {step}: {outcome.violations[0]}"
        assert outcome.counts["became plan"] == outcome.counts["executed again"] == 1
