"""The services of one table, under the names that people know them by.

A `TableServices` opens the table for every verb anew, so it can be kept as long as the table
handle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from lakewright.engine.write_options import WriteOptions
from lakewright.format.records import CleanerPlan, CompactionPlan
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.cancel import NEVER_CANCELLED, CancelToken
from lakewright.services.archive import ArchiveResult, run_archive
from lakewright.services.automatic import ServiceOutcome, ServiceRun
from lakewright.services.background import BackgroundServices, Pace
from lakewright.services.clean import CleanResult, run_clean
from lakewright.services.compaction import Compacted, Compaction, Compactor
from lakewright.services.metadata_upkeep import tend_metadata_table
from lakewright.services.restore import Restored, RestorePlanned, plan_restore, run_restore
from lakewright.services.rollback import (
    RollbackDraft,
    RolledBack,
    plan_rollback_of,
    roll_back_instant,
)
from lakewright.services.savepoint import (
    Savepoint,
    create_savepoint,
    delete_savepoint,
    list_savepoints,
)
from lakewright.services.service_options import (
    archive_options_of,
    clean_options_of,
    compaction_options_of,
    metadata_upkeep_of,
)
from lakewright.services.switches import ServiceSwitches
from lakewright.txn.access import Access

__all__ = [
    "ArchiveService",
    "CleanService",
    "CompactionService",
    "RestoreService",
    "RollbackService",
    "SavepointService",
    "TableServices",
]

Options = WriteOptions | Mapping[str, str] | None
Opener = Callable[[Options], tuple[Access, WriteOptions]]


@dataclass(frozen=True, slots=True)
class CompactionService:
    """`table.services.compaction`."""

    opened: Opener
    registry: MergerRegistry
    threads: int
    compactor: Compactor | None = None

    def plan(self, options: Mapping[str, str] | None = None) -> CompactionPlan | None:
        """What `schedule` would put on the timeline; None if nothing is due."""
        return self._service(options).plan()

    def schedule(self, options: Mapping[str, str] | None = None) -> str | None:
        """Put a plan on the timeline if one is due; its instant."""
        return self._service(options).schedule()

    def execute(self, instant: str, options: Mapping[str, str] | None = None) -> Compacted:
        """Execute a pending plan, ours or Hudi's."""
        return self._service(options).execute(instant)

    def run(self, options: Mapping[str, str] | None = None) -> list[Compacted]:
        """Execute what is pending, then schedule and execute what is due."""
        return self._service(options).run()

    def _service(self, options: Mapping[str, str] | None) -> Compaction:
        access, write = self.opened(options)
        own = compaction_options_of(write)
        return Compaction(access, own, write, self.registry, self.threads, self.compactor)


@dataclass(frozen=True, slots=True)
class CleanService:
    """`table.services.clean`."""

    opened: Opener

    def plan(self, options: Mapping[str, str] | None = None) -> CleanerPlan | None:
        """What would be deleted now; None if nothing would."""
        return self._run(options, dry_run=True).plan

    def run(self, options: Mapping[str, str] | None = None) -> CleanResult:
        """Roll back dead writes, finish pending cleans, then plan and execute a new one."""
        return self._run(options, dry_run=False)

    def _run(self, options: Mapping[str, str] | None, *, dry_run: bool) -> CleanResult:
        access, write = self.opened(options)
        return run_clean(access, clean_options_of(write), dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class SavepointService:
    """`table.services.savepoints`."""

    opened: Opener

    def create(self, instant: str | None = None, *, comment: str = "") -> Savepoint:
        """Keep the files of a commit, by default of the newest."""
        return create_savepoint(self.opened(None)[0], instant, comment=comment)

    def delete(self, instant: str) -> None:
        """Let the files of a savepoint go with the next clean."""
        delete_savepoint(self.opened(None)[0], instant)

    def all(self) -> list[Savepoint]:
        """Every savepoint, oldest commit first."""
        return list_savepoints(self.opened(None)[0])


@dataclass(frozen=True, slots=True)
class ArchiveService:
    """`table.services.archive`."""

    opened: Opener

    def plan(self, options: Mapping[str, str] | None = None) -> ArchiveResult:
        """What would move into the archive now."""
        return self._run(options, dry_run=True)

    def run(self, options: Mapping[str, str] | None = None) -> ArchiveResult:
        """Move old completed instants into the archive."""
        return self._run(options, dry_run=False)

    def _run(self, options: Mapping[str, str] | None, *, dry_run: bool) -> ArchiveResult:
        access, write = self.opened(options)
        if not dry_run:
            tend_metadata_table(access, metadata_upkeep_of(write))
        return run_archive(access, archive_options_of(write), dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class RollbackService:
    """`table.services.rollback`."""

    opened: Opener
    registry: MergerRegistry

    def plan(
        self,
        instant: str,
        options: Mapping[str, str] | None = None,
        *,
        unschedule: bool = False,
    ) -> RollbackDraft:
        """What `run` would undo now; raises what it would raise."""
        return plan_rollback_of(self.opened(options)[0], instant, unschedule=unschedule)

    def run(
        self,
        instant: str,
        options: Mapping[str, str] | None = None,
        *,
        unschedule: bool = False,
    ) -> RolledBack:
        """Roll back one instant: a dead write, an attempt at a plan, or the newest commit.

        With `unschedule` the plan goes too.
        """
        access, write = self.opened(options)
        drop = write.metadata_table == "drop"
        return roll_back_instant(
            access,
            instant,
            unschedule=unschedule,
            drop_metadata_table=drop,
            registry=self.registry,
        )


@dataclass(frozen=True, slots=True)
class RestoreService:
    """`table.services.restore`."""

    opened: Opener
    registry: MergerRegistry

    def plan(
        self, to: str | None = None, options: Mapping[str, str] | None = None
    ) -> RestorePlanned:
        """What `run` would take back now; raises what it would raise."""
        return plan_restore(self.opened(options)[0], to)

    def run(self, to: str | None = None, options: Mapping[str, str] | None = None) -> Restored:
        """Take back everything after a commit, by default after the newest savepoint; or go on
        with a restore that is pending."""
        access, write = self.opened(options)
        return run_restore(
            access,
            to,
            drop_metadata_table=write.metadata_table == "drop",
            registry=self.registry,
        )


@dataclass(frozen=True, slots=True)
class TableServices:
    """`table.services`."""

    opened: Opener
    registry: MergerRegistry = field(default_factory=MergerRegistry)
    threads: int = 1
    compactor: Compactor | None = None

    @property
    def compaction(self) -> CompactionService:
        """Merging logs into base files."""
        return CompactionService(self.opened, self.registry, self.threads, self.compactor)

    @property
    def clean(self) -> CleanService:
        """Deleting files that no reader needs any more."""
        return CleanService(self.opened)

    @property
    def savepoints(self) -> SavepointService:
        """Commits whose files are kept."""
        return SavepointService(self.opened)

    @property
    def archive(self) -> ArchiveService:
        """Moving old instants off the active timeline."""
        return ArchiveService(self.opened)

    @property
    def rollback(self) -> RollbackService:
        """Undoing one write, or one attempt at a plan."""
        return RollbackService(self.opened, self.registry)

    @property
    def restore(self) -> RestoreService:
        """Going back to a savepoint or commit."""
        return RestoreService(self.opened, self.registry)

    def run(
        self, options: Mapping[str, str] | None = None, *, cancel: CancelToken = NEVER_CANCELLED
    ) -> list[ServiceOutcome]:
        """Clean, archive and compact what is due, once; what fails is told by its outcome.

        `hoodie.clean.automatic=false` and `hoodie.archive.automatic=false` leave these out.
        """
        access, write = self.opened(options)
        run = ServiceRun(
            replace(access, cancel=cancel),
            write,
            ServiceSwitches.all(write),
            self.registry,
            self.threads,
            self.compactor,
        )
        return run.run()

    def start(
        self, options: Mapping[str, str] | None = None, *, every_s: float = 60.0
    ) -> BackgroundServices:
        """Do `run` now and every `every_s` seconds, in the background, until it is stopped.

        >>> with table.services.start(every_s=30) as services:              # doctest: +SKIP
        ...     for rows in source:
        ...         table.upsert(rows)
        >>> services.failures                                               # doctest: +SKIP
        """
        access, write = self.opened(options)
        ServiceSwitches.all(write)  # a wrong option is told now, not by the first round
        return BackgroundServices.start(
            lambda token: self.run(options, cancel=token),
            Pace(every_s),
            clock=access.clock,
            spawner=access.spawner,
            name=f"services-{access.storage.uri}",
            on_event=access.on_event,
        )
