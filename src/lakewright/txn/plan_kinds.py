"""Plans that services execute, perhaps again: which there are, and which may be taken away.

A *removable* plan is deleted when it is rolled back and never runs again; any other one is rolled
back to its plan and executed anew. A compaction is never removable: version 6 may already have put
logs behind it. Of the others the table's properties decide, and what is written into the plan
itself wins, so that a process with other settings cannot remove a plan that is meant to stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lakewright.errors import NotFoundError
from lakewright.format import property_keys as keys
from lakewright.format.instant import Instant
from lakewright.format.records import load_compaction_plan, load_requested_replace
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import is_pending_clustering
from lakewright.storage.base import Storage

__all__ = [
    "CLUSTERING",
    "COMPACTION",
    "LOG_COMPACTION",
    "REMOVABLE_KEY",
    "PlanKind",
    "is_removable",
    "plan_kind",
]

REMOVABLE_KEY: Final = "hoodie.plan.removable"
"""In the extra metadata of a plan: whether it is removable."""


@dataclass(frozen=True, slots=True)
class PlanKind:
    """One kind of plan."""

    service: str
    """How people call it."""
    completed: str
    """The action of its completed file."""
    operation: str
    """What its commit says that was done."""
    property: str | None
    """The table property that tells whether such plans are removable; None: they never are."""
    removable: bool = False
    """Whether they are where nothing tells."""


COMPACTION: Final = PlanKind("compaction", "commit", "COMPACT", None)
LOG_COMPACTION: Final = PlanKind(
    "log compaction", "deltacommit", "LOG_COMPACT", keys.LOG_COMPACTION_REMOVABLE, True
)
CLUSTERING: Final = PlanKind("clustering", "replacecommit", "CLUSTER", keys.CLUSTERING_REMOVABLE)


def plan_kind(storage: Storage, properties: TableProperties, instant: Instant) -> PlanKind | None:
    """What kind of plan a pending instant is; None for a write or another action."""
    if instant.action == "compaction":
        return COMPACTION
    if instant.action == "logcompaction":
        return LOG_COMPACTION
    return CLUSTERING if is_pending_clustering(storage, properties, instant) else None


def is_removable(
    storage: Storage, properties: TableProperties, instant: Instant, kind: PlanKind
) -> bool:
    """Whether a pending plan may be taken away; one that is gone already may."""
    if kind.property is None:
        return False
    try:
        extra = _extra(storage, properties, instant, kind)
    except NotFoundError:
        # A process that stood still became inflight when its plan was taken away.
        return True
    told = (extra or {}).get(REMOVABLE_KEY) or properties.values.get(kind.property)
    return kind.removable if told is None else told.lower() == "true"


def _extra(
    storage: Storage, properties: TableProperties, instant: Instant, kind: PlanKind
) -> Mapping[str, str] | None:
    """What a plan says besides its work."""
    if kind is CLUSTERING:
        plan = load_requested_replace(storage, properties, instant).clustering_plan
        return plan.extra_metadata if plan is not None else None
    return load_compaction_plan(storage, properties, instant).extra_metadata
