"""Whether the process behind a pending instant still works on it.

An instant of ours names its process, so a dead process of this machine is known at once; every
other process is judged by its heartbeat. A process that beats but is known to be dead is dead.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakewright.runtime.process import ProcessIdentity
from lakewright.txn.access import Access
from lakewright.txn.fence import owner_of
from lakewright.txn.heartbeat import heartbeat_alive, last_beat_ms

__all__ = ["LifeSigns", "is_alive", "signs_of_life", "who_works_on"]


def is_alive(access: Access, instant: str) -> bool:
    """Whether an instant must be left to the process that works on it."""
    owner = owner_of(access.storage, instant)
    if owner is not None and access.processes.is_dead(owner):
        return False
    return heartbeat_alive(access.storage, instant, access.heartbeat, access.clock)


def who_works_on(access: Access, instant: str) -> str | None:
    """Who works on an instant, for people; None if nobody does."""
    if not is_alive(access, instant):
        return None
    owner = owner_of(access.storage, instant)
    return "a process that is not ours" if owner is None else str(owner)


@dataclass(frozen=True, slots=True)
class LifeSigns:
    """What is known of the process behind an instant."""

    owner: ProcessIdentity | None = None
    """None where it is not ours, or never said who it is."""
    known_dead: bool = False
    beaten_ms: int | None = None
    """Its last heartbeat; None if it has none."""


def signs_of_life(access: Access, instant: str) -> LifeSigns:
    """The signs by which `is_alive` judges, for people to look at."""
    owner = owner_of(access.storage, instant)
    known_dead = owner is not None and access.processes.is_dead(owner)
    return LifeSigns(owner, known_dead, last_beat_ms(access.storage, instant))
