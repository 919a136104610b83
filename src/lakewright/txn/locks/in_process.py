"""A lock between the threads of one process, by the table's place.

Enough where one process alone writes a table; `shared` is False, so that callers who need more can
tell. The lock is held until it is released, and cannot be lost.
"""

from __future__ import annotations

import threading
from typing import Final

from lakewright.errors import LockLostError
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.txn.locks.protocol import LockHolder

__all__ = ["PROCESS", "InProcessLock", "Registry"]


class Registry:
    """The locks of one process that are held now, by name."""

    def __init__(self) -> None:
        self._held: dict[str, InProcessLease] = {}
        self._guard = threading.Lock()

    def offer(self, name: str, lease: InProcessLease) -> InProcessLease:
        """Hold `name` by `lease` if it is free; who holds it now."""
        with self._guard:
            return self._held.setdefault(name, lease)

    def holder(self, name: str) -> InProcessLease | None:
        """Who holds a lock."""
        with self._guard:
            return self._held.get(name)

    def remove(self, name: str, lease: InProcessLease) -> None:
        """Free `name` if `lease` holds it."""
        with self._guard:
            if self._held.get(name) is lease:
                del self._held[name]


PROCESS: Final = Registry()
"""The locks of this process."""


class InProcessLease:
    """An in-process lock that was obtained."""

    def __init__(self, registry: Registry, name: str, holder: LockHolder) -> None:
        self._registry = registry
        self._name = name
        self._holder = holder

    @property
    def holder(self) -> LockHolder:
        """What others are told about us."""
        return self._holder

    def check(self) -> None:
        """Raise `LockLostError` if it was released."""
        if self._registry.holder(self._name) is not self:
            raise LockLostError(
                "The lock must not be relied upon: it was given back before.",
                hint="Keep the lease until everything is published.",
                context={"lock": self._holder.place, "holder": self._holder.who},
            )

    def release(self) -> None:
        """Give the lock back; again does nothing."""
        self._registry.remove(self._name, self)


class InProcessLock:
    """The lock of `table`, a URI, among the users of one registry."""

    def __init__(
        self, table: str, *, clock: Clock | None = None, registry: Registry = PROCESS
    ) -> None:
        self._table = table.rstrip("/")
        self._clock = clock or SystemClock()
        self._registry = registry

    @property
    def place(self) -> str:
        """What the lock is and where."""
        return f"in-process lock of {self._table}"

    @property
    def shared(self) -> bool:
        """Other processes are not excluded."""
        return False

    def try_acquire(self, who: str) -> InProcessLease | LockHolder:
        """The lock, or who is in the way."""
        holder = LockHolder(who, self._clock.now_ms(), self.place)
        mine = InProcessLease(self._registry, self._table, holder)
        answer = self._registry.offer(self._table, mine)
        return mine if answer is mine else answer.holder

    def held_by(self) -> LockHolder | None:
        """Who holds the lock now."""
        lease = self._registry.holder(self._table)
        return None if lease is None else lease.holder
