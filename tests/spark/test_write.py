"""Writing tables from DataFrames: what readers see after each verb, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it

import lakewright as lw
from lakewright.errors import (
    CancelledError,
    ConfigError,
    InputError,
    LockRequiredError,
    OptionError,
    SchemaError,
)
from lakewright.runtime import CancelToken
from lakewright.spark import SparkTable, write_verbs
from tests.spark.rows import spark_rows
from tests.spark.tables import ORDERS, real_table
from tests.spark.written import EVERY_TYPE, data, files, keys, new_table, setting, state

EACH = pytest.mark.parametrize(
    ("version", "type_"),
    [
        (8, "mor"),
        pytest.param(6, "cow", marks=pytest.mark.slow),
        pytest.param(6, "mor", marks=pytest.mark.slow),
        pytest.param(8, "cow", marks=pytest.mark.slow),
    ],
)


def orders(spark: SparkSession, first: int, last: int, tasks: int = 3) -> DataFrame:
    """Rows of three partitions, in any order."""
    return spark.range(first, last, 1, tasks).selectExpr(
        "nullif(concat('k', id), '') AS id", "concat('c', id % 3) AS city", "id AS n"
    )


@pytest.fixture
def by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no append be too small for tasks."""
    monkeypatch.setattr(write_verbs, "INLINE_ROWS", -1)


# ---- rows ----------------------------------------------------------------------------------------


@EACH
def test_every_type_comes_back_from_every_kind_of_table(
    spark: SparkSession, tmp_path: Path, version: int, type_: str
) -> None:
    with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
        frame = spark.sql(EVERY_TYPE)
        st = new_table(spark, tmp_path / "t", frame, version=version, type=type_)
        done = st.bulk_insert(frame)
    assert (done.operation, done.inserted, done.attempts) == ("bulk_insert", 60, 1)
    assert spark_rows(st.read(meta=False)) == data(st)
    assert spark_rows(spark.sql(EVERY_TYPE)) == data(st)
    last = st.table.timeline.commits().completed().last()
    assert last is not None and last.action == ("commit" if type_ == "cow" else "deltacommit")


@pytest.mark.parametrize("road", ["tasks", pytest.param("inline", marks=pytest.mark.slow)])
def test_an_append_fills_small_files_and_adds_the_rest(
    spark: SparkSession, tmp_path: Path, road: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if road == "tasks":
        monkeypatch.setattr(write_verbs, "INLINE_ROWS", -1)
    st = new_table(spark, tmp_path / "t", orders(spark, 0, 1))
    st.bulk_insert(orders(spark, 0, 4, tasks=1))
    done = st.append(orders(spark, 4, 300))
    assert (done.inserted, done.files) == (296, 3)
    assert keys(st) == sorted(f"k{i}" for i in range(300))
    groups = st.table.scan(columns=["_hoodie_file_name"]).to_arrow()[0].unique()
    assert len(groups) == 3
    assert spark_rows(st.read(meta=False)) == spark_rows(orders(spark, 0, 300))


@pytest.mark.slow
def test_an_append_of_many_places_puts_every_row_into_one_of_them(
    spark: SparkSession, tmp_path: Path, by_tasks: None
) -> None:
    st = new_table(spark, tmp_path / "t", orders(spark, 0, 1))
    sized = lw.WriteOptions.of(insert_auto_split=False, insert_split_size=40, small_file_limit=0)
    done = st.append(orders(spark, 0, 900), options=sized)
    assert keys(st) == sorted(f"k{i}" for i in range(900))
    table = st.table.scan(columns=["_hoodie_file_name", "city"]).to_arrow()
    sizes = table.group_by(["_hoodie_file_name", "city"]).aggregate([([], "count_all")])
    assert sizes.num_rows == done.files == 24  # 300 rows of each partition, 40 in a file
    assert max(sizes["count_all"].to_pylist()) < 80


@pytest.mark.slow
def test_an_append_of_many_partitions_takes_few_tasks(
    spark: SparkSession, tmp_path: Path, by_tasks: None
) -> None:
    rows = spark.range(0, 200).selectExpr("concat('k', id) AS id", "concat('p', id % 40) AS city")
    st = new_table(spark, tmp_path / "t", rows)
    assert st.append(rows).files == 40
    more = rows.selectExpr("concat('more', id) AS id", "city")
    assert st.append(more).files == 40
    assert len(keys(st)) == len(set(keys(st))) == 400
    names = st.table.scan(columns=["_hoodie_file_name"]).to_arrow()[0].unique().to_pylist()
    assert len(names) == 40
    assert len({name.split("_")[1].split("-")[0] for name in names}) == 8  # four tasks per core


def test_rows_that_change_with_every_look_are_written_once(
    spark: SparkSession, tmp_path: Path, by_tasks: None
) -> None:
    rows = spark.range(100).select(F.expr("uuid()").alias("id"), F.expr("'x'").alias("city"))
    st = new_table(spark, tmp_path / "t", rows)
    assert st.append(rows).inserted == 100
    assert len(set(keys(st))) == 100
    assert not spark.sparkContext._jsc.getPersistentRDDs()


@pytest.mark.slow
def test_keys_that_spark_cannot_form_are_formed_in_python(
    spark: SparkSession, tmp_path: Path, by_tasks: None
) -> None:
    rows = spark.range(0, 50, 1, 2).selectExpr("id / 3 AS id", "id * 86400 AS city", "id AS n")
    st = new_table(
        spark,
        tmp_path / "t",
        rows,
        partition=["city:TIMESTAMP"],
        time_settings={"timestamp.type": "UNIX_TIMESTAMP", "output.dateformat": "yyyy/MM"},
    )
    first = st.append(rows, options={"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"})
    st.bulk_insert(rows, options={"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"})
    assert first.inserted == 50
    assert data(st) == sorted(spark_rows(rows) * 2)
    paths = st.table.scan(columns=["_hoodie_partition_path"]).to_arrow()[0].unique()
    assert sorted(paths.to_pylist()) == ["1970/01", "1970/02"]


@pytest.mark.slow
def test_generated_keys_never_repeat(spark: SparkSession, tmp_path: Path, by_tasks: None) -> None:
    rows = orders(spark, 0, 90)
    st = new_table(spark, tmp_path / "t", rows, key=[])
    st.bulk_insert(rows)
    st.append(rows)
    assert len(set(keys(st))) == 180
    assert data(st) == sorted(spark_rows(rows) * 2)


def test_columns_are_added_and_meta_columns_left_out(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(spark, 0, 9)
    st = new_table(spark, tmp_path / "t", rows)
    st.bulk_insert(rows)
    again = st.read().withColumn("id", F.concat("id", F.lit("b"))).withColumn("more", F.lit(1))
    st.append(again)
    assert st.table.schema.field("more").type == pa.int32()
    assert keys(st) == sorted([f"k{i}" for i in range(9)] + [f"k{i}b" for i in range(9)])


@pytest.mark.slow
@pytest.mark.parametrize("said", [None, "7000"])
def test_workers_get_more_rows_at_once_unless_the_session_says_how_many(
    spark: SparkSession, tmp_path: Path, said: str | None
) -> None:
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            n = pa.array([batch.num_rows] * batch.num_rows)
            yield pa.RecordBatch.from_arrays([batch["id"], n], ["id", "n"])

    rows = spark.range(0, 30_000, 1, 1).mapInArrow(counted, "id long, n long")
    st = new_table(spark, tmp_path / "t", rows, partition=[])
    with setting(spark, key, said) if said else nullcontext():
        st.bulk_insert(rows)
        assert spark.conf.get(key) == (said or "10000")
    sizes = st.table.scan(columns=["n"]).to_arrow()["n"].unique().to_pylist()
    assert sizes == ([7000, 2000] if said else [30_000])


# ---- order ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["GLOBAL_SORT", "PARTITION_SORT"])
def test_rows_are_sorted_by_path_and_key(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    rows = orders(spark, 0, 300).orderBy(F.expr("hash(id)"))
    st = new_table(spark, tmp_path / "t", rows)
    how = {"hoodie.bulkinsert.sort.mode": mode, "hoodie.bulkinsert.shuffle.parallelism": "2"}
    st.bulk_insert(rows, options=how)
    found = files(st, "id")
    assert all(file == sorted(file) for file in found)
    every = [row for file in found for row in file]
    assert every == sorted(every) or mode == "PARTITION_SORT"
    assert len(found) in ((4,) if mode == "GLOBAL_SORT" else (6, 3))


@pytest.mark.slow
def test_rows_are_sorted_by_columns_also_inside_of_structs(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = orders(spark, 0, 90).withColumn("s", F.expr("named_struct('v', if(n = 7, null, -n))"))
    st = new_table(spark, tmp_path / "t", rows, partition=[])
    st.bulk_insert(
        rows, options={"hoodie.bulkinsert.user.defined.partitioner.sort.columns": "s.v,n"}
    )
    found = [row[1]["v"] for file in files(st, "s") for row in file]
    assert found == [*sorted(v for v in found if v is not None), None]
    with pytest.raises(OptionError, match=r"s\.w"):
        st.bulk_insert(rows, options=lw.WriteOptions.of(sort_columns=("s.w",)))
    assert len(keys(st)) == 90


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("PARTITION_PATH_REPARTITION", marks=pytest.mark.slow),
        "PARTITION_PATH_REPARTITION_AND_SORT",
    ],
)
def test_a_partition_is_written_by_one_task(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    st = new_table(spark, tmp_path / "t", orders(spark, 0, 1))
    done = st.bulk_insert(orders(spark, 0, 90), options={"hoodie.bulkinsert.sort.mode": mode})
    assert done.files == 3
    assert keys(st) == sorted(f"k{i}" for i in range(90))


# ---- replacing -----------------------------------------------------------------------------------


def test_partitions_and_whole_tables_are_replaced(spark: SparkSession, tmp_path: Path) -> None:
    st = new_table(spark, tmp_path / "t", orders(spark, 0, 1))
    st.bulk_insert(orders(spark, 0, 9))
    done = st.overwrite(st.read().where("city = 'c1'").withColumn("n", F.lit(-1).cast("long")))
    assert done.replaced_file_groups == 3
    assert sorted(st.read().select("n").toPandas()["n"]) == [-1, -1, -1, 0, 2, 3, 5, 6, 8]
    st.overwrite(orders(spark, 100, 101), whole_table=True)
    assert keys(st) == ["k100"]
    st.bulk_insert(orders(spark, 0, 3))
    st.delete_partition("c1")
    assert keys(st) == ["k0", "k2"]


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verb",
    [
        "append",
        pytest.param("bulk_insert", marks=pytest.mark.slow),
        pytest.param("overwrite", marks=pytest.mark.slow),
    ],
)
def test_null_keys_reach_the_caller_with_count_and_sample(
    spark: SparkSession, tmp_path: Path, verb: str, by_tasks: None
) -> None:
    st = new_table(spark, tmp_path / "t", orders(spark, 0, 1))
    st.bulk_insert(orders(spark, 0, 9))
    before = state(st)
    bad = orders(spark, 0, 9, tasks=1).withColumn("id", F.expr("if(n < 7, null, id)"))
    with pytest.raises(InputError) as refused:
        getattr(st, verb)(bad)
    assert refused.value.context["rows"] in (2, 3, 7)
    assert "n=" in str(refused.value.context["sample"])
    assert state(st) == before


def test_rows_that_do_not_fit_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(spark, 0, 9)
    st = new_table(spark, tmp_path / "t", rows)
    st.bulk_insert(rows)
    before = state(st)
    with pytest.raises(SchemaError, match="Column n"):
        st.append(rows.withColumn("n", F.lit("text")))
    with pytest.raises(SchemaError, match=r"Column span\b.*interval"):
        st.append(rows.withColumn("span", F.expr("interval '1' month")))
    with pytest.raises(InputError, match="DataFrame"):
        st.append(pa.table({"id": ["k"]}))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="write_stream"):
        st.append(spark.readStream.format("rate").load())
    assert state(st) == before


def test_two_attempts_at_once_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(spark, 0, 9)
    st = new_table(spark, tmp_path / "t", rows)
    spark.sparkContext._conf.set("spark.speculation", "true")
    try:
        with pytest.raises(ConfigError, match=r"spark\.speculation"):
            st.bulk_insert(rows)
    finally:
        spark.sparkContext._conf.set("spark.speculation", "false")
    assert not st.table.timeline.instants


def test_a_table_of_others_needs_their_lock(spark: SparkSession, tmp_path: Path) -> None:
    path = real_table(ORDERS, tmp_path)
    rows = SparkTable.open(spark, path).read(meta=False).limit(1)
    with pytest.raises(LockRequiredError):
        SparkTable.open(spark, path).bulk_insert(rows)


def test_a_write_that_is_taken_back_ends_soon_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    started, ended = tmp_path / "started", tmp_path / "ended"

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        yield from batches
        started.touch()
        while not ended.exists():
            time.sleep(0.05)

    st = new_table(spark, tmp_path / "t", orders(spark, 0, 1))
    rows = orders(spark, 0, 9, tasks=1)
    cancel = CancelToken()
    before = state(st)

    def take_back() -> None:
        import time

        while not started.exists():
            time.sleep(0.05)
        cancel.cancel("enough")

    waiting = Thread(target=take_back)
    waiting.start()
    with pytest.raises(CancelledError, match="enough"):
        st.bulk_insert(rows.mapInArrow(wait, rows.schema), cancel=cancel)
    ended.touch()
    waiting.join()
    assert state(st) == before
