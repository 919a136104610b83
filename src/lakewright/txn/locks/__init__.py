"""Locks of a table: one at a time may change its timeline, whoever else wants to.

`protocol` says what a lock is and how one waits for it, `resolve` finds the lock that options name.
The others are one kind of lock each; those that Hudi knows too exclude Hudi's own writers.
"""

from __future__ import annotations

from lakewright.txn.locks.protocol import Lease, LockHolder, LockProvider, acquire
from lakewright.txn.locks.resolve import lock_from, lock_wait_s

__all__ = ["Lease", "LockHolder", "LockProvider", "acquire", "lock_from", "lock_wait_s"]
