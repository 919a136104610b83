"""Transactions in simulated worlds: a fixed set of seeds, and crashes at operations of each write.

Whole sets are run by `python -m lakewright.testing.sim`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakewright.testing.sim.faults import NO_RATES
from lakewright.testing.sim.runner import every_crash, run_many
from lakewright.testing.sim.workloads.keyed_writes import (
    KeyedSetting,
    keyed_setting_of,
    one_keyed_write,
)
from lakewright.testing.sim.workloads.real_writes import VERBS, one_real_write
from lakewright.testing.sim.workloads.transactions import Setting, one_write, setting_of
from lakewright.testing.sim.world import World

STUB_KINDS = ("append", "rewrite", "log", "overwrite", "delete_partition")


@pytest.mark.parametrize("workload", ["calm", "crashes", "errors", "stalls", "storm"])
def test_writers_and_readers_see_one_history_whatever_goes_wrong(workload: str) -> None:
    summary = run_many(workload, range(3))
    assert summary.failed == 0, summary.to_text()
    assert summary.counts["reads"] > 4


@pytest.mark.parametrize("workload", ["real", "keyed-real"])
def test_real_files_are_as_safe_as_stubs(workload: str) -> None:
    summary = run_many(workload, range(2))
    assert summary.failed == 0, summary.to_text()


@pytest.mark.parametrize("workload", ["keyed-calm", "keyed-storm", "keyed-non-blocking"])
def test_keyed_writes_make_the_table_of_their_serial_order(workload: str) -> None:
    summary = run_many(workload, range(4))
    assert summary.failed == 0, summary.to_text()
    assert summary.counts["committed.upsert"] > 4 and summary.counts["reads"] > 4


def _demand_no_trace(make: Callable[[], World], *, stride: int = 1, last: str = "append") -> None:
    """After a crash anywhere: the old or the new rows, a next write, and nothing left over."""
    for run in every_crash(make, "writer", stride=stride):
        found = "\n".join(map(str, run.outcome.violations))
        assert run.outcome.ok, f"operation {run.index}, effect {run.effect}:\n{found}"
        assert run.outcome.counts[f"committed.{last}"] > 0


# Version 6 merge-on-read in a bucket, version 8 copy-on-write in a folder with its lock file.
QUICK = [setting_of(5, rates=NO_RATES), setting_of(10, rates=NO_RATES)]
ALL = [setting_of(seed, rates=NO_RATES) for seed in range(32)]


@pytest.mark.parametrize("setting", QUICK, ids=["6-mor", "8-cow"])
def test_a_write_may_die_at_any_operation(setting: Setting) -> None:
    kind = "log" if setting.merge_on_read else "overwrite"
    _demand_no_trace(lambda: one_write(kind, setting), stride=8)


def test_a_real_write_may_die_at_any_operation() -> None:
    _demand_no_trace(lambda: one_real_write("append", QUICK[0]), stride=24)


def test_a_keyed_write_may_die_at_any_operation() -> None:
    setting = KeyedSetting(QUICK[0], "GLOBAL_SIMPLE")
    _demand_no_trace(lambda: one_keyed_write("upsert", setting), stride=16, last="upsert")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["upsert", "delete", "delete_where"])
def test_every_keyed_write_may_die_at_every_operation(verb: str) -> None:
    for seed in range(24):
        setting = keyed_setting_of(seed)
        _demand_no_trace(lambda s=setting: one_keyed_write(verb, s), last="upsert")


@pytest.mark.slow
@pytest.mark.parametrize("kind", STUB_KINDS)
def test_every_kind_of_write_may_die_at_every_operation(kind: str) -> None:
    for setting in ALL:
        _demand_no_trace(lambda setting=setting: one_write(kind, setting))


@pytest.mark.slow
@pytest.mark.parametrize("verb", sorted(VERBS))
@pytest.mark.parametrize("seed", [0, 5, 10, 23])
def test_every_verb_may_die_at_every_operation(verb: str, seed: int) -> None:
    _demand_no_trace(lambda: one_real_write(verb, setting_of(seed, rates=NO_RATES)))
