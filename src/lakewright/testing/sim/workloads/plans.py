"""Many executors and cleaners on one plan at a time, of every kind: the state machine of plans.

The smallest worlds in which two processes get into each other's way: one table with two changed
file groups, one plan for both, executors that all want it, cleaners that want it gone if it is
removable, somebody who plans the next one, and a writer. Plans and their execution are real, files
are stubs (`sim/story_plans`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lakewright.errors import LakewrightError
from lakewright.format.file_slices import FileGroupId
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.checkers.liveness import removed_when_old
from lakewright.testing.sim.faults import NO_RATES, FaultRates
from lakewright.testing.sim.story_plans import Plans
from lakewright.testing.sim.story_writes import Write
from lakewright.testing.sim.tables import SimTable
from lakewright.testing.sim.workloads.processes import add_processes
from lakewright.testing.sim.workloads.stub_writes import Writer
from lakewright.testing.sim.workloads.transactions import (
    CRASHES,
    STORM,
    Setting,
    access_of,
    check_nothing_left,
    checkers_of,
    outwaited,
    setting_of,
)
from lakewright.testing.sim.workloads.workload import Workload
from lakewright.testing.sim.world import World
from lakewright.txn.access import Access
from lakewright.txn.plan_kinds import CLUSTERING, COMPACTION, LOG_COMPACTION, PlanKind
from lakewright.txn.recovery import roll_back_failed, sweep_traces

__all__ = ["WORKLOADS", "make"]

DELAY_S: Final = 10.0
"""How old removable plans get; more than a plan waits when nothing goes wrong."""
_KINDS: Final[tuple[tuple[PlanKind, bool | None], ...]] = (
    (COMPACTION, None),
    (LOG_COMPACTION, None),
    (CLUSTERING, None),
    (CLUSTERING, True),
)
_OFTEN = FaultRates(crash=0.01)
_LONG = FaultRates(stall=0.02, stall_s_max=90.0)
_ROUNDS: Final = 3


def make(name: str, seed: int, rates: FaultRates) -> World:
    """The world of a seed: version, lock and kind of plan are of its choice."""
    kind, told = _KINDS[seed // 3 % 4]
    setting = replace(setting_of(seed, rates=rates), merge_on_read=True)
    if kind is CLUSTERING:  # version 6 calls it a replacecommit, which the checkers take for one
        setting = replace(setting, version=8)
    world = World(seed, workload=name, folders=setting.folders)
    old = removed_when_old(int(DELAY_S * 1000), 1_000)
    table = SimTable.make(
        world,
        version=setting.version,
        merge_on_read=True,
        checkers=(*checkers_of(setting), old),
    )
    plans = Plans(table, kind, told)
    setup = _access(world.setup, table, setting)
    groups = tuple(FileGroupId(f"p{n}", f"{world.random.uuid()}-0") for n in range(2))
    for row in ("a", "b"):
        Write(table, {row: row}, groups)(setup)
    plans.schedule(setup)
    everybody = (
        ("executor", 3, _executor, 2.0),
        ("cleaner", 2, _cleaner, 20.0),
        ("planner", 1, _planner, 5.0),
    )
    for role, count, work, within_s in everybody:
        add_processes(
            world,
            role,
            count,
            lambda actor, work=work: work(actor, _access(actor, table, setting), plans),  # type: ignore[misc]
            rates=setting.rates,
            within_s=within_s,
        )
    writes = lambda actor: _writer(actor, table, setting)  # noqa: E731
    add_processes(world, "writer", 1, writes, rates=setting.rates, within_s=2.0)
    world.at_rest("recovery", lambda actor: _recovery(actor, table, setting, plans))
    return world


def _access(actor: Actor, table: SimTable, setting: Setting) -> Access:
    return replace(access_of(actor, table, setting), rollback_delay_ms=int(DELAY_S * 1000))


def _tried(actor: Actor, what: str, attempt: object) -> None:
    assert callable(attempt)
    try:
        attempt()
    except LakewrightError as error:
        actor.world.count(f"{what}.{error.code}")
    else:
        actor.world.count(f"{what}.done")


def _executor(actor: Actor, access: Access, plans: Plans) -> None:
    for _ in range(_ROUNDS):
        for instant in plans.pending(access):
            _tried(actor, "execution", lambda instant=instant: plans.execute(access, instant))
        actor.clock.sleep(actor.random.uniform(0.0, 12.0))


def _cleaner(actor: Actor, access: Access, plans: Plans) -> None:  # noqa: ARG001
    for _ in range(_ROUNDS):
        _tried(actor, "clean-up", lambda: (roll_back_failed(access), sweep_traces(access)))
        actor.clock.sleep(actor.random.uniform(0.0, 20.0))


def _planner(actor: Actor, access: Access, plans: Plans) -> None:
    for _ in range(_ROUNDS):
        actor.clock.sleep(actor.random.uniform(0.0, 12.0))
        _tried(actor, "planning", lambda: plans.schedule(access))


def _writer(actor: Actor, table: SimTable, setting: Setting) -> None:
    writer = Writer(actor, table, _access(actor, table, setting))
    for kind in ("log", "append", "log"):
        _tried(actor, "write", lambda kind=kind: writer.write(kind))
        actor.clock.sleep(actor.random.uniform(0.0, 8.0))


def _recovery(actor: Actor, table: SimTable, setting: Setting, plans: Plans) -> None:
    """After the longest time that anybody may wait, one process finishes everything."""
    actor.clock.sleep(DELAY_S)
    access = replace(outwaited(actor, table, setting), rollback_delay_ms=int(DELAY_S * 1000))
    roll_back_failed(access)
    plans.execute_pending(access)
    if not Writer(actor, table, access).write("append"):
        actor.world.violate("recovery", "the next write fails")
    check_nothing_left(actor, table, access)
    table.check_reader(actor)


WORKLOADS = (
    Workload(
        "plans-calm",
        "executors and cleaners on one plan, nothing goes wrong",
        lambda seed: make("plans-calm", seed, NO_RATES),
    ),
    Workload(
        "plans-crashes",
        "the same, processes die at any operation",
        lambda seed: make("plans-crashes", seed, (CRASHES, _OFTEN)[seed % 2]),
    ),
    Workload(
        "plans-stalls",
        "the same, processes stand still",
        lambda seed: make("plans-stalls", seed, _LONG),
    ),
    Workload(
        "plans-storm",
        "the same, everything at once",
        lambda seed: make("plans-storm", seed, STORM),
    ),
)
