"""Crashes and meetings of writers and services end as they must."""

from __future__ import annotations

import pytest

from tests.testing.scenarios import SCENARIOS
from tests.testing.scene import Case, Kind, play_case


@pytest.mark.parametrize(("case", "kind"), SCENARIOS.params())
def test_the_outcome_is_the_required_one(case: Case, kind: Kind) -> None:
    play_case(case, kind)
