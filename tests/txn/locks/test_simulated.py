"""Locks in simulated worlds: crashes, lost answers and long stalls at every storage operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from lakewright.errors import LakewrightError, LockLostError
from lakewright.testing.sim.actors import Actor, SimProcesses
from lakewright.testing.sim.disk import Change
from lakewright.testing.sim.faults import FaultRates
from lakewright.testing.sim.locks import Ledger, watch_lock_files
from lakewright.testing.sim.world import World
from lakewright.txn.locks.file_system import FileSystemLock
from lakewright.txn.locks.protocol import LockProvider, acquire
from lakewright.txn.locks.storage_lock import StorageLock

ROOT = "table"
VISITS = 4
CONTENDERS = 3


def _lock(kind: str, actor: Actor, *, one_machine: bool) -> LockProvider:
    storage = actor.storage.child(ROOT)
    given = {"clock": actor.clock, "random": actor.random, "spawner": actor}
    if kind == "storage":
        return StorageLock(storage, validity_s=30, renew_s=3, **given)
    processes = SimProcesses(actor, one_machine=one_machine)
    return FileSystemLock(storage, expire_s=30, processes=processes, **given)


def _visit(actor: Actor, kind: str, *, one_machine: bool) -> None:
    """Take the lock, work longer than its validity, publish, give it back; again and again."""
    lock = _lock(kind, actor, one_machine=one_machine)
    for number in range(VISITS):
        try:
            lease = acquire(lock, actor.name, wait_s=1e5, clock=actor.clock, random=actor.random)
        except LakewrightError:
            continue
        actor.clock.sleep(actor.random.uniform(0.0, 45.0))
        try:
            lease.check()
            actor.storage.create_if_absent(f"published/{actor.name}-{number}", b"")
            actor.world.count("published")
        except LockLostError:
            actor.world.count("lost")
        except LakewrightError:
            actor.world.count("failed")
        try:
            lease.release()
        except LakewrightError:
            actor.world.count("left")


def _rule(world: World, ledger: Ledger) -> Callable[[Change], None]:
    def observe(change: Change) -> None:
        if change.path.startswith("published/"):
            holder = ledger.holder.name if ledger.holder is not None else "nobody"
            if holder != change.who:
                world.violate("held", f"{change.who} published while {holder} held the lock")

    return observe


def _play(seed: int, kind: str, rates: FaultRates) -> Counter[str]:
    world = World(seed, workload=kind, folders=kind == "file" and seed % 2 == 0)
    ledger = Ledger()
    world.observe(watch_lock_files(world, ledger, root=ROOT))
    world.observe(_rule(world, ledger))
    one_machine = seed % 3 == 0
    for number in range(CONTENDERS):
        world.add(
            f"contender{number}",
            lambda actor: _visit(actor, kind, one_machine=one_machine),
            rates=rates,
            restarts=2,
        )
    world.at_rest("late", lambda actor: _visit(actor, kind, one_machine=one_machine))
    outcome = world.run()
    assert outcome.violations == (), (seed, world.violations)
    assert outcome.counts["published"] >= VISITS, "the one without faults always gets through"
    return outcome.counts


@pytest.mark.parametrize("kind", ["file", "storage"])
def test_whoever_publishes_holds_the_lock_whatever_fails(kind: str) -> None:
    rates = FaultRates(crash=0.01, unavailable=0.05, unknown=0.05)
    counts: Counter[str] = Counter()
    for seed in range(12):
        counts += _play(seed, kind, rates)
    assert counts["lock.taken_over"] and counts["published"] > 12 * VISITS


@pytest.mark.parametrize("kind", ["file", "storage"])
def test_a_lock_that_stalls_outlives_is_noticed(kind: str) -> None:
    """Stalls only while working: between a check and its publication no lock can help."""
    counts: Counter[str] = Counter()
    for seed in range(6):
        world = World(seed, workload=kind, folders=kind == "file" and seed % 2 == 0)
        ledger = Ledger()
        world.observe(watch_lock_files(world, ledger, root=ROOT))
        world.observe(_rule(world, ledger))

        def stalled(actor: Actor) -> None:
            lock = _lock(kind, actor, one_machine=True)
            lease = acquire(lock, actor.name, wait_s=1e5, clock=actor.clock, random=actor.random)
            actor.stall(100.0)
            actor.clock.sleep(1.0)
            with pytest.raises(LockLostError):
                lease.check()
            lease.release()
            actor.world.count("noticed")

        world.add("stalled", stalled)
        for number in range(2):
            world.add(
                f"contender{number}",
                lambda actor: _visit(actor, kind, one_machine=True),
                delay_s=1.0,
            )
        outcome = world.run()
        assert outcome.violations == (), (seed, world.violations)
        counts += outcome.counts
    assert counts["noticed"] == 6 and counts["published"] == 6 * 2 * VISITS
