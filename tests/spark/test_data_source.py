"""The format `lakewright`: reads and SQL give what a scan gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakewright as lw
from tests.spark.rows import arrow_rows, spark_rows
from tests.spark.tables import ORDERS, real_table

pytest.importorskip("pyspark.sql.datasource", reason="the data source needs Spark 4")


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    return real_table(ORDERS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        ORDERS,
        "v9_mor_schema_change_simple",
        "v8_cow_change_data",
    ],
)
def test_rows_are_those_of_a_scan(spark: SparkSession, name: str, tmp_path: Path) -> None:
    path = real_table(name, tmp_path)
    wanted = lw.Table.open(path).scan().to_arrow()
    frame = spark.read.format("lakewright").load(str(path))
    assert frame.columns == wanted.column_names
    assert spark_rows(frame) == arrow_rows(wanted)


@pytest.mark.slow
def test_columns_filter_and_moment_are_options(spark: SparkSession, orders: Path) -> None:
    table = lw.Table.open(orders)
    first = table.timeline.commits().completed().first()
    assert first is not None
    frame = (
        spark.read.format("lakewright")
        .option("columns", "amount,id")
        .option("where", "region like 'so%'")
        .option("as_of", first.requested_time)
        .load(str(orders))
    )
    wanted = table.scan(
        columns=["amount", "id"], where="region like 'so%'", as_of=first.requested_time
    )
    assert frame.columns == ["amount", "id"]
    assert spark_rows(frame) == arrow_rows(wanted.to_arrow())


@pytest.mark.slow
def test_sql_reads_through_a_view(spark: SparkSession, orders: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING lakewright OPTIONS (path '{orders}')")
    rows = lw.Table.open(orders).scan().to_arrow().to_pylist()
    question = "select region, max(pieces) m from v where amount > 5 group by region"
    wanted: dict[str, int] = {}
    for row in rows:
        if row["amount"] is not None and row["amount"] > 5:
            wanted[row["region"]] = max(row["pieces"], wanted.get(row["region"], 0))
    assert {r["region"]: r["m"] for r in spark.sql(question).collect()} == wanted != {}


@pytest.mark.slow
def test_filters_on_one_frame_do_not_meddle_with_each_other(
    spark: SparkSession, orders: Path
) -> None:
    frame = spark.read.format("lakewright").load(str(orders))
    every = frame.count()
    low, high = frame.filter("pieces <= 205"), frame.filter("pieces > 205")
    assert low.union(high).count() == every
    assert 0 < low.count() < every and low.count() + high.count() == every
    assert frame.filter("pieces < 0").count() == 0 and frame.count() == every


@pytest.mark.slow
def test_changes_are_read_by_option(spark: SparkSession, orders: Path) -> None:
    table = lw.Table.open(orders)
    first = table.timeline.commits().completed().in_completion_order()[0]
    since = first.requested_time
    frame = (
        spark.read.format("lakewright")
        .option("changes", "rows")
        .option("since", str(since))
        .load(str(orders))
    )
    assert spark_rows(frame) == arrow_rows(table.changes(since=since).to_arrow())
    assert 0 < frame.count() < table.changes().count() + 1


def test_a_misspelled_option_is_refused_with_the_right_one(
    spark: SparkSession, orders: Path
) -> None:
    with pytest.raises(PySparkException, match="Did you mean 'where'"):
        spark.read.format("lakewright").option("wher", "amount > 1").load(str(orders))


@pytest.mark.long
def test_a_schema_of_other_types_is_refused(spark: SparkSession, orders: Path) -> None:
    reader = spark.read.format("lakewright")
    assert reader.schema("id string, amount double").load(str(orders)).columns == ["id", "amount"]
    with pytest.raises(PySparkException, match="amount was asked for as int"):
        reader.schema("amount int").load(str(orders)).collect()
