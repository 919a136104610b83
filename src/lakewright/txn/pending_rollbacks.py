"""Rollbacks on a timeline that are not completed, by what they roll back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lakewright.errors import FormatError, NotFoundError
from lakewright.format.instant import Instant
from lakewright.format.records import InstantInfo, RollbackPlan, load_rollback_plan
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.txn.access import Access

__all__ = ["ROLLBACK", "PendingRollback", "pending_rollbacks", "rollbacks_by_target"]

ROLLBACK: Final = "rollback"


@dataclass(frozen=True, slots=True)
class PendingRollback:
    """A rollback on the timeline that is not completed."""

    instant: str
    plan: RollbackPlan

    @property
    def target(self) -> InstantInfo:
        """What it rolls back."""
        assert self.plan.instant_to_rollback is not None
        return self.plan.instant_to_rollback


def pending_rollbacks(
    access: Access, properties: TableProperties, timeline: Timeline
) -> dict[str, PendingRollback]:
    """Pending rollbacks by the time of their targets."""
    return rollbacks_by_target(access, properties, timeline.filter_actions(ROLLBACK).pending())


def rollbacks_by_target(
    access: Access, properties: TableProperties, rollbacks: Iterable[Instant]
) -> dict[str, PendingRollback]:
    """Rollbacks by the time of their targets; those whose plan cannot be read are left out.

    Such a plan is being written, or was cut by a crash; what it was for is planned again.
    """
    found: dict[str, PendingRollback] = {}
    for instant in rollbacks:
        try:
            plan = load_rollback_plan(access.storage, properties, instant)
        except (FormatError, NotFoundError):
            continue
        if plan.instant_to_rollback is not None:
            found[plan.instant_to_rollback.commit_time] = PendingRollback(
                instant.requested_time, plan
            )
    return found
