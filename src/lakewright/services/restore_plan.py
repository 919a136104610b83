"""Which writes a restore takes back, and in which order: pure, from a timeline and a few facts.

A restore goes to a completed commit, mostly one that a savepoint keeps. What was requested later is
taken back. Where completion times are in the names, so is what was requested earlier and completed
only after the savepoint was made, or without one after the commit: it is not in the state that is
asked for. Compactions of merge-on-read tables change no rows; for them the request alone counts, as
in Hudi.

The newest goes first, in the order in which writes take effect, so that readers meanwhile see older
and older states of the table; pending clusterings go before all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakewright.errors import ConflictError, InstantNotFoundError, LakewrightError, ServiceError
from lakewright.format.instant import Instant
from lakewright.format.records import InstantInfo
from lakewright.format.timeline import Timeline
from lakewright.services.needed_files import Taken

__all__ = [
    "RestoreDraft",
    "RestoreFacts",
    "RestorePlanned",
    "Restored",
    "draft_restore",
    "refuse_unsafe",
]


@dataclass(frozen=True, slots=True)
class RestoreDraft:
    """What a restore would do."""

    to: str
    """The commit that will be the newest."""
    savepointed: bool
    undone: tuple[Instant, ...]
    """Writes and plans that go, in this order."""
    left: Timeline
    """The timeline without them."""

    @property
    def first_undone(self) -> str:
        """The earliest request among what goes."""
        return min(i.requested_time for i in self.undone)


def draft_restore(
    timeline: Timeline,
    to: str | None,
    *,
    by_completion: bool,
    merge_on_read: bool,
    clusterings: frozenset[str] = frozenset(),
) -> RestoreDraft:
    """What goes back to a commit takes back; `to` None is the newest savepoint.

    `clusterings` are the times of pending ones. Raises `InstantNotFoundError` if there is no such
    commit on the active timeline.
    """
    commit = _commit(timeline, to)
    savepoint = timeline.savepoints().get(commit.requested_time)
    moment = (savepoint or commit).completion_time or commit.requested_time

    def goes(instant: Instant) -> bool:
        if instant.requested_time > commit.requested_time:
            return True
        compaction = merge_on_read and instant.action == "commit"
        if not by_completion or compaction or not instant.completed or instant.legacy:
            return False
        return instant != commit and (instant.completion_time or "") > moment

    undone = [i for i in timeline.writes() if goes(i)]
    undone.sort(key=lambda i: _effect(i, by_completion, clusterings), reverse=True)
    gone = frozenset(undone)
    left = Timeline(tuple(i for i in timeline if i not in gone))
    return RestoreDraft(commit.requested_time, savepoint is not None, tuple(undone), left)


def _commit(timeline: Timeline, to: str | None) -> Instant:
    savepoints = timeline.savepoints()
    newest = savepoints.last()
    if to is None and newest is None:
        raise InstantNotFoundError(
            "The table has no savepoint to go back to.",
            hint="Name the commit to which the table is to be restored.",
        )
    wanted = to if to is not None else newest.requested_time if newest is not None else ""
    found = timeline.commits().completed().get(wanted)
    if found is None:
        kept = ", ".join(i.requested_time for i in savepoints) or "none"
        raise InstantNotFoundError(
            f"There is no completed commit {wanted} on the active timeline.",
            hint=f"Savepoints of this table: {kept}. Any commit that is not cleaned or archived "
            "will do (lakewright timeline commits).",
            context={"instant": wanted},
        )
    return found


def _effect(
    instant: Instant, by_completion: bool, clusterings: frozenset[str]
) -> tuple[bool, bool, str]:
    """Sorts writes by when they took effect; what has not yet comes last."""
    clustering = instant.requested_time in clusterings and not instant.completed
    if not by_completion:
        return clustering, False, instant.requested_time
    pending = instant.completion_time is None
    return clustering, pending, instant.completion_time or instant.requested_time


# ---- what callers are told ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RestorePlanned:
    """What a restore would do."""

    to: str
    savepointed: bool
    undone: tuple[InstantInfo, ...]
    """Writes and plans that go, or still have to, in this order."""
    restore: str | None = None
    """The restore that is pending, and would go on."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did."""

    to: str
    restore: str | None
    """The restore on the timeline; None if there was nothing to take back."""
    undone: tuple[str, ...] = ()
    files_deleted: int = 0
    resumed: bool = False
    """Whether another process had begun it."""

    def to_dict(self) -> dict[str, object]:
        """As plain values."""
        return {
            "to": self.to,
            "restore": self.restore,
            "undone": list(self.undone),
            "files_deleted": self.files_deleted,
            "resumed": self.resumed,
        }


# ---- what stands against it --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFacts:
    """What a restore must know and the timeline does not say."""

    workers: Mapping[str, str] = field(default_factory=dict)
    """Who works on pending instants, by their times."""
    archived_later: tuple[str, ...] = ()
    """Archived writes later than the commit; without a savepoint, archived cleans as well."""
    late_rollbacks: tuple[str, ...] = ()
    """Completed writes that a pending rollback is for."""
    mixed: tuple[str, str] | None = None
    """Version 6: a write that stays, and a compaction that goes and has logs of it behind it."""
    taken: Taken | None = None
    """A file of the wanted state that a clean took, or will take."""
    missing: str | None = None
    """A file that the savepoint names and that is not there."""


def refuse_unsafe(timeline: Timeline, draft: RestoreDraft, facts: RestoreFacts) -> None:
    """Raise unless a restore can give back the state that is asked for.

    `ConflictError` while somebody works on the table, `ServiceError` where something has to be done
    first or the state is not whole any more.
    """
    for time, worker in facts.workers.items():
        raise ConflictError(
            f"{time} is not over yet: {worker} works on it.",
            hint="Stop every writer and service of the table, then restore it.",
            context={"to": draft.to, "pending": time, "owner": worker},
            retryable=True,
        )
    # A commit that began before may have ended, and been kept, only after the savepoint was made.
    gone = {i.requested_time for i in draft.undone}
    later = sorted(t for t in timeline.savepointed_times if t > draft.to or t in gone)
    if later:
        raise _refused(
            draft,
            f"the savepoints of {', '.join(later)} keep later commits",
            "Delete these savepoints first, or restore to the newest.",
        )
    twice = sorted(i.requested_time for i in timeline.duplicates if i.requested_time in gone)
    late = sorted(gone.intersection(facts.late_rollbacks))
    if twice or late:
        raise _refused(
            draft,
            f"{(twice or late)[0]} was completed {'twice' if twice else 'while rolled back'}",
            "Find out which writers do not share a lock, and look at its files before going on.",
        )
    if facts.archived_later:
        raise _refused(
            draft,
            f"{facts.archived_later[-1]} is later and archived, and cannot be taken back",
            "Archiving went beyond the savepoint (hoodie.archive.beyond.savepoint). Read the "
            "savepoint, and write its rows.",
        )
    if facts.mixed is not None:
        stays, goes = facts.mixed
        raise _refused(
            draft,
            f"{stays}, which stays, has logs behind the compaction {goes}, which would go",
            "Restore to an earlier commit.",
        )
    if facts.taken is not None or facts.missing is not None:
        raise _not_whole(draft, facts.taken, facts.missing)


def _refused(draft: RestoreDraft, why: str, hint: str) -> ServiceError:
    return ServiceError(
        f"The table cannot be restored to {draft.to}: {why}.", hint=hint, context={"to": draft.to}
    )


def _not_whole(draft: RestoreDraft, taken: Taken | None, missing: str | None) -> LakewrightError:
    if taken is None:
        return _refused(
            draft,
            f"the file {missing} of its savepoint is not there",
            "Look for it in other copies of the table.",
        )
    done = "deleted" if taken.clean.completed else "is going to delete"
    return ServiceError(
        f"The table cannot be restored to {draft.to}: the clean {taken.clean.requested_time} "
        f"{done} files of that state.",
        hint="Restore to a savepoint, or to a commit that cleaning has left whole.",
        context={
            "to": draft.to,
            "clean": taken.clean.requested_time,
            "partition": taken.partition,
            "file": taken.name,
        },
    )
