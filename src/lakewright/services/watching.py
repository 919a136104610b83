"""Looking at a table's health: what is read, and how little of it.

The timeline, the plans of what is pending, heartbeats and fences, savepoints, the lock's own place,
the listings of partitions that pending plans name, and what dry runs of cleaning and archiving
read. No data file is opened, no lock is taken and nothing is written, so this works beside anything
and on tables that are not written here. What cannot be read is a finding, never an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from lakewright.engine.listing import UNTRUSTED
from lakewright.engine.write_options import WriteOptions
from lakewright.errors import LakewrightError, NotFoundError
from lakewright.format.instant import Instant
from lakewright.format.instant_times import time_ms
from lakewright.format.partitions import list_files
from lakewright.format.records import (
    load_cleaner_plan,
    load_compaction_plan,
    load_requested_replace,
    load_rollback_plan,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.table import METADATA_FOLDER, MetadataTable
from lakewright.services.archive import run_archive
from lakewright.services.archive_plan import ArchivePlan
from lakewright.services.clean import run_clean
from lakewright.services.compaction_plan import writes_since_compaction
from lakewright.services.due import clean_may_find, compaction_may_find
from lakewright.services.health import Health
from lakewright.services.health_facts import (
    CompactionFacts,
    MetadataFacts,
    Pending,
    TableFacts,
)
from lakewright.services.health_pending import pending_findings
from lakewright.services.health_upkeep import upkeep_findings
from lakewright.services.planned_files import (
    PlannedFiles,
    files_of_clustering,
    files_of_compaction,
)
from lakewright.services.savepoint import list_savepoints
from lakewright.services.service_options import (
    archive_options_of,
    clean_options_of,
    compaction_options_of,
)
from lakewright.txn.access import Access
from lakewright.txn.liveness import LifeSigns, signs_of_life
from lakewright.txn.locks.protocol import LockHolder, WatchedLock
from lakewright.txn.lost_indexes import lost_indexes
from lakewright.txn.mark import is_alone
from lakewright.txn.plan_kinds import CLUSTERING, PlanKind, is_removable, plan_kind
from lakewright.txn.recovery import left_over

__all__ = ["look_at_facts", "look_at_health"]

T = TypeVar("T")


def look_at_health(access: Access, write: WriteOptions) -> Health:
    """The findings of one look; `access` is only read through."""
    facts = look_at_facts(access, write)
    findings = chain(pending_findings(facts), upkeep_findings(facts))
    return Health.of(facts.uri, facts.now_ms, findings)


def look_at_facts(access: Access, write: WriteOptions) -> TableFacts:
    """Everything that findings are made of."""
    properties = access.properties()
    timeline = access.timeline(properties)
    return _Look(access, write, properties, timeline).facts()


@dataclass(slots=True)
class _Look:
    """One look, and what it could not find out."""

    access: Access
    write: WriteOptions
    properties: TableProperties
    timeline: Timeline
    not_known: list[tuple[str, str]] = field(default_factory=list)

    def facts(self) -> TableFacts:
        access = self.access
        storage, properties, timeline = access.storage, self.properties, self.timeline
        pending = tuple(self._pending())
        alone = self._asked("who writes it", lambda: is_alone(storage, properties, timeline))
        compaction = self._asked("whether a compaction is due", self._compaction)
        clean_files = self._asked("what a clean would do", self._clean_files)
        archive = self._asked("what archiving would do", self._archive)
        savepoints = self._asked("what savepoints keep", lambda: list_savepoints(access))
        lock = self._asked("who holds the lock", self._lock)
        left = self._asked("what is left over", lambda: left_over(access, properties))
        metadata = self._asked("how the metadata table is", self._metadata)
        return TableFacts(
            uri=storage.uri,
            now_ms=access.clock.now_ms(),
            tolerance_ms=access.heartbeat.tolerance_of_others_ms,
            rollback_delay_ms=access.rollback_delay_ms,
            zone=properties.timeline_zone,
            timeline=timeline,
            pending=pending,
            alone=alone is not False,
            compaction=compaction,
            clean_files=clean_files,
            archive=archive,
            savepoints=tuple(savepoints or ()),
            lock=lock,
            left_over=tuple(left or ()),
            metadata=metadata or MetadataFacts(),
            not_known=tuple(self.not_known),
        )

    def _asked(self, what: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except LakewrightError as error:
            self.not_known.append((what, str(error)))
            return None

    # ---- pending instants ----------------------------------------------------------------------

    def _pending(self) -> Iterator[Pending]:
        for instant in self.timeline.pending():
            since_ms = time_ms(instant.requested_time, zone=self.properties.timeline_zone)
            signs = self._signs(instant.requested_time)
            try:
                yield self._with_plan(instant, since_ms, signs)
            except LakewrightError as error:
                if isinstance(error, NotFoundError) and self._is_over(instant):
                    continue
                kind = self._kind_by_name(instant)
                yield Pending(instant, since_ms, signs, kind, unreadable=str(error))

    def _signs(self, time: str) -> LifeSigns:
        what = f"who works on {time}"
        return self._asked(what, lambda: signs_of_life(self.access, time)) or LifeSigns()

    def _is_over(self, instant: Instant) -> bool:
        """Whether it was completed or rolled back since the look began."""
        now = self.access.timeline(self.properties).get(instant.requested_time, instant.action)
        return now is None or now.completed

    def _kind_by_name(self, instant: Instant) -> PlanKind | None:
        """What plan an instant is that cannot be read."""
        if instant.action in ("compaction", "logcompaction", "clustering"):
            return plan_kind(self.access.storage, self.properties, instant)
        return None

    def _with_plan(self, instant: Instant, since_ms: int | None, signs: LifeSigns) -> Pending:
        storage, properties = self.access.storage, self.properties
        if instant.action == "rollback":
            target = load_rollback_plan(storage, properties, instant).instant_to_rollback
            trouble = "it names no instant." if target is None else None
            return Pending(instant, since_ms, signs, target=target, unreadable=trouble)
        if instant.action == "clean":
            load_cleaner_plan(storage, properties, instant)
            return Pending(instant, since_ms, signs)
        kind = plan_kind(storage, properties, instant)
        if kind is None:
            return Pending(instant, since_ms, signs)
        return Pending(
            instant,
            since_ms,
            signs,
            kind,
            removable=is_removable(storage, properties, instant, kind),
            missing=tuple(self._missing(self._named(instant, kind))),
        )

    def _named(self, instant: Instant, kind: PlanKind) -> PlannedFiles:
        """The files that a plan is going to read."""
        storage, properties = self.access.storage, self.properties
        if kind is CLUSTERING:
            return files_of_clustering(load_requested_replace(storage, properties, instant))
        return files_of_compaction(load_compaction_plan(storage, properties, instant))

    def _missing(self, named: PlannedFiles) -> Iterator[str]:
        for partition, names in sorted(named.items()):
            there = {file.name for file in list_files(self.access.storage, partition)}
            yield from (f"{partition}/{name}".lstrip("/") for name in sorted(names - there))

    # ---- the table as a whole ------------------------------------------------------------------

    def _compaction(self) -> CompactionFacts | None:
        properties, options = self.properties, compaction_options_of(self.write)
        if not properties.is_merge_on_read:
            return None
        by_completion = properties.version.slices_by_completion_time
        since = writes_since_compaction(self.timeline, by_completion=by_completion)
        first = since[0].requested_time if since else None
        return CompactionFacts(
            compaction_may_find(self.access, properties, self.timeline, options),
            len(since),
            options,
            None if first is None else time_ms(first, zone=properties.timeline_zone),
        )

    def _clean_files(self) -> int | None:
        options = clean_options_of(self.write)
        if not clean_may_find(self.access, self.properties, self.timeline, options):
            return None
        plan = run_clean(self.access, options, dry_run=True).plan
        if plan is None:
            return None
        return _count((plan.file_paths_to_be_deleted_per_partition or {}).values())

    def _archive(self) -> ArchivePlan | None:
        if not self.properties.version.writable:
            return None
        return run_archive(self.access, archive_options_of(self.write), dry_run=True).plan

    def _lock(self) -> LockHolder | None:
        lock = self.access.lock
        return lock.held_by() if isinstance(lock, WatchedLock) else None

    def _metadata(self) -> MetadataFacts:
        properties, storage = self.properties, self.access.storage
        untrusted = None
        try:
            opened = MetadataTable.open(storage, properties, self.timeline)
            if opened is not None:
                opened.partitions()
        except UNTRUSTED as error:
            untrusted = error.message
        return MetadataFacts(
            properties.metadata_partitions,
            properties.metadata_partitions_inflight,
            storage.exists(METADATA_FOLDER),
            untrusted,
            tuple(sorted(lost_indexes(storage))),
        )


def _count(lists: Iterable[Iterable[object]]) -> int:
    return sum(1 for one in lists for _ in one)
