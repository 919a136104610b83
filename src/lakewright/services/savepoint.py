"""Savepoints: commits whose files no clean deletes, so that they can be read and restored for long.

A savepoint names every file of the slices that a reader of its commit reads. It is made and deleted
under the lock; when it goes, a commit behind which the timeline was archived goes into the archive
first. It is refused where files may be gone already, or are named by a clean that is on its way:
below the moment that the last clean retains, completed or pending; in files of a pending clean; and
at any commit but the newest after a clean by file versions, which retains no moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lakewright.errors import ConflictError, InstantNotFoundError
from lakewright.format.cleaned_files import files_of_plan
from lakewright.format.instant import Instant
from lakewright.format.records import (
    CleanerPlan,
    CleanMetadata,
    SavepointMetadata,
    SavepointPartitionMetadata,
    load_savepoint,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.runtime.events import Event
from lakewright.services.archive import archive_alone
from lakewright.services.archive_limits import archived_after, replaced_limit
from lakewright.services.clean_execution import CLEAN
from lakewright.services.full_scans import demand_full_scan
from lakewright.services.needed_files import Names, clean_record, needed_files, planned_clean
from lakewright.txn.access import Access
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.restoring import refuse_restore
from lakewright.txn.times import next_time

__all__ = ["Savepoint", "create_savepoint", "delete_savepoint", "list_savepoints"]

SAVEPOINT = "savepoint"
TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A commit that is kept."""

    instant: str
    """Requested time of the commit."""
    by: str
    comment: str
    created_ms: int
    partitions: int
    files: int


def list_savepoints(access: Access) -> list[Savepoint]:
    """Every savepoint of the table, oldest commit first."""
    properties = access.properties()
    return [
        _savepoint(instant.requested_time, load_savepoint(access.storage, properties, instant))
        for instant in access.timeline(properties).savepoints()
    ]


def create_savepoint(
    access: Access, instant: str | None = None, *, by: str = "lakewright", comment: str = ""
) -> Savepoint:
    """Keep a commit, by default the newest; one that is kept already stays as it is.

    Raises `InstantNotFoundError` if there is no such commit or its files may be gone,
    `ConflictError` if a clean that was planned is about to delete some of them.
    """
    properties = access.properties()
    commit = _commit(access.timeline(properties), instant)
    for _ in range(TRIES):
        seen = access.timeline(properties)
        _refuse_cleaned(access, properties, seen, commit)
        names = needed_files(access.storage, properties, seen, as_of=commit)
        with access.locked(f"savepoint {commit}") as lease:
            timeline = access.timeline(properties)
            refuse_restore(timeline, "kept")
            _commit(timeline, commit)
            known = timeline.get(commit, SAVEPOINT)
            if known is not None and known.completed:
                return _savepoint(commit, load_savepoint(access.storage, properties, known))
            _refuse_cleaned(access, properties, timeline, commit)
            if _past(timeline, commit) != _past(seen, commit):
                continue
            _refuse_named(access, properties, timeline, names)
            metadata = _metadata(access, names, by, comment)
            _publish(access, lease, properties, timeline, commit, metadata, begun=known is not None)
        made = _savepoint(commit, metadata)
        access.on_event(Event("savepoint.created", made.files, unit="files", instant=commit))
        return made
    raise ConflictError(
        f"Writes that began before {commit} ended again and again while it was to be kept.",
        hint="Run it again when they are done.",
        context={"instant": commit, "tries": TRIES},
        retryable=True,
    )


def _past(timeline: Timeline, commit: str) -> list[Instant]:
    """What decides about the files of a commit: one that began before may end only now, and
    replace files that were to be kept."""
    return [i for i in timeline.commits() if i.requested_time <= commit]


def _metadata(
    access: Access, names: Mapping[str, Sequence[str]], by: str, comment: str
) -> SavepointMetadata:
    return SavepointMetadata(
        savepointed_by=by,
        savepointed_at=access.clock.now_ms(),
        comments=comment,
        partition_metadata={
            partition: SavepointPartitionMetadata(
                partition_path=partition, savepoint_data_file=files
            )
            for partition, files in names.items()
        },
    )


def delete_savepoint(access: Access, instant: str) -> None:
    """Let a commit go; the next clean may delete its files.

    Raises `InstantNotFoundError` if there is no savepoint of that commit, `ConflictError` if the
    commit must go into the archive first and cannot.
    """
    properties = access.properties()
    with access.locked(f"deletion of the savepoint {instant}") as lease:
        timeline = access.timeline(properties)
        found = timeline.get(instant, SAVEPOINT)
        if found is None:
            raise InstantNotFoundError(
                f"There is no savepoint of the commit {instant}.",
                hint=f"Savepoints of this table: {_listed(timeline.savepoints())}.",
                context={"instant": instant},
            )
        refuse_restore(timeline, "let go")
        demand_full_scan(access.storage, next_time(timeline, properties, access.clock))
        _archive_before_gap(access, lease, properties, timeline, instant)
        lease.check()
        files = access.files(properties)
        copies = [i for i in timeline.duplicates if i.action == SAVEPOINT]
        for copy in (*copies, found):
            if copy.completed and copy.requested_time == instant:
                files.drop(copy)
        files.withdraw(instant, SAVEPOINT)
    access.on_event(Event("savepoint.deleted", 1, instant=instant))


def _archive_before_gap(
    access: Access, lease: Lease, properties: TableProperties, timeline: Timeline, instant: str
) -> None:
    """Archive the commit first if commits behind it are archived already.

    Readers look past a savepointed commit for the start of the timeline. Once it is an ordinary one
    the timeline starts with it, and what is archived behind it would count as never committed.
    """
    commit = timeline.commits().completed().get(instant)
    if commit is None:
        return
    if not archived_after(access.storage, properties, instant):
        return
    if replaced_limit(access.storage, properties, [commit]) is not None:
        raise ConflictError(
            f"The commit {instant} must be archived before its savepoint goes, but files that it "
            "replaced are still there.",
            hint="Delete the older savepoint that keeps these files, clean the table, then delete "
            "this savepoint.",
            context={"instant": instant},
        )
    archive_alone(access, lease, properties, timeline, commit)


def _publish(
    access: Access,
    lease: Lease,
    properties: TableProperties,
    timeline: Timeline,
    commit: str,
    metadata: SavepointMetadata,
    *,
    begun: bool,
) -> None:
    """Both states under one lock, so an inflight one that is found was left by a dead process."""
    files = access.files(properties)
    lease.check()
    if not begun:
        files.start(commit, SAVEPOINT)
    completed = next_time(timeline, properties, access.clock)
    access.clock.sleep(access.skew_s())
    lease.check()
    files.complete(commit, SAVEPOINT, metadata.write(properties.version), completed)


def _savepoint(instant: str, metadata: SavepointMetadata) -> Savepoint:
    kept = metadata.partition_metadata.values()
    return Savepoint(
        instant=instant,
        by=metadata.savepointed_by,
        comment=metadata.comments,
        created_ms=metadata.savepointed_at,
        partitions=len(kept),
        files=sum(len(p.savepoint_data_file) for p in kept),
    )


# ---- what is refused ---------------------------------------------------------------------------


def _commit(timeline: Timeline, instant: str | None) -> str:
    """The completed commit that is meant."""
    commits = timeline.commits().completed()
    last = commits.last()
    if instant is None and last is not None:
        return last.requested_time
    found = commits.get(instant) if instant is not None else None
    if found is None:
        raise InstantNotFoundError(
            "There is no completed commit to keep."
            if instant is None
            else f"There is no completed commit {instant} on the active timeline.",
            hint=f"Commits that can be kept: {_listed(commits)}.",
            context={"instant": instant or ""},
        )
    return found.requested_time


def _listed(timeline: Timeline) -> str:
    return ", ".join(i.requested_time for i in timeline) or "none"


def _refuse_cleaned(
    access: Access, properties: TableProperties, timeline: Timeline, commit: str
) -> None:
    """Refuse a commit of which files may be gone, or are about to go."""
    last = timeline.last_completed_commit()
    newest = last is not None and last.requested_time == commit
    for clean in _cleans(timeline):
        record = clean_record(access, properties, clean)
        retained = _retained(record)
        if retained is None:
            continue
        if commit < retained or (not retained and not newest and clean.requested_time > commit):
            raise InstantNotFoundError(
                f"The commit {commit} cannot be kept: the clean {clean.requested_time} may have "
                "deleted files of it.",
                hint=f"Keep a commit from {retained} on."
                if retained
                else "It was a clean by file versions, which retains no moment; keep the newest "
                "commit.",
                context={"instant": commit, "clean": clean.requested_time, "retained": retained},
            )


def _cleans(timeline: Timeline) -> Iterable[Instant]:
    """Cleans of which something may be gone, newest first."""
    return reversed(timeline.filter_actions(CLEAN).instants)


def _retained(record: CleanMetadata | CleanerPlan | None) -> str | None:
    """The moment that a clean retains; empty if it retains none, None if nothing was cleaned."""
    if record is None:
        return None
    if isinstance(record, CleanMetadata):
        return record.earliest_commit_to_retain
    retained = record.earliest_instant_to_retain
    return retained.timestamp if retained is not None else ""


def _refuse_named(
    access: Access, properties: TableProperties, timeline: Timeline, names: Names
) -> None:
    """Refuse files that a pending clean is going to delete."""
    for clean in timeline.filter_actions(CLEAN).pending():
        plan = planned_clean(access, properties, clean)
        for partition, doomed in (files_of_plan(plan) if plan else {}).items():
            if not set(doomed).isdisjoint(names.get(partition, ())):
                raise ConflictError(
                    f"The clean {clean.requested_time} is about to delete files of the commit.",
                    hint="Let the clean finish, then keep a commit from the moment it retains on.",
                    context={"clean": clean.requested_time, "partition": partition},
                    retryable=True,
                )
