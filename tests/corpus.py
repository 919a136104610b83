"""The committed tables: made by real Hudi, packed under `tests/tables`, with Hudi's own answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fixtures import unzip

TABLES = Path(__file__).with_name("tables")


@dataclass(frozen=True)
class CommittedTable:
    """One committed table; `answers` maps a query to the file with Hudi's answer.

    Queries are `snapshot`, `read_optimized` and `as_of_<instant>`.
    """

    name: str
    hudi: str
    table_version: int
    type: str
    note: str
    answers: dict[str, str]

    def unpack(self, into: Path) -> Path:
        """Unzip it with its modification times; the table's folder."""
        return unzip(TABLES / f"{self.name}.zip", into) / "table"

    def answer(self, query: str = "snapshot") -> pa.Table:
        """Hudi's answer to a query, meta columns included."""
        return pq.read_table(TABLES / self.answers[query])


def committed_tables() -> list[CommittedTable]:
    """Every committed table."""
    return [CommittedTable(**row) for row in json.loads((TABLES / "manifest.json").read_text())]
