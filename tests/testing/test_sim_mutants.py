"""Mutants: transactions with one protection taken away must be caught within a few seeds.

That is how we know that the simulator can see. Each names the rules of which one must be broken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakewright.engine.keyed.insert_guard import BucketGuard, InsertGuard, ReadGuard
from lakewright.format.instant import State
from lakewright.testing.sim.locks import Ledger, SimLock
from lakewright.testing.sim.runner import run_world
from lakewright.testing.sim.workloads import WORKLOADS
from lakewright.txn import recovery, rollback, transaction
from lakewright.txn.locks.file_system import FileSystemLock
from lakewright.txn.locks.storage_lock import StorageLock
from lakewright.txn.states import InstantFiles
from lakewright.txn.transaction import Transaction

SEEDS_MAX = 200


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _lower_state_first(files: InstantFiles, instant: str, action: str) -> None:
    files.storage.delete(files.path(instant, action, State.REQUESTED))
    files.storage.delete(files.path(instant, action, State.INFLIGHT))


def _without_lock(patch: pytest.MonkeyPatch) -> None:
    real = SimLock.try_acquire

    def alone(provider: Any, who: str) -> Any:
        actor = getattr(provider, "_actor", None) or provider._spawner
        return real(SimLock(Ledger(), actor, lease_s=9.0), who)

    for kind in (SimLock, FileSystemLock, StorageLock):
        patch.setattr(kind, "try_acquire", alone)


def _keep_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rollback, "_delete", _nothing)
    patch.setattr(rollback, "_sweep_late_files", _nothing)


Mutate = Callable[[pytest.MonkeyPatch], None]

MUTANTS: dict[str, tuple[str, Mutate, set[str]]] = {
    "no lock": ("calm", _without_lock, {"14.28"}),
    "no conflict check": (
        "calm",
        lambda p: p.setattr(transaction, "find_conflict", _nothing),
        {"14.16", "14.15"},
    ),
    "no look whether the write is still ours": (
        "impatient",
        lambda p: p.setattr(Transaction, "_check_still_ours", _nothing),
        {"14.3a", "14.3b", "14.9", "14.24", "14.27"},
    ),
    "failed attempts are not reconciled": (
        "calm",
        lambda p: p.setattr(transaction, "read_markers", lambda *_: []),
        {"14.11", "14.12"},
    ),
    "everybody counts as dead": (
        "calm",
        lambda p: p.setattr(recovery, "is_alive", lambda *_: False),
        {"14.31", "actor"},
    ),
    "pending rollbacks are overlooked": (
        "crashes",
        lambda p: p.setattr(recovery, "pending_rollbacks", lambda *_: {}),
        {"14.23", "recovery"},
    ),
    "a rollback deletes no files": (
        "crashes",
        _keep_files,
        {"14.10", "14.25b"},
    ),
    "a rollback writes no command blocks": (
        "crashes",
        lambda p: p.setattr(rollback, "_write_command_block", _nothing),
        {"14.25c"},
    ),
    "inserted keys are not looked for": (
        "keyed-calm",
        lambda p: p.setattr(InsertGuard, "__call__", _nothing),
        {"key twice", "14.16"},
    ),
    "a bucket may get two file groups": (
        "keyed-calm",
        lambda p: p.setattr(BucketGuard, "__call__", _nothing),
        {"key twice", "14.16", "actor"},
    ),
    "a delete by filter forgets what it read": (
        "keyed-calm",
        lambda p: p.setattr(ReadGuard, "__call__", _nothing),
        {"14.16"},
    ),
    "updates of one file group do not conflict": (
        "keyed-calm",
        lambda p: p.setattr(transaction, "find_conflict", _nothing),
        {"14.16", "14.15", "key twice"},
    ),
    "the lower state is removed first": (
        "crashes",
        lambda p: p.setattr(InstantFiles, "remove", _lower_state_first),
        {"14.3a"},
    ),
}


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_transaction_without_a_protection_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, mutate, rules = MUTANTS[name]
    mutate(monkeypatch)
    for seed in range(SEEDS_MAX):
        _, outcome = run_world(WORKLOADS[workload], seed)
        if not outcome.ok:
            assert {v.rule for v in outcome.violations} & rules, outcome.violations
            return
    pytest.fail(f"{SEEDS_MAX} worlds did not notice")
