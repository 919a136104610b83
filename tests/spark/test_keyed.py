"""Upserts and deletes on Spark: what they leave is what the engine leaves without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakewright as lw
from lakewright.engine.write_result import WriteResult
from lakewright.spark import SparkTable, keyed_lookup, keyed_verbs, keyed_writer
from lakewright.spark.write_frame import sent_schema
from tests.spark.rows import arrow_rows

COLUMNS = "id string, city string, ts long, n long, word string, _hoodie_is_deleted boolean"
Rows = Sequence[tuple[Any, ...]]


def rows(seed: int, count: int, keys: int, *, deletes: float = 0.1, cities: int = 3) -> Rows:
    """Rows with repeated keys, in any order of time, some of them deletes."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, keys, count)
    return [
        (
            f"k{i}",
            f"c{i % cities}",
            int(rng.integers(0, 20)),
            int(rng.integers(0, 10**6)),
            None if rng.random() < 0.1 else f"w{rng.integers(0, 9)}",
            bool(rng.random() < deletes),
        )
        for i in ids
    ]


class Twins:
    """A table that is written on Spark, and the same one that is written without."""

    def __init__(self, spark: SparkSession, path: Path, **choices: Any) -> None:
        self.spark = spark
        self.schema = sent_schema(self.frame([]).schema)
        chosen: dict[str, Any] = {"key": ["id"], "partition": ["city"], "ordering": ["ts"]}
        chosen |= choices
        self.plain = lw.Table.create(path / "plain", schema=self.schema, name="t", **chosen)
        self.here = SparkTable.create(spark, path / "spark", schema=self.schema, name="t", **chosen)

    def frame(self, given: Rows) -> DataFrame:
        return self.spark.createDataFrame(list(given), COLUMNS)

    def arrow(self, given: Rows) -> pa.Table:
        columns = [[row[k] for row in given] for k in range(len(self.schema))]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def upsert(self, given: Rows, **how: Any) -> WriteResult:
        return self.compare(
            self.here.upsert(self.frame(given), **how), self.plain.upsert(self.arrow(given), **how)
        )

    def delete(self, given: Rows, **how: Any) -> WriteResult:
        return self.compare(
            self.here.delete(self.frame(given), **how), self.plain.delete(self.arrow(given), **how)
        )

    def compare(self, ours: WriteResult, theirs: WriteResult) -> WriteResult:
        told = [
            (r.operation, r.inserted, r.updated, r.deleted, r.ignored, r.files)
            for r in (ours, theirs)
        ]
        assert told[0] == told[1]
        columns = ["_hoodie_record_key", "_hoodie_partition_path", *self.schema.names]
        found = [t.scan(columns=columns).to_arrow() for t in (self.here.table, self.plain)]
        assert arrow_rows(found[0]) == arrow_rows(found[1])
        return ours


@pytest.fixture
def by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be too small for tasks."""
    monkeypatch.setattr(keyed_verbs, "HERE_ROWS", -1)
    monkeypatch.setattr(keyed_verbs, "HERE_BYTES", -1)
    monkeypatch.setattr(keyed_verbs, "COLLECTED_BYTES", -1)
    monkeypatch.setattr(keyed_writer, "LIGHT_BYTES", -1)
    monkeypatch.setattr(keyed_lookup, "HERE_BYTES", -1)


def test_a_change_by_tasks(spark: SparkSession, tmp_path: Path, by_tasks: None) -> None:
    twins = Twins(spark, tmp_path, type="mor")
    twins.upsert(rows(1, 300, 200))
    twins.upsert(rows(2, 200, 300))
    twins.delete(rows(3, 50, 400))
