"""Offsets say which times they count, and survive being stored as text."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.engine.change_offset import ChangeOffset, Scheme, resolve_offset
from lakewright.errors import InstantNotFoundError, OptionError

SCHEMES: tuple[Scheme, ...] = ("requested", "completion")


@given(st.sampled_from(SCHEMES), st.from_regex(r"[0-9]{14,20}", fullmatch=True) | st.just(""))
def test_text_of_an_offset_gives_the_offset_again(scheme: Scheme, time: str) -> None:
    offset = ChangeOffset(scheme, time)
    assert ChangeOffset.parse(str(offset)) == offset


@pytest.mark.parametrize(
    "text", ["", "completion", "completion:", "completed:1", "requested:x", "requested:१२"]
)
def test_other_text_is_no_offset(text: str) -> None:
    with pytest.raises(OptionError, match="not a change offset"):
        ChangeOffset.parse(text)


@pytest.mark.parametrize(
    ("said", "time"),
    [
        ("earliest", ""),
        (" Earliest ", ""),
        ("20250922132154428", "20250922132154428"),
        ("completion:20250922132154428", "20250922132154428"),
        ("completion:earliest", ""),
        ("2025-09-22", "20250922000000000"),
        (date(2025, 9, 22), "20250922000000000"),
        (datetime(2025, 9, 22, 13, 21, 54, 428000, UTC), "20250922132154428"),
        (ChangeOffset("completion", "20250922132154428"), "20250922132154428"),
    ],
)
def test_callers_may_say_a_place_in_many_ways(said: str, time: str) -> None:
    assert resolve_offset(said, "completion", zone=UTC) == ChangeOffset("completion", time)


def test_nothing_said_is_no_offset() -> None:
    assert resolve_offset(None, "requested", zone=UTC) is None


@pytest.mark.parametrize("said", ["requested:20250922132154428", "requested:earliest"])
def test_an_offset_of_the_other_scheme_is_refused(said: str) -> None:
    with pytest.raises(OptionError, match="orders its changes by completion time"):
        resolve_offset(said, "completion", zone=UTC)


def test_a_word_that_is_no_moment_is_refused() -> None:
    with pytest.raises(InstantNotFoundError):
        resolve_offset("yesterday", "requested", zone=UTC)
