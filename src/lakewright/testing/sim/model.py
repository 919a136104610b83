"""The model of a table's content: what each instant adds and replaces, told before it commits.

A writer tells the model what it is going to commit (`intend`), and afterwards what it learned
(`acknowledge`). What a table must hold then follows from the committed instants alone: their
effects one after another, as they completed. A reader that pinned a timeline must see exactly that.
Where a version orders by requested times, an overwrite spares what was requested after it, even if
that completed first, unless it names it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import WRITE_ACTIONS
from lakewright.format.timeline import Timeline
from lakewright.format.version import TableVersion
from lakewright.testing.sim.stub_rows import Rows

__all__ = ["NOTHING_ARCHIVED", "Effect", "TableModel", "differences"]

NOTHING_ARCHIVED: Mapping[str, str] = {}
ALWAYS_KEPT = "9" * 17
"""Later than every instant."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What one instant does to a table."""

    adds: Mapping[FileGroupId, Rows] = field(default_factory=dict)
    """Rows put into file groups; rows of the same key replace what is there."""
    replaces: frozenset[FileGroupId] = frozenset()
    """File groups that are gone afterwards."""
    overwrites: frozenset[str] = frozenset()
    """Partitions of which everything else that came before is gone too."""


class TableModel:
    """What instants were going to do, and what their writers were told."""

    def __init__(self, version: TableVersion) -> None:
        self._by_completion = version.completion_time_in_name
        self._effects: dict[str, Effect] = {}
        self.acknowledged: dict[str, float] = {}
        """Instants whose writer was told that they are committed, and when."""
        self.refused: dict[str, str] = {}
        """Instants whose writer was told that they are not committed, and why."""
        self._taken_back: set[str] = set()
        self._restored = ALWAYS_KEPT
        self._restored_s = float("inf")

    def begin_as(self, other: TableModel) -> None:
        """Begin with everything that was intended for and told of another table."""
        self._effects.update(other._effects)
        self.acknowledged.update(other.acknowledged)
        self.refused.update(other.refused)

    def intend(self, instant: str, effect: Effect) -> None:
        """A writer is going to commit this."""
        self._effects[instant] = effect

    def intended(self, instant: str) -> Effect:
        """What a writer has said so far of an instant."""
        return self._effects.get(instant, Effect())

    def acknowledge(self, instant: str, time_s: float) -> None:
        """A writer was told that its instant is committed."""
        self.acknowledged[instant] = time_s

    def refuse(self, instant: str, why: str) -> None:
        """A writer was told that its instant is not committed."""
        self.refused[instant] = why

    def take_back(self, instant: str) -> None:
        """A committed instant may be undone from now on, by a rollback of it."""
        self._taken_back.add(instant)

    def restore(self, to: str, time_s: float) -> None:
        """A restore may undo everything behind an instant, and what is committed from now on."""
        self._restored = min(to, self._restored)
        self._restored_s = min(time_s, self._restored_s)

    def content(
        self, timeline: Timeline, archived: Mapping[str, str] = NOTHING_ARCHIVED
    ) -> dict[FileGroupId, Rows]:
        """What the committed instants make of the table: those of a timeline, and archived ones
        with the times at which they were completed."""
        groups: dict[FileGroupId, dict[str, str]] = {}
        born: dict[FileGroupId, str] = {}
        for instant in self._in_order(timeline, archived):
            effect = self._effects.get(instant)
            if effect is None:
                continue
            for group in list(groups):
                older = self._by_completion or born[group] < instant
                if group in effect.replaces or (older and group.partition in effect.overwrites):
                    del groups[group]
            for group, rows in effect.adds.items():
                groups.setdefault(group, {}).update(rows)
                born.setdefault(group, instant)
        return {group: rows for group, rows in groups.items() if rows}

    def unknown(self, timeline: Timeline) -> list[str]:
        """Committed instants that nobody intended to commit."""
        return [t for t in self._in_order(timeline, {}) if t not in self._effects]

    def lost(
        self,
        timeline: Timeline,
        *,
        before_s: float,
        archived: Mapping[str, str] = NOTHING_ARCHIVED,
        undone: Container[str] = frozenset(),
    ) -> list[str]:
        """Instants acknowledged before a moment that are not committed.

        One that somebody wanted to undo is lost as well, unless a rollback or restore of it was
        planned (`undone`).
        """
        return [
            instant
            for instant, at in self.acknowledged.items()
            if at < before_s
            and instant not in timeline.completion_times
            and instant not in archived
            and not (instant in undone and self._may_go(instant, at))
        ]

    def _may_go(self, instant: str, acknowledged_s: float) -> bool:
        """Whether somebody wanted an instant to be undone."""
        restored = instant > self._restored or acknowledged_s >= self._restored_s
        return instant in self._taken_back or restored

    def _in_order(self, timeline: Timeline, archived: Mapping[str, str]) -> Iterable[str]:
        done = [(at, instant) for instant, at in archived.items()]
        done += [
            (i.completion_time or "", i.requested_time)
            for i in timeline.completed()
            if i.action in WRITE_ACTIONS
        ]
        return (instant for _, instant in sorted(done))


def differences(
    seen: Mapping[FileGroupId, Rows], expected: Mapping[FileGroupId, Rows]
) -> list[str]:
    """How what was seen differs from what should have been, a few lines at most."""
    lines = []
    for group in sorted({*seen, *expected}):
        got, want = seen.get(group, {}), expected.get(group, {})
        if got == want:
            continue
        missing = sorted(want.items() - got.items())[:3]
        extra = sorted(got.items() - want.items())[:3]
        lines.append(f"{group.partition}/{group.file_id}: missing {missing}, not expected {extra}")
    return lines[:5]
