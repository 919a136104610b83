"""What real Hudi makes of a table on which a writer of ours died: it reads it, and writes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from interop.cases import Traits
from interop.hudi import Hudi
from interop.kill_process import rows
from interop.kill_trials import Kind, Rows, judge_next_writer, stored_rows, told_rows
from interop.options import EVERY_INDEX, write_options
from interop.written_rows import Columns

HUDI_OF_VERSION = {6: "0.15.0", 8: "1.0.2"}
KEYS = 800
"""The first key number of the rows that Hudi writes."""
NAME = "killed"


@dataclass(frozen=True)
class NextHudi:
    """A release of Hudi that comes next."""

    hudi: Hudi
    scratch: Path
    """A folder for its answers."""

    def rows(self, path: Path) -> Rows:
        """The rows that it reads."""
        answer = self.scratch / "answer.parquet"
        self.hudi.read(path, answer, {})
        return told_rows(pq.read_table(answer, columns=["id", "ts"]))

    def write(self, path: Path, kind: Kind, expected: Rows) -> Rows:
        """Upsert some rows, as a single writer that rolls back eagerly; what there must be then."""
        traits = Traits(kind.version, kind.type, NAME)  # type: ignore[arg-type]
        new = rows(KEYS, 4)
        columns = Columns(new.schema)
        options = write_options(traits, self.hudi.version, NAME)
        step = {
            "do": "write",
            "operation": "upsert",
            "schema": columns.ddl,
            "rows": columns.json(new.to_pylist()),
            "options": {**options, **(EVERY_INDEX if kind.indexed else {})},
        }
        self.hudi.steps(path, NAME, [step])
        return tuple(sorted([*expected, *told_rows(new)]))

    def goes_on(self, path: Path, kind: Kind, seen: Rows) -> list[str]:
        """What is wrong after it has read what a reader saw, and it and lakewright wrote more."""
        if self.rows(path) != seen:
            return ["Hudi reads other rows than lakewright before its write"]
        expected = self.write(path, kind, seen)
        found = stored_rows(path)
        if found != expected:
            return [f"rows after Hudi's write: {found}"]
        if self.rows(path) != expected:
            return ["Hudi reads other rows than lakewright"]
        return judge_next_writer(path, expected, lock="file")
