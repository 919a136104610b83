"""The accepted differences from Hudi's answers: rows of `deviations.toml`, each with its reason.

A row that explains nothing any more is stale and reported, so the file cannot rot.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

FILE = Path(__file__).with_name("deviations.toml")
KINDS = ("columns", "rows", "hudi refuses", "lakewright refuses")
OF_CHANGES = ("incremental", "cdc")


@dataclass
class Deviation:
    """One accepted difference.

    `what`: `columns` (only these columns differ), `rows`, `hudi refuses` (`error` matches what it
    says; `ours = "refuse"` when we must refuse too), `lakewright refuses` (`error` matches what we
    say). With `opinion`, our answer must be the one that this other Hudi gives.
    """

    name: str
    case: tuple[str, ...]
    query: str
    what: str
    reason: str
    right: str
    columns: tuple[str, ...] = ()
    error: str = ""
    opinion: str | None = None
    ours: str | None = None
    uses: int = field(default=0, compare=False)

    def covers(self, case: str, query: str) -> bool:
        """Whether this row is about that query of that case."""
        named = any(fnmatchcase(case, pattern) for pattern in self.case)
        return named and fnmatchcase(query, self.query)

    @property
    def of_changes(self) -> bool:
        """Whether this row is only about changes, which `interop.changes` compares."""
        return self.query in OF_CHANGES

    def matches(self, error: str) -> bool:
        """Whether an error is the one meant."""
        return re.search(self.error, error) is not None

    def use(self) -> None:
        """Count that this row explained a difference."""
        self.uses += 1


def load_deviations(file: Path = FILE, *, changes: bool = False) -> list[Deviation]:
    """The rows about reads of tables or, with `changes`, those that cover reads of changes."""
    rows = [_deviation(row) for row in tomllib.loads(file.read_text()).get("deviation", [])]
    if changes:
        return [d for d in rows if any(fnmatchcase(kind, d.query) for kind in OF_CHANGES)]
    return [d for d in rows if not d.of_changes]


def _deviation(row: dict[str, object]) -> Deviation:
    known = {**row}
    case = known.pop("case")
    patterns = (case,) if isinstance(case, str) else tuple(case)  # type: ignore[arg-type]
    made = Deviation(case=patterns, **known)  # type: ignore[arg-type]
    made.columns = tuple(made.columns)
    if made.what not in KINDS or not made.reason or not made.right:
        raise ValueError(f"deviation {made.name}: {made.what}")
    return made
