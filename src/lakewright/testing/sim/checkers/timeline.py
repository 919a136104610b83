"""Invariants of the timeline: families, states, times, contents."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from lakewright.errors import LakewrightError
from lakewright.format.instant import State
from lakewright.testing.sim.checkers.checker import Checker
from lakewright.testing.sim.table_state import StateFile, TableState

__all__ = ["CHECKERS"]

_STATE = frozenset({"state"})
_PLANNED = frozenset({"compaction", "logcompaction", "clustering", "clean", "rollback", "restore"})


def one_family_per_time(state: TableState) -> Iterator[str]:
    """At most one action family has a requested time; a savepoint shares that of its commit."""
    for time in state.news_times():
        families = {f.family for f in state.states_of(time) if f.action != "savepoint"}
        if len(families) > 1:
            yield f"{time} is the time of {', '.join(sorted(families))}"


def one_completion(state: TableState) -> Iterator[str]:
    """At most one completed file per requested time and family."""
    for time in state.news_times():
        done = [f for f in state.states_of(time) if f.state is State.COMPLETED]
        if len(done) > len({f.family for f in done}):
            names = ", ".join(sorted(f.name for f in done))
            yield f"{time} was completed more than once: {names}"


def inflight_was_requested(state: TableState) -> Iterator[str]:
    """An inflight file has its requested one."""
    for time, family, there in _states(state):
        begun = State.INFLIGHT in there and State.REQUESTED not in there
        if begun and time not in state.archived:
            yield f"{time} {family} is inflight but not requested"


def completed_was_inflight(state: TableState) -> Iterator[str]:
    """A completed file has its inflight one."""
    for time, family, there in _states(state):
        if State.COMPLETED in there and State.INFLIGHT not in there and time not in state.archived:
            yield f"{time} {family} is completed but not inflight"


def _states(state: TableState) -> Iterator[tuple[str, str, set[State]]]:
    """Time and family of every instant but savepoints, and the states it has files of."""
    for time in state.news_times():
        files = state.states_of(time)
        for family in sorted({f.family for f in files} - {"savepoint"}):
            yield time, family, {f.state for f in files if f.family == family}


def completion_times(state: TableState) -> Iterator[str]:
    """Completion times come after the request, are distinct, and differ from requested ones."""
    if not state.version.completion_time_in_name:
        return
    seen: dict[str, StateFile] = {}
    for file in state.completed() if state.news_completed() else ():
        completed = file.completion_time or ""
        if completed <= file.requested_time:
            yield f"{file.name} completed before it was requested"
        other = seen.setdefault(completed, file)
        if other is not file and other.requested_time != file.requested_time:
            yield f"{' and '.join(sorted((other.name, file.name)))} have one completion time"


def completions_in_order(state: TableState) -> Iterator[str]:
    """What was published later has the greater completion time."""
    if not state.version.completion_time_in_name:
        return
    if not state.news_completed():
        return
    published = sorted(state.completed(), key=lambda f: f.stored.order)
    for earlier, later in pairwise(published):
        if (earlier.completion_time or "") >= (later.completion_time or ""):
            yield f"{later.name} was published after {earlier.name}, with a smaller time"


def contents_parse(state: TableState) -> Iterator[str]:
    """Every completed file and every pending plan can be read."""
    for file in state.news():
        planned = file.state is State.REQUESTED and file.action in _PLANNED
        if file.state is not State.COMPLETED and not planned:
            continue
        record = state.record(file)
        if isinstance(record, LakewrightError):
            yield f"{file.name} cannot be read: {record.message}"
        elif record is None and not (file.action == "clean" and not planned):
            yield f"{file.name} is empty"


CHECKERS = (
    Checker("14.1", "one action family per time", _STATE, one_family_per_time),
    Checker("14.2", "one completed file per instant", _STATE, one_completion),
    Checker("14.3a", "inflight after requested", _STATE, inflight_was_requested),
    Checker("14.3b", "completed after inflight", _STATE, completed_was_inflight),
    Checker("14.4", "completion times after requests, distinct", _STATE, completion_times),
    Checker("14.5", "completion times in the order of publishing", _STATE, completions_in_order),
    Checker("14.6", "completed files and pending plans parse", _STATE, contents_parse),
)
