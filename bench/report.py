"""Reports of benchmarks: parts that are measured at different times, written as one document.

Every part is stored as it was measured last, so that one of them can be measured again alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from bench.contest import RESULTS

__all__ = ["Report"]


class Report:
    """The parts of one document in bench/results."""

    def __init__(self, name: str) -> None:
        RESULTS.mkdir(parents=True, exist_ok=True)
        self._store = RESULTS / f"{name}.json"
        self._document = RESULTS / f"{name}.md"
        stored = self._store.exists()
        self._parts: dict[str, list[str]] = json.loads(self._store.read_text()) if stored else {}

    def keep(self, part: str, lines: list[str]) -> None:
        """Store a part in place of what was measured before."""
        self._parts[part] = lines
        self._store.write_text(json.dumps(self._parts, indent=1) + "\n")

    def write(self, head: Sequence[str], order: Iterable[str]) -> None:
        """Write the document: the head, then all stored parts in this order."""
        body = [line for part in order for line in self._parts.get(part, ())]
        self._document.write_text("\n".join([*head, *body]))
