"""Running the services that are due, one after the other, each for itself.

Nothing here fails: what goes wrong with one service becomes its outcome, is told as an event
(`service.failed.<service>`) and does not keep the next one from running. In one process the
services of a table run once at a time; who comes second leaves them to the first. Other processes
are kept apart by the services themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from lakewright.engine.write_options import WriteOptions
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.events import Event
from lakewright.services.archive import run_archive
from lakewright.services.clean import run_clean
from lakewright.services.compaction import Compaction, Compactor
from lakewright.services.due import archive_may_find, clean_may_find, compaction_may_find
from lakewright.services.metadata_upkeep import tend_metadata_table
from lakewright.services.switches import Compacting, ServiceSwitches
from lakewright.txn.access import Access
from lakewright.txn.metadata_gate import has_metadata_table

__all__ = ["Service", "ServiceOutcome", "ServiceRun"]

Service = Literal["clean", "metadata", "archive", "compaction", "opening"]
"""The services; `opening` the table comes before them."""


@dataclass(frozen=True, slots=True)
class ServiceOutcome:
    """What became of one service."""

    service: Service
    did: tuple[str, ...] = ()
    """What it did, in words; nothing if there was nothing to do."""
    error: Exception | None = None

    @property
    def warning(self) -> str | None:
        """What went wrong, in a sentence."""
        if self.error is None:
            return None
        kind = type(self.error).__name__
        return f"The service {self.service} did not finish: {kind}: {self.error}"


class _Turns:
    """The tables of this process whose services run now."""

    def __init__(self) -> None:
        self._busy: set[str] = set()
        self._guard = threading.Lock()

    @contextmanager
    def taken(self, table: str) -> Iterator[bool]:
        """Whether it is the caller's turn; if so, until the end of the block."""
        with self._guard:
            mine = table not in self._busy
            self._busy.add(table)
        try:
            yield mine
        finally:
            if mine:
                with self._guard:
                    self._busy.discard(table)


_TURNS: Final = _Turns()


@dataclass(slots=True)
class _Seen:
    """The table as the services of one run have seen it, read once for those that do nothing."""

    access: Access
    _table: tuple[TableProperties, Timeline] | None = None

    def table(self) -> tuple[TableProperties, Timeline]:
        """The properties and the timeline."""
        if self._table is None:
            properties = self.access.properties()
            self._table = properties, self.access.timeline(properties)
        return self._table

    def forget(self) -> None:
        """A service is about to change it."""
        self._table = None


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """One run of the services of a table."""

    access: Access
    write: WriteOptions
    switches: ServiceSwitches
    registry: MergerRegistry = field(default_factory=MergerRegistry)
    threads: int = 1
    compactor: Compactor | None = None

    def run(self) -> list[ServiceOutcome]:
        """Run what is due, in Hudi's order: clean, archive, compact.

        The metadata table comes before archiving, which waits for its compaction.
        """
        if not self.switches.anything:
            return []
        with _TURNS.taken(self.access.storage.uri) as mine:
            if not mine:
                self.access.on_event(Event("service.left_to_other_run", 1))
                return []
            steps: list[tuple[Service, Callable[[_Seen], list[str]]]] = [
                ("clean", self._clean),
                ("metadata", self._tend),
                ("archive", self._archive),
                ("compaction", self._compact),
            ]
            seen = _Seen(self.access)
            return [self._tried(service, step, seen) for service, step in steps]

    def _tried(
        self, service: Service, step: Callable[[_Seen], list[str]], seen: _Seen
    ) -> ServiceOutcome:
        try:
            return ServiceOutcome(service, tuple(step(seen)))
        except Exception as error:  # whatever it is, the write stays committed
            outcome = ServiceOutcome(service, error=error)
            self.access.on_event(Event(f"service.failed.{service}", 1, path=outcome.warning))
            return outcome

    def _clean(self, seen: _Seen) -> list[str]:
        options, access = self.switches.clean, self.access
        if options is None or not clean_may_find(access, *seen.table(), options):
            return []
        seen.forget()
        done = run_clean(access, options).executed
        return [
            f"clean {instant}: {metadata.total_files_deleted} files" for instant, metadata in done
        ]

    def _tend(self, seen: _Seen) -> list[str]:
        upkeep = self.switches.metadata
        if upkeep is None or not has_metadata_table(seen.table()[0]):
            return []
        done = tend_metadata_table(self.access, upkeep)
        return [] if done.compaction is None else [f"metadata table: {done.compaction}"]

    def _archive(self, seen: _Seen) -> list[str]:
        options, access = self.switches.archive, self.access
        if options is None or not archive_may_find(*seen.table(), options):
            return []
        seen.forget()
        # What is in the way is seen without the lock: others need it more.
        if not run_archive(access, options, dry_run=True).plan.instants:
            return []
        archived = run_archive(access, options).archived
        return [f"archive: {archived} instants"] if archived else []

    def _compact(self, seen: _Seen) -> list[str]:
        options, access = self.switches.compaction, self.access
        if options is None:
            return []
        properties, timeline = seen.table()
        if not properties.is_merge_on_read:
            return []
        pending = timeline.pending_compactions().pending().first() is not None
        due = compaction_may_find(access, properties, timeline, options)
        service = Compaction(
            access, options, self.write, self.registry, self.threads, self.compactor
        )
        if self.switches.compacting is Compacting.SCHEDULED:
            planned = service.schedule() if due and not pending else None
            return [] if planned is None else [f"compaction {planned}: planned"]
        if not due and not pending:
            return []
        return [f"compaction {done.instant}: {done.slices} slices" for done in service.run()]
