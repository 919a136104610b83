"""The compatibility matrix of changes: which ranges were compared with real Hudi, as Markdown.

The same cells as the matrix of reads, for the ranges that `interop.changes` compares. The text
depends only on the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from interop.change_ranges import QUERY_PREFIX
from interop.compare import CaseResult
from interop.deviations import Deviation
from interop.matrix import axis_table, cell_table, reasons, summary

HEAD = """# Compatibility of changes with real Hudi

Written by `make interop-changes`; do not edit. Every range between two completed instants of \
every table of the interop corpus, and change data where a table keeps it, compared with Hudi's \
own answer cell for cell; images of change data to the letter. Version 6 is judged by Hudi 0.15.0 \
and counts requested times, version 8 by 1.0.2 and version 9 by 1.2.0 count completion times.

A cell says *tables · ranges*; a range with an accepted deviation is counted after a `+`, with the \
numbers of its reasons below. Anything else would have failed the run.
"""
KINDS = {"changed rows": QUERY_PREFIX["incremental"], "change data": QUERY_PREFIX["cdc"]}
AXES = {"history": "What happened to the table", "type": "Table type", "columns": "Columns"}


def change_matrix(results: Sequence[CaseResult], deviations: Sequence[Deviation]) -> str:
    """The whole document."""
    used = [d for d in deviations if d.uses]
    numbers = {d.name: n for n, d in enumerate(used, 1)}
    parts = [HEAD, summary(results, numbers), _kinds(results, numbers)]
    parts += [axis_table(results, axis, title, numbers) for axis, title in AXES.items()]
    return "\n".join([*parts, reasons(used)])


def _kinds(results: Sequence[CaseResult], numbers: dict[str, int]) -> str:
    def pick(kind: str, version: int) -> Iterable[CaseResult]:
        for r in results:
            chosen = tuple(v for v in r.verdicts if v.query.startswith(f"{KINDS[kind]}_"))
            if chosen and r.traits["table_version"] == version:
                yield CaseResult(r.name, r.hudi, r.traits, chosen)

    return cell_table("Changes", KINDS, pick, numbers)


def write_matrix(
    results: Sequence[CaseResult], deviations: Sequence[Deviation], file: Path
) -> None:
    """Write the document."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(change_matrix(results, deviations))
