"""Mutants: the product with one check taken away must be caught, by a story or within a few seeds.

That is how we know that the simulator can see. Each names the rules of which one must be broken; no
rule where the story itself says that somebody did what he must not do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakewright.engine.keyed.insert_guard import BucketGuard, InsertGuard, ReadGuard
from lakewright.format.instant import State
from lakewright.testing.sim.locks import Ledger, SimLock
from lakewright.testing.sim.mutants import MUTANTS, without
from lakewright.testing.sim.runner import run_world
from lakewright.testing.sim.workloads import WORKLOADS
from lakewright.txn import recovery, transaction, undoing
from lakewright.txn.locks.file_system import FileSystemLock
from lakewright.txn.locks.storage_lock import StorageLock
from lakewright.txn.states import InstantFiles
from lakewright.txn.transaction import Transaction
from tests.testing.interleavings import INTERLEAVINGS
from tests.testing.scenarios import SCENARIOS
from tests.testing.scene import Cases

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
    patch.setattr(undoing, "_delete", _nothing)
    patch.setattr(undoing, "_sweep_late_files", _nothing)


Mutate = Callable[[pytest.MonkeyPatch], None]

BY_SEEDS: dict[str, tuple[str, Mutate, set[str]]] = {
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


RARE = "a delete by filter forgets what it read"
"""Takes more worlds than the others."""
QUICK_AND_SLOW = [
    pytest.param(name, marks=pytest.mark.slow if name == RARE else ()) for name in sorted(BY_SEEDS)
]


@pytest.mark.parametrize("name", QUICK_AND_SLOW)
def test_a_transaction_without_a_protection_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, mutate, rules = BY_SEEDS[name]
    mutate(monkeypatch)
    for seed in range(SEEDS_MAX):
        _, outcome = run_world(WORKLOADS[workload], seed)
        if not outcome.ok:
            assert {v.rule for v in outcome.violations} & rules, outcome.violations
            return
    pytest.fail(f"{SEEDS_MAX} worlds did not notice")


# ---- by stories --------------------------------------------------------------------------------

BY_STORIES: dict[str, tuple[Cases, str, str, set[str]]] = {
    "claim: whether another process works on the plan": (
        INTERLEAVINGS,
        "01 the second executor is refused while the first lives",
        "compaction-6",
        {"14.30"},
    ),
    "claim: the timeline is read under the lock": (
        INTERLEAVINGS,
        "06 an executor looked at a removable plan before another one began it and died",
        "log-compaction-8",
        {"14.27"},
    ),
    "claim: a removable plan that was begun is refused": (
        INTERLEAVINGS,
        "06 an executor of a removable plan dies inflight",
        "log-compaction-6",
        {"14.27"},
    ),
    "claim: a removable plan that is being rolled back is refused": (
        INTERLEAVINGS,
        "14 a cleaner schedules the rollback of an old plan, then an executor comes",
        "log-compaction-8",
        {"14.27"},
    ),
    "claim: the lock is still held": (
        INTERLEAVINGS,
        "21 an executor stands still in its claim, and loses the lock",
        "log-compaction-6",
        {"14.27"},
    ),
    "claim: who works on the plan is said before the first beat": (
        INTERLEAVINGS,
        "05 on one machine a dead executor is replaced at once, by one",
        "compaction-8",
        set(),
    ),
    "claim: the heartbeat begins under the lock": (
        INTERLEAVINGS,
        "01 the second executor is refused while the first lives",
        "compaction-8",
        {"14.31b"},
    ),
    "rollback of an earlier attempt: the own heartbeat": (
        INTERLEAVINGS,
        "20 an executor wakes up right after its claim when another one has taken over",
        "clustering-8",
        {"14.31"},
    ),
    "rollback of an earlier attempt: a pending one is resumed": (
        INTERLEAVINGS,
        "07 an executor dies after it scheduled the rollback of an earlier attempt",
        "compaction-6",
        {"14.23"},
    ),
    "rollback of an earlier attempt: the plan is kept": (
        INTERLEAVINGS,
        "05 an executor of a kept plan dies inflight",
        "clustering-8",
        set(),
    ),
    "rollback of an earlier attempt: what it left is rolled back": (
        INTERLEAVINGS,
        "05 an executor of a kept plan dies inflight",
        "compaction-8",
        set(),
    ),
    "heartbeat: a late beat does not remove that of another process": (
        INTERLEAVINGS,
        "20 the last beat of an executor is on its way when another one has taken over",
        "compaction-8",
        set(),
    ),
    "commit: no rollback of the write is pending": (
        SCENARIOS,
        "57 the clock of a cleaner is ahead; its rollback is scheduled when the writer commits",
        "compaction-8",
        {"14.24"},
    ),
    "commit: the fence is that of this attempt": (
        SCENARIOS,
        "57 the clock of an executor is ahead by more than the tolerance",
        "compaction-8",
        {"14.9"},
    ),
    "commit: the write is still inflight": (
        SCENARIOS,
        "57 the clock of a cleaner is ahead by more than the tolerance",
        "compaction-6",
        {"14.27", "14.9"},
    ),
    "commit: the lock is still held": (
        INTERLEAVINGS,
        "21 an executor stands still in its commit, and loses the lock",
        "compaction-8",
        {"14.28"},
    ),
    "commit: the timeline is read under the lock": (
        SCENARIOS,
        "22 two writers change one file group",
        "compaction-6",
        {"14.16"},
    ),
    "commit: nobody changed the same file groups": (
        SCENARIOS,
        "24 an overwrite is committed before an update of what it replaces",
        "compaction-6",
        {"14.15"},
    ),
    "commit: files of failed attempts are deleted": (
        SCENARIOS,
        "18 a task is tried again after it published its file",
        "compaction-8",
        {"14.11"},
    ),
    "commit: the lock before files of failed attempts are deleted": (
        INTERLEAVINGS,
        "20 an executor wakes up past the checks of its commit when another one has taken over",
        "compaction-8",
        {"14.9"},
    ),
    "commit: the fence is closed first": (
        SCENARIOS,
        "19 a late attempt publishes after the files of failed ones were deleted",
        "compaction-8",
        {"14.11"},
    ),
    "task: the fence just before a file gets its name": (
        SCENARIOS,
        "19 a late attempt looks at its fence when its writer was rolled back",
        "compaction-6",
        {"14.10"},
    ),
    "task: the fence after a file got its name": (
        INTERLEAVINGS,
        "18 an executor that is rolled back wakes up while it publishes a file",
        "log-compaction-8",
        {"14.10"},
    ),
    "task: a marker comes before its file": (
        INTERLEAVINGS,
        "09 a task of a dead executor publishes late, and dies before it can take its file back",
        "compaction-6",
        {"14.11"},
    ),
    "begin: nothing is written while the table is restored": (
        SCENARIOS,
        "52 a restore dies after it took one write back; others wait until it is finished",
        "compaction-8",
        {"14.7"},
    ),
    "rollback: whether another process executes it": (
        INTERLEAVINGS,
        "23 a second cleaner comes while the first deletes files",
        "log-compaction-8",
        set(),
    ),
    "rollback: the lock is still held": (
        SCENARIOS,
        "50 a cleaner stands still at the end of its rollback, and loses the lock",
        "compaction-8",
        {"14.28"},
    ),
    "rollback: the heartbeat before late files are deleted": (
        INTERLEAVINGS,
        "20 an executor wakes up late in its rollback when another one has finished it",
        "compaction-8",
        {"14.9"},
    ),
    "rollback: late files are looked for": (
        SCENARIOS,
        "19 a late attempt publishes when the files of the rollback's plan are deleted",
        "compaction-6",
        {"14.10"},
    ),
    "rollback: the fence of the target is closed": (
        SCENARIOS,
        "19 a late attempt comes while its writer is being rolled back",
        "compaction-8",
        {"14.10"},
    ),
    "rollback: the higher state goes first": (
        INTERLEAVINGS,
        "25 a cleaner dies while it deletes files",
        "log-compaction-6",
        {"14.3a"},
    ),
    "rollback: lost markers are made up for by listing": (
        SCENARIOS,
        "17 a writer dies, and its markers are lost",
        "compaction-8",
        {"14.10"},
    ),
    "rollback: blocks in shared logs are cancelled": (
        SCENARIOS,
        "08 a writer dies after all its files, before the lock, a cleaner cleans up",
        "compaction-6",
        {"14.25c"},
    ),
    "clean-up: whether somebody works on a write": (
        INTERLEAVINGS,
        "13 a cleaner comes while an executor works",
        "log-compaction-8",
        {"14.31"},
    ),
    "clean-up: plans that are executed again are left alone": (
        INTERLEAVINGS,
        "16 a cleaner leaves a plan that is kept, however old, then an executor comes",
        "clustering-8",
        set(),
    ),
    "clean-up: removable plans must be old": (
        INTERLEAVINGS,
        "15 a cleaner leaves a young plan, then an executor comes",
        "log-compaction-6",
        {"14.31b"},
    ),
    "clean-up: rollbacks of plans belong to their executor": (
        INTERLEAVINGS,
        "33 a cleaner comes when the executor of a rollback has died",
        "compaction-6",
        set(),
    ),
    "clean-up: a target has one rollback": (
        INTERLEAVINGS,
        "22 two cleaners schedule the rollback of one plan",
        "log-compaction-8",
        {"14.23"},
    ),
    "clean-up: who is dead is decided under the lock": (
        INTERLEAVINGS,
        "13 a cleaner looked at an old plan before an executor came",
        "log-compaction-8",
        {"14.31"},
    ),
    "clean-up: the lock is still held": (
        SCENARIOS,
        "50 a cleaner stands still while it schedules, and loses the lock",
        "compaction-8",
        {"14.28"},
    ),
    "sweep: what is over is decided under the lock": (
        SCENARIOS,
        "50 a cleaner sweeps while a write begins",
        "compaction-8",
        set(),
    ),
    "clean: files of savepoints stay": (
        SCENARIOS,
        "48 a clean spares a savepoint, until it is deleted",
        "compaction-6",
        {"14.34"},
    ),
    "clean: files of pending plans stay": (
        INTERLEAVINGS,
        "32 a clean runs while a plan is pending",
        "compaction-8",
        {"14.18"},
    ),
    "clean: a clean that another process executes is left to it": (
        SCENARIOS,
        "45 two cleaners at once",
        "compaction-6",
        set(),
    ),
    "clean: what the plan is based on still holds under the lock": (
        SCENARIOS,
        "48 a savepoint is made while a clean is planned",
        "compaction-8",
        {"14.34"},
    ),
    "clean: what a living write reads stays": (
        SCENARIOS,
        "48 a clean by versions runs while a writer works on what was the newest",
        "compaction-8",
        set(),
    ),
    "savepoint: files of a clean that is planned are refused": (
        SCENARIOS,
        "53 a savepoint is asked for while a clean is pending that retains less",
        "compaction-8",
        set(),
    ),
    "task: a log that a plan may name stays": (
        SCENARIOS,
        "27 version 6: a writer wakes up when it is rolled back and a plan has its log",
        "compaction-6",
        {"14.18"},
    ),
    "rollback: logs behind what was taken back go": (
        SCENARIOS,
        "35 version 6: a log comes behind a commit that is being taken back",
        "compaction-6",
        {"14.10"},
    ),
    "archive: what is pending stays, and what follows it": (
        INTERLEAVINGS,
        "34 the timeline is archived while a plan is pending",
        "log-compaction-8",
        {"14.8"},
    ),
    "archive: replacements stay until their files are cleaned": (
        SCENARIOS,
        "54 the timeline is archived while replaced files are there",
        "compaction-8",
        {"14.37"},
    ),
}
"""Which story shows that a check is missing, with which kind of plan, by which rules."""


@pytest.mark.parametrize("check", MUTANTS)
def test_a_check_that_is_missing_is_seen_by_a_story(check: str) -> None:
    cases, name, kind_name, rules = BY_STORIES[check]
    case = cases[name]
    scene = case.scene(next(kind for kind in case.kinds if kind.name == kind_name))
    told = None
    with without(check):
        try:
            scene.play(lambda _: case.story(scene))
        except AssertionError as error:
            told = error
    seen = scene.complaints
    assert rules & set(seen) if rules else told, f"{told}, {seen}"


def test_every_mutant_has_its_story() -> None:
    assert set(BY_STORIES) == set(MUTANTS)


# ---- by chance ---------------------------------------------------------------------------------

PLANS = ("plans-storm", "plans-stalls", "plans-crashes", "plans-calm")
PLAN_SEEDS = 200
BY_CHANCE = (
    "claim: whether another process works on the plan",
    "claim: the timeline is read under the lock",
    "claim: a removable plan that was begun is refused",
    "claim: a removable plan that is being rolled back is refused",
    "claim: who works on the plan is said before the first beat",
    "claim: the heartbeat begins under the lock",
    "rollback of an earlier attempt: a pending one is resumed",
    "rollback of an earlier attempt: the plan is kept",
    "rollback of an earlier attempt: what it left is rolled back",
    "rollback: whether another process executes it",
    "rollback: the higher state goes first",
    "rollback: blocks in shared logs are cancelled",
    "commit: nobody changed the same file groups",
    "commit: files of failed attempts are deleted",
    "task: the fence after a file got its name",
    "task: a marker comes before its file",
    "clean-up: whether somebody works on a write",
    "clean-up: plans that are executed again are left alone",
    "clean-up: removable plans must be old",
    "clean-up: rollbacks of plans belong to their executor",
    "clean-up: a target has one rollback",
    "clean-up: who is dead is decided under the lock",
)
"""Checks whose absence small random worlds show as well; for others a story is needed, because two
things have to go wrong at the right moments."""


@pytest.mark.slow
@pytest.mark.parametrize("check", BY_CHANCE)
def test_a_check_that_is_missing_is_seen_by_chance(check: str) -> None:
    with without(check):
        for seed in range(PLAN_SEEDS):
            if any(not run_world(WORKLOADS[name], seed)[1].ok for name in PLANS):
                return
    pytest.fail(f"{PLAN_SEEDS * len(PLANS)} worlds did not notice")
