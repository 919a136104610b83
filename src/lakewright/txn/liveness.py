"""Whether the process behind a pending instant still works on it.

An instant of ours names its process, so a dead process of this machine is known at once; every
other process is judged by its heartbeat. A process that beats but is known to be dead is dead.
"""

from __future__ import annotations

from lakewright.txn.access import Access
from lakewright.txn.fence import owner_of
from lakewright.txn.heartbeat import heartbeat_alive

__all__ = ["is_alive"]


def is_alive(access: Access, instant: str) -> bool:
    """Whether an instant must be left to the process that works on it."""
    owner = owner_of(access.storage, instant)
    if owner is not None and access.processes.is_dead(owner):
        return False
    return heartbeat_alive(access.storage, instant, access.heartbeat, access.clock)
