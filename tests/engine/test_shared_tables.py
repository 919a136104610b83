"""Every real table of the shared set gives exactly its expected rows, or is refused by name."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.compute as pc
import pytest

import lakewright as lw
from lakewright.errors import UnsupportedTableError
from tests.fixtures import SHARED_ABSENT, SharedTable, expected_rows, shared_tables, unpack
from tests.quickly import a_few_quickly
from tests.rows import canonical, table_rows

TABLES = shared_tables()
pytestmark = pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)

DAMAGED_TIMES = {
    "cow_v8_logical_types.zip": ("ts_millis", "local_ts_millis", "local_ts_micros"),
}
"""Files of this table annotate milliseconds as microseconds (or not at all) while the table's
schema says what they are. Its expectation was taken with Hudi 1.0.2, which believes the files:
times in 1970, and local times as plain numbers. Hudi 1.2.0 repairs them by the table's schema, and
so do we.
"""

READABLE = [t for t in TABLES if t.rows is not None]
REFUSED = [t for t in TABLES if t.refused]


def repaired(value: str | int) -> str:
    """A time as Hudi 1.0.2 returned it, as the time it stands for."""
    zone = UTC if isinstance(value, str) else None
    epoch = datetime(1970, 1, 1, tzinfo=zone)
    if isinstance(value, str):
        value = (datetime.fromisoformat(value) - epoch) // timedelta(microseconds=1)
    if value < 10**14:  # milliseconds that were taken for microseconds
        value *= 1000
    return (epoch + timedelta(microseconds=value)).isoformat()


def wanted_rows(shared: SharedTable) -> list[str]:
    """The expected rows, with damaged times repaired."""
    rows = expected_rows(shared)
    for row in rows:
        row |= {name: repaired(row[name]) for name in DAMAGED_TIMES.get(shared.zip, ())}
    return canonical(rows)


@pytest.mark.parametrize("shared", READABLE, ids=lambda t: t.id)
@pytest.mark.parametrize("listing", ["metadata table", "folders"])
def test_rows_are_exactly_the_expected_ones(
    shared: SharedTable, listing: str, tmp_path: Path
) -> None:
    options = lw.ReadOptions(use_metadata_table=listing == "metadata table")
    table = lw.Table.open(unpack(shared, tmp_path), options=options)
    got = canonical(table_rows(table.scan().to_arrow()))
    assert got == wanted_rows(shared)


@pytest.mark.parametrize("shared", a_few_quickly(READABLE, 8), ids=lambda t: t.id)
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
        expected = whole.filter(pc.equal(whole[key], wanted))
        assert canonical(table_rows(found)) == canonical(table_rows(expected))


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
