"""A process that makes tables when told to: on Spark, without it, by Hudi, or a plain copy.

`{"write": how, "sources": [...], "path": ..., "partition": field or null, "codec": name or null,
"sort": mode, "computed": bool}`; see `serving`. A request creates a table and bulk-inserts the rows
of Parquet files into it; a codec of null leaves the choice to the writer. On Spark the rows are a
bare scan of the files, or, computed, a frame that has to look at each of them and keeps them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

from serving import serve, started

KEY, ORDERING, NAME = "id", "ts", "events"
BATCH_ROWS = 65_536
CORES = 2
KEYGEN = "org.apache.hudi.keygen.{}KeyGenerator"
HUDI = {
    "hoodie.table.name": NAME,
    "hoodie.datasource.write.operation": "bulk_insert",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.datasource.write.precombine.field": ORDERING,
    "hoodie.write.table.version": "8",
    "hoodie.metadata.enable": "false",
}


def options(asked: dict[str, Any]) -> dict[str, str]:
    """What both engines are told, in Hudi's words."""
    chosen = {"hoodie.bulkinsert.sort.mode": asked["sort"]}
    if asked["codec"]:
        chosen["hoodie.parquet.compression.codec"] = asked["codec"]
    return chosen


def choices(asked: dict[str, Any]) -> dict[str, Any]:
    """What our tables are created with."""
    partition = [asked["partition"]] if asked["partition"] else []
    return {"name": NAME, "key": [KEY], "ordering": [ORDERING], "partition": partition}


def frame(spark: Callable[[], Any], asked: dict[str, Any]) -> Any:
    """The rows on Spark, for ours and for Hudi."""
    rows = spark().read.parquet(*asked["sources"])
    return rows.where(f"length({KEY}) > 0") if asked["computed"] else rows


def by_spark(spark: Callable[[], Any], asked: dict[str, Any]) -> None:
    """Ours on Spark."""
    from lakewright.spark import SparkTable

    rows = frame(spark, asked)
    table = SparkTable.create(spark(), asked["path"], schema=rows.schema, **choices(asked))
    table.bulk_insert(rows, options=options(asked))


def by_arrow(asked: dict[str, Any]) -> None:
    """Ours in this process, from a stream."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from lakewright import Table

    def batches() -> Iterator[pa.RecordBatch]:
        for source in asked["sources"]:
            with pq.ParquetFile(source) as file:
                yield from file.iter_batches(BATCH_ROWS)

    schema = pq.read_schema(asked["sources"][0])
    table = Table.create(asked["path"], schema=schema, **choices(asked))
    stream = pa.RecordBatchReader.from_batches(schema, batches())
    table.bulk_insert(stream, options=options(asked))


def by_hudi(spark: Callable[[], Any], asked: dict[str, Any]) -> None:
    """Real Hudi."""
    keys = {"hoodie.datasource.write.keygenerator.class": KEYGEN.format("Nonpartitioned")}
    if asked["partition"]:
        keys = {
            "hoodie.datasource.write.keygenerator.class": KEYGEN.format("Simple"),
            "hoodie.datasource.write.partitionpath.field": asked["partition"],
        }
    writer = frame(spark, asked).write.format("hudi").mode("append")
    writer.options(**HUDI, **keys, **options(asked)).save(asked["path"])


def by_copy(asked: dict[str, Any]) -> None:
    """The floor: the same rows as plain Parquet files, one for each core, by pyarrow alone."""
    import pyarrow.parquet as pq

    folder = Path(asked["path"])
    folder.mkdir()

    def copy(part: int) -> None:
        schema = pq.read_schema(asked["sources"][0])
        target = folder / f"{part}.parquet"
        with pq.ParquetWriter(target, schema, compression=asked["codec"] or "snappy") as writer:
            for source in asked["sources"]:
                file = pq.ParquetFile(source)
                for group in range(part, file.num_row_groups, CORES):
                    writer.write_table(file.read_row_group(group, use_threads=False))

    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(copy, range(CORES)))


def ready(work: Path, jar: str) -> Callable[[dict[str, Any]], Any]:
    """What answers requests; Spark starts with the first that needs it."""
    spark = cache(partial(started, work, jar))
    writers: dict[str, Callable[[dict[str, Any]], None]] = {
        "spark": partial(by_spark, spark),
        "hudi": partial(by_hudi, spark),
        "arrow": by_arrow,
        "copy": by_copy,
    }
    return lambda asked: writers[asked["write"]](asked)


if __name__ == "__main__":
    serve(ready)
