"""Writes from frames that are scans of Parquet files: workers read the files, or Spark does, and
the table is the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it

from lakewright.errors import ConfigError, CorruptFileError, InputError
from lakewright.runtime.events import Event
from lakewright.spark import SparkTable, parquet_scan, parquet_source
from lakewright.spark.parquet_scan import SWITCH, ScannedFile
from lakewright.spark.parquet_source import ParquetSource, Piece, PinnedFile, StoredGroup, divided
from lakewright.spark.write_frame import sent_schema
from lakewright.storage.local import LocalStorage
from lakewright.storage.resolve import StorageRef
from tests.spark.rows import spark_rows
from tests.spark.written import EVERY_TYPE, data, files, keys, new_table, setting, state

DIRECT = "write.input.files"
THROUGH_SPARK = "write.input.spark."
TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
CALENDAR = "spark.sql.parquet.datetimeRebaseModeInWrite"
COLUMNS = "id string, city string, n long"

Make = Callable[[SparkSession, Path], DataFrame]


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file be too small to be divided."""
    monkeypatch.setattr(parquet_source, "TASK_BYTES_MIN", 1)


def listening(
    spark: SparkSession, path: Path, frame: DataFrame, **choices: Any
) -> tuple[SparkTable, list[str]]:
    """A new table, and how the rows of each write to it came."""
    new_table(spark, path, frame, **choices)
    roads: list[str] = []

    def hear(event: Event) -> None:
        if event.kind.startswith("write.input."):
            roads.append(event.kind)

    return SparkTable.open(spark, path, on_event=hear), roads


def stored(folder: Path, rows: pa.Table, *, number: int = 2, group: int = 7) -> Path:
    """Rows in some files of small row groups, and a file without rows beside them."""
    folder.mkdir()
    each = -(-rows.num_rows // number)
    for i in range(number):
        part = rows.slice(i * each, each)
        pq.write_table(part, folder / f"{i}.parquet", row_group_size=group)
    pq.write_table(rows.slice(0, 0), folder / "none.parquet")
    return folder


def orders(count: int = 60) -> pa.Table:
    """Rows of three partitions."""
    ids = [f"k{i}" for i in range(count)]
    cities = [f"c{i % 3}" for i in range(count)]
    return pa.table({"id": ids, "city": cities, "n": range(count)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of orders."""
    return stored(tmp_path / "in", orders())


# ---- the same tables -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("writer", "partition"), [("spark", ["city"]), ("arrow", [])])
def test_every_type_is_written_as_through_spark(
    spark: SparkSession, tmp_path: Path, writer: str, partition: list[str]
) -> None:
    source = str(tmp_path / "in")
    rows = spark.sql(EVERY_TYPE)
    kept = {"id": F.lit("null"), "city": F.col("city")}
    nulls = [kept.get(f.name, F.lit(None).cast(f.dataType)).alias(f.name) for f in rows.schema]
    with setting(spark, TIMESTAMPS, "TIMESTAMP_MICROS"):
        rows.union(rows.limit(1).select(nulls)).repartition(3, "id").write.parquet(source)
    if writer == "arrow":
        source = str(stored(tmp_path / "arrow", pq.read_table(source)))
    frame = spark.read.parquet(source)
    st, roads = listening(spark, tmp_path / "t", frame, partition=partition)
    assert st.bulk_insert(frame).inserted == 61
    other, _ = listening(spark, tmp_path / "other", frame, partition=partition)
    with setting(spark, SWITCH, "false"):
        other.bulk_insert(frame)
    assert roads == [DIRECT]
    assert data(st) == data(other) == spark_rows(frame)
    assert keys(st) == keys(other)
    assert st.table.schema == other.table.schema


@pytest.mark.slow
def test_columns_are_chosen_and_files_read_as_often_as_they_are_named(
    spark: SparkSession, tmp_path: Path, folder: Path
) -> None:
    again = str(folder / "0.parquet")
    frame = spark.read.parquet(again, again).select("n", "id")
    st, roads = listening(spark, tmp_path / "t", frame, partition=[])
    st.bulk_insert(frame)
    assert roads == [DIRECT]
    assert data(st) == spark_rows(frame)
    assert len(keys(st)) == 60 and len(set(keys(st))) == 30


def test_files_of_tables_are_read_without_their_meta_columns(
    spark: SparkSession, tmp_path: Path, folder: Path
) -> None:
    frame = spark.read.parquet(str(folder))
    st, _ = listening(spark, tmp_path / "t", frame)
    st.bulk_insert(frame)
    copied = spark.read.parquet(*map(str, (tmp_path / "t").glob("c*/*.parquet")))
    copy, roads = listening(spark, tmp_path / "copy", frame)
    copy.bulk_insert(copied)
    assert roads == [DIRECT]
    assert data(copy) == data(st)


@pytest.mark.slow
def test_overwriting_reads_files_too_and_files_without_rows_write_none(
    spark: SparkSession, tmp_path: Path, folder: Path
) -> None:
    frame = spark.read.parquet(str(folder))
    st, roads = listening(spark, tmp_path / "t", frame)
    st.bulk_insert(frame)
    one = spark.read.parquet(str(folder / "1.parquet"))
    assert st.overwrite(one, whole_table=True).inserted == 30
    assert not st.bulk_insert(spark.read.parquet(str(folder / "none.parquet"))).inserted
    assert roads == [DIRECT] * 3
    assert keys(st) == sorted(f"k{i}" for i in range(30, 60))


def test_rows_are_sorted_within_tasks(spark: SparkSession, tmp_path: Path, folder: Path) -> None:
    frame = spark.read.parquet(str(folder))
    st, roads = listening(spark, tmp_path / "t", frame)
    done = st.bulk_insert(frame, options={"hoodie.bulkinsert.sort.mode": "PARTITION_SORT"})
    found = files(st, "id")
    assert roads == [DIRECT]
    assert len(found) == done.files == 6  # one task per core, three partitions
    assert all(file == sorted(file) for file in found)
    assert data(st) == spark_rows(frame)


@pytest.mark.slow
def test_the_number_of_tasks_follows_the_cores_or_what_was_asked_for(
    spark: SparkSession, tmp_path: Path, folder: Path
) -> None:
    frame = spark.read.parquet(str(folder))
    st, roads = listening(spark, tmp_path / "t", frame, partition=[])
    assert st.bulk_insert(frame).files == 4  # two per core
    three = {"hoodie.bulkinsert.shuffle.parallelism": "3"}
    assert st.bulk_insert(frame, options=three).files == 3
    assert roads == [DIRECT] * 2
    assert data(st) == sorted(spark_rows(frame) * 2)


# ---- what Spark reads itself ---------------------------------------------------------------------


def derived(make: Callable[[DataFrame], DataFrame]) -> Make:
    """A frame made of the scan."""
    return lambda spark, folder: make(spark.read.parquet(str(folder)))


def told(**options: str) -> Make:
    """A scan with options."""
    return lambda spark, folder: spark.read.options(**options).parquet(str(folder))


def of_schema(schema: str) -> Make:
    """A scan that is told its columns."""
    return lambda spark, folder: spark.read.schema(schema).parquet(str(folder))


def with_file(rows: pa.Table) -> Make:
    """A scan with another file beside the others."""

    def made(spark: SparkSession, folder: Path) -> DataFrame:
        pq.write_table(rows, folder / "2.parquet")
        return spark.read.schema(COLUMNS).parquet(str(folder))

    return made


def by_spark(key: str, value: str, expression: str) -> Make:
    """A scan of files with one column more, which Spark wrote under a setting."""

    def made(spark: SparkSession, folder: Path) -> DataFrame:
        frame = spark.read.parquet(str(folder)).withColumn("more", F.expr(expression))
        with setting(spark, key, value):
            frame.write.parquet(str(folder / "more"))
        return spark.read.parquet(str(folder / "more"))

    return made


def in_partitions(spark: SparkSession, folder: Path) -> DataFrame:
    """A scan with a column that only the folders have."""
    spark.read.parquet(str(folder)).write.partitionBy("city").parquet(str(folder / "more"))
    return spark.read.parquet(str(folder / "more"))


def with_nothing(spark: SparkSession, folder: Path) -> DataFrame:
    """A scan with a file that has no bytes."""
    (folder / "2.parquet").touch()
    return spark.read.schema(COLUMNS).parquet(str(folder))


def of_catalog(spark: SparkSession, folder: Path) -> DataFrame:
    """A table of Spark's catalog."""
    spark.sql("drop table if exists listed")
    spark.sql(f"create table listed using parquet location '{folder}'")
    return spark.table("listed")


def touched(spark: SparkSession, folder: Path) -> DataFrame:
    """A scan of files that were changed after Spark had listed them."""
    frame = spark.read.parquet(str(folder))
    os.utime(folder / "1.parquet", (0, 0))
    return frame


LESS = orders(1).drop_columns(["n"])
NARROW = orders(1).set_column(2, "n", pa.array([1], pa.int32()))
QUICK = ("filter", "changed", "INT96", "one is narrower")
REFUSED: dict[str, tuple[str, Make]] = {
    "filter": ("not_a_scan", derived(lambda f: f.where("n > 3"))),
    "expression": ("not_a_scan", derived(lambda f: f.withColumn("n", F.col("n") + 1))),
    "renamed": ("not_a_scan", derived(lambda f: f.withColumnRenamed("n", "m"))),
    "limit": ("not_a_scan", derived(lambda f: f.limit(5))),
    "union": ("not_a_scan", derived(lambda f: f.union(f))),
    "moved": ("not_a_scan", derived(lambda f: f.repartition(2))),
    "kept": ("not_a_scan", derived(lambda f: f.cache())),
    "about files": ("not_a_scan", derived(lambda f: f.select("id", "_metadata"))),
    "not a file": ("not_a_scan", derived(lambda f: f.sparkSession.range(3).selectExpr("id"))),
    "catalog": ("not_a_scan", of_catalog),
    "merged schemas": ("options", told(mergeSchema="true")),
    "chosen files": ("options", told(pathGlobFilter="*.parquet")),
    "partition folders": ("partitioned", in_partitions),
    "no bytes": ("no_data_files", with_nothing),
    "changed": ("changed", touched),
    "missing column": ("names", of_schema(f"{COLUMNS}, more string")),
    "other case": ("names", of_schema("ID string, city string, n long")),
    "one lacks a column": ("names", with_file(LESS)),
    "one is narrower": ("types", with_file(NARROW)),
    "INT96": ("types", by_spark(TIMESTAMPS, "INT96", "timestamp'2020-01-01 00:00:00'")),
    "old calendar": ("legacy_calendar", by_spark(CALENDAR, "LEGACY", "date'1500-01-01'")),
    "old dates": ("values", by_spark(CALENDAR, "CORRECTED", "date'1500-01-01'")),
}


def verdict(frame: DataFrame, folder: Path) -> str:
    """Why workers may not read the files of a frame; nothing if they may."""
    ref = StorageRef(str(folder / "t"))
    found = parquet_source.parquet_source(frame, sent_schema(frame.schema), ref)
    return found if isinstance(found, str) else ""


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c in QUICK else (pytest.mark.slow,)) for c in REFUSED]
)
def test_everything_but_a_plain_scan_is_left_to_spark(
    spark: SparkSession, folder: Path, case: str
) -> None:
    reason, make = REFUSED[case]
    assert verdict(spark.read.parquet(str(folder)), folder) == ""
    assert verdict(make(spark, folder), folder) == reason


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_left_to_spark_is_written_as_spark_reads_it(
    spark: SparkSession, tmp_path: Path, folder: Path, case: str
) -> None:
    reason, make = REFUSED[case]
    frame = make(spark, folder)
    st, roads = listening(spark, tmp_path / "t", frame, key=[frame.columns[0]], partition=[])
    st.bulk_insert(frame)
    assert roads == [THROUGH_SPARK + reason]
    assert data(st) == spark_rows(frame)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (SWITCH, "false", "switched_off"),
        ("spark.sql.files.ignoreCorruptFiles", "true", "options"),
        ("spark.sql.files.ignoreMissingFiles", "true", "options"),
        ("spark.sql.parquet.mergeSchema", "true", "options"),
        ("spark.sql.parquet.fieldId.read.enabled", "true", "options"),
        ("spark.sql.sources.useV1SourceList", "", "not_a_scan"),
    ],
)
def test_settings_of_the_session_count(
    spark: SparkSession, folder: Path, key: str, value: str, reason: str
) -> None:
    with setting(spark, key, value):
        assert verdict(spark.read.parquet(str(folder)), folder) == reason
    with setting(spark, SWITCH, "maybe"), pytest.raises(ConfigError, match=SWITCH):
        verdict(spark.read.parquet(str(folder)), folder)


@pytest.mark.slow
def test_rows_that_move_and_too_many_files_come_through_spark(
    spark: SparkSession, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.read.parquet(str(folder))
    st, roads = listening(spark, tmp_path / "t", frame)
    st.bulk_insert(frame, options={"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"})
    assert roads == [THROUGH_SPARK + "sort_mode"]
    assert data(st) == spark_rows(frame)
    monkeypatch.setattr(parquet_scan, "FILES_MAX", 2)
    assert verdict(frame, folder) == "many_files"


def test_files_are_opened_only_where_the_table_can(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.read.parquet(str(folder))
    schema, table = sent_schema(frame.schema), StorageRef("s3://bucket/t", provider="mine")
    size, modified = (folder / "0.parquet").stat().st_size, (folder / "0.parquet").stat().st_mtime
    listed: list[ScannedFile] = []
    monkeypatch.setattr(parquet_source, "scanned_files", lambda _: tuple(listed))
    monkeypatch.setattr(StorageRef, "open", lambda _: LocalStorage(folder))

    def found(*uris: str) -> ParquetSource | str:
        listed[:] = [ScannedFile(uri, size, int(modified) * 1000) for uri in uris]
        return parquet_source.parquet_source(frame, schema, table)

    own = found("s3a://bucket/0.parquet")
    assert isinstance(own, ParquetSource) and own.files == 1
    assert own.storage == StorageRef("s3://bucket", provider="mine")
    assert found("s3a://other/0.parquet") == "elsewhere"
    assert found("s3a://bucket/0.parquet", "file:/0.parquet") == "elsewhere"
    assert found("hdfs://host/0.parquet") == "elsewhere"
    assert found("s3a://bucket/gone.parquet") == "unreadable"


# ---- what changes meanwhile ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_file_that_changes_before_it_is_read_stops_the_write(
    spark: SparkSession, tmp_path: Path, folder: Path, how: str
) -> None:
    frame = spark.read.parquet(str(folder))
    new_table(spark, tmp_path / "t", frame).bulk_insert(frame)
    file = folder / "1.parquet"

    def change(event: Event) -> None:
        if event.kind == DIRECT and how == "gone":
            file.unlink()
        elif event.kind == DIRECT:
            pq.write_table(orders(1), file)

    st = SparkTable.open(spark, tmp_path / "t", on_event=change)
    before = state(st)
    with pytest.raises(InputError, match=rf"1\.parquet has {how}"):
        st.bulk_insert(frame)
    assert state(st) == before


def pinned(file: Path) -> PinnedFile:
    found = file.stat()
    return PinnedFile(str(file).lstrip("/"), found.st_size, found.st_mtime_ns // 1_000_000)


def test_a_file_that_changes_while_it_is_read_gives_an_error_instead_of_its_end(
    folder: Path,
) -> None:
    file = folder / "0.parquet"
    source = ParquetSource(StorageRef("/"), ("n",), ((Piece(pinned(file), (0, 2)),),))
    numbers = [n for batch in source.batches(0) for n in batch["n"].to_pylist()]
    assert numbers == [*range(7), *range(14, 21)]
    reading = source.batches(0)
    next(reading)
    os.utime(file, (0, 0))
    with pytest.raises(InputError, match="changed"):
        list(reading)


def test_a_damaged_file_is_told_from_a_changed_one(folder: Path) -> None:
    file = folder / "0.parquet"
    file.write_bytes(file.read_bytes()[:-1])
    source = ParquetSource(StorageRef("/"), ("n",), ((Piece(pinned(file), (0,)),),))
    with pytest.raises(CorruptFileError):
        list(source.batches(0))


# ---- tasks ---------------------------------------------------------------------------------------


@given(
    some.lists(some.tuples(some.integers(0, 3), some.integers(1, 1000)), min_size=1, max_size=40),
    some.integers(1, 12),
)
def test_row_groups_are_divided_evenly_and_stay_in_order(
    sizes: list[tuple[int, int]], tasks: int
) -> None:
    sizes.sort(key=lambda pair: pair[0])
    groups, seen = [], dict.fromkeys(range(4), 0)
    for file, size in sizes:
        pin = PinnedFile(str(file), 1, 1)
        groups.append(StoredGroup(pin, seen[file], size))
        seen[file] += 1
    shares = divided(groups, tasks)
    given_out = [(p.file, i) for share in shares for p in share for i in p.row_groups]
    assert given_out == [(group.file, group.index) for group in groups]
    size = {(group.file, group.index): group.size for group in groups}
    largest, total = max(size.values()), sum(size.values())
    assert len(shares) <= tasks
    for share in shares:
        own = sum(size[p.file, i] for p in share for i in p.row_groups)
        assert own <= total / tasks + largest
