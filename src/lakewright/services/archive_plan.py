"""Which instants leave the active timeline: pure, from a timeline and a few facts about files.

Readers take every write before the start of the active timeline for committed, so an instant may be
archived only if nothing uncommitted is older than what stays, and if nobody needs its file again.
Each such need is a `Limit`: only instants requested before it may go. A plan is a prefix of the
completed commits below all limits, with the cleans and rollbacks that go along; it tells the limits
that held, so that a person sees what keeps a timeline long.

Stricter than Hudi on purpose: every pending instant limits, not only writes; the target of a
pending rollback does, even when its state files are gone; a pending restore stops everything; the
newest clean stays, because the next one goes on from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from lakewright.format.instant import Instant
from lakewright.format.timeline import Timeline
from lakewright.services.archive_options import ArchiveOptions

__all__ = [
    "NOTHING",
    "ArchiveFacts",
    "ArchivePlan",
    "Begun",
    "Limit",
    "LimitKind",
    "plan_archive",
]

NOTHING = ""
"""A limit that no instant is before."""


class LimitKind(Enum):
    """Why instants must stay."""

    PENDING = "a pending instant"
    RESTORE = "a pending restore"
    UNREADABLE_ROLLBACK = "a pending rollback whose plan cannot be read"
    DUPLICATE = "an instant that was completed twice"
    METADATA_TABLE = "the metadata table was not compacted since"
    DATA_TIMELINE = "the table's own timeline has it"
    SAVEPOINT = "a savepoint"
    SCHEMA = "no other commit tells the columns of the table, or of a savepoint"
    REPLACED_FILES = "files that were replaced and are not cleaned yet"
    COMPACTION_TRIGGER = "delta commits that are counted for the next compaction"
    LAST_CLEAN = "what the last clean retained"

    @property
    def for_all_actions(self) -> bool:
        """Whether it keeps cleans and rollbacks too."""
        return self in _FOR_ALL


_FOR_ALL = frozenset(
    {
        LimitKind.PENDING,
        LimitKind.RESTORE,
        LimitKind.UNREADABLE_ROLLBACK,
        LimitKind.DUPLICATE,
        LimitKind.METADATA_TABLE,
        LimitKind.DATA_TIMELINE,
    }
)


@dataclass(frozen=True, slots=True)
class Limit:
    """Only instants requested before a time may be archived."""

    kind: LimitKind
    before: str
    """`NOTHING` if none may."""
    cause: str | None = None
    """The time of the instant that is the reason."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What the archive has of instants that are still active: the work of a run which died."""

    instants: frozenset[tuple[str, str]] = frozenset()
    """Their times and actions."""
    until: str | None = None
    """The newest archived write, if older ones are active. These must go: the older ones let the
    timeline begin too early, and what was archived after them looks as if it had never been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFacts:
    """What a plan needs and the timeline does not say."""

    merge_on_read: bool = False
    services_by_count: bool = False
    """Cleans and rollbacks are counted by themselves (version 6); else they go with commits."""
    pending_times: tuple[str, ...] = ()
    """Targets of pending rollbacks."""
    retained: str | None = None
    """The first commit that a clean would retain now."""
    limits: tuple[Limit, ...] = ()
    """Limits that somebody found by looking into files."""
    begun: Begun = Begun()
    """What is in the archive already."""


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """What one run archives."""

    instants: tuple[Instant, ...]
    """Completed, in the order of their requested times."""
    commits: int
    """Completed commits on the active timeline."""
    keep_min: int
    keep_max: int
    limits: tuple[Limit, ...]
    """All that hold, the narrowest first."""

    @property
    def due(self) -> bool:
        """Whether there are more commits than should be."""
        return self.commits > self.keep_max

    @property
    def blocked_by(self) -> Limit | None:
        """Why fewer instants go than should; None if nothing is in the way."""
        wanted = self.commits - self.keep_min if self.due else 0
        commits = sum(i.action not in _SERVICES for i in self.instants)
        return self.limits[0] if self.limits and commits < wanted else None


_SERVICES = ("clean", "rollback")


def plan_archive(timeline: Timeline, options: ArchiveOptions, facts: ArchiveFacts) -> ArchivePlan:
    """The instants that may go and should, oldest first."""
    commits = timeline.commits().completed().instants
    keep_min, keep_max = _kept(commits, options, facts)
    limits = sorted(
        (*_timeline_limits(timeline, commits, options, facts), *facts.limits),
        key=lambda limit: limit.before,
    )
    chosen = _commits(timeline, commits, limits, facts, (keep_min, keep_max))
    services = list(_services(timeline, limits, facts, chosen, (keep_min, keep_max)))
    instants = sorted((*chosen, *services), key=lambda i: (i.requested_time, i.action))
    return ArchivePlan(tuple(instants), len(commits), keep_min, keep_max, tuple(limits))


# ---- how many ----------------------------------------------------------------------------------


def _kept(
    commits: Sequence[Instant], options: ArchiveOptions, facts: ArchiveFacts
) -> tuple[int, int]:
    """The numbers of commits to keep, made greater if cleaning retains more."""
    low, high = options.keep_min_commits, options.keep_max_commits
    if facts.retained is not None:
        needed = sum(c.requested_time > facts.retained for c in commits) + 2
        if low < needed:
            low, high = needed, needed + high - low
    return low, high


# ---- limits ------------------------------------------------------------------------------------


def _timeline_limits(
    timeline: Timeline, commits: Sequence[Instant], options: ArchiveOptions, facts: ArchiveFacts
) -> Iterator[Limit]:
    pending = [i.requested_time for i in timeline.pending()]
    if times := [*pending, *facts.pending_times]:
        # One commit before it stays, so that the start of the timeline is a committed instant.
        earliest = min(times)
        before = max((c.requested_time for c in commits if c.requested_time < earliest), default="")
        yield Limit(LimitKind.PENDING, before or earliest, earliest)
    restore = timeline.filter_actions("restore").pending().first()
    if restore is not None:
        yield Limit(LimitKind.RESTORE, NOTHING, restore.requested_time)
    if timeline.duplicates:
        twice = min(i.requested_time for i in timeline.duplicates)
        yield Limit(LimitKind.DUPLICATE, twice, twice)
    savepoint = timeline.savepoints().first()
    if savepoint is not None and not options.beyond_savepoint:
        yield Limit(LimitKind.SAVEPOINT, savepoint.requested_time, savepoint.requested_time)
    if facts.merge_on_read:
        yield from _compaction_limit(commits, options.compaction_delta_commits)


def _compaction_limit(commits: Sequence[Instant], due_after: int) -> Iterator[Limit]:
    """What must stay so that delta commits since the last compaction can be counted."""
    last = max((c.requested_time for c in commits if c.action == "commit"), default=None)
    deltas = [
        c.requested_time
        for c in commits
        if c.action == "deltacommit" and (last is None or c.requested_time > last)
    ]
    if not deltas:
        return
    needed = (last or deltas[0]) if len(deltas) < due_after else deltas[-due_after]
    yield Limit(LimitKind.COMPACTION_TRIGGER, needed, needed)


def _below(limits: Iterable[Limit], instants: Iterable[Instant]) -> list[Instant]:
    bound = min((limit.before for limit in limits), default=None)
    return [i for i in instants if bound is None or i.requested_time < bound]


# ---- choosing ----------------------------------------------------------------------------------


def _commits(
    timeline: Timeline,
    commits: Sequence[Instant],
    limits: Sequence[Limit],
    facts: ArchiveFacts,
    kept: tuple[int, int],
) -> list[Instant]:
    low, high = kept
    free = _below(limits, commits[:-1])
    free = [c for c in free if c.requested_time not in timeline.savepointed_times]
    old = commits[-low].requested_time if len(commits) > high else NOTHING
    # A run that died had decided about these, or a savepoint that kept one of them is gone.
    late = facts.begun.until or NOTHING
    return [c for c in free if c.requested_time < old or c.requested_time <= late]


def _services(
    timeline: Timeline,
    limits: Sequence[Limit],
    facts: ArchiveFacts,
    chosen: Sequence[Instant],
    kept: tuple[int, int],
) -> Iterator[Instant]:
    low, high = kept
    holding = [limit for limit in limits if limit.kind.for_all_actions]
    newest_clean = timeline.last_clean()
    for action in _SERVICES:
        done = timeline.filter_actions(action).completed().instants
        if facts.services_by_count:
            due: Sequence[Instant] = done[:-low] if len(done) > high else ()
        else:
            due = [i for i in done if chosen and i.requested_time < chosen[-1].requested_time]
        begun = [i for i in done if _key(i) in facts.begun.instants]
        wanted = {i.requested_time for i in (*due, *begun)}
        free = _below(holding, (i for i in done if i.requested_time in wanted))
        yield from (i for i in free if i != newest_clean)


def _key(instant: Instant) -> tuple[str, str]:
    return instant.requested_time, instant.completed_action
