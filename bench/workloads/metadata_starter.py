"""A process that begins metadata tables when told to: ours alone, or Hudi with a write of one row.

The requests are those of `keyed_writer`; see `serving`. Bloom filters are begun with the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from keyed_writer import by_hudi
from serving import serve, started


def by_arrow(asked: dict[str, Any]) -> None:
    """Ours in this process."""
    from lakewright import Table

    Table.open(asked["path"]).metadata.build("column_stats", "bloom_filters", "record_index")


def ready(work: Path, jar: str) -> Callable[[dict[str, Any]], Any]:
    """What answers requests; Spark starts with the first that needs it."""
    spark = cache(partial(started, work, jar))
    writers: dict[str, Callable[[dict[str, Any]], None]] = {
        "hudi": partial(by_hudi, spark),
        "arrow": by_arrow,
    }
    return lambda asked: writers[asked["write"]](asked)


if __name__ == "__main__":
    serve(ready)
