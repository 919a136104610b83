"""Compare lakewright's answers with the ones Hudi gave, cell for cell, types included.

`compare_case(folder, deviations)` reads what `interop.generate` stored and needs no Hudi. A query
is *equal*, *accepted* (a row of `deviations.toml` covers exactly this difference) or *different*;
where Hudi refused a query, the refusal itself must be covered, and lakewright must answer or refuse
with an error of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakewright as lw
from interop.deviations import Deviation
from interop.generate import query_kind
from interop.normal import columns_of, rows_of

SHOWN = 4


@dataclass(frozen=True)
class Verdict:
    """What came of one query."""

    query: str
    outcome: str  # equal, accepted, different
    told: str = ""
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaseResult:
    """What came of one case."""

    name: str
    hudi: str
    traits: Mapping[str, Any]
    verdicts: tuple[Verdict, ...] = field(default_factory=tuple)

    @property
    def failed(self) -> bool:
        """Whether anything is different without a reason."""
        return any(v.outcome == "different" for v in self.verdicts)


def compare_case(folder: Path, deviations: Sequence[Deviation]) -> CaseResult:
    """Compare every query of one stored case."""
    case = json.loads((folder / "case.json").read_text())
    if case["error"] is not None:
        verdicts = [Verdict("make", "different", f"Hudi could not make it: {case['error']}")]
    else:
        verdicts = [compare_query(folder, case, asked, deviations) for asked in case["answers"]]
    return CaseResult(case["name"], case["hudi"], case["traits"], tuple(verdicts))


def compare_query(
    folder: Path, case: Mapping[str, Any], asked: Mapping[str, Any], known: Sequence[Deviation]
) -> Verdict:
    """Compare one query."""
    query = query_kind(asked["query"])
    covering = [d for d in known if d.covers(case["name"], query)]
    ours = read_ours(folder / "table", asked["query"])
    if asked["error"] is not None:
        return _refused_by_hudi(folder, asked, ours, covering)
    if isinstance(ours, str):
        return _refused_by_us(asked["query"], ours, covering)
    theirs = pq.read_table(folder / asked["file"])
    told = difference(ours, theirs)
    if not told:
        return Verdict(asked["query"], "equal")
    return _explained(folder, asked, ours, theirs, told, covering)


def _refused_by_hudi(
    folder: Path, asked: Mapping[str, Any], ours: pa.Table | str, covering: Sequence[Deviation]
) -> Verdict:
    """Hudi's failure must be known; then ours must be as the row says."""
    ignored = {name for d in covering if d.what == "columns" for name in d.columns}
    for known in covering:
        if known.what != "hudi refuses" or not known.matches(asked["error"]):
            continue
        if known.ours == "refuse":
            fits = isinstance(ours, str) and not ours.startswith("CRASH")
        else:
            fits = not isinstance(ours, str) and _second_opinion(
                folder, asked, ours, known, ignored
            )
        if fits:
            known.use()
            return Verdict(asked["query"], "accepted", asked["error"], (known.name,))
    shown = ours if isinstance(ours, str) else f"{ours.num_rows} rows"
    return Verdict(asked["query"], "different", f"Hudi refuses: {asked['error']}; ours: {shown}")


def _refused_by_us(query: str, error: str, covering: Sequence[Deviation]) -> Verdict:
    for known in covering:
        if known.what == "lakewright refuses" and known.matches(error):
            known.use()
            return Verdict(query, "accepted", error, (known.name,))
    return Verdict(query, "different", f"lakewright fails: {error}")


def _explained(
    folder: Path,
    asked: Mapping[str, Any],
    ours: pa.Table,
    theirs: pa.Table,
    told: str,
    covering: Sequence[Deviation],
) -> Verdict:
    columns = [d for d in covering if d.what == "columns"]
    ignored = {name for d in columns for name in d.columns}
    if columns and not difference(ours, theirs, ignored):
        needed = [d for d in columns if difference(ours, theirs, ignored - set(d.columns))]
        for known in needed or columns[:1]:
            known.use()
        names = tuple(d.name for d in needed or columns[:1])
        return Verdict(asked["query"], "accepted", told, names)
    for known in covering:
        if known.what == "rows" and _second_opinion(folder, asked, ours, known, ignored):
            known.use()
            return Verdict(asked["query"], "accepted", told, (known.name,))
    return Verdict(asked["query"], "different", told)


def _second_opinion(
    folder: Path,
    asked: Mapping[str, Any],
    ours: pa.Table,
    known: Deviation,
    ignored: Collection[str],
) -> bool:
    """Whether ours is what the deviation says it must be: another Hudi's answer, if it asks so."""
    if known.opinion is None:
        return True
    second = folder / f"opinion-{known.opinion}" / f"{asked['query']}.parquet"
    return second.exists() and not difference(ours, pq.read_table(second), ignored)


def read_ours(table: Path, query: str) -> pa.Table | str:
    """Our answer, or the text of our error; other exceptions are failures and shown as such."""
    try:
        opened = lw.Table.open(str(table))
        if query.startswith("as_of_"):
            return opened.scan(as_of=query.removeprefix("as_of_")).to_arrow()
        if query == "read_optimized":
            return opened.scan(mode="read_optimized").to_arrow()
        return opened.scan().to_arrow()
    except lw.LakewrightError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"CRASH {type(error).__name__}: {error}"


def difference(ours: pa.Table, theirs: pa.Table, ignored: Collection[str] = ()) -> str:
    """What differs in a few words, columns in `ignored` left out; empty when equal."""
    ours, theirs = (
        t.select([name for name in t.column_names if name not in ignored]) for t in (ours, theirs)
    )
    told = _column_difference(columns_of(ours), columns_of(theirs))
    return told or _row_difference(rows_of(ours), rows_of(theirs.select(ours.column_names)))


def _column_difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    missing = [name for name in theirs if name not in ours]
    extra = [name for name in ours if name not in theirs]
    if missing or extra:
        return f"columns: missing {missing}, not in Hudi's {extra}"
    types = [f"{n}: {ours[n]} for {theirs[n]}" for n in ours if ours[n] != theirs[n]]
    return f"types: {'; '.join(types)}" if types else ""


def _row_difference(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> str:
    left = Counter(tuple(row.items()) for row in ours)
    right = Counter(tuple(row.items()) for row in theirs)
    if left == right:
        return ""
    only_ours = [dict(row) for row in (left - right).elements()]
    only_theirs = [dict(row) for row in (right - left).elements()]
    told = [f"{len(ours)} rows for {len(theirs)}"] if len(ours) != len(theirs) else []
    by_key = {_key(row): row for row in only_theirs}
    paired = [(row, by_key.pop(_key(row))) for row in only_ours if _key(row) in by_key]
    for mine, his in paired[:SHOWN]:
        cells = [f"{c}: {mine[c]!r} for {his[c]!r}" for c in mine if mine[c] != his[c]]
        told.append(f"{_key(mine)}: {', '.join(cells)[:400]}")
    if len(paired) > SHOWN:
        told.append(f"and {len(paired) - SHOWN} more rows that differ")
    kept = [row for row in only_ours if all(row is not mine for mine, _ in paired)]
    if kept:
        told.append(f"not in Hudi's: {[_key(row) for row in kept][:SHOWN]}")
    if by_key:
        told.append(f"missing: {list(by_key)[:SHOWN]}")
    return "; ".join(told)


def _key(row: Mapping[str, Any]) -> str:
    key = row.get("_hoodie_record_key") or row.get("id")
    return f"{row.get('_hoodie_partition_path')}/{key}"
