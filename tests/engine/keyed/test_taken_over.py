"""Row groups in which nothing changes are taken over by new versions of their files."""

from __future__ import annotations

from io import BytesIO

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from lakewright.codec.parquet import open_parquet
from lakewright.engine import base_file
from lakewright.merge.state import LogState
from tests.engine.keyed.tables import QuickTable, Shape, new_table, rows
from tests.engine.keyed.test_against_model import HISTORY, play, shapes

ALWAYS = 1 << 30


def file_of(table: QuickTable, instant: str | None) -> tuple[str, bytes]:
    assert instant is not None
    (stat,) = table.metadata(instant).write_stats
    assert stat.path is not None
    return stat.path, table.storage.read(stat.path)


def pages(data: bytes, group: int, column: str) -> bytes:
    file = open_parquet(data, path="")
    chunk = file.chunks[group][column]
    return data[chunk.begin : chunk.begin + chunk.size]


@pytest.mark.parametrize("verb", ["append", "upsert"])
@pytest.mark.parametrize("version", [6, 8])
def test_new_rows_leave_old_row_groups_as_they_are(
    monkeypatch: pytest.MonkeyPatch, version: int, verb: str
) -> None:
    monkeypatch.setattr(base_file, "KEPT_SHARE", ALWAYS)
    shape = Shape(version=version, partitioned=False)
    table = new_table(shape)
    first = [(f"k{i}", None, 1, i) for i in range(20)]
    _, old = file_of(table, table.upsert(rows(shape, first)).instant)
    more = rows(shape, [("new", None, 1, 100)])
    path, new = file_of(table, getattr(table, verb)(more).instant)
    file = pq.ParquetFile(BytesIO(new))
    assert [file.metadata.row_group(i).num_rows for i in range(2)] == [20, 1]
    for column in ("id", "v", "_hoodie_commit_time", "_hoodie_commit_seqno"):
        assert pages(new, 0, column) == pages(old, 0, column)
    found = file.read()
    assert set(found["_hoodie_file_name"].to_pylist()) == {path.rpartition("/")[2]}
    assert found["v"].to_pylist() == [*range(20), 100]
    # One row group changes, the other one does not; nor do columns of the one that does.
    path, newest = file_of(table, table.upsert(rows(shape, [("k3", None, 2, -3)])).instant)
    assert pages(newest, 1, "v") == pages(new, 1, "v")
    assert pages(newest, 0, "v") != pages(new, 0, "v")
    for column in ("id", "_hoodie_record_key", "_hoodie_partition_path"):
        assert pages(newest, 0, column) == pages(new, 0, column)
    found = pq.read_table(BytesIO(newest))
    assert found["v"].to_pylist() == [0, 1, 2, -3, *range(4, 20), 100]
    assert set(found["_hoodie_file_name"].to_pylist()) == {path.rpartition("/")[2]}


def test_columns_are_not_taken_over_where_rows_go_or_the_codec_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base_file, "KEPT_SHARE", ALWAYS)
    shape = Shape(partitioned=False)
    table = new_table(shape)
    first = [(f"k{i}", None, 1, i) for i in range(20)]
    _, old = file_of(table, table.upsert(rows(shape, first)).instant)
    gone = rows(shape, [("k3", None, 2, 0)]).select(["id", "ts"])
    _, less = file_of(table, table.delete(gone).instant)
    assert pages(less, 0, "id") != pages(old, 0, "id")
    change = rows(shape, [("k4", None, 2, 0)])
    codec = {"hoodie.parquet.compression.codec": "gzip"}
    _, other = file_of(table, table.upsert(change, options=codec).instant)
    metadata = pq.ParquetFile(BytesIO(other)).metadata.row_group(0)
    codecs = {metadata.column(i).compression for i in range(metadata.num_columns)}
    assert codecs == {"GZIP"}


@pytest.mark.parametrize("index", ["BLOOM", "SIMPLE"])
@pytest.mark.parametrize("version", [6, 8])
def test_rows_that_stay_are_not_merged_where_others_only_go(
    monkeypatch: pytest.MonkeyPatch, version: int, index: str
) -> None:
    monkeypatch.setattr(base_file, "KEPT_SHARE", ALWAYS)
    shape = Shape(version=version, index=index, partitioned=False)
    table = new_table(shape)
    table.upsert(rows(shape, [(f"k{i}", None, 1, i) for i in range(20)]))
    gone = rows(shape, [("k3", None, 2, 0), ("k19", None, 2, 0), ("none", None, 2, 0)])
    with monkeypatch.context() as patch:
        patch.setattr(LogState, "apply", None)
        done = table.delete(gone.select(["id", "ts"]))
    path, data = file_of(table, done.instant)
    (stat,) = table.metadata(str(done.instant)).write_stats
    assert (stat.num_writes, stat.num_deletes, stat.num_update_writes) == (18, 2, 0)
    found = pq.read_table(BytesIO(data))
    left = [i for i in range(20) if i not in (3, 19)]
    assert found["v"].to_pylist() == left
    assert found["id"].to_pylist() == [f"k{i}" for i in left]
    assert set(found["_hoodie_file_name"].to_pylist()) == {path.rpartition("/")[2]}


def test_small_row_groups_are_written_together() -> None:
    shape = Shape(partitioned=False)
    table = new_table(shape)
    for number in range(4):
        done = table.upsert(rows(shape, [(f"k{number}", None, 1, number)]))
    _, data = file_of(table, done.instant)
    assert pq.ParquetFile(BytesIO(data)).metadata.num_row_groups == 1


@pytest.mark.slow
@settings(max_examples=25)
@given(shapes(), HISTORY)
def test_histories_agree_with_the_model_when_everything_is_taken_over(
    shape: Shape, steps: list[tuple[str, list[object]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_file, "KEPT_SHARE", ALWAYS)
        play(shape, steps)
