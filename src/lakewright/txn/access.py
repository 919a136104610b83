"""Everything that a change of a table needs from outside, as one value.

A transaction, a rollback or a service takes an `Access` and nothing else from its surroundings:
storage, time, chance, background work, the lock, and who is asking. The lock is always a real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from lakewright.errors import FormatError, NotFoundError
from lakewright.format import property_keys as keys
from lakewright.format.properties import load_properties
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline, load_timeline
from lakewright.runtime.cancel import NEVER_CANCELLED, CancelToken
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.runtime.events import EventHook, ignore_events
from lakewright.runtime.process import Processes, SystemProcesses
from lakewright.runtime.random import Random, SystemRandom
from lakewright.runtime.spawn import Spawner, ThreadSpawner
from lakewright.storage.base import Storage
from lakewright.txn.heartbeat import HeartbeatOptions
from lakewright.txn.locks.protocol import Lease, LockProvider, acquire
from lakewright.txn.states import InstantFiles

__all__ = ["CLOCK_SKEW_MS", "ROLLBACK_DELAY_MS", "Access", "FailedWrites"]

CLOCK_SKEW_MS: Final = 200
"""By how much the clocks of writers may differ; Hudi's own bound."""


ROLLBACK_DELAY_MS: Final = 60 * 60_000


class FailedWrites(Enum):
    """What happens to the writes of dead processes."""

    EAGER = "EAGER"
    """The next write rolls them back before it begins."""
    LAZY = "LAZY"
    """They are rolled back after a commit and by cleaning, once they gave no sign of life for long
    enough."""
    NEVER = "NEVER"
    """They stay until somebody rolls them back by name."""


@dataclass(frozen=True, slots=True)
class Access:
    """One table and the means to change it."""

    storage: Storage
    lock: LockProvider
    alone: bool = False
    """Nobody but lakewright writes the table, so that no other clock has to be waited for."""
    failed_writes: FailedWrites = FailedWrites.EAGER
    heartbeat: HeartbeatOptions = field(default_factory=HeartbeatOptions)
    rollback_delay_ms: int = ROLLBACK_DELAY_MS
    """How old a removable plan must be before it is taken away."""
    lock_wait_s: float = 60.0
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    spawner: Spawner = field(default_factory=ThreadSpawner)
    processes: Processes = field(default_factory=SystemProcesses)
    cancel: CancelToken = NEVER_CANCELLED
    on_event: EventHook = ignore_events
    metadata_of: TableProperties | None = None
    """The properties of the table whose metadata table this is; None: it is a table of rows."""

    @contextmanager
    def locked(self, purpose: str) -> Iterator[Lease]:
        """Hold the table's lock, waited for no longer than `lock_wait_s`.

        Raises `LockHeldError` that names the holder.
        """
        lease = acquire(
            self.lock,
            f"lakewright {purpose}, {self.processes.own}",
            wait_s=self.lock_wait_s,
            clock=self.clock,
            random=self.random,
            cancel=self.cancel,
            on_event=self.on_event,
        )
        try:
            yield lease
        except (FormatError, NotFoundError):
            lease.check()  # if it was lost, others have changed what looks damaged
            raise
        finally:
            lease.release()

    def properties(self) -> TableProperties:
        """The table's properties, as they are now.

        A metadata table has the times of its table, and does not say in which zone they are.
        """
        if self.metadata_of is None:
            return load_properties(self.storage, clock=self.clock)
        found = load_properties(self.storage, clock=self.clock, metadata_table=True)
        zone = {keys.TIMELINE_TIMEZONE: self.metadata_of.timeline_timezone}
        return TableProperties({**found.values, **zone})

    def timeline(self, properties: TableProperties) -> Timeline:
        """The active timeline, as it is now."""
        return load_timeline(self.storage, properties)

    def files(self, properties: TableProperties) -> InstantFiles:
        """The state files of the table's instants."""
        return InstantFiles(self.storage, properties, self.random)

    def skew_s(self) -> float:
        """How long a lock must be kept after a time was taken, so that no other writer's clock can
        give a smaller one afterwards."""
        return 0.0 if self.alone else CLOCK_SKEW_MS / 1000
