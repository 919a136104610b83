"""Every real table of the shared set gives exactly its expected rows, or is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakewright as lw
from lakewright.errors import UnsupportedTableError
from tests.fixtures import SHARED_ABSENT, SharedTable, expected_rows, shared_tables, unpack
from tests.rows import canonical, table_rows

TABLES = shared_tables()
pytestmark = pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)

READABLE = [t for t in TABLES if t.rows is not None]
REFUSED = [t for t in TABLES if t.refused]


@pytest.mark.parametrize("shared", READABLE, ids=lambda t: t.id)
@pytest.mark.parametrize("listing", ["metadata table", "folders"])
def test_rows_are_exactly_the_expected_ones(
    shared: SharedTable, listing: str, tmp_path: Path
) -> None:
    options = lw.ReadOptions(use_metadata_table=listing == "metadata table")
    table = lw.Table.open(unpack(shared, tmp_path), options=options)
    got = canonical(table_rows(table.scan().to_arrow()))
    assert got == canonical(expected_rows(shared))


@pytest.mark.parametrize("shared", READABLE, ids=lambda t: t.id)
def test_stream_projection_and_filter_agree_with_the_whole(
    shared: SharedTable, tmp_path: Path
) -> None:
    table = lw.Table.open(unpack(shared, tmp_path))
    whole = table.scan().to_arrow()
    name = whole.column_names[-1]
    narrow = table.scan(columns=[name]).to_arrow()
    assert canonical(table_rows(narrow)) == canonical(table_rows(whole.select([name])))
    small = lw.ReadOptions(batch_rows=2, threads=1, merge_memory=0)
    batches = list(table.scan(options=small).to_batches())
    assert all(b.num_rows <= 2 for b in batches)
    assert sum(b.num_rows for b in batches) == whole.num_rows
    key = "_hoodie_record_key"
    if key in whole.column_names and whole.num_rows:
        wanted = whole[key][0].as_py()
        found = table.scan(where=lw.col(key) == wanted).to_arrow()
        expected = whole.filter(lw_equal(whole[key], wanted))
        assert canonical(table_rows(found)) == canonical(table_rows(expected))


def lw_equal(column: object, value: object) -> object:
    """A mask of equal values, by Arrow."""
    import pyarrow.compute as pc

    return pc.equal(column, value)


@pytest.mark.parametrize("shared", REFUSED, ids=lambda t: t.id)
def test_unsupported_tables_are_refused_by_name(shared: SharedTable, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError) as caught:
        lw.Table.open(unpack(shared, tmp_path))
    reason = "LANCE" if "lance" in shared.zip else str(shared.version)
    assert reason in str(caught.value)
    assert caught.value.hint


def test_stored_values_are_read_where_hudi_itself_fails(tmp_path: Path) -> None:
    shared = next(t for t in TABLES if "custom_keygen" in t.zip)
    rows = table_rows(lw.Table.open(unpack(shared, tmp_path)).scan().to_arrow())
    assert rows and all(r["_hoodie_partition_path"] for r in rows)
    assert json.dumps(rows)
