"""A table that lakewright and Hudi service in turns, and what is asked about it besides its rows.

Instants are read from file names by `interop.instants`, so that nothing of the product decides what
must be in the archive.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interop.change_ranges import EARLIEST, Range, archived_writes, asked_table
from interop.changes import LABEL, answer
from interop.compare_changes import read_ours
from interop.hudi import Hudi, HudiRefusedError
from interop.instants import WRITES, SeenInstant, completed_writes, instants
from interop.keyed_model import Place, Stored
from interop.keyed_steps import Finding, KeyedTable
from interop.serviced_cases import serviced_columns
from interop.written_rows import Columns

EVER = "start_ts => '20000101000000000', end_ts => '99991231235959999', limit => 1000"
NOT_TOLD = ("state_transition_time", "action")
"""What Hudi does not tell of archived commits as of active ones."""
_RANGES = threading.Lock()
"""Ranges are views of one session: the tables take turns."""


@dataclass(frozen=True)
class Saved:
    """A commit that the table can go back to, and what the table was then."""

    instant: str
    held: dict[Place, Stored]
    rows: pa.Table
    """All of it, meta columns included."""


@dataclass
class ServicedTable(KeyedTable):
    """One table under test."""

    columns: Columns = field(default_factory=serviced_columns)
    saved: Saved | None = None
    planned: str | None = None
    """The instant of a plan that somebody is going to execute."""
    archived: set[str] = field(default_factory=set)
    """Requested times of writes that have left the timeline into the archive."""

    @property
    def is_mor(self) -> bool:
        """Whether there are logs."""
        return self.case.type == "mor"

    @property
    def grown_columns(self) -> Columns:
        """The columns after the schema changes."""
        return serviced_columns(evolved=True)

    # -- states -----------------------------------------------------------------------------

    def newest_write(self) -> str:
        """Requested time of the newest completed write."""
        return completed_writes(self.path)[-1].requested

    def pending(self, action: str) -> list[SeenInstant]:
        """Instants of an action that are not completed, oldest first."""
        seen = instants(self.path)
        done = {s.requested for s in seen if s.state == "completed"}
        planned = [s for s in seen if s.action == action and s.state == "requested"]
        return [s for s in planned if s.requested not in done]

    def is_completed(self, instant: str) -> bool:
        """Whether an instant is there and completed."""
        seen = instants(self.path)
        return any(s.requested == instant and s.state == "completed" for s in seen)

    def remember(self, instant: str) -> None:
        """Remember the table as it is after a commit."""
        rows = self.open().scan().to_arrow()
        self.saved = Saved(instant, deepcopy(self.model.held), rows)

    def go_back(self) -> None:
        """Let the model be as it was then."""
        assert self.saved is not None
        self.model.held = deepcopy(self.saved.held)

    def archive(self, archives: Callable[[], object]) -> None:
        """Let somebody archive; whatever has left the timeline must be found in the archive."""
        before = {s.requested for s in completed_writes(self.path)}
        archives()
        self.archived |= before - {s.requested for s in completed_writes(self.path)}

    def copy(self) -> Path:
        """A copy of the files, in a folder of its own."""
        copied = self.path.with_name("copy")
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(self.path, copied)
        return copied

    # -- questions --------------------------------------------------------------------------

    def ask_savepoint(self, hudi: Hudi) -> None:
        """The state of the savepoint must be what it was, for Hudi and for us."""
        assert self.saved is not None
        ours = self.open().scan(as_of=self.saved.instant).to_arrow()
        self.findings.append(Finding("lakewright, at the savepoint", self.saved.rows, ours))
        theirs = read_by(hudi, self.path, {"as.of.instant": self.saved.instant})
        self.findings.append(Finding(f"{hudi.version}, at the savepoint", self.saved.rows, theirs))

    def ask_archive(self, hudi: Hudi, before: Mapping[str, Mapping[str, Any]]) -> None:
        """What has left the timeline must be in the archive once, and say the same to Hudi.

        `before` are commits as Hudi showed them when they were active.
        """
        expected = pa.table({"instant": sorted(self.archived)})
        known = self.open().inspect.archived().to_pylist()
        ours = sorted(row["requested_time"] for row in known if row["action"] in WRITES)
        self.findings.append(Finding("lakewright, archive", expected, pa.table({"instant": ours})))
        shown = self.show(hudi, "show_archived_commits", EVER)
        theirs = pa.table({"instant": sorted(row["commit_time"] for row in shown)})
        self.findings.append(Finding(f"{hudi.version}, archive", expected, theirs))
        met = [row for row in shown if row["commit_time"] in before]
        told = _as_columns([before[row["commit_time"]] for row in met])
        self.findings.append(Finding(f"{hudi.version}, archived commits", told, _as_columns(met)))

    def show_commits(self, hudi: Hudi) -> dict[str, Mapping[str, Any]]:
        """Completed commits as Hudi shows them."""
        rows = self.show(hudi, "show_commits", "limit => 1000")
        return {row["commit_time"]: row for row in rows}

    def show(self, hudi: Hudi, procedure: str, arguments: str) -> list[Mapping[str, Any]]:
        """What a procedure of Hudi's tells about the table."""
        name = hudi.register(self.path, self.case.name)
        return list(hudi.query(f"call {procedure}(table => '{name}', {arguments})"))

    def ask_changes(self, hudi: Hudi) -> None:
        """Changes from the beginning, over everything that is archived, must be ours."""
        asked = asked_table(self.path.parent, judge=hudi.version)
        archived = archived_writes(self.path) or sorted(self.archived)
        asked = replace(asked, archived=tuple(archived))
        ranges = [
            Range("rows", EARLIEST, archived[-1]),
            Range("rows", EARLIEST, asked.times()[-1]),
            Range("rows", archived[0], asked.times()[-1]),
        ]
        with _RANGES:
            hudi.query("set spark.sql.parquet.enableVectorizedReader=false")
            try:
                together: pa.Table | str = answer(asked, ranges, hudi)
            except HudiRefusedError as refused:
                together = str(refused)
            finally:
                hudi.query("reset spark.sql.parquet.enableVectorizedReader")
        for number, range_ in enumerate(ranges):
            ours = read_ours(self.path, vars(range_))
            assert isinstance(ours, pa.Table), ours
            theirs = together
            if isinstance(together, pa.Table):
                theirs = together.filter(pc.equal(together[LABEL], number)).drop_columns([LABEL])
            self.findings.append(Finding(f"{hudi.version}, changes {number + 1}", ours, theirs))


def read_by(hudi: Hudi, path: Path, options: Mapping[str, str]) -> pa.Table | str:
    """What Hudi reads, or with what it refuses."""
    into = path.with_name("answer.parquet")
    try:
        hudi.read(path, into, options)
    except HudiRefusedError as refused:
        return str(refused)
    return pq.read_table(into)


def _as_columns(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """What a procedure tells of commits, as text."""
    names = sorted({name for row in rows for name in row if name not in NOT_TOLD})
    return pa.table({name: [str(row.get(name)) for row in rows] for name in names})
