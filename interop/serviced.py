"""Service tables with lakewright and with real Hudi in turns; each executes the plans of the other.

    python -m interop.serviced                      all tables; writes the document
    python -m interop.serviced --only 'v8_mor_*'    some tables, by pattern; no document

Eight tables go through compaction, clean, archiving, savepoints, rollbacks and restores of both
sides, as `interop.proof` says. Tables of version 6 are read by Hudi 0.15.0 and 1.0.2. Besides the
rows, Hudi is asked for the state of savepoints, for the archive that both have written, commit by
commit, and for changes over what is archived.

Accepted differences are rows of `serviced_deviations.toml`. Ends with a line `N passed, M failed`
and status 1 if anything failed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from interop.hudi import ROOT
from interop.keyed import in_order, latest
from interop.keyed_steps import Step
from interop.proof import Command, Explained
from interop.serviced_cases import serviced_cases
from interop.serviced_steps import STEPS
from interop.serviced_table import ServicedTable
from lakewright.engine import base_file

EXPLAINED: Mapping[str, Explained[ServicedTable]] = {
    "order-lost-by-compaction": latest,
    "latest-in-a-log": latest,
    "deletions-in-order": in_order,
}
HEAD = (
    "# Tables that lakewright and Hudi service in turns",
    "",
    "Made by `make interop-services`. Each table goes through the steps from top to bottom; a step",
    "that begins with *Hudi* is done by real Hudi, the others by lakewright. After a service the",
    "content must be what the writes mean by the table's own rule of merging (*model*), no key may",
    "be there twice, and each reader must give the same rows as lakewright, cell for cell, types",
    "and meta columns included. *At the savepoint*: the state of the savepoint is still what it",
    "was. *Archive*: exactly what left the timeline is in the archive, once. *Archived commits*:",
    "Hudi shows them as it did when they were active. *Changes*: those up to the last archived",
    "commit, all of them, and those since the first archived commit. ✓ equal, ✗ different, a",
    "number: an accepted difference, explained below; empty: not asked.",
)


def readers(_: Step[ServicedTable], table: ServicedTable) -> Sequence[str]:
    """Hudi 1.0.2 reads everything; the owner of a table too."""
    return tuple(dict.fromkeys((table.case.hudi, "1.0.2")))


COMMAND = Command(
    name="interop.serviced",
    about=__doc__.splitlines()[0],
    make=lambda folder: [ServicedTable(c, folder / c.name / "table") for c in serviced_cases()],
    steps=STEPS,
    deviations=(Path(__file__).with_name("serviced_deviations.toml"),),
    explained=EXPLAINED,
    document=ROOT / "docs" / "compatibility-services.md",
    head=HEAD,
    asked=readers,
)


if __name__ == "__main__":
    base_file.KEPT_SHARE = 1 << 30  # row groups are taken over however small they are
    sys.exit(COMMAND.main())
