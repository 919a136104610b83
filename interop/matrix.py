"""The compatibility matrix: what was compared with real Hudi, and what came of it, as Markdown.

The text depends only on the results, never on times or places, so that a new run of the same code
writes the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from interop.cases import DIALECT_OF_TABLE_VERSION
from interop.compare import CaseResult
from interop.deviations import Deviation

AXES = {
    "history": "What happened to the table",
    "type": "Table type",
    "keys": "Key generator",
    "paths": "Partition paths",
    "blocks": "Log blocks",
    "merge": "Merge mode or payload",
    "index": "Index",
    "metadata": "Metadata table",
    "columns": "Columns",
    "first": "First write",
}
HEAD = """# Compatibility with real Hudi

Written by `make interop`; do not edit. Every table below was made by real Hudi on Spark 3.5, and \
every answer (snapshot, read-optimised, time travel) was compared with Hudi's own answer to the \
same query, cell for cell, types included. Version 6 is judged by Hudi 0.15.0, version 8 by 1.0.2, \
version 9 by 1.2.0.

A cell says *tables · queries*; a query with an accepted deviation is counted after a `+`, with \
the numbers of its reasons below. Anything else would have failed the run.
"""


@dataclass(frozen=True)
class Tally:
    """Counts of one cell."""

    tables: int
    equal: int
    accepted: int
    different: int
    reasons: tuple[str, ...]


def tally(results: Iterable[CaseResult]) -> Tally:
    """Count tables and queries by outcome."""
    results = list(results)
    verdicts = [v for r in results for v in r.verdicts]
    reasons = sorted({name for v in verdicts for name in v.deviations})
    counts = {o: sum(v.outcome == o for v in verdicts) for o in ("equal", "accepted", "different")}
    return Tally(
        len(results), counts["equal"], counts["accepted"], counts["different"], tuple(reasons)
    )


def matrix(results: Sequence[CaseResult], deviations: Sequence[Deviation]) -> str:
    """The whole document."""
    numbers = {d.name: n for n, d in enumerate(deviations, 1)}
    parts = [HEAD, summary(results, numbers)]
    parts += [axis_table(results, axis, title, numbers) for axis, title in AXES.items()]
    parts.append(_queries(results, numbers))
    parts.append(reasons(deviations))
    return "\n".join(parts)


def summary(results: Sequence[CaseResult], numbers: dict[str, int]) -> str:
    """The numbers by table version, with the release that judged."""
    lines = [
        "## In all\n",
        "| table version | judge | tables | queries | equal | accepted | different |",
        "|---|---|---|---|---|---|---|",
    ]
    for version, judge in DIALECT_OF_TABLE_VERSION.items():
        t = tally(r for r in results if r.traits["table_version"] == version)
        total = t.equal + t.accepted + t.different
        lines.append(
            f"| {version} | Hudi {judge} | {t.tables} | {total} | {t.equal} | "
            f"{_with_reasons(t, numbers)} | {t.different} |"
        )
    return "\n".join(lines) + "\n"


def _with_reasons(t: Tally, numbers: dict[str, int]) -> str:
    if not t.accepted:
        return "0"
    links = ", ".join(f"[{numbers[r]}](#d{numbers[r]})" for r in t.reasons)
    return f"{t.accepted} ({links})"


def _cell(t: Tally, numbers: dict[str, int]) -> str:
    if not t.tables:
        return "–"
    shown = f"{t.tables} · {t.equal}"
    if t.accepted:
        shown += f" + {_with_reasons(t, numbers)}"
    return shown + (f", **{t.different} different**" if t.different else "")


def cell_table(
    title: str,
    rows: Iterable[str],
    pick: Callable[[str, int], Iterable[CaseResult]],
    numbers: dict[str, int],
) -> str:
    """A table of tallies: `pick` gives the results of a row and a table version."""
    versions = list(DIALECT_OF_TABLE_VERSION)
    lines = [
        f"## {title}\n",
        "| | " + " | ".join(f"version {v}" for v in versions) + " |",
        "|---|" + "---|" * len(versions),
    ]
    for row in rows:
        cells = [_cell(tally(pick(row, v)), numbers) for v in versions]
        lines.append(f"| {row.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def axis_table(
    results: Sequence[CaseResult], axis: str, title: str, numbers: dict[str, int]
) -> str:
    """The tallies by the values of one trait."""
    values = sorted({str(r.traits[axis]) for r in results})

    def pick(value: str, version: int) -> Iterable[CaseResult]:
        return (
            r
            for r in results
            if str(r.traits[axis]) == value and r.traits["table_version"] == version
        )

    return cell_table(title, values, pick, numbers)


def _queries(results: Sequence[CaseResult], numbers: dict[str, int]) -> str:
    kinds = {"snapshot": "snapshot", "read optimised": "read_optimized", "time travel": "as_of"}

    def pick(kind: str, version: int) -> Iterable[CaseResult]:
        for r in results:
            chosen = tuple(v for v in r.verdicts if v.query.startswith(kinds[kind]))
            if chosen and r.traits["table_version"] == version:
                yield CaseResult(r.name, r.hudi, r.traits, chosen)

    return cell_table("Queries", kinds, pick, numbers)


def reasons(deviations: Sequence[Deviation]) -> str:
    """The accepted deviations, numbered as the cells refer to them."""
    lines = ["## Accepted deviations\n"]
    for number, d in enumerate(deviations, 1):
        lines.append(f'{number}. <a id="d{number}"></a>**{d.name}** ({d.what}): {d.reason} ')
        lines[-1] += f"Right: {d.right}."
    return "\n".join(lines) + "\n"


def write_matrix(
    results: Sequence[CaseResult], deviations: Sequence[Deviation], file: Path
) -> None:
    """Write the document."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(matrix(results, deviations))
