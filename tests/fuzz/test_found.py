"""Inputs that the fuzzer has found faults with, cut down: none may be a finding again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakewright.testing.fuzz import Case, Kind, Seed
from lakewright.testing.fuzz.judging import judge
from lakewright.testing.fuzz.targets import TARGETS

FOLDER = Path(__file__).with_name("found")
SEEDS = {
    "metadata-file-id-of-unknown-encoding": "table!record_index#cells",
    "metadata-bounds-of-another-schema": "table!column_stats#cells",
}
"""What the mutants came from, where the target asks for it."""


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda p: p.stem)
def test_a_fault_that_was_found_stays_away(path: Path) -> None:
    data = path.read_bytes()
    name = next(n for n in sorted(TARGETS, key=len, reverse=True) if path.name.startswith(n))
    outcome = judge(TARGETS[name], Case(data, Seed(SEEDS.get(path.stem, ""), data)))
    assert outcome.kind is Kind.REFUSED, outcome
