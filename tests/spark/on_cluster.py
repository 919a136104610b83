"""A program that reads a table on a cluster and says as JSON what it saw; run by `test_cluster`.

    python on_cluster.py MASTER WORKER_PYTHON TABLE FOLDER

Imports nothing of the tests, because a driver on a cluster does not have them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import lakewright as lw
from lakewright.spark import SparkTable, probe, session
from lakewright.spark.schema import to_wire

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "1g",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.heartbeatInterval": "1h",  # a machine may be busy with other things
    "spark.network.timeout": "2h",
}
KEY = "_hoodie_record_key"


def main(master: str, python: str, table: str, folder: str) -> None:
    """Read, filter, join, follow; print what was equal."""
    config = {**SETTINGS, "spark.pyspark.python": python, "spark.local.dir": f"{folder}/local"}
    spark = session("on_cluster", master=master, config=config)
    st = SparkTable.open(spark, table)
    plan = st.plan()
    wanted = st.table.scan().to_arrow()
    told = {
        "workers": [(r.python, r.location, r.missing) for r in probe(spark)],
        "executors": executors(spark),
        "slices": {"jvm": len(plan.routing.jvm), "workers": len(plan.routing.workers)},
        "rows": wanted.num_rows,
        "read": rows_of(st.read()) == rows(wanted),
        "filter": filtered(st),
        "join": joined(st) == wanted.num_rows,
        "changes": rows_of(st.changes()) == rows(st.table.changes().to_arrow()),
    }
    if hasattr(spark, "dataSource"):
        loaded = spark.read.format("lakewright").load(table)
        told["format"] = rows_of(loaded) == rows(wanted)
        told["stream"] = streamed(spark, table, folder) == rows(st.table.changes().to_arrow())
    spark.stop()
    sys.stdout.write(json.dumps(told))


def executors(spark: SparkSession) -> list[tuple[str, str]]:
    """Every executor's own folder, and where its Python found the package."""

    def seen(_: object) -> tuple[str, str]:
        import lakewright

        return str(Path.cwd()), str(Path(lakewright.__file__).absolute())

    return sorted(set(spark.sparkContext.parallelize(range(8), 8).map(seen).collect()))


def filtered(st: SparkTable) -> bool:
    """Whether a filter gives the same rows, and not all of them."""
    every = st.table.scan(columns=[KEY]).to_arrow()
    where = lw.col(KEY) <= sorted(every[KEY].to_pylist())[every.num_rows // 2]
    wanted = st.table.scan(where=where).to_arrow()
    return 0 < wanted.num_rows < every.num_rows and rows_of(st.read(where=where)) == rows(wanted)


def joined(st: SparkTable) -> int:
    """Rows of the table joined with its own keys, through a shuffle."""
    on = [KEY, "_hoodie_partition_path"]
    return st.read().hint("shuffle_hash").join(st.read(columns=on), on).count()


def streamed(spark: SparkSession, table: str, folder: str) -> list[str]:
    """What a stream over everything writes."""
    stream = spark.readStream.format("lakewright").load(table)
    writer = stream.writeStream.format("parquet").option("path", f"{folder}/out")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    return rows_of(spark.read.schema(stream.schema).parquet(f"{folder}/out"))


def rows_of(frame: DataFrame) -> list[str]:
    """The rows of a DataFrame as text, in order."""
    batches = [frame.toArrow()] if hasattr(frame, "toArrow") else frame._collect_as_arrow()
    return sorted(str(sorted(row.items())) for batch in batches for row in batch.to_pylist())


def rows(table: pa.Table) -> list[str]:
    """The rows of a scan as text, in order, in Spark's form."""
    wire = to_wire(table.schema)
    batches = [wire.apply(batch) for batch in table.to_batches()]
    return sorted(str(sorted(row.items())) for batch in batches for row in batch.to_pylist())


if __name__ == "__main__":
    Path(sys.argv[4]).mkdir(parents=True, exist_ok=True)
    main(*sys.argv[1:5])
