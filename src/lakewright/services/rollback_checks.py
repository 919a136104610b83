"""Whether an instant may be rolled back, and what becomes of it: pure, from facts.

A write that is pending may go once nobody works on it. A completed one may go only while nothing is
built on it: it is the newest, by its request and by its completion; no write is pending, which may
have read it; no pending plan takes its file groups; no savepoint keeps it; and the state before it
is whole, with every file that readers of it need.

A plan that is executed again stays a plan when it is rolled back. Taking the plan away as well has
to be asked for, and version 6 allows it for a compaction only while no log lies behind it and none
can be on its way there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from lakewright.errors import ConflictError, LakewrightError, PlanStateError, ServiceError
from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import WRITE_ACTIONS, Instant, State
from lakewright.format.timeline import Timeline
from lakewright.services.needed_files import Taken
from lakewright.txn.plan_kinds import COMPACTION, PlanKind
from lakewright.txn.recovery import INGESTION

__all__ = ["Becomes", "RollbackFacts", "decide"]

SHOWN_MAX = 3
"""So many instants are named where many are in the way."""


class Becomes(Enum):
    """What an instant is after its rollback."""

    NOTHING = "nothing"
    """It is off the timeline."""
    PLAN = "plan"
    """It waits to be executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackFacts:
    """What is known about an instant that is to be rolled back."""

    timeline: Timeline
    target: Instant
    by_completion: bool
    """Whether names tell when instants were completed."""
    merge_on_read: bool = False
    kind: PlanKind | None = None
    """Which plan it is, or was before it was completed; None for a write."""
    removable: bool = False
    """Whether it is a plan that is never executed again."""
    rolling_back: bool = False
    """Whether its rollback is on the timeline already."""
    unschedule: bool = False
    """Whether the plan is to go too."""
    workers: Mapping[str, str] = field(default_factory=dict)
    """Who works on a pending instant, by its time; only those that somebody works on."""
    pending_writes: tuple[str, ...] = ()
    """Times of other writes that are pending."""
    logs_behind: int = 0
    """Version 6: log files that carry the time of a compaction plan."""
    logs_may_come: bool = False
    """Version 6: pending writes may put logs behind a compaction plan."""
    groups: frozenset[FileGroupId] = frozenset()
    """What a completed write changed."""
    plans: Mapping[str, frozenset[FileGroupId]] = field(default_factory=dict)
    """File groups that later pending plans take, by their times."""
    rests_on_archive: bool = False
    """Nothing would be left of the active timeline, though older commits are archived."""
    taken: Taken | None = None
    """A file of the state before a completed write that a clean took, or will take."""

    @property
    def runs_again(self) -> bool:
        """Whether it is a plan that its rollback leaves to be executed again."""
        return self.kind is not None and not self.removable


def decide(facts: RollbackFacts) -> Becomes:
    """What becomes of the instant; an error that says why if it must not be rolled back.

    `ConflictError` where somebody is at work, `ServiceError` where something has to be decided or
    undone first.
    """
    target = facts.target
    if target.action not in WRITE_ACTIONS:
        raise _refused(
            facts,
            f"is of the action {target.action}",
            _WAYS.get(target.action, "Only writes and plans can be."),
        )
    worker = facts.workers.get(target.requested_time)
    if worker is not None:
        raise ConflictError(
            f"The {_called(facts)} {target.requested_time} is alive: {worker} works on it.",
            hint="Stop that process, or wait until it is done. If it is dead, its heartbeat will "
            "expire (hoodie.client.heartbeat.*); roll it back then.",
            context={"instant": target.requested_time, "owner": worker},
            retryable=True,
        )
    if target.completed:
        _refuse_built_on(facts)
    elif facts.runs_again and not facts.unschedule:
        _refuse_unbegun(facts)
    if facts.unschedule:
        _refuse_needed_plan(facts)
    return Becomes.PLAN if facts.runs_again and not facts.unschedule else Becomes.NOTHING


_WAYS = {
    "clean": "Run the clean: it finishes what is pending. What it deleted cannot come back.",
    "rollback": "Name the instant that it rolls back instead; that finishes it.",
    "savepoint": "Delete the savepoint.",
    "restore": "Run the restore: it finishes what is pending.",
    "indexing": "Run `lakewright metadata build` again, or let Hudi finish it if it is Hudi's.",
}


# ---- plans -------------------------------------------------------------------------------------


def _refuse_unbegun(facts: RollbackFacts) -> None:
    if facts.target.state is State.REQUESTED and not facts.rolling_back:
        raise PlanStateError(
            f"The {_called(facts)} {facts.target.requested_time} was not begun: there is nothing "
            "to roll back.",
            hint="Execute it, or take the plan away with unschedule.",
            context={"instant": facts.target.requested_time},
        )


def _refuse_needed_plan(facts: RollbackFacts) -> None:
    time = facts.target.requested_time
    if facts.kind is None:
        raise PlanStateError(
            f"The {facts.target.action} {time} is a write: it has no plan to take away.",
            hint="Roll it back without unschedule.",
            context={"instant": time},
        )
    if facts.kind is not COMPACTION:
        return
    if facts.logs_behind:
        raise PlanStateError(
            f"{facts.logs_behind} log files lie behind the compaction {time}: without its plan "
            "nobody would read them.",
            hint="Execute the compaction.",
            context={"instant": time, "log_files": facts.logs_behind},
        )
    if facts.logs_may_come:
        raise ConflictError(
            f"Writes are pending that may put logs behind the compaction {time}.",
            hint="Wait until they are done, or roll them back; or execute the compaction.",
            context={"instant": time, "pending": ", ".join(facts.pending_writes[:SHOWN_MAX])},
            retryable=True,
        )


# ---- completed writes --------------------------------------------------------------------------


def _refuse_built_on(facts: RollbackFacts) -> None:
    timeline, time = facts.timeline, facts.target.requested_time
    if time in timeline.savepointed_times:
        raise _refused(facts, "is kept by a savepoint", "Delete the savepoint first.")
    twice = any(i.requested_time == time for i in timeline.duplicates)
    if twice or facts.rolling_back:
        raise _refused(
            facts,
            "was completed twice" if twice else "was completed while it was rolled back",
            "Find out which writers do not share a lock, and look at its files before going on.",
        )
    later = [
        i.requested_time
        for i in timeline.commits().completed()
        if i.requested_time > time or _completed_later(facts, i)
    ]
    if later:
        raise _refused(
            facts,
            f"has later commits ({_some(later)})",
            "Roll these back first, the newest first; or restore the table to the commit before "
            f"{time}.",
        )
    _refuse_pending(facts)
    if facts.rests_on_archive:
        raise _refused(
            facts,
            "is the last commit on the active timeline, and older ones are archived",
            "Without an active commit readers would take the archived ones for uncommitted. Write "
            "something, or overwrite what is wrong.",
        )
    if facts.taken is not None:
        raise _not_whole(facts, facts.taken)


def _completed_later(facts: RollbackFacts, other: Instant) -> bool:
    """Whether another commit may have read it although it was requested before.

    Where completion times are those of files they say nothing, and conflict rules exclude it. A
    compaction reads only what was completed before it was planned.
    """
    compaction = facts.merge_on_read and other.action == "commit"
    if not facts.by_completion or compaction or other.legacy or facts.target.legacy:
        return False
    return (other.completion_time or "") > (facts.target.completion_time or "")


def _refuse_pending(facts: RollbackFacts) -> None:
    for pending in facts.pending_writes:
        worker = facts.workers.get(pending)
        raise ConflictError(
            f"The write {pending} is pending, and may have read what {facts.target.requested_time} "
            f"wrote{f': {worker} works on it' if worker else ''}.",
            hint="Wait until it is done." if worker else f"Roll back {pending} first: it is dead.",
            context={"instant": facts.target.requested_time, "pending": pending},
            retryable=worker is not None,
        )
    for plan, groups in facts.plans.items():
        if plan > facts.target.requested_time and groups & facts.groups:
            raise _refused(
                facts,
                f"has files that the plan {plan} takes",
                f"Take that plan away first (rollback of {plan}, with unschedule), or restore the "
                "table to the commit before.",
            )


def _not_whole(facts: RollbackFacts, taken: Taken) -> LakewrightError:
    done = "deleted" if taken.clean.completed else "is going to delete"
    return ServiceError(
        f"The {_called(facts)} {facts.target.requested_time} cannot be rolled back: the clean "
        f"{taken.clean.requested_time} {done} files of the state before it.",
        hint="What it replaced cannot come back; write what is right instead. Savepoints and more "
        "retained commits keep such states.",
        context={
            "instant": facts.target.requested_time,
            "clean": taken.clean.requested_time,
            "partition": taken.partition,
            "file": taken.name,
        },
    )


# ---- words -------------------------------------------------------------------------------------


def _called(facts: RollbackFacts) -> str:
    if facts.kind is not None:
        return facts.kind.service
    return "write" if facts.target.action in INGESTION else facts.target.action


def _refused(facts: RollbackFacts, why: str, hint: str) -> ServiceError:
    time = facts.target.requested_time
    return ServiceError(
        f"{time} cannot be rolled back: it {why}.", hint=hint, context={"instant": time}
    )


def _some(times: list[str]) -> str:
    more = len(times) - SHOWN_MAX
    return ", ".join(times[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
