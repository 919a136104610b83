"""Changed rows of real tables: ranges, offsets, holes, cleaned files, filters."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakewright as lw
from lakewright.errors import InstantNotFoundError, OptionError, UnsupportedTableError
from tests.fixtures import SHARED_ABSENT, SharedTable, shared_tables, unpack
from tests.quickly import a_few_quickly
from tests.rows import canonical, table_rows

TABLES = [t for t in shared_tables() if t.rows is not None]
pytestmark = pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)

NO_META = "v6_simplekeygen_hivestyle_no_metafields"
WITH_META = [t for t in TABLES if t.table != NO_META]

Opened = Callable[[str], lw.Table]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    known: dict[str, lw.Table] = {}

    def open_(id_: str) -> lw.Table:
        if id_ not in known:
            shared = next(t for t in TABLES if t.id == id_)
            known[id_] = lw.Table.open(unpack(shared, tmp_path_factory.mktemp("table")))
        return known[id_]

    return open_


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a shared table that a test may change."""

    def copy(id_: str) -> Path:
        return unpack(next(t for t in TABLES if t.id == id_), tmp_path)

    return copy


def times(table: lw.Table) -> list[str]:
    """The times of the completed writes, in the table's own scheme."""
    by_completion = table.properties.version.incremental_by_completion_time
    done = table.timeline.commits().completed()
    found = [i.completion_time if by_completion else i.requested_time for i in done]
    return sorted(t for t in found if t is not None)


def commit_times(rows: pa.Table) -> set[str]:
    return set(rows["_hoodie_commit_time"].to_pylist())


VERSION = ["_hoodie_commit_seqno", "_hoodie_record_key"]
"""What tells the versions of rows apart."""


def versions(rows: pa.Table) -> list[tuple[str, str]]:
    return [(r[VERSION[0]], r[VERSION[1]]) for r in rows.select(VERSION).to_pylist()]


# ---- ranges ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", a_few_quickly(WITH_META, 4), ids=lambda t: t.id)
def test_all_changes_since_the_beginning_are_the_snapshot(
    shared: SharedTable, opened: Opened
) -> None:
    table = opened(shared.id)
    changed = table.changes(since="earliest").to_arrow()
    assert canonical(table_rows(changed)) == canonical(table_rows(table.scan().to_arrow()))


@pytest.mark.parametrize("shared", a_few_quickly(WITH_META, 4), ids=lambda t: t.id)
def test_ranges_one_after_the_other_tell_each_row_where_it_was_written(
    shared: SharedTable, opened: Opened
) -> None:
    table = opened(shared.id)
    offset: lw.ChangeOffset | None = None
    seen: list[tuple[str, str]] = []
    for time in times(table):
        changes = table.changes(offset, time)
        rows = changes.to_arrow()
        assert commit_times(rows) <= set(changes.range.requested_times)
        seen += versions(rows)
        assert changes.end.time == time
        offset = changes.end
    assert len(seen) == len(set(seen))
    assert set(versions(table.scan(columns=VERSION).to_arrow())) <= set(seen)
    assert table.changes(offset).to_arrow().num_rows == 0
    assert offset is None or table.changes(str(offset)).end == offset


@settings(max_examples=10)
@given(data=st.data())
@pytest.mark.parametrize(
    "id_", ["cow_v9_simple_meta:v9_txns_simple_meta", "mor_v8_trips_8i3u1d:v8_trips_8i3u1d"]
)
def test_wherever_a_history_is_cut_each_final_row_is_in_the_range_of_its_commit(
    opened: Opened, id_: str, data: st.DataObject
) -> None:
    table = opened(id_)
    every = times(table)
    cuts = sorted(data.draw(st.sets(st.sampled_from(every[:-1]), max_size=3)))
    final = set(versions(table.scan(columns=VERSION).to_arrow()))
    found: list[tuple[str, str]] = []
    for since, until in pairwise(["earliest", *cuts, every[-1]]):
        rows = table.changes(since, until, columns=VERSION).to_arrow()
        found += [version for version in versions(rows) if version in final]
    assert sorted(found) == sorted(final)


def test_an_instant_alone_is_asked_by_the_time_before_it(opened: Opened) -> None:
    table = opened("cow_v8_nonpartitioned:v8_nonpartitioned")
    first, second = times(table)
    assert table.changes(first, second).range.instants[0].completion_time == second
    assert table.changes(second).range.instants == ()
    assert table.changes(None, first).end == lw.ChangeOffset("completion", first)


def test_version_6_counts_requested_times(opened: Opened) -> None:
    table = opened("cow_v6_nonpartitioned:v6_nonpartitioned")
    assert str(table.changes().end) == f"requested:{times(table)[-1]}"
    with pytest.raises(OptionError, match="by requested time"):
        table.changes("completion:20250922132154428")


def test_a_range_that_ends_before_it_begins_is_refused(opened: Opened) -> None:
    table = opened("cow_v8_nonpartitioned:v8_nonpartitioned")
    first, second = times(table)
    with pytest.raises(OptionError, match="before it begins"):
        table.changes(second, first)


def test_archived_instants_are_read_from_the_latest_snapshot(opened: Opened) -> None:
    table = opened("mor_v8_services:hudi-v8-table-mor")
    changes = table.changes()
    plan = changes.plan()
    assert plan.source == "the latest snapshot"
    assert len(changes.range.archived) == 5
    assert "archived" in plan.warnings[0]
    active = table.changes(changes.range.begin, times(table)[-1])
    assert active.end == changes.end


# ---- what cannot be read -----------------------------------------------------------------------


def test_a_table_without_meta_columns_is_refused(opened: Opened) -> None:
    with pytest.raises(UnsupportedTableError, match="which commit wrote a row"):
        opened(f"cow_v6_no_metafields:{NO_META}").changes()


def test_words_that_are_not_known_are_refused(opened: Opened) -> None:
    table = opened("cow_v8_nonpartitioned:v8_nonpartitioned")
    with pytest.raises(OptionError, match="mode"):
        table.changes(mode="diff")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="images"):
        table.changes(images="xml")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="no column"):
        table.changes(columns=["nope"])
    with pytest.raises(UnsupportedTableError, match="keeps no change data"):
        table.changes(mode="cdc").to_arrow()


def test_an_empty_table_has_no_changes(opened: Opened) -> None:
    changes = opened("cow_v6_empty:v6_empty").changes()
    assert changes.to_arrow().num_rows == 0
    assert str(changes.end) == "requested:earliest"


def test_version_6_stops_before_a_pending_write(copied: Callable[[str], Path]) -> None:
    path = copied("cow_v6_nonpartitioned:v6_nonpartitioned")
    first, second = times(lw.Table.open(path))
    between = str(int(first) + 1)
    (path / ".hoodie" / f"{between}.commit.requested").touch()
    (path / ".hoodie" / f"{between}.inflight").touch()
    table = lw.Table.open(path)
    changes = table.changes()
    assert changes.end.time == first
    assert commit_times(changes.to_arrow()) == {first}
    assert f"stops before commit {between}" in changes.plan().warnings[-1]
    assert table.changes(None, first).to_arrow().num_rows == 3
    with pytest.raises(InstantNotFoundError, match="not settled"):
        table.changes(first, second)


def test_later_versions_do_not_mind_a_pending_write(copied: Callable[[str], Path]) -> None:
    path = copied("cow_v8_nonpartitioned:v8_nonpartitioned")
    whole = lw.Table.open(path).changes()
    between = str(int(whole.range.instants[0].requested_time) + 1)
    (path / ".hoodie" / "timeline" / f"{between}.commit.requested").touch()
    assert lw.Table.open(path).changes().end == whole.end


def test_a_cleaned_file_makes_the_snapshot_the_source(copied: Callable[[str], Path]) -> None:
    path = copied("cow_v8_nonpartitioned:v8_nonpartitioned")
    shutil.rmtree(path / ".hoodie" / "metadata", ignore_errors=True)
    table = lw.Table.open(path, options=lw.ReadOptions(use_metadata_table=False))
    first, second = table.timeline.commits().completed().instants
    before = table.changes(None, first.completion_time).to_arrow()
    for file in path.glob(f"*_{first.requested_time}.parquet"):
        file.unlink()
    changes = table.changes(None, first.completion_time)
    assert changes.plan().source == "the latest snapshot"
    rows = changes.to_arrow()
    assert commit_times(rows) == {first.requested_time}
    assert 0 < rows.num_rows < before.num_rows
    assert table.changes(first.completion_time, second.completion_time).to_arrow().num_rows


# ---- the result --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "id_",
    ["mor_v9_complex_meta:v9_txns_complex_meta", "mor_v6_services:hudi-v6-table-mor"],
)
def test_filters_and_projections_choose_from_the_same_rows(opened: Opened, id_: str) -> None:
    table = opened(id_)
    whole = table.changes().to_arrow()
    key = whole["_hoodie_record_key"][0].as_py()
    partition = whole["_hoodie_partition_path"][0].as_py()
    names = ["_hoodie_record_key", "_hoodie_file_name"]
    for where, mask in (
        (f"_hoodie_record_key = '{key}'", pc.equal(whole["_hoodie_record_key"], key)),
        (
            f"_hoodie_partition_path = '{partition}'",
            pc.equal(whole["_hoodie_partition_path"], partition),
        ),
    ):
        some = table.changes(columns=names, where=where).to_arrow()
        assert some.column_names == names
        assert canonical(some.to_pylist()) == canonical(
            whole.filter(mask).select(names).to_pylist()
        )


def test_a_result_is_an_arrow_stream_and_a_plan_is_printable(opened: Opened) -> None:
    changes = opened("mor_v8_trips_8i3u1d:v8_trips_8i3u1d").changes()
    rows = changes.to_arrow()
    streamed = pa.table(changes)
    assert streamed.schema.equals(rows.schema)
    assert canonical(streamed.to_pylist()) == canonical(rows.to_pylist())
    assert changes.to_reader().schema.equals(changes.schema)
    assert changes.count() == rows.num_rows == len(changes.to_pandas())
    plan = changes.plan()
    assert str(plan).startswith("changes of ")
    assert f"up to {changes.end}" in str(plan)
    told = plan.to_dict()
    assert told["end"] == str(changes.end)
    assert told["instants"] == list(changes.range.requested_times)
    assert plan.bytes > 0
