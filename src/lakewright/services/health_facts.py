"""What is known of a table's state before anybody judges it; plain values, filled by `watching`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import tzinfo
from enum import Enum

from lakewright.format.instant import Instant
from lakewright.format.records import InstantInfo
from lakewright.format.timeline import Timeline
from lakewright.services.archive_plan import ArchivePlan
from lakewright.services.compaction_plan import CompactionOptions
from lakewright.services.savepoint import Savepoint
from lakewright.txn.liveness import LifeSigns
from lakewright.txn.locks.protocol import LockHolder
from lakewright.txn.plan_kinds import PlanKind

__all__ = ["CompactionFacts", "Life", "MetadataFacts", "Pending", "TableFacts"]


class Life(Enum):
    """What can be said of the process behind an instant."""

    ALIVE = "alive"
    DEAD = "dead"
    """Its process is known to be gone, or it has not given a sign of life for too long, or it has
    given up."""
    UNKNOWN = "unknown"
    """It never said who it is and gives no signs, as writers of Hudi in single-writer mode and its
    services before 1.2."""


@dataclass(frozen=True, slots=True)
class Pending:
    """One instant that is not completed."""

    instant: Instant
    since_ms: int | None
    signs: LifeSigns
    kind: PlanKind | None = None
    """What plan it is; None for a write or another action."""
    removable: bool = False
    target: InstantInfo | None = None
    """What a rollback undoes."""
    unreadable: str | None = None
    """Why its plan cannot be read."""
    missing: tuple[str, ...] = ()
    """Files that its plan names and that are not there."""


@dataclass(frozen=True, slots=True)
class CompactionFacts:
    """Where the next compaction stands."""

    due: bool
    writes: int
    """Completed writes since the last compaction."""
    options: CompactionOptions
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MetadataFacts:
    """The metadata table, as far as the table tells."""

    built: tuple[str, ...] = ()
    building: tuple[str, ...] = ()
    folder: bool = False
    """Whether its folder is there."""
    untrusted: str | None = None
    """Why readers list folders instead of trusting it."""
    lost: tuple[str, ...] = ()
    """Indexes that had to be dropped and are to come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """One look at a table."""

    uri: str
    now_ms: int
    tolerance_ms: int
    """After which silence a process counts as dead."""
    rollback_delay_ms: int
    zone: tzinfo
    """Of the times of instants."""
    timeline: Timeline
    pending: tuple[Pending, ...] = ()
    alone: bool = True
    """Whether every write on the timeline is ours."""
    compaction: CompactionFacts | None = None
    clean_files: int | None = None
    """Files that a clean would delete now; None if it would not begin."""
    archive: ArchivePlan | None = None
    savepoints: tuple[Savepoint, ...] = ()
    lock: LockHolder | None = None
    left_over: tuple[str, ...] = ()
    """Times of writes that are over and have left traces."""
    metadata: MetadataFacts = field(default_factory=MetadataFacts)
    not_known: tuple[tuple[str, str], ...] = ()
    """What could not be found out, and why."""

    def life(self, pending: Pending) -> Life:
        """Whether somebody works on an instant."""
        signs = pending.signs
        if signs.known_dead:
            return Life.DEAD
        if signs.beaten_ms is not None:
            silent = self.now_ms - signs.beaten_ms > self.tolerance_ms
            return Life.DEAD if silent else Life.ALIVE
        return Life.UNKNOWN if signs.owner is None else Life.DEAD

    def age_ms(self, pending: Pending) -> int:
        """How long ago an instant was requested; 0 where its time is no date."""
        return 0 if pending.since_ms is None else self.now_ms - pending.since_ms
