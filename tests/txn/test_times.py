"""Instant times: greater than everything on the timeline, whatever clocks and zones do."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import ConfigError
from lakewright.format.instant import Instant, State
from lakewright.format.instant_times import format_time
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.runtime import ManualClock
from lakewright.txn.times import BEHIND_MS_MAX, next_time

START_MS = 1_760_000_000_000


def properties(version: int = 8) -> TableProperties:
    return TableProperties(
        {
            "hoodie.table.name": "t",
            "hoodie.table.version": str(version),
            "hoodie.table.timeline.timezone": "UTC",
        }
    )


def timeline(*times: int) -> Timeline:
    pairs = [(format_time(t, zone=UTC), format_time(t + 1, zone=UTC)) for t in times]
    return Timeline.of(
        Instant(t, "commit", State.COMPLETED, done, f"{t}_{done}.commit") for t, done in pairs
    )


@given(st.lists(st.integers(-BEHIND_MS_MAX + 10, BEHIND_MS_MAX - 10), max_size=5))
def test_a_time_is_greater_than_all_that_are_known(offsets: list[int]) -> None:
    known = timeline(*(START_MS + offset for offset in offsets))
    found = next_time(known, properties(), ManualClock(START_MS))
    assert all(found > i.requested_time and found > (i.completion_time or "") for i in known)
    assert len(found) == 17


def test_a_clock_that_is_hours_behind_is_refused() -> None:
    with pytest.raises(ConfigError, match="clock"):
        next_time(timeline(START_MS + BEHIND_MS_MAX + 1000), properties(), ManualClock(START_MS))


def test_completion_times_of_files_say_nothing_about_order_at_version_6() -> None:
    late = Instant("20250101000000000", "commit", State.COMPLETED, "29990101000000000", "x")
    found = next_time(Timeline.of([late]), properties(6), ManualClock(START_MS))
    assert found == format_time(START_MS, zone=UTC)


def test_the_hour_that_daylight_saving_repeats_keeps_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zone = ZoneInfo("Europe/Berlin")
    monkeypatch.setattr(TableProperties, "timeline_zone", property(lambda self: zone))
    before = int(datetime(2025, 10, 26, 2, 30, tzinfo=zone).timestamp() * 1000)
    known = format_time(before, zone=zone)
    stored = Timeline.of([Instant(known, "commit", State.COMPLETED, str(int(known) + 5), "x")])
    clock = ManualClock(before + 35 * 60_000)
    assert format_time(clock.now_ms(), zone=zone) < known
    assert next_time(stored, properties(), clock) > str(int(known) + 5)
