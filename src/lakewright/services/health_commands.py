"""The commands that resolve a finding, ready to paste. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

__all__ = ["Commands"]


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands of `lakewright` for one table."""

    table: str

    def compact(self, instant: str | None = None) -> str:
        """Execute one plan, or what is pending and due."""
        return self._of("compaction run", *(("--instant", instant) if instant else ()))

    def clean(self) -> str:
        """Roll back dead writes, finish pending cleans, and clean."""
        return self._of("clean run")

    def archive(self) -> str:
        """Archive what is due."""
        return self._of("archive run")

    def roll_back(self, instant: str) -> str:
        """Roll back one pending write."""
        return self._of("rollback run", instant)

    def unschedule(self, instant: str) -> str:
        """Take a plan away, with what was done for it."""
        return self._of("rollback run", instant, "--unschedule")

    def finish_restore(self) -> str:
        """Finish a restore."""
        return self._of("restore run")

    def build(self, *indexes: str) -> str:
        """Build indexes of the metadata table, or the whole of it anew."""
        return self._of("metadata build", *indexes) if indexes else self._of("metadata rebuild")

    def create_savepoint(self, instant: str) -> str:
        """Keep a commit."""
        return self._of("savepoint create", instant)

    def delete_savepoint(self, instant: str) -> str:
        """Let a commit go."""
        return self._of("savepoint delete", instant)

    def _of(self, verb: str, *more: str) -> str:
        return " ".join(["lakewright", verb, shlex.quote(self.table), *map(shlex.quote, more)])
