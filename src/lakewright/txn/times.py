"""Instant times: greater than every time that the timeline knows.

A time is taken under the table's lock from the clock, in the table's zone. It is greater than every
requested and completion time on the timeline, whatever the clocks of other writers said, so a clock
that stands behind (or an hour that daylight saving repeats) costs order nothing. A clock that is
behind by more than `BEHIND_MS_MAX` is refused: either it or the table's last writer is wrong, and
times far ahead of the clock would mislead everything that goes by age.
"""

from __future__ import annotations

from typing import Final

from lakewright.errors import ConfigError
from lakewright.format.instant_times import format_time, time_ms
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.runtime.clock import Clock

__all__ = ["BEHIND_MS_MAX", "latest_time", "next_time"]

BEHIND_MS_MAX: Final = 65 * 60_000
"""An hour that daylight saving repeats, and some minutes."""
_DIGITS: Final = 17


def latest_time(timeline: Timeline, properties: TableProperties) -> str | None:
    """The greatest time that a timeline's names say, as far as it is a date.

    Where completion times are those of files, they say nothing about order.
    """
    times = [i.requested_time for i in timeline]
    if properties.version.completion_time_in_name:
        times.extend(i.completion_time for i in timeline if i.completion_time and not i.legacy)
    return max((t[:_DIGITS] for t in times if len(t) >= _DIGITS), default=None)


def next_time(
    timeline: Timeline, properties: TableProperties, clock: Clock, *, after: str | None = None
) -> str:
    """A time greater than all on the timeline, and than `after`."""
    zone = properties.timeline_zone
    now_ms = clock.now_ms()
    now = format_time(now_ms, zone=zone)
    known = max(filter(None, (latest_time(timeline, properties), after)), default="")
    if now > known:
        return now
    known_ms = time_ms(known, zone=zone)
    if known_ms is None or known_ms - now_ms > BEHIND_MS_MAX:
        raise ConfigError(
            f"The clock says {now}, but the table has been written at {known}.",
            hint="Set this machine's clock, or find out who wrote with a clock that was ahead; "
            "nothing was changed.",
            context={"now": now, "latest": known},
        )
    return _successor(known, known_ms, properties)


def _successor(known: str, known_ms: int, properties: TableProperties) -> str:
    """The next millisecond as text; in an hour that is repeated the text must grow all the same."""
    zone = properties.timeline_zone
    step = 1
    while True:
        found = format_time(known_ms + step, zone=zone)
        if found > known:
            return found
        step *= 2
