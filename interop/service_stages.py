"""What the services of the proof are: the tables before them, their verbs, and when they are over.

A stage is a table on which something is to be done, and the verb that does it. Victims and rivals
use the same verb. What is over is told by names on the timeline alone, without code of the product.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from interop.instants import instants
from interop.kill_trials import KINDS, Kind
from interop.service_tables import create_table, write_batch
from lakewright.services.clean import CleanOptions, execute_clean, schedule_clean
from lakewright.services.table_services import TableServices
from lakewright.txn.recovery import roll_back_failed

COMPACT_AFTER = {"hoodie.compact.inline.max.delta.commits": "2"}
CLEAN_AFTER = {"hoodie.clean.commits.retained": "1"}
WRITES = frozenset({"commit", "deltacommit"})


@dataclass(frozen=True)
class Stage:
    """A table, and what is to be done on it."""

    service: str
    kind: Kind
    expiring: bool
    """Whether the table's lock is lost by standing still."""
    path: Path
    plan: str = ""
    """The time of what is to be done; empty if that is planned first."""
    batches: int = 0
    """How many batches were begun so far."""
    before: str = ""
    """The last instant before what is to be done."""

    @property
    def name(self) -> str:
        """Short, unique."""
        lock = ", expiring lock" if self.expiring else ""
        return f"{self.service} {self.kind}{lock}"

    @property
    def names(self) -> Mapping[str, str]:
        """What instants are called."""
        new = {"compaction again": "rollback", "rollback": "rollback"}.get(self.service, "plan")
        return {"*": new, self.plan: "dead write" if self.service == "rollback" else "plan"}


Verb = Callable[[TableServices, str], bool]
"""Does the service; whether it did anything."""


def _compact(services: TableServices, plan: str) -> bool:
    return bool(services.compaction.execute(plan).slices)


def _run_compaction(services: TableServices, plan: str) -> bool:  # noqa: ARG001
    return bool(services.compaction.run(COMPACT_AFTER))


def _clean(services: TableServices, plan: str) -> bool:
    return execute_clean(services.opened(None)[0], plan) is not None


def _run_clean(services: TableServices, plan: str) -> bool:  # noqa: ARG001
    return bool(services.clean.run(CLEAN_AFTER).executed)


def _roll_back(services: TableServices, plan: str) -> bool:
    return plan in roll_back_failed(services.opened(None)[0]).rolled_back


VERBS: Mapping[str, Verb] = {
    "compaction": _compact,
    "compaction again": _compact,
    "compaction run": _run_compaction,
    "clean": _clean,
    "clean run": _run_clean,
    "rollback": _roll_back,
}
ACTIONS = {"compaction": {"compaction", "commit"}, "clean": {"clean"}, "rollback": {"rollback"}}


def is_over(stage: Stage, table: Path) -> bool:
    """Whether what was to be done is done, and nothing of the kind is pending."""
    seen = [s for s in instants(table) if s.requested > stage.before]
    actions = ACTIONS[stage.service.split()[0]]
    states: dict[str, set[str]] = {}
    for s in seen:
        if s.action in actions:
            states.setdefault(s.requested, set()).add(s.state)
    if stage.service == "rollback" and any(s.requested == stage.plan for s in seen):
        return False
    done = [time for time, found in states.items() if "completed" in found]
    return bool(done) and len(done) == len(states)


def last_before(table: Path, plan: str) -> str:
    """The last instant before a plan, or of all."""
    return max(s.requested for s in instants(table) if not plan or s.requested < plan)


def kinds_of(service: str) -> list[Kind]:
    """Kinds of tables that a service is tried on."""
    return [k for k in KINDS if k.type == "mor" or not service.startswith("compaction")]


def prepare(path: Path, service: str, kind: Kind, *, expiring: bool) -> tuple[str, int]:
    """Make the table of a stage, without what dead processes leave; its plan and its batches."""
    shutil.rmtree(path, ignore_errors=True)
    table = create_table(path, kind, expiring=expiring)
    old_slices = service.startswith("clean") and kind.type == "mor"
    number = 0
    for writes in (2, 2, 2) if old_slices else (4,):
        if number:
            table.services.compaction.run(COMPACT_AFTER)
        for _ in range(writes):
            number += 1
            write_batch(table, number)
    if service in ("compaction", "compaction again"):
        return str(table.services.compaction.schedule(COMPACT_AFTER)), number
    if service == "clean":
        access = table.opened(None)[0]
        return str(schedule_clean(access, CleanOptions(commits_retained=1))), number
    return "", number


def dead_write(table: Path) -> str:
    """The write that a dead process has left."""
    seen: dict[str, set[str]] = {}
    for s in instants(table):
        if s.action in WRITES:
            seen.setdefault(s.requested, set()).add(s.state)
    (found,) = (time for time, states in seen.items() if "completed" not in states)
    return found
