"""SparkTable: projection, filters, time travel, views, mergers and awkward names."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as st

import lakewright as lw
from lakewright.errors import FilterError, OptionError, SchemaError
from lakewright.spark import SparkTable
from lakewright.spark.schema import spark_schema
from tests.spark.rows import arrow_rows, spark_rows
from tests.spark.tables import ORDERS, cow_table, real_table


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> SparkTable:
    return SparkTable.open(spark, real_table(ORDERS, tmp_path))


@pytest.mark.parametrize(
    "name",
    [
        "v6_mor_schema_on_read",
        pytest.param("v6_mor_updates_bucket", marks=pytest.mark.slow),
        "v8_mor_partial_update",
        pytest.param("v9_mor_schema_change_simple", marks=pytest.mark.slow),
        pytest.param("v9_mor_metadata_indexes", marks=pytest.mark.slow),
    ],
)
def test_real_tables_give_the_rows_of_a_scan(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    table = SparkTable.open(spark, real_table(name, tmp_path))
    frame = table.read()
    assert frame.schema == table.schema
    assert spark_rows(frame) == arrow_rows(table.table.scan().to_arrow())


@pytest.mark.parametrize(
    "asked",
    [
        {"columns": ["amount", "id"]},
        {"where": "amount > 5 and name like 'J%'"},
        {"columns": ["name"], "where": lw.col("region") == "south"},
        {"columns": ["id"], "where": "_hoodie_partition_path = 'south'"},
        {"mode": "read_optimized"},
        {"meta": False, "where": "amount is not null"},
        {"where": "ts > 99999999999999"},
    ],
    ids=str,
)
def test_a_read_gives_what_a_scan_with_the_same_words_gives(
    orders: SparkTable, asked: dict[str, object]
) -> None:
    wanted = orders.table.scan(**asked).to_arrow()  # type: ignore[arg-type]
    assert (wanted.num_rows > 0) == ("ts >" not in str(asked))
    frame = orders.read(**asked)  # type: ignore[arg-type]
    assert frame.columns == wanted.column_names
    assert spark_rows(frame) == arrow_rows(wanted)


def test_time_travel_reads_the_table_as_it_was(orders: SparkTable) -> None:
    first = orders.table.timeline.commits().completed().first()
    assert first is not None
    then = orders.read(as_of=first.requested_time)
    assert spark_rows(then) == arrow_rows(orders.table.scan(as_of=first.requested_time).to_arrow())
    assert spark_rows(then) != spark_rows(orders.read())


def test_a_plan_says_who_reads_what_and_why(orders: SparkTable) -> None:
    plan = orders.plan(where="amount > 0")
    text = str(plan)
    assert "in the JVM  2 slices" in text and "3 for log files to merge" in text
    told = plan.to_dict()["spark"]
    assert isinstance(told, dict) and told["reasons"] == {"log files to merge": 3}
    only_workers = SparkTable.open(orders.spark, orders.uri, jvm_scan=False)
    assert len(only_workers.plan().routing.workers) == 5
    assert spark_rows(only_workers.read()) == spark_rows(orders.read())


def test_a_view_is_known_to_sql_and_stays_on_its_snapshot(orders: SparkTable) -> None:
    orders.create_view("orders", columns=["id", "region", "amount", "pieces"])
    spark = orders.spark
    count = "select count(*) c, sum(pieces) f from orders"
    before = spark.sql(count).first()
    joined = spark.sql("select a.id from orders a join orders b on a.id = b.id")
    assert before is not None and joined.count() == before["c"] > 0
    timeline = Path(orders.uri.removeprefix("file://")) / ".hoodie"
    sorted(timeline.glob("*.deltacommit"))[-1].unlink()
    assert spark.sql(count).first() == before
    orders.create_view("orders")
    assert spark.sql(count).first() != before


def test_wrong_words_are_refused_on_the_driver(orders: SparkTable) -> None:
    with pytest.raises(OptionError, match="amont"):
        orders.read(columns=["amont"])
    with pytest.raises(FilterError):
        orders.read(where="amount = 'x'")


def test_a_merger_of_the_user_travels_to_the_workers(spark: SparkSession, tmp_path: Path) -> None:
    strategy = "6f7d64b4-7fb9-4f3b-9d7a-0a3a52c4f001"
    path = real_table("v8_mor_pending_compaction_complex", tmp_path)
    file = path / ".hoodie" / "hoodie.properties"
    kept = [
        line
        for line in file.read_text().splitlines()
        if not line.startswith(("hoodie.record.merge", "hoodie.compaction.payload"))
    ]
    kept += ["hoodie.record.merge.mode=CUSTOM", f"hoodie.record.merge.strategy.id={strategy}"]
    file.write_text("\n".join(kept) + "\n")

    @lw.merger(strategy=strategy)
    def keep_older(older: pa.RecordBatch, newer: pa.RecordBatch, ctx: object) -> lw.Merged:
        return lw.Merged(take=pa.array([int(lw.Take.OLDER)] * older.num_rows, pa.uint8()))

    wanted = lw.Table.open(path, mergers=[keep_older]).scan().to_arrow()
    table = SparkTable.open(spark, path, mergers=[keep_older])
    assert spark_rows(table.read()) == arrow_rows(wanted)
    with pytest.raises(PySparkException, match=strategy):
        SparkTable.open(spark, path).read().collect()


EVERY_TYPE = pa.schema(
    [
        ("id", pa.string()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("b", pa.bool_()),
        ("x", pa.binary()),
        ("c", pa.decimal128(38, 10)),
        ("small", pa.decimal128(5, 2)),
        ("day", pa.date32()),
        ("us", pa.timestamp("us", "UTC")),
        ("ms", pa.timestamp("ms", "UTC")),
        ("local", pa.timestamp("us")),
        ("local_ms", pa.timestamp("ms")),
        ("in", pa.struct([("a", pa.int32()), ("l", pa.list_(pa.string()))])),
        ("list", pa.list_(pa.struct([("q", pa.decimal128(5, 1)), ("t", pa.timestamp("us"))]))),
        ("map", pa.map_(pa.string(), pa.struct([("v", pa.float64())]))),
    ]
)
ONLY_WORKERS = pa.schema(
    [
        ("fixed", pa.binary(3)),
        ("clock", pa.time32("ms")),
        ("clock_us", pa.time64("us")),
        ("times", pa.list_(pa.time64("us"))),
    ]
)
VALUES = {
    "id": "ü",
    "i": -(2**31),
    "l": 2**63 - 1,
    "f": 0.1,
    "d": float("inf"),
    "b": True,
    "x": b"\x00\xff",
    "c": Decimal("-1234567890123456789012345678.0123456789"),
    "small": Decimal("-1.25"),
    "day": date(1200, 2, 29),
    "us": datetime(1500, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    "ms": datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
    "local": datetime(1, 1, 1),
    "local_ms": datetime(9999, 12, 31, 23, 59, 59, 999000),
    "in": {"a": None, "l": ["x", None]},
    "list": [{"q": Decimal("0.5"), "t": None}, None, {"q": None, "t": datetime(2024, 1, 1)}],
    "map": [("k", {"v": 1.5}), ("n", None)],
    "fixed": b"abc",
    "clock": time(23, 59, 59, 999000),
    "clock_us": time(0, 0, 0, 1),
    "times": [time(1), None],
}


@pytest.mark.parametrize("reader", [pytest.param("jvm", marks=pytest.mark.slow), "workers"])
def test_every_type_arrives_as_it_is(spark: SparkSession, reader: str, tmp_path: Path) -> None:
    schema = EVERY_TYPE
    if reader == "workers":
        schema = pa.schema([*EVERY_TYPE, *ONLY_WORKERS])
    values = [{n: VALUES[n] for n in schema.names}, dict.fromkeys(schema.names)]
    rows = pa.Table.from_pylist(values, schema)
    path = cow_table(tmp_path / "t", {"20240101000000000": {"": [rows]}}, schema)
    table = SparkTable.open(spark, path)
    assert len(table.plan().routing.jvm) == (reader == "jvm")
    wanted = arrow_rows(table.table.scan().to_arrow())
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        text = table.read().selectExpr("cast(us as long) s", "local", "day").first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert text is not None and text["local"] == VALUES["local"] and text["day"] == VALUES["day"]
    since_epoch = datetime(1500, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    assert text["s"] == since_epoch.total_seconds()
    assert spark_rows(table.read()) == wanted
    assert any("1500-01-01T00:00:00.000001" in row for row in wanted)


def test_spark_types_are_those_of_the_same_avro_schema() -> None:
    schema = spark_schema(pa.schema([*EVERY_TYPE, *ONLY_WORKERS]))
    kinds = {field.name: field.dataType for field in schema}
    assert kinds["clock"] == st.IntegerType() and kinds["clock_us"] == st.LongType()
    assert kinds["fixed"] == st.BinaryType() and kinds["local"] == st.TimestampNTZType()
    assert kinds["ms"] == st.TimestampType() and kinds["c"] == st.DecimalType(38, 10)
    assert kinds["in"] == st.StructType(
        [
            st.StructField("a", st.IntegerType()),
            st.StructField("l", st.ArrayType(st.StringType())),
        ]
    )
    with pytest.raises(SchemaError, match="wide"):
        spark_schema(pa.schema([("wide", pa.decimal256(50, 2))]))


def test_partitions_named_like_patterns_and_files_of_older_schemas_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.float64()), ("new", pa.string())])
    old = pa.table({"id": ["a"], "v": pa.array([0.1], pa.float32())})
    now = pa.table({"id": ["b"], "v": [0.5], "new": ["x"]})
    lacks = pa.table({"id": ["c"], "v": [1.5]})
    commits = {
        "20240101000000000": {"p={a,b}": [old], "p=[x]*?": [lacks]},
        "20240102000000000": {"p=100%25 of": [now], "p=[x]*?": [now]},
    }
    table = SparkTable.open(spark, cow_table(tmp_path / "t*{}", commits, schema))
    routing = table.plan().routing
    assert (len(routing.jvm), len(routing.workers)) == (3, 1)
    got = sorted((r["id"], r["v"], r["new"]) for r in table.read().collect())
    assert got == [("a", 0.1, None), ("b", 0.5, "x"), ("b", 0.5, "x"), ("c", 1.5, None)]
    assert table.read(columns=["id"], where="new is null").count() == 2


def test_a_file_that_is_gone_is_an_error_whatever_the_session_tolerates(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = pa.table({"id": ["a"], "v": [1.0]})
    commits = {"20240101000000000": {"p": [rows, rows]}}
    path = cow_table(tmp_path / "t", commits, rows.schema)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        frame = SparkTable.open(spark, path).read()
        sorted(path.glob("p/*.parquet"))[1].unlink()
        with pytest.raises((PySparkException, Py4JJavaError), match="does not exist"):
            frame.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_an_error_in_a_worker_names_the_file(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": ["a"], "v": [1.0]})
    commits = {"20240101000000000": {"p": [rows, rows]}}
    path = cow_table(tmp_path / "t", commits, rows.schema)
    broken = sorted(path.glob("p/*.parquet"))[1]
    broken.write_bytes(broken.read_bytes()[:-6] + b"\0" * 6)
    with pytest.raises(PySparkException, match=r"CorruptFileError.*00000001-"):
        SparkTable.open(spark, path).read().collect()
