"""Locks in a simulated world: an ideal one, and the book that knows who really holds which.

`SimLock` is a lock service outside the table's storage, as a session of ZooKeeper is: it is lost
when its process dies or stands still for longer than the lease, and never otherwise. `Watched`
wraps any provider, also the real ones on the simulated disk. Both write a `Ledger`, which is what
the rule "published by the holder" is checked against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakewright.errors import LockLostError
from lakewright.format.instant import State, parse_instant_name
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.disk import Change
from lakewright.testing.sim.table_state import TableState
from lakewright.testing.sim.world import World
from lakewright.txn.locks.protocol import Lease, LockHolder, LockProvider

__all__ = ["Ledger", "SimLock", "Watched", "published_by_holder"]

_LATENCY_S = 0.002


@dataclass(slots=True)
class Ledger:
    """Who holds the lock of one table, in truth."""

    holder: Actor | None = None
    since_s: float = 0.0
    taken_over: int = 0
    """How often a lock changed hands without being given back."""

    def grant(self, actor: Actor, now_s: float) -> None:
        """The lock is `actor`'s now."""
        if self.holder is not None and self.holder is not actor:
            self.taken_over += 1
        self.holder, self.since_s = actor, now_s

    def free(self, actor: Actor) -> None:
        """`actor` gave it back, if it was its own."""
        if self.holder is actor:
            self.holder = None


class SimLock:
    """One process' door to the ideal lock of a world."""

    def __init__(self, ledger: Ledger, actor: Actor, *, lease_s: float) -> None:
        self._ledger = ledger
        self._actor = actor
        self._lease_s = lease_s

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
        world.scheduler.pause(world.now + _LATENCY_S)
        holder = self._ledger.holder
        if holder is not None and not self._lost(holder):
            return LockHolder(holder.name, None, self.place)
        if holder is not None:
            world.count("lock.taken_over")
        self._ledger.grant(self._actor, world.now)
        world.trace.add(world.now, self._actor.name, "lock", who)
        return _SimLease(self, who)

    def _lost(self, holder: Actor) -> bool:
        """Whether the service has given up on a process that is dead or stands still."""
        now = holder.world.now
        if holder.dead:
            return now > holder.died_at + self._lease_s
        return holder.resume_at > now > holder.stalled_at + self._lease_s

    def holds(self) -> bool:
        """Whether the lock is this process', as the service sees it."""
        return self._ledger.holder is self._actor

    def free(self) -> None:
        """Give it back, if the process can."""
        if not self._actor.dead:
            self._ledger.free(self._actor)
            world = self._actor.world
            world.trace.add(world.now, self._actor.name, "unlock")


class _SimLease:
    """A held ideal lock."""

    def __init__(self, lock: SimLock, who: str) -> None:
        self._lock = lock
        self._holder = LockHolder(who, None, lock.place)
        self._released = False

    @property
    def holder(self) -> LockHolder:
        """What others are told about us."""
        return self._holder

    def check(self) -> None:
        """Raise `LockLostError` unless the lock is still ours."""
        if self._released or not self._lock.holds():
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
            self._lock.free()


class Watched:
    """Any lock provider, with the ledger kept."""

    def __init__(self, inner: LockProvider, ledger: Ledger, actor: Actor) -> None:
        self._inner = inner
        self._ledger = ledger
        self._actor = actor

    @property
    def place(self) -> str:
        """What the lock is and where."""
        return self._inner.place

    @property
    def shared(self) -> bool:
        """Whether it excludes other processes."""
        return self._inner.shared

    def try_acquire(self, who: str) -> Lease | LockHolder:
        """The lock, or who is in the way."""
        answer = self._inner.try_acquire(who)
        if isinstance(answer, LockHolder):
            return answer
        world = self._actor.world
        if self._ledger.holder is not None and self._ledger.holder is not self._actor:
            world.count("lock.taken_over")
        self._ledger.grant(self._actor, world.now)
        world.trace.add(world.now, self._actor.name, "lock", who)
        return _WatchedLease(answer, self._ledger, self._actor)


class _WatchedLease:
    """A lease whose release is noted before it can take effect."""

    def __init__(self, inner: Lease, ledger: Ledger, actor: Actor) -> None:
        self._inner = inner
        self._ledger = ledger
        self._actor = actor

    @property
    def holder(self) -> LockHolder:
        """What others are told about us."""
        return self._inner.holder

    def check(self) -> None:
        """Raise `LockLostError` unless the lock is surely still ours."""
        self._inner.check()

    def release(self) -> None:
        """Give the lock back."""
        if not self._actor.dead:
            self._ledger.free(self._actor)
            world = self._actor.world
            world.trace.add(world.now, self._actor.name, "unlock")
        self._inner.release()


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
