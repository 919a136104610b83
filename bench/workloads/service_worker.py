"""A process that runs table services when told to: on Spark, without it, by Hudi, or a plain copy.

`{"do": service, "by": how, "path": table, ...}`; see `serving`. The answer to a clean is how many
seconds it took until its plan was on the timeline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

from serving import serve, started

CORES = 2
KEPT = {"min": "20", "max": "30", "clean": "10"}
"""Commits that archiving leaves, is begun at, and that cleaning would retain."""
HUDI = {
    "hoodie.metadata.enable": "false",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}
ORDERED = {
    # Without these Hudi 1.0.2 forgets that the table goes by event time.
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
}
numbers = count()


def compaction(asked: dict[str, Any]) -> dict[str, str]:
    """What both engines are told, in Hudi's words."""
    return {
        "hoodie.compact.inline.max.delta.commits": "1",
        "hoodie.parquet.compression.codec": asked["codec"],
    }


def cleaning(asked: dict[str, Any]) -> dict[str, str]:
    """The same for cleaning."""
    return {"hoodie.clean.commits.retained": asked["retained"]}


def planned_after(path: str, began: float) -> float:
    """When the plan of the newest clean was there, in seconds from the beginning."""
    plans = Path(path, ".hoodie").rglob("*.clean.requested")
    return round(max(plan.stat().st_mtime for plan in plans) - began, 3)


# ---- ours ------------------------------------------------------------------------------------


def ours(spark: Callable[[], Any] | None, asked: dict[str, Any]) -> Any:
    """Ours, on Spark or in this process."""
    if spark is None:
        from lakewright import Table

        services = Table.open(asked["path"]).services
    else:
        from lakewright.spark import SparkTable

        services = SparkTable.open(spark(), asked["path"]).services
    began = time.time()
    if asked["do"] == "compact":
        services.compaction.run(compaction(asked))
    elif asked["do"] == "clean":
        services.clean.run(cleaning(asked))
        return planned_after(asked["path"], began)
    else:
        kept = {"hoodie.keep.min.commits": KEPT["min"], "hoodie.keep.max.commits": KEPT["max"]}
        services.archive.run({**kept, "hoodie.clean.commits.retained": KEPT["clean"]})
    return None


# ---- others ----------------------------------------------------------------------------------


def hudi(spark: Callable[[], Any], asked: dict[str, Any]) -> Any:
    """Real Hudi."""
    path = asked["path"]
    told = {**HUDI, "hoodie.write.table.version": str(asked["version"])}
    began = time.time()
    if asked["do"] == "compact":
        options = listed({**told, **ORDERED, **compaction(asked)})
        spark().sql(
            f"call run_compaction(op => 'scheduleAndExecute', path => '{path}', "
            f"options => '{options}')"
        ).collect()
    elif asked["do"] == "clean":
        name = f"cleaned_{next(numbers)}"
        spark().sql(f"create table {name} using hudi location '{path}'")
        older = {"hoodie.cleaner.commits.retained": asked["retained"]}  # its name until 0.15
        options = listed({**told, **cleaning(asked), **older})
        spark().sql(f"call run_clean(table => '{name}', options => '{options}')").collect()
        return planned_after(path, began)
    else:
        spark().sql(
            f"call archive_commits(path => '{path}', min_commits => {KEPT['min']}, "
            f"max_commits => {KEPT['max']}, retain_commits => {KEPT['clean']}, "
            "enable_metadata => false)"
        ).collect()
    return None


def listed(options: dict[str, str]) -> str:
    """Options as procedures take them."""
    return ",".join(f"{key}={value}" for key, value in options.items())


def copy(asked: dict[str, Any]) -> None:
    """The floor: the base files of a table read and written by pyarrow alone, two at a time."""
    import pyarrow.parquet as pq

    def write(path: Path) -> None:
        file = pq.ParquetFile(path)
        target = path.with_suffix(".copied")
        group = file.metadata.row_group(0)
        columns = [group.column(i) for i in range(group.num_columns)]
        dictionary = [c.path_in_schema for c in columns if c.has_dictionary_page]
        with pq.ParquetWriter(
            target,
            file.schema_arrow,
            compression=asked["codec"],
            use_dictionary=dictionary if asked["dictionary"] == "same" else True,
        ) as writer:
            for number in range(file.num_row_groups):
                writer.write_table(file.read_row_group(number, use_threads=False))

    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(write, sorted(Path(asked["path"]).glob("*.parquet"))))


def ready(work: Path, jar: str) -> Callable[[dict[str, Any]], Any]:
    """What answers requests; Spark starts with the first that needs it."""
    spark = cache(partial(started, work, jar))
    workers: dict[str, Callable[[dict[str, Any]], Any]] = {
        "spark": partial(ours, spark),
        "arrow": partial(ours, None),
        "hudi": partial(hudi, spark),
        "copy": copy,
    }
    return lambda asked: workers[asked["by"]](asked)


if __name__ == "__main__":
    serve(ready)
