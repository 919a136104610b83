"""Writers and services with real files: Parquet and logs of the engine, compacted and cleaned.

The world is that of keyed writes; beside the writers, processes compact, clean, archive and keep
what they wrote, all by the product's own code. Readers compare every row with the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from lakewright.format.records import WriteStat
from lakewright.services.archive import ArchiveOptions, run_archive
from lakewright.services.clean import CleanOptions, execute_clean, pending_cleans
from lakewright.services.compaction import Compaction, SliceWork
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.faults import FaultRates
from lakewright.testing.sim.keyed_model import Change
from lakewright.testing.sim.workloads.keyed_writes import KeyedTable, fill, keyed_setting_of
from lakewright.testing.sim.workloads.processes import add_processes
from lakewright.testing.sim.workloads.service_actors import (
    ALWAYS,
    ROLES,
    ServiceSetting,
    attempt,
)
from lakewright.testing.sim.workloads.transactions import (
    access_of,
    check_nothing_left,
    outwaited,
)
from lakewright.testing.sim.workloads.workload import Workload
from lakewright.testing.sim.world import World
from lakewright.txn.access import Access

__all__ = ["WORKLOADS", "RealCompactor"]

_RATES: Final = FaultRates(
    crash=0.004, unavailable=0.01, unknown=0.01, stall=0.002, stall_s_max=60.0
)
_CLEAN: Final = CleanOptions(commits_retained=1)
_ARCHIVE: Final = ArchiveOptions(
    keep_min_commits=2, keep_max_commits=3, compaction_delta_commits=1, clean=_CLEAN
)
_OTHERS: Final = ("cleaner", "cleaner", "archiver", "keeper", "reader")


class RealCompactor:
    """Compacts real slices, one after the other."""

    def __init__(self, table: KeyedTable) -> None:
        self._table = table

    def __call__(self, access: Access, work: SliceWork) -> Sequence[WriteStat]:
        """Merge every slice of the plan."""
        self._table.model.changes[work.compactor.context.instant] = Change()
        numbers = range(len(work.slices))
        return [work.compact(access.storage, n, access, alone=False) for n in numbers]


def _make(seed: int) -> World:
    keyed = keyed_setting_of(seed, rates=_RATES, stubs=False)
    own = replace(keyed.world, merge_on_read=seed % 4 > 0, lock="ideal", writers=1, writes=2)
    world = World(seed, workload="real-services", folders=own.folders)
    table = KeyedTable(world, replace(keyed, world=own))
    fill(table)
    setting = ServiceSetting(own, rounds=1, clean=_CLEAN, archive=_ARCHIVE)

    def write(actor: Actor) -> None:
        access, chance = access_of(actor, table.table, own), actor.random.fork("writes")
        for number in range(own.writes):
            table.write(access, "upsert", chance, f"{actor.name}.{number}")
            actor.clock.sleep(chance.uniform(0, 2))

    add_processes(world, "writer", own.writers, write, rates=own.rates)
    if own.merge_on_read:
        add_processes(world, "compactor", 2, lambda a: _compact(a, table), rates=own.rates)
    other = _OTHERS[world.random.below(len(_OTHERS))]
    if other == "reader":
        calm = replace(own.rates, crash=0.0)
        add_processes(world, other, 1, lambda a: _read(a, table), rates=calm, within_s=1.0)
    else:
        live = ROLES[other]
        add_processes(
            world, other, 1, lambda a: live(a, table.table, setting), rates=own.rates, within_s=3.0
        )
    world.at_rest("recovery", lambda a: _recovery(a, table))
    return world


def _compact(actor: Actor, table: KeyedTable) -> None:
    access = access_of(actor, table.table, table.setting.world)
    service = Compaction(access, ALWAYS, compactor=RealCompactor(table))

    def run() -> None:
        for done in service.run():
            table.model.acknowledged[done.instant] = actor.world.now
            actor.world.count("compacted")

    actor.clock.sleep(actor.random.uniform(0.1, 3.0))
    attempt(actor, "compactor", run)


def _read(actor: Actor, table: KeyedTable) -> None:
    for _ in range(2):
        actor.clock.sleep(actor.random.uniform(0.1, 3.0))
        attempt(actor, "reader", lambda: table.check(actor))


def _recovery(actor: Actor, table: KeyedTable) -> None:
    """After the longest time that anybody may wait, one process finishes everything."""
    own = table.setting.world
    access = outwaited(actor, table.table, own)
    service = Compaction(access, ALWAYS, compactor=RealCompactor(table))
    for instant in service.pending():
        service.execute(instant)
    for instant in pending_cleans(access):
        execute_clean(access, instant)
    run_archive(access, _ARCHIVE)
    if not table.write(access, "upsert", actor.random.fork("last"), actor.name):
        actor.world.violate("recovery", "the next write fails")
    check_nothing_left(actor, table.table, access)
    table.check(actor)


WORKLOADS = (
    Workload(
        "real-services",
        "writers, compactors, cleaners, archivers with real files, crashes, errors and stalls",
        _make,
        share=2,
        real=True,
    ),
)
