"""Invariants of data files: nothing committed is missing, nothing uncommitted stays."""

from __future__ import annotations

from collections.abc import Iterator

from lakewright.format.file_names import LogFileName
from lakewright.format.instant import State
from lakewright.testing.sim.checkers.checker import Checker, When
from lakewright.testing.sim.table_state import DataFileSeen, StateFile, TableState

__all__ = ["CHECKERS"]

_BOTH = frozenset({"state", "data"})
_DATA = frozenset({"data"})
_STATE = frozenset({"state"})


def _stat_paths(state: TableState, file: StateFile) -> Iterator[str]:
    metadata = state.metadata(file)
    if metadata is None:
        return
    for stat in metadata.write_stats:
        if stat.path is not None:
            yield stat.path
        yield from stat.cdc_stats or ()


def committed_files_exist(state: TableState) -> Iterator[str]:
    """Every file of a completed write exists, unless a clean took it."""
    files = state.completed() if state.lost_data() else iter(state.news_completed())
    for file in files:
        for path in _stat_paths(state, file):
            if path not in state.data_files and path not in state.doomed:
                yield f"{file.name} names {path}, which is not there"


def no_orphans(state: TableState) -> Iterator[str]:
    """The instant of every data file is committed, pending, or about to be rolled back."""
    targets = {t for file, t, _ in state.rollbacks() if file.state is not State.COMPLETED}
    for instant, files in state.by_instant.items():
        if not files or instant in targets or state.is_committed(instant):
            continue
        if state.timeline.get(instant) is None:
            yield f"{', '.join(sorted(files))}: no instant {instant} on the timeline"


def files_equal_metadata(state: TableState) -> Iterator[str]:
    """A completed instant has exactly the files of its metadata on storage."""
    for file in state.completed():
        if state.metadata(file) is None:
            continue
        told = set(_stat_paths(state, file))
        for seen in state.by_instant.get(file.requested_time, {}).values():
            if seen.path not in told and _written_by(state, seen, file.requested_time):
                yield f"{seen.path} is not in the metadata of {file.name}"


def _written_by(state: TableState, seen: DataFileSeen, instant: str) -> bool:
    """Whether the instant in the name wrote the file: at version 6 logs carry their slice's."""
    return seen.is_base or state.version.log_name_has_delta_instant or seen.name.instant != instant


def one_base_file(state: TableState) -> Iterator[str]:
    """One base file per partition, file id and committed instant."""
    seen: dict[tuple[str, str, str], str] = {}
    for path, file in state.data_files.items():
        if not file.is_base or not state.is_committed(file.name.instant):
            continue
        key = (file.partition, file.name.file_id, file.name.instant)
        other = seen.setdefault(key, path)
        if other != path:
            yield f"{' and '.join(sorted((other, path)))} are one version of one file group"


def services_write_their_kind(state: TableState) -> Iterator[str]:
    """Log compaction writes no base files; compaction and clustering write no log files."""
    touched = {seen.name.instant for seen in state.news_data()} if not state.whole else ()
    late = [f for f in state.completed() if f.requested_time in touched] if touched else ()
    for file in (*state.news_completed(), *late):
        metadata = state.metadata(file)
        operation = metadata.operation_type if metadata is not None else None
        if operation not in ("LOG_COMPACT", "COMPACT", "CLUSTER"):
            continue
        for seen in state.by_instant.get(file.requested_time, {}).values():
            own_log = state.version.log_name_has_delta_instant and not seen.is_base
            if (operation == "LOG_COMPACT" and seen.is_base) or (
                operation != "LOG_COMPACT" and own_log
            ):
                yield f"{operation} {file.requested_time} wrote {seen.path}"


def logs_name_their_instant(state: TableState) -> Iterator[str]:
    """A log carries a delta commit's instant from version 8 on, the slice's before."""
    writes = {"deltacommit", "logcompaction", "replacecommit", "clustering"}
    by_delta = state.version.log_name_has_delta_instant
    for seen in state.news_data():
        if not isinstance(seen.name, LogFileName) or seen.name.is_cdc:
            continue
        instant = state.timeline.get(seen.name.instant)
        if instant is None:
            continue
        if by_delta and instant.action not in writes:
            yield f"{seen.path} carries the instant of a {instant.action}"
        if not by_delta and instant.action in ("clean", "rollback", "savepoint", "restore"):
            yield f"{seen.path} carries the instant of a {instant.action}"


def replaced_groups_stay_gone(state: TableState) -> Iterator[str]:
    """A replaced file group gets no file from a write that completed afterwards.

    A compaction that was planned before may, of rows that nobody sees any more.
    """
    for later in state.news_completed():
        written = state.metadata(later)
        if written is None or written.operation_type == "COMPACT":
            continue
        groups = {(stat.partition_path or "", stat.file_id or "") for stat in written.write_stats}
        for file in state.completed() if groups else ():
            if file.action != "replacecommit" or later.stored.order <= file.stored.order:
                continue
            for partition, file_id in groups & _replaced(state, file):
                yield f"{later.name} wrote to {partition}/{file_id}, replaced by {file.name}"


def _replaced(state: TableState, file: StateFile) -> set[tuple[str, str]]:
    metadata = state.metadata(file)
    replaced = (metadata.partition_to_replace_file_ids if metadata is not None else None) or {}
    return {(partition, file_id) for partition, ids in replaced.items() for file_id in ids}


CHECKERS = (
    Checker("14.9", "files of completed writes exist", _BOTH, committed_files_exist),
    Checker("14.10", "no orphans", _BOTH, no_orphans, When.AT_REST),
    Checker("14.11", "files equal metadata", _BOTH, files_equal_metadata, When.AT_REST),
    Checker("14.12", "one base file per slice", _BOTH, one_base_file, When.AT_REST),
    Checker("14.13", "services write their kind of file", _BOTH, services_write_their_kind),
    Checker("14.14", "logs carry the right instant", _DATA, logs_name_their_instant),
    Checker("14.15", "replaced groups stay gone", _STATE, replaced_groups_stay_gone),
)
