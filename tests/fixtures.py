"""Real tables for tests: the shared set beside the project, where it is present."""

from __future__ import annotations

import json
import os
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "fixtures"
SHARED_ABSENT = "the shared set of real tables is not beside the project"


@dataclass(frozen=True)
class SharedTable:
    """One table inside a zip of the shared set."""

    zip: str
    table: str
    version: int
    type: str
    rows: str | None

    @property
    def id(self) -> str:
        """A name for test ids."""
        return f"{Path(self.zip).stem}:{self.table}"

    @property
    def refused(self) -> bool:
        """Whether opening it must fail."""
        return "_refuse" in self.zip


def shared_tables() -> list[SharedTable]:
    """Every table of the shared set; empty where it is absent."""
    manifest = SHARED / "manifest.json"
    if not manifest.exists():
        return []
    return [
        SharedTable(r["zip"], r["table"], r["table_version"], r["type"], r["rows"])
        for r in json.loads(manifest.read_text())
    ]


def expected_rows(shared: SharedTable) -> list[dict[str, Any]]:
    """The rows an independent reader returned, meta columns included."""
    assert shared.rows is not None
    return list(json.loads((SHARED / shared.rows).read_text()))


def unpack(shared: SharedTable, into: Path) -> Path:
    """Unzip a shared table with its modification times kept; the table's folder."""
    return unzip(SHARED / shared.zip, into) / shared.table


def unzip(archive: Path, into: Path) -> Path:
    """Unzip with the archive's modification times, which version 6 reads as completion times."""
    with zipfile.ZipFile(archive) as z:
        for info in z.infolist():
            target = Path(z.extract(info, into))
            stamp = time.mktime((*info.date_time, 0, 0, -1))
            os.utime(target, (stamp, stamp))
    return into
