"""Results leave as Arrow, pandas, Polars and DuckDB; on an object store as on a folder."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakewright as lw
from tests.fixtures import SHARED_ABSENT, shared_tables, unpack

TABLES = {t.id: t for t in shared_tables()}
pytestmark = pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)


@pytest.fixture
def trips(tmp_path: Path) -> lw.Table:
    shared = next(t for i, t in TABLES.items() if i.startswith("mor_v8_trips"))
    return lw.Table.open(unpack(shared, tmp_path))


def test_pandas_polars_and_duckdb_see_the_same_rows(trips: lw.Table) -> None:
    rows = trips.scan().to_arrow()
    total = pc.sum(rows["fare"]).as_py()
    assert trips.scan().to_pandas()["fare"].sum() == pytest.approx(total)
    assert trips.scan().to_polars()["fare"].sum() == pytest.approx(total)
    assert pl.DataFrame(trips.scan())["fare"].sum() == pytest.approx(total)
    connection = duckdb.connect()
    connection.register("trips", trips.scan().to_reader())
    found = connection.sql("select count(*), sum(fare) from trips").fetchall()
    assert found == [(rows.num_rows, pytest.approx(total))]
    assert pa.table(trips.scan()).num_rows == rows.num_rows == trips.scan().count()


def test_a_scan_stays_on_its_snapshot_when_the_table_moves_on(trips: lw.Table) -> None:
    scan = trips.scan()
    before = scan.to_arrow()
    timeline = Path(trips.uri.removeprefix("file://")) / ".hoodie" / "timeline"
    last = sorted(timeline.glob("*_*.deltacommit"))[-1]
    last.unlink()
    after = trips.scan().to_arrow()
    assert after["_hoodie_commit_seqno"].to_pylist() != before["_hoodie_commit_seqno"].to_pylist()
    assert scan.plan().as_of is None
    assert scan.to_arrow().num_rows == before.num_rows


def test_a_limit_stops_early_and_meta_columns_can_be_left_out(trips: lw.Table) -> None:
    assert trips.scan(limit=2).to_arrow().num_rows == 2
    assert trips.scan(limit=0).to_arrow().num_rows == 0
    names = trips.scan(meta=False).to_arrow().column_names
    assert names and not any(n.startswith("_hoodie_") for n in names)


FILTERS = [
    "fare > 20",
    "city = 'san_francisco' and fare <= 30",
    "rider in ('rider-A', 'rider-C') or fare is null",
    "not (city like 'san%')",
    "ts between 0 and 1695159649087",
    "_hoodie_partition_path = 'city=chennai'",
]


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("skipping", [True, False])
def test_filters_select_what_a_filter_on_all_rows_selects(
    trips: lw.Table, where: str, skipping: bool
) -> None:
    options = lw.ReadOptions(use_metadata_table=skipping)
    whole = trips.scan(options=options).to_arrow()
    connection = duckdb.connect()
    connection.register("whole", whole)
    expected = connection.sql(f"select * from whole where {where}").to_arrow_table()
    found = trips.scan(where=where, options=options).to_arrow()
    keys = "_hoodie_record_key"
    assert trips.scan(options=options).plan().listing == (
        "metadata table" if skipping else "listing"
    )
    assert sorted(found[keys].to_pylist()) == sorted(expected[keys].to_pylist())
    assert whole.num_rows > found.num_rows


def test_statistics_skip_partitions_and_slices_that_cannot_match(trips: lw.Table) -> None:
    plan = trips.scan(where="ts > 99999999999999").plan()
    assert plan.partitions_skipped_by_statistics == plan.partitions_total > 0
    assert plan.tasks == ()
    oldest = min(trips.scan(columns=["ts"]).to_arrow()["ts"].to_pylist())
    plan = trips.scan(where=f"ts <= {oldest}").plan()
    assert plan.skipped_by_statistics + plan.partitions_skipped_by_statistics > 0
    assert len(plan.tasks) > 0
    assert "skipped by statistics" in str(plan)


def test_a_user_merger_decides_for_its_strategy(tmp_path: Path) -> None:
    strategy = "6f7d64b4-7fb9-4f3b-9d7a-0a3a52c4f001"
    shared = next(t for i, t in TABLES.items() if i.startswith("mor_v8_trips"))
    path = unpack(shared, tmp_path)
    file = path / ".hoodie" / "hoodie.properties"
    lines = [
        line
        for line in file.read_text().splitlines()
        if not line.startswith(("hoodie.record.merge", "hoodie.compaction.payload"))
    ]
    lines += ["hoodie.record.merge.mode=CUSTOM", f"hoodie.record.merge.strategy.id={strategy}"]
    file.write_text("\n".join(lines) + "\n")

    @lw.merger(strategy=strategy)
    def keep_older(older: pa.RecordBatch, newer: pa.RecordBatch, ctx: object) -> lw.Merged:
        return lw.Merged(take=pa.array([int(lw.Take.OLDER)] * older.num_rows, pa.uint8()))

    with pytest.raises(lw.LakewrightError, match=strategy):
        lw.Table.open(path).scan().to_arrow()
    kept = lw.Table.open(path, mergers=[keep_older]).scan().to_arrow()
    bases = lw.Table.open(path, mergers=[keep_older]).scan(mode="read_optimized").to_arrow()
    fares = {r["uuid"]: r["fare"] for r in kept.to_pylist()}
    assert all(fares.get(r["uuid"]) == r["fare"] for r in bases.to_pylist())
