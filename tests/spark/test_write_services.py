"""Services with writes on Spark: who compacts after a commit, and that it makes no difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakewright.runtime import Event
from lakewright.spark import SparkTable, compaction_tasks

COLUMNS = "id string, ts bigint, v bigint"
INLINE = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}


def rows(spark: SparkSession, *values: tuple[str, int, int]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS).coalesce(1)


@pytest.mark.parametrize("here_bytes", [-1, 1 << 30], ids=["by tasks", "by the driver"])
def test_logs_are_compacted_after_the_commit_that_makes_it_due(
    spark: SparkSession, tmp_path: Path, monkeypatch: Any, here_bytes: int
) -> None:
    tasks: list[int] = []
    run_readers = compaction_tasks.run_readers

    def counted(access: Any, session: SparkSession, work: Any, number: int) -> Any:
        tasks.append(number)
        return run_readers(access, session, work, number)

    monkeypatch.setattr(compaction_tasks, "run_readers", counted)
    monkeypatch.setattr(compaction_tasks, "HERE_BYTES", here_bytes)
    first = rows(spark, ("a", 1, 1), ("b", 1, 1))
    made = SparkTable.create(
        spark, tmp_path / "t", schema=first.schema, type="mor", key=["id"], ordering=["ts"]
    )
    events: list[Event] = []
    table = SparkTable.open(spark, made.uri, on_event=events.append)
    assert table.upsert(first, options=INLINE).services == ()
    result = table.upsert(rows(spark, ("a", 2, 2), ("b", 0, 0)), options=INLINE)
    assert [did.split()[0] for did in result.services] == ["compaction"]
    assert result.warnings == () and tasks == ([1] if here_bytes < 0 else [])
    found = table.read(mode="read_optimized", columns=["id", "v"]).collect()
    assert sorted((row.id, row.v) for row in found) == [("a", 2), ("b", 1)]
    assert table.health().healthy
    assert not any(outcome.did for outcome in table.services.run())
