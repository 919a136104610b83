"""A Spark process that reads tables when told to, so that every contender is warm when measured.

Runs in the environment of its contenders (real Hudi has one of its own), so it imports nothing of
the project but the product itself, where that is measured:
`spark_reader.py <work folder> <jar or ->`. Requests are JSON lines on stdin, answers JSON lines on
stdout: `{"read": how, "path": ..., "columns": [...] or null, "do": "noop" | "check" | "plan"}` is
answered with
`{"seconds": ..., "result": ...}`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

CONFIG = {
    "spark.driver.memory": "3g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.network.timeout": "7200s",
    "spark.executor.heartbeatInterval": "3600s",
}
HUDI = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}


def started(work: Path, jar: str) -> SparkSession:
    """A session of two cores; with lakewright's own settings unless it is Hudi's."""
    config = {**CONFIG, "spark.local.dir": str(work), "spark.sql.warehouse.dir": str(work / "w")}
    if jar == "-":
        from lakewright.spark import session

        return session("bench", master="local[2]", config=config)
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for key, value in {**config, **HUDI, "spark.driver.extraClassPath": jar}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def frame(spark: SparkSession, how: str, path: str, columns: list[str] | None) -> DataFrame:
    """What one contender reads."""
    if how == "ours":
        from lakewright.spark import SparkTable

        return SparkTable.open(spark, path).read(columns=columns)
    if how == "source":
        reader = spark.read.format("lakewright")
        return (reader.option("columns", ",".join(columns)) if columns else reader).load(path)
    if how == "parquet":
        files = sorted(str(f) for f in Path(path).rglob("*.parquet"))
        read = spark.read.parquet(*files)
    else:
        read = spark.read.format("hudi").load(path)
    return read.select(*columns) if columns else read


def noop(read: DataFrame) -> None:
    """Read every row and throw it away."""
    read.write.format("noop").mode("overwrite").save()


def check(read: DataFrame) -> str:
    """Row count and two order-free sums over the hashes of all columns as text."""
    names = ", ".join(f"coalesce(cast(`{c}` as string), '~')" for c in sorted(read.columns))
    hashed = read.selectExpr(f"xxhash64({names}) as h")
    row = hashed.selectExpr("count(*)", "bit_xor(h)", "sum(pmod(h, 1000003))").collect()[0]
    return ":".join(str(value) for value in row)


def plan(read: DataFrame) -> int:
    """Plan the read to its last task, without running it; the number of tasks."""
    return int(read._jdf.queryExecution().toRdd().getNumPartitions())  # noqa: SLF001


ACTIONS: dict[str, Callable[[DataFrame], Any]] = {"noop": noop, "check": check, "plan": plan}


def main() -> None:
    """Serve requests; what Spark prints goes to the log."""
    work, jar = Path(sys.argv[1]), sys.argv[2]
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    log = os.open(work / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    spark = started(work, jar)
    pipe.write(json.dumps({"seconds": 0.0, "result": spark.version}) + "\n")
    pipe.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        began = time.perf_counter()
        read = frame(spark, asked["read"], asked["path"], asked["columns"])
        result = ACTIONS[asked["do"]](read)
        seconds = time.perf_counter() - began
        pipe.write(json.dumps({"seconds": seconds, "result": result}) + "\n")
        pipe.flush()
    spark.stop()


if __name__ == "__main__":
    main()
