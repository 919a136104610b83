"""Invariants of rollbacks: one per target, never of what is committed, nothing left afterwards."""

from __future__ import annotations

from collections.abc import Iterator

from lakewright.format.file_names import LogFileName, log_order_key
from lakewright.format.instant import State
from lakewright.format.log_block import BlockType, read_blocks
from lakewright.testing.sim.checkers.checker import Checker, When
from lakewright.testing.sim.checkers.plans import is_kept
from lakewright.testing.sim.table_state import StateFile, TableState

__all__ = ["CHECKERS"]

_STATE = frozenset({"state"})
_BOTH = frozenset({"state", "data"})


def one_pending_rollback(state: TableState) -> Iterator[str]:
    """At most one rollback of a target is pending."""
    seen: dict[str, str] = {}
    for file, target, _ in state.rollbacks():
        if file.state is State.COMPLETED:
            continue
        other = seen.setdefault(target, file.requested_time)
        if other != file.requested_time:
            yield f"{target} is being rolled back by {other} and by {file.requested_time}"


def target_not_completed(state: TableState) -> Iterator[str]:
    """The target of a pending rollback is not completed."""
    for file, target, action in state.rollbacks():
        if file.state is State.COMPLETED:
            continue
        found = state.timeline.get(target, action)
        if found is not None and found.completed:
            yield f"{found.file_name} is completed and being rolled back by {file.requested_time}"


def _finished(state: TableState) -> Iterator[tuple[StateFile, str, str]]:
    for file, target, action in state.rollbacks():
        if file.state is State.COMPLETED:
            yield file, target, action


def target_off_the_timeline(state: TableState) -> Iterator[str]:
    """After a rollback no state file of the target is left, or its plan alone."""
    for file, target, action in _finished(state):
        for left in state.states_of(target):
            if left.action == "savepoint" or left.state is State.COMPLETED:
                continue
            kept = left.state is State.REQUESTED and is_kept(state, target, action)
            if not kept and left.stored.order < file.stored.order:
                yield f"{left.name} is left after the rollback {file.name}"


def target_files_gone(state: TableState) -> Iterator[str]:
    """After a rollback no data file of the target is left."""
    for file, target, _ in _finished(state):
        for path, seen in state.by_instant.get(target, {}).items():
            again = seen.stored.order > file.stored.order  # a plan that is executed anew
            if (
                not state.is_committed(target)
                and not again
                and (seen.is_base or state.version.log_name_has_delta_instant)
            ):
                yield f"{path} is left after the rollback {file.name}"


def blocks_cancelled(state: TableState) -> Iterator[str]:
    """Blocks of a rolled-back instant in shared logs are followed by a command block."""
    if not state.version.rollback_by_log_block:
        return
    targets = {target for _, target, _ in _finished(state)}
    slices: dict[tuple[str, str, str], list[tuple[LogFileName, str]]] = {}
    for path, seen in state.data_files.items() if targets else ():
        if isinstance(seen.name, LogFileName):
            key = (seen.partition, seen.name.file_id, seen.name.instant)
            slices.setdefault(key, []).append((seen.name, path))
    for logs in slices.values():
        open_targets: dict[str, str] = {}
        for _, path in sorted(logs, key=lambda log: log_order_key(log[0])):
            for block in read_blocks(state.data_files[path].stored.content, path=path):
                if block.type is BlockType.COMMAND:
                    open_targets.pop(block.target_instant or "", None)
                elif block.instant in targets:
                    open_targets[block.instant or ""] = path
        for target, path in open_targets.items():
            yield f"a block of {target} in {path} is not cancelled, but its rollback is completed"


def committed_not_rolled_back(state: TableState) -> Iterator[str]:
    """Nothing is both completed and rolled back."""
    for file, target, action in _finished(state):
        found = state.timeline.get(target, action)
        if found is not None and found.completed and is_kept(state, target, action):
            completed = state.state_files[found.file_name]
            if completed.stored.order > file.stored.order:
                continue  # executed anew
        if found is not None and found.completed:
            yield f"{found.file_name} is completed, and {file.name} rolled it back"


CHECKERS = (
    Checker("14.23", "one pending rollback per target", _STATE, one_pending_rollback),
    Checker("14.24", "no rollback of what is completed", _STATE, target_not_completed),
    Checker("14.25a", "a rolled-back instant is off the timeline", _STATE, target_off_the_timeline),
    Checker("14.25b", "its data files are gone", _BOTH, target_files_gone, When.AT_REST),
    Checker("14.25c", "its log blocks are cancelled", _BOTH, blocks_cancelled, When.AT_REST),
    Checker("14.27", "completed or rolled back, never both", _STATE, committed_not_rolled_back),
)
