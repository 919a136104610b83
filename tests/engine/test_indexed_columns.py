"""Columns that come into a table with an index of statistics come into the index too."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakewright as lw
from lakewright.engine.indexed_columns import statistics_definition
from lakewright.metadata.definitions import DEFAULT_PATH, format_definitions, load_definitions
from lakewright.metadata.file_groups import COLUMN_STATS
from lakewright.metadata.verification import Difference

INDEXED = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.parquet.small.file.limit": "0",
}
PLAIN = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64())])
WIDER = PLAIN.append(pa.field("more", pa.string()))


def table(path: Path, type_: str, version: int = 8) -> lw.Table:
    made = lw.Table.create(
        path,
        schema=PLAIN,
        key=["id"],
        partition=["p"],
        ordering=["ts"],
        type=type_,
        version=version,
    )
    rows = pa.table({"id": ["a", "b"], "p": ["x", "y"], "ts": [1, 1]}, schema=PLAIN)
    made.upsert(rows, options=INDEXED)
    return made


def wider(*keys: str) -> pa.Table:
    given = {"id": [*keys], "p": ["x"] * len(keys), "ts": [2] * len(keys), "more": [*keys]}
    return pa.table(given, schema=WIDER)


def named(made: lw.Table) -> list[str]:
    known = load_definitions(made.opened(None)[0].storage, made.properties)
    return list(known[COLUMN_STATS].source_fields)


def differences(made: lw.Table) -> list[Difference]:
    return [f for f in made.metadata.verify() if isinstance(f, Difference)]


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_a_new_column_is_told_and_named_by_the_write_that_brings_it(
    tmp_path: Path, type_: str
) -> None:
    made = table(tmp_path / "t", type_)
    assert "more" not in named(made)
    made.upsert(
        wider("a", "c"), options={**INDEXED, "hoodie.datasource.write.reconcile.schema": "true"}
    )
    assert named(made)[-1] == "more"
    assert differences(made) == []
    for where, ids in (
        ("more = 'c'", ["c"]),
        ("more is null", ["b"]),
        ("more is not null", ["a", "c"]),
        ("more < 'b'", ["a"]),
    ):
        found = made.scan(columns=["id"], where=where).to_arrow()["id"].to_pylist()
        assert sorted(found) == ids, where


def test_a_partition_with_rows_from_before_tells_of_nulls(tmp_path: Path) -> None:
    made = table(tmp_path / "t", "mor")
    made.append(wider("c"), options=INDEXED)
    found = made.scan(columns=["id"], where="more is null").to_arrow()["id"].to_pylist()
    assert sorted(found) == ["a", "b"]
    stored = made.snapshot().opened.metadata
    assert stored is not None
    told = stored.partition_stats(pa.schema([WIDER.field("more")]), ["p=x", "x"])["more"]
    assert [row["null_count"] > 0 for row in told.to_pylist()] == [True]


def test_columns_that_somebody_chose_stay_as_they_are(tmp_path: Path) -> None:
    made = table(tmp_path / "t", "mor")
    storage = made.opened(None)[0].storage
    storage.replace(
        DEFAULT_PATH, format_definitions({COLUMN_STATS: statistics_definition(("ts",))})
    )
    made.append(wider("c"), options=INDEXED)
    assert named(made) == ["ts"]
    assert made.scan(where="more = 'c'").count() == 1


BY_HUDI_1X = ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_a_definition_that_hudi_1x_leaves_on_version_6_is_gone_by(
    tmp_path: Path, type_: str
) -> None:
    """It names fewer meta columns than have statistics there, and grows with the columns."""
    made = table(tmp_path / "t", type_, version=6)
    storage = made.opened(None)[0].storage
    left = statistics_definition((*BY_HUDI_1X, *PLAIN.names))
    storage.replace(DEFAULT_PATH, format_definitions({COLUMN_STATS: left}))
    assert differences(made) == []
    made.upsert(
        wider("a", "c"), options={**INDEXED, "hoodie.datasource.write.reconcile.schema": "true"}
    )
    assert named(made) == [*left.source_fields, "more"]
    assert differences(made) == []
    assert made.scan(where="more = 'c'").count() == 1


def test_wrong_statistics_of_columns_that_no_definition_names_are_found(tmp_path: Path) -> None:
    made = table(tmp_path / "t", "cow", version=6)
    made.bulk_insert(wider("c"), options={**INDEXED, "hoodie.metadata.enable": "true"})
    storage = made.opened(None)[0].storage
    storage.replace(
        DEFAULT_PATH, format_definitions({COLUMN_STATS: statistics_definition(BY_HUDI_1X)})
    )
    assert differences(made) == []
    [base] = (tmp_path / "t" / "y").glob("*.parquet")
    base.unlink()
    found = {d.key for d in differences(made) if d.index == COLUMN_STATS}
    assert f"y/{base.name} ts" in found
