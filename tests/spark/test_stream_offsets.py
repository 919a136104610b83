"""How a stream divides a table's history into batches; no Spark process runs here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pytest

import lakewright as lw
from lakewright.engine.change_offset import ChangeOffset
from lakewright.engine.change_range import scheme_of
from lakewright.errors import InstantNotFoundError, OptionError
from lakewright.format.instant import Instant
from lakewright.spark.request import ReadRequest
from lakewright.spark.schema import spark_schema
from tests.corpus import CommittedTable, committed_tables

pytest.importorskip("pyspark.sql.datasource", reason="the data source needs Spark 4")

from lakewright.spark.stream import LakewrightStreamReader

V6 = "v6_mor_pending_compaction_simple"
V8 = "v8_mor_pending_compaction_complex"
ARCHIVED = "v6_cow_archived_simple"


def committed(name: str) -> CommittedTable:
    return next(t for t in committed_tables() if t.name == name)


@pytest.fixture(params=[V6, V8])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return committed(request.param).unpack(tmp_path)


def reader(path: Path, **options: str) -> LakewrightStreamReader:
    schema = spark_schema(lw.Table.open(path).schema)
    return LakewrightStreamReader(ReadRequest.parse({"path": str(path), **options}), schema)


def commits(path: Path) -> list[Instant]:
    """Completed commits in the order in which a stream takes them."""
    table = lw.Table.open(path)
    order = list(table.timeline.commits().completed().instants)
    return sorted(order, key=lambda i: offset_of(table, i).time)


def offset_of(table: lw.Table, instant: Instant) -> ChangeOffset:
    scheme = scheme_of(table.properties)
    time = instant.requested_time if scheme == "requested" else instant.completion_time
    return ChangeOffset(scheme, str(time))


def offsets(path: Path) -> list[str]:
    table = lw.Table.open(path)
    return [str(offset_of(table, instant)) for instant in commits(path)]


def walked(stream: LakewrightStreamReader, start: dict[str, str] | None = None) -> Iterator[str]:
    """The offsets at which batches end, until nothing is new."""
    at = start or stream.initialOffset()
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        yield end["offset"]
        at = end


def versions(rows: pa.Table | pa.RecordBatch) -> list[tuple[str, str]]:
    """Which version of which row, of every row."""
    keys = rows.column("_hoodie_record_key").to_pylist()
    return list(zip(keys, rows.column("_hoodie_commit_time").to_pylist(), strict=True))


def hide(path: Path, instant: Instant, beside: Path) -> None:
    """Take the completed file of an instant away: it is pending again."""
    (found,) = path.rglob(instant.file_name)
    shutil.move(found, beside / instant.file_name)


def show(path: Path, instant: Instant, beside: Path) -> None:
    layout1 = not (path / ".hoodie" / "timeline").exists()
    folder = path / ".hoodie" if layout1 else path / ".hoodie" / "timeline"
    shutil.move(beside / instant.file_name, folder / instant.file_name)


def test_one_instant_per_batch_ends_at_every_commit(path: Path) -> None:
    assert list(walked(reader(path, max_instants_per_batch="1"))) == offsets(path)


def test_without_limits_everything_is_one_batch(path: Path) -> None:
    assert list(walked(reader(path))) == offsets(path)[-1:]


def test_a_limit_of_bytes_still_takes_one_instant(path: Path) -> None:
    assert list(walked(reader(path, max_bytes_per_batch="1"))) == offsets(path)
    assert list(walked(reader(path, max_bytes_per_batch="1000000000"))) == offsets(path)[-1:]


def test_a_limit_counts_from_where_the_batch_begins(path: Path) -> None:
    every = offsets(path)
    ends = list(walked(reader(path, max_instants_per_batch="2"), {"offset": every[0]}))
    steps = [b - a for a, b in pairwise([0, *map(every.index, ends)])]
    assert ends[-1] == every[-1]
    assert steps[:-1] == [2] * (len(steps) - 1)
    assert steps[-1] in (1, 2)


def test_the_limit_is_off_where_spark_asks_for_everything(path: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    stream = reader(path, max_instants_per_batch="1")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert end["offset"] == offsets(path)[-1]


def test_a_spark_that_does_not_say_where_a_batch_begins_is_never_led_back(path: Path) -> None:
    restarted = reader(path, max_instants_per_batch="1")
    assert restarted.latestOffset()["offset"] == offsets(path)[-1]
    fresh = reader(path, max_instants_per_batch="1")
    fresh.initialOffset()
    assert fresh.latestOffset()["offset"] == offsets(path)[0]


def test_version_6_waits_for_a_pending_write_and_later_ones_do_not(
    path: Path, tmp_path: Path
) -> None:
    every, order = offsets(path), commits(path)
    hide(path, order[1], tmp_path)
    stream = reader(path)
    before = list(walked(stream))
    waits = every[0].startswith("requested:")
    assert before == (every[:1] if waits else every[-1:])
    show(path, order[1], tmp_path)
    assert list(walked(stream, {"offset": before[-1]})) == (every[-1:] if waits else [])


def test_an_instant_that_one_listing_missed_is_left_to_the_next_batch(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every, order = offsets(path), commits(path)
    now = lw.Table.open(path).timeline
    missed = {order[-1].requested_time}
    earlier = now.filter(lambda i: i.requested_time not in missed)
    stream = reader(path)
    with monkeypatch.context() as patch:
        patch.setattr(lw.Table, "timeline", property(lambda _: earlier))
        assert list(walked(stream)) == every[-2:-1]
    assert list(walked(stream, {"offset": every[-2]})) == every[-1:]


def test_a_run_of_what_is_available_ends_where_it_began_to_look(path: Path, tmp_path: Path) -> None:
    every, order = offsets(path), commits(path)
    hide(path, order[-1], tmp_path)
    stream = reader(path, max_instants_per_batch="1")
    stream.prepareForTriggerAvailableNow()
    show(path, order[-1], tmp_path)
    assert list(walked(stream)) == every[:-1]


def test_a_stream_begins_where_it_is_told_to(path: Path) -> None:
    every = offsets(path)
    assert list(walked(reader(path, since="latest"))) == []
    time = every[0].partition(":")[2]
    assert list(walked(reader(path, since=time, max_instants_per_batch="1"))) == every[1:]
    assert list(walked(reader(path, since=every[0], max_instants_per_batch="1"))) == every[1:]


def test_offsets_of_the_other_scheme_are_refused(path: Path) -> None:
    scheme, _, time = offsets(path)[0].partition(":")
    other = {"requested": "completion", "completion": "requested"}[scheme]
    stream = reader(path)
    with pytest.raises(OptionError, match="changed its version"):
        stream.latestOffset({"offset": f"{other}:{time}"}, None)
    with pytest.raises(OptionError, match="changed its version"):
        stream.partitions({"offset": f"{other}:{time}"}, {"offset": f"{other}:{time}9"})


def test_partitions_of_neighbouring_batches_are_planned_for_themselves(path: Path) -> None:
    table = lw.Table.open(path)
    stream = reader(path)
    start = stream.initialOffset()["offset"]
    for begin, end in pairwise([start, *offsets(path)]):
        planned = stream.partitions({"offset": begin}, {"offset": end})
        rows = sum(b.num_rows for p in planned for b in stream.read(p))
        assert rows == table.changes(begin, end).count()


def test_nothing_is_read_where_the_table_was_restored_to_an_earlier_state(path: Path) -> None:
    first, last = offsets(path)[0], offsets(path)[-1]
    assert reader(path).partitions({"offset": last}, {"offset": first}) == []


def test_a_new_stream_takes_lost_history_from_the_snapshot(tmp_path: Path) -> None:
    path = committed(ARCHIVED).unpack(tmp_path)
    stream = reader(path, max_instants_per_batch="1")
    at = stream.initialOffset()
    pairs: list[tuple[str, str]] = []
    for end in walked(stream):
        planned = stream.partitions(at, {"offset": end})
        pairs += [pair for p in planned for b in stream.read(p) for pair in versions(b)]
        at = {"offset": end}
    snapshot = lw.Table.open(path).scan().to_arrow()
    assert len(pairs) == len(set(pairs))
    assert dict(sorted(pairs, key=itemgetter(1))).items() >= dict(versions(snapshot)).items()


def test_a_stream_that_fell_behind_fails_unless_it_may_skip_versions(tmp_path: Path) -> None:
    path = committed(ARCHIVED).unpack(tmp_path)
    begin, end = {"offset": "requested:1"}, {"offset": offsets(path)[-1]}
    with pytest.raises(InstantNotFoundError, match="no longer there") as caught:
        reader(path).partitions(begin, end)
    assert "missing_history" in str(caught.value)
    lenient = reader(path, missing_history="latest")
    rows = sum(b.num_rows for p in lenient.partitions(begin, end) for b in lenient.read(p))
    assert rows == lw.Table.open(path).scan().count()


@pytest.mark.parametrize("option", ["as_of", "until"])
def test_a_stream_has_no_end(path: Path, option: str) -> None:
    with pytest.raises(OptionError, match="no end"):
        reader(path, **{option: "20250101000000000"})
