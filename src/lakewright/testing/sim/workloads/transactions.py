"""Several writers on one table through the real transaction code, with everything that goes wrong.

The seed chooses version, table type, kind of storage and lock, policy for failed writes, and how
bad it gets. Writers crash and are started again; a reader checks every snapshot it pins; at the end
one process recovers what is left and writes once more, and nothing may remain of what failed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from lakewright.errors import FencedError, LakewrightError, NotFoundError
from lakewright.format.own_files import FENCE_FOLDER
from lakewright.runtime.events import Event
from lakewright.runtime.random import SeededRandom
from lakewright.storage.base import Storage
from lakewright.storage.faults import Operation
from lakewright.testing.sim.actors import Actor, SimProcesses
from lakewright.testing.sim.checkers import ALL_CHECKERS, Checker, relaxed, rolled_back_when_dead
from lakewright.testing.sim.faults import NO_RATES, FaultRates
from lakewright.testing.sim.locks import SimLock
from lakewright.testing.sim.tables import SimTable
from lakewright.testing.sim.workloads.processes import add_processes
from lakewright.testing.sim.workloads.stub_writes import KINDS, Writer
from lakewright.testing.sim.workloads.workload import Workload
from lakewright.testing.sim.world import World
from lakewright.txn.access import Access, FailedWrites
from lakewright.txn.heartbeat import HEARTBEAT_FOLDER, HeartbeatOptions
from lakewright.txn.locks.file_system import FileSystemLock
from lakewright.txn.locks.protocol import LockProvider
from lakewright.txn.locks.storage_lock import StorageLock
from lakewright.txn.markers import MARKER_FOLDER
from lakewright.txn.recovery import roll_back, roll_back_failed, sweep_traces

__all__ = [
    "CRASHES",
    "ERRORS",
    "STALLS",
    "STORM",
    "WORKLOADS",
    "Setting",
    "access_of",
    "check_nothing_left",
    "checkers_of",
    "make",
    "one_write",
    "outwaited",
    "roll_back_by_name",
    "setting_of",
]

_LEASE_S = 20.0
_BEAT = HeartbeatOptions(interval_ms=2_000, misses=10)
_SKEW_MS = 1_000
_OVERTAKEN = frozenset({"14.3a"})
"""What a process that stood still may break for a moment: it becomes inflight after it was rolled
back, finds out at its next step, and is rolled back again."""
_CLAIMS = (f"/{HEARTBEAT_FOLDER}/", f"/{FENCE_FOLDER}/")
_LOCK_FILE = "/.hoodie/lock"
_REPLACED = ("/.hoodie/hoodie.properties", "/.hoodie/.index_defs/index.json")
_STATE_FILE = re.compile(r"/timeline/\d|/\.hoodie/\d")

CRASHES = FaultRates(crash=0.003)
ERRORS = FaultRates(unavailable=0.03, unknown=0.03)
STALLS = FaultRates(stall=0.01, stall_s_max=120.0)
STORM = FaultRates(
    crash=0.003,
    stall=0.004,
    stall_s_max=90.0,
    unavailable=0.01,
    unknown=0.01,
    jump=0.002,
    jump_ms_max=150.0,
    lease=0.02,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What kind of world it is."""

    version: int
    merge_on_read: bool
    folders: bool
    """On a local folder and one machine; otherwise in a bucket, from several."""
    lock: str
    """`ideal`, `file` or `storage`."""
    policy: FailedWrites
    alone: bool
    rates: FaultRates
    writers: int = 2
    writes: int = 2
    late: bool = False
    """Whether task attempts may publish after their task was tried again."""

    impatient: bool = False
    """Whether somebody rolls back writes by name while they run."""

    @property
    def disturbed(self) -> bool:
        """Whether writers may lose their instants without any mistake of the protocol."""
        rates = self.rates
        return self.impatient or rates.crash > 0 or rates.stall > 0 or rates.jump > 0


def make(name: str, seed: int, setting: Setting) -> World:
    """The world of a setting."""
    world = World(seed, workload=name, folders=setting.folders)
    table = SimTable.make(
        world,
        version=setting.version,
        merge_on_read=setting.merge_on_read,
        checkers=checkers_of(setting),
    )
    add_processes(
        world,
        "writer",
        setting.writers,
        lambda a: _writer(a, table, setting),
        rates=setting.rates,
    )
    if setting.impatient:
        world.add("operator", lambda a: roll_back_by_name(a, table, setting))
    calm = replace(setting.rates, crash=0.0, stall=0.0)
    world.add("reader", lambda a: _reader(a, table, setting), rates=calm)
    world.at_rest("recovery", lambda a: _recovery(a, table, setting))
    return world


def checkers_of(setting: Setting) -> tuple[Checker, ...]:
    """The invariants that hold in worlds of a setting."""
    if setting.impatient:
        return relaxed(ALL_CHECKERS, _OVERTAKEN)
    dead = rolled_back_when_dead(
        _BEAT.tolerance_of_others_ms, _SKEW_MS, one_machine=setting.folders
    )
    checkers = (*ALL_CHECKERS, dead)
    return relaxed(checkers, _OVERTAKEN) if setting.rates.stall else checkers


def one_write(kind: str, setting: Setting) -> World:
    """A world in which `writer` does one write of a kind on a table that has some; for crashes at
    each of its operations."""
    world = World(0, workload="one-write", folders=setting.folders)
    table = SimTable.make(world, version=setting.version, merge_on_read=setting.merge_on_read)
    before = Writer(world.setup, table, access_of(world.setup, table, setting))
    for _ in range(3):
        before.write("append")

    def write(actor: Actor) -> None:
        Writer(actor, table, access_of(actor, table, setting)).write(kind)

    world.add("writer", write)
    world.at_rest("reader", table.check_reader)
    world.at_rest("recovery", lambda a: _recovery(a, table, setting))
    return world


def access_of(actor: Actor, table: SimTable, setting: Setting) -> Access:
    """Everything that a process needs to change the table."""
    storage = table.storage(actor)
    processes = SimProcesses(actor, one_machine=setting.folders)
    actor.fates.steady = _is_under_the_lock
    return Access(
        storage=storage,
        lock=_lock(actor, table, setting, storage, processes),
        alone=setting.alone,
        failed_writes=setting.policy,
        heartbeat=_BEAT,
        lock_wait_s=300.0,
        clock=actor.clock,
        random=actor.random,
        spawner=actor,
        processes=processes,
        on_event=lambda event: _hear(actor.world, event),
    )


_TOLD = {
    "execution.rolls_back": "plan taken over from an earlier attempt",
    "compaction.left: service.plan_busy": "plan left to who works on it",
    "compaction.left: service.plan_state": "plan left, it is over or gone",
    "rollback.done": "rollback completed",
    "clean.done": "clean completed",
}
"""What the product tells, and how it is counted."""


def _hear(world: World, event: Event) -> None:
    if event.kind in _TOLD:
        world.count(_TOLD[event.kind])


def _is_under_the_lock(operation: Operation) -> bool:
    """Whether an operation publishes a state file, or what the table says of itself, makes an
    instant that of its process, or frees a lock whose file can only be deleted."""
    path = operation.path
    if operation.name == "replace":
        return any(folder in path for folder in _CLAIMS) or path.endswith(_REPLACED)
    if operation.name == "delete" and path.endswith(_LOCK_FILE):
        return True
    publishes = operation.name in ("create_if_absent", "delete")
    return publishes and _STATE_FILE.search(path) is not None


def _lock(
    actor: Actor,
    table: SimTable,
    setting: Setting,
    storage: Storage,
    processes: SimProcesses,
) -> LockProvider:
    clock, random = actor.clock, actor.random
    if setting.lock == "ideal":
        return SimLock(table.ledger, actor, lease_s=_LEASE_S, losing=actor.fates.rates.lease)
    if setting.lock == "file":
        return FileSystemLock(
            storage,
            expire_s=_LEASE_S,
            clock=clock,
            random=random,
            spawner=actor,
            processes=processes,
        )
    return StorageLock(
        storage, validity_s=_LEASE_S, renew_s=2.0, clock=clock, random=random, spawner=actor
    )


def _writer(actor: Actor, table: SimTable, setting: Setting) -> None:
    writer = Writer(actor, table, access_of(actor, table, setting), late=setting.late)
    chance = actor.random.fork("kinds")
    for _ in range(setting.writes):
        try:
            writer.write(KINDS[chance.below(len(KINDS))])
        except FencedError as error:
            if not setting.disturbed:
                raise
            actor.world.count(f"failed.{error.code}")
        except LakewrightError as error:
            actor.world.count(f"failed.{error.code}")
        actor.clock.sleep(chance.uniform(0, 3))


def roll_back_by_name(actor: Actor, table: SimTable, setting: Setting) -> None:
    """Roll back whatever is being written, again and again."""
    access = access_of(actor, table, setting)
    for _ in range(3 * setting.writes):
        actor.clock.sleep(actor.random.uniform(0.0, 1.5))
        pending = access.timeline(table.properties).commits().pending().instants
        if pending:
            target = pending[actor.random.below(len(pending))].requested_time
            done = roll_back(access, target)
            actor.world.count("rolled back by name" if done.rolled_back else "came too late")


def _reader(actor: Actor, table: SimTable, setting: Setting) -> None:
    for _ in range(3 * setting.writes):
        actor.clock.sleep(actor.random.uniform(0.1, 2.0))
        try:
            table.check_reader(actor)
        except LakewrightError as error:
            if setting.rates.unavailable == setting.rates.outage == 0.0:
                raise
            actor.world.count(f"reader.{error.code}")


def _recovery(actor: Actor, table: SimTable, setting: Setting) -> None:
    """After the longest time that anybody may wait, the next process puts everything right."""
    access = outwaited(actor, table, setting)
    if not Writer(actor, table, access).write("append"):
        actor.world.violate("recovery", "the next write fails")
    check_nothing_left(actor, table, access)
    table.check_reader(actor)


def outwaited(actor: Actor, table: SimTable, setting: Setting) -> Access:
    """Wait until nobody can be taken for alive, and roll back what failed."""
    actor.clock.sleep(_BEAT.tolerance_of_others_ms / 1000 * 2 + _LEASE_S * 2)
    access = replace(access_of(actor, table, setting), failed_writes=FailedWrites.EAGER)
    for _ in roll_back_failed(access).rolled_back:
        actor.world.count("rolled back at rest")
    return access


def check_nothing_left(actor: Actor, table: SimTable, access: Access) -> None:
    """Nothing is pending, and no trace of any write is left.

    A beat that was on its way when its write ended takes itself away when it has arrived.
    """
    actor.clock.sleep(_BEAT.interval_ms / 1000)
    sweep_traces(access)
    for instant in table.state.timeline.pending():
        actor.world.violate("recovery", f"{instant} is left pending")
    for folder in (HEARTBEAT_FOLDER, FENCE_FOLDER, MARKER_FOLDER):
        for name in _names(access.storage, folder):
            actor.world.violate("recovery", f"{folder}/{name} is left")


def _names(storage: Storage, folder: str) -> list[str]:
    try:
        return storage.names(folder)
    except NotFoundError:
        return []


# ---- settings by seed --------------------------------------------------------------------------


def setting_of(seed: int, *, rates: FaultRates) -> Setting:
    """Every combination comes up within a few dozen seeds."""
    folders = seed % 2 == 0
    locks = ("ideal", "file") if folders else ("ideal", "storage")
    policies = (FailedWrites.EAGER, FailedWrites.LAZY)
    chance = SeededRandom(f"{seed}/setting")
    if folders:
        rates = replace(rates, unknown=0.0)
    return Setting(
        version=(6, 8)[seed // 2 % 2],
        merge_on_read=seed // 4 % 2 == 1,
        folders=folders,
        lock=locks[seed // 8 % 2],
        policy=policies[seed // 16 % 2],
        alone=seed // 32 % 2 == 0,
        rates=rates,
        writers=2 + chance.below(2),
        writes=1 + chance.below(3),
    )


def _calm(seed: int) -> World:
    return make("calm", seed, setting_of(seed, rates=NO_RATES))


def _crashes(seed: int) -> World:
    rates = replace(CRASHES, crash=(CRASHES.crash, 0.01)[seed % 3 % 2])
    return make("crashes", seed, setting_of(seed, rates=rates))


def _errors(seed: int) -> World:
    return make("errors", seed, setting_of(seed, rates=ERRORS))


def _outages(seed: int) -> World:
    return make("outages", seed, setting_of(seed, rates=FaultRates(outage=0.01)))


def _stalls(seed: int) -> World:
    return make("stalls", seed, setting_of(seed, rates=STALLS))


def _storm(seed: int) -> World:
    return make("storm", seed, setting_of(seed, rates=STORM))


def _impatient(seed: int) -> World:
    """Somebody rolls writes back by name while they run."""
    setting = replace(setting_of(seed, rates=NO_RATES), impatient=True)
    return make("impatient", seed, setting)


def _late_attempts(seed: int) -> World:
    setting = replace(setting_of(seed, rates=NO_RATES), late=True)
    return make("late-attempts", seed, setting)


def _old_listings(seed: int) -> World:
    setting = setting_of(2 * seed + 1, rates=FaultRates(crash=0.002, lag_s_max=0.5))
    return make("old-listings", seed, setting)


WORKLOADS = (
    Workload("calm", "writers and a reader, nothing goes wrong", _calm, share=2),
    Workload("crashes", "writers die at any operation", _crashes, share=4),
    Workload("errors", "operations fail, answers are lost", _errors, share=4),
    Workload("outages", "the storage is out of reach for a while", _outages, share=2),
    Workload("stalls", "processes stand still, locks and heartbeats are lost", _stalls, share=4),
    Workload("impatient", "writes are rolled back by name while they run", _impatient, share=3),
    Workload("storm", "everything at once, clocks included", _storm, share=6),
    Workload(
        "late-attempts",
        "task attempts publish late; no storage closes the moment after their last look",
        _late_attempts,
        broken=True,
    ),
    Workload(
        "old-listings",
        "listings are behind; transactions need storage whose listings are not",
        _old_listings,
        broken=True,
    ),
)
