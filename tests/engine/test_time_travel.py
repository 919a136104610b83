"""Time travel on real tables: bounds, savepoints, and refusals that say what can be read."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

import lakewright as lw
from lakewright.errors import InstantNotFoundError, OptionError
from tests.fixtures import SHARED_ABSENT, shared_tables, unpack

TABLES = {t.id: t for t in shared_tables()}
pytestmark = pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)


def table(name: str, tmp_path: Path) -> lw.Table:
    shared = next(t for i, t in TABLES.items() if i.startswith(name))
    return lw.Table.open(unpack(shared, tmp_path))


def test_each_commit_shows_only_rows_written_up_to_it(tmp_path: Path) -> None:
    trips = table("mor_v6_trips_8i1u", tmp_path)
    times = trips.inspect.commits()["requested_time"].to_pylist()
    assert len(times) >= 2
    for time in times:
        rows = trips.scan(as_of=time).to_arrow()
        assert max(rows["_hoodie_commit_time"].to_pylist()) <= time
    latest = trips.scan(as_of=times[-1]).to_arrow()
    assert sorted(latest["_hoodie_commit_seqno"].to_pylist()) == sorted(
        trips.scan().to_arrow()["_hoodie_commit_seqno"].to_pylist()
    )


def test_a_datetime_means_the_same_as_its_instant(tmp_path: Path) -> None:
    trips = table("mor_v6_trips_8i1u", tmp_path)
    first = trips.inspect.commits()["requested_time"][0].as_py()
    moment = datetime.strptime(first + "000", "%Y%m%d%H%M%S%f")
    by_time = trips.scan(as_of=moment).to_arrow()
    assert by_time.num_rows == trips.scan(as_of=first).to_arrow().num_rows == 8


def test_a_moment_before_the_first_commit_is_refused(tmp_path: Path) -> None:
    trips = table("mor_v6_trips_8i1u", tmp_path)
    with pytest.raises(InstantNotFoundError) as caught:
        trips.scan(as_of="2001-01-01")
    assert "Read a moment from" in caught.value.hint


@pytest.mark.parametrize("said", ["yesterday", "2025-13-01", "12", "savepoint:latest"])
def test_words_that_name_no_moment_are_refused(said: str, tmp_path: Path) -> None:
    with pytest.raises(InstantNotFoundError):
        table("mor_v6_trips_8i1u", tmp_path).scan(as_of=said)


def test_unknown_columns_and_modes_are_refused_with_the_nearest_name(tmp_path: Path) -> None:
    trips = table("mor_v6_trips_8i1u", tmp_path)
    with pytest.raises(OptionError, match="rider"):
        trips.scan(columns=["ridr"])
    with pytest.raises(OptionError, match="snapshot"):
        trips.scan(mode="fast")  # type: ignore[arg-type]
    with pytest.raises(OptionError):
        trips.scan(limit=-1)
