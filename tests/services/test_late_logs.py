"""Keys that only logs have: deleted, compacted away, and written again meanwhile."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakewright.engine.keyed import writer
from lakewright.engine.keyed.index_type import IndexType
from lakewright.engine.keyed.insert_guard import UpdateGuard
from lakewright.engine.keyed.log_lookup import LogLookup
from lakewright.format.timeline import Timeline
from lakewright.runtime import Event
from lakewright.services.compaction import Compaction
from lakewright.services.compaction_plan import CompactionOptions, CompactionTrigger
from tests.engine.keyed.tables import QuickTable, Shape, new_table, rows
from tests.engine.keyed.test_guards import ids, prepared, refused
from tests.quickly import a_few_quickly

ALWAYS = CompactionOptions(trigger=CompactionTrigger.ALWAYS)
SHAPES = [
    *(
        Shape(type="mor", version=version, index=index, small_files=False)
        for version in (6, 8)
        for index in ("SIMPLE", "BLOOM", "GLOBAL_SIMPLE")
    ),
    Shape(type="mor", small_files=False, meta=False),
    Shape(type="mor", small_files=False, merging="commit", parquet_logs=True),
]
EACH = pytest.mark.parametrize(
    "shape", a_few_quickly(SHAPES, 4), ids=lambda s: f"v{s.version}-{s.index}-{s.merging}-{s.meta}"
)


def deleted(shape: Shape) -> QuickTable:
    """A table whose key `k` is deleted in a log."""
    table = new_table(shape)
    first = [("k", "a", 1, 1), ("l", "a", 1, 1), ("m", "b", 1, 1)]
    table.upsert(rows(shape, first), options=shape.options)
    table.delete(pa.table({"id": ["k"], "p": ["a"]}), options=shape.options)
    assert ids(table) == ["l", "m"]
    return table


def compaction(table: QuickTable) -> Compaction:
    return Compaction(table.access(), ALWAYS)


def planned(table: QuickTable) -> str:
    """A compaction that takes what is there."""
    instant = compaction(table).schedule()
    assert instant is not None
    return instant


def brought_back(shape: Shape) -> QuickTable:
    """The key is written again before the compaction that takes its delete is completed."""
    table = deleted(shape)
    instant = planned(table)
    table.upsert(rows(shape, [("k", "a", 5, 50)]), options=shape.options)
    compaction(table).execute(instant)
    assert ids(table) == ["k", "l", "m"]
    return table


def values(table: QuickTable) -> dict[str, int]:
    found = table.scan(columns=["id", "v"]).to_arrow().to_pydict()
    assert len(set(found["id"])) == len(found["id"])
    return dict(zip(found["id"], found["v"], strict=True))


@EACH
def test_a_key_that_came_back_beside_a_compaction_is_found_again(shape: Shape) -> None:
    table = brought_back(shape)
    changed = rows(shape, [("k", "a", 6, 60), ("l", "a", 6, 61), ("n", "a", 6, 62)])
    result = table.upsert(changed, options=shape.options)
    assert (result.inserted, result.updated) == (1, 2)
    assert values(table) == {"k": 60, "l": 61, "m": 1, "n": 62}
    compaction(table).run()
    assert values(table) == {"k": 60, "l": 61, "m": 1, "n": 62}


@EACH
def test_such_a_key_is_deleted(shape: Shape) -> None:
    for by_filter in (False, True):
        table = brought_back(shape)
        if by_filter:
            table.delete(where="id = 'k'", options=shape.options)
        else:
            table.delete(pa.table({"id": ["k"], "p": ["a"]}), options=shape.options)
        assert values(table) == {"l": 1, "m": 1}


@EACH
def test_a_key_that_was_deleted_again_is_new(shape: Shape) -> None:
    table = brought_back(shape)
    table.delete(pa.table({"id": ["k"], "p": ["a"]}), options=shape.options)
    for value in (7, 8):
        table.upsert(rows(shape, [("k", "a", value, value)]), options=shape.options)
    assert values(table) == {"k": 8, "l": 1, "m": 1}


def test_a_global_index_moves_such_a_key() -> None:
    shape = Shape(type="mor", index="GLOBAL_SIMPLE", small_files=False)
    table = brought_back(shape)
    table.upsert(rows(shape, [("k", "b", 6, 60)]), options=shape.options)
    assert values(table) == {"k": 60, "l": 1, "m": 1}
    assert table.scan(columns=["p"], where="id = 'k'").to_arrow()["p"].to_pylist() == ["b"]


@EACH
def test_a_write_that_looked_before_and_begins_after_the_compaction_conflicts(
    shape: Shape,
) -> None:
    table = deleted(shape)
    instant = planned(table)
    late = prepared(table, shape, ("k", "a", 5, 50), ("l", "a", 5, 51))
    harmless = prepared(table, shape, ("l", "a", 4, 41))
    compaction(table).execute(instant)
    assert refused(late, "brings back").context["key"] == "k"
    harmless()
    again = rows(shape, [("k", "a", 5, 50), ("l", "a", 5, 51)])
    table.upsert(again, options=shape.options)
    assert values(table) == {"k": 50, "l": 51, "m": 1}


@EACH
def test_an_insert_conflicts_with_a_log_that_brought_its_key_back(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other engines do not look as we do: their log comes although its key has gone."""

    def say_nothing(_guard: UpdateGuard, _timeline: Timeline) -> None: ...

    monkeypatch.setattr(UpdateGuard, "__call__", say_nothing)
    table = deleted(shape)
    instant = planned(table)
    inserts = []

    def interfere(event: Event) -> None:
        if event.kind == "write.files" and not inserts:
            quick = QuickTable(table.storage, table.clock, seed=2)
            compaction(quick).execute(instant)
            inserts.append(prepared(quick, shape, ("k", "a", 6, 60)))

    other = QuickTable(table.storage, table.clock, seed=3)
    other._on_event = interfere
    other.upsert(rows(shape, [("k", "a", 5, 50)]), options=shape.options)
    refused(inserts[0], "added")
    table.upsert(rows(shape, [("k", "a", 6, 60)]), options=shape.options)
    assert values(table) == {"k": 60, "l": 1, "m": 1}


@pytest.mark.parametrize("version", [6, 8])
def test_logs_that_came_after_a_compaction_are_not_read(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = Shape(type="mor", version=version, small_files=False)
    table = deleted(shape)
    compaction(table).run()
    table.clock.advance(60_000)
    table.upsert(rows(shape, [("l", "a", 5, 50)]), options=shape.options)

    def never(*_: object) -> None:
        raise AssertionError("the log was read")

    monkeypatch.setattr(LogLookup, "living", never)
    table.upsert(rows(shape, [("l", "a", 6, 60), ("n", "a", 6, 61)]), options=shape.options)
    assert values(table) == {"l": 60, "m": 1, "n": 61}


@pytest.mark.parametrize("version", [6, 8])
def test_keys_of_groups_without_a_base_file_are_found(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = Shape(type="mor", version=version, index="BUCKET")
    table = new_table(shape)
    table.upsert(rows(shape, [("k", "a", 1, 1), ("l", "a", 1, 1)]), options=shape.options)
    monkeypatch.setattr(writer, "index_type", lambda *_, **__: IndexType.SIMPLE)
    table.upsert(rows(shape, [("k", "a", 2, 2), ("n", "a", 2, 2)]), options=shape.options)
    assert values(table) == {"k": 2, "l": 1, "n": 2}
