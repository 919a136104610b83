"""Conflicts between writes: rules over who changed which file group, pure but for two.

A write is based on a timeline. When it begins and at commit, under the lock, it is compared with
every write that has completed since, and at commit with pending plans that take file groups away: a
file group that both change is a conflict, and the later of the two loses. New file groups never
conflict. The rules differ by table version, because versions differ in where a late log file lands
(`slices_by_completion_time`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from lakewright.errors import WriteConflictError
from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import Instant
from lakewright.format.records import (
    CommitMetadata,
    CompactionPlan,
    RequestedReplaceMetadata,
    load_commit_metadata,
    load_requested_replace,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline, is_pending_clustering
from lakewright.format.version import TableVersion
from lakewright.storage.base import Storage

__all__ = [
    "Mutation",
    "Other",
    "completed_since",
    "find_conflict",
    "groups_in_clustering",
    "groups_of_commit",
    "groups_of_compaction",
    "groups_of_replacement",
    "raise_conflict",
    "refuse_overtaken",
    "undone_since",
]


@dataclass(frozen=True, slots=True)
class Mutation:
    """What a write changes of what was there before it."""

    instant: str
    groups: frozenset[FileGroupId]
    """File groups that it rewrites, appends to or replaces."""
    rewritten: frozenset[FileGroupId] = frozenset()
    """Those of them of which it writes a new base file."""


@dataclass(frozen=True, slots=True)
class Other:
    """Another write or plan, and the file groups it changes."""

    instant: Instant
    operation: str
    groups: frozenset[FileGroupId]
    known: bool = False
    """Whether it was on the timeline, planned or committed, that the write is based on."""


def completed_since(basis: Timeline, now: Timeline) -> list[Instant]:
    """Writes that have completed after a timeline was listed."""
    known = {(i.requested_time, i.completed_action) for i in basis.commits().completed()}
    return [
        i for i in now.commits().completed() if (i.requested_time, i.completed_action) not in known
    ]


def undone_since(basis: Timeline, now: Timeline, targets: Iterable[str]) -> str | None:
    """A write or compaction plan that was taken back after the basis was listed, or the restore
    that did so.

    `targets` are those of the rollbacks that have come since. What left the timeline at its start
    was archived.
    """
    known = {i.requested_time for i in basis.commits().completed()}
    plans = {i.requested_time for i in basis.pending_compactions()}
    gone = known - {i.requested_time for i in now.commits().completed()}
    gone |= plans - {i.requested_time for i in now.writes()}
    undone = known.intersection(targets) | {t for t in gone if not now.is_archived(t)}
    for restore in now.filter_actions("restore"):
        if basis.get(restore.requested_time, "restore") is None:
            undone.add(restore.requested_time)
    return min(undone, default=None)


def find_conflict(
    mine: Mutation, others: Iterable[Other], version: TableVersion
) -> tuple[Other, frozenset[FileGroupId]] | None:
    """The first write or plan that stands against `mine`, with the file groups of both."""
    for other in others:
        groups = _against(mine, other, version) & other.groups
        if groups:
            return other, groups
    return None


def refuse_overtaken(
    storage: Storage,
    properties: TableProperties,
    changed: Collection[FileGroupId],
    basis: Timeline,
    now: Timeline,
) -> None:
    """Raise `WriteConflictError` if what a write is about to change was changed since its basis."""
    mine = Mutation("", frozenset(changed))
    for instant in completed_since(basis, now) if changed else ():
        metadata = load_commit_metadata(storage, properties, instant)
        known = basis.get(instant.requested_time, instant.completed_action) is not None
        other = Other(instant, metadata.operation_type or "", groups_of_commit(metadata), known)
        found = find_conflict(mine, [other], properties.version)
        if found is not None:
            raise_conflict(mine, *found)


def _against(mine: Mutation, other: Other, version: TableVersion) -> frozenset[FileGroupId]:
    """Which groups of mine `other` may not have changed, or be about to change."""
    if other.operation == "COMPACT":
        # A late base file hides the result of a compaction. A late log joins the slice after it,
        # by its completion, or by its name if the write knew of the plan.
        joins = version.slices_by_completion_time or other.known
        return mine.rewritten if joins else mine.groups
    return mine.groups


def raise_conflict(mine: Mutation, other: Other, groups: frozenset[FileGroupId]) -> None:
    """Say who won what."""
    first = min(groups)
    state = "committed" if other.instant.completed else "planned"
    raise WriteConflictError(
        f"{other.operation or other.instant.action} {other.instant.requested_time} {state} a "
        f"change to {len(groups)} of the file groups that this write changes.",
        hint="Nothing was published. Run the write again: it will be based on the new state.",
        context={
            "instant": mine.instant or "not begun",
            "other": other.instant.requested_time,
            "partition": first.partition,
            "file_id": first.file_id,
        },
        retryable=True,
    )


# ---- which groups a write or plan changes ------------------------------------------------------


def groups_of_commit(metadata: CommitMetadata) -> frozenset[FileGroupId]:
    """File groups that a committed write wrote or replaced."""
    written = {
        FileGroupId(stat.partition_path or partition, stat.file_id)
        for partition, stats in metadata.partition_to_write_stats.items()
        for stat in stats
        if stat.file_id
    }
    replaced = {
        FileGroupId(partition, file_id)
        for partition, file_ids in (metadata.partition_to_replace_file_ids or {}).items()
        for file_id in file_ids
    }
    return frozenset(written | replaced)


def groups_of_compaction(plan: CompactionPlan) -> frozenset[FileGroupId]:
    """File groups that a planned compaction takes."""
    return frozenset(
        FileGroupId(operation.partition_path or "", operation.file_id or "")
        for operation in plan.operations or ()
    )


def groups_of_replacement(request: RequestedReplaceMetadata) -> frozenset[FileGroupId]:
    """File groups that a planned clustering takes; none for an overwrite, which has no plan."""
    plan = request.clustering_plan
    return frozenset(
        FileGroupId(piece.partition_path or "", piece.file_id or "")
        for group in (plan.input_groups if plan else None) or ()
        for piece in group.slices or ()
    )


def groups_in_clustering(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> frozenset[FileGroupId]:
    """File groups that pending clusterings take."""
    found: frozenset[FileGroupId] = frozenset()
    for instant in timeline.pending():
        if is_pending_clustering(storage, properties, instant):
            found |= groups_of_replacement(load_requested_replace(storage, properties, instant))
    return found
