"""Compare lakewright's changes with the answers that `interop.changes` stored; needs no Hudi.

A range is *equal*, *accepted* (a row of `deviations.toml` with the query `incremental` or `cdc`
covers it) or *different*. Images of change data are compared as text, to the letter. Some rows of
the file are checked here and not only believed: `escaped-partition-value` (unescaped, the columns
must be the same), `garbled-images` (columns that Hudi prints as the insides of a JVM object;
everything else in the image must be the same) and `repeated-deletes` (deletes of a replaced group,
of which Hudi 0.15 and 1.0 repeat one; their number must be the same).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

import lakewright as lw
from interop.change_ranges import EARLIEST
from interop.compare import CaseResult, Verdict, difference
from interop.deviations import Deviation

Opinions = Callable[[str], pa.Table | None]
"""The answers of other Hudis to a query, by their names."""
IMAGES = ("before", "after")
ESCAPED = "escaped-partition-value"
GARBLED = "garbled-images"
REPEATED = "repeated-deletes"


def compare_table(folder: Path, deviations: Sequence[Deviation]) -> CaseResult:
    """Compare every range of one stored table."""
    case = json.loads((folder / "case.json").read_text())
    said = json.loads((folder / "changes.json").read_text())
    verdicts = []
    for entry in said["ranges"]:
        kind = "incremental" if entry["mode"] == "rows" else "cdc"
        covering = [d for d in deviations if d.covers(folder.name, kind)]
        verdicts.append(compare_range(folder, entry, covering))
    return CaseResult(folder.name, said["judge"], case["traits"], tuple(verdicts))


def compare_range(folder: Path, entry: Mapping[str, Any], known: Sequence[Deviation]) -> Verdict:
    """One range of a stored table."""

    def other(opinion: str) -> pa.Table | None:
        file = folder / f"opinion-{opinion}" / f"{entry['query']}.parquet"
        return pq.read_table(file) if file.exists() else None

    theirs = None if entry["error"] else pq.read_table(folder / entry["file"])
    return verdict(entry, read_ours(folder / "table", entry), theirs, known, other)


def verdict(
    entry: Mapping[str, Any],
    ours: pa.Table | str,
    theirs: pa.Table | None,
    known: Sequence[Deviation],
    other: Opinions,
) -> Verdict:
    """What comes of a range: our rows or our error, Hudi's rows or none if it refused."""
    query = entry["query"]
    error = entry["error"] if theirs is None else damage(theirs)
    if theirs is None or error:
        return _refused_by_hudi(query, error, ours, known, other)
    if isinstance(ours, str):
        for row in known:
            if row.what == "lakewright refuses" and row.matches(ours):
                row.use()
                return Verdict(query, "accepted", ours, (row.name,))
        return Verdict(query, "different", f"lakewright fails: {ours}")
    if entry["mode"] == "rows":
        return row_difference(query, ours, theirs, known, other)
    return image_difference(query, ours, theirs, known)


def damage(rows: pa.Table) -> str:
    """What is wrong with an answer that holds values of no type; empty if it is sound."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as damaged:
        return f"damaged answer: {damaged}"
    return ""


def _refused_by_hudi(
    query: str,
    error: str,
    ours: pa.Table | str,
    known: Sequence[Deviation],
    other: Opinions,
) -> Verdict:
    """Hudi's failure must be known; then ours must be as the row says."""
    for row in known:
        if row.what != "hudi refuses" or not row.matches(error):
            continue
        if row.ours == "refuse":
            fits = isinstance(ours, str) and not ours.startswith("CRASH")
        else:
            fits = not isinstance(ours, str) and _agrees(ours, row, other)
        if fits:
            row.use()
            return Verdict(query, "accepted", error, (row.name,))
    shown = ours if isinstance(ours, str) else f"{ours.num_rows} rows"
    return Verdict(query, "different", f"Hudi refuses: {error}; ours: {shown}")


def _agrees(ours: pa.Table, row: Deviation, other: Opinions, ignored: Collection[str] = ()) -> bool:
    """Whether ours is the answer of the other Hudi that a deviation names, if it names one."""
    if row.opinion is None:
        return True
    second = other(row.opinion)
    return second is not None and not difference(ours, second, ignored)


def read_ours(table: Path, entry: Mapping[str, Any]) -> pa.Table | str:
    """Our answer, or the text of our error."""
    since = None if entry["begin"] == EARLIEST else entry["begin"]
    try:
        changes = lw.Table.open(str(table)).changes(since, entry["end"] or None, entry["mode"])
        return changes.to_arrow()
    except lw.LakewrightError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"CRASH {type(error).__name__}: {error}"


def row_difference(
    query: str,
    ours: pa.Table,
    theirs: pa.Table,
    known: Sequence[Deviation],
    other: Opinions,
) -> Verdict:
    """Changed rows, cell for cell."""
    told = difference(ours, theirs)
    if not told:
        return Verdict(query, "equal")
    for row in (d for d in known if d.name == ESCAPED):
        if not difference(ours, unescaped(theirs, row.columns)):
            row.use()
            return Verdict(query, "accepted", told, (row.name,))
    columns = [d for d in known if d.what == "columns" and d.name != ESCAPED]
    ignored = {name for d in columns for name in d.columns}
    if columns and not difference(ours, theirs, ignored):
        needed = [d for d in columns if difference(ours, theirs, ignored - set(d.columns))]
        accepting = needed or columns[:1]
    else:
        rows = [d for d in known if d.what == "rows"]
        accepting = [d for d in rows if _agrees(ours, d, other, ignored)][:1]
    for row in accepting:
        row.use()
    if accepting:
        return Verdict(query, "accepted", told, tuple(d.name for d in accepting))
    return Verdict(query, "different", told)


def unescaped(rows: pa.Table, names: Collection[str]) -> pa.Table:
    """The rows with the texts of these columns unescaped, as in partition paths."""
    for name in names:
        texts = [None if t is None else unquote(t) for t in rows[name].to_pylist()]
        place = rows.column_names.index(name)
        rows = rows.set_column(place, rows.schema.field(name), pa.array(texts, rows[name].type))
    return rows


# -- change data ----------------------------------------------------------------------------

Change = tuple[str, str, str | None, str | None]


def image_difference(
    query: str, ours: pa.Table, theirs: pa.Table, known: Sequence[Deviation]
) -> Verdict:
    """Change data, to the letter, but for what the covering rows allow."""
    names = ["op", "ts_ms", *IMAGES]
    mine = [tuple(row.values()) for row in ours.select(names).to_pylist()]
    his = [tuple(row.values()) for row in theirs.select(names).to_pylist()]
    if Counter(mine) == Counter(his):
        return Verdict(query, "equal")
    told = f"{len(mine)} rows for {len(his)}"
    left = list((Counter(mine) - Counter(his)).elements())
    right = list((Counter(his) - Counter(mine)).elements())
    shown = f"{told}, {len(left)} differ; ours {left[:1]}; theirs {right[:1]}"[:900]
    allowed = {d.name: d for d in known if d.name in EXPLANATIONS}
    for names_ in ([GARBLED], [REPEATED], [GARBLED, REPEATED]):
        if all(name in allowed for name in names_):
            a, b = left, right
            for name in names_:
                a, b = EXPLANATIONS[name](a, b)
            if Counter(a) == Counter(b) and (REPEATED not in names_ or repeats(mine, right)):
                for name in names_:
                    allowed[name].use()
                return Verdict(query, "accepted", shown, tuple(names_))
    return Verdict(query, "different", shown)


def without_garbage(mine: list[Any], his: list[Any]) -> tuple[list[Any], list[Any]]:
    """Both sides as JSON values, without the columns that Hudi garbles in some image."""
    garbled = {key for row in his for image in row[2:] for key in _garbled(image)}

    def parsed(row: Change) -> tuple[Any, ...]:
        return (*row[:2], *(_parsed(image, garbled) for image in row[2:]))

    return [parsed(row) for row in mine], [parsed(row) for row in his]


def counted_deletes(mine: list[Any], his: list[Any]) -> tuple[list[Any], list[Any]]:
    """Deletes as no more than that there is one; all else as it is."""

    def counted(row: Change) -> tuple[Any, ...]:
        return row[:2] if row[0] == "d" else row

    return [counted(row) for row in mine], [counted(row) for row in his]


def repeats(mine: list[Any], his: list[Any]) -> bool:
    """Whether his deletes are deletes of ours, repeated."""
    known, asked = without_garbage(mine, his)
    return {row for row in asked if row[0] == "d"} <= set(known)


EXPLANATIONS = {GARBLED: without_garbage, REPEATED: counted_deletes}


def _garbled(image: str | None) -> set[str]:
    value = json.loads(image) if image else None
    if not isinstance(value, dict):
        return set()
    inside = {"zero", "baseObject", "values", "array", "keyArray", "valueArray"}
    return {k for k, v in value.items() if isinstance(v, dict) and inside & set(v)}


def _parsed(image: str | None, without: set[str]) -> str | None:
    value = json.loads(image) if image else None
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if k not in without}
    return None if value is None else json.dumps(value, sort_keys=True)
