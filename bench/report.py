"""Reports of benchmarks: parts that are measured at different times, written as one document.

Every part is stored as it was measured last, so that one of them can be measured again alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from bench.contest import RESULTS

__all__ = ["Report", "measure_parts"]

S = TypeVar("S")


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


def measure_parts(
    name: str,
    head: Sequence[str],
    parts: Mapping[str, Callable[[S, int], list[str]]],
    sizes: S,
    small: S,
    *,
    about: str,
) -> None:
    """The command of a benchmark: measure the asked parts and write the report; of a trial with
    small tables nothing is kept."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(parts))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="a trial with small tables")
    args = parser.parse_args()
    repeat = 1 if args.small else args.repeat
    report = Report(name)
    for part in args.parts:
        print(f"… {part}", flush=True)
        lines = parts[part](small if args.small else sizes, repeat)
        print("\n".join(lines), flush=True)
        if repeat > 1:
            report.keep(part, lines)
    if repeat > 1:
        report.write(head, parts)
