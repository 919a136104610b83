"""What a run did and found: counted by target and ending, as values, as text and as JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from lakewright.testing.fuzz.fuzzing import Finding
from lakewright.testing.fuzz.judging import Kind, Outcome

__all__ = ["Report", "Tally", "with_saved_input"]

_SHOWN_PER_FAULT: Final = 3
_GOOD: Final = tuple(kind.value for kind in Kind if not kind.is_finding)


@dataclass(slots=True)
class Tally:
    """How the mutants of one target ended."""

    files: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    endings: dict[str, int] = field(default_factory=dict)

    def count(self, outcome: Outcome, seconds: float) -> None:
        """Add one mutant."""
        self.add(Tally(1, seconds, seconds, {outcome.kind.value: 1}))

    def add(self, other: Tally) -> None:
        """Add all mutants of another tally."""
        self.files += other.files
        self.seconds += other.seconds
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        for kind, number in other.endings.items():
            self.endings[kind] = self.endings.get(kind, 0) + number


@dataclass(slots=True)
class Report:
    """What a run did and found."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    """The first few of each fault."""
    faults: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """How many mutants showed each fault."""
    edges: int = 0
    """The most that one process covered."""
    seconds: float = 0.0
    empty: tuple[str, ...] = ()
    """Targets without a seed."""

    @property
    def files(self) -> int:
        """All mutants."""
        return sum(t.files for t in self.tallies.values())

    def found(self, finding: Finding) -> bool:
        """Add a finding; whether its fault is a new one."""
        if finding.kind in (Kind.CRASH, Kind.HANG):  # nobody was left to count it
            tally = self.tallies.setdefault(finding.target, Tally())
            tally.count(Outcome(finding.kind), 0.0)
        number = self.faults.get(finding.key, 0)
        self.faults[finding.key] = number + 1
        if number < _SHOWN_PER_FAULT:
            self.findings.append(finding)
        return number == 0

    def counted(self, tallies: Mapping[str, Tally], edges: int) -> None:
        """Add mutants that ended well or were told as findings already."""
        for name, tally in tallies.items():
            self.tallies.setdefault(name, Tally()).add(tally)
        self.edges = max(self.edges, edges)

    def add(self, other: Report) -> None:
        """Add another run."""
        self.counted(other.tallies, other.edges)
        for key, number in other.faults.items():
            self.faults[key] = self.faults.get(key, 0) + number
        self.findings += other.findings
        self.seconds += other.seconds
        self.empty = other.empty or self.empty

    def to_json(self) -> dict[str, Any]:
        """Plain values; findings with the place of their saved input."""
        return {
            "files": self.files,
            "seconds": round(self.seconds, 1),
            "edges": self.edges,
            "without_seeds": list(self.empty),
            "endings": {kind: self._ended(kind) for kind in self._kinds()},
            "targets": {
                name: {
                    "files": t.files,
                    "seconds": round(t.seconds, 3),
                    "slowest_s": round(t.slowest_s, 4),
                    "endings": dict(sorted(t.endings.items())),
                }
                for name, t in sorted(self.tallies.items())
            },
            "faults": [[*key, number] for key, number in sorted(self.faults.items())],
            "findings": [
                {
                    "target": f.target,
                    "kind": f.kind.value,
                    "where": f.where,
                    "recipe": f.recipe,
                    "saved": f.saved,
                    "detail": f.detail,
                }
                for f in self.findings
            ],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Report:
        """What `to_json` told; the bytes of findings stay where they were saved."""
        return cls(
            tallies={name: Tally(**t) for name, t in told["targets"].items()},
            findings=[
                Finding(
                    f["target"],
                    f["recipe"],
                    Kind(f["kind"]),
                    f["where"],
                    f["detail"],
                    b"",
                    f["saved"],
                )
                for f in told["findings"]
            ],
            faults={(a, b, c): number for a, b, c, number in told["faults"]},
            edges=told["edges"],
            seconds=told["seconds"],
            empty=tuple(told["without_seeds"]),
        )

    def to_text(self) -> str:
        """A table for people."""
        kinds = self._kinds()
        titles = "".join(f"{kind:>{len(kind) + 2}}" for kind in kinds)
        lines = [f"{'target':16} {'files':>8} {'files/s':>8} {'slowest':>9}{titles}"]
        for name, tally in sorted(self.tallies.items()):
            rate = tally.files / tally.seconds if tally.seconds else 0.0
            ended = "".join(f"{tally.endings.get(k, 0):>{len(k) + 2}}" for k in kinds)
            slowest = tally.slowest_s * 1000
            lines.append(f"{name:16} {tally.files:8d} {rate:8.0f} {slowest:6.0f} ms{ended}")
        rate = self.files / self.seconds if self.seconds else 0.0
        ended = "".join(f"{self._ended(k):>{len(k) + 2}}" for k in kinds)
        lines.append(f"{'all':16} {self.files:8d} {rate:8.0f} {'':9}{ended}")
        lines.append(
            f"{self.files} files in {self.seconds:.1f} s, {self.edges} edges covered, "
            f"{len(self.faults)} faults"
        )
        if self.empty:
            lines.append(f"without seeds: {', '.join(self.empty)}")
        lines += [f"  {n:6d} x {' / '.join(key)}" for key, n in sorted(self.faults.items())]
        lines += [f"  saved: {f.saved}" for f in self.findings if f.saved]
        return "\n".join(lines)

    def _kinds(self) -> list[str]:
        bad = {kind for t in self.tallies.values() for kind in t.endings} - set(_GOOD)
        return [*_GOOD, *sorted(bad)]

    def _ended(self, kind: str) -> int:
        return sum(t.endings.get(kind, 0) for t in self.tallies.values())


def with_saved_input(finding: Finding, folder: Path | None) -> Finding:
    """The finding with its bytes written below `folder`, under a name that follows from them."""
    if folder is None or not finding.recipe:
        return finding
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(finding.data + finding.recipe.encode()).hexdigest()[:16]
    place = folder / f"{finding.target}-{digest}.bin"
    place.write_bytes(finding.data)
    return replace(finding, saved=str(place))
