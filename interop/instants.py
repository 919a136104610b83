"""The instants of a table as its file names show them, read without any code of the product.

The harness must not trust what it tests, so it has this small reader of its own: both timeline
layouts, names only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

NAME = re.compile(r"(\d{14,17})(?:_(\d{14,17}))?\.([a-z]+)(?:\.(requested|inflight))?$")
WRITES = frozenset({"commit", "deltacommit", "replacecommit"})


@dataclass(frozen=True, order=True)
class SeenInstant:
    """One instant file of the active timeline."""

    requested: str
    action: str
    state: str
    completed: str | None
    file: Path


def folder_of(table: Path) -> Path:
    """Where the active timeline lies."""
    second = table / ".hoodie" / "timeline"
    return second if second.is_dir() else table / ".hoodie"


def instants(table: Path) -> list[SeenInstant]:
    """Every instant file, ordered by requested time."""
    seen = []
    for file in folder_of(table).iterdir():
        found = NAME.fullmatch(file.name)
        if found is None:
            continue
        requested, completed, action, state = found.groups()
        if action == "inflight" and state is None:  # "<t>.inflight" is a commit in layout 1
            action, state = "commit", "inflight"
        seen.append(SeenInstant(requested, action, state or "completed", completed, file))
    return sorted(seen, key=lambda s: (s.requested, s.action, s.state))


def completed_writes(table: Path) -> list[SeenInstant]:
    """Completed commits, delta commits and replace commits of the active timeline."""
    return [s for s in instants(table) if s.state == "completed" and s.action in WRITES]
