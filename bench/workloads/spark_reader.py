"""A Spark process that reads tables when told to, so that every contender is warm when measured.

`{"read": how, "path": ..., "columns": [...] or null, "do": "noop" | "check" | "plan"}`; see
`serving`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from serving import serve, started


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


def ready(work: Path, jar: str) -> Callable[[dict[str, Any]], Any]:
    """Start Spark; what answers requests then."""
    spark = started(work, jar)

    def answer(asked: dict[str, Any]) -> Any:
        read = frame(spark, asked["read"], asked["path"], asked["columns"])
        return ACTIONS[asked["do"]](read)

    return answer


if __name__ == "__main__":
    serve(ready)
