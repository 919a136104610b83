"""Locks in a simulated world: an ideal one, and the book that knows who really holds which.

`SimLock` is a lock service outside the table's storage, as a session of ZooKeeper is: it is lost
when its process dies or stands still for longer than the lease, and never otherwise. Locks that are
objects on the simulated disk are watched there. Both keep a `Ledger`, which is what the rule
"published by the holder" is checked against.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from lakewright.errors import LockLostError
from lakewright.format.instant import State, parse_instant_name
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.disk import Change
from lakewright.testing.sim.scheduler import NEVER
from lakewright.testing.sim.table_state import TableState
from lakewright.testing.sim.world import World
from lakewright.txn.locks.file_system import DEFAULT_PATH
from lakewright.txn.locks.lock_file import LockFile
from lakewright.txn.locks.protocol import Lease, LockHolder
from lakewright.txn.locks.storage_lock import LOCK_PATH

__all__ = ["Ledger", "SimLock", "published_by_holder", "watch_lock_files"]

_LATENCY_S = 0.002


@dataclass(slots=True)
class Ledger:
    """Who holds the lock of one table, in truth."""

    holder: Actor | None = None
    lost_at: float = NEVER
    """When the service gives the holder up, although it lives."""
    times_held: int = 0

    def free(self, actor: Actor) -> None:
        """`actor` gave it back, if it was its own."""
        if self.holder is actor:
            self.holder = None


class SimLock:
    """One process' door to the ideal lock of a world."""

    def __init__(
        self, ledger: Ledger, actor: Actor, *, lease_s: float, losing: float = 0.0
    ) -> None:
        """`losing`: the probability that a lock is lost before it is looked at for the first time,
        although nothing is wrong with its process."""
        self._ledger = ledger
        self._actor = actor
        self._lease_s = lease_s
        self._losing = losing

    @property
    def place(self) -> str:
        """What the lock is and where."""
        return "lock of the simulated world"

    @property
    def shared(self) -> bool:
        """Other processes are excluded."""
        return True

    def try_acquire(self, who: str) -> Lease | LockHolder:
        """The lock, or who is in the way."""
        world = self._actor.world
        if world.scheduler.current is not None:
            world.scheduler.pause(world.now + _LATENCY_S)
        holder = self._ledger.holder
        if holder is not None and not self._lost(holder):
            return LockHolder(holder.name, None, self.place)
        if holder is not None:
            world.count("lock.taken_over")
        ledger, chance = self._ledger, self._actor.fates.chance
        ledger.holder, ledger.lost_at = self._actor, NEVER
        ledger.times_held += 1
        if self._losing and chance.random() < self._losing:
            ledger.lost_at = world.now + chance.random()
        world.trace.add(world.now, self._actor.name, "lock", who)
        return _SimLease(self, who, ledger.times_held)

    def _lost(self, holder: Actor) -> bool:
        """Whether the service has given up on a process that is dead or stands still."""
        now = holder.world.now
        if now > self._ledger.lost_at:
            return True
        if holder.dead:
            return now > holder.died_at + self._lease_s
        return holder.resume_at > now > holder.stalled_at + self._lease_s

    def look(self, lease: int) -> bool:
        """Whether the lock is still held as the service sees it; what lasts until the first look is
        safe from then on."""
        if not self._is_current(lease):
            return False
        if self._ledger.lost_at != NEVER:
            self._actor.world.count("lock.lost")
            self._ledger.holder = None
            return False
        return True

    def free(self, lease: int) -> None:
        """Give it back, if the process can."""
        if not self._actor.dead and self._is_current(lease):
            self._ledger.free(self._actor)
            world = self._actor.world
            world.trace.add(world.now, self._actor.name, "unlock")

    def _is_current(self, lease: int) -> bool:
        return self._ledger.holder is self._actor and self._ledger.times_held == lease


class _SimLease:
    """A held ideal lock."""

    def __init__(self, lock: SimLock, who: str, number: int) -> None:
        self._lock = lock
        self._number = number
        self._holder = LockHolder(who, None, lock.place)
        self._released = False

    @property
    def holder(self) -> LockHolder:
        """What others are told about us."""
        return self._holder

    def check(self) -> None:
        """Raise `LockLostError` unless the lock is still ours."""
        if self._released or not self._lock.look(self._number):
            raise LockLostError(
                "The lock passed to somebody else.",
                hint="Nothing was published; run it again.",
                context={"lock": self._lock.place},
                retryable=True,
            )

    def release(self) -> None:
        """Give the lock back; again does nothing."""
        if not self._released:
            self._released = True
            self._lock.free(self._number)


def watch_lock_files(world: World, ledger: Ledger, *, root: str) -> Callable[[Change], None]:
    """An observer: keep the ledger of the locks that are objects on the disk.

    Who holds the lock is what its object says, from the moment at which it says so, whenever a
    process learns of it.
    """
    owners: dict[str, Actor] = {}
    paths = {f"{root}/{LOCK_PATH}", f"{root}/{DEFAULT_PATH}"}

    def observe(change: Change) -> None:
        if change.path not in paths:
            return
        found = world.disk.bucket.get(change.path)
        owner, given_back = _owner(found.content) if found is not None else ("", True)
        if given_back:
            if ledger.holder is not None:
                world.trace.add(world.now, change.who, "unlock", change.path)
            ledger.holder = None
            return
        actor = next((a for a in world.actors if a.name == change.who), world.setup)
        holder = owners.setdefault(owner, actor)
        if ledger.holder is not holder:
            if ledger.holder is not None:
                world.count("lock.taken_over")
            ledger.holder = holder
            world.trace.add(world.now, holder.name, "lock", change.path)

    return observe


def _owner(content: bytes) -> tuple[str, bool]:
    """The token of a lock object, and whether it was given back."""
    file = LockFile.decode(content, modified_ms=0)
    if file.token is not None:
        return file.token, file.released
    values = json.loads(content)
    return values["owner"], values["expired"]


def published_by_holder(
    world: World, state: TableState, ledger: Ledger, *, root: str
) -> Callable[[Change], None]:
    """An observer: completed files, and requested ones where times are taken under the lock, are
    created by the process that holds the lock (invariant 28)."""
    folder = f"{root}/{state.properties.timeline_folder}/"
    layout = state.version.layout_version

    def observe(change: Change) -> None:
        if change.operation == "delete" or not change.path.startswith(folder):
            return
        parsed = parse_instant_name(change.path[len(folder) :], layout)
        if parsed is None or parsed.state is State.INFLIGHT or change.who == "setup":
            return
        holder = ledger.holder.name if ledger.holder is not None else "nobody"
        if holder != change.who:
            name = change.path[len(folder) :]
            world.violate("14.28", f"{change.who} created {name} while {holder} held the lock")

    return observe
