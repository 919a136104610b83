"""Services with writes on Spark: compaction after a commit is done by tasks of the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakewright.runtime import Event
from lakewright.spark import SparkTable
from lakewright.spark.compaction_tasks import SparkCompactor

COLUMNS = "id string, ts bigint, v bigint"
INLINE = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}


def rows(spark: SparkSession, *values: tuple[str, int, int]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS).coalesce(1)


def test_logs_are_compacted_by_tasks_after_the_commit_that_makes_it_due(
    spark: SparkSession, tmp_path: Path, monkeypatch: Any
) -> None:
    compacted: list[int] = []
    by_tasks = SparkCompactor.__call__

    def counted(self: SparkCompactor, access: Any, work: Any) -> Any:
        compacted.append(len(work.slices))
        return by_tasks(self, access, work)

    monkeypatch.setattr(SparkCompactor, "__call__", counted)
    first = rows(spark, ("a", 1, 1), ("b", 1, 1))
    made = SparkTable.create(
        spark, tmp_path / "t", schema=first.schema, type="mor", key=["id"], ordering=["ts"]
    )
    events: list[Event] = []
    table = SparkTable.open(spark, made.uri, on_event=events.append)
    assert table.upsert(first, options=INLINE).services == ()
    result = table.upsert(rows(spark, ("a", 2, 2), ("b", 0, 0)), options=INLINE)
    assert [did.split()[0] for did in result.services] == ["compaction"]
    assert result.warnings == () and compacted == [1]
    found = table.read(mode="read_optimized", columns=["id", "v"]).collect()
    assert sorted((row.id, row.v) for row in found) == [("a", 2), ("b", 1)]
    assert table.health().healthy
    assert [o.did for o in table.services.run()] == [(), (), ()]
