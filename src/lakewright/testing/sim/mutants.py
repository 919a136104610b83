"""Mutants: the product with one single check taken away, by the test kit alone.

The product has no switch for its protections. A mutant replaces one function, as one caller sees
it, for as long as a world is played: what it does instead is what the product would do if somebody
had forgotten that one line. A simulator that does not notice is blind, so every mutant must be
killed; those that cannot be are not in the list, because the check only repeats another one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from lakewright.format.instant import State
from lakewright.services import (
    archive,
    archive_plan,
    clean,
    clean_basis,
    clean_execution,
    savepoint,
)
from lakewright.storage.base import Storage
from lakewright.txn import (
    execution,
    publishing,
    recovery,
    rollback,
    rollback_plan,
    transaction,
    undoing,
)
from lakewright.txn.access import Access
from lakewright.txn.fence import Fence
from lakewright.txn.heartbeat import Heartbeat
from lakewright.txn.locks.protocol import Lease, LockHolder
from lakewright.txn.markers import Marker, read_markers
from lakewright.txn.states import InstantFiles

__all__ = ["MUTANTS", "OWN_HEARTBEAT", "TASK_FENCES", "Mutant", "without"]

Change = Callable[[], AbstractContextManager[Any]]
"""Takes something away while it is open."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A check, and how to take it away."""

    check: str
    """What is not checked or done any more."""
    changes: tuple[Change, ...]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Play without the check."""
        with ExitStack() as stack:
            for change in self.changes:
                stack.enter_context(change())
            yield


# ---- ways to take something away ---------------------------------------------------------------


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


def always(value: Any) -> Callable[..., Any]:
    """Whatever is asked, the answer is the same."""
    return lambda *_, **__: value


def instead(owner: Any, name: str, do: Callable[..., Any], *, within: str) -> Change:
    """`do` in place of a function, for callers whose qualified name begins with `within`."""
    real = getattr(owner, name)

    def called(*args: Any, **more: Any) -> Any:
        caller = sys._getframe(1).f_code.co_qualname  # noqa: SLF001
        return (do if caller.startswith(within) else real)(*args, **more)

    return lambda: patch.object(owner, name, called)


def unchecked_lease(purpose: str, within: str = "") -> Change:
    """Whoever has the lock for a purpose does not look, in one place, whether it still has it."""
    real = Access.locked

    @contextmanager
    def locked(access: Access, asked: str) -> Iterator[Lease]:
        with real(access, asked) as lease:
            yield _Unchecked(lease, within) if asked.startswith(purpose) else lease

    return lambda: patch.object(Access, "locked", locked)


def early_look(purpose: str, within: str) -> Change:
    """The timeline is read before the lock is there, not afterwards."""
    locked, timeline = Access.locked, Access.timeline
    seen: dict[int, Any] = {}

    @contextmanager
    def looking(access: Access, asked: str) -> Iterator[Lease]:
        if asked.startswith(purpose):
            seen[id(access)] = timeline(access, access.properties())
        with locked(access, asked) as lease:
            yield lease

    def remembered(access: Access, properties: Any) -> Any:
        if sys._getframe(1).f_code.co_qualname.startswith(within):  # noqa: SLF001
            return seen[id(access)]
        return timeline(access, properties)

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(Access, "locked", looking), patch.object(Access, "timeline", remembered):
            yield

    return both


class _Unchecked:
    """A lease that is not looked at."""

    def __init__(self, lease: Lease, within: str) -> None:
        self._lease = lease
        self._within = within

    @property
    def holder(self) -> LockHolder:
        """What others are told."""
        return self._lease.holder

    def check(self) -> None:
        """Look away, in the one place."""
        caller = sys._getframe(1).f_code.co_qualname  # noqa: SLF001
        if not caller.startswith(self._within):
            self._lease.check()

    def release(self) -> None:
        """Give it back."""
        self._lease.release()


def _decided_early() -> Change:
    """Who is dead is decided before the lock is there."""
    real_pending, real_failed = recovery._anything_pending, recovery.failed_writes  # noqa: SLF001
    seen: dict[int, Any] = {}

    def pending(access: Access) -> bool:
        properties = access.properties()
        seen[id(access)] = real_failed(access, properties, access.timeline(properties))
        return real_pending(access)

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patch.object(recovery, "_anything_pending", pending),
            patch.object(recovery, "failed_writes", lambda access, *_: seen[id(access)]),
        ):
            yield

    return both


def _lower_state_first(files: InstantFiles, instant: str, action: str) -> None:
    files.storage.delete(files.path(instant, action, State.REQUESTED))
    files.storage.delete(files.path(instant, action, State.INFLIGHT))


def _never_beats(storage: Any, instant: str, options: Any, *, clock: Any, spawner: Any) -> Any:  # noqa: ARG001
    return _Silent(storage, instant, options, clock)


class _Silent(Heartbeat):
    """A heartbeat of which nobody hears."""

    def check(self) -> None:
        """Believe in itself."""

    def leave(self) -> bool:
        """There is nothing to remove."""
        return True


def _deleting_plan(access: Access, pending: Any, *, keeps_plan: bool) -> Any:  # noqa: ARG001
    return rollback.execute_rollback(access, pending)


# ---- what is taken away ------------------------------------------------------------------------


def without(check: str) -> AbstractContextManager[None]:
    """Play without one check."""
    return MUTANTS[check].at_work()


def _all() -> Iterator[Mutant]:
    yield from _of_executions()
    yield from _of_commits()
    yield from _of_rollbacks()
    yield from _of_recovery()
    yield from _of_cleans()
    yield from _of_archiving()


def _mutant(check: str, *changes: Change) -> Mutant:
    return Mutant(check, changes)


def _of_executions() -> Iterator[Mutant]:
    yield _mutant(
        "claim: whether another process works on the plan",
        instead(execution, "is_alive", always(False), within="_claimed"),
    )
    yield _mutant(
        "claim: the timeline is read under the lock", early_look("execution of", "_claimed")
    )
    yield _mutant(
        "claim: a removable plan that was begun is refused",
        instead(execution, "is_removable", always(False), within="_claimed"),
    )
    yield _mutant(
        "claim: a removable plan that is being rolled back is refused",
        instead(execution, "pending_rollbacks", always({}), within="_refuse_begun"),
    )
    yield _mutant("claim: the lock is still held", unchecked_lease("execution of"))
    yield _mutant(
        "claim: who works on the plan is said before the first beat",
        instead(execution, "claim_fence", nothing, within="_claimed"),
    )
    yield _mutant(
        "claim: the heartbeat begins under the lock",
        instead(Heartbeat, "start", _never_beats, within="_claimed"),
    )
    yield _mutant(
        "rollback of an earlier attempt: the own heartbeat",
        instead(Heartbeat, "check", nothing, within="Execution._roll_back_earlier"),
    )
    yield _mutant(
        "rollback of an earlier attempt: a pending one is resumed",
        instead(execution, "pending_rollbacks", always({}), within="Execution._roll_back_earlier"),
    )
    yield _mutant(
        "rollback of an earlier attempt: the plan is kept",
        instead(
            execution, "execute_rollback", _deleting_plan, within="Execution._roll_back_earlier"
        ),
    )
    yield _mutant(
        "rollback of an earlier attempt: what it left is rolled back",
        instead(
            execution, "schedule_rollback", always(None), within="Execution._roll_back_earlier"
        ),
    )

    yield _mutant(
        "heartbeat: a late beat does not remove that of another process",
        instead(Heartbeat, "_expired", _not_after_a_beat(), within="Heartbeat._keep_beating"),
    )


def _not_after_a_beat() -> Callable[..., bool]:
    """Whether it has expired is looked at before a beat only."""
    real = Heartbeat._expired  # noqa: SLF001
    return lambda heartbeat: not heartbeat._stopped.is_set() and real(heartbeat)  # noqa: SLF001


def _of_commits() -> Iterator[Mutant]:
    commits = "Transaction."
    yield _mutant(
        "commit: no rollback of the write is pending",
        instead(
            transaction, "pending_rollbacks", always({}), within="Transaction._check_still_ours"
        ),
    )
    yield _mutant(
        "commit: the fence is that of this attempt",
        instead(Fence, "check", nothing, within="Transaction._check_still_ours"),
    )
    yield _mutant(
        "commit: the write is still inflight",
        instead(
            transaction.Transaction, "_check_still_ours", nothing, within="Transaction._publish"
        ),
    )
    yield _mutant("commit: the lock is still held", unchecked_lease("commit of"))
    yield _mutant(
        "commit: the timeline is read under the lock",
        early_look("commit of", "Transaction._publish"),
    )
    yield _mutant(
        "commit: nobody changed the same file groups",
        instead(transaction, "find_conflict", nothing, within="Transaction._resolved"),
    )
    yield _mutant(
        "commit: files of failed attempts are deleted",
        instead(transaction, "read_markers", always([]), within=commits),
    )
    yield _mutant(
        "commit: the lock before files of failed attempts are deleted",
        unchecked_lease("commit of", within="Transaction._reconcile"),
        instead(Heartbeat, "check", nothing, within="Transaction._reconcile"),
    )
    yield _mutant(
        "commit: the fence is closed first",
        instead(transaction, "close_fence", nothing, within="Transaction._reconcile"),
    )
    yield _mutant(
        "task: the fence just before a file gets its name",
        instead(Fence, "check", nothing, within="publish_file.<locals>.fenced"),
    )
    yield _mutant(
        "task: the fence after a file got its name",
        instead(Fence, "check", _first_look_only(), within="publish_file"),
    )
    yield _mutant(
        "task: a marker comes before its file",
        instead(publishing, "create_marker", nothing, within="publish_file"),
    )
    yield _mutant(
        "task: a log that a plan may name stays",
        instead(publishing, "take_back", _deleting_file, within="publish_file"),
    )
    yield _mutant(
        "begin: nothing is written while the table is restored",
        instead(transaction, "refuse_restore", nothing, within="begin"),
    )


def _deleting_file(storage: Storage, fence: Fence, marker: Marker) -> None:  # noqa: ARG001
    storage.delete(marker.data_path)


def _first_look_only() -> Callable[..., None]:
    """Of the looks that a task has at its fence, the last one is missing."""
    real = Fence.check

    def check(fence: Fence, storage: Any) -> None:
        if sys._getframe(2).f_locals.get("info") is None:  # noqa: SLF001
            real(fence, storage)

    return check


def _of_rollbacks() -> Iterator[Mutant]:
    yield _mutant(
        "rollback: whether another process executes it",
        instead(rollback, "is_alive", always(False), within="_claim"),
    )
    yield _mutant("rollback: the lock is still held", unchecked_lease("rollback 2"))
    yield _mutant(
        "rollback: the heartbeat before late files are deleted",
        instead(Heartbeat, "check", nothing, within="_sweep_late_files"),
    )
    yield _mutant(
        "rollback: late files are looked for",
        instead(undoing, "_sweep_late_files", nothing, within="undo"),
    )
    yield _mutant(
        "rollback: the fence of the target is closed",
        instead(rollback, "close_fence", nothing, within=""),
    )
    yield _mutant(
        "rollback: the higher state goes first",
        instead(InstantFiles, "remove", _lower_state_first, within="_finish"),
    )
    yield _mutant(
        "rollback: lost markers are made up for by listing",
        instead(rollback, "plan_rollback", _by_markers_alone(), within="schedule_rollback"),
    )
    yield _mutant(
        "rollback: blocks in shared logs are cancelled",
        instead(undoing, "_write_command_block", nothing, within="_undo"),
    )
    yield _mutant(
        "rollback: logs behind what was taken back go",
        instead(rollback, "delete_stranded_logs", _as_it_was, within="_finish"),
    )


def _as_it_was(*given: Any) -> Any:
    return given[-1]


def _by_markers_alone() -> Callable[..., Any]:
    real = rollback_plan.plan_rollback

    def plan(*args: Any, **more: Any) -> Any:
        with patch.object(rollback_plan, "read_markers", lambda *at: read_markers(*at) or []):
            return real(*args, **more)

    return plan


def _of_recovery() -> Iterator[Mutant]:
    yield _mutant(
        "clean-up: whether somebody works on a write",
        instead(recovery, "is_alive", always(False), within="failed_writes"),
    )
    yield _mutant(
        "clean-up: plans that are executed again are left alone",
        instead(recovery, "is_removable", always(True), within="_may_go"),
    )
    yield _mutant(
        "clean-up: removable plans must be old",
        instead(recovery, "time_ms", always(0), within="_may_go"),
    )
    yield _mutant(
        "clean-up: rollbacks of plans belong to their executor",
        instead(recovery, "plan_kind", always(None), within="_is_ours"),
    )
    yield _mutant(
        "clean-up: a target has one rollback",
        instead(recovery, "pending_rollbacks", always({}), within="roll_back_failed"),
    )
    yield _mutant("clean-up: who is dead is decided under the lock", _decided_early())
    yield _mutant("clean-up: the lock is still held", unchecked_lease("scheduling of rollbacks"))
    yield _mutant(
        "sweep: what is over is decided under the lock",
        instead(recovery, "left_over", _once_per_access(), within="sweep_traces"),
    )


def _once_per_access() -> Callable[..., Any]:
    """What was found the first time, again."""
    real, seen = recovery.left_over, dict[int, Any]()

    def found(access: Access, *more: Any) -> Any:
        if id(access) not in seen:
            seen[id(access)] = real(access, *more)
            return seen[id(access)]
        return seen.pop(id(access))

    return found


def _no_files_of_plans() -> Callable[..., Any]:
    real = clean_basis._read_plans  # noqa: SLF001

    def read(*args: Any) -> Any:
        plans = real(*args)
        plans.names.clear()
        plans.compacting.clear()
        return plans

    return read


def _of_cleans() -> Iterator[Mutant]:
    yield _mutant(
        "clean: files of savepoints stay",
        instead(clean_basis, "_savepointed", always({}), within="load_basis"),
    )
    yield _mutant(
        "clean: files of pending plans stay",
        instead(clean_basis, "_read_plans", _no_files_of_plans(), within="load_basis"),
    )
    yield _mutant(
        "clean: a clean that another process executes is left to it",
        instead(clean_execution, "is_alive", always(False), within="_claim"),
    )
    yield _mutant(
        "clean: what the plan is based on still holds under the lock",
        instead(clean, "still_holds", always(True), within="schedule_clean"),
    )
    yield _mutant(
        "clean: what a living write reads stays",
        instead(clean_basis, "_live_writes", always(()), within=""),
    )
    yield _mutant(
        "savepoint: files of a clean that is planned are refused",
        instead(savepoint, "_refuse_named", nothing, within="create_savepoint"),
        instead(savepoint, "_refuse_cleaned", nothing, within="create_savepoint"),
    )


def _of_archiving() -> Iterator[Mutant]:
    yield _mutant(
        "archive: what is pending stays, and what follows it",
        instead(archive_plan, "_timeline_limits", _without_pending(), within="plan_archive"),
    )
    yield _mutant(
        "archive: replacements stay until their files are cleaned",
        instead(archive, "replaced_limit", nothing, within="_planned"),
    )


def _without_pending() -> Callable[..., Any]:
    real = archive_plan._timeline_limits  # noqa: SLF001

    def limits(*args: Any) -> Iterator[Any]:
        pending = archive_plan.LimitKind.PENDING
        return (limit for limit in real(*args) if limit.kind is not pending)

    return limits


TASK_FENCES = _mutant(
    "task: the fence, at any time", instead(Fence, "check", nothing, within="publish_file")
)
"""All looks of a task at its fence; each of them alone is a mutant."""
OWN_HEARTBEAT = _mutant(
    "commit: the own heartbeat", instead(Heartbeat, "check", nothing, within="Transaction.")
)
"""No mutant: whoever takes a write over leaves a rollback or another fence, which a commit sees."""
MUTANTS: dict[str, Mutant] = {mutant.check: mutant for mutant in _all()}
"""By what they do not check."""
