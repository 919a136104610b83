"""Where appended rows go: shares of partitions, and the tasks that Spark's hash leads to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it

from lakewright.engine.sizing import Append, InsertPlan
from lakewright.format.file_slices import BaseFile
from lakewright.spark.write_places import (
    HASH_RANGE,
    hash_columns,
    murmur3_ints,
    places,
    shares,
    task_names,
)

COUNTS = st.lists(st.integers(1, 10**7), max_size=5)


def plan(number: int, appends: list[int], new: list[int]) -> InsertPlan:
    base = [BaseFile(f"p{number}", f"f{i}", 1, "1", f"f{i}", "t") for i in range(len(appends))]
    filled = tuple(Append(b, rows) for b, rows in zip(base, appends, strict=True))
    return InsertPlan(f"p{number}", filled, tuple(new))


@given(st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=30), st.integers(1, 8))
def test_shares_cover_a_partition_and_never_meet_in_a_task(
    counts: list[tuple[list[int], list[int]]], cores: int
) -> None:
    plans = [plan(n, *each) for n, each in enumerate(counts) if each[0] or each[1]]
    found = shares(plans, cores)
    for each in plans:
        own = [share for share in found if share.partition == each.partition]
        assert own[0].first == 0 and own[-1].last == HASH_RANGE
        assert [s.last for s in own[:-1]] == [s.first for s in own[1:]]
        assert len({share.task for share in own}) == len(own)
    if found:
        known = places(found).bases
        assert sum(map(len, known)) == len(found)
        assert all(known[s.task][s.partition] is s.base for s in found)


def test_names_of_tasks_lead_spark_there(spark: SparkSession) -> None:
    numbers = spark.range(-500, 500).selectExpr("cast(id AS int) AS i")
    hashed = numbers.select("i", F.hash("i")).collect()
    values = np.array([row[0] for row in hashed], np.int32)
    assert murmur3_ints(values).tolist() == [row[1] for row in hashed]
    for tasks in (2, 7, 200):
        names = task_names(tasks)
        frame = spark.createDataFrame([(int(n),) for n in names], "n int").repartition(tasks, "n")
        led = frame.select("n", F.spark_partition_id()).collect()
        assert {row[0]: row[1] for row in led} == {int(n): i for i, n in enumerate(names)}


def test_rows_are_told_apart_by_their_keys_or_by_all_that_can_be_hashed() -> None:
    pairs = pa.map_(pa.string(), pa.int32())
    schema = pa.schema([("a", pa.int32()), ("b", pa.list_(pairs)), ("c", pa.string())])
    assert hash_columns(schema, ["c", "a.x"]) == ["c", "a"]
    assert hash_columns(schema, []) == ["a", "c"]
