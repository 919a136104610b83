"""Keyed writes by the record index: only the files that it names are asked."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakewright as lw
from lakewright.engine.keyed import planning
from lakewright.errors import MetadataTableError, WriteConflictError
from lakewright.metadata.file_groups import RECORD_INDEX
from lakewright.metadata.table import MetadataTable
from lakewright.metadata.verification import Difference
from tests.engine.keyed.tables import QuickTable, Shape, asked_files, new_table, rows
from tests.engine.keyed.test_guards import ids, prepared

SHAPES = [Shape(type=t, version=v, index="RECORD_INDEX") for v in (6, 8) for t in ("cow", "mor")]
EACH = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"v{s.version}-{s.type}")


def filled(shape: Shape) -> QuickTable:
    table = new_table(shape)
    for part in "abc":
        given = [(f"{part}{n}", part, 1, n) for n in range(4)]
        table.upsert(rows(shape, given), options=shape.options)
    assert RECORD_INDEX in table.properties.metadata_partitions
    return table


@EACH
def test_files_without_the_keys_are_not_opened(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(shape)
    opened = asked_files(monkeypatch)
    done = table.upsert(rows(shape, [("b1", "b", 2, 9), ("new", "c", 2, 9)]), options=shape.options)
    assert (done.inserted, done.updated) == (1, 1)
    assert [base.partition for base in opened] == ["b"]
    moved = table.upsert(rows(shape, [("a2", "c", 3, 7)]), options=shape.options)
    assert [base.partition for base in opened] == ["b", "a"]
    assert moved.updated + moved.inserted >= 1
    found = table.scan().to_arrow()
    assert found.num_rows == 13
    assert found.filter(pc.equal(found["id"], "a2"))["p"].to_pylist() == ["c"]


def test_the_names_of_newer_releases_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = SHAPES[-1]
    newer = {
        "hoodie.index.type": "global_record_level_index",
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.global.record.level.index.enable": "true",
    }
    table = new_table(shape)
    for part in "ab":
        table.upsert(rows(shape, [(f"{part}0", part, 1, 1)]), options=newer)
    opened = asked_files(monkeypatch)
    done = table.upsert(rows(shape, [("b0", "b", 2, 9)]), options=newer)
    assert (done.inserted, done.updated) == (0, 1)
    assert [base.partition for base in opened] == ["b"]


@EACH
def test_without_the_index_all_files_are_asked(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(shape)
    monkeypatch.setattr(MetadataTable, "open", lambda *_, **__: None)
    given = rows(shape, [("b1", "b", 2, 9), ("new", "c", 2, 9)])
    plain = {k: v for k, v in shape.options.items() if "metadata" not in k}
    done = table.upsert(given, options=plain)
    assert (done.inserted, done.updated) == (1, 1)


@EACH
def test_where_the_index_cannot_be_read_all_files_are_asked_and_that_is_told(
    shape: Shape, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = filled(shape)

    def damaged(*_: object, **__: object) -> object:
        raise MetadataTableError("damaged", hint="rebuild it")

    monkeypatch.setattr(MetadataTable, "record_index", damaged)
    given = rows(shape, [("b1", "b", 2, 9), ("new", "c", 2, 9)])
    done = table.upsert(given, options=shape.options)
    assert (done.inserted, done.updated) == (1, 1)
    assert "record index not used: damaged" in caplog.text


@EACH
def test_the_same_new_key_cannot_be_inserted_twice(shape: Shape) -> None:
    table = filled(shape)
    first, second = (prepared(table, shape, ("k", part, 5, 5)) for part in ("a", "d"))
    first()
    with pytest.raises(WriteConflictError):
        second()
    assert ids(table).count("k") == 1


@EACH
def test_a_key_that_is_not_where_the_index_says_is_found_elsewhere(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(shape)
    told = planning.record_places
    monkeypatch.setattr(
        planning,
        "record_places",
        lambda *given: (told(*given) + 1) % 3,  # type: ignore[operator]
    )
    done = table.upsert(rows(shape, [("b1", "b", 2, 9)]), options=shape.options)
    assert (done.inserted, done.updated) == (0, 1)
    assert ids(table).count("b1") == 1


def test_a_merger_of_the_users_decides_what_the_index_has(tmp_path: Path) -> None:
    strategy = "6f7d64b4-7fb9-4f3b-9d7a-0a3a52c4f001"
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("n", pa.int64())])
    lw.Table.create(
        tmp_path / "t",
        schema=schema,
        type="mor",
        key=["id"],
        merge_mode="CUSTOM",
        merge_strategy_id=strategy,
    )

    @lw.merger(strategy=strategy)
    def sevens_go(older: pa.RecordBatch, newer: pa.RecordBatch, ctx: object) -> lw.Merged:
        gone = pc.equal(newer.column("n"), 7)
        take = pc.if_else(gone, int(lw.Take.DELETE), int(lw.Take.NEWER))
        return lw.Merged(take=take.cast(pa.uint8()))

    table = lw.Table.open(tmp_path / "t", mergers=[sevens_go])
    options = {"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true"}
    for given in ({"a": 1, "b": 1, "c": 1}, {"a": 7, "b": 2, "d": 1}, {"a": 3}):
        rows_ = pa.table({"id": [*given], "n": [*given.values()]}, schema=schema)
        table.upsert(rows_, options=options)
        assert not [f for f in table.metadata.verify() if isinstance(f, Difference)]
    assert RECORD_INDEX in table.properties.metadata_partitions
    assert sorted(ids(table)) == ["a", "b", "c", "d"]
