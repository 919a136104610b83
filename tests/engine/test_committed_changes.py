"""Changes of the committed tables are Hudi's own, range by range; replayed, they give the table."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakewright as lw
from interop.compare_changes import read_ours, verdict
from interop.deviations import load_deviations
from tests.corpus import committed_tables
from tests.fixtures import unzip
from tests.quickly import a_few_quickly
from tests.rows import plain, table_rows

CHANGES = Path(__file__).parents[1] / "changes"
MANIFEST: list[dict[str, Any]] = json.loads((CHANGES / "manifest.json").read_text())
WITH_CHANGE_DATA = [row for row in MANIFEST if any(r["mode"] == "cdc" for r in row["ranges"])]
LABEL = "_range"


def unpacked(name: str, into: Path) -> Path:
    """The table of a row of the manifest."""
    known = {t.name: t for t in committed_tables()}
    if name in known:
        return known[name].unpack(into)
    return unzip(CHANGES / f"{name}.zip", into) / "table"


ASKED = [(r, "rows") for r in MANIFEST] + [(r, "cdc") for r in WITH_CHANGE_DATA]


@pytest.mark.parametrize(
    ("row", "mode"), a_few_quickly(ASKED, 2), ids=[f"{r['name']}-{m}" for r, m in ASKED]
)
def test_every_range_is_hudis(row: dict[str, Any], mode: str, tmp_path: Path) -> None:
    asked = [r for r in row["ranges"] if r["mode"] == mode]
    table = unpacked(row["name"], tmp_path)
    kind = "incremental" if mode == "rows" else "cdc"
    known = [d for d in load_deviations(changes=True) if d.covers(row["name"], kind)]
    known = [replace(d, opinion=None) for d in known]  # the whole comparison asks for these
    labelled = pq.read_table(CHANGES / f"{row['name']}.{mode}.parquet")
    wrong = []
    for entry in asked:
        theirs = None if entry["error"] else _part(labelled, entry["number"])
        found = verdict(entry, read_ours(table, entry), theirs, known, lambda _: None)
        wrong += [found] if found.outcome == "different" else []
    assert wrong == []


def _part(labelled: pa.Table, number: int) -> pa.Table:
    return labelled.filter(pc.equal(labelled[LABEL], number)).drop_columns([LABEL])


# ---- images as structs -------------------------------------------------------------------------


@pytest.mark.parametrize("row", WITH_CHANGE_DATA, ids=lambda r: r["name"])
def test_replaying_all_changes_gives_the_snapshot(row: dict[str, Any], tmp_path: Path) -> None:
    table = lw.Table.open(unpacked(row["name"], tmp_path))
    changes = table.changes(mode="cdc", images="struct").to_arrow()
    # An overwrite deletes and inserts at one instant.
    changes = changes.sort_by([("ts_ms", "ascending"), ("op", "ascending")])
    rows: dict[str, dict[str, Any]] = {}
    for change in changes.to_pylist():
        before, after = change["before"], change["after"]
        assert {"i": (False, True), "u": (True, True), "d": (True, False)}[change["op"]] == (
            before is not None,
            after is not None,
        )
        if before is not None and change["op"] != "i":
            assert rows.pop(_key(before)) == before
        if after is not None:
            rows[_key(after)] = after
    wanted = table.scan(meta=False).to_arrow().to_pylist()
    assert sorted(map(_text, rows.values())) == sorted(map(_text, wanted))


def _key(row: dict[str, Any]) -> str:
    return str(row["id"])


def _text(row: dict[str, Any]) -> str:
    return json.dumps(plain(row), sort_keys=True)


@pytest.mark.parametrize("row", WITH_CHANGE_DATA, ids=lambda r: r["name"])
def test_filters_and_projections_of_change_data(row: dict[str, Any], tmp_path: Path) -> None:
    table = lw.Table.open(unpacked(row["name"], tmp_path))
    whole = table.changes(mode="cdc").to_arrow()
    deletes = table.changes(mode="cdc", columns=["ts_ms", "op"], where="op = 'd'").to_arrow()
    assert deletes.column_names == ["ts_ms", "op"]
    assert set(deletes["op"].to_pylist()) == {"d"}
    assert deletes.num_rows == pc.sum(pc.equal(whole["op"], "d")).as_py()
    plan = table.changes(mode="cdc").plan()
    assert "change logs" in plan.source
    assert {c["case"] for t in plan.to_dict()["tasks"] for c in t["changes"]} >= {"new_file"}  # type: ignore[attr-defined]


# ---- rows that lack columns --------------------------------------------------------------------

PARTIAL = "v8_mor_partial_update"


@pytest.mark.slow
def test_partial_rows_of_a_range_are_those_of_the_table_at_its_end(tmp_path: Path) -> None:
    table = lw.Table.open(unpacked(PARTIAL, tmp_path))
    done = table.timeline.commits().completed().instants
    times = sorted(i.completion_time or "" for i in done)
    lacking = 0
    for since, until in combinations(["", *times], 2):
        span = {i.requested_time for i in done if since < (i.completion_time or "") <= until}
        whole = _by_version(table.scan(as_of=max(span)).to_arrow())
        found = _by_version(table.changes(since or None, until).to_arrow())
        expected = {v: row for v, row in whole.items() if row["_hoodie_commit_time"] in span}
        assert expected.items() <= found.items()
        assert all(found[v] == whole.get(v, found[v]) for v in found)
        lacking += bool(expected) and since > times[0]
    assert lacking  # ranges without the first base file


def _by_version(rows: pa.Table) -> dict[tuple[str, str], dict[str, Any]]:
    read = table_rows(rows)
    return {(r["_hoodie_record_key"], r["_hoodie_commit_seqno"]): r for r in read}
