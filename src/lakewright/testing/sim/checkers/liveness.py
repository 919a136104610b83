"""Invariants of heartbeats: one process behind an instant at a time, none behind what is over."""

from __future__ import annotations

from collections.abc import Iterator

from lakewright.testing.sim.checkers.checker import Checker, When
from lakewright.testing.sim.table_state import TableState

__all__ = ["CHECKERS", "rolled_back_when_dead"]

_HEARTBEAT = frozenset({"heartbeat"})


def one_beater(state: TableState) -> Iterator[str]:
    """Processes do not beat for one instant in turn.

    A single beat of a process that was overtaken is possible: it was on its way.
    """
    for instant, beats in state.beats.items():
        if len(beats) > 3 and beats[-1] == beats[-2] and beats[-1] in beats[:-3]:
            between = next((b for b in reversed(beats[:-2]) if b != beats[-1]), None)
            if between is not None and beats[-3] == between:
                yield f"{beats[-1]} and {between} both beat for {instant}"


def beats_for_what_is_pending(state: TableState) -> Iterator[str]:
    """A heartbeat that is left belongs to a pending instant, or to a process that died."""
    for instant, stored in state.heartbeats.items():
        found = state.timeline.get(instant)
        if (found is None or found.completed) and stored.who not in state.dead:
            what = "not on the timeline" if found is None else "completed"
            yield f"{stored.who} left the heartbeat of {instant}, which is {what}"


def rolled_back_when_dead(tolerance_ms: int, skew_ms: int) -> Checker:
    """A checker that knows how long a silent process counts as alive, and how far clocks differ.

    While a process runs, its writes are rolled back by others only after that time.
    """

    def check(state: TableState) -> Iterator[str]:
        for file, target, _ in state.rollbacks():
            beat = state.heartbeats.get(target)
            plan = state.state_files.get(f"{file.requested_time}.rollback.requested")
            if beat is None or plan is None or beat.order > plan.stored.order:
                continue
            silent_ms = plan.stored.modified_ms - beat.modified_ms
            known = beat.who in state.ended or beat.who == plan.stored.who
            if not known and silent_ms < tolerance_ms - skew_ms:
                yield f"{plan.stored.who} rolls {target} back, {silent_ms} ms after its last beat"

    return Checker("14.31", "only the dead are rolled back", frozenset({"state"}), check)


CHECKERS = (
    Checker("14.29a", "one process beats for an instant", _HEARTBEAT, one_beater),
    Checker(
        "14.29b",
        "no heartbeat of what is over",
        _HEARTBEAT,
        beats_for_what_is_pending,
        When.AT_REST,
    ),
)
