"""Rows of a DataFrame as Arrow, whatever Spark it comes from."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from lakewright.spark.schema import to_wire
from tests.rows import canonical, table_rows


def spark_rows(frame: DataFrame) -> list[str]:
    """The rows of a DataFrame, as canonical text."""
    if hasattr(frame, "toArrow"):
        return canonical(table_rows(frame.toArrow()))
    batches = frame._collect_as_arrow()
    return canonical([row for b in batches for row in table_rows(pa.Table.from_batches([b]))])


def arrow_rows(table: pa.Table) -> list[str]:
    """The rows of an Arrow table as Spark shows them, as canonical text."""
    wire = to_wire(table.schema)
    batches = [wire.apply(batch) for batch in table.to_batches()]
    return canonical(table_rows(pa.Table.from_batches(batches, wire.schema)))
