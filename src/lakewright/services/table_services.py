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
from lakewright.services.archive import ArchiveOptions, ArchiveResult, run_archive
from lakewright.services.clean import CleanOptions, CleanResult, run_clean
from lakewright.services.compaction import Compacted, Compaction, Compactor
from lakewright.services.compaction_plan import CompactionOptions
from lakewright.services.savepoint import (
    Savepoint,
    create_savepoint,
    delete_savepoint,
    list_savepoints,
)
from lakewright.services.service_options import compaction_options
from lakewright.txn.access import Access

__all__ = [
    "ArchiveService",
    "CleanService",
    "CompactionService",
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
        own: CompactionOptions = compaction_options(options or {})
        access, write = self.opened(options)
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
        chosen = replace(
            CleanOptions.of(options or {}), drop_metadata_table=write.metadata_table == "drop"
        )
        return run_clean(access, chosen, dry_run=dry_run)


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
        access, _ = self.opened(options)
        return run_archive(access, ArchiveOptions.of(options or {}), dry_run=dry_run)


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
