"""The lock of a table, for what happens inside a section that holds it already.

The metadata table has no lock of its own. Services that work on it take the lock of its table,
which their caller holds: they get it at once, and giving it back is left to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakewright.txn.locks.protocol import Lease, LockHolder

__all__ = ["HeldLock"]


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock that the caller holds."""

    lease: Lease

    @property
    def place(self) -> str:
        """What the lock is and where."""
        return self.lease.holder.place

    @property
    def shared(self) -> bool:
        """It is the table's own."""
        return True

    def try_acquire(self, who: str) -> Lease | LockHolder:  # noqa: ARG002
        """The lease, which outlives the section that asks for it."""
        return _Lent(self.lease)


@dataclass(frozen=True, slots=True)
class _Lent:
    """A lease that is given back by somebody else."""

    lease: Lease

    @property
    def holder(self) -> LockHolder:
        return self.lease.holder

    def check(self) -> None:
        self.lease.check()

    def release(self) -> None:
        """The lender does it."""
