"""Keyed writes that cannot be done are refused with a clear error, and the table is as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest

from lakewright.engine.new_table import NewTable
from lakewright.engine.table_creation import create_table
from lakewright.errors import (
    ConfigError,
    ConflictError,
    InputError,
    LakewrightError,
    OptionError,
    SchemaError,
)
from lakewright.format.instant_times import format_time
from lakewright.format.records.plans import (
    ClusteringGroup,
    ClusteringPlan,
    RequestedReplaceMetadata,
    SliceInfo,
)
from lakewright.runtime import SeededRandom
from tests.engine.keyed.tables import FLAG, QuickTable, Shape, new_table, rows

SHAPES = [
    Shape(type="cow", version=6, merging="payload"),
    Shape(type="mor", version=6),
    Shape(type="cow", version=8),
    Shape(type="mor", version=8, index="BLOOM"),
    Shape(type="mor", version=8, index="BUCKET"),
]
EACH = pytest.mark.parametrize(
    "shape", SHAPES, ids=lambda s: f"v{s.version}-{s.type}-{s.index.lower()}"
)
START = [("k0", "a", 5, 0), ("k1", "a", 5, 1), ("k2", "b", 5, 2)]


def filled(shape: Shape) -> QuickTable:
    table = new_table(shape)
    table.upsert(rows(shape, START), options=shape.options)
    return table


@contextmanager
def unchanged(table: QuickTable, kind: type[LakewrightError], told: str) -> Iterator[None]:
    """Expect an error with a hint, and the same bytes afterwards."""
    before = table.files()
    with pytest.raises(kind, match=told) as caught:
        yield
    assert caught.value.hint
    assert table.files() == before


@EACH
def test_repeated_keys_are_refused_where_they_must_not_be_combined(shape: Shape) -> None:
    table = filled(shape)
    more = {"hoodie.combine.before.upsert": "false"}
    twice = rows(shape, [("k0", "a", 6, 1), ("k9", "a", 6, 1), ("k0", "a", 7, 2)])
    with unchanged(table, InputError, "1 rows have the key of another row"):
        table.upsert(twice, options=shape.options | more)
    once = rows(shape, [("k0", "a", 6, 1), ("k0", "b", 6, 1)])
    assert table.upsert(once, options=shape.options | more).ignored == 0
    assert table.upsert(twice, options=shape.options).ignored == 0


@EACH
def test_rows_without_an_ordering_value_are_refused_with_a_sample(shape: Shape) -> None:
    table = filled(shape)
    bad = rows(shape, [("k0", "a", None, 1), ("k1", "a", 6, 1), ("k9", "b", None, 1)])
    with unchanged(table, InputError, "ts has no value in 2 of 3 rows"):
        table.upsert(bad, options=shape.options)


def test_rows_without_an_ordering_value_are_welcome_where_none_is_needed() -> None:
    for version in (6, 8):
        shape = Shape(version=version, merging="commit")
        table = filled(shape)
        assert table.upsert(rows(shape, [("k0", "a", None, 7)]), options=shape.options).updated == 1


@EACH
def test_rows_without_the_ordering_column_are_refused(shape: Shape) -> None:
    table = filled(shape)
    bad = rows(shape, [("k0", "a", 6, 1)]).drop_columns(["ts"])
    with unchanged(table, InputError, "ts has no value in 1 of 1 rows"):
        table.upsert(bad, options=shape.options)


@EACH
@pytest.mark.parametrize(
    ("column", "array", "told"),
    [
        ("ts", pa.array(["soon"]), "Column ts is int64"),
        ("v", pa.array([b"x"]), "Column v is int64"),
        ("id", pa.array([[1]]), "Column id is string"),
        (FLAG, pa.array(["yes"]), f"Column {FLAG} is bool"),
    ],
)
def test_wrong_types_are_refused(shape: Shape, column: str, array: pa.Array, told: str) -> None:
    table = filled(shape)
    good = rows(shape, [("k0", "a", 6, 1)])
    bad = good.set_column(good.schema.get_field_index(column), column, array)
    with unchanged(table, SchemaError, told):
        table.upsert(bad, options=shape.options)


@EACH
def test_rows_without_a_key_are_refused(shape: Shape) -> None:
    table = filled(shape)
    good = rows(shape, [("k0", "a", 6, 1), ("k3", "a", 6, 1)])
    for bad, told in ((None, "Column id has 1 nulls"), ("", "null or empty in 1 of 2 rows")):
        with unchanged(table, InputError, told):
            keys = pa.array([bad, "x"])
            table.upsert(good.set_column(0, "id", keys), options=shape.options)


# ---- indexes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["INMEMORY", "HBASE", "SMPLE"])
def test_indexes_that_are_not_offered_are_refused(index: str) -> None:
    shape = Shape()
    table = filled(shape)
    for verb in verbs(shape):
        with unchanged(table, OptionError, index):
            verb(table, {"hoodie.index.type": index})


def verbs(shape: Shape) -> list[Callable[[QuickTable, dict[str, str]], Any]]:
    given = rows(shape, [("k0", "a", 6, 1)])
    return [
        lambda table, options: table.upsert(given, options=options),
        lambda table, options: table.delete(given.select(["id", "p"]), options=options),
        lambda table, options: table.delete(where="ts = 5", options=options),
    ]


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_the_number_of_buckets_must_be_known_and_right(type_: str) -> None:
    shape = Shape(type=type_, index="BUCKET")
    table = filled(shape)
    count = "hoodie.bucket.index.num.buckets"
    for verb in verbs(shape):
        with unchanged(table, OptionError, "number of buckets is not known"):
            verb(table, {"hoodie.index.type": "BUCKET"})
        with unchanged(table, OptionError, "none of 1 buckets"):
            verb(table, shape.options | {count: "1"})
        with unchanged(table, OptionError, "bucket_count"):
            verb(table, shape.options | {count: "0"})
        with unchanged(table, OptionError, "file groups are buckets"):
            verb(table, {"hoodie.index.type": "SIMPLE"})


def test_a_bucket_index_does_not_come_to_files_that_are_none() -> None:
    shape = Shape()
    table = filled(shape)
    for verb in verbs(shape):
        with unchanged(table, OptionError, "is none of 2 buckets"):
            verb(table, Shape(index="BUCKET").options)


# ---- deletes -----------------------------------------------------------------------------------


@EACH
def test_a_delete_takes_either_keys_or_a_filter(shape: Shape) -> None:
    table = filled(shape)
    with unchanged(table, InputError, "either keys or a filter"):
        table.delete(options=shape.options)
    keys = pa.table({"id": ["k0"], "p": ["a"]})
    with unchanged(table, InputError, "either keys or a filter"):
        table.delete(keys, where="ts = 5", options=shape.options)


@EACH
@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"id": ["k0"]}, "lack p"),
        ({"p": ["a"]}, "lack id"),
        ({"x": [1]}, "lack id, p"),
        ({"_hoodie_record_key": ["k0"]}, "lack _hoodie_partition_path"),
        ({"_hoodie_record_key": ["k0", None], "_hoodie_partition_path": ["a", "a"]}, "1 keys"),
        ({"id": ["k0", None], "p": ["a", "a"]}, "null or empty in 1 of 2 rows"),
    ],
)
def test_keys_to_delete_that_are_not_whole_are_refused(
    shape: Shape, keys: dict[str, list[Any]], told: str
) -> None:
    table = filled(shape)
    with unchanged(table, InputError, told):
        table.delete(pa.table(keys), options=shape.options)


@EACH
def test_keys_to_delete_of_wrong_types_are_refused(shape: Shape) -> None:
    table = filled(shape)
    with unchanged(table, SchemaError, "Column id"):
        table.delete(pa.table({"id": [[1]], "p": ["a"]}), options=shape.options)


@EACH
def test_filters_of_columns_that_are_not_there_are_refused(shape: Shape) -> None:
    table = filled(shape)
    with unchanged(table, LakewrightError, "tz"):
        table.delete(where="tz < 5", options=shape.options)


# ---- tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, 8])
def test_generated_keys_can_be_deleted_by_a_filter_only(version: int) -> None:
    shape = Shape(version=version)
    table = new_table(shape)
    spec = NewTable(
        name="t", schema=shape.schema, version=version, partition_fields=("p",), ordering_fields=()
    )
    for path in table.files():
        table.storage.delete(path)
    create_table(table.storage, spec, clock=table.clock, random=SeededRandom(1))
    table.append(rows(shape, START))
    given = rows(shape, [("k0", "a", 6, 1)])
    with unchanged(table, ConfigError, "no key fields"):
        table.upsert(given)
    with unchanged(table, ConfigError, "no key fields"):
        table.delete(given.select(["id", "p"]))
    assert table.delete(where="v = 1").deleted == 1
    stored = table.scan(columns=["_hoodie_record_key", "_hoodie_partition_path"]).to_arrow()
    assert table.delete(stored.slice(0, 1)).deleted == 1
    assert table.scan().to_arrow().num_rows == 1


@EACH
def test_a_file_group_that_is_about_to_be_clustered_is_left_alone(shape: Shape) -> None:
    table = filled(shape)
    plan_clustering(table, "a")
    table._sole_writer = True
    given = rows(shape, [("k1", "a", 6, 1), ("k2", "b", 6, 1)])
    for write in (
        lambda: table.upsert(given, options=shape.options),
        lambda: table.delete(given.select(["id", "p"]), options=shape.options),
        lambda: table.delete(where="v = 1", options=shape.options),
    ):
        with unchanged(table, ConflictError, "about to be clustered"):
            write()
    elsewhere = rows(shape, [("k2", "b", 6, 1)])
    assert table.upsert(elsewhere, options=shape.options).updated == 1


def plan_clustering(table: QuickTable, partition: str) -> None:
    """A pending clustering of all file groups of a partition."""
    listing = table.snapshot().opened.listing
    view = table.snapshot().view(listing.files(listing.partitions()))
    slices = [
        SliceInfo(partition_path=partition, file_id=s.group.file_id)
        for s in view.latest_slices()
        if s.group.partition == partition
    ]
    version = table.properties.version
    request = RequestedReplaceMetadata(
        operation_type="CLUSTER",
        clustering_plan=ClusteringPlan(input_groups=[ClusteringGroup(slices=slices)]),
    )
    action = "clustering" if version.number == 8 else "replacecommit"
    table.clock.advance(1)
    now = format_time(table.clock.now_ms(), zone=UTC)
    table.clock.advance(1)
    name = f"{table.properties.timeline_folder}/{now}.{action}.requested"
    table.storage.replace(name, request.write(version))
