"""Names of instant files in both layouts, and the moments behind instant times."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import FormatError, InstantNotFoundError
from lakewright.format.instant import (
    Instant,
    State,
    completed_action,
    format_instant_name,
    parse_instant_name,
)
from lakewright.format.instant_times import (
    LOCAL_ZONE,
    as_of_time,
    format_time,
    parse_time,
    time_ms,
)

T, C = "20250922133042572", "20250922133043986"
REQUESTED, INFLIGHT, COMPLETED = State
SAME = ["deltacommit", "replacecommit", "clean", "rollback", "restore", "indexing", "schemacommit"]

LAYOUT_1 = {
    f"{T}.commit.requested": ("commit", REQUESTED),
    f"{T}.inflight": ("commit", INFLIGHT),
    f"{T}.commit": ("commit", COMPLETED),
    f"{T}.savepoint.inflight": ("savepoint", INFLIGHT),
    f"{T}.savepoint": ("savepoint", COMPLETED),
    **{f"{T}.{a}.requested": (a, REQUESTED) for a in [*SAME, "compaction", "logcompaction"]},
    **{f"{T}.{a}.inflight": (a, INFLIGHT) for a in [*SAME, "compaction", "logcompaction"]},
    **{f"{T}.{a}": (a, COMPLETED) for a in SAME},
}
LAYOUT_2 = {
    **{name: said for name, said in LAYOUT_1.items() if said[1] is not COMPLETED},
    f"{T}.clustering.requested": ("clustering", REQUESTED),
    f"{T}.clustering.inflight": ("clustering", INFLIGHT),
    **{f"{T}_{C}.{a}": (a, COMPLETED) for a in [*SAME, "commit", "savepoint"]},
}


@pytest.mark.parametrize(
    ("layout", "name", "action", "state"),
    [(1, n, a, s) for n, (a, s) in LAYOUT_1.items()]
    + [(2, n, a, s) for n, (a, s) in LAYOUT_2.items()],
)
def test_every_name_of_a_layout_is_read_and_written(
    layout: int, name: str, action: str, state: State
) -> None:
    parsed = parse_instant_name(name, layout)
    completion_time = C if layout == 2 and state is COMPLETED else None
    assert parsed == (T, action, state, completion_time)
    written = format_instant_name(T, action, state, layout=layout, completion_time=completion_time)
    assert written == name


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        (1, "hoodie.properties"),
        (1, f".{T}.commit.crc"),
        (1, f"._{T}.commit"),
        (1, f"{T}.deltacommit.0f1c9ab2-9f3e-4a4b-8f16-1d1e3a0d7a11"),
        (1, f"{T}.commit.inflight"),
        (1, f"{T}.compaction"),
        (1, f"{T}.logcompaction"),
        (1, f"{T}.savepoint.requested"),
        (1, f"{T}.clustering.requested"),
        (1, f"{T}_{C}.commit"),
        (1, f"{T}.requested"),
        (1, f"{T}."),
        (1, T),
        (1, f"x{T}.commit"),
        (1, f"{T}.commit\n"),
        (1, "²025.commit"),
        (2, f"{T}_{C}.commit.requested"),
        (2, f"{T}_{C}.inflight"),
        (2, f"{T}_{C}.clustering"),
        (2, f"{T}_{C}.compaction"),
        (2, f"{T}_.commit"),
        (2, "history"),
        (2, "manifest_1"),
    ],
)
def test_other_names_are_no_instants(layout: int, name: str) -> None:
    assert parse_instant_name(name, layout) is None


def test_a_completed_name_without_completion_time_is_accepted_in_layout_2() -> None:
    assert parse_instant_name(f"{T}.commit", 2) == (T, "commit", COMPLETED, None)


@pytest.mark.parametrize(
    ("pending", "completed"),
    [("compaction", "commit"), ("logcompaction", "deltacommit"), ("clustering", "replacecommit")],
)
def test_services_complete_under_the_action_of_a_write(pending: str, completed: str) -> None:
    assert completed_action(pending) == completed
    name = format_instant_name(T, pending, COMPLETED, layout=2, completion_time=C)
    assert name == f"{T}_{C}.{completed}"
    assert completed_action("clean") == "clean"


@pytest.mark.parametrize(
    ("time", "action", "state", "layout", "completion"),
    [
        ("", "commit", COMPLETED, 1, None),
        ("1x", "commit", COMPLETED, 1, None),
        ("²", "commit", COMPLETED, 1, None),
        (T, "commit", COMPLETED, 2, None),
        (T, "commit", COMPLETED, 2, "soon"),
        (T, "commit", COMPLETED, 1, C),
        (T, "commit", REQUESTED, 2, C),
        (T, "clustering", REQUESTED, 1, None),
        (T, "savepoint", REQUESTED, 2, None),
        (T, "dance", COMPLETED, 1, None),
    ],
)
def test_what_no_layout_can_say_is_refused(
    time: str, action: str, state: State, layout: int, completion: str | None
) -> None:
    with pytest.raises(FormatError):
        format_instant_name(time, action, state, layout=layout, completion_time=completion)


@given(st.text(max_size=40), st.sampled_from([1, 2]))
def test_any_text_is_an_instant_that_formats_back_or_none(name: str, layout: int) -> None:
    parsed = parse_instant_name(name, layout)
    if parsed is not None and (layout == 1 or parsed.completion_time or not parsed.state):
        assert name == format_instant_name(
            parsed.requested_time,
            parsed.action,
            parsed.state,
            layout=layout,
            completion_time=parsed.completion_time,
        )


@given(st.from_regex(r"[0-9]{1,20}", fullmatch=True), st.from_regex(r"[0-9]{17}", fullmatch=True))
def test_any_digits_are_an_instant_time(time: str, completion: str) -> None:
    name = format_instant_name(time, "commit", COMPLETED, layout=2, completion_time=completion)
    assert parse_instant_name(name, 2) == (time, "commit", COMPLETED, completion)


def test_instants_are_values() -> None:
    instant = Instant(T, "compaction", REQUESTED, None, f"{T}.compaction.requested")
    assert instant.completed_action == "commit" and not instant.completed
    assert str(instant) == f"{T} compaction REQUESTED"
    assert pickle.loads(pickle.dumps(instant)) == instant


# ---- times -------------------------------------------------------------------------------------

EAST = timezone(timedelta(hours=2))


def test_instant_times_are_moments_in_a_zone() -> None:
    moment = parse_time("20250922132154428", zone=UTC)
    assert moment == datetime(2025, 9, 22, 13, 21, 54, 428000, tzinfo=UTC)
    assert time_ms("20250922132154428", zone=UTC) == 1758547314428
    assert time_ms("20250922152154428", zone=EAST) == 1758547314428
    assert format_time(1758547314428, zone=EAST) == "20250922152154428"


def test_short_times_end_their_second_and_long_ones_are_cut() -> None:
    assert parse_time("20250922132154", zone=UTC) == datetime(
        2025, 9, 22, 13, 21, 54, 999000, tzinfo=UTC
    )
    assert parse_time("20250922132151286001", zone=UTC) == parse_time("20250922132151286", zone=UTC)


@pytest.mark.parametrize("text", ["001", "0", "", "00000000000000", "20251322132154428", "x" * 17])
def test_other_digits_have_no_moment(text: str) -> None:
    assert parse_time(text, zone=UTC) is None
    assert time_ms(text, zone=UTC) is None


@given(st.integers(0, 4_000_000_000_000))
def test_moments_survive_formatting_in_utc_and_keep_their_order_as_text(moment_ms: int) -> None:
    text = format_time(moment_ms, zone=UTC)
    assert len(text) == 17 and time_ms(text, zone=UTC) == moment_ms
    assert text < format_time(moment_ms + 1, zone=UTC)


def test_the_local_zone_follows_daylight_saving(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert format_time(1_736_942_400_000, zone=LOCAL_ZONE) == "20250115130000000"
        assert format_time(1_752_580_800_000, zone=LOCAL_ZONE) == "20250715140000000"
        for text in ("20250115130000000", "20250715140000000"):
            moment = time_ms(text, zone=LOCAL_ZONE)
            assert moment is not None and format_time(moment, zone=LOCAL_ZONE) == text
        aware = datetime(2025, 7, 15, 12, tzinfo=UTC)
        assert as_of_time(aware, zone=LOCAL_ZONE) == "20250715140000000"
        assert aware.astimezone(LOCAL_ZONE).hour == 14
    finally:
        monkeypatch.undo()
        time.tzset()
    assert pickle.loads(pickle.dumps(LOCAL_ZONE)) == LOCAL_ZONE


@pytest.mark.parametrize(
    ("said", "bound"),
    [
        ("20250922132154428", "20250922132154428"),
        ("20250922132154", "20250922132154"),
        ("2025-09-22", "20250922000000000"),
        ("2025-09-22 13:21:54", "20250922132154999"),
        ("2025-09-22T13:21:54", "20250922132154999"),
        ("2025-09-22 13:21:54.428", "20250922132154428"),
        ("2025-09-22T13:21:54.4", "20250922132154400"),
        ("2025-09-22T13:21:54.428123", "20250922132154428"),
        ("2025-09-22T13:21:54.428Z", "20250922152154428"),
        ("2025-09-22T13:21:54.428+01:00", "20250922142154428"),
        ("2025-09-22T13:21:54-0030", "20250922155154999"),
        (" 2025-09-22 ", "20250922000000000"),
        ("1758547314", "20250922152154000"),
        ("1758547314428", "20250922152154428"),
        (1758547314, "20250922152154000"),
        (1758547314428, "20250922152154428"),
        (20250922132154428, "20250922132154428"),
        (date(2025, 9, 22), "20250922000000000"),
        (date(999, 1, 2), "09990102000000000"),
        (datetime(1, 1, 1), "00010101000000000"),
        (datetime(2025, 9, 22, 13, 21, 54, 428999), "20250922132154428"),
        (datetime(2025, 9, 22, 13, 21, 54, tzinfo=UTC), "20250922152154000"),
    ],
)
def test_what_callers_say_for_a_moment(said: str | datetime | date | int, bound: str) -> None:
    assert as_of_time(said, zone=EAST) == bound


@pytest.mark.parametrize(
    "said",
    [
        "",
        "now",
        "2025",
        "2025-13-01",
        "2025-09-22 25:00:00",
        "20251322132154",
        "2025-9-2",
        "2025-09-22T13:21:54+99:99",
        "0001-01-01T00:00:00+01:00",
        "१" * 17,
        -1,
    ],
)
def test_what_is_no_moment_is_refused_with_examples(said: str | int) -> None:
    with pytest.raises(InstantNotFoundError) as caught:
        as_of_time(said, zone=UTC)
    assert "2025-09-22" in caught.value.hint
