"""Tables with a metadata table in simulated worlds: sound as they are, not sound with less care."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakewright.testing.sim.runner import run_many, run_world
from lakewright.testing.sim.workloads import WORKLOADS
from lakewright.txn import metadata_rollback, transaction

WORLDS_MOST = 60
Mutation = Callable[[pytest.MonkeyPatch], None]


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _as_it_is(store: Any, *_: Any) -> Any:
    return store


def _replaced(owner: Any, name: str, new: Any) -> Mutation:
    return lambda patch: patch.setattr(owner, name, new)


MUTANTS: dict[str, Mutation] = {
    "a commit does not tell the metadata table": _replaced(
        transaction, "publish_metadata", _nothing
    ),
    "a rollback does not tell the metadata table": _replaced(
        metadata_rollback, "taken_back", _as_it_is
    ),
}
"""Each does without one protection of the metadata table. Others need two things to go wrong at the
right moments, and have tests of their own."""


@pytest.mark.parametrize("workload", ["indexed-calm", "indexed-storm"])
def test_the_metadata_table_says_what_the_files_say_whatever_goes_wrong(workload: str) -> None:
    summary = run_many(workload, range(6))
    assert summary.failed == 0, summary.to_text()
    assert summary.counts["filtered reads"] > 0
    assert summary.counts["reads by the metadata table"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["indexed-calm", "indexed-storm"])
def test_many_worlds_leave_the_metadata_table_right(workload: str) -> None:
    summary = run_many(workload, range(6, 200))
    assert summary.failed == 0, summary.to_text()
    for what in ("metadata table compacted", "metadata instants archived", "restored"):
        assert summary.counts[what] > 0, summary.to_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_metadata_table_with_less_care_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTANTS[name](monkeypatch)
    for seed in range(WORLDS_MOST):
        for workload in ("indexed-calm", "indexed-storm"):
            _, outcome = run_world(WORKLOADS[workload], seed)
            if not outcome.ok:
                return
    pytest.fail(f"{WORLDS_MOST} worlds of each kind did not notice")
