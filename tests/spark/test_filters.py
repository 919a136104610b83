"""A filter selects in Spark what it selects in Arrow, for every type and every kind of filter."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakewright.expr import bind, evaluate, parse
from lakewright.spark.filters import column_of, spark_filter
from lakewright.spark.schema import spark_schema, to_wire

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int32()),
        pa.field("i", pa.int32()),
        pa.field("l", pa.int64()),
        pa.field("f", pa.float32()),
        pa.field("d", pa.float64()),
        pa.field("b", pa.bool_()),
        pa.field("s", pa.string()),
        pa.field("x", pa.binary()),
        pa.field("c", pa.decimal128(10, 2)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("at_ms", pa.timestamp("ms", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("clock", pa.time32("ms")),
        pa.field("od`d name", pa.int32()),
        pa.field("in", pa.struct([pa.field("a", pa.int32()), pa.field("s.t", pa.string())])),
    ]
)


def _row(n: int, **values: object) -> dict[str, object]:
    return dict.fromkeys(SCHEMA.names) | values | {"n": n}


def _moment(year: int, **more: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC).replace(**more)


ROWS = [
    _row(0),
    _row(1, i=1, l=1, f=0.1, d=0.1, b=True, s="a_b", x=b"\x00\xff", c=Decimal("1.25")),
    _row(2, i=-5, l=2**40, f=float("nan"), d=float("nan"), b=False, s="ab%\\c'", x=b"ab"),
    _row(3, i=2**31 - 1, l=-(2**63), f=-0.0, d=-0.0, s="ü\n", c=Decimal("-99999999.99")),
    _row(4, f=float("inf"), d=0.0, s="", day=date(1200, 2, 29), at=_moment(1500)),
    _row(5, day=date(2024, 3, 1), at=_moment(2024, microsecond=1), at_ms=_moment(2024)),
    _row(6, local=datetime(1, 1, 1), at=_moment(9999), clock=time(1, 2, 3)),
    _row(7, local=datetime(2024, 1, 1, 12), at=_moment(1), clock=time(23, 59)),
    {**_row(8, i=7), "od`d name": 7, "in": {"a": 1, "s.t": "x"}},
    {**_row(9), "in": {"a": None, "s.t": None}},
]

FILTERS = [
    "i = 1",
    "i != 1",
    "i > 0.5 and i <= 7",
    "not (i >= 1)",
    "i in (1, 7, 2147483647)",
    "i in (1, null)",
    "i not in (1, 7)",
    "i not in (1, null)",
    "i in (9999999999)",
    "not (i in (9999999999))",
    "i between -5 and 1 or l = 1099511627776",
    "l = -9223372036854775808",
    "l < 99999999999999999999",
    "i is null",
    "i is not null",
    "f = 0.1",
    "f > 0.1",
    "f >= 1e0",
    "d = 0.1",
    "d > 1e300",
    "d = 0",
    "d in (0.0, 0.1)",
    "d in (0.0, 0.1, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)",
    "d not in (0.0, 7.5)",
    "d not in (0.5, null)",
    "d != 0.1",
    "f >= 0.0",
    "f <= -0.0",
    "not (d > 0)",
    "b",
    "not b",
    "b = false",
    "s = 'a_b'",
    "s like 'a%'",
    "s like 'a\\_b'",
    "s like '%\\%\\\\c''%'",
    "s like 'ü_'",
    "not (s like 'a%')",
    "s > 'a'",
    "s in ('', 'a_b')",
    "x = X'00ff'",
    "x > X'6100'",
    "c = 1.25",
    "c < 1.255",
    "c <= -99999999.99",
    "c = 1.253",
    "day = '1200-02-29'",
    "day > DATE '1999-12-31'",
    "at = TIMESTAMP '2024-01-01 00:00:00.000001Z'",
    "at <= TIMESTAMP '1500-01-01 00:00:00Z'",
    "at < TIMESTAMP '2024-01-01 02:00:00+02:00'",
    "at > '9998-12-31'",
    "at_ms = '2024-01-01 00:00:00'",
    "at_ms < TIMESTAMP '2024-01-01 00:00:00.000001Z'",
    "local = TIMESTAMP '0001-01-01 00:00:00'",
    "local > '2024-01-01'",
    "clock >= TIME '01:02:03'",
    "clock < TIME '23:59:00'",
    "`od``d name` = 7",
    "`in`.a = 1",
    "`in`.`s.t` = 'x'",
    "`in`.a is null",
    "null",
    "i = null or i = 1",
    "not (i = 1 and s is null)",
]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return pa.Table.from_pylist(ROWS, SCHEMA)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", pytest.param("America/New_York", marks=pytest.mark.slow)])
def test_spark_passes_exactly_the_rows_that_arrow_passes(
    spark: SparkSession, rows: pa.Table, zone: str, tmp_path: Path
) -> None:
    wire = to_wire(SCHEMA)
    stored = pa.Table.from_batches([wire.apply(b) for b in rows.to_batches()], wire.schema)
    pq.write_table(stored, tmp_path / "rows.parquet")
    reader = spark.read.schema(spark_schema(SCHEMA)).option("datetimeRebaseMode", "CORRECTED")
    frame = reader.parquet(f"file:{tmp_path}/rows.parquet")
    bound = [bind(parse(text), SCHEMA) for text in FILTERS]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        passed = [spark_filter(f).alias(f"p{i}") for i, f in enumerate(bound)]
        answers = frame.select(column_of("n"), *passed).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    batch = rows.combine_chunks().to_batches()[0]
    for i, (text, filter_) in enumerate(zip(FILTERS, bound, strict=True)):
        wanted = [
            n for n, hit in zip(batch["n"], evaluate(filter_, batch), strict=True) if hit.as_py()
        ]
        got = sorted(answer["n"] for answer in answers if answer[f"p{i}"])
        assert got == [n.as_py() for n in wanted], text


@pytest.mark.slow
def test_statistics_and_dictionaries_of_files_lose_no_row(
    spark: SparkSession, rows: pa.Table, tmp_path: Path
) -> None:
    numbers = rows.select(["n", "f", "d"])
    pq.write_table(numbers, tmp_path / "rows.parquet", row_group_size=1)
    frame = spark.read.schema(spark_schema(numbers.schema)).parquet(f"file:{tmp_path}/rows.parquet")
    batch = numbers.combine_chunks().to_batches()[0]
    for text in FILTERS:
        if not text.removeprefix("not (").startswith(("f ", "d ")):
            continue
        bound = bind(parse(text), numbers.schema)
        wanted = batch.filter(evaluate(bound, batch))["n"].to_pylist()
        got = sorted(row["n"] for row in frame.filter(spark_filter(bound)).collect())
        assert got == wanted, text


def test_comparisons_are_pushed_down_into_the_files(
    spark: SparkSession, rows: pa.Table, tmp_path: Path
) -> None:
    plain = rows.select(["i", "s", "c", "day", "at"])
    pq.write_table(plain, tmp_path / "rows.parquet")
    frame = spark.read.schema(spark_schema(plain.schema)).parquet(f"file:{tmp_path}/rows.parquet")
    text = "i > 5 and s = 'a' and c < 3 and day > '2020-01-01' and at > '2020-01-01'"
    spark.conf.set("spark.sql.maxMetadataStringLength", "10000")
    filtered = frame.filter(spark_filter(bind(parse(text), plain.schema)))
    plan = filtered._jdf.queryExecution().toString()
    pushed = plan[plan.index("PushedFilters") :]
    for part in ("GreaterThan(i,5)", "EqualTo(s,a)", "LessThan(c,3", "GreaterThan(day,2020"):
        assert part in pushed
    assert "GreaterThan(at,2020" in pushed
