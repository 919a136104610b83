"""Cleaning: deleting the files of old slices, by a plan that is on the timeline first.

A plan is made without the lock and published under it, after a second look at everything that
protects files. Once published it is never made anew: whoever executes it deletes exactly its files,
without the lock, and completes it under the lock. One process executes a plan at a time, by a
heartbeat that begins under the lock; a process that dies, or stands still for too long, leaves the
plan to the next one, for which a file that is gone already is a deleted one. The completed clean
names every file of its plan, whoever deleted it.

What can go wrong: a file that cannot be deleted fails the execution, and the clean stays pending.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lakewright.errors import ConflictError, NotFoundError
from lakewright.format.instant import State
from lakewright.format.partitions import ListedFile, list_files, list_table
from lakewright.format.records import (
    CleanerPlan,
    CleanMetadata,
    load_commit_metadata,
)
from lakewright.format.records.instants import instant_path
from lakewright.format.table_properties import TableProperties
from lakewright.runtime.events import Event
from lakewright.services.clean_basis import load_basis, still_holds
from lakewright.services.clean_execution import CLEAN, execute_clean
from lakewright.services.clean_options import CleanOptions
from lakewright.services.clean_plan import (
    CleanBasis,
    PlannedClean,
    instant_to_retain,
    instants_to_visit,
    is_due,
    partitions_of,
    plan_clean,
)
from lakewright.services.full_scans import demand_full_scan, forget_full_scans
from lakewright.txn.access import Access, FailedWrites
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.metadata_gate import pass_metadata_gate
from lakewright.txn.recovery import roll_back_failed, sweep_traces
from lakewright.txn.restoring import refuse_restore
from lakewright.txn.times import next_time

__all__ = [
    "CleanOptions",
    "CleanResult",
    "execute_clean",
    "pending_cleans",
    "repair_empty_clean",
    "run_clean",
    "schedule_clean",
]

PLAN_TRIES: Final = 5
"""How often others may change what a plan is based on before a clean gives up."""


@dataclass(frozen=True, slots=True)
class CleanResult:
    """What a clean did, or would do."""

    scheduled: str | None = None
    """The clean that was planned by this call."""
    plan: CleanerPlan | None = None
    """What a dry run would delete; None where there is nothing to do."""
    executed: tuple[tuple[str, CleanMetadata], ...] = ()
    """Cleans that were completed by this call, oldest first."""
    rolled_back: tuple[str, ...] = ()
    """Writes of dead processes that were rolled back first."""

    @property
    def files_deleted(self) -> int:
        """Files of all completed cleans."""
        return sum(metadata.total_files_deleted for _, metadata in self.executed)


def run_clean(
    access: Access, options: CleanOptions | None = None, *, dry_run: bool = False
) -> CleanResult:
    """Roll back dead writes, finish cleans that were not finished, then plan and execute a new one.

    A dry run only plans, and changes nothing. Raises `UnsupportedTableError` for a table with a
    metadata table that must not be dropped, `TableError` while a restore is pending.
    """
    options = options or CleanOptions()
    if dry_run:
        draft = _settled_draft(access, options)
        return CleanResult(plan=draft.planned.plan if draft and draft.planned.files else None)
    pass_metadata_gate(access, drop=options.drop_metadata_table)
    rolled_back: tuple[str, ...] = ()
    if access.failed_writes is not FailedWrites.NEVER:
        rolled_back = roll_back_failed(access).rolled_back
    repair_empty_clean(access)
    executed = _execute_pending(access)
    scheduled = schedule_clean(access, options)
    if scheduled is not None:
        executed += _execute_pending(access)
    sweep_traces(access)
    return CleanResult(scheduled=scheduled, executed=executed, rolled_back=rolled_back)


def pending_cleans(access: Access) -> list[str]:
    """Times of cleans that are planned and not completed, oldest first."""
    timeline = access.timeline(access.properties())
    return [i.requested_time for i in timeline.filter_actions(CLEAN).pending()]


def _execute_pending(access: Access) -> tuple[tuple[str, CleanMetadata], ...]:
    done = ((instant, execute_clean(access, instant)) for instant in pending_cleans(access))
    return tuple((instant, metadata) for instant, metadata in done if metadata is not None)


# ---- planning ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Draft:
    """A plan that is not on the timeline yet, and what it is based on."""

    basis: CleanBasis
    planned: PlannedClean
    everything: bool
    """Whether every partition was visited."""


def schedule_clean(access: Access, options: CleanOptions) -> str | None:
    """Put the plan of a new clean on the timeline; its time, or None if there is nothing to do.

    Nothing is planned while another clean is pending, unless the options allow several.
    """
    pass_metadata_gate(access, drop=options.drop_metadata_table)
    for _ in range(PLAN_TRIES):
        draft = _settled_draft(access, options)
        if draft is None or (_has_pending(draft.basis) and not options.allow_multiple):
            return None
        settles = draft.everything and not draft.planned.held_back and draft.basis.full_scans
        if not draft.planned.files and not settles:
            return None
        with access.locked("scheduling of a clean") as lease:
            properties = access.properties()
            refuse_restore(access.timeline(properties), "cleaned")
            if not still_holds(access, properties, draft.basis):
                continue
            lease.check()
            instant = _publish(access, lease, properties, draft) if draft.planned.files else None
            if draft.everything:
                forget_full_scans(access.storage, draft.basis.full_scans)
            access.clock.sleep(access.skew_s())
        if instant is not None:
            event = Event("clean.planned", draft.planned.files, unit="files", instant=instant)
            access.on_event(event)
        return instant
    raise ConflictError(
        "The table changed again and again while a clean was planned.",
        hint="Others make savepoints or plans all the time; run the clean again when it is calmer.",
        context={"table": access.storage.uri, "tries": PLAN_TRIES},
        retryable=True,
    )


def _has_pending(basis: CleanBasis) -> bool:
    return basis.timeline.filter_actions(CLEAN).pending().first() is not None


def _publish(access: Access, lease: Lease, properties: TableProperties, draft: _Draft) -> str:
    timeline = access.timeline(properties)
    instant = next_time(timeline, properties, access.clock)
    if draft.planned.held_back:
        demand_full_scan(access.storage, instant)
    plan = draft.planned.plan.write(properties.version)
    lease.check()
    access.files(properties).request(instant, CLEAN, plan)
    return instant


def _settled_draft(access: Access, options: CleanOptions) -> _Draft | None:
    """A plan on a table that did not lose a file of its timeline while it was read."""
    for tries_left in reversed(range(PLAN_TRIES)):
        try:
            return _draft(access, options)
        except NotFoundError:
            if not tries_left:
                raise
    return None


def _draft(access: Access, options: CleanOptions) -> _Draft | None:
    """What a clean would do now; None if it is too early for one."""
    properties = access.properties()
    basis = load_basis(access, properties)
    if basis.undone or not is_due(basis, options):
        return None
    retained = instant_to_retain(basis, options)
    if retained is None and not options.by_versions:
        return None
    visited = instants_to_visit(basis, options, retained)
    if visited is None:
        listing = _whole_table(access)
    else:
        partitions: set[str] = set()
        for instant in visited:
            metadata = load_commit_metadata(access.storage, properties, instant)
            partitions |= partitions_of(metadata, merge_on_read=basis.merge_on_read)
        listing = _some_partitions(access, sorted(partitions))
    planned = plan_clean(basis, options, listing, base_path=access.storage.uri)
    return _Draft(basis, planned, visited is None)


def _whole_table(access: Access) -> Iterator[tuple[str, Sequence[ListedFile]]]:
    """Every partition, listed once; each is forgotten when it was looked at."""
    table = list_table(access.storage)
    total = len(table)
    for done, partition in enumerate(sorted(table), 1):
        access.cancel.check()
        yield partition, table.pop(partition)
        access.on_event(Event("clean.plan", done, total, unit="partitions"))


def _some_partitions(
    access: Access, partitions: Sequence[str]
) -> Iterator[tuple[str, Sequence[ListedFile]]]:
    for done, partition in enumerate(partitions, 1):
        access.cancel.check()
        yield partition, list_files(access.storage, partition)
        access.on_event(Event("clean.plan", done, len(partitions), unit="partitions"))


# ---- repair ------------------------------------------------------------------------------------


def repair_empty_clean(access: Access) -> str | None:
    """Make the last clean pending again if its completed file is empty; its time if it was.

    A process that died while it completed the clean left the file so. Its plan is executed again;
    without a plan the clean goes altogether.
    """
    properties = access.properties()
    if not _last_is_empty(access, properties):
        return None
    with access.locked("repair of a clean") as lease:
        if not _last_is_empty(access, properties):
            return None
        last = access.timeline(properties).last_clean()
        assert last is not None
        lease.check()
        files = access.files(properties)
        request = files.path(last.requested_time, CLEAN, State.REQUESTED)
        inflight = files.path(last.requested_time, CLEAN, State.INFLIGHT)
        planned = any(_bytes(access, path) for path in (request, inflight))
        files.drop(last)
        if not planned:
            files.remove(last.requested_time, CLEAN)
        return last.requested_time


def _last_is_empty(access: Access, properties: TableProperties) -> bool:
    last = access.timeline(properties).last_clean()
    return last is not None and not _bytes(access, instant_path(properties, last.file_name))


def _bytes(access: Access, path: str) -> bytes:
    try:
        return access.storage.read(path)
    except NotFoundError:
        return b""
