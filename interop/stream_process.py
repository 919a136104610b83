"""The process that streams a table for `interop.stream_proof`, to be killed at any moment.

Runs inside `.venv`: `-m interop.stream_process <table> <work folder> <life> run|drain`. Two
queries read the table: `each` takes one instant per batch, `merged` what has come together. Both
write every batch into a folder named after the batch and this life, and keep their place in a
checkpoint. Prints `started` when both run. `drain` reads what is there and ends; `run` ends only
when a query fails.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from lakewright.spark import session

QUERIES = {"each": {"max_instants_per_batch": "1"}, "merged": {}}
TRIGGERS = {"each": "100 milliseconds", "merged": "4 seconds"}
COLUMNS = "_hoodie_commit_time,_hoodie_record_key,id,region,ts,generation,filler"
LINGER_SECONDS = 0.4
"""Between writing a batch and noting it as done, so that some deaths fall there."""
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # A machine that is busy must not look like a lost executor.
    "spark.network.timeout": "7200s",
    "spark.executor.heartbeatInterval": "3600s",
}


def start(
    spark: SparkSession, name: str, table: str, work: Path, life: str, *, drain: bool
) -> StreamingQuery:
    """Start one query; a batch that is read again is written again, beside the first time."""

    def keep(frame: DataFrame, batch: int) -> None:
        frame.coalesce(1).write.parquet(str(work / name / "batches" / str(batch) / life))
        time.sleep(LINGER_SECONDS)

    source = spark.readStream.format("lakewright").option("columns", COLUMNS)
    writer = source.options(**QUERIES[name]).load(table).writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(work / name / "checkpoint"))
    if drain:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=TRIGGERS[name]).start()


def main() -> None:
    """Run both queries."""
    table, work, life, what = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    config = {**CONFIG, "spark.local.dir": str(work / "spark")}
    spark = session("stream", master="local[2]", config=config)
    queries = [start(spark, q, table, work, life, drain=what == "drain") for q in QUERIES]
    print("started", flush=True)
    if what == "drain":
        for query in queries:
            query.awaitTermination()
    else:
        spark.streams.awaitAnyTermination()
    spark.stop()


if __name__ == "__main__":
    main()
