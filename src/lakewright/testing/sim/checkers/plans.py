"""Invariants of plans: what a compaction is to do, and what it did."""

from __future__ import annotations

from collections.abc import Iterator

from lakewright.format.file_names import LogFileName
from lakewright.format.instant import State
from lakewright.format.log_block import read_blocks
from lakewright.format.records import (
    CompactionOperation,
    CompactionPlan,
    RequestedReplaceMetadata,
    RestorePlan,
)
from lakewright.format.records.plans import file_name
from lakewright.testing.sim.checkers.checker import Checker, When
from lakewright.testing.sim.table_state import StateFile, TableState
from lakewright.txn.plan_kinds import REMOVABLE_KEY

__all__ = ["CHECKERS", "is_kept", "planned_paths"]

_STATE = frozenset({"state"})
_BOTH = frozenset({"state", "data"})
_KINDS = ("compaction", "logcompaction")


def _plans(state: TableState) -> Iterator[tuple[StateFile, CompactionPlan]]:
    """Pending plans with what they say."""
    for instant in state.timeline.pending():
        if instant.action not in _KINDS:
            continue
        name = f"{instant.requested_time}.{instant.action}.requested"
        file = state.state_files.get(name)
        plan = state.record(file) if file is not None else None
        if file is not None and isinstance(plan, CompactionPlan):
            yield file, plan


def is_kept(state: TableState, instant: str, action: str) -> bool | None:
    """Whether a plan is executed again after its rollback; None of what is no plan."""
    if action == "compaction":
        return True
    requested = state.state_files.get(f"{instant}.{action}.requested")
    plan = state.record(requested) if requested is not None else None
    if isinstance(plan, CompactionPlan):
        return (plan.extra_metadata or {}).get(REMOVABLE_KEY) == "false"
    if isinstance(plan, RequestedReplaceMetadata) and plan.clustering_plan is not None:
        return (plan.clustering_plan.extra_metadata or {}).get(REMOVABLE_KEY) != "true"
    return None


def _files(operation: CompactionOperation) -> Iterator[str]:
    for path in (operation.data_file_path, *(operation.delta_file_paths or ())):
        name = file_name(path)
        if name:
            partition = operation.partition_path or ""
            yield f"{partition}/{name}" if partition else name


def planned_paths(state: TableState) -> Iterator[tuple[StateFile, str]]:
    """Pending plans with the files that they read."""
    for file, plan in _plans(state):
        for operation in plan.operations or ():
            for path in _files(operation):
                yield file, path


def one_plan_per_group(state: TableState) -> Iterator[str]:
    """A file group is in one pending plan of a kind at most."""
    seen: dict[tuple[str, str, str], str] = {}
    for file, plan in _plans(state) if state.news_of(*_KINDS) else ():
        for operation in plan.operations or ():
            key = (file.action, operation.partition_path or "", operation.file_id or "")
            other = seen.setdefault(key, file.requested_time)
            if other != file.requested_time:
                yield f"{operation.file_id} is in {other} and in {file.requested_time}"


def planned_files_exist(state: TableState) -> Iterator[str]:
    """Every file of a pending plan is there; a compaction that a restore takes back is pending for
    a moment, and nobody executes it."""
    if not state.lost_data() and not state.news_of(*_KINDS):
        return
    for file, path in planned_paths(state):
        if path not in state.data_files and file.requested_time not in _restored(state):
            yield f"{file.name} names {path}, which is not there"


def _restored(state: TableState) -> set[str]:
    """Instants that a pending restore takes back."""
    found: set[str] = set()
    for restore in state.timeline.filter_actions("restore").pending():
        for file in state.states_of(restore.requested_time):
            plan = state.record(file) if file.state is State.REQUESTED else None
            if isinstance(plan, RestorePlan):
                found.update(info.commit_time for info in plan.instants_to_rollback)
    return found


def plans_are_whole(state: TableState) -> Iterator[str]:
    """From version 8 on a plan has exactly the logs of its slices that completed before it."""
    if not state.version.slices_by_completion_time:
        return
    if not state.news_completed() and not state.news_of(*_KINDS):
        return
    for file, plan in _plans(state):
        for operation in plan.operations or ():
            planned = {path for path in _files(operation) if ".log." in path}
            for path in planned:
                name = state.data_files[path].name if path in state.data_files else None
                done = state.timeline.completion_time_of(name.instant) if name else None
                if done is not None and done >= file.requested_time:
                    yield f"{file.name} takes {path}, which completed at {done}"
            yield from _missing(state, file, operation, planned)


def _missing(
    state: TableState, file: StateFile, operation: CompactionOperation, planned: set[str]
) -> Iterator[str]:
    since = operation.base_instant_time or ""
    for path, seen in state.data_files.items():
        if not isinstance(seen.name, LogFileName) or seen.name.is_cdc or path in planned:
            continue
        if (seen.partition, seen.name.file_id) != (operation.partition_path, operation.file_id):
            continue
        done = state.timeline.completion_time_of(seen.name.instant)
        if done is not None and since <= done < file.requested_time:
            yield f"{file.name} lacks {path}, which completed at {done}"


def compactions_did_what_was_planned(state: TableState) -> Iterator[str]:
    """A completed compaction has one base file for every operation, and nothing else."""
    for file in state.news_completed():
        metadata = state.metadata(file)
        if metadata is None or metadata.operation_type != "COMPACT":
            continue
        requested = state.state_files.get(f"{file.requested_time}.compaction.requested")
        plan = state.record(requested) if requested is not None else None
        if not isinstance(plan, CompactionPlan):
            continue
        wanted = sorted((o.partition_path or "", o.file_id or "") for o in plan.operations or ())
        found = sorted((s.partition_path or "", s.file_id or "") for s in metadata.write_stats)
        if wanted != found:
            yield f"{file.name} has {found}, and its plan {wanted}"


def used_plans_stay(state: TableState) -> Iterator[str]:
    """Version 6: what a committed log is behind, a compaction's plan above all, is there.

    Tasks publish without the lock, so the log of a write may come behind what is being taken back
    at that moment; then the write must not be committed, and at rest the log is an orphan.
    """
    if state.version.log_name_has_delta_instant:
        return
    changed = state.states_went() or state.news_completed()
    for seen in state.data_files.values() if changed else state.news_data():
        if not isinstance(seen.name, LogFileName) or seen.name.is_cdc:
            continue
        if state.is_there(seen.name.instant):
            continue
        blocks = read_blocks(seen.stored.content, path=seen.path)
        committed = {b.instant for b in blocks if b.instant and state.is_committed(b.instant)}
        for instant in sorted(committed):
            yield f"{seen.path} of {instant} is behind {seen.name.instant}, which is not there"


def executed_by_its_owner(state: TableState) -> Iterator[str]:
    """Who completes a plan is who beat for it last, at that moment."""
    for file in state.news_completed():
        metadata = state.metadata(file)
        if metadata is None or metadata.operation_type not in ("COMPACT", "LOG_COMPACT", "CLUSTER"):
            continue
        beats = state.beats.get(file.requested_time) or ["nobody"]
        if beats[-1] != file.stored.who:
            yield f"{file.stored.who} completed {file.name}, and {beats[-1]} works on it"


CHECKERS = (
    Checker("14.17", "one plan per file group", _STATE, one_plan_per_group),
    Checker("14.18", "files of plans exist", _BOTH, planned_files_exist),
    Checker("14.19", "plans have all logs of their slices", _STATE, plans_are_whole),
    Checker("14.20", "compactions do what was planned", _STATE, compactions_did_what_was_planned),
    Checker("14.22", "plans that logs are behind stay", _BOTH, used_plans_stay),
    Checker(
        "14.30", "plans are completed by their owner", _STATE, executed_by_its_owner, When.AT_ONCE
    ),
)
