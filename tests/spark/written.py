"""Tables that tests write from DataFrames, and what is in them afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakewright.spark import SparkTable
from tests.spark.rows import arrow_rows

EVERY_TYPE = """
    SELECT concat('k', id) AS id, concat('c', id % 3) AS city, id AS big, cast(id AS int) AS small,
        cast(id AS smallint) AS tiny, id % 2 = 0 AS flag, id / 3 AS real,
        cast(id / 7 AS float) AS single, cast(id / 100 AS decimal(10, 2)) AS money,
        date_add(date'1999-12-31', cast(id AS int)) AS day,
        timestamp_micros(id * 86399999999 - 7) AS at,
        to_timestamp_ntz(concat('2001-02-03 04:05:', lpad(id, 2, '0'), '.000007')) AS local,
        cast(concat('é', id) AS binary) AS raw,
        if(id % 5 = 0, null, concat('日', id)) AS word,
        array(id, null, -id) AS numbers,
        named_struct('x', id, 'inner', named_struct('at', timestamp_micros(id))) AS nested,
        map(concat('m', id), named_struct('y', cast(id AS double))) AS pairs
    FROM range(0, 60, 1, 3)
"""


def new_table(spark: SparkSession, path: Path, rows: DataFrame, **choices: Any) -> SparkTable:
    chosen: dict[str, Any] = {"key": ["id"], "partition": ["city"], **choices}
    return SparkTable.create(spark, path, schema=rows.schema, **chosen)


def data(st: SparkTable) -> list[str]:
    """The rows of the table without meta columns, as lakewright reads them."""
    return arrow_rows(st.table.scan(meta=False).to_arrow())


def keys(st: SparkTable) -> list[str]:
    return sorted(st.table.scan(columns=["_hoodie_record_key"]).to_arrow()[0].to_pylist())


def state(st: SparkTable) -> tuple[list[str], list[Path], int]:
    """Keys, data files and pending instants: what a refused write must leave as it was."""
    path = Path(st.uri.removeprefix("file:"))
    written = sorted(f for f in path.rglob("*.parquet*") if ".hoodie" not in f.parts)
    return keys(st), written, len(st.table.timeline.pending().instants)


def files(st: SparkTable, *columns: str) -> list[list[tuple[Any, ...]]]:
    """The rows of each file in order, files ordered by their first row."""
    names = ["_hoodie_file_name", "_hoodie_partition_path", *columns]
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in st.table.scan(columns=names).to_arrow().to_pylist():
        found.setdefault(row[names[0]], []).append(tuple(row[name] for name in names[1:]))
    return sorted(found.values(), key=lambda rows: rows[0])


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)
