"""Every real table of the shared set gives through Spark exactly the rows that a scan gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakewright as lw
from lakewright.spark import SparkTable, register
from tests.fixtures import SHARED_ABSENT, SharedTable, shared_tables, unpack
from tests.spark.rows import arrow_rows, spark_rows

TABLES = [t for t in shared_tables() if not t.refused]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)]


@pytest.mark.parametrize("shared", TABLES, ids=lambda t: t.id)
def test_rows_are_those_of_a_scan(spark: SparkSession, shared: SharedTable, tmp_path: Path) -> None:
    path = unpack(shared, tmp_path)
    wanted = arrow_rows(lw.Table.open(path).scan().to_arrow())
    table = SparkTable.open(spark, path)
    frame = table.read()
    assert frame.schema == table.schema
    assert spark_rows(frame) == wanted
    if register(spark):
        assert spark_rows(spark.read.format("lakewright").load(str(path))) == wanted
