"""Upserts and deletes on Spark: what they leave is what the engine leaves without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it

import lakewright as lw
from lakewright.engine.write_result import WriteResult
from lakewright.errors import ConfigError, InputError, SchemaError, WriteConflictError
from lakewright.spark import SparkTable, keyed_lookup, keyed_verbs, keyed_writer
from lakewright.spark.write_frame import sent_schema
from tests.spark.rows import arrow_rows, spark_rows
from tests.spark.written import data, keys, setting, state

COLUMNS = "id string, city string, ts long, n long, word string, _hoodie_is_deleted boolean"
Rows = Sequence[tuple[Any, ...]]


def rows(seed: int, count: int, keys: int, *, deletes: float = 0.1, wanders: bool = False) -> Rows:
    """Rows with repeated keys, in any order of time, some of them deletes.

    Keys that wander are not always in the same partition.
    """
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, keys, count).tolist()
    return [
        (
            f"k{i}",
            f"c{(rng.integers(0, 3) if wanders else i) % 3}",
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
        ours = self.here.upsert(self.frame(given), **how)
        return self.compare(ours, self.plain.upsert(self.arrow(given), **how))

    def upsert_wider(self, given: Rows, **how: Any) -> WriteResult:
        """Rows with a column that the table may not have yet."""
        ours = self.here.upsert(self.frame(given).withColumn("more", F.lit(7)), **how)
        sevens = pa.array([7] * len(given), pa.int32())
        wider = self.arrow(given).append_column("more", sevens)
        return self.compare(ours, self.plain.upsert(wider, **how))

    def delete(self, given: Rows, **how: Any) -> WriteResult:
        ours = self.here.delete(self.frame(given), **how)
        return self.compare(ours, self.plain.delete(self.arrow(given), **how))

    def delete_where(self, where: str, **how: Any) -> WriteResult:
        ours = self.here.delete(where=where, **how)
        return self.compare(ours, self.plain.delete(where=where, **how))

    def compare(self, ours: WriteResult, theirs: WriteResult) -> WriteResult:
        told = [
            (r.operation, r.inserted, r.updated, r.deleted, r.ignored, r.files)
            for r in (ours, theirs)
        ]
        assert told[0] == told[1]
        names = [n for n in self.plain.schema.names if not n.startswith("_hoodie_commit")]
        names.remove("_hoodie_file_name")
        found = [t.scan(columns=names).to_arrow() for t in (self.here.table, self.plain)]
        assert arrow_rows(found[0]) == arrow_rows(found[1])
        return ours


@pytest.fixture
def by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be too small for tasks."""
    _use_tasks(monkeypatch)
    monkeypatch.setattr(keyed_verbs, "HERE_ROWS", -1)
    monkeypatch.setattr(keyed_verbs, "HERE_BYTES", -1)
    monkeypatch.setattr(keyed_verbs, "COLLECTED_BYTES", -1)


def _use_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_writer, "LIGHT_BYTES", -1)
    monkeypatch.setattr(keyed_lookup, "HERE_BYTES", -1)


@pytest.fixture(
    params=["waiting", *(pytest.param(r, marks=pytest.mark.slow) for r in ("sent", "here"))]
)
def road(request: pytest.FixtureRequest) -> str:
    """How rows travel: from the tasks that have them, from the driver, or not at all."""
    if request.param == "waiting":
        request.getfixturevalue("by_tasks")
    elif request.param == "sent":
        _use_tasks(request.getfixturevalue("monkeypatch"))
    return str(request.param)


# ---- the same as without Spark -------------------------------------------------------------------

INDEXES: dict[str, dict[str, str]] = {
    "simple": {"hoodie.index.type": "SIMPLE"},
    "bloom": {"hoodie.index.type": "BLOOM"},
    "global": {"hoodie.index.type": "GLOBAL_SIMPLE"},
    "global-bloom": {"hoodie.index.type": "GLOBAL_BLOOM"},
    "bucket": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"},
}
EACH = pytest.mark.parametrize(
    ("version", "type_", "index"),
    [
        (version, type_, index)
        for version in (6, 8)
        for type_ in ("cow", "mor")
        for index in INDEXES
    ],
)


@pytest.mark.slow
@EACH
def test_changes_by_tasks_leave_what_the_engine_leaves(
    spark: SparkSession, tmp_path: Path, by_tasks: None, version: int, type_: str, index: str
) -> None:
    twins = Twins(spark, tmp_path, version=version, type=type_)
    options = INDEXES[index]
    wanders = index.startswith("global")
    twins.upsert(rows(1, 300, 200), options=options)
    twins.upsert(rows(2, 200, 300, wanders=wanders), options=options)
    twins.upsert_wider(rows(3, 60, 300, wanders=wanders), options=options)
    twins.delete(rows(4, 50, 400), options=options)
    twins.delete_where("n < 100000", options=options)
    twins.upsert_wider(rows(5, 100, 400, deletes=0.5), options=options)


@pytest.mark.slow
def test_changes_leave_the_same_by_every_road(
    spark: SparkSession, tmp_path: Path, road: str
) -> None:
    twins = Twins(spark, tmp_path, type="mor" if road == "sent" else "cow", partition=[])
    twins.upsert(rows(1, 300, 200))
    twins.upsert(rows(2, 100, 300))
    twins.delete(rows(3, 50, 400))


@pytest.mark.slow
@pytest.mark.parametrize("road", ["waiting", "sent"], indirect=True)
@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_some_columns_are_changed_by_every_road(
    spark: SparkSession, tmp_path: Path, road: str, version: int, type_: str
) -> None:
    twins = Twins(spark, tmp_path, version=version, type=type_)
    twins.upsert(rows(1, 100, 80, deletes=0))
    given = rows(2, 60, 80, deletes=0)
    keys_only = twins.frame(given).select("id", "city", "ts", "word")
    ours = twins.here.upsert(keys_only, columns=["word"])
    plain = twins.arrow(given).select(["id", "city", "ts", "word"])
    twins.compare(ours, twins.plain.upsert(plain, columns=["word"]))


@pytest.mark.slow
@pytest.mark.parametrize("road", ["waiting", "sent"], indirect=True)
@pytest.mark.parametrize("index", ["simple", "global"])
def test_rows_that_a_payload_builds_are_merged_in_tasks(
    spark: SparkSession, tmp_path: Path, road: str, index: str
) -> None:
    payload = "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"
    twins = Twins(spark, tmp_path, version=6, type="mor", payload_class=payload)
    twins.upsert(rows(1, 100, 30, deletes=0), options=INDEXES[index])
    twins.upsert(rows(2, 100, 60, deletes=0), options=INDEXES[index])


def test_a_key_that_a_record_index_forgot_lives_once(
    spark: SparkSession, tmp_path: Path, by_tasks: None
) -> None:
    twins = Twins(spark, tmp_path, type="mor", version=8)
    forgetful = {
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.parquet.small.file.limit": "0",
    }
    given = rows(1, 30, 20, deletes=0)
    twins.upsert(given, options=forgetful)
    gone = [given[0], given[1]]
    twins.delete(gone, options=forgetful)
    back = [(*row[:2], 50, *row[3:]) for row in gone]
    assert twins.upsert(back, options=forgetful).inserted == len({row[0] for row in gone})
    simple = {**forgetful, "hoodie.index.type": "SIMPLE"}
    again = [(*row[:2], 60, *row[3:]) for row in gone]
    assert twins.upsert(again, options=simple).inserted == 0
    found = keys(twins.here)
    assert len(found) == len({*found}) == len({row[0] for row in given})


# ---- how rows come -------------------------------------------------------------------------------


@pytest.mark.long
def test_rows_of_parquet_files_are_read_where_they_are_needed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use_tasks(monkeypatch)
    monkeypatch.setattr(keyed_verbs, "HERE_BYTES", -1)
    told: list[str] = []
    st = SparkTable.create(
        spark,
        tmp_path / "t",
        schema=sent_schema(Twins(spark, tmp_path).frame([]).schema),
        key=["id"],
        partition=["city"],
        ordering=["ts"],
        on_event=lambda event: told.append(event.kind),
    )
    given = Twins.arrow(Twins(spark, tmp_path / "x"), rows(1, 500, 400, deletes=0))
    pq.write_table(given, tmp_path / "rows.parquet", row_group_size=100)
    st.upsert(spark.read.parquet(str(tmp_path / "rows.parquet")))
    assert "write.input.files" in told
    plain = lw.Table.create(
        tmp_path / "other", schema=given.schema, key=["id"], partition=["city"], ordering=["ts"]
    )
    plain.upsert(given)
    assert data(st) == arrow_rows(plain.scan(meta=False).to_arrow())


def test_rows_that_change_with_every_look_are_written_once(
    spark: SparkSession, tmp_path: Path, by_tasks: None
) -> None:
    random = spark.range(0, 300, 1, 3).selectExpr("uuid() AS id", "'x' AS city", "id AS ts")
    st = SparkTable.create(
        spark, tmp_path / "t", schema=random.schema, key=["id"], partition=["city"]
    )
    assert st.upsert(random).inserted == 300
    assert len(set(keys(st))) == 300
    assert not spark.sparkContext._jsc.getPersistentRDDs()


@pytest.mark.slow
def test_keys_that_spark_cannot_form_are_formed_in_python(
    spark: SparkSession, tmp_path: Path, by_tasks: None
) -> None:
    given = spark.range(0, 50, 1, 2).selectExpr("id / 3 AS id", "id * 86400 AS city", "id AS n")
    st = SparkTable.create(
        spark,
        tmp_path / "t",
        schema=given.schema,
        key=["id"],
        partition=["city:TIMESTAMP"],
        time_settings={"timestamp.type": "UNIX_TIMESTAMP", "output.dateformat": "yyyy/MM"},
    )
    st.upsert(given)
    assert st.upsert(given.withColumn("n", -F.col("n"))).updated == 50
    assert sorted(st.table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == [*range(-49, 1)]


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.slow
def test_bad_rows_reach_the_caller_and_leave_the_table_as_it_was(
    spark: SparkSession, tmp_path: Path, road: str
) -> None:
    twins = Twins(spark, tmp_path)
    st, good = twins.here, rows(1, 30, 30, deletes=0)
    st.upsert(twins.frame(good))
    before = state(st)
    bad = twins.frame(good)
    with pytest.raises(InputError) as no_key:
        st.upsert(bad.withColumn("id", F.expr("if(n % 2 = 0, null, id)")))
    assert no_key.value.context["rows"]
    with pytest.raises(InputError, match="ordering field ts"):
        st.upsert(bad.withColumn("ts", F.lit(None).cast("long")))
    with pytest.raises(SchemaError, match="Column n"):
        st.upsert(bad.withColumn("n", F.lit("text")))
    with pytest.raises(InputError, match="lack city"):
        st.delete(bad.select("id"))
    once = {"hoodie.combine.before.upsert": "false"}
    with pytest.raises(InputError, match="key of another row"):
        st.upsert(bad.union(bad), options=once)
    with pytest.raises(InputError, match="either keys or a filter"):
        st.delete()
    assert state(st) == before
    assert not spark.sparkContext._jsc.getPersistentRDDs()


def test_tables_without_keys_are_not_changed_by_key(spark: SparkSession, tmp_path: Path) -> None:
    twins = Twins(spark, tmp_path, key=[])
    with pytest.raises(ConfigError, match="no key fields"):
        twins.here.upsert(twins.frame(rows(1, 3, 3)))


@pytest.mark.slow
def test_a_write_that_another_one_overtook_is_done_again_if_asked_for(
    spark: SparkSession, tmp_path: Path, by_tasks: None
) -> None:
    twins = Twins(spark, tmp_path, type="cow")
    twins.upsert(rows(1, 30, 30, deletes=0))
    other = lw.Table.open(twins.here.uri)
    overtaken: list[int] = []

    def overtake(_: Any) -> None:
        if not overtaken:
            overtaken.append(1)
            other.upsert(twins.arrow([("new", "c0", 1, -1, "other", False)]))

    row = [("new", "c0", 2, -2, "ours", False)]
    with pytest.raises(WriteConflictError):
        twins.here.upsert(twins.frame(row), validators=[overtake])
    overtaken.clear()
    again = [("newer", "c0", 2, -3, "ours", False)]
    done = twins.here.upsert(twins.frame(again), validators=[overtake], retries=2)
    assert done.attempts in (1, 2)
    assert keys(twins.here).count("new") == keys(twins.here).count("newer") == 1


@pytest.fixture
def eager(spark: SparkSession) -> Iterator[None]:
    """Rows come through Spark, whatever they are."""
    with setting(spark, "spark.lakewright.directParquet", "false"):
        yield


@pytest.mark.slow
def test_rows_that_are_gone_meanwhile_are_refused(
    spark: SparkSession, tmp_path: Path, by_tasks: None, eager: None
) -> None:
    from lakewright.spark.keyed_rows import KeptRows

    twins = Twins(spark, tmp_path)
    real = KeptRows.split

    def lose(self: KeptRows, routes: Any) -> Any:
        self.kept.unpersist(blocking=True)
        return real(self, routes)

    anew = F.udf(lambda: int.from_bytes(os.urandom(6), "big"), "long").asNondeterministic()
    random = twins.frame(rows(1, 50, 50)).withColumn("n", anew())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeptRows, "split", lose)
        with pytest.raises(InputError, match="other rows"):
            twins.here.upsert(random)
    assert not keys(twins.here) and not twins.here.table.timeline.pending().instants
    assert spark_rows(twins.here.read(meta=False)) == []
