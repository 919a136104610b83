"""Compare lakewright's changes with the answers that `interop.changes` stored; needs no Hudi.

A range is *equal*, *accepted* (a row of `deviations.toml` with the query `incremental` or `cdc`
covers it) or *different*. Images of change data are compared as text, to the letter. Two rows of
the file are checked here and not only believed: `garbled-images` (columns that Hudi prints as the
insides of a JVM object; everything else in the image must be the same) and `repeated-deletes`
(deletes of a replaced group, of which Hudi 0.15 and 1.0 repeat one; their number must be the same).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakewright as lw
from interop.change_ranges import EARLIEST
from interop.compare import Verdict, difference
from interop.deviations import Deviation

IMAGES = ("before", "after")
GARBLED = "garbled-images"
REPEATED = "repeated-deletes"


def compare_ranges(folder: Path, deviations: Sequence[Deviation]) -> Iterator[Verdict]:
    """A verdict on every range of one table."""
    said = json.loads((folder / "changes.json").read_text())
    for entry in said["ranges"]:
        kind = "incremental" if entry["mode"] == "rows" else "cdc"
        covering = [d for d in deviations if d.covers(folder.name, kind)]
        yield compare_range(folder, entry, covering)


def compare_range(folder: Path, entry: Mapping[str, Any], known: Sequence[Deviation]) -> Verdict:
    """One range."""
    query = entry["query"]
    ours = read_ours(folder / "table", entry)
    if entry["error"] is not None:
        shown = ours if isinstance(ours, str) else f"{ours.num_rows} rows"
        refused = isinstance(ours, str) and not ours.startswith("CRASH")
        for row in known:
            fits = row.what == "hudi refuses" and refused == (row.ours == "refuse")
            if fits and row.matches(entry["error"]):
                row.use()
                return Verdict(query, "accepted", entry["error"], (row.name,))
        return Verdict(query, "different", f"Hudi refuses: {entry['error']}; ours: {shown}")
    if isinstance(ours, str):
        for row in known:
            if row.what == "lakewright refuses" and row.matches(ours):
                row.use()
                return Verdict(query, "accepted", ours, (row.name,))
        return Verdict(query, "different", f"lakewright fails: {ours}")
    theirs = pq.read_table(folder / entry["file"])
    compare = row_difference if entry["mode"] == "rows" else image_difference
    return compare(query, ours, theirs, known)


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
    query: str, ours: pa.Table, theirs: pa.Table, known: Sequence[Deviation]
) -> Verdict:
    """Changed rows, cell for cell."""
    told = difference(ours, theirs)
    if not told:
        return Verdict(query, "equal")
    columns = [d for d in known if d.what == "columns"]
    ignored = {name for d in columns for name in d.columns}
    rows = [d for d in known if d.what == "rows"]
    accepting = columns if ignored and not difference(ours, theirs, ignored) else rows
    for row in accepting:
        row.use()
    if accepting:
        return Verdict(query, "accepted", told, tuple(d.name for d in accepting))
    return Verdict(query, "different", told)


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
            if Counter(a) == Counter(b):
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
