"""The format `lakewright` of Spark 4: tables through `spark.read`, SQL and `spark.readStream`.

    spark.read.format("lakewright").option("columns", "id,ts").option("where", "ts > 5").load(uri)
    CREATE TEMPORARY VIEW trips USING lakewright OPTIONS (path '/data/trips')

Spark plans a Python data source in a process of its own and gives it no column pruning, so the
columns are an option, and so is the filter. Every slice is one task in a Python worker.
`SparkTable` reads slices without logs in the JVM and is the faster way; this is the convenient one.

Filters of the query are left to Spark, although it offers them from 4.1 on: it keeps what one
filter made of a source for every other use of the same DataFrame or view, up to 4.3 at least, so
that two filters on one view would both give the rows of the second.

A DataFrame reads the snapshot that is the latest when Spark first plans it; `as_of` pins it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from lakewright.engine.changes import Changes
from lakewright.engine.scan import Scan
from lakewright.spark.request import ReadRequest
from lakewright.spark.schema import check_types, spark_schema
from lakewright.spark.stream import LakewrightStreamReader
from lakewright.spark.tasks import ReadContext, change_work, pack, read_packed, scan_context

__all__ = ["LakewrightDataSource", "LakewrightReader"]


class LakewrightDataSource(DataSource):
    """Hudi tables for `spark.read.format("lakewright")`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "lakewright"

    def schema(self) -> StructType:
        """The columns that will be read."""
        return spark_schema(_asked(ReadRequest.parse(self.options), None).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of one pinned snapshot, or of a range of changes."""
        return LakewrightReader(ReadRequest.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of changes as they are committed."""
        return LakewrightStreamReader(ReadRequest.parse(self.options), schema)


class LakewrightReader(DataSourceReader):
    """Reads what one request asks for, task by task.

    What it plans with stays in the planning process; workers get packed tasks.
    """

    def __init__(self, request: ReadRequest, schema: StructType) -> None:
        self._request = request
        self._planned: Scan | Changes | None = _asked(request, schema.names)
        check_types(schema, self._planned.schema)
        self._context = b""
        self._work: tuple[ReadContext, Sequence[object]] | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per task; Spark asks for it after it has pickled the reader."""
        return [InputPartition(pack(task)) for task in self._chosen()[1]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task. Runs in a worker."""
        if partition.value is None:  # Spark asks once even if there is nothing to read
            return iter(())
        return read_packed(self._context, partition.value)

    def __getstate__(self) -> dict[str, Any]:
        context = pack(self._chosen()[0])
        return {"_request": self._request, "_planned": None, "_context": context, "_work": None}

    def _chosen(self) -> tuple[ReadContext, Sequence[object]]:
        planned, storage = self._planned, self._request.storage
        assert planned is not None, "workers do not plan"
        if self._work is None:
            if isinstance(planned, Changes):
                self._work = change_work(planned, storage)
            else:
                self._work = scan_context(planned, storage), planned.plan().tasks
        return self._work


def _asked(request: ReadRequest, columns: Sequence[str] | None) -> Scan | Changes:
    table, names = request.table(), columns or request.columns
    if request.changes is None:
        return request.scan(table, names)
    return request.changes_of(table, names, request.since, request.until)
