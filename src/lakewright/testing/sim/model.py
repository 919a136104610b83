"""The model of a table's content: what each instant adds and replaces, told before it commits.

A writer tells the model what it is going to commit (`intend`), and afterwards what it learned
(`acknowledge`). What a table must hold then follows from the committed instants alone: their
effects one after another, as they completed. A reader that pinned a timeline must see exactly that.
Where a version orders by requested times, an overwrite spares what was requested after it, even if
that completed first, unless it names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import WRITE_ACTIONS
from lakewright.format.timeline import Timeline
from lakewright.format.version import TableVersion
from lakewright.testing.sim.stub_rows import Rows

__all__ = ["Effect", "TableModel", "differences"]


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

    def intend(self, instant: str, effect: Effect) -> None:
        """A writer is going to commit this."""
        self._effects[instant] = effect

    def acknowledge(self, instant: str, time_s: float) -> None:
        """A writer was told that its instant is committed."""
        self.acknowledged[instant] = time_s

    def refuse(self, instant: str, why: str) -> None:
        """A writer was told that its instant is not committed."""
        self.refused[instant] = why

    def content(self, timeline: Timeline) -> dict[FileGroupId, Rows]:
        """What the committed instants of a timeline make of the table."""
        groups: dict[FileGroupId, dict[str, str]] = {}
        born: dict[FileGroupId, str] = {}
        for instant in self._in_order(timeline):
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
        return [t for t in self._in_order(timeline) if t not in self._effects]

    def lost(self, timeline: Timeline, *, before_s: float) -> list[str]:
        """Instants acknowledged before a moment that a timeline does not have as committed."""
        return [
            instant
            for instant, at in self.acknowledged.items()
            if at < before_s and instant not in timeline.completion_times
        ]

    def _in_order(self, timeline: Timeline) -> Iterable[str]:
        done = [i for i in timeline.completed() if i.action in WRITE_ACTIONS]
        done.sort(key=lambda i: (i.completion_time or "", i.requested_time))
        return (i.requested_time for i in done)


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
