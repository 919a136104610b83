"""Tables with a metadata table that lakewright and real Hudi keep right in turns.

    python -m interop.indexed                      all tables; writes the document
    python -m interop.indexed --only 'v8_mor_*'    some tables, by pattern; no document

The tables and the steps are those of `interop.serviced`, with the metadata table on in both
engines. After every step, whoever did it, Hudi's own `validate_metadata_table_files` and our
comparison with the folders must find no difference, and where others are asked to read, Hudi must
give the same rows with the metadata table and without.

Accepted differences are rows of `serviced_deviations.toml` and `indexed_deviations.toml`. Ends with
a line `N passed, M failed` and status 1 if anything failed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from interop.hudi import ROOT, Hudi, HudiRefusedError
from interop.indexed_steps import MORE
from interop.keyed_steps import Finding, Step
from interop.proof import Command
from interop.serviced import EXPLAINED, readers
from interop.serviced_cases import ServicedCase, serviced_cases
from interop.serviced_steps import STEPS
from interop.serviced_table import ServicedTable, read_by
from lakewright.engine import base_file
from lakewright.format.instant import State
from lakewright.metadata.file_groups import BLOOM_FILTERS, COLUMN_STATS, FILES
from lakewright.metadata.verification import Difference, DifferenceKind

ON = {"hoodie.metadata.enable": "true"}
FILES_ONLY = {
    **ON,
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
}
EVERYTHING = {
    **ON,
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
}
RECORDS = {**FILES_ONLY, "hoodie.metadata.record.index.enable": "true"}
WITH_EVERYTHING = ("v6_mor_bloom_event", "v6_cow_bloom_commit", "v8_cow_simple_event")
WITH_RECORDS = ("v8_mor_bloom_event", "v6_mor_simple_partial")
"""Hudi 1.0 fails on statistics of its own logs where some columns are null."""
OFF = {"hoodie.metadata.enable": "false"}
NONE = pa.table({"difference": pa.array([], pa.string())})
SHOWN = 3
HEAD = (
    "# Tables whose metadata table lakewright and Hudi keep right in turns",
    "",
    "Made by `make interop-indexes`. The tables and steps of",
    "[compatibility-services](compatibility-services.md) with the metadata table on. *Files*: no",
    "difference between the metadata table and the folders, by Hudi's own procedure and by",
    "lakewright. *With* and *without*: the rows that Hudi reads with the metadata table and",
    "without it.",
)


@dataclass(frozen=True)
class IndexedCase(ServicedCase):
    """One table with a metadata table."""

    @property
    def our_options(self) -> dict[str, str]:
        """The options of our writes."""
        return {**super().our_options, **self._indexes}

    def hudi_options(self, hudi: str) -> dict[str, str]:
        """The options of Hudi's writes."""
        return {**super().hudi_options(hudi), **self._indexes}

    @property
    def _indexes(self) -> dict[str, str]:
        if self.name in WITH_RECORDS:
            return RECORDS
        return EVERYTHING if self.name in WITH_EVERYTHING else FILES_ONLY


@dataclass
class IndexedTable(ServicedTable):
    """One table under test."""

    def ask_files(self, hudi: Hudi) -> None:
        """Both engines must find the files of the folders in the metadata table."""
        self.findings.append(Finding("lakewright, files", NONE, self._our_differences()))
        self.findings.append(Finding(f"{hudi.version}, files", NONE, self._their_differences(hudi)))

    def _our_differences(self) -> pa.Table | str:
        table = self.open()
        opened = table.snapshot().opened
        if opened.metadata is None:
            return f"no metadata table: {opened.warnings}"
        found = [f for f in table.metadata.verify() if isinstance(f, Difference)]
        return _differences([str(f.to_dict()) for f in found if not self._is_left(f)])

    def is_half_cleaned(self) -> bool:
        """Whether a clean died on its way: the table still tells of what it has deleted."""
        cleans = self.open().timeline.filter_actions("clean")
        return any(clean.state is State.INFLIGHT for clean in cleans.pending())

    def _is_left(self, found: Difference) -> bool:
        """Hudi 0.15 cuts the names of files that it cleans, so that their statistics stay; it
        leaves the filters of files that it restores away; and what its restore tells the list of
        files again, it finds without commits that were archived."""
        if self.case.hudi != "0.15.0" or found.kind is not DifferenceKind.UNEXPECTED:
            return False
        restored = bool(self.open().timeline.filter_actions("restore").instants)
        if found.index == BLOOM_FILTERS:
            return restored
        if found.index == FILES:
            return restored and not (self.path / found.key.lstrip("/")).exists()
        name = found.key.rpartition(" ")[0]
        return found.index == COLUMN_STATS and not (self.path / name).exists()

    def _their_differences(self, hudi: Hudi) -> pa.Table | str:
        try:
            rows = self.show(hudi, "validate_metadata_table_files", "verbose => true")
        except HudiRefusedError as error:
            return f"{error}\n{error.trace[-3000:]}"
        return _differences([str(row) for row in rows if _differs(row)])

    def ask_rows(self, hudi: Hudi) -> None:
        """Hudi must read the same with the metadata table and without."""
        without = read_by(hudi, self.path, OFF)
        if isinstance(without, pa.Table):  # what it cannot read at all is not the question here
            found = read_by(hudi, self.path, ON)
            self.findings.append(Finding(f"{hudi.version}, with and without", without, found))


def _differs(row: Mapping[str, Any]) -> bool:
    seen = [row.get(f"is_present_in_{place}") for place in ("fs", "metadata")]
    sizes = [row.get(f"{place}_size") for place in ("fs", "metadata")]
    return seen != [True, True] or sizes[0] != sizes[1]


def _differences(told: Sequence[str]) -> pa.Table | str:
    """No differences, or some of them in words."""
    if told:
        return f"{len(told)} differences, first: {'; '.join(sorted(told)[:SHOWN])}"
    return NONE


def _with_base_files(t: ServicedTable, rows: pa.Table) -> pa.Table:
    """The rows of file groups that have a base file."""
    known = {file.name.partition("_")[0] for file in t.path.rglob("*.parquet")}
    groups = [name.partition("_")[0] for name in rows["_hoodie_file_name"].to_pylist()]
    return rows.filter(pa.array([group in known for group in groups], pa.bool_()))


def _watched(step: Step[ServicedTable]) -> Step[ServicedTable]:
    """A step, and the questions after it."""

    def does(t: ServicedTable, hudi: Hudi) -> bool | None:
        assert isinstance(t, IndexedTable)
        done = step.does(t, hudi)
        if done is not False and not t.is_half_cleaned():
            t.ask_files(hudi)
            if step.asked:
                t.ask_rows(hudi)
        return done

    return replace(step, does=does)


def _tables(folder: Path) -> list[ServicedTable]:
    cases = [
        IndexedCase(**{f.name: getattr(c, f.name) for f in fields(c)}) for c in serviced_cases()
    ]
    return [IndexedTable(c, folder / c.name / "table") for c in cases]


COMMAND = Command(
    name="interop.indexed",
    about=__doc__.splitlines()[0],
    make=_tables,
    steps=tuple(_watched(step) for step in (*STEPS, *MORE)),
    deviations=tuple(
        Path(__file__).with_name(f"{name}_deviations.toml") for name in ("serviced", "indexed")
    ),
    explained={**EXPLAINED, "only-logs": _with_base_files},
    document=ROOT / "docs" / "compatibility-indexes.md",
    head=HEAD,
    asked=readers,
)


if __name__ == "__main__":
    base_file.KEPT_SHARE = 1 << 30  # row groups are taken over however small they are
    sys.exit(COMMAND.main())
