"""The model of a keyed table: what each write does to keys, and what all of them make of it.

A writer tells before it commits what it is going to do. The content of the table is what the
committed writes do to it one after another, in the order in which they completed; a delete by
filter looks at the content of its own moment. Writers that do not block each other have no such
order, and their logs are read in the order in which they began. With `joined` values every version
of a row stays visible in its value, so that an update that was lost, or done twice, is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakewright.format.instant import WRITE_ACTIONS
from lakewright.format.timeline import Timeline
from lakewright.testing.sim.model import NOTHING_ARCHIVED

__all__ = ["FILTER_BELOW", "Change", "KeyedModel", "Place", "passes"]

Place = tuple[str, str]
"""Partition path and key."""
FILTER_BELOW = 2
BETWEEN = "/"


def passes(value: str) -> bool:
    """Whether a row passes the filter of deletes: by the number at the end of its value."""
    return int(value.rpartition(":")[2]) < FILTER_BELOW


@dataclass(frozen=True, slots=True)
class Change:
    """What one write does."""

    puts: Mapping[Place, str] = field(default_factory=dict)
    """Rows that are updated or inserted."""
    gone: frozenset[Place] = frozenset()
    """Keys that are deleted."""
    filtered: frozenset[str] = frozenset()
    """Partitions of which the rows that pass the filter are deleted."""


@dataclass(slots=True)
class KeyedModel:
    """What writers were going to do, and what they were told."""

    joined: bool
    """Whether a row's value holds those of its older versions."""
    everywhere: bool
    """Whether a key is one row in the whole table, not in its partition."""
    as_begun: bool = False
    """Whether writes count in the order in which they began."""
    changes: dict[str, Change] = field(default_factory=dict)
    """By instant."""
    acknowledged: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def content(
        self, timeline: Timeline, archived: Mapping[str, str] = NOTHING_ARCHIVED
    ) -> dict[Place, str]:
        """What the committed writes make of the table: those of a timeline, and archived ones with
        the times at which they were completed."""
        found: dict[Place, str] = {}
        for instant in self._in_order(timeline, archived):
            self._apply(self.changes.get(instant, Change()), found)
        return found

    def unknown(self, timeline: Timeline) -> list[str]:
        """Committed instants that nobody intended to commit."""
        return [t for t in self._in_order(timeline, {}) if t not in self.changes]

    def lost(
        self,
        timeline: Timeline,
        *,
        before_s: float,
        archived: Mapping[str, str] = NOTHING_ARCHIVED,
    ) -> list[str]:
        """Instants acknowledged before a moment that are not committed."""
        return [
            instant
            for instant, at in self.acknowledged.items()
            if at < before_s
            and instant not in timeline.completion_times
            and instant not in archived
        ]

    def broken_words(self, timeline: Timeline) -> Iterable[tuple[str, str]]:
        """Committed instants whose writers were told that they are not."""
        return [(t, why) for t, why in self.refused.items() if t in timeline.completion_times]

    def _apply(self, change: Change, found: dict[Place, str]) -> None:
        for place in [p for p in found if p[0] in change.filtered and passes(found[p])]:
            del found[place]
        for place in change.gone:
            for there in self._same(place, found):
                del found[there]
        for place, value in change.puts.items():
            before = found.get(place)
            for there in self._same(place, found):
                del found[there]
            joins = self.joined and before is not None
            found[place] = f"{before}{BETWEEN}{value}" if joins else value

    def _same(self, place: Place, found: Mapping[Place, str]) -> list[Place]:
        """Rows of the same key."""
        if self.everywhere:
            return [p for p in found if p[1] == place[1]]
        return [place] if place in found else []

    def _in_order(self, timeline: Timeline, archived: Mapping[str, str]) -> list[str]:
        done = [(at, instant) for instant, at in archived.items()]
        done += [
            (i.completion_time or "", i.requested_time)
            for i in timeline.completed()
            if i.action in WRITE_ACTIONS
        ]
        instants = [instant for _, instant in sorted(done)]
        return sorted(instants) if self.as_begun else instants
