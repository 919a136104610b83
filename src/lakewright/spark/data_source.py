"""The format `lakewright` of Spark 4: tables through `spark.read`, SQL and `spark.readStream`.

    spark.read.format("lakewright").option("columns", "id,ts").option("where", "ts > 5").load(uri)
    CREATE TEMPORARY VIEW trips USING lakewright OPTIONS (path '/data/trips')

Spark plans a Python data source in a process of its own and gives it no column pruning, so the
columns are an option; filters come from the option `where` and, from Spark 4.1 on, from the query
too. Every slice is one task in a Python worker. `SparkTable` reads slices without logs in the JVM
and is the faster way; this is the convenient one.

A DataFrame reads the snapshot that is the latest when Spark plans it, so one that is used again
later may see later commits; `as_of` pins it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lakewright.engine.scan import Scan
from lakewright.errors import SchemaError
from lakewright.spark.pushdown import pushed_filter
from lakewright.spark.request import ReadRequest
from lakewright.spark.schema import spark_schema
from lakewright.spark.tasks import ReadContext, packed_context, packed_task, read_slice

__all__ = ["LakewrightDataSource", "LakewrightReader"]


class LakewrightDataSource(DataSource):
    """Hudi tables for `spark.read.format("lakewright")`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "lakewright"

    def schema(self) -> StructType:
        """The columns that will be read."""
        request = ReadRequest.parse(self.options)
        snapshot = request.table().snapshot(request.as_of)
        names = snapshot.schema.project(request.columns, meta=request.meta)
        return spark_schema(pa.schema([snapshot.schema.arrow.field(n) for n in names]))

    def reader(self, schema: StructType) -> LakewrightReader:
        """A reader of the latest snapshot, or of the one that `as_of` names."""
        return LakewrightReader(ReadRequest.parse(self.options), schema)


class LakewrightReader(DataSourceReader):
    """Reads one pinned snapshot, slice by slice.

    What it plans with stays in the planning process; workers get packed slices.
    """

    def __init__(self, request: ReadRequest, schema: StructType) -> None:
        self._storage = request.storage
        self._scan: Scan | None = request.table().scan(
            columns=schema.names, where=request.where, as_of=request.as_of, mode=request.mode
        )
        _check_types(schema, self._scan)
        self._context = b""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Skip what Spark's filters exclude; Spark applies them again to the rest."""
        scan = self._planning()
        pushed = pushed_filter(filters, scan.snapshot.schema.arrow)
        if pushed is not None:
            where = pushed if scan.where is None else scan.where & pushed
            self._scan = replace(scan, where=where, _plan=[])
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per slice; Spark makes one task of each."""
        return [InputPartition(packed_task(task)) for task in self._planning().plan().tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one slice. Runs in a worker."""
        if partition.value is None:  # Spark asks once even if there is nothing to read
            return iter(())
        return read_slice(self._context, partition.value)

    def __getstate__(self) -> dict[str, Any]:
        context = packed_context(ReadContext.of(self._planning(), self._storage))
        return {"_storage": self._storage, "_scan": None, "_context": context}

    def _planning(self) -> Scan:
        assert self._scan is not None, "workers do not plan"
        return self._scan


def _check_types(schema: StructType, scan: Scan) -> None:
    for field, known in zip(schema, spark_schema(scan.schema), strict=True):
        if field.dataType != known.dataType:
            raise SchemaError(
                f"Column {field.name} was asked for as {field.dataType.simpleString()}, "
                f"but is {known.dataType.simpleString()}.",
                hint="Leave the schema out and cast the column afterwards. If none was given, the "
                "table's schema has just changed: read it again.",
                context={"column": field.name, "table": scan.snapshot.storage.uri},
            )
