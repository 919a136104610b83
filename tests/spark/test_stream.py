"""`spark.readStream` gives every committed change once, also when it is started again."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import lakewright as lw
from lakewright.engine.change_range import scheme_of
from tests.corpus import committed_tables
from tests.spark.rows import arrow_rows, spark_rows

pytest.importorskip("pyspark.sql.datasource", reason="the data source needs Spark 4")

OLD, NEW = "v6_mor_pending_compaction_simple", "v8_mor_pending_compaction_complex"


@pytest.fixture(params=[pytest.param(OLD, marks=pytest.mark.slow), NEW])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return next(t for t in committed_tables() if t.name == request.param).unpack(tmp_path)


def drained(spark: SparkSession, path: Path, checkpoint: Path, **options: str) -> list[list[str]]:
    """The batches of one run over what is there."""
    batches: dict[int, list[str]] = {}

    def keep(frame: DataFrame, number: int) -> None:
        batches[number] = spark_rows(frame)

    stream = spark.readStream.format("lakewright").options(**options).load(str(path))
    writer = stream.writeStream.option("checkpointLocation", str(checkpoint))
    writer.foreachBatch(keep).trigger(availableNow=True).start().awaitTermination()
    return [rows for _, rows in sorted(batches.items()) if rows]


def steps(path: Path) -> list[tuple[str | None, str]]:
    """The range of every commit."""
    table = lw.Table.open(path)
    requested = scheme_of(table.properties) == "requested"
    times = [
        i.requested_time if requested else str(i.completion_time)
        for i in table.timeline.commits().completed()
    ]
    return list(pairwise([None, *sorted(times)]))


def changes(path: Path, since: str | None, until: str | None) -> list[str]:
    return arrow_rows(lw.Table.open(path).changes(since, until).to_arrow())


@pytest.mark.slow
def test_batches_are_the_changes_of_their_ranges(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    every = [rows for since, until in steps(path) if (rows := changes(path, since, until))]
    assert drained(spark, path, tmp_path / "a", max_instants_per_batch="1") == every
    assert drained(spark, path, tmp_path / "b") == [changes(path, None, None)]


@pytest.mark.slow
def test_a_restarted_query_goes_on_where_it_ended(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    order = lw.Table.open(path).timeline.commits().completed().in_completion_order()
    first_held = max(n for n, i in enumerate(order) if i.action == "deltacommit")
    held = [file for i in order[first_held:] for file in path.rglob(i.file_name)]
    every = steps(path)
    for file in held:
        shutil.move(file, tmp_path / file.name)
    checkpoint = tmp_path / "checkpoint"
    until = every[first_held - 1][1]
    assert drained(spark, path, checkpoint) == [changes(path, None, until)]
    for file in held:
        shutil.move(tmp_path / file.name, file)
    assert drained(spark, path, checkpoint) == [changes(path, until, None)]
    assert drained(spark, path, checkpoint) == []


@pytest.mark.slow
def test_columns_and_filter_are_options(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    found = drained(spark, path, tmp_path / "c", columns="id,ts", where="sub = 1")
    table = lw.Table.open(path)
    assert found == [arrow_rows(table.changes(columns=["id", "ts"], where="sub = 1").to_arrow())]


@pytest.mark.slow
def test_a_checkpoint_of_another_version_of_the_table_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    old, new = (next(t for t in committed_tables() if t.name == name) for name in (OLD, NEW))
    path = old.unpack(tmp_path / "old")
    drained(spark, path, tmp_path / "checkpoint", columns="id,ts")
    shutil.rmtree(path)
    shutil.move(new.unpack(tmp_path / "new"), path)
    with pytest.raises(PySparkException, match="changed its version"):
        drained(spark, path, tmp_path / "checkpoint", columns="id,ts")
