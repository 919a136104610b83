"""Upsert and delete with lakewright, and let real Hudi read, upsert, compact, clean and delete.

    python -m interop.keyed                      all tables; writes docs/compatibility-upserts.md
    python -m interop.keyed --only 'v8_mor_*'    some tables, by pattern; no document

Sixteen tables, one for each table type, version and index, go through every keyed write, as
`interop.proof` says; the Hudi that belongs to the table version reads after every step. Then Hudi
upserts, compacts, cleans and deletes on the same tables with the same index, and lakewright goes
on.

Accepted differences are rows of `keyed_deviations.toml`. Ends with a line `N passed, M failed` and
status 1 if anything failed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa

from interop.hudi import ROOT
from interop.keyed_cases import keyed_cases
from interop.keyed_steps import STEPS, KeyedTable
from interop.proof import Command, Explained
from interop.written import EXPLAINED as OF_PARTITIONS
from lakewright.engine import base_file


def _of_partition(name: str, _: KeyedTable, ours: pa.Table) -> pa.Table:
    """Other values of partition columns."""
    return OF_PARTITIONS[name](ours)


def latest(table: KeyedTable, _: pa.Table) -> pa.Table:
    """The columns of the rows that came last, whatever their ordering values."""
    return table.columns.arrow(table.model.latest())


def in_order(table: KeyedTable, _: pa.Table) -> pa.Table:
    """The columns of the rows where deletions are ordered as rows are."""
    return table.columns.arrow(table.model.in_order())


EXPLAINED: Mapping[str, Explained[KeyedTable]] = {
    "latest-in-a-log": latest,
    "deletions-in-order": in_order,
    **{name: partial(_of_partition, name) for name in OF_PARTITIONS},
}
HEAD = (
    "# Tables that lakewright upserts into and deletes from, read by others",
    "",
    "Made by `make interop-upserts`. Each table goes through the steps from top to bottom;",
    "after every step the content must be what the operations mean by the table's own rule of",
    "merging (*model*), no key may be there twice, and each reader must give the same rows as",
    "lakewright, cell for cell, types and meta columns included. ✓ equal, ✗ different, a",
    "number: an accepted difference, explained below.",
)
COMMAND = Command(
    name="interop.keyed",
    about=__doc__.splitlines()[0],
    make=lambda folder: [KeyedTable(case, folder / case.name) for case in keyed_cases()],
    steps=STEPS,
    deviations=(Path(__file__).with_name("keyed_deviations.toml"),),
    explained=EXPLAINED,
    document=ROOT / "docs" / "compatibility-upserts.md",
    head=HEAD,
)


if __name__ == "__main__":
    base_file.KEPT_SHARE = 1 << 30  # row groups are taken over however small they are
    sys.exit(COMMAND.main())
