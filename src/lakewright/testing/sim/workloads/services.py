"""Writers, readers and every service on one table, through the real code of services.

Data work is stubbed: a compaction reads and writes stub files, everything else (plans, the
execution of plans, cleans, archives, savepoints, rollbacks, conflicts) is the product's. The table
has a past, so that there is something to clean and to archive. Several processes do the same and
other things at once, die, stall and are started again; in the end one process finishes what is
pending. No row may change by any of it, and no plan may be completed twice.

Most worlds are small, since the smallest world that shows a mistake is the best one to look at;
every twentieth is large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from lakewright.format.history_writing import HistoryPolicy
from lakewright.runtime.random import Random, SeededRandom
from lakewright.services.archive import ArchiveOptions, run_archive
from lakewright.services.clean import (
    CleanOptions,
    execute_clean,
    pending_cleans,
    run_clean,
)
from lakewright.services.clean_options import CleanPolicy
from lakewright.services.compaction import Compaction
from lakewright.services.restore import run_restore
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.beginnings import Past, table_with_past
from lakewright.testing.sim.checkers import Checker
from lakewright.testing.sim.faults import NO_RATES, FaultRates
from lakewright.testing.sim.tables import SimTable
from lakewright.testing.sim.workloads.processes import OFFSET_MS_MAX, add_processes
from lakewright.testing.sim.workloads.service_actors import (
    ALWAYS,
    ROLES,
    ServiceSetting,
    StubCompactor,
)
from lakewright.testing.sim.workloads.stub_writes import Writer
from lakewright.testing.sim.workloads.transactions import (
    CRASHES,
    ERRORS,
    STALLS,
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
from lakewright.txn.access import Access, FailedWrites
from lakewright.txn.recovery import roll_back_failed

__all__ = ["WORKLOADS", "make", "one_service", "past", "service_setting_of", "services_world"]

LARGE_EVERY: Final = 20
NEXT_WRITE_EVERY: Final = 3
"""In one of so many worlds somebody writes and reads after everything; the rows at the end are
looked at in every one."""
CLOCKS: Final = FaultRates(jump=0.01, jump_ms_max=240_000.0, crash=0.002)
_WRONG_MS_MAX: Final = 120_000.0
_BY_CLOCKS: Final = frozenset({"14.29a", "14.29c", "14.30", "14.31", "14.3a"})
"""What clocks that are minutes apart break: a process that lives is taken for dead, and finds out
at its next step; no file of it is ever published."""


# ---- settings by seed --------------------------------------------------------------------------


def service_setting_of(seed: int, rates: FaultRates) -> ServiceSetting:
    """Every combination of table and storage comes up in turn; roles and numbers by chance."""
    world = setting_of(seed, rates=rates)
    chance = SeededRandom(f"{seed}/services")
    large = seed % LARGE_EVERY == LARGE_EVERY - 1
    merge_on_read = chance.below(4) > 0
    world = replace(
        world,
        merge_on_read=merge_on_read,
        # Locks on the table's own storage are half of all operations: once in a while is enough.
        lock=world.lock if chance.below(6) == 0 else "ideal",
        writers=1 + chance.below(3) if large else 1 + chance.below(2),
        writes=1 + chance.below(3) if large else 1,
    )
    clean = _clean_options(chance)
    return ServiceSetting(
        world,
        roles={"writer": world.writers, **_roles(chance, merge_on_read, 5 if large else 2)},
        rounds=2 if large else 1,
        clean=clean,
        archive=_archive_options(chance, clean),
    )


def _roles(chance: Random, merge_on_read: bool, count: int) -> dict[str, int]:
    """Processes that look after the table, some of them doing the same."""
    names = [
        "cleaner",
        "cleaner",
        "archiver",
        "keeper",
        "reader",
        "sweeper",
        "operator",
        "restorer",
    ]
    names += ["compactor"] * (3 if merge_on_read else 0)
    chosen: dict[str, int] = {}
    for _ in range(count):
        name = names[chance.below(len(names))]
        chosen[name] = chosen.get(name, 0) + 1 + (chance.below(3) == 0)
    return chosen


def _clean_options(chance: Random) -> CleanOptions:
    policies = (
        CleanPolicy.KEEP_LATEST_COMMITS,
        CleanPolicy.KEEP_LATEST_COMMITS,
        CleanPolicy.KEEP_LATEST_FILE_VERSIONS,
    )
    return CleanOptions(
        policy=policies[chance.below(3)],
        commits_retained=1 + chance.below(3),
        file_versions_retained=1 + chance.below(2),
        incremental=chance.below(2) == 0,
        allow_multiple=chance.below(3) == 0,
    )


def _archive_options(chance: Random, clean: CleanOptions) -> ArchiveOptions:
    keep_min = 2 + chance.below(2)
    return ArchiveOptions(
        keep_min_commits=keep_min,
        keep_max_commits=keep_min + 1,
        beyond_savepoint=chance.below(3) == 0,
        compaction_delta_commits=1,
        clean=clean,
        history=HistoryPolicy(join_files=2, manifests_kept=1 + chance.below(2)),
        batch_instants=1 + chance.below(3),
    )


# ---- pasts -------------------------------------------------------------------------------------


def past(*steps: str) -> Past:
    """A past of writes and services, done one after the other."""

    def fill(table: SimTable) -> None:
        access = _setup_access(table)
        writer = Writer(table.world.setup, table, access)
        for step in steps:
            if step == "compaction" and table.properties.is_merge_on_read:
                compactor = StubCompactor(table.world.setup, table)
                Compaction(access, ALWAYS, compactor=compactor).run()
            elif step == "clean":
                run_clean(access, CleanOptions(commits_retained=2))
            elif step != "compaction":
                assert writer.write(step)

    return fill


def _setup_access(table: SimTable) -> Access:
    setting = replace(setting_of(0, rates=NO_RATES), folders=table.world.disk.has_folders)
    return access_of(table.world.setup, table, replace(setting, lock="ideal"))


PASTS: Final[tuple[Past, ...]] = (
    past("append", "log"),
    past("append", "log", "compaction", "log"),
    past("append", "log", "compaction", "overwrite", "append", "log"),
    past("append", "rewrite", "clean", "log", "compaction", "overwrite", "log", "append"),
)


# ---- worlds ------------------------------------------------------------------------------------


def make(name: str, seed: int, rates: FaultRates) -> World:
    """A world of services."""
    return services_world(name, seed, service_setting_of(seed, rates))


def services_world(
    name: str,
    seed: int,
    setting: ServiceSetting,
    *,
    checkers: tuple[Checker, ...] | None = None,
    offset_ms_max: float = OFFSET_MS_MAX,
) -> World:
    """The world of a setting."""
    own = setting.world
    world = World(seed, workload=name, folders=own.folders)
    table = table_with_past(
        world,
        PASTS[world.random.below(len(PASTS))],
        version=own.version,
        merge_on_read=own.merge_on_read,
        checkers=checkers_of(own) if checkers is None else checkers,
    )
    for role, count in setting.roles.items():
        add_processes(
            world,
            role,
            count,
            lambda a, live=ROLES[role]: live(a, table, setting),  # type: ignore[misc]
            rates=_rates(role, own),
            offset_ms_max=offset_ms_max,
        )
    world.at_rest("recovery", lambda a: _recovery(a, table, setting))
    return world


def one_service(role: str, setting: ServiceSetting) -> World:
    """A world in which `service` looks after a table with a long past once; for crashes at each of
    its operations."""
    own = setting.world
    world = World(0, workload=f"one-{role}", folders=own.folders)
    table = table_with_past(
        world,
        PASTS[-1],
        version=own.version,
        merge_on_read=own.merge_on_read,
        checkers=checkers_of(own),
    )
    setting = replace(setting, roles={role: 1, "keeper": 1}, rounds=1)
    world.add("service", lambda a: ROLES[role](a, table, setting))
    world.at_rest("reader", table.check_reader)
    world.at_rest("recovery", lambda a: _recovery(a, table, setting))
    return world


def _rates(role: str, setting: Setting) -> FaultRates:
    """A reader that dies shows nothing."""
    return replace(setting.rates, crash=0.0) if role == "reader" else setting.rates


def _recovery(actor: Actor, table: SimTable, setting: ServiceSetting) -> None:
    """After the longest time that anybody may wait, one process finishes everything."""
    own = setting.world
    access = replace(outwaited(actor, table, own), failed_writes=FailedWrites.EAGER)
    if access.timeline(table.properties).filter_actions("restore").pending():
        run_restore(access)
        actor.world.count("restored at rest")
        roll_back_failed(access)  # which had to wait for it
    service = Compaction(access, ALWAYS, compactor=StubCompactor(actor, table))
    for instant in service.pending():
        service.execute(instant)
        actor.world.count("compacted at rest")
    for instant in pending_cleans(access):
        execute_clean(access, instant)
        actor.world.count("cleaned at rest")
    if not {"keeper", "restorer"}.isdisjoint(setting.roles):
        run_archive(access, setting.archive)  # removes what is left of savepoints too
    if actor.world.seed % NEXT_WRITE_EVERY == 0:
        if not Writer(actor, table, access).write("append"):
            actor.world.violate("recovery", "the next write fails")
        table.check_reader(actor)
    check_nothing_left(actor, table, access)


def _clocks(seed: int) -> World:
    setting = service_setting_of(seed, CLOCKS)
    # Leases on the table's own storage end by clocks that must not be so far apart.
    setting = replace(setting, world=replace(setting.world, lock="ideal"))
    checkers = tuple(c for c in checkers_of(setting.world) if c.rule not in _BY_CLOCKS)
    return services_world(
        "services-clocks", seed, setting, checkers=checkers, offset_ms_max=_WRONG_MS_MAX
    )


def _made(name: str, rates: FaultRates) -> Callable[[int], World]:
    return lambda seed: make(name, seed, rates)


WORKLOADS = (
    Workload(
        "services-calm",
        "writers, readers and all services, nothing goes wrong",
        _made("services-calm", NO_RATES),
        share=24,
    ),
    Workload(
        "services-crashes",
        "the same, processes die at any operation",
        _made("services-crashes", replace(CRASHES, crash=0.01)),
        share=80,
    ),
    Workload(
        "services-errors",
        "the same, operations fail, answers and leases are lost",
        _made("services-errors", replace(ERRORS, lease=0.05)),
        share=70,
    ),
    Workload(
        "services-stalls",
        "the same, processes stand still",
        _made("services-stalls", STALLS),
        share=60,
    ),
    Workload(
        "services-clocks",
        "the same, clocks are minutes apart and are set while processes run",
        _clocks,
        share=24,
    ),
    Workload(
        "services-storm",
        "the same, everything at once",
        _made("services-storm", replace(STORM, crash=0.006)),
        share=120,
    ),
)
