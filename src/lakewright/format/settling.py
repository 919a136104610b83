"""Instant files that their writer may still be writing.

On a local disk a JVM creates an instant file first and fills it after, so a reader can find it
empty or cut although nothing is wrong. What such a file says matters: the groups that a commit
replaced, the groups that a compaction takes. `wait_until_whole` waits for those files, and only
where storage shows unfinished ones, only for files that are young, and never longer than
`WAIT_S_MAX` in all. What is empty or cut after that was left so by a dead writer, and the rules of
the format apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lakewright.errors import FormatError, NotFoundError
from lakewright.format.instant import Instant, State
from lakewright.format.instant_times import format_time
from lakewright.format.records.instants import instant_path, record_kind
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.runtime.clock import Clock
from lakewright.storage.base import Storage

__all__ = ["YOUNG_MS", "wait_until_whole"]

YOUNG_MS: Final = 60_000
"""Files that were touched longer ago are as whole as they will ever be."""
WAIT_S_MAX: Final = 2.0
WAIT_S_FIRST: Final = 0.005


def wait_until_whole(
    storage: Storage, properties: TableProperties, timeline: Timeline, *, clock: Clock
) -> None:
    """Return when the young files of the timeline are whole, or no longer to be waited for."""
    if storage.guarantees.whole_objects_only:
        return
    waiting = [i for i in _young(properties, timeline, clock) if not _whole(storage, properties, i)]
    started_s, wait_s = clock.monotonic_s(), WAIT_S_FIRST
    while waiting and clock.monotonic_s() - started_s < WAIT_S_MAX:
        clock.sleep(wait_s)
        wait_s *= 2
        waiting = [i for i in waiting if not _whole(storage, properties, i)]


def _young(properties: TableProperties, timeline: Timeline, clock: Clock) -> Iterator[Instant]:
    """Completed instants, and requested compactions, of the last minute or of the future."""
    since = format_time(clock.now_ms() - YOUNG_MS, zone=properties.timeline_zone)
    for instant in timeline:
        planned = instant.state is State.REQUESTED and instant.action in (
            "compaction",
            "logcompaction",
        )
        if (planned or instant.completed) and (
            instant.completion_time or instant.requested_time
        ) >= since:
            yield instant


def _whole(storage: Storage, properties: TableProperties, instant: Instant) -> bool:
    kind = record_kind(instant.action, instant.state)
    path = instant_path(properties, instant.file_name)
    try:
        data = storage.read(path)
        if kind is not None and data:
            kind.read(data, path=path)
    except NotFoundError:
        return True  # it went on to its next state
    except FormatError:
        return False
    return kind is None or bool(data)
