"""Archiving: completed instants move from the active timeline into the archive of the table.

The whole run holds the table's lock. It goes in batches, oldest instants first, and in each batch

1. the instants are written to the archive and are durable there;
2. their marker folders are removed;
3. their requested and inflight files go, several at a time;
4. their completed files go, oldest first.

Why this order. A requested or inflight file without its completed file looks like a pending write,
which somebody would roll back, deleting committed data: so the completed file of an instant goes
last. Readers take a write for committed if its completed file is there, or if it is older than the
first write that they listed: so of two completed files the older one goes first, and a listing at
any moment shows an unbroken end of the timeline. In the other order it would have a hole, and the
data of the missing instant would disappear. Nothing uncommitted is older than what stays, by the
limits of the plan, so moving the start of the timeline makes no orphan visible. A reader that needs
an archived instant after it has listed finds it in the archive, which was durable before.

A run may die after any storage operation. What it leaves is a timeline on which some of the oldest
instants lack pending files, or are gone, and an archive that has all of them. The next run finds
active instants that the archive has already and removes them, unless a limit has come up since (a
savepoint, for instance); it does so even when there are too few commits to begin a run. An instant
that is archived twice counts once for every reader.

What can go wrong: a state file that cannot be read ends the run with a `CorruptFileError` before
its batch is touched; a lock that is lost ends it with `LockLostError` at the next step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lakewright.errors import NotFoundError, UnsupportedTableError
from lakewright.format.instant import Instant, State, parse_instant_name
from lakewright.format.records.instants import instant_path
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.runtime.events import Event
from lakewright.runtime.lanes import in_lanes
from lakewright.services.archive_limits import archive_facts, replaced_limit, schema_limit
from lakewright.services.archive_options import ArchiveOptions
from lakewright.services.archive_plan import NOTHING, ArchivePlan, plan_archive
from lakewright.services.archive_store import ArchiveStore, StateFile, open_store
from lakewright.txn.access import Access
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.markers import MARKER_FOLDER, delete_markers

__all__ = [
    "ARCHIVED",
    "ArchiveOptions",
    "ArchivePlan",
    "ArchiveResult",
    "archive_alone",
    "run_archive",
]

ARCHIVED = "archive.batch"
"""The event of a batch that is archived and off the timeline."""
DELETES_PER_CHECK = 64
"""After so many deletions the lock is looked at again."""


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What a run did, or would do."""

    plan: ArchivePlan
    dry_run: bool
    archived: int = 0
    """Instants that are off the timeline now."""
    batches: int = 0
    removed_files: int = 0
    """State files that were deleted."""
    joined_levels: int = 0
    """Levels of version 8's history whose files were joined."""


def run_archive(access: Access, options: ArchiveOptions, *, dry_run: bool = False) -> ArchiveResult:
    """Archive what may and should leave the active timeline; with `dry_run` only tell what."""
    if dry_run:
        properties = _properties(access)
        store = open_store(access.storage, properties, options.history, access.random)
        timeline = access.timeline(properties)
        return ArchiveResult(_planned(access, properties, timeline, options, store), dry_run=True)
    with access.locked("archiving") as lease:
        properties = _properties(access)
        store = open_store(access.storage, properties, options.history, access.random)
        timeline = _without_dead_savepoints(access, lease, properties)
        plan = _planned(access, properties, timeline, options, store)
        result = ArchiveResult(plan, dry_run=False)
        if not plan.instants:
            return result
        run = _Run(access, lease, properties, options, store)
        return run.archive(result)


def archive_alone(
    access: Access, lease: Lease, properties: TableProperties, timeline: Timeline, instant: Instant
) -> None:
    """Move one completed instant into the archive; the caller holds `lease` and knows that it may.

    For the commit of a savepoint that is going away, where later ones are archived already.
    """
    options = ArchiveOptions()
    store = open_store(access.storage, properties, options.history, access.random)
    store.begun(timeline)
    plan = ArchivePlan((instant,), commits=1, keep_min=0, keep_max=0, limits=())
    _Run(access, lease, properties, options, store).archive(ArchiveResult(plan, dry_run=False))


def _without_dead_savepoints(access: Access, lease: Lease, properties: TableProperties) -> Timeline:
    """The timeline, after savepoints went whose processes died between their two states.

    They would keep everything behind them for ever. Ours are made under the lock, so the one that
    is found is nobody's; others get as much time as the process of a silent write.
    """
    timeline = access.timeline(properties)
    dead = [
        instant
        for instant in timeline.filter_actions("savepoint").pending()
        if _silent_ms(access, properties, instant) > access.heartbeat.tolerance_of_others_ms
    ]
    for instant in dead:
        lease.check()
        access.files(properties).drop(instant)
    return access.timeline(properties) if dead else timeline


def _silent_ms(access: Access, properties: TableProperties, instant: Instant) -> int:
    try:
        file = access.storage.stat(instant_path(properties, instant.file_name))
    except NotFoundError:
        return 0
    return access.clock.now_ms() - file.modified_ms


def _properties(access: Access) -> TableProperties:
    properties = access.properties()
    if not properties.version.writable:
        raise UnsupportedTableError(
            f"Tables of version {properties.version} are read, not written.",
            hint="Let Hudi archive the table, or downgrade it with Hudi to version 8.",
            context={"table": access.storage.uri},
        )
    return properties


def _planned(
    access: Access,
    properties: TableProperties,
    timeline: Timeline,
    options: ArchiveOptions,
    store: ArchiveStore,
) -> ArchivePlan:
    facts = archive_facts(access, properties, timeline, options, store.begun(timeline))
    plan = plan_archive(timeline, options, facts)
    # These two read and list: only what is said of instants that would go.
    replaced = replaced_limit(access.storage, properties, plan.instants)
    telling = schema_limit(access.storage, properties, timeline, options, plan.instants)
    if telling is not None and telling.before <= (facts.begun.until or NOTHING):
        telling = None  # a run that died has archived what is newer
    found = tuple(limit for limit in (replaced, telling) if limit is not None)
    if not found:
        return plan
    return plan_archive(timeline, options, replace(facts, limits=(*facts.limits, *found)))


@dataclass
class _Run:
    """One run, while it holds the lock."""

    access: Access
    lease: Lease
    properties: TableProperties
    options: ArchiveOptions
    store: ArchiveStore

    def archive(self, result: ArchiveResult) -> ArchiveResult:
        files = self._state_files(result.plan.instants)
        marked = self._marked()
        total = len(result.plan.instants)
        for batch in self._batches(result.plan.instants, files):
            self.access.cancel.check()
            self.store.flush(self.lease.check)
            removed = self._remove(batch, files, marked)
            result = replace(
                result,
                archived=result.archived + len(batch),
                batches=result.batches + 1,
                removed_files=result.removed_files + removed,
            )
            self.access.on_event(Event(ARCHIVED, result.archived, total, unit="instants"))
        return replace(result, joined_levels=self.store.tidy(self.lease.check))

    def _batches(
        self, instants: Sequence[Instant], files: Mapping[Instant, Mapping[str, StateFile]]
    ) -> Iterator[list[Instant]]:
        """Instants that were added to the store, whenever there is enough to flush."""
        batch: list[Instant] = []
        for instant in instants:
            self.store.add(instant, files[instant])
            batch.append(instant)
            full = self.store.size >= self.options.batch_bytes
            if full or len(batch) >= self.options.batch_instants:
                yield batch
                batch = []
        if batch:
            yield batch

    def _state_files(self, instants: Sequence[Instant]) -> dict[Instant, dict[str, StateFile]]:
        """The files of each instant by name, in the order of their states."""
        chosen = {(i.requested_time, i.completed_action): i for i in instants}
        found: dict[Instant, dict[str, StateFile]] = {instant: {} for instant in instants}
        layout = self.properties.version.layout_version
        listed = []
        for info in self.access.storage.list(self.properties.timeline_folder):
            parsed = None if info.is_dir else parse_instant_name(info.name, layout)
            if parsed is not None:
                state = Instant(*parsed, info.name)
                listed.append(StateFile(state, info.path, info.size, info.modified_ms))
        for file in sorted(listed, key=lambda f: (f.instant.state, f.path)):
            key = (file.instant.requested_time, file.instant.completed_action)
            if key in chosen:
                found[chosen[key]][file.instant.file_name] = file
        return found

    def _marked(self) -> frozenset[str]:
        """Instants that have a marker folder."""
        try:
            return frozenset(self.access.storage.names(MARKER_FOLDER))
        except NotFoundError:
            return frozenset()

    def _remove(
        self,
        batch: Sequence[Instant],
        files: Mapping[Instant, Mapping[str, StateFile]],
        marked: frozenset[str],
    ) -> int:
        """Take instants that are durable in the archive off the timeline, in the order above."""
        self.lease.check()
        for instant in batch:
            if instant.requested_time in marked:
                delete_markers(self.access.storage, instant.requested_time)
        of_batch = [file.instant for instant in batch for file in files[instant].values()]
        pending = [file for file in of_batch if file.state is not State.COMPLETED]
        completed = [file for file in of_batch if file.state is State.COMPLETED]
        states = self.access.files(self.properties)
        removed = 0
        for first in range(0, len(pending), DELETES_PER_CHECK):
            self.lease.check()
            part = pending[first : first + DELETES_PER_CHECK]
            removed += sum(in_lanes(states.drop, part, spawner=self.access.spawner))
        for count, file in enumerate(completed, len(pending)):
            if count % DELETES_PER_CHECK == 0:
                self.lease.check()
            removed += states.drop(file)
        return removed
