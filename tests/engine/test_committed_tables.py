"""The committed tables read exactly as the Hudi that wrote them read them, types included."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakewright as lw
from interop.compare import difference, read_ours
from tests.corpus import CommittedTable, committed_tables

TABLES = committed_tables()
QUERIES = [(t, q) for t in TABLES for q in t.answers]

LOST_BY_HUDI = {"v6_mor_schema_on_read": ("title",)}
"""Hudi's time travel loses the values of renamed columns; see interop/deviations.toml."""


@pytest.mark.parametrize(("table", "query"), QUERIES, ids=[f"{t.name}:{q}" for t, q in QUERIES])
def test_answers_equal_hudis_cell_for_cell(
    table: CommittedTable, query: str, tmp_path: Path
) -> None:
    ours = read_ours(table.unpack(tmp_path), query)
    assert not isinstance(ours, str), ours
    ignored = LOST_BY_HUDI.get(table.name, ()) if query.startswith("as_of") else ()
    assert difference(ours, table.answer(query), ignored) == ""


def test_every_kind_of_hard_table_is_among_them() -> None:
    assert {t.table_version for t in TABLES} == {6, 8, 9}
    assert {t.type for t in TABLES} == {"cow", "mor"}
    assert len(TABLES) >= 8


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_listing_by_metadata_table_and_by_folders_agree(
    table: CommittedTable, tmp_path: Path
) -> None:
    path = table.unpack(tmp_path)
    found = [
        lw.Table.open(path, options=lw.ReadOptions(use_metadata_table=use)).inspect.files()
        for use in (True, False)
    ]
    assert found[0].equals(found[1])
