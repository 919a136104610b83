"""The ranges of changes that a table is asked for, and how each Hudi is asked.

All pairs of completed instants, archived ones too, for changed rows of the corpus; single instants,
the whole and the rest after the first for change data. Times are those of the table's version:
requested times at 6, completion times later. Nothing of the product is used here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq

from interop.cases import DIALECT_OF_TABLE_VERSION
from interop.instants import WRITES, completed_writes, instants

EARLIEST = "000"
QUERY = "hoodie.datasource.query.type"
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"
FORMAT = "hoodie.datasource.query.incremental.format"
FALLBACK = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"
HOLES = "hoodie.read.timeline.holes.resolution.policy"
SCHEMA_ON_READ = "hoodie.schema.on.read.enable"
QUERY_PREFIX = {"incremental": "incr", "cdc": "cdc"}
"""How names of queries begin, by the kind that deviations name."""


@dataclass(frozen=True)
class Range:
    """Changes after `begin` up to `end`; an empty end is the latest."""

    mode: str
    begin: str
    end: str

    @property
    def kind(self) -> str:
        """What deviations call such a query."""
        return "incremental" if self.mode == "rows" else "cdc"

    @property
    def name(self) -> str:
        """The name of the query and of its answer."""
        return f"{QUERY_PREFIX[self.kind]}_{self.begin}_{self.end or 'latest'}"


@dataclass(frozen=True)
class Asked:
    """A table that is asked for its changes."""

    folder: Path
    properties: Mapping[str, str]
    judge: str
    """The release that is asked."""
    archived: tuple[str, ...] = ()
    """The times of archived writes, ascending."""

    @property
    def table(self) -> Path:
        """The table itself."""
        return self.folder / "table"

    @property
    def version(self) -> int:
        """Its version, as it is now."""
        return int(self.properties["hoodie.table.version"])

    @property
    def by_completion(self) -> bool:
        """Whether ranges are completion times."""
        return (self.table / ".hoodie" / "timeline").is_dir()

    def times(self) -> list[str]:
        """The times of completed writes of the active timeline, ascending."""
        seen = completed_writes(self.table)
        return sorted({(s.completed if self.by_completion else s.requested) or "" for s in seen})

    def hole(self) -> str | None:
        """The first write that is pending before a completed one (a table of version 6)."""
        times = self.times()
        pending = {s.requested for s in instants(self.table) if s.action in WRITES}
        pending -= {s.requested for s in completed_writes(self.table)}
        early = [p for p in sorted(pending) if times and p < times[-1]]
        return early[0] if early and not self.by_completion else None

    def is_archived(self) -> bool:
        """Whether a part of the timeline lies in the archive."""
        archive = self.table / ".hoodie" / "archived"
        return archive.is_dir() and any(archive.iterdir())

    def keeps_changes(self) -> bool:
        """Whether the table keeps change data."""
        return self.properties.get("hoodie.table.cdc.enabled") == "true"

    def ranges(self) -> list[Range]:
        """Every range the table is asked for."""
        times = self.times()
        ends = [*self.archived, *times]
        pairs = [(begin, e) for n, begin in enumerate([EARLIEST, *ends]) for e in ends[n:]]
        single = zip([EARLIEST, *times], times, strict=False)
        few = list(dict.fromkeys([*single, (EARLIEST, times[-1]), (times[0], times[-1])]))
        asked = [Range("rows", b, e) for b, e in (few if self.is_for_change_data() else pairs)]
        if self.hole() is not None:
            asked += [Range("rows", begin, "") for begin in (EARLIEST, times[0])]
        if self.keeps_changes():
            asked += [Range("cdc", b, e) for b, e in few]
        return asked

    def is_for_change_data(self) -> bool:
        """Whether the table was made for its change data; it is no part of the corpus."""
        return "_cdc_" in self.folder.name

    def options(self, range_: Range) -> dict[str, str]:
        """How the judge is asked."""
        options = {
            "path": str(self.table),
            QUERY: "incremental",
            BEGIN: range_.begin,
            "hoodie.metadata.enable": "false",
        }
        if any((self.table / ".hoodie" / ".schema").glob("*.schemacommit")):
            options[SCHEMA_ON_READ] = "true"
        if range_.end:
            options[END] = range_.end
        if range_.mode == "cdc":
            return {**options, FORMAT: "cdc"}
        if self.judge == "1.0.2" and range_.begin != EARLIEST:
            options[BEGIN] = one_later(range_.begin)  # its ranges are closed at both ends
        if self.version == 6:
            # An open end means up to the hole; an end beyond the hole is to be refused.
            hole = self.hole()
            options[HOLES] = "FAIL" if hole and range_.end > hole else "BLOCK"
            if self.is_archived() and range_.begin < self.times()[0]:
                options[FALLBACK] = "true"
        return options


def asked_table(folder: Path, *, judge: str | None = None) -> Asked:
    """A stored table with its properties; asked of the release whose answers count, by default."""
    text = (folder / "table" / ".hoodie" / "hoodie.properties").read_text()
    lines = [line.partition("=") for line in text.splitlines() if not line.startswith("#")]
    properties = {key: value for key, _, value in lines}
    version = int(properties["hoodie.table.version"])
    return Asked(folder, properties, judge or DIALECT_OF_TABLE_VERSION[version])


def archived_writes(table: Path) -> list[str]:
    """Completion times of archived writes, from the files of the second archive layout."""
    history = table / ".hoodie" / "timeline" / "history"
    if not (history / "_version_").exists():
        return []
    newest = (history / "_version_").read_text().strip()
    manifest = json.loads((history / f"manifest_{newest}").read_text())
    rows = [
        row
        for file in manifest["files"]
        for row in pq.read_table(
            history / file["fileName"], columns=["completionTime", "action"]
        ).to_pylist()
    ]
    return sorted(row["completionTime"] for row in rows if row["action"] in WRITES)


def one_later(time: str) -> str:
    """The next millisecond of a time of 17 digits."""
    moment = datetime.strptime(time[:14], "%Y%m%d%H%M%S") + timedelta(milliseconds=int(time[14:]))
    later = moment + timedelta(milliseconds=1)
    return f"{later:%Y%m%d%H%M%S}{later.microsecond // 1000:03d}"
