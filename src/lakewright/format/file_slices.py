"""The file-system view: listed files and a timeline become file groups and file slices.

Pure: nothing is read here. A slice is one version of a file group, at most one base file and the
log files that were written onto it. Which slice a log file belongs to is a matter of the table
version: version 6 says it in the log's name, later versions ask when the writing commit completed.

Guarantees: what the timeline does not know as committed is in no slice, and is reported by
`orphans` with the reason; every listed file is in exactly one slice or orphaned; a committed log is
never attached to a base file that is not committed. Cost is linear in the files, plus sorting.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from typing import NamedTuple

from lakewright.format.file_names import BaseFileName, LogFileName, log_order_key, parse_data_file
from lakewright.format.partitions import ListedFile
from lakewright.format.timeline import Timeline
from lakewright.format.version import TableVersion

CompletionTimeOf = Callable[[str], str | None]


class FileGroupId(NamedTuple):
    """Identity of a file group: file ids are unique inside a partition."""

    partition: str
    file_id: str


class BaseFile(NamedTuple):
    """A base file; `instant` wrote it and names its slice."""

    partition: str
    name: str
    size: int
    instant: str
    file_id: str
    write_token: str
    modified_ms: int | None = None

    @classmethod
    def of(cls, partition: str, file: ListedFile, name: BaseFileName) -> BaseFile:
        """A listed file whose name was parsed."""
        return cls(
            partition,
            file.name,
            file.size,
            name.instant,
            name.file_id,
            name.write_token,
            file.modified_ms,
        )

    @property
    def path(self) -> str:
        """Path below the table's base path."""
        return f"{self.partition}/{self.name}" if self.partition else self.name


class LogFile(NamedTuple):
    """A log file; `instant` is what its name says: see `LogFileName`."""

    partition: str
    name: str
    size: int
    instant: str
    file_id: str
    write_token: str | None
    version: int
    suffix: str = ""
    modified_ms: int | None = None

    @classmethod
    def of(cls, partition: str, file: ListedFile, name: LogFileName) -> LogFile:
        """A listed file whose name was parsed."""
        return cls(
            partition,
            file.name,
            file.size,
            name.instant,
            name.file_id,
            name.write_token,
            name.version,
            name.suffix,
            file.modified_ms,
        )

    @property
    def path(self) -> str:
        """Path below the table's base path."""
        return f"{self.partition}/{self.name}" if self.partition else self.name


DataFile = BaseFile | LogFile


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group."""

    group: FileGroupId
    base_instant: str
    base: BaseFile | None
    logs: tuple[LogFile, ...] = ()
    """Merge order, oldest first; without the change logs."""
    cdc_logs: tuple[LogFile, ...] = ()
    """Logs of change rows, which only change queries read."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read: a compaction is planned and nothing came after."""
        return self.base is None and not self.logs


@dataclass(frozen=True, slots=True)
class FileGroup:
    """All committed slices of one file group, newest first."""

    id: FileGroupId
    slices: tuple[FileSlice, ...]
    pending_compaction: str | None = None
    replaced_at: str | None = None
    """Requested time of the instant that replaced the group."""


class OrphanReason(Enum):
    """Why a listed file is in no slice."""

    UNRECOGNISED_NAME = "its name is not that of a data file"
    PENDING = "its instant is not completed"
    PENDING_COMPACTION = "the compaction that writes it is not completed"
    UNKNOWN_INSTANT = "its instant is not on the timeline: rolled back, or begun after the listing"
    DUPLICATE = "another base file of the same instant was kept: a task was retried"
    NO_SLICE = "a change log without a slice"


@dataclass(frozen=True, slots=True)
class OrphanFile:
    """A listed file that readers must not touch."""

    partition: str
    name: str
    size: int
    instant: str | None
    reason: OrphanReason


@dataclass(frozen=True, slots=True, eq=False)
class FileSystemView:
    """File groups of a table, or of some of its partitions, as one timeline sees them."""

    groups: Mapping[FileGroupId, FileGroup]
    version: TableVersion
    pending_compaction_instants: frozenset[str]
    orphan_files: tuple[OrphanFile, ...] = ()

    @classmethod
    def build(
        cls,
        files: Mapping[str, Sequence[ListedFile]],
        *,
        timeline: Timeline,
        version: TableVersion,
        pending_compactions: Mapping[FileGroupId, str],
        replaced: Mapping[FileGroupId, str],
        completion_time_of: CompletionTimeOf,
    ) -> FileSystemView:
        """Group the listed files of each partition.

        `pending_compactions` and `replaced` give the compaction planned for a group and the
        instant that replaced it, by requested time; `completion_time_of` must know archived
        instants too, and is asked only where slices go by completion time.
        Raises `UnsupportedTableError` for files registered from outside Hudi.
        """
        builder = _Builder(timeline, version, pending_compactions, completion_time_of)
        for partition, listed in files.items():
            for file in listed:
                builder.add(partition, file)
        groups = {
            id_: FileGroup(id_, slices, pending_compactions.get(id_), replaced.get(id_))
            for id_, slices in builder.slices()
        }
        return cls(groups, version, builder.pending_compactions, tuple(builder.orphans))

    def latest_merged_slices(self, as_of: str | None = None) -> list[FileSlice]:
        """What a snapshot read must read: one slice per live group.

        Logs written after a compaction was planned are merged with the slice the plan compacts.
        `as_of` bounds requested times, inclusively.
        """
        found = (self._merged(group, as_of) for group in self._live(as_of))
        return [slice_ for slice_ in found if slice_ is not None]

    def latest_slices(self, as_of: str | None = None) -> list[FileSlice]:
        """The newest slice of each live group as it is, empty ones included.

        This is what writers append to: while a compaction is pending, the slice it will make.
        """
        newest = (next(self._slices(group, as_of), None) for group in self._live(as_of))
        return [slice_ for slice_ in newest if slice_ is not None]

    def merged_slice(self, id_: FileGroupId) -> FileSlice | None:
        """The newest slice of a group, replaced or not; see `latest_merged_slices`."""
        group = self.groups.get(id_)
        return None if group is None else self._merged(group, None)

    def latest_base_files(self, as_of: str | None = None) -> list[BaseFile]:
        """The newest base file of each live group that has one."""
        return [s.base for s in self.latest_base_slices(as_of) if s.base is not None]

    def latest_base_slices(self, as_of: str | None = None) -> list[FileSlice]:
        """The newest slice with a base file of each live group, without its logs."""
        newest = (
            next((s for s in self._slices(group, as_of) if s.base is not None), None)
            for group in self._live(as_of)
        )
        return [replace(s, logs=(), cdc_logs=()) for s in newest if s is not None]

    def all_slices(self, *, include_replaced: bool = True) -> list[FileSlice]:
        """Every committed slice, group by group, newest first."""
        return [
            slice_
            for group in self.groups.values()
            if include_replaced or group.replaced_at is None
            for slice_ in group.slices
        ]

    def orphans(self) -> list[OrphanFile]:
        """Listed files of no committed slice."""
        return list(self.orphan_files)

    def _live(self, as_of: str | None) -> Iterator[FileGroup]:
        for group in self.groups.values():
            at = group.replaced_at
            if at is None or (as_of is not None and at > as_of):
                yield group

    def _slices(self, group: FileGroup, as_of: str | None) -> Iterator[FileSlice]:
        """Slices not newer than `as_of`, newest first, without logs that are newer."""
        for slice_ in group.slices:
            if as_of is None:
                yield slice_
            elif slice_.base_instant <= as_of:
                yield self._up_to(slice_, as_of)

    def _up_to(self, slice_: FileSlice, as_of: str) -> FileSlice:
        if not self.version.log_name_has_delta_instant:
            return slice_  # the reader bounds the instants of the blocks
        return replace(
            slice_,
            logs=tuple(log for log in slice_.logs if log.instant <= as_of),
            cdc_logs=tuple(log for log in slice_.cdc_logs if log.instant <= as_of),
        )

    def _merged(self, group: FileGroup, as_of: str | None) -> FileSlice | None:
        slices = self._slices(group, as_of)
        newest = next(slices, None)
        if newest is None:
            return None
        if newest.base_instant in self.pending_compaction_instants:
            older = next(slices, None)
            if older is not None:
                newest = FileSlice(
                    group.id,
                    older.base_instant,
                    older.base,
                    _in_order(older.logs + newest.logs),
                    _in_order(older.cdc_logs + newest.cdc_logs),
                )
        while newest is not None and newest.is_empty:
            newest = next(slices, None)
        return newest


@dataclass(slots=True)
class _GroupFiles:
    bases: dict[str, BaseFile] = field(default_factory=dict)
    logs: list[LogFile] = field(default_factory=list)
    cdc_logs: list[LogFile] = field(default_factory=list)


class _Builder:
    """Sorts files into groups, and the files of a group into slices."""

    def __init__(
        self,
        timeline: Timeline,
        version: TableVersion,
        planned: Mapping[FileGroupId, str],
        completion_time_of: CompletionTimeOf,
    ) -> None:
        self.orphans: list[OrphanFile] = []
        pending = {i.requested_time for i in timeline.pending_compactions()}
        self.pending_compactions = frozenset(pending | set(planned.values()))
        self._by_completion = version.slices_by_completion_time
        self._planned = planned
        self._groups: dict[FileGroupId, _GroupFiles] = {}
        self._timeline = timeline
        self._any_commit = timeline.visible().last() is not None
        self._verdict_on = cache(self._verdict)
        self._completion_time_of = cache(completion_time_of)

    def add(self, partition: str, file: ListedFile) -> None:
        """Put a file into its group, or among the orphans."""
        parsed = parse_data_file(file.name)
        if parsed is None:
            self._orphan(partition, file, None, OrphanReason.UNRECOGNISED_NAME)
        elif isinstance(parsed, BaseFileName):
            self._add_base(partition, file, parsed)
        else:
            self._add_log(partition, file, parsed)

    def slices(self) -> Iterator[tuple[FileGroupId, tuple[FileSlice, ...]]]:
        """Every group that has a slice, with its slices newest first."""
        for id_, files in self._groups.items():
            logs = self._logs_by_slice(files, self._planned.get(id_))
            cdc_logs = self._cdc_logs_by_slice(files.cdc_logs, sorted(logs))
            slices = tuple(
                FileSlice(
                    id_,
                    instant,
                    files.bases.get(instant),
                    _in_order(logs[instant]),
                    _in_order(cdc_logs.get(instant, ())),
                )
                for instant in sorted(logs, reverse=True)
            )
            if slices:
                yield id_, slices

    def _verdict(self, instant: str) -> OrphanReason | None:
        """None if what `instant` wrote is committed."""
        if instant in self.pending_compactions:
            return OrphanReason.PENDING_COMPACTION
        if self._any_commit and self._timeline.contains_completed_or_archived(instant):
            return None
        known = self._timeline.get(instant) is not None
        return OrphanReason.PENDING if known else OrphanReason.UNKNOWN_INSTANT

    def _add_base(self, partition: str, file: ListedFile, name: BaseFileName) -> None:
        reason = self._verdict_on(name.instant)
        if reason is not None:
            self._orphan(partition, file, name.instant, reason)
            return
        bases = self._files(partition, name.file_id).bases
        other = bases.get(name.instant)
        if other is not None:
            # Lists of object stores are sorted, and Hudi keeps the base file it meets last.
            if other.name > file.name:
                self._orphan(partition, file, name.instant, OrphanReason.DUPLICATE)
                return
            loser = ListedFile(other.name, other.size, other.modified_ms)
            self._orphan(partition, loser, name.instant, OrphanReason.DUPLICATE)
        bases[name.instant] = BaseFile.of(partition, file, name)

    def _add_log(self, partition: str, file: ListedFile, name: LogFileName) -> None:
        reason = self._verdict_on(name.instant)
        by_base_instant = not self._by_completion and not name.is_cdc
        if reason is OrphanReason.PENDING_COMPACTION and by_base_instant:
            reason = None  # the name only says that the log came after the plan
        if reason is not None:
            self._orphan(partition, file, name.instant, reason)
            return
        files = self._files(partition, name.file_id)
        kept = files.cdc_logs if name.is_cdc else files.logs
        kept.append(LogFile.of(partition, file, name))

    def _files(self, partition: str, file_id: str) -> _GroupFiles:
        id_ = FileGroupId(partition, file_id)
        files = self._groups.get(id_)
        if files is None:
            files = self._groups[id_] = _GroupFiles()
        return files

    def _orphan(
        self, partition: str, file: ListedFile, instant: str | None, reason: OrphanReason
    ) -> None:
        self.orphans.append(OrphanFile(partition, file.name, file.size, instant, reason))

    def _logs_by_slice(self, files: _GroupFiles, planned: str | None) -> dict[str, list[LogFile]]:
        """Logs of every slice of a group, by base instant; empty lists for slices without."""
        slices: dict[str, list[LogFile]] = {instant: [] for instant in files.bases}
        if planned is not None and (slices or files.logs):
            slices[planned] = []
        if not self._by_completion:
            for log in files.logs:
                slices.setdefault(log.instant, []).append(log)
            return slices
        instants = sorted(slices)
        for log in sorted(files.logs, key=log_order_key):
            at = self._slice_of(log.instant, instants)
            if at not in slices:
                slices[at] = []
                instants.insert(bisect_right(instants, at), at)
            slices[at].append(log)
        return slices

    def _slice_of(self, delta_commit: str, instants: list[str]) -> str:
        """The newest slice that began before the delta commit completed, or a new one."""
        if not instants:
            return delta_commit
        if instants[-1] <= delta_commit:
            return instants[-1]  # whenever it completed, so nobody has to look that up
        # Archived without a trace in the history: its request is the best bound there is.
        completed = self._completion_time_of(delta_commit) or delta_commit
        if len(completed) != len(instants[-1]):
            completed = delta_commit
        position = bisect_right(instants, completed)
        return instants[position - 1] if position else delta_commit

    def _cdc_logs_by_slice(
        self, cdc_logs: list[LogFile], instants: list[str]
    ) -> dict[str, list[LogFile]]:
        """A change log carries the instant of the base file it was written with."""
        slices: dict[str, list[LogFile]] = {}
        for log in cdc_logs:
            position = bisect_right(instants, log.instant)
            if position:
                slices.setdefault(instants[position - 1], []).append(log)
            else:
                listed = ListedFile(log.name, log.size, log.modified_ms)
                self._orphan(log.partition, listed, log.instant, OrphanReason.NO_SLICE)
        return slices


def _in_order(logs: Sequence[LogFile]) -> tuple[LogFile, ...]:
    return tuple(logs) if len(logs) < 2 else tuple(sorted(logs, key=log_order_key))
