"""Invariants of heartbeats: one process behind an instant at a time, none behind what is over."""

from __future__ import annotations

from collections.abc import Iterator

from lakewright.format.instant_times import time_ms
from lakewright.testing.sim.checkers.checker import Checker, When
from lakewright.testing.sim.checkers.plans import is_kept
from lakewright.testing.sim.table_state import TableState

__all__ = ["CHECKERS", "removed_when_old", "rolled_back_when_dead"]

_HEARTBEAT = frozenset({"heartbeat"})


def one_beater(state: TableState) -> Iterator[str]:
    """Processes do not beat for one instant in turn.

    A single beat of a process that was overtaken is possible: it was on its way.
    """
    for instant in state.news_beats():
        beats = state.beats[instant]
        if len(beats) > 3 and beats[-1] == beats[-2] and beats[-1] in beats[:-3]:
            between = next((b for b in reversed(beats[:-2]) if b != beats[-1]), None)
            if between is not None and beats[-3] == between:
                yield f"{beats[-1]} and {between} both beat for {instant}"


def taken_over_when_dead(state: TableState) -> Iterator[str]:
    """Nobody begins to beat for an instant while another process does."""
    for instant in state.news_beats():
        beats = state.beats[instant]
        if len(beats) < 2 or beats.count(beats[-1]) > 1 or beats[-2] in state.ended:
            continue
        if next(reversed(state.beaters[instant])) == beats[-1]:
            yield f"{beats[-1]} takes {instant} from {beats[-2]}, which lives"


def beats_for_what_is_pending(state: TableState) -> Iterator[str]:
    """A heartbeat that is left belongs to a pending instant, or to a process that died."""
    for instant, stored in state.heartbeats.items():
        found = state.timeline.get(instant)
        if (found is None or found.completed) and stored.who not in state.dead:
            what = "not on the timeline" if found is None else "completed"
            yield f"{stored.who} left the heartbeat of {instant}, which is {what}"


def rolled_back_when_dead(tolerance_ms: int, skew_ms: int, *, one_machine: bool) -> Checker:
    """A checker that knows how long a silent process counts as alive, and how far clocks differ.

    The writes of a process, committed ones included, are rolled back by others only after that
    time, or at once where all run on one machine and it is known that it has ended.
    """

    def check(state: TableState) -> Iterator[str]:
        for file, target, _ in state.rollbacks() if state.news_of("rollback") else ():
            beat = state.heartbeats.get(target)
            plan = state.state_files.get(f"{file.requested_time}.rollback.requested")
            if beat is None or plan is None or beat.order > plan.stored.order:
                continue
            silent_ms = plan.stored.modified_ms - beat.modified_ms
            ended = one_machine and beat.who in state.ended
            known = ended or beat.who == plan.stored.who
            if not known and silent_ms < tolerance_ms - skew_ms:
                yield f"{plan.stored.who} rolls {target} back, {silent_ms} ms after its last beat"

    return Checker("14.31", "only the dead are rolled back", frozenset({"state"}), check)


def removed_when_old(delay_ms: int, skew_ms: int) -> Checker:
    """A checker that knows how old a removable plan must be before it is taken away.

    A plan that is executed again is rolled back by its executor alone.
    """

    def check(state: TableState) -> Iterator[str]:
        came = {file.name: file for file in state.news()}
        for file, target, action in state.rollbacks():
            plan = came.get(f"{file.requested_time}.rollback.requested")
            if plan is None:
                continue
            who = plan.stored.who
            requested_ms = time_ms(target, zone=state.properties.timeline_zone)
            age_ms = plan.stored.modified_ms - (requested_ms or 0)
            kept = is_kept(state, target, action)
            if kept is False and age_ms < delay_ms - skew_ms:
                yield f"{who} takes the plan {target} away, {age_ms} ms after it was made"
            if kept and who not in state.beats.get(target, ()):
                yield f"{who} rolls the plan {target} back, and does not execute it"

    about = "only old plans are taken away"
    return Checker("14.31b", about, frozenset({"state"}), check, When.AT_ONCE)


CHECKERS = (
    Checker("14.29a", "one process beats for an instant", _HEARTBEAT, one_beater),
    Checker(
        "14.29c",
        "what somebody works on is left to it",
        _HEARTBEAT,
        taken_over_when_dead,
        When.AT_ONCE,
    ),
    Checker(
        "14.29b",
        "no heartbeat of what is over",
        _HEARTBEAT,
        beats_for_what_is_pending,
        When.AT_REST,
    ),
)
