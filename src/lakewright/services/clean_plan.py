"""Planning a clean: which moment is retained, which partitions are visited, which files go.

Pure: the table at one moment (`CleanBasis`) and listings in, a plan record out, so a dry run costs
nothing and changes nothing. Partitions are taken one at a time, with a view of that one only; what
grows with the table is the plan itself.

The retained moment is the requested time of a completed commit: every state of the table from it on
stays readable. It never goes back: after a change of options nothing is planned until the moment
that the previous clean retained is passed. Cleans by file versions retain no moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Final

from lakewright.format.file_slices import CompletionTimeOf, FileGroupId, FileSystemView
from lakewright.format.instant import COMMIT_ACTIONS, Instant
from lakewright.format.instant_times import format_time
from lakewright.format.partitions import ListedFile
from lakewright.format.records import (
    ActionInstant,
    CleanerPlan,
    CleanFileInfo,
    CleanMetadata,
    CommitMetadata,
)
from lakewright.format.timeline import Timeline
from lakewright.format.version import TableVersion
from lakewright.services.clean_options import CleanOptions, CleanPolicy
from lakewright.services.clean_selection import (
    Protection,
    Selection,
    by_partition,
    select_slices,
)

__all__ = [
    "SAVEPOINTS_KEY",
    "CleanBasis",
    "CleanOptions",
    "CleanPolicy",
    "PlannedClean",
    "PreviousClean",
    "instant_to_retain",
    "instants_to_visit",
    "is_due",
    "partitions_of",
    "plan_clean",
]

SAVEPOINTS_KEY: Final = "savepointed_timestamps"
"""Where a clean says which savepoints there were, as Hudi's cleans do."""
_HOUR_MS: Final = 3_600_000
_COUNTED: Final = COMMIT_ACTIONS | {"compaction"}
"""Actions that the retained moment is counted in."""
_NO_PREVIOUS: Final = (None, "", "null")


@dataclass(frozen=True, slots=True)
class PreviousClean:
    """The last completed clean whose metadata can be read."""

    metadata: CleanMetadata

    @property
    def retained(self) -> str:
        """The moment it retained; empty for a clean by file versions."""
        return self.metadata.earliest_commit_to_retain

    @property
    def savepoints(self) -> frozenset[str]:
        """Savepoints that it found."""
        said = (self.metadata.extra_metadata or {}).get(SAVEPOINTS_KEY, "")
        return frozenset(filter(None, said.split(",")))


@dataclass(frozen=True, slots=True)
class CleanBasis:
    """What a clean is planned on: the table at one moment."""

    timeline: Timeline
    version: TableVersion
    zone: tzinfo
    now_ms: int
    completion_time_of: CompletionTimeOf
    merge_on_read: bool = True
    previous: PreviousClean | None = None
    promised: str = ""
    """The latest moment that a pending clean retains: what is older goes, whoever executes it."""
    protection: Protection = field(default_factory=Protection)
    pending_compactions: Mapping[FileGroupId, str] = field(default_factory=dict)
    replaced: Mapping[FileGroupId, str] = field(default_factory=dict)
    plans: frozenset[str] = frozenset()
    """Times of pending compactions, log compactions and clusterings."""
    undone: frozenset[str] = frozenset()
    """Times of completed writes that are being rolled back."""
    full_scans: frozenset[str] = frozenset()
    """Reasons to visit every partition that earlier cleans and deleted savepoints left."""

    def completed_at(self, requested_time: str) -> str:
        """When a write took effect, as far as it can be told."""
        return self.completion_time_of(requested_time) or requested_time


@dataclass(frozen=True, slots=True)
class PlannedClean:
    """A plan and what has to be remembered beside it."""

    plan: CleanerPlan
    held_back: bool
    """Old files stay because they are in use now."""

    @property
    def files(self) -> int:
        """How many files the plan deletes."""
        return sum(map(len, (self.plan.file_paths_to_be_deleted_per_partition or {}).values()))


# ---- when and up to where ----------------------------------------------------------------------


def is_due(basis: CleanBasis, options: CleanOptions) -> bool:
    """Whether enough was committed since the previous clean."""
    if basis.full_scans:
        return True
    last = basis.previous
    since = last.metadata.last_completed_commit_timestamp if last is not None else ""
    commits = basis.timeline.commits().completed()
    return sum(i.requested_time > since for i in commits) >= options.trigger_commits


def instant_to_retain(basis: CleanBasis, options: CleanOptions) -> Instant | None:
    """The earliest instant whose state of the table stays readable; None if nothing is old enough.

    None also where it would lie before the one of the previous clean, or of a pending one: commits
    that were taken back meanwhile do not bring back what these delete.
    """
    if options.by_versions:
        return None
    counted = basis.timeline.filter(lambda i: i.action in _COUNTED)
    completed = counted.completed().instants
    if options.policy is CleanPolicy.KEEP_LATEST_COMMITS:
        found = _by_commits(completed, counted.pending().first(), options.commits_retained)
    else:
        begin = format_time(basis.now_ms - options.hours_retained * _HOUR_MS, zone=basis.zone)
        found = next((i for i in completed if i.requested_time >= begin), None)
    if found is None:
        return None
    before = basis.previous.retained if basis.previous is not None else ""
    found = _capped(completed, found, before, options.max_commits_to_clean)
    return found if found.requested_time >= max(before, basis.promised) else None


def _by_commits(
    completed: Sequence[Instant], pending: Instant | None, retained: int
) -> Instant | None:
    if len(completed) <= retained:
        return None
    candidate = completed[-retained]
    if pending is None or pending.requested_time > candidate.requested_time:
        return candidate
    older = [i for i in completed if i.requested_time < pending.requested_time]
    return older[-1] if older else None


def _capped(
    completed: Sequence[Instant], candidate: Instant, before: str, limit: int | None
) -> Instant:
    """Not more than `limit` commits beyond the moment of the previous clean."""
    if limit is None:
        return candidate
    advance = [i for i in completed if before <= i.requested_time <= candidate.requested_time]
    return advance[limit] if len(advance) > limit else candidate


# ---- where -------------------------------------------------------------------------------------


def instants_to_visit(
    basis: CleanBasis, options: CleanOptions, retained: Instant | None
) -> tuple[Instant, ...] | None:
    """Completed writes whose partitions may have something to clean; None is every partition.

    Besides what was requested between the two retained moments, these are the writes that
    completed late: the previous clean may not have seen them.
    """
    last = basis.previous
    if (
        not options.incremental
        or basis.full_scans
        or retained is None
        or last is None
        or not last.retained
        or basis.timeline.is_archived(last.retained)
        or last.savepoints - basis.timeline.savepointed_times
    ):
        return None
    begin, seen = last.retained, last.metadata.last_completed_commit_timestamp
    return tuple(
        i
        for i in basis.timeline.commits().completed()
        if i.requested_time < retained.requested_time
        and (i.requested_time >= begin or (i.completion_time or "") > seen)
    )


def partitions_of(metadata: CommitMetadata, *, merge_on_read: bool) -> set[str]:
    """Partitions in which a write may have made files old.

    On a copy-on-write table new file groups make nothing old.
    """
    replaced = set(metadata.partition_to_replace_file_ids or ())
    if merge_on_read or replaced:
        return replaced | set(metadata.partition_to_write_stats)
    return {
        partition
        for partition, stats in metadata.partition_to_write_stats.items()
        if any(stat.prev_commit not in _NO_PREVIOUS for stat in stats)
    }


# ---- what --------------------------------------------------------------------------------------


def plan_clean(
    basis: CleanBasis,
    options: CleanOptions,
    listing: Iterable[tuple[str, Sequence[ListedFile]]],
    *,
    base_path: str,
) -> PlannedClean:
    """The plan for the listed partitions, which are taken one after the other."""
    instant = instant_to_retain(basis, options)
    retained = None if instant is None else instant.requested_time
    paths: dict[str, list[CleanFileInfo]] = {}
    emptied: list[str] = []
    held_back = False
    if retained is not None or options.by_versions:
        compactions = by_partition(basis.pending_compactions)
        for partition, files in listing:
            view = _view(basis, partition, files, compactions.get(partition, {}))
            selection = _select(basis, options, retained, view)
            held_back = held_back or selection.held_back
            if not selection.files:
                continue
            paths[partition] = [
                CleanFileInfo(file_path=f"{base_path.rstrip('/')}/{file.path}")
                for file in selection.files
            ]
            if partition and len(selection.files) == len(files):
                emptied.append(partition)
    last = basis.timeline.last_completed_commit()
    plan = CleanerPlan(
        earliest_instant_to_retain=None if instant is None else _named(instant),
        last_completed_commit_timestamp="" if last is None else last.requested_time,
        policy=options.policy.value,
        file_paths_to_be_deleted_per_partition=paths,
        partitions_to_be_deleted=emptied,
        extra_metadata=_extra(basis.timeline),
    )
    return PlannedClean(plan, held_back)


def _view(
    basis: CleanBasis,
    partition: str,
    files: Sequence[ListedFile],
    compactions: Mapping[FileGroupId, str],
) -> FileSystemView:
    return FileSystemView.build(
        {partition: files},
        timeline=basis.timeline,
        version=basis.version,
        pending_compactions=compactions,
        replaced=basis.replaced,
        completion_time_of=basis.completion_time_of,
    )


def _select(
    basis: CleanBasis, options: CleanOptions, retained: str | None, view: FileSystemView
) -> Selection:
    selection = Selection()
    for group in view.groups.values():
        select_slices(group, options, retained, basis.protection, basis.completed_at, selection)
    return selection


def _named(instant: Instant) -> ActionInstant:
    return ActionInstant(
        timestamp=instant.requested_time, action=instant.action, state=instant.state.name
    )


def _extra(timeline: Timeline) -> dict[str, str]:
    savepoints = sorted(timeline.savepointed_times)
    return {SAVEPOINTS_KEY: ",".join(savepoints)} if savepoints else {}
