"""Keyed writes by a record index per partition: a key is one row in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.compute as pc
import pytest

import lakewright as lw
from lakewright.engine.metadata_verification import verify_metadata
from lakewright.engine.options import ReadOptions
from lakewright.errors import InputError, OptionError
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.file_groups import RECORD_INDEX
from lakewright.metadata.verification import Compared, Difference
from lakewright.runtime.events import Event
from tests.engine.keyed.tables import QuickTable, Shape, asked_files, new_table, rows
from tests.engine.keyed.test_guards import ids, prepared

INDEX = "RECORD_LEVEL_INDEX"
SHAPES = [Shape(type=t, index=INDEX) for t in ("cow", "mor")]
EACH = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.type)
TYPED = {"hoodie.index.type": INDEX}


def checked(table: lw.Table, records: int) -> None:
    """The index has as many keys as there are rows, all of them right."""
    folders = ReadOptions(use_metadata_table=False)
    snapshot = table.snapshot(options=folders)
    found = list(verify_metadata(snapshot, options=folders, registry=MergerRegistry()))
    assert [f for f in found if isinstance(f, Difference)] == []
    told = [f.records for f in found if isinstance(f, Compared) and f.index == RECORD_INDEX]
    assert sum(told) == records


def groups(table: lw.Table) -> list[tuple[str | None, int]]:
    metadata = table.snapshot().opened.metadata
    assert metadata is not None
    return list(metadata.layout(RECORD_INDEX).counts)


def filled(shape: Shape, parts: Sequence[str] = "abc") -> QuickTable:
    table = new_table(shape)
    for part in parts:
        given = [(f"k{n}", part, 1, n) for n in range(4)]
        table.upsert(rows(shape, given), options=shape.options)
    return table


@EACH
def test_a_key_is_looked_for_in_its_partition_alone(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(shape)
    assert groups(table) == [("a", 1), ("b", 1), ("c", 1)]
    checked(table, 12)
    opened = asked_files(monkeypatch)
    given = [("k1", "b", 2, 9), ("new", "c", 2, 9), ("k1", "d-e/f_g", 2, 9)]
    done = table.upsert(rows(shape, given), options=shape.options)
    assert (done.inserted, done.updated) == (2, 1)
    assert [base.partition for base in opened] == ["b"]
    assert groups(table)[-1] == ("d-e/f_g", 1)
    found = table.scan().to_arrow()
    assert found.filter(pc.equal(found["id"], "k1"))["v"].to_pylist().count(9) == 2
    assert found.num_rows == 14
    checked(table, 14)


@EACH
def test_keys_that_go_and_come_back_are_told(shape: Shape) -> None:
    table = filled(shape)
    gone = rows(shape, [("k0", "a", 9, 0), ("k1", "b", 9, 0)])
    table.delete(keys=gone.select(["id", "p"]), options=shape.options)
    checked(table, 10)
    table.upsert(rows(shape, [("k0", "a", 10, 5), ("k0", "b", 10, 5)]), options=shape.options)
    assert ids(table).count("k0") == 3
    checked(table, 11)
    table.delete_partition("b", options=shape.options)
    table.overwrite(rows(shape, [("x", "c", 11, 1)]), options=shape.options)
    checked(table, 5)
    table.upsert(rows(shape, [("k1", "b", 12, 1)]), options=shape.options)
    checked(table, 6)


@EACH
def test_every_index_type_leaves_it_right_and_finds_the_same(shape: Shape) -> None:
    table = filled(shape)
    for number, kind in enumerate(("SIMPLE", "BLOOM", INDEX)):
        given = rows(shape, [("k2", "a", 5 + number, number), (f"n{number}", "e", 5, 0)])
        done = table.upsert(given, options={"hoodie.index.type": kind})
        assert (done.inserted, done.updated) == (1, 1)
    checked(table, 15)
    moved = table.upsert(
        rows(shape, [("n0", "a", 99, 1)]), options={"hoodie.index.type": "RECORD_INDEX"}
    )
    assert ids(table).count("n0") == 1 and moved.instant is not None
    checked(table, 15)


def test_an_index_of_all_keys_does_not_tell_about_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape = Shape(type="mor", index="RECORD_INDEX")
    table = new_table(shape)
    table.upsert(rows(shape, [("k", "a", 1, 1), ("j", "b", 1, 1)]), options=shape.options)
    opened = asked_files(monkeypatch)
    done = table.upsert(rows(shape, [("k", "b", 2, 2)]), options=TYPED)
    assert (done.inserted, done.updated) == (1, 0)
    assert [base.partition for base in opened] == ["b"]
    assert ids(table).count("k") == 2


@EACH
def test_two_writers_that_begin_a_partition_share_its_file_groups(shape: Shape) -> None:
    table = filled(shape)
    first, second = (prepared(table, shape, (key, "z", 5, 5)) for key in ("one", "two"))
    first()
    second()
    assert ("z", 1) in groups(table)
    checked(table, 14)


def test_a_table_without_partitions_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(index=INDEX, partitioned=False)
    table = new_table(shape)
    table.upsert(rows(shape, [("k", "a", 1, 1)]), options=shape.options)
    assert groups(table) == [("", 1)]
    assert any("record-index--0000-0" in path for path in table.files())
    done = table.upsert(rows(shape, [("k", "a", 2, 2)]), options=shape.options)
    assert done.updated == 1
    checked(table, 1)


def stored(path: Path, shape: Shape, parts: Sequence[str] = "abc") -> lw.Table:
    """A table in a folder, in which whatever runs beside something may run."""
    table = lw.Table.create(
        path / "t",
        schema=shape.schema,
        type=shape.type,
        key=["id"],
        partition=["p"],
        ordering=["ts"],
    )
    for part in parts:
        given = [(f"k{n}", part, 1, n) for n in range(3)]
        table.upsert(rows(shape, given), options=shape.options)
    return table


def test_filters_on_the_key_read_only_the_file_groups_that_have_it(tmp_path: Path) -> None:
    shape = SHAPES[0]
    table = stored(tmp_path, shape)
    table.upsert(rows(shape, [("only", "b", 2, 2)]), options=shape.options)
    table.metadata.build("column_stats")
    assert len(table.scan(where="id = 'only'").plan().tasks) == 1
    assert len(table.scan(where="id = 'k1'").plan().tasks) == 3
    assert table.scan(where="id = 'k1'").to_arrow().num_rows == 3


def test_it_is_built_beside_writers_kept_by_a_rebuild_and_forgotten_by_a_drop(
    tmp_path: Path,
) -> None:
    plain = Shape(type="mor")
    table = stored(tmp_path, plain, "ab")

    def late(event: Event) -> None:
        if event.kind == "indexing.begun":
            given = rows(plain, [("k0", "a", 2, 2), ("k0", "c", 2, 2)])
            lw.Table.open(table.uri).upsert(given, options=plain.options)

    builder = lw.Table.open(table.uri, on_event=late)
    assert RECORD_INDEX in builder.metadata.build(RECORD_INDEX, per_partition=True).indexes
    checked(table, 7)
    assert groups(table) == [("a", 1), ("b", 1), ("c", 1)]
    with pytest.raises(InputError, match="per partition"):
        table.metadata.build(secondary={"by_v": "v"})
    with pytest.raises(InputError, match="Only a record index"):
        table.metadata.build("column_stats", per_partition=True)
    all_keys = {
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.record.index.enable": "true",
    }
    with pytest.raises(OptionError, match="has a record index per partition"):
        table.upsert(rows(plain, [("k0", "a", 2, 2)]), options=all_keys)
    assert RECORD_INDEX in table.metadata.rebuild().indexes
    assert groups(table) == [("a", 1), ("b", 1), ("c", 1)]
    checked(table, 7)
    table.metadata.drop(RECORD_INDEX)
    assert table.metadata.build(RECORD_INDEX).indexes == (RECORD_INDEX,)
    assert groups(table) == [(None, 10)]


def test_a_restore_keeps_the_kind(tmp_path: Path) -> None:
    shape = SHAPES[1]
    table = stored(tmp_path, shape, "ab")
    [saved] = [table.services.savepoints.create().instant]
    table.upsert(rows(shape, [("late", "c", 3, 3)]), options=shape.options)
    table.services.restore.run(saved)
    assert groups(table) == [("a", 1), ("b", 1)]
    checked(table, 6)


def test_its_own_services_compact_it(tmp_path: Path) -> None:
    shape = SHAPES[1]
    table = stored(tmp_path, shape)
    often = {**shape.options, "hoodie.metadata.compact.max.delta.commits": "2"}
    for number in range(4):
        given = [(f"n{number}", part, 2, number) for part in ("a", "d%/x=1", "b")]
        table.upsert(rows(shape, given), options=often)
    names = [p.name for p in (tmp_path / "t/.hoodie/metadata/record_index").iterdir()]
    assert any(name.endswith(".hfile") and "d%25%2Fx%3D1" in name for name in names)
    checked(table, 21)


def test_version_6_has_no_place_for_it() -> None:
    shape = Shape(version=6, index=INDEX)
    table = new_table(shape)
    before = table.files()
    with pytest.raises(OptionError, match="version 6"):
        table.upsert(rows(shape, [("k", "a", 1, 1)]), options=shape.options)
    assert {p for p in table.files() if ".lakewright" not in p} == {
        p for p in before if ".lakewright" not in p
    }
