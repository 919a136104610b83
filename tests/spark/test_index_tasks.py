"""Indexes of records kept right by tasks: what the driver would have found, in the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakewright.errors import CorruptFileError
from lakewright.metadata.file_groups import RECORD_INDEX
from lakewright.metadata.index_changes import EncodedChange
from lakewright.metadata.verification import Compared, Difference
from lakewright.spark import index_tasks
from lakewright.spark.index_tasks import looking_on_spark
from tests.spark.test_keyed import Twins, rows

OPTIONS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
}
OF_PARTITIONS = {
    "hoodie.index.type": "RECORD_LEVEL_INDEX",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.level.index.enable": "true",
}


@pytest.fixture(autouse=True)
def in_tasks(monkeypatch: pytest.MonkeyPatch) -> list[EncodedChange]:
    """However little there is to look at, tasks do it; what they gave."""
    given: list[EncodedChange] = []
    monkeypatch.setattr(index_tasks, "HERE_BYTES", -1)

    def kept(*told: Any) -> EncodedChange:
        given.append(EncodedChange(*told))
        return given[-1]

    monkeypatch.setattr(index_tasks, "EncodedChange", kept)
    return given


@pytest.mark.parametrize(
    ("version", "type_", "options"),
    [(6, "mor", OPTIONS), (8, "cow", OPTIONS), (8, "mor", OF_PARTITIONS)],
)
def test_tasks_find_the_keys_that_came_and_went(
    spark: SparkSession,
    tmp_path: Path,
    version: int,
    type_: str,
    options: dict[str, str],
    in_tasks: list[EncodedChange],
) -> None:
    twins = Twins(spark, tmp_path, version=version, type=type_)
    twins.upsert(rows(1, 60, 40), options=options)
    twins.upsert(rows(2, 60, 60, deletes=0.4), options=options)
    twins.delete(rows(4, 10, 60), options=options)
    assert sum(len(change.logs) for change in in_tasks) > 5
    compared = {}
    for table in (twins.here.table, twins.plain):
        found = list(table.metadata.verify())
        assert not [f for f in found if isinstance(f, Difference)]
        told = [f for f in found if isinstance(f, Compared) and f.index == RECORD_INDEX]
        compared[table.uri] = sum(f.records for f in told)
    assert len({*compared.values()}) == 1 and min(compared.values()) > 10


def test_an_error_of_a_task_is_told_as_what_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = Twins(spark, tmp_path, version=8, type="cow")
    twins.upsert(rows(1, 30, 20), options=OPTIONS)
    looked = looking_on_spark

    def damaged(*given: object) -> object:
        look = looked(*given)  # type: ignore[arg-type]

        def damage(
            name: str, entries: object, before: object, instant: str, groups: list
        ) -> object:
            for change in groups:
                path = tmp_path / "spark" / change.before.base.path
                path.write_bytes(b"PAR1 not a file PAR1")
            return look(name, entries, before, instant, groups)  # type: ignore[arg-type]

        return damage

    monkeypatch.setattr("lakewright.spark.keyed_verbs.looking_on_spark", damaged)
    with pytest.raises(CorruptFileError, match="Parquet"):
        twins.here.upsert(twins.frame(rows(3, 30, 60)), options=OPTIONS)
