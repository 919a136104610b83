"""Writers and services on a table with a metadata table, which all of them keep right.

The world is that of services with real files; the table has every index that it can have. Beside
the writers, processes compact, clean, archive, look after the metadata table, build it anew, roll
commits back and restore the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from lakewright.runtime.random import SeededRandom
from lakewright.services.archive import ArchiveOptions, run_archive
from lakewright.services.clean import CleanOptions, execute_clean, pending_cleans, run_clean
from lakewright.services.compaction import Compaction
from lakewright.services.metadata_options import MetadataUpkeep
from lakewright.services.metadata_upkeep import tend_metadata_table
from lakewright.services.restore import run_restore
from lakewright.services.rollback import roll_back_instant
from lakewright.services.savepoint import create_savepoint
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.faults import NO_RATES, FaultRates
from lakewright.testing.sim.workloads.indexed_table import BY_PARTITIONS, IndexedTable
from lakewright.testing.sim.workloads.keyed_writes import KeyedSetting
from lakewright.testing.sim.workloads.processes import add_processes
from lakewright.testing.sim.workloads.real_services import RealCompactor
from lakewright.testing.sim.workloads.service_actors import ALWAYS, attempt
from lakewright.testing.sim.workloads.transactions import (
    access_of,
    check_nothing_left,
    outwaited,
    setting_of,
)
from lakewright.testing.sim.workloads.workload import Workload
from lakewright.testing.sim.world import World
from lakewright.txn.access import Access
from lakewright.txn.metadata_creation import drop_metadata_table
from lakewright.txn.recovery import roll_back_failed

__all__ = ["WORKLOADS", "indexed_world"]

_FAULTS: Final = FaultRates(
    crash=0.002, unavailable=0.004, unknown=0.004, stall=0.001, stall_s_max=60.0
)
_CLEAN: Final = CleanOptions(commits_retained=1)
_ARCHIVE: Final = ArchiveOptions(
    keep_min_commits=2, keep_max_commits=3, compaction_delta_commits=1, clean=_CLEAN
)
_UPKEEP: Final = MetadataUpkeep(compact_commits=2, clean=_CLEAN, archive=_ARCHIVE)
_KINDS: Final = ("RECORD_INDEX", "RECORD_INDEX", BY_PARTITIONS, "GLOBAL_SIMPLE", "BLOOM", "BUCKET")
_VERBS: Final = ("upsert", "upsert", "delete")


def indexed_world(name: str, seed: int, rates: FaultRates) -> World:
    """Writers, a compactor and two others on one table; the seed chooses who they are."""
    chance = SeededRandom(f"{seed}/indexed")
    index = _KINDS[chance.below(len(_KINDS))]
    own = setting_of(seed, rates=rates)
    own = replace(own, lock="ideal", writers=1 + chance.below(2), writes=2)
    if index == BY_PARTITIONS:
        own = replace(own, version=8)
    world = World(seed, workload=name, folders=own.folders)
    others = ["compactor"] if own.merge_on_read else []
    others += [_OTHERS[chance.below(len(_OTHERS))] for _ in range(2)]
    undone = not {"operator", "restorer"}.isdisjoint(others)
    setting = KeyedSetting(own, index, stubs=False)
    table = IndexedTable(world, setting, undone_by_name=undone)
    table.begin()
    add_processes(world, "writer", own.writers, lambda a: _write(a, table), rates=own.rates)
    for number, other in enumerate(others):
        calm = replace(own.rates, crash=0.0) if other == "reader" else own.rates
        live = partial(_LIVES[other], table=table)
        add_processes(world, f"{other}{number}-", 1, live, rates=calm, within_s=3.0)
    world.at_rest("recovery", lambda a: _recovery(a, table))
    return world


# ---- who there is ------------------------------------------------------------------------------


def _write(actor: Actor, table: IndexedTable) -> None:
    access, chance = _access(actor, table), actor.random.fork("writes")
    for number in range(table.setting.world.writes):
        verb = _VERBS[chance.below(len(_VERBS))]
        if table.write(access, verb, chance, f"{actor.name}.{number}") and chance.below(2):
            attempt(actor, "upkeep", lambda: _tend(actor, access))
        actor.clock.sleep(chance.uniform(0, 2))


def _compact(actor: Actor, table: IndexedTable) -> None:
    service = Compaction(_access(actor, table), ALWAYS, compactor=RealCompactor(table))

    def run() -> None:
        for done in service.run():
            table.model.acknowledged[done.instant] = actor.world.now
            actor.world.count("compacted")

    actor.clock.sleep(actor.random.uniform(0.1, 3.0))
    attempt(actor, "compactor", run)


def _tend(actor: Actor, access: Access) -> None:
    done = tend_metadata_table(access, _UPKEEP)
    actor.world.counts["metadata table compacted"] += done.compaction is not None
    actor.world.counts["metadata files cleaned"] += done.files_deleted
    actor.world.counts["metadata instants archived"] += done.archived


def _clean(_: Actor, __: IndexedTable, access: Access) -> None:
    run_clean(access, _CLEAN)


def _archive(actor: Actor, _: IndexedTable, access: Access) -> None:
    _tend(actor, access)
    actor.world.counts["instants archived"] += run_archive(access, _ARCHIVE).archived


def _build(_: Actor, table: IndexedTable, access: Access) -> None:
    table.build(access)


def _build_anew(_: Actor, table: IndexedTable, access: Access) -> None:
    drop_metadata_table(access)
    table.build(access)


def _roll_back(actor: Actor, table: IndexedTable, access: Access) -> None:
    timeline = access.timeline(table.table.properties)
    newest = timeline.last_completed_commit()
    pending = timeline.writes().pending().instants
    target = pending[0] if pending and actor.random.below(2) else newest
    if target is not None:
        roll_back_instant(access, target.requested_time)
        actor.world.count("rolled back by name")


def _restore(actor: Actor, table: IndexedTable, access: Access) -> None:
    if access.timeline(table.table.properties).filter_actions("restore").pending():
        run_restore(access)
    else:
        kept = create_savepoint(access).instant
        actor.clock.sleep(actor.random.uniform(0.0, 8.0))
        run_restore(access, kept)
    actor.world.count("restored")


def _read(actor: Actor, table: IndexedTable, _: Access) -> None:
    table.check(actor)


def _rounds(
    role: str, act: Callable[[Actor, IndexedTable, Access], None], rounds: int = 1
) -> Callable[..., None]:
    def live(actor: Actor, table: IndexedTable) -> None:
        access = _access(actor, table)
        for _ in range(rounds):
            actor.clock.sleep(actor.random.uniform(0.1, 4.0))
            attempt(actor, role, lambda: act(actor, table, access))

    return live


_LIVES: Final[Mapping[str, Callable[..., None]]] = {
    "compactor": _compact,
    "cleaner": _rounds("cleaner", _clean, 2),
    "archiver": _rounds("archiver", _archive, 2),
    "builder": _rounds("builder", _build),
    "rebuilder": _rounds("rebuilder", _build_anew),
    "operator": _rounds("operator", _roll_back),
    "restorer": _rounds("restorer", _restore),
    "reader": _rounds("reader", _read, 3),
}
"""What a process does, by its role."""
_OTHERS: Final = tuple(role for role in _LIVES if role != "compactor")
"""Any two of them are beside the writers."""


def _access(actor: Actor, table: IndexedTable) -> Access:
    return access_of(actor, table.table, table.setting.world)


# ---- the end -----------------------------------------------------------------------------------


def _recovery(actor: Actor, table: IndexedTable) -> None:
    """After the longest time that anybody may wait, one process finishes everything."""
    access = outwaited(actor, table.table, table.setting.world)
    properties = table.table.properties
    if access.timeline(properties).filter_actions("restore").pending():
        run_restore(access)
        roll_back_failed(access)  # which had to wait for it
    service = Compaction(access, ALWAYS, compactor=RealCompactor(table))
    for instant in service.pending():
        service.execute(instant)
    for instant in pending_cleans(access):
        execute_clean(access, instant)
    table.build(access)
    if not table.write(access, "upsert", actor.random.fork("last"), actor.name):
        actor.world.violate("recovery", "the next write fails")
    table.verify(actor)
    _tend(actor, access)
    run_archive(access, _ARCHIVE)
    check_nothing_left(actor, table.table, access)
    table.check(actor)
    table.verify(actor)


def _made(name: str, rates: FaultRates) -> Callable[[int], World]:
    return lambda seed: indexed_world(name, seed, rates)


WORKLOADS = (
    Workload(
        "indexed-calm",
        "writers and services keep a metadata table right, nothing goes wrong",
        _made("indexed-calm", NO_RATES),
        share=1,
        real=True,
    ),
    Workload(
        "indexed-storm",
        "the same, with crashes, errors and stalls",
        _made("indexed-storm", _FAULTS),
        share=3,
        real=True,
    ),
)
