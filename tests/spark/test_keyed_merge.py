"""Merging DataFrames into tables: which clause acts on which row, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it

import lakewright as lw
from lakewright.errors import InputError, WriteConflictError
from lakewright.spark import (
    SparkTable,
    keyed_lookup,
    keyed_verbs,
    keyed_writer,
    when_matched_delete,
    when_matched_update,
    when_not_matched_insert,
)

TABLE = "id string, city string, ts long, n long, word string"


@pytest.fixture(params=[pytest.param("here", marks=pytest.mark.slow), "waiting"])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether rows come to the driver, or wait in tasks."""
    if request.param == "waiting":
        monkeypatch.setattr(keyed_verbs, "HERE_ROWS", -1)
        monkeypatch.setattr(keyed_writer, "LIGHT_BYTES", -1)
        monkeypatch.setattr(keyed_lookup, "HERE_BYTES", -1)
    return str(request.param)


def table(spark: SparkSession, path: Path, **choices: Any) -> SparkTable:
    """Ten rows of two partitions."""
    given = [(f"k{i}", f"c{i % 2}", 5, i, "old") for i in range(10)]
    rows = spark.createDataFrame(given, TABLE)
    chosen: dict[str, Any] = {"key": ["id"], "partition": ["city"], "ordering": ["ts"], **choices}
    st = SparkTable.create(spark, path, schema=rows.schema, **chosen)
    st.upsert(rows)
    return st


def changes(spark: SparkSession, *given: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(given), "id string, city string, op string, n long")


def content(st: SparkTable) -> dict[str, tuple[Any, ...]]:
    rows = st.table.scan(meta=False).to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["city"], row["ts"], row["n"], row["word"]) for row in rows}


@pytest.mark.parametrize(
    ("version", "type_"),
    [
        pytest.param(8, "mor", marks=pytest.mark.long),
        pytest.param(6, "cow", marks=pytest.mark.slow),
        pytest.param(8, "cow", marks=pytest.mark.slow),
        pytest.param(6, "mor", marks=pytest.mark.slow),
    ],
)
def test_the_first_clause_that_fits_acts(
    spark: SparkSession, tmp_path: Path, road: str, version: int, type_: str
) -> None:
    st = table(spark, tmp_path / "t", version=version, type=type_)
    wanted = content(st)
    source = changes(
        spark,
        ("k0", "c0", "D", 0),
        ("k1", "c1", "D", 100),
        ("k2", "c0", "U", 20),
        ("k3", "c1", "U", -1),
        ("k4", "c0", "X", 40),
        ("a", "c0", "I", 7),
        ("b", "c1", "I", None),
        ("c", "c1", "D", 9),
    )
    done = st.merge(
        source,
        when_matched_delete(where="source.op = 'D' and source.n < 50"),
        when_matched_update(
            {"n": "target.n + source.n", "word": F.lit("sum")}, where="source.n > 0"
        ),
        when_matched_update({"word": "concat(target.word, '!')"}, where=F.col("source.op") == "U"),
        when_not_matched_insert(
            {"id": "source.id", "city": "source.city", "ts": "1", "n": "source.n"},
            where="source.op = 'I'",
        ),
    )
    del wanted["k0"]
    wanted["k1"] = ("c1", 5, 101, "sum")
    wanted["k2"] = ("c0", 5, 22, "sum")
    wanted["k3"] = ("c1", 5, 3, "old!")
    wanted["k4"] = ("c0", 5, 44, "sum")
    wanted["a"] = ("c0", 1, 7, None)
    wanted["b"] = ("c1", 1, None, None)
    assert content(st) == wanted
    assert (done.operation, done.inserted, done.updated, done.deleted) == ("merge", 2, 4, 1)
    assert len(st.table.timeline.commits().completed().instants) == 2
    assert not spark.sparkContext._jsc.getPersistentRDDs()


@pytest.mark.slow
def test_all_columns_of_the_source_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    st = table(spark, tmp_path / "t")
    source = spark.createDataFrame(
        [("k1", "c1", 6, 11), ("new", "c1", 6, 12)], "id string, city string, ts long, N long"
    )
    st.merge(source, when_matched_update(), when_not_matched_insert())
    found = content(st)
    assert found["k1"] == ("c1", 6, 11, "old")
    assert found["new"] == ("c1", 6, 12, None)
    assert len(found) == 11


@pytest.mark.slow
def test_rows_meet_as_the_condition_says(spark: SparkSession, tmp_path: Path) -> None:
    st = table(spark, tmp_path / "t")
    source = spark.createDataFrame([(3, "x"), (99, "y")], "number long, word string")
    on = "target.n = source.number"
    st.merge(source, when_matched_update({"word": "source.word"}), on=on)
    assert content(st)["k3"] == ("c1", 5, 3, "x")
    assert len(content(st)) == 10
    st.merge(changes(spark, ("k3", "c0", "D", 1)), when_matched_delete(), on="id")
    assert "k3" not in content(st)  # by the key alone, in whatever partition


@pytest.mark.slow
def test_a_merge_in_which_nothing_happens_commits_as_the_option_says(
    spark: SparkSession, tmp_path: Path, road: str
) -> None:
    st = table(spark, tmp_path / "t")
    before, rows = st.table.timeline.instants, content(st)
    nothing, never = changes(spark, ("k1", "c1", "D", 1)), when_matched_delete(where="false")
    without = {"hoodie.allow.empty.commit": "false"}
    assert st.merge(nothing, never, options=without).instant is None
    assert st.merge(changes(spark), when_matched_delete(), options=without).instant is None
    assert st.table.timeline.instants == before
    done = st.merge(nothing, never)
    assert done.instant and (done.inserted, done.updated, done.deleted) == (0, 0, 0)
    assert content(st) == rows


@pytest.mark.slow
def test_rows_that_do_not_meet_in_pairs_are_refused(
    spark: SparkSession, tmp_path: Path, road: str
) -> None:
    st = table(spark, tmp_path / "t")
    before = content(st)
    twice = changes(spark, ("k1", "c1", "U", 1), ("k1", "c1", "U", 2))
    with pytest.raises(InputError, match="the same row of the table"):
        st.merge(twice, when_matched_update())
    with pytest.raises(InputError, match="the same row of the table"):
        st.merge(twice, when_matched_delete())
    new = changes(spark, ("x", "c1", "I", 1), ("x", "c1", "I", 2))
    with pytest.raises(InputError, match="the same row of the table"):
        st.merge(new, when_not_matched_insert({"id": "source.id", "city": "'c1'", "ts": "1"}))
    with pytest.raises(InputError, match="more than one row of the table"):
        st.merge(changes(spark, ("k1", "c1", "U", 1)), when_matched_update(), on=["city"])
    assert content(st) == before and not st.table.timeline.pending().instants


def test_clauses_that_cannot_be_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    st = table(spark, tmp_path / "t")
    source = changes(spark, ("k1", "c1", "U", 1))
    with pytest.raises(InputError, match="without clauses"):
        st.merge(source)
    with pytest.raises(InputError, match="no column m"):
        st.merge(source, when_matched_update({"m": "1"}))
    with pytest.raises(InputError, match="cannot change city"):
        st.merge(source, when_matched_update({"city": "'c0'"}))
    with pytest.raises(InputError, match="lacks id"):
        st.merge(source.drop("id"), when_matched_delete())
    with pytest.raises(InputError, match="DataFrame"):
        st.merge([1], when_matched_delete())  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_merge_conflicts_with_every_change_of_what_it_has_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    st = table(spark, tmp_path / "t")
    other = lw.Table.open(st.uri)
    seen: list[int] = []

    def overtake(_: Any) -> None:
        if not seen:
            other.delete(where="id = 'k8'")
        seen.append(1)

    source = changes(spark, ("k1", "c1", "U", 41))
    clause = when_matched_update({"n": "source.n"})
    with pytest.raises(WriteConflictError):
        st.merge(source, clause, validators=[overtake])
    assert content(st)["k1"] == ("c1", 5, 1, "old") and "k8" not in content(st)
    seen.clear()
    other.upsert(other.scan(where="id = 'k1'", meta=False).to_arrow())
    done = st.merge(source, clause, validators=[lambda _: seen.append(1)], retries=3)
    assert done.attempts == 1 and content(st)["k1"] == ("c1", 5, 41, "old")
