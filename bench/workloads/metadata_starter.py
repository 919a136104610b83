"""A process that begins metadata tables when told to: ours alone, or Hudi with a write of one row.

The requests are those of `keyed_writer`; see `serving`. With `"indexes": true` all indexes begin:
those of `keyed_writer`, bloom filters, and a secondary index on the column `"secondary"`, which
Hudi makes by a statement after its write.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from keyed_writer import by_hudi, options
from serving import serve, started

NAME = "begun"
FILTERS = {"hoodie.metadata.index.bloom.filter.enable": "true"}


def by_arrow(asked: dict[str, Any]) -> None:
    """Ours in this process."""
    from lakewright import Table

    Table.open(asked["path"]).metadata.build(
        "column_stats", "bloom_filters", "record_index", secondary={NAME: asked["secondary"]}
    )


def by_sql(spark: Callable[[], Any], asked: dict[str, Any]) -> None:
    """Hudi's write, and its statement."""
    if not asked["indexes"]:
        by_hudi(spark, asked)
        return
    every = {**asked, "more": FILTERS}
    by_hudi(spark, every)
    for option, value in options(every).items():
        spark().conf.set(option, value)
    spark().sql(f"drop table if exists {NAME}")
    spark().sql(f"create table {NAME} using hudi location '{asked['path']}'")
    spark().sql(f"create index {NAME} on {NAME} ({asked['secondary']})")


def ready(work: Path, jar: str) -> Callable[[dict[str, Any]], Any]:
    """What answers requests; Spark starts with the first that needs it."""
    spark = cache(partial(started, work, jar))
    writers: dict[str, Callable[[dict[str, Any]], None]] = {
        "hudi": partial(by_sql, spark),
        "arrow": by_arrow,
    }
    return lambda asked: writers[asked["write"]](asked)


if __name__ == "__main__":
    serve(ready)
