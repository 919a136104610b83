"""Two keyed writes that looked at the same state: the later one conflicts, and may try again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakewright.engine.keyed.deletes import delete_where, key_batches
from lakewright.engine.keyed.writer import KeyedWriter
from lakewright.engine.operations import DELETE, UPSERT
from lakewright.engine.options import ReadOptions
from lakewright.engine.row_source import RowSource
from lakewright.engine.write_job import WriteJob
from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.errors import WriteConflictError
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime import Event
from tests.engine.keyed.tables import QuickTable, Shape, new_table, rows

Write = Callable[[], WriteResult]
SHAPES = [Shape(type=type_, version=version) for type_ in ("cow", "mor") for version in (6, 8)]
EACH = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"v{s.version}-{s.type}")


def prepared(
    table: QuickTable, shape: Shape, *given: Any, more: dict[str, str] | None = None
) -> Write:
    """An upsert that has looked at the table and has not written yet."""
    options = WriteOptions.from_hudi(shape.options | (more or {}), table=table.properties)
    source = RowSource(rows(shape, given))
    job = WriteJob.prepare(table.access(options), options, UPSERT, source.schema)
    writer = KeyedWriter(job, MergerRegistry())
    return lambda: writer.upsert(source)


def prepared_delete(table: QuickTable, shape: Shape, *places: tuple[str, str]) -> Write:
    """The same for a delete by key."""
    options = WriteOptions.from_hudi(shape.options, table=table.properties)
    keys = pa.table({"id": [k for _, k in places], "p": [p for p, _ in places]})
    job = WriteJob.prepare(table.access(options), options, DELETE, None)
    return lambda: KeyedWriter(job, MergerRegistry()).delete(key_batches(RowSource(keys), job))


def prepared_where(table: QuickTable, shape: Shape, where: str) -> Write:
    """The same for a delete by filter."""
    options = WriteOptions.from_hudi(shape.options, table=table.properties)
    job = WriteJob.prepare(table.access(options), options, DELETE, None)
    registry = MergerRegistry()
    return lambda: delete_where(
        job, where, lambda j: KeyedWriter(j, registry), ReadOptions(threads=1), registry
    )


def ids(table: QuickTable) -> list[str]:
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def refused(write: Write, told: str) -> WriteConflictError:
    with pytest.raises(WriteConflictError, match=told) as caught:
        write()
    assert caught.value.retryable and caught.value.hint
    return caught.value


@EACH
@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM", "GLOBAL_BLOOM"])
def test_the_same_new_key_cannot_be_inserted_twice(shape: Shape, index: str) -> None:
    shape = Shape(type=shape.type, version=shape.version, index=index, small_files=False)
    table = new_table(shape)
    table.upsert(rows(shape, [("old", "b", 1, 1)]), options=shape.options)
    first, second = (prepared(table, shape, ("k", "a", n, n), ("x", "b", n, n)) for n in (1, 2))
    other = first().instant
    error = refused(second, "added")
    assert error.context["other"] == other and error.context["key"] in ("k", "x")
    assert ids(table) == ["k", "old", "x"]
    assert not table.timeline.pending().instants


def test_new_keys_of_other_partitions_do_not_conflict_unless_the_index_is_global() -> None:
    for index in ("SIMPLE", "GLOBAL_SIMPLE"):
        shape = Shape(index=index)
        table = new_table(shape)
        first = prepared(table, shape, ("k", "a", 1, 1))
        second = prepared(table, shape, ("k", "b", 2, 2))
        first()
        if shape.is_global:
            refused(second, "added")
        else:
            second()
        assert ids(table) == (["k"] if shape.is_global else ["k", "k"])


@EACH
def test_a_losing_write_is_done_again_and_updates(shape: Shape) -> None:
    """The event of the first attempt lets another writer come first."""
    table = new_table(shape)
    told: list[Event] = []
    raced = False

    def interfere(event: Event) -> None:
        nonlocal raced
        told.append(event)
        if event.kind == "write.files" and not raced:
            raced = True
            quick.upsert(rows(shape, [("k", "a", 5, 50)]), options=shape.options)

    quick = QuickTable(table.storage, table.clock, seed=2)
    slow = QuickTable(table.storage, table.clock, seed=3)
    slow._on_event = interfere
    result = slow.upsert(
        rows(shape, [("k", "a", 7, 70), ("n", "a", 1, 1)]), options=shape.options, retries=1
    )
    assert (result.attempts, result.inserted, result.updated) == (2, 1, 1)
    assert [e.kind for e in told if e.kind == "write.retry"] == ["write.retry"]
    found = table.scan(columns=["id", "v"]).to_arrow().sort_by("id").to_pydict()
    assert found == {"id": ["k", "n"], "v": [70, 1]}


def files(table: QuickTable) -> list[str]:
    return [info.path for folder in ("a", ".hoodie") for info in table.storage.list(folder)]


@EACH
def test_a_write_that_was_overtaken_does_not_begin(shape: Shape) -> None:
    table = new_table(shape)
    table.upsert(rows(shape, [("k", "a", 1, 1)]), options=shape.options)
    second = prepared(table, shape, ("k", "a", 2, 2))
    table.upsert(rows(shape, [("k", "a", 3, 3)]), options=shape.options)
    before = files(table)
    refused(second, "committed a change to 1 of the file groups")
    assert files(table) == before


@EACH
def test_updates_of_one_file_group_conflict(shape: Shape) -> None:
    table = new_table(shape)
    table.upsert(rows(shape, [("k", "a", 1, 1), ("l", "a", 1, 1)]), options=shape.options)
    first, second = (
        prepared(table, shape, ("k", "a", 2, 2)),
        prepared(table, shape, ("l", "a", 2, 2)),
    )
    first()
    refused(second, "UPSERT")


@EACH
def test_a_delete_of_a_key_that_was_not_there_does_not_miss_its_insert(shape: Shape) -> None:
    """Otherwise the later commit would be the earlier write."""
    table = new_table(shape)
    table.upsert(rows(shape, [("old", "a", 1, 1)]), options=shape.options)
    late = [
        prepared_delete(table, shape, ("b", "k")),
        prepared(table, shape, ("k", "b", 9, 9, True)),
    ]
    table.upsert(rows(shape, [("k", "b", 1, 1)]), options=shape.options)
    for write in late:
        refused(write, "added")
    assert ids(table) == ["k", "old"]


def test_a_delete_in_a_bucket_that_was_not_there_does_not_miss_it() -> None:
    for type_ in ("cow", "mor"):
        shape = Shape(type=type_, index="BUCKET")
        table = new_table(shape)
        late = prepared_delete(table, shape, ("b", "k"))
        table.upsert(rows(shape, [("k", "b", 1, 1)]), options=shape.options)
        refused(late, "same bucket")


def test_a_bucket_gets_one_file_group() -> None:
    for type_ in ("cow", "mor"):
        shape = Shape(type=type_, index="BUCKET")
        table = new_table(shape)
        first, second = (prepared(table, shape, ("k", "a", n, n)) for n in (1, 2))
        first()
        refused(second, "same bucket")
        assert prepared(table, shape, ("k", "a", 3, 3))().inserted == 0
        assert ids(table) == ["k"]


@EACH
def test_a_row_that_lost_against_another_partition_holds_only_while_that_row_stays(
    shape: Shape,
) -> None:
    shape = Shape(type=shape.type, version=shape.version, index="GLOBAL_SIMPLE")
    table = new_table(shape)
    table.upsert(rows(shape, [("k", "a", 5, 5), ("x", "b", 1, 1)]), options=shape.options)
    late = prepared(table, shape, ("k", "b", 3, 3), ("y", "b", 1, 1))
    table.delete(pa.table({"id": ["k"], "p": ["a"]}), options=shape.options)
    refused(late, "has read")
    again = prepared(table, shape, ("k", "b", 3, 3), ("y", "b", 1, 1))()
    # A row that only a log has deleted is still found in its base file.
    assert again.inserted == 2
    assert ids(table) == ["k", "x", "y"]


@EACH
def test_a_delete_by_filter_conflicts_with_changes_of_the_partitions_it_read(shape: Shape) -> None:
    shape = replace(shape, small_files=False)
    table = new_table(shape)
    table.upsert(rows(shape, [("k", "a", 1, 1), ("l", "b", 1, 1)]), options=shape.options)
    everywhere = prepared_where(table, shape, "ts < 5")
    here = prepared_where(table, shape, "p = 'a' and ts < 5")
    nowhere_yet = prepared_where(table, shape, "p = 'c'")
    table.upsert(rows(shape, [("m", "b", 1, 1)]), options=shape.options)
    refused(everywhere, "has read")
    table.upsert(rows(shape, [("n", "c", 1, 1)]), options=shape.options)
    refused(nowhere_yet, "has read")
    assert here().deleted == 1
    assert ids(table) == ["l", "m", "n"]
