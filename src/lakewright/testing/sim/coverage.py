"""What a set of worlds contained: which faults met whom, and at what.

A fault is counted by its kind, by the role of the process that met it, and by what the process was
touching; `tables` lays the counts out so that a hole is seen at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from lakewright.storage.faults import Operation

__all__ = ["fault_key", "role_of", "tables", "touched"]

_PREFIX: Final = "fault|"
_STATE_FILE: Final = re.compile(r"/\d+(?:_\d+)?\.([a-z.]+)$")
_PLACES: Final = (
    ("/.heartbeat/", "heartbeat"),
    ("/.lakewright/fence/", "fence"),
    ("/.lakewright/", "own files"),
    ("/.temp/", "marker"),
    ("/.locks/", "lock"),
    ("/.hoodie/lock", "lock"),
    ("/archived", "archive"),
    ("/history", "archive"),
    ("hoodie.properties", "properties"),
)
_LISTS: Final = frozenset({"list", "walk"})
_READS: Final = frozenset({"read", "read_range", "open_input", "stat", "exists", *_LISTS})


def role_of(name: str) -> str:
    """The role of a process: its name without its numbers."""
    return name.partition("#")[0].rstrip("0123456789")


def touched(operation: Operation) -> str:
    """What an operation is about, in a few words."""
    path = operation.path
    removes = operation.name.startswith("delete")
    verb = "read" if operation.name in _READS else "delete" if removes else "write"
    for part, place in _PLACES:
        if part in path:
            return f"{verb} {place}"
    if "/.hoodie" not in path:
        return "list files" if operation.name in _LISTS else f"{verb} data file"
    found = _STATE_FILE.search(path)
    if found is None:
        return "list timeline" if operation.name in _LISTS else f"{verb} other"
    ending = found[1].rpartition(".")[2]
    state = ending if ending in ("requested", "inflight") else "completed"
    return f"{verb} {state}"


def fault_key(kind: str, role: str, operation: Operation) -> str:
    """Under what a fault is counted."""
    return f"{_PREFIX}{kind}|{role}|{touched(operation)}"


def tables(counts: Mapping[str, int]) -> list[str]:
    """Lines: faults by role, faults by what was touched, and everything else."""
    by_role: dict[str, Counter[str]] = {}
    by_place: dict[str, Counter[str]] = {}
    kinds: set[str] = set()
    met: set[tuple[str, str, str]] = set()
    for key, count in counts.items():
        if key.startswith(_PREFIX):
            _, kind, role, place = key.split("|")
            kinds.add(kind)
            met.add((kind, role, place))
            by_role.setdefault(role, Counter())[kind] += count
            by_place.setdefault(place, Counter())[kind] += count
    lines = []
    if met:
        lines.append(f"  {len(met)} classes of faults: kind, role and what was touched")
        lines += _table("role", by_role, sorted(kinds))
        lines += _table("touched", by_place, sorted(kinds))
    rest = sorted(key for key in counts if not key.startswith(_PREFIX))
    return lines + [f"  {counts[key]:>9}  {key}" for key in rest]


def _table(title: str, rows: Mapping[str, Counter[str]], columns: Iterable[str]) -> list[str]:
    columns = list(columns)
    head = f"  {title:<18}" + "".join(f"{column:>15}" for column in columns)
    body = [
        f"  {name:<18}" + "".join(f"{rows[name][column] or '-':>15}" for column in columns)
        for name in sorted(rows)
    ]
    return [head, *body]
