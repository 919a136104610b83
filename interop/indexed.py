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
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pyarrow as pa

from interop.hudi import ROOT, Hudi
from interop.indexed_steps import (
    MORE,
    PER_PARTITION,
    hudi_makes_secondary,
    make_secondary,
)
from interop.keyed_steps import Finding, Step
from interop.metadata_differences import our_differences, their_differences
from interop.options import EVERY_INDEX
from interop.proof import Command
from interop.serviced import EXPLAINED, readers
from interop.serviced_cases import ServicedCase, serviced_cases
from interop.serviced_steps import STEPS
from interop.serviced_table import ServicedTable, read_by
from interop.serviced_theirs import Does
from interop.written_rows import KEYS, Columns
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
SOME = {**EVERY_INDEX, "hoodie.metadata.index.column.stats.column.list": "id,sub,ts,i64,s,more"}
"""Hudi 1.0 fails on statistics of its own logs where a moment or a decimal is null."""
OF_FILES = {**SOME, "hoodie.metadata.record.index.enable": "false"}
"""Hudi 1.0 fails to find the keys of Parquet log blocks in which a column is never null, and does
not tell its record index of keys that came into buckets."""
RECORDS = {**FILES_ONLY, "hoodie.metadata.record.index.enable": "true"}
INDEXES = {
    "v6_mor_bloom_event": EVERY_INDEX,
    "v6_cow_bloom_commit": EVERY_INDEX,
    "v6_mor_simple_partial": RECORDS,
    "v6_mor_bucket_event_newer": OF_FILES,
    "v8_mor_bloom_event": SOME,
    "v8_cow_simple_event": EVERY_INDEX,
    "v8_mor_bucket_commit": OF_FILES,
    "v8_mor_simple_commit_parquet": OF_FILES,
}
PLAIN = Columns(
    pa.schema([*(pa.field(f.name, f.type) for f in KEYS), ("i64", pa.int64()), ("s", pa.string())])
)
"""Hudi 1.0 fails to keep its own secondary indexes where columns are nested, have got a wider type
or are never null."""
SECONDARIES = (
    ("mor", "nonpartitioned", "plain", "SIMPLE", "event", "lakewright"),
    ("cow", "simple", "hive", "BLOOM", "commit", "Hudi"),
)
OF_PARTITIONS = {**FILES_ONLY, "hoodie.metadata.record.level.index.enable": "true"}
"""Hudi 1.2 fails on its own statistics of partitions in the sessions of these proofs."""
PARTED = (("mor", "simple", "plain", "commit"), ("cow", "simple", "hive", "event"))
"""Tables of Hudi 1.2.0, which is the first to know a record index per partition."""
OFF = {"hoodie.metadata.enable": "false"}
NONE = pa.table({"difference": pa.array([], pa.string())})
CACHED = "Hudi upserts, compacts, cleans and archives at the end"
FILLED = 5
"""After so many steps a table has rows in base files and logs, and deletions."""
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

    secondary: str = ""
    """Who makes a secondary index of it: lakewright, Hudi or nobody."""

    @property
    def name(self) -> str:
        """Short, unique."""
        return f"{super().name}_secondary" if self.secondary else super().name

    @property
    def title(self) -> str:
        """For people."""
        made = f", secondary index made by {self.secondary}" if self.secondary else ""
        return f"{super().title}{made}"

    @property
    def our_options(self) -> dict[str, str]:
        """The options of our writes."""
        return {**super().our_options, **self._indexes}

    def hudi_options(self, hudi: str) -> dict[str, str]:
        """The options of Hudi's writes."""
        return {**super().hudi_options(hudi), **self._indexes}

    @property
    def _indexes(self) -> dict[str, str]:
        if self.index == PER_PARTITION:
            return OF_PARTITIONS
        return EVERY_INDEX if self.secondary else INDEXES.get(self.name, FILES_ONLY)


@dataclass
class IndexedTable(ServicedTable):
    """One table under test."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._is_plain:
            self.columns = PLAIN

    @property
    def _is_plain(self) -> bool:
        return bool(self.maker) or self.case.hudi == "1.2.0"

    @property
    def maker(self) -> str:
        """Who makes a secondary index."""
        assert isinstance(self.case, IndexedCase)
        return self.case.secondary

    @property
    def grown_columns(self) -> Columns:
        """The columns after the schema changes."""
        return PLAIN if self._is_plain else super().grown_columns

    def ask_files(self, hudi: Hudi) -> None:
        """Both engines must find the files of the folders in the metadata table."""
        found = {
            "lakewright": our_differences(self.open(), self._is_left),
            hudi.version: their_differences(hudi, self.path, self.case.name),
        }
        self.findings += [Finding(f"{by}, files", NONE, told or NONE) for by, told in found.items()]

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

    def ask_rows(self, hudi: Hudi) -> None:
        """Hudi must read the same with the metadata table and without."""
        without = read_by(hudi, self.path, OFF)
        if isinstance(without, pa.Table):  # what it cannot read at all is not the question here
            found = read_by(hudi, self.path, ON)
            self.findings.append(Finding(f"{hudi.version}, with and without", without, found))


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
    cases += [
        IndexedCase(8, type_, keys, paths, index, merge, False, "1.0.2", secondary=maker)  # type: ignore[arg-type]
        for type_, keys, paths, index, merge, maker in SECONDARIES
    ]
    cases += [
        IndexedCase(8, type_, keys, paths, PER_PARTITION, merge, False, "1.2.0")  # type: ignore[arg-type]
        for type_, keys, paths, merge in PARTED
    ]
    return [IndexedTable(c, folder / c.name / "table") for c in cases]


def _readers(step: Step[ServicedTable], table: ServicedTable) -> Sequence[str]:
    """As in `interop.serviced`. Only a new process of Hudi 1.2.0 sees what it has written and
    archived at the end: the old one goes on with what it read before, whatever the indexes are."""
    asked = readers(step, table)
    return [r for r in asked if r != "1.2.0"] if step.name == CACHED else asked


def _made_by(maker: str, does: Does) -> Does:
    """A step of the tables whose secondary index somebody makes."""

    def done(t: ServicedTable, hudi: Hudi) -> bool | None:
        assert isinstance(t, IndexedTable)
        return does(t, hudi) if t.maker == maker else False

    return done


SECONDARY = (
    Step("secondary index", "lakewright", _made_by("lakewright", make_secondary)),
    Step("Hudi makes a secondary index", "Hudi", _made_by("Hudi", hudi_makes_secondary)),
)
COMMAND = Command(
    name="interop.indexed",
    about=__doc__.splitlines()[0],
    make=_tables,
    steps=tuple(_watched(step) for step in (*STEPS[:FILLED], *SECONDARY, *STEPS[FILLED:], *MORE)),
    deviations=tuple(
        Path(__file__).with_name(f"{name}_deviations.toml") for name in ("serviced", "indexed")
    ),
    explained={**EXPLAINED, "only-logs": _with_base_files},
    document=ROOT / "docs" / "compatibility-indexes.md",
    head=HEAD,
    asked=_readers,
)


if __name__ == "__main__":
    base_file.KEPT_SHARE = 1 << 30  # row groups are taken over however small they are
    sys.exit(COMMAND.main())
