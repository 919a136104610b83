"""Planning a read of changed rows: which slices hold what the instants of a range wrote.

A range is read from the files that its instants wrote and from nothing else, as Hudi reads it: the
versions of a row inside the range meet each other, but not what was there before the range. Log
blocks that hold only some columns of a row are the exception: they say nothing without the rows
they complete, so their slice is read as of the end of the range. Where the files themselves do not
tell, because an instant was archived or a file was cleaned, the files of the latest snapshot are
read instead, and what the range wrote is taken from them; rows that were changed again after the
range are then missing where a newer base file has replaced them, and come with the later change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from lakewright.engine.change_range import ChangeRange
from lakewright.engine.scan_plan import ScanTask, partition_may_match, plan_scan
from lakewright.engine.slice_reader import COMMIT_TIME
from lakewright.engine.snapshot import Snapshot
from lakewright.expr import Expr, bind, col, conjunction
from lakewright.format.file_slices import FileGroupId, FileSlice, FileSystemView
from lakewright.format.instant import Instant
from lakewright.format.partitions import ListedFile
from lakewright.format.records.instants import load_commit_metadata

WRITTEN_FILES = "the files the instants wrote"
LATEST_SNAPSHOT = "the latest snapshot"


class ChangeTask(Protocol):
    """One unit of work of a read of changes."""

    @property
    def bytes(self) -> int:
        """Bytes of all files of the task."""
        ...

    def to_dict(self) -> dict[str, object]:
        """The task as plain values."""
        ...


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What a read of changes will read, and from where."""

    table: str
    mode: str
    range: ChangeRange
    source: str
    columns: tuple[str, ...]
    where: str | None
    tasks: tuple[ChangeTask, ...]
    warnings: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of the files of all tasks (whole files, before column pruning)."""
        return sum(t.bytes for t in self.tasks)

    def to_dict(self) -> dict[str, object]:
        """The plan as plain values."""
        return {
            "table": self.table,
            "mode": self.mode,
            "since": str(self.range.begin),
            "end": str(self.range.end),
            "instants": list(self.range.requested_times),
            "archived_instants": list(self.range.archived),
            "source": self.source,
            "columns": list(self.columns),
            "where": self.where,
            "bytes": self.bytes,
            "tasks": [t.to_dict() for t in self.tasks],
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        archived = len(self.range.archived)
        lines = [
            f"changes of {self.table} as {self.mode}, {len(self.columns)} columns",
            f"  range       after {self.range.begin} up to {self.range.end}",
            f"  instants    {len(self.range.requested_times)}"
            + (f", {archived} of them archived" if archived else ""),
            f"  filter      {self.where or 'none'}",
            f"  read        {len(self.tasks)} tasks, {self.bytes:,} bytes, from {self.source}",
        ]
        lines += [f"  warning     {w}" for w in self.warnings]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RowSlices:
    """The slices of a read of changed rows."""

    tasks: tuple[ScanTask, ...]
    span: frozenset[str]
    """Instants whose versions meet each other."""
    where: Expr | None
    """What rows must pass: the caller's filter, and a commit time inside the range."""
    source: str
    """Where the rows come from, for people."""
    warnings: tuple[str, ...]


def plan_rows(snapshot: Snapshot, range_: ChangeRange, where: Expr | None) -> RowSlices:
    """Choose the slices of a read of changed rows. `where` is bound to the table's schema."""
    warnings = list(snapshot.opened.warnings.told)
    if range_.stopped_by is not None:
        pending = range_.stopped_by
        warnings.append(f"stops before {pending.action} {pending.requested_time}, still pending")
    times = frozenset(range_.requested_times)
    if not times:
        return RowSlices((), times, where, WRITTEN_FILES, tuple(warnings))
    in_range = bind(col(COMMIT_TIME).isin(sorted(times)), snapshot.schema.arrow)
    test = in_range if where is None else conjunction(where, in_range)
    if range_.archived:
        warnings.append(f"{len(range_.archived)} instants of the range are archived")
        return _from_snapshot(snapshot, times, test, warnings)
    written = written_files(snapshot, range_.instants)
    kept = {p: names for p, names in written.items() if partition_may_match(p, snapshot, where)}
    listing, missing = present_files(snapshot, kept)
    if missing:
        warnings.append(f"{len(missing)} files of the range were cleaned, such as {missing[0]}")
        return _from_snapshot(snapshot, times, test, warnings)
    slices = _as_of_range(snapshot.view(listing), times).latest_merged_slices(max(times))
    slices.sort(key=lambda s: (s.group.partition, s.group.file_id))
    whole = _with_older_files(snapshot, slices, times)
    # Blocks of a log compaction hold rows of older instants too, so rows are tested again.
    tasks = tuple(ScanTask(s, whole.get(s.group)) for s in slices)
    return RowSlices(tasks, times, test, WRITTEN_FILES, tuple(warnings))


def _with_older_files(
    snapshot: Snapshot, slices: Sequence[FileSlice], times: frozenset[str]
) -> dict[FileGroupId, FileSlice]:
    """Slices with logs as of the range's end, where rows may need what is older than the range."""
    wanted = {s.group for s in slices if s.logs}
    if not wanted or not snapshot.properties.version.partial_log_blocks:
        return {}
    listed = snapshot.opened.listing.files(sorted({id_.partition for id_ in wanted}))
    view = _as_of_range(snapshot.view(listed), times)
    return {s.group: s for s in view.latest_merged_slices(max(times)) if s.group in wanted}


def _as_of_range(view: FileSystemView, times: frozenset[str]) -> FileSystemView:
    """The view without replacements by other instants: one begun earlier may have completed later.

    What such an instant replaced was there in the range, and it shows in no other range.
    """
    groups = {
        id_: group if group.replaced_at in times else replace(group, replaced_at=None)
        for id_, group in view.groups.items()
    }
    return replace(view, groups=groups)


def _from_snapshot(
    snapshot: Snapshot, times: frozenset[str], test: Expr, warnings: Sequence[str]
) -> RowSlices:
    plan = plan_scan(snapshot, mode="snapshot", output=(), where=test)
    return RowSlices(plan.tasks, times, test, LATEST_SNAPSHOT, (*warnings, *plan.warnings))


def written_files(snapshot: Snapshot, instants: Iterable[Instant]) -> dict[str, list[str]]:
    """Names of the data files that the instants wrote, by partition."""
    written: dict[str, dict[str, None]] = {}
    for instant in instants:
        metadata = load_commit_metadata(snapshot.storage, snapshot.properties, instant)
        for partition, stats in metadata.partition_to_write_stats.items():
            names = written.setdefault(partition, {})
            names.update(dict.fromkeys(s.path.rsplit("/", 1)[-1] for s in stats if s.path))
    return {partition: list(names) for partition, names in written.items()}


def present_files(
    snapshot: Snapshot, wanted: Mapping[str, Sequence[str]]
) -> tuple[dict[str, list[ListedFile]], list[str]]:
    """The wanted files as they are listed, and the paths of those that are gone."""
    opened = snapshot.opened.listing
    known = set(opened.partitions())
    listed = opened.files([p for p in wanted if p in known])
    found: dict[str, list[ListedFile]] = {}
    missing: list[str] = []
    for partition, names in wanted.items():
        by_name = {file.name: file for file in listed.get(partition, ())}
        found[partition] = [by_name[name] for name in names if name in by_name]
        missing += [f"{partition}/{name}" for name in names if name not in by_name]
    return found, missing
