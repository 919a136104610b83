"""Planning a read of change data: which files tell what an instant did to a file group.

One task per file group, so that its changes come in the order of their instants. Every file that
will be needed must still be there: change data reaches back as far as the active timeline and the
cleaner leave it, and what lies before that is refused instead of being left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lakewright.engine.change_range import ChangeRange
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import InstantNotFoundError, UnsupportedTableError
from lakewright.format.cdc import CHANGING_OPERATIONS, ChangeCase, case_of
from lakewright.format.file_slices import FileGroupId, FileSlice, FileSystemView, LogFile
from lakewright.format.instant import Instant
from lakewright.format.records.commit import CommitMetadata, WriteStat
from lakewright.format.records.instants import load_commit_metadata


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What one instant did to a file group through one file."""

    instant: str
    case: ChangeCase
    before: FileSlice | None = None
    """The group before the change; None if it was empty or, beside a change log, is gone."""
    after: FileSlice | None = None
    """The base file with the rows after the change, or the log file with the changes."""
    change_logs: tuple[LogFile, ...] = ()

    def files(self) -> Iterator[tuple[str, int]]:
        """Paths and sizes of the files that may be read."""
        for slice_ in (self.before, self.after):
            if slice_ is not None:
                if slice_.base is not None:
                    yield slice_.base.path, slice_.base.size
                yield from ((log.path, log.size) for log in slice_.logs)
        yield from ((log.path, log.size) for log in self.change_logs)


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """All changes of one file group, in the order in which they happened."""

    group: FileGroupId
    changes: tuple[FileChanges, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all files that may be read, each counted once."""
        return sum(dict(f for change in self.changes for f in change.files()).values())

    def to_dict(self) -> dict[str, object]:
        """The task as plain values."""
        return {
            "partition": self.group.partition,
            "file_id": self.group.file_id,
            "changes": [
                {
                    "instant": change.instant,
                    "case": change.case.name.lower(),
                    "files": [path for path, _ in change.files()],
                }
                for change in self.changes
            ],
            "bytes": self.bytes,
        }


def plan_cdc(snapshot: Snapshot, range_: ChangeRange) -> tuple[GroupChanges, ...]:
    """The changes of a range, by file group.

    Raises `UnsupportedTableError` for tables without change data and `InstantNotFoundError` where
    the range reaches back further than the active timeline or the files do.
    """
    if not snapshot.properties.cdc_enabled:
        raise UnsupportedTableError(
            "The table keeps no change data.",
            hint="Set hoodie.table.cdc.enabled=true when the table is made, or read changed rows "
            "with mode='rows'.",
            context={"table": snapshot.properties.name},
        )
    if range_.archived:
        raise InstantNotFoundError(
            f"The range begins in the archive: {len(range_.archived)} of its instants, up to "
            f"{range_.archived[-1]}, have no change data any more.",
            hint=f"Begin at or after the first active instant, {snapshot.timeline.starts_at}.",
            context={"since": str(range_.begin), "archived": range_.archived[-1]},
        )
    commits = [(i, m) for i, m in _commits(snapshot, range_) if _changes_rows(m)]
    planner = _Planner(snapshot, _view(snapshot, [m for _, m in commits]))
    by_group: dict[FileGroupId, list[FileChanges]] = {}
    for instant, metadata in commits:
        for group, change in planner.changes(instant, metadata):
            by_group.setdefault(group, []).append(change)
    return tuple(GroupChanges(g, tuple(changes)) for g, changes in sorted(by_group.items()))


def _commits(snapshot: Snapshot, range_: ChangeRange) -> Iterator[tuple[Instant, CommitMetadata]]:
    for instant in range_.instants:
        yield instant, load_commit_metadata(snapshot.storage, snapshot.properties, instant)


def _changes_rows(metadata: CommitMetadata) -> bool:
    return (metadata.operation_type or "").upper() in CHANGING_OPERATIONS


def _view(snapshot: Snapshot, commits: list[CommitMetadata]) -> FileSystemView:
    touched: set[str] = set()
    for metadata in commits:
        touched.update(metadata.partition_to_write_stats)
        touched.update(metadata.partition_to_replace_file_ids or {})
    listing = snapshot.opened.listing
    return snapshot.view(listing.files(sorted(touched & set(listing.partitions()))))


class _Planner:
    """Finds the files of changes in one view."""

    def __init__(self, snapshot: Snapshot, view: FileSystemView) -> None:
        self._snapshot = snapshot
        self._view = view

    def changes(
        self, instant: Instant, metadata: CommitMetadata
    ) -> Iterator[tuple[FileGroupId, FileChanges]]:
        """What one commit did, file by file."""
        for partition, stats in metadata.partition_to_write_stats.items():
            for stat in stats:
                if stat.path:
                    group = FileGroupId(partition, stat.file_id or "")
                    yield group, self._written(group, instant, stat, metadata.operation_type)
        replaced = metadata.partition_to_replace_file_ids or {}
        for partition, file_ids in replaced.items():
            for file_id in file_ids:
                group = FileGroupId(partition, file_id)
                last = self._view.merged_slice(group)
                if last is None:
                    raise gone(
                        instant.requested_time, f"file group {file_id} of partition {partition!r}"
                    )
                case = ChangeCase.REPLACED_GROUP
                yield group, FileChanges(instant.requested_time, case, before=last)

    def _written(
        self, group: FileGroupId, instant: Instant, stat: WriteStat, operation: str | None
    ) -> FileChanges:
        time = instant.requested_time
        case = case_of(stat, operation)
        if case is ChangeCase.LOG_FILE:
            return self._log_file(group, instant, stat)
        if case is ChangeCase.EMPTIED_FILE:
            before = self._base_slice(group, stat.prev_commit)
            if before is None:
                raise gone(instant.requested_time, f"the base file of {stat.prev_commit}")
            return FileChanges(time, case, before=before)
        after = self._base_slice(group, time)
        if case is ChangeCase.CHANGE_LOG:
            logs = tuple(self._change_log(group, instant, path) for path in stat.cdc_stats or {})
            before = self._base_slice(group, stat.prev_commit)
            return FileChanges(time, case, before, after, logs)
        if after is None:
            raise gone(time, str(stat.path))
        return FileChanges(time, case, after=after)

    def _slices(self, group: FileGroupId) -> tuple[FileSlice, ...]:
        known = self._view.groups.get(group)
        return () if known is None else known.slices

    def _base_slice(self, group: FileGroupId, instant: str | None) -> FileSlice | None:
        """The base file that an instant wrote, as a slice without logs."""
        for slice_ in self._slices(group):
            if slice_.base is not None and slice_.base.instant == instant:
                return replace(slice_, logs=(), cdc_logs=())
        return None

    def _change_log(self, group: FileGroupId, instant: Instant, path: str) -> LogFile:
        name = path.rsplit("/", 1)[-1]
        for slice_ in self._slices(group):
            for log in slice_.cdc_logs:
                if log.name == name:
                    return log
        raise gone(instant.requested_time, path)

    def _log_file(self, group: FileGroupId, instant: Instant, stat: WriteStat) -> FileChanges:
        name = (stat.path or "").rsplit("/", 1)[-1]
        slices = self._slices(group)
        for position, slice_ in enumerate(slices):
            for log in slice_.logs:
                if log.name == name:
                    after = FileSlice(group, slice_.base_instant, None, (log,))
                    before = self._before(log, slice_, slices[position + 1 :])
                    if stat.base_file and (before is None or before.base is None):
                        raise gone(instant.requested_time, stat.base_file)
                    case = ChangeCase.LOG_FILE
                    return FileChanges(instant.requested_time, case, before, after)
        raise gone(instant.requested_time, str(stat.path))

    def _before(
        self, log: LogFile, slice_: FileSlice, older: tuple[FileSlice, ...]
    ) -> FileSlice | None:
        """The group just before a log file was written.

        A slice without a base file follows a compaction that is planned or was planned when the
        log was written, so what the plan compacts belongs to it.
        """
        base, logs = slice_.base, slice_.logs
        if base is None and older:
            base, logs = older[0].base, older[0].logs + logs
        ranks = {other.name: (self._completed(other), n) for n, other in enumerate(logs)}
        earlier = tuple(other for other in logs if ranks[other.name] < ranks[log.name])
        if base is None and not earlier:
            return None
        return FileSlice(slice_.group, slice_.base_instant, base, earlier)

    def _completed(self, log: LogFile) -> str:
        """When a log took effect, where its name says who wrote it; older than all otherwise."""
        if not self._snapshot.properties.version.log_name_has_delta_instant:
            return ""
        return self._snapshot.timeline.completion_time_of(log.instant) or ""


def gone(instant: str, what: str) -> InstantNotFoundError:
    """The error for changes whose files are not there any more."""
    return InstantNotFoundError(
        f"The changes of {instant} cannot be told any more: {what} was cleaned.",
        hint="Begin after this instant; let the cleaner retain more commits than readers of "
        "changes lag behind.",
        context={"instant": instant},
    )
