"""What state a table is in: values for people and for programs. Pure.

A `Finding` says what is so (`code`), of which instant, who is behind it, since when, why, and which
command resolves it. A `note` is fine as it is and only said; what needs `action` does not go away
by itself, or not in the time that it should; `damage` is what lakewright does not repair without
being told how. A table is healthy if it has nothing but notes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

__all__ = ["Finding", "Health", "Severity", "span"]


class Severity(Enum):
    """How much a finding matters."""

    NOTE = "note"
    ACTION = "action"
    DAMAGE = "damage"

    @property
    def rank(self) -> int:
        """The greater, the worse."""
        return (Severity.NOTE, Severity.ACTION, Severity.DAMAGE).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is so."""

    severity: Severity
    code: str
    """Stable, for programs: the subject, a dot, what is so."""
    why: str
    """A sentence or two for people."""
    instant: str | None = None
    action: str | None = None
    owner: str | None = None
    """Who is behind it, as far as that is known."""
    since_ms: int | None = None
    command: str | None = None
    """What resolves it; None where that is not a command of lakewright's, or not needed."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for programs."""
        return {
            "severity": self.severity.value,
            "code": self.code,
            "instant": self.instant,
            "action": self.action,
            "owner": self.owner,
            "since": _moment(self.since_ms),
            "why": self.why,
            "command": self.command,
        }


@dataclass(frozen=True, slots=True)
class Health:
    """All findings of one look at a table, the worst first."""

    table: str
    at_ms: int
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, table: str, at_ms: int, findings: Iterator[Finding]) -> Health:
        """The findings in order: the worst first, then the oldest."""
        ordered = sorted(
            findings, key=lambda f: (-f.severity.rank, f.since_ms or at_ms, f.code, f.instant or "")
        )
        return cls(table, at_ms, tuple(ordered))

    @property
    def healthy(self) -> bool:
        """Whether nothing has to be done."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    def of_code(self, code: str) -> tuple[Finding, ...]:
        """The findings of one code, or of all codes of a subject that ends with a dot."""
        return tuple(
            f
            for f in self.findings
            if f.code == code or (code.endswith(".") and f.code.startswith(code))
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for programs."""
        return {
            "table": self.table,
            "at": _moment(self.at_ms),
            "healthy": self.healthy,
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        lines = [f"{self.table}: {'healthy' if self.healthy else 'needs action'}"]
        for finding in self.findings:
            lines.extend(_lines(finding, self.at_ms))
        return "\n".join(lines)


def _lines(finding: Finding, at_ms: int) -> Iterator[str]:
    what = " ".join(filter(None, (finding.action, finding.instant)))
    since = finding.since_ms
    age = f"for {span(at_ms - since)}" if since is not None and since <= at_ms else ""
    head = ", ".join(filter(None, (what, finding.owner, age)))
    yield f"{finding.severity.value:<7}{finding.code}{f'  ({head})' if head else ''}"
    yield f"       {finding.why}"
    if finding.command:
        yield f"       $ {finding.command}"


def span(milliseconds: int) -> str:
    """A time that passed, in the two units that matter."""
    seconds = max(0, milliseconds) // 1000
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds} s"


def _moment(epoch_ms: int | None) -> str | None:
    if epoch_ms is None:
        return None
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
