"""Events: one stream of small facts that feeds progress bars, metrics and the manager.

Guarantees: emitting never changes what the work does. A hook runs in the emitting thread, so it
must be quick and must not raise; the default ignores everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Work of one `kind` stands at `done` of `total` units."""

    kind: str
    """What is going on, in the domain's words and dotted: `scan.slice`, `compaction.plan`."""
    done: int
    total: int | None = None
    """None where the end is not known yet."""
    unit: str = ""
    """What is counted: `files`, `rows`, `bytes`."""
    instant: str | None = None
    """The instant the work belongs to."""
    path: str | None = None
    """The file it is about, and where in it."""
    offset: int | None = None


EventHook = Callable[[Event], None]


def ignore_events(event: Event) -> None:
    """The hook for callers who do not listen."""
