"""Which instants a range of changes covers, by the rule of the table's version.

A range is open at its begin and closed at its end. Version 6 compares requested times and stops
before the first write that is still pending: it could complete later inside the range and would
never be seen. Later versions compare completion times, which only grow, so nothing can appear in a
range that was read. Services count as instants of the range, though they change no rows.

Instants that were archived meanwhile are found in the archive; the caller must then do without
their metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lakewright.engine.change_offset import ChangeOffset, Moment, Scheme, resolve_offset
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import InstantNotFoundError, OptionError
from lakewright.format.archived_timeline import archived_times
from lakewright.format.instant import COMMIT_ACTIONS, Instant
from lakewright.format.instant_times import format_time, time_ms
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import is_pending_clustering
from lakewright.runtime.events import EventHook, ignore_events

WRITE_LASTS_MAX = timedelta(days=1)
"""How much earlier than it completed a write was requested at the most.

Hudi assumes the same: it bounds how far back the archive is read for a range of completion times.
"""


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """The instants of a range, and where the range really ends."""

    begin: ChangeOffset
    end: ChangeOffset
    """The last instant of the range, or the begin if there is none: where to go on."""
    instants: tuple[Instant, ...]
    """Completed instants of the active timeline, by requested time."""
    archived: tuple[str, ...] = ()
    """Requested times of archived instants."""
    stopped_by: Instant | None = None
    """The pending write before which the range stops."""

    @property
    def requested_times(self) -> tuple[str, ...]:
        """Requested times of all instants, ascending."""
        return tuple(sorted([*self.archived, *(i.requested_time for i in self.instants)]))


def scheme_of(properties: TableProperties) -> Scheme:
    """How the table orders its changes."""
    return "completion" if properties.version.incremental_by_completion_time else "requested"


def select_range(
    snapshot: Snapshot,
    *,
    since: Moment | ChangeOffset | None,
    until: Moment | ChangeOffset | None,
    on_event: EventHook = ignore_events,
) -> ChangeRange:
    """The instants after `since` (None: all) up to `until` (None: the latest that is settled)."""
    scheme = scheme_of(snapshot.properties)
    zone = snapshot.properties.timeline_zone
    begin = resolve_offset(since, scheme, zone=zone) or ChangeOffset.earliest(scheme)
    last = resolve_offset(until, scheme, zone=zone)
    if last is not None and last.time < begin.time:
        raise OptionError(
            f"The range ends at {last}, before it begins at {begin}.",
            hint="Give `since` and `until` in this order.",
            context={"since": str(begin), "until": str(last)},
        )
    hole = _first_hole(snapshot) if scheme == "requested" else None
    completed = snapshot.timeline.commits().completed().instants
    found = tuple(i for i in completed if _is_between(_time(i, scheme), begin, last))
    if hole is not None:
        _refuse_hole(found, hole, last)
        found = tuple(i for i in found if i.requested_time < hole.requested_time)
    known = {i.requested_time for i in completed}
    archived = _archived(snapshot, begin, last, known=known, on_event=on_event)
    times = [*(_time(i, scheme) for i in found), *archived.values()]
    return ChangeRange(
        begin=begin,
        end=ChangeOffset(scheme, max(times, default=begin.time)),
        instants=found,
        archived=tuple(archived),
        stopped_by=hole,
    )


def _time(instant: Instant, scheme: Scheme) -> str:
    if scheme == "requested":
        return instant.requested_time
    return instant.completion_time or instant.requested_time


def _is_between(time: str, begin: ChangeOffset, last: ChangeOffset | None) -> bool:
    return time > begin.time and (last is None or time <= last.time)


def _first_hole(snapshot: Snapshot) -> Instant | None:
    """The first pending write that may still add rows; a clustering only moves them."""
    for instant in snapshot.timeline.commits().pending():
        if not is_pending_clustering(snapshot.storage, snapshot.properties, instant):
            return instant
    return None


def _refuse_hole(found: tuple[Instant, ...], hole: Instant, last: ChangeOffset | None) -> None:
    beyond = [i for i in found if i.requested_time > hole.requested_time]
    if last is not None and beyond:
        raise InstantNotFoundError(
            f"The changes up to {last.time} are not settled: {hole.action} {hole.requested_time} "
            "started before and is still pending.",
            hint="Leave `until` out to read up to the pending write; roll it back if its writer "
            "is dead.",
            context={"until": str(last), "pending": hole.requested_time},
        )


def _archived(
    snapshot: Snapshot,
    begin: ChangeOffset,
    last: ChangeOffset | None,
    *,
    known: set[str],
    on_event: EventHook,
) -> dict[str, str]:
    """Archived writes of the range: times of the scheme by requested times, ascending."""
    start = snapshot.timeline.starts_at
    earliest = begin.time
    if begin.scheme == "completion" and earliest:
        earliest = _before(earliest, snapshot.properties)
    if start is None or earliest >= start:
        return {}
    times = archived_times(
        snapshot.storage, snapshot.properties, begin=earliest or None, on_event=on_event
    )
    writes = times.filter(pc.is_in(times["action"], pa.array(sorted(COMMIT_ACTIONS))))
    requested = writes["requested_time"].to_pylist()
    counted = requested if begin.scheme == "requested" else writes["completion_time"].to_pylist()
    # One row per archived instant.
    return {
        r: c or r
        for r, c in sorted(zip(requested, counted, strict=True))
        if r not in known and _is_between(c or r, begin, last)
    }


def _before(time: str, properties: TableProperties) -> str:
    """The requested time of the longest write that completed at a time."""
    zone = properties.timeline_zone
    moment = time_ms(time, zone=zone)
    if moment is None:
        return ""
    return format_time(moment - WRITE_LASTS_MAX // timedelta(milliseconds=1), zone=zone)
