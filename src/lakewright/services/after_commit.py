"""The services of a write: beside it, and after its commit.

A write that is committed stays committed. What a service could not do is a warning of its result,
or, if the caller asked for that in Hudi's words, an error that says so. A write that commits
nothing runs no service after it.

Beside a write run the services that its options call asynchronous, through the spawner; the write
waits for them after its commit, as Hudi's does, so nothing of it goes on behind the caller's back.
The compaction beside a stream is the exception: it outlives the batch that began it, and its
failure is told by the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.errors import ServiceError
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.spawn import Task
from lakewright.services.automatic import ServiceOutcome, ServiceRun
from lakewright.services.compaction import Compactor
from lakewright.services.switches import ServiceSwitches
from lakewright.txn.access import Access

__all__ = ["WriteServices"]

Outcomes = list[ServiceOutcome]


class _Streams:
    """The compactions beside streams of this process, one for each table."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[Outcomes]] = {}
        self._guard = threading.Lock()

    def next(self, table: str, start: Callable[[], Task[Outcomes]]) -> Outcomes:
        """Start another one unless one runs; the outcomes of the one that has ended."""
        with self._guard:
            last = self._tasks.get(table)
            if last is not None and not last.done:
                return []
            self._tasks[table] = start()
        return last.result() if last is not None else []


_STREAMS: Final = _Streams()


@dataclass(frozen=True, slots=True)
class WriteServices:
    """What happens around one write."""

    access: Access
    write: WriteOptions
    registry: MergerRegistry = field(default_factory=MergerRegistry)
    threads: int = 1
    compactor: Compactor | None = None
    stream: bool = False
    """Whether the write is a batch of a stream."""

    def around(self, write: Callable[[], WriteResult]) -> WriteResult:
        """Do a write with its services; `OptionError` before it if they cannot be understood."""
        after = self._run(ServiceSwitches.after(self.write))
        beside = self._run(ServiceSwitches.beside(self.write))
        stream = self._run(ServiceSwitches.beside_stream(self.write)) if self.stream else None
        task = self._spawned(beside) if beside.switches.anything else None
        try:
            result = write()
        finally:
            outcomes = task.result() if task is not None else []
        if result.instant is None:
            return result
        try:
            outcomes += after.run()
        except BaseException as error:
            error.add_note(f"The write {result.instant} was committed.")
            raise
        if stream is not None and stream.switches.anything:
            table = self.access.storage.uri
            outcomes += _STREAMS.next(table, lambda: self._spawned(stream))
        return self._told(result, outcomes, after.switches.not_done)

    def _run(self, switches: ServiceSwitches) -> ServiceRun:
        return ServiceRun(
            self.access, self.write, switches, self.registry, self.threads, self.compactor
        )

    def _spawned(self, run: ServiceRun) -> Task[Outcomes]:
        return self.access.spawner.spawn(run.run, name=f"services-{self.access.storage.uri}")

    def _told(
        self, result: WriteResult, outcomes: Iterable[ServiceOutcome], not_done: Iterable[str]
    ) -> WriteResult:
        outcomes = list(outcomes)
        for outcome in outcomes:
            if outcome.error is not None and self._is_fatal(outcome):
                raise ServiceError(
                    f"The write {result.instant} is committed, but {outcome.service} failed after "
                    f"it: {outcome.error}",
                    hint="Do not repeat the write; its rows are in the table. The service is tried "
                    "again after the next one. Leave hoodie.write.can.ignore.post.commit.failures "
                    "and hoodie.fail.writes.on.inline.table.service.exception out to get a warning "
                    "instead.",
                    context={"instant": result.instant, "service": outcome.service},
                ) from outcome.error
        warnings = [outcome.warning for outcome in outcomes if outcome.warning is not None]
        warnings += [f"{option}=true has no effect here yet." for option in not_done]
        return replace(
            result,
            services=tuple(did for outcome in outcomes for did in outcome.did),
            warnings=(*result.warnings, *warnings),
        )

    def _is_fatal(self, outcome: ServiceOutcome) -> bool:
        if outcome.service == "compaction":
            return self.write.fail_on_inline_services
        return not self.write.ignore_post_commit_failures
