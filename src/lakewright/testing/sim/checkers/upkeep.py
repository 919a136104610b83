"""Invariants of cleans, savepoints, archives and restores: nothing that anybody needs goes."""

from __future__ import annotations

from collections.abc import Iterator

from lakewright.format.file_names import LogFileName
from lakewright.format.instant import WRITE_ACTIONS, State
from lakewright.format.records import CleanerPlan, CleanMetadata, SavepointMetadata
from lakewright.testing.sim.checkers.checker import Checker, When
from lakewright.testing.sim.checkers.plans import planned_paths
from lakewright.testing.sim.table_state import DataFileSeen, StateFile, TableState

__all__ = ["CHECKERS"]

_STATE = frozenset({"state"})
_BOTH = frozenset({"state", "data"})
_CLEAN = "clean"
_Group = tuple[str, str]


def nothing_begins_during_a_restore(state: TableState) -> Iterator[str]:
    """No write is requested while a restore is pending."""
    restores = state.timeline.filter_actions("restore").pending()
    for restore in restores:
        begun = state.state_files[restore.file_name].stored.order
        for file in state.news():
            write = file.state is State.REQUESTED and file.action in WRITE_ACTIONS
            if write and file.stored.order > begun:
                yield f"{file.name} was requested during the restore {restore.requested_time}"


def archived_are_over(state: TableState) -> Iterator[str]:
    """What leaves the timeline for the archive is older than everything that is pending."""
    for file in state.gone():
        if file.state is not State.COMPLETED or file.requested_time not in state.archived:
            continue
        for instant in state.timeline.pending():
            if instant.requested_time < file.requested_time:
                yield f"{file.name} was archived before {instant.requested_time}, which is pending"


def replacements_stay_with_their_files(state: TableState) -> Iterator[str]:
    """A replacement is archived after the files that it replaced are gone."""
    for file in state.gone():
        if file.action != "replacecommit" or file.state is not State.COMPLETED:
            continue
        metadata = state.metadata(file)
        if metadata is None or file.requested_time not in state.archived:
            continue
        for partition, ids in (metadata.partition_to_replace_file_ids or {}).items():
            for path, seen in state.data_files.items():
                if seen.partition == partition and seen.name.file_id in ids:
                    yield f"{file.name} was archived, and {path} that it replaced is there"


# ---- savepoints --------------------------------------------------------------------------------


def _savepointed(state: TableState) -> Iterator[tuple[StateFile, str]]:
    """Savepoints with the paths that they keep."""
    for instant in state.timeline.savepoints():
        file = state.state_files[instant.file_name]
        record = state.record(file)
        if isinstance(record, SavepointMetadata):
            for partition, kept in record.partition_metadata.items():
                for name in kept.savepoint_data_file:
                    yield file, f"{partition}/{name}" if partition else name


def savepointed_files_exist(state: TableState) -> Iterator[str]:
    """Every file of a savepoint is there."""
    if not state.lost_data() and not state.news_of("savepoint"):
        return
    for file, path in _savepointed(state):
        if path not in state.data_files:
            yield f"{file.name} keeps {path}, which is not there"


# ---- cleans ------------------------------------------------------------------------------------


def cleans_spare_what_is_needed(state: TableState) -> Iterator[str]:
    """No clean is planned for a file of a savepoint, of a pending plan or of a slice in use."""
    for file in state.news():
        if file.action != _CLEAN or file.state is not State.REQUESTED:
            continue
        plan = state.record(file)
        if not isinstance(plan, CleanerPlan):
            continue
        kept = plan.earliest_instant_to_retain
        retained = kept.timestamp if kept is not None else None
        used = {path: s.name for s, path in _savepointed(state)}
        used |= {path: f.name for f, path in planned_paths(state)}
        replaced = _replaced(state)
        for partition, infos in (plan.file_paths_to_be_deleted_per_partition or {}).items():
            for info in infos:
                name = (info.file_path or "").rpartition("/")[2]
                path = f"{partition}/{name}" if partition else name
                if path in used:
                    yield f"{file.name} is going to delete {path}, which {used[path]} needs"
                seen = state.data_files.get(path)
                if seen is not None and _group(seen) not in replaced:
                    yield from _in_use(state, file, seen, retained)


def _group(seen: DataFileSeen) -> _Group:
    return seen.partition, seen.name.file_id


def _replaced(state: TableState) -> set[_Group]:
    found: set[_Group] = set()
    for file in state.completed():
        metadata = state.metadata(file) if file.action == "replacecommit" else None
        replaced = (metadata.partition_to_replace_file_ids if metadata is not None else None) or {}
        found |= {(partition, file_id) for partition, ids in replaced.items() for file_id in ids}
    return found


def _in_use(
    state: TableState, clean: StateFile, seen: DataFileSeen, retained: str | None
) -> Iterator[str]:
    """Whether a file is of the newest slice of its group, or of the newest before a moment."""
    bases = [
        other.name.instant
        for other in state.data_files.values()
        if other.is_base
        and _group(other) == _group(seen)
        and state.is_committed(other.name.instant)
    ]
    newest = max(bases, default="")
    before = max((b for b in bases if retained is not None and b < retained), default=None)
    if isinstance(seen.name, LogFileName):
        since = seen.name.instant
        if state.version.log_name_has_delta_instant:
            since = state.timeline.completion_time_of(seen.name.instant) or ""
        if since >= newest:
            yield f"{clean.name} is going to delete {seen.path} of the newest slice"
    elif seen.name.instant == newest:
        yield f"{clean.name} is going to delete {seen.path}, the newest of its group"
    elif seen.name.instant == before:
        yield f"{clean.name} is going to delete {seen.path}, the newest before {retained}"


def retained_moments_grow(state: TableState) -> Iterator[str]:
    """A later clean retains no earlier moment."""
    if not state.news_of(_CLEAN):
        return
    latest: tuple[str, str] = ("", "")
    for file in sorted(state.completed(), key=lambda f: f.requested_time):
        record = state.record(file) if file.action == _CLEAN else None
        if not isinstance(record, CleanMetadata) or not record.earliest_commit_to_retain:
            continue
        retained = record.earliest_commit_to_retain
        if retained < latest[0]:
            yield f"{file.name} retains {retained}, but {latest[1]} did not any more"
        latest = max(latest, (retained, file.name))


CHECKERS = (
    Checker("14.7", "nothing begins during a restore", _STATE, nothing_begins_during_a_restore),
    Checker("14.8", "archived instants are over", _STATE, archived_are_over, When.AT_ONCE),
    Checker(
        "14.32", "cleans spare what is needed", _STATE, cleans_spare_what_is_needed, When.AT_ONCE
    ),
    Checker("14.33", "retained moments grow", _STATE, retained_moments_grow),
    Checker("14.34", "files of savepoints exist", _BOTH, savepointed_files_exist),
    Checker(
        "14.37",
        "replacements stay with their files",
        _STATE,
        replacements_stay_with_their_files,
        When.AT_ONCE,
    ),
)
