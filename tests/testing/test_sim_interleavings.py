"""Every interleaving of executors, cleaners and others on one plan has the outcome it must have."""

from __future__ import annotations

import pytest

from lakewright.testing.sim.runner import run_many
from tests.quickly import a_few_quickly
from tests.testing.interleavings import INTERLEAVINGS
from tests.testing.scene import Case, Kind, play_case


@pytest.mark.parametrize(("case", "kind"), INTERLEAVINGS.params())
def test_the_outcome_is_the_required_one(case: Case, kind: Kind) -> None:
    play_case(case, kind)


@pytest.mark.parametrize(
    "workload", a_few_quickly(["plans-storm", "plans-calm", "plans-crashes", "plans-stalls"], 1)
)
def test_executors_and_cleaners_of_one_plan_do_no_harm_in_any_order(workload: str) -> None:
    summary = run_many(workload, range(2, 6))
    assert summary.failed == 0, summary.to_text()
    assert summary.counts["execution.done"] > 1
