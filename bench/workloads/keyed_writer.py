"""A process that changes tables by key when told to: on Spark, without it, by Hudi, or deltalake.

`{"write": how, "verb": "upsert" | "delete", "source": Parquet file, "path": table, "codec": name}`;
see `serving`. A request changes a table that is there; with `"indexes": true` in it the metadata
table is on, with statistics of columns and a record index; `"more"` are further options of Hudi's.
Ours answer how long they had the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from serving import serve, started

KEY, ORDERING, NAME = "id", "ts", "events"
KEYGEN = "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
HUDI = {
    "hoodie.table.name": NAME,
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.datasource.write.precombine.field": ORDERING,
    "hoodie.datasource.write.keygenerator.class": KEYGEN,
    "hoodie.write.table.version": "8",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.clean.automatic": "false",
}


def options(asked: dict[str, Any]) -> dict[str, str]:
    """What both engines are told, in Hudi's words."""
    chosen = {
        "hoodie.index.type": asked.get("index", "SIMPLE"),
        "hoodie.parquet.compression.codec": asked["codec"],
        "hoodie.metadata.enable": str(bool(asked.get("indexes"))).lower(),
    }
    if asked.get("indexes"):
        chosen["hoodie.metadata.index.column.stats.enable"] = "true"
        chosen["hoodie.metadata.record.index.enable"] = "true"
    return chosen | asked.get("more", {})


def by_spark(spark: Callable[[], Any], asked: dict[str, Any]) -> int | None:
    """Ours on Spark."""
    from lakewright.spark import SparkTable

    rows = spark().read.parquet(asked["source"])
    table = SparkTable.open(spark(), asked["path"])
    change = table.delete if asked["verb"] == "delete" else table.upsert
    return change(rows, options=options(asked)).lock_held_ms


def by_arrow(asked: dict[str, Any]) -> int | None:
    """Ours in this process."""
    import pyarrow.parquet as pq

    from lakewright import Table

    table = Table.open(asked["path"])
    change = table.delete if asked["verb"] == "delete" else table.upsert
    return change(pq.read_table(asked["source"]), options=options(asked)).lock_held_ms


def by_hudi(spark: Callable[[], Any], asked: dict[str, Any]) -> None:
    """Real Hudi."""
    writer = spark().read.parquet(asked["source"]).write.format("hudi").mode("append")
    kind = {"mor": "MERGE_ON_READ", "cow": "COPY_ON_WRITE"}[asked["type"]]
    chosen = {
        "hoodie.datasource.write.operation": asked["verb"],
        "hoodie.datasource.write.table.type": kind,
    }
    writer.options(**HUDI, **chosen, **options(asked)).save(asked["path"])


def by_deltalake(asked: dict[str, Any]) -> None:
    """The same merge into a Delta table."""
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    rows = pq.read_table(asked["source"])
    merger = DeltaTable(asked["path"]).merge(
        rows, predicate=f"s.{KEY} = t.{KEY}", source_alias="s", target_alias="t"
    )
    if asked["verb"] == "delete":
        merger.when_matched_delete().execute()
    else:
        newer = f"s.{ORDERING} >= t.{ORDERING}"
        merger.when_matched_update_all(newer).when_not_matched_insert_all().execute()


def ready(work: Path, jar: str) -> Callable[[dict[str, Any]], Any]:
    """What answers requests; Spark starts with the first that needs it."""
    spark = cache(partial(started, work, jar))
    writers: dict[str, Callable[[dict[str, Any]], int | None]] = {
        "spark": partial(by_spark, spark),
        "hudi": partial(by_hudi, spark),
        "arrow": by_arrow,
        "deltalake": by_deltalake,
    }
    return lambda asked: writers[asked["write"]](asked)


if __name__ == "__main__":
    serve(ready)
