"""Time travel: from what a caller says to the requested time that bounds a snapshot.

Accepted: an instant (14 or 17 digits), a date or date-time (text or `datetime`), `savepoint:latest`
and `savepoint:<instant>`. A moment is refused when the answer could still change (a write that
started before it is pending) or when its files may be gone (the cleaner went past it), because a
snapshot that silently lacks rows is worse than none. Savepoints keep their files, so the second
rule does not hold for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo

from lakewright.errors import InstantNotFoundError
from lakewright.format.instant import Instant
from lakewright.format.instant_times import as_of_time
from lakewright.format.timeline import Timeline

SAVEPOINT = "savepoint:"


@dataclass(frozen=True, slots=True)
class AsOf:
    """An upper bound on requested times, and the words it came from."""

    requested_time: str
    said: str


def resolve_as_of(
    said: str | datetime,
    timeline: Timeline,
    *,
    zone: tzinfo,
    earliest_retained: Callable[[], str | None],
    is_clustering: Callable[[Instant], bool],
) -> AsOf:
    """The bound for `said`, or `InstantNotFoundError` with the moments that can be read."""
    text = said if isinstance(said, str) else said.isoformat()
    if text.startswith(SAVEPOINT):
        return AsOf(_savepoint(text.removeprefix(SAVEPOINT), timeline), text)
    bound = as_of_time(said, zone=zone)
    _refuse_open_holes(bound, timeline, is_clustering)
    if not any(s.requested_time == bound for s in _savepoints(timeline)):
        _refuse_cleaned(bound, timeline, earliest_retained())
    return AsOf(bound, text)


def _savepoints(timeline: Timeline) -> list[Instant]:
    return [i for i in timeline.completed() if i.action == "savepoint"]


def _savepoint(name: str, timeline: Timeline) -> str:
    times = [i.requested_time for i in _savepoints(timeline)]
    if name == "latest" and times:
        return max(times)
    if name in times:
        return name
    raise InstantNotFoundError(
        f"There is no savepoint {name!r}.",
        hint=f"Savepoints of this table: {', '.join(times) or 'none'}.",
        context={"as_of": f"{SAVEPOINT}{name}"},
    )


def _refuse_open_holes(
    bound: str, timeline: Timeline, is_clustering: Callable[[Instant], bool]
) -> None:
    for instant in timeline.pending():
        if instant.requested_time > bound:
            return
        if instant.action in {"commit", "deltacommit"} or (
            instant.action == "replacecommit" and not is_clustering(instant)
        ):
            raise InstantNotFoundError(
                f"The snapshot as of {bound} is not settled: {instant.action} "
                f"{instant.requested_time} started before it and is still pending.",
                hint="Read a moment before the pending write, or the latest snapshot; "
                "roll the write back if its writer is dead.",
                context={"as_of": bound, "pending": instant.requested_time},
            )


def _refuse_cleaned(bound: str, timeline: Timeline, earliest_retained: str | None) -> None:
    first = timeline.commits().completed().first()
    earliest = earliest_retained or (first.requested_time if first else None)
    if earliest is not None and bound < earliest:
        raise InstantNotFoundError(
            f"The snapshot as of {bound} may be incomplete: files older than {earliest} "
            "may have been cleaned.",
            hint=f"Read a moment from {earliest} on, or a savepoint.",
            context={"as_of": bound, "earliest": earliest},
        )
