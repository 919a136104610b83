"""From an instant to its record: which state file holds it, and as what it is read.

Plans are read from the `.requested` file even of completed instants; a clean whose request is gone
falls back to its inflight copy. Empty files follow the rules of the format: default metadata for
writes, no plan for replacecommits, None where nothing has to be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from lakewright.errors import NotFoundError
from lakewright.format.instant import COMMIT_ACTIONS, Instant, State, format_instant_name
from lakewright.format.records.cleaning import CleanerPlan, CleanMetadata
from lakewright.format.records.commit import CommitMetadata
from lakewright.format.records.model import AvroRecord
from lakewright.format.records.plans import CompactionPlan, RequestedReplaceMetadata
from lakewright.format.records.rollback import (
    RestoreMetadata,
    RestorePlan,
    RollbackMetadata,
    RollbackPlan,
)
from lakewright.format.records.savepoint import IndexCommitMetadata, IndexPlan, SavepointMetadata
from lakewright.format.table_properties import TableProperties
from lakewright.storage.base import Storage

__all__ = [
    "load_clean_metadata",
    "load_cleaner_plan",
    "load_commit_metadata",
    "load_compaction_plan",
    "load_plan",
    "load_record",
    "load_requested_replace",
    "load_restore_plan",
    "load_rollback_metadata",
    "load_rollback_plan",
    "load_savepoint",
    "read_instant",
    "record_kind",
]

R = TypeVar("R", bound=AvroRecord)

_PLANS: dict[str, type[AvroRecord]] = {
    "compaction": CompactionPlan,
    "logcompaction": CompactionPlan,
    "clustering": RequestedReplaceMetadata,
    "replacecommit": RequestedReplaceMetadata,
    "clean": CleanerPlan,
    "rollback": RollbackPlan,
    "restore": RestorePlan,
    "indexing": IndexPlan,
}
_RESULTS: dict[str, type[AvroRecord]] = {
    "commit": CommitMetadata,
    "deltacommit": CommitMetadata,
    "replacecommit": CommitMetadata,
    "clean": CleanMetadata,
    "rollback": RollbackMetadata,
    "restore": RestoreMetadata,
    "savepoint": SavepointMetadata,
    "indexing": IndexCommitMetadata,
}


def record_kind(action: str, state: State) -> type[AvroRecord] | None:
    """What a state file of an action holds, if it is not empty; None for schema history."""
    if state is State.COMPLETED:
        return _RESULTS.get(action)
    if state is State.INFLIGHT and action in COMMIT_ACTIONS:
        return CommitMetadata
    return _PLANS.get(action) or _RESULTS.get(action)


def instant_path(properties: TableProperties, file_name: str) -> str:
    """Where an instant file lies, below the base path."""
    return f"{properties.timeline_folder}/{file_name}"


def read_instant(storage: Storage, properties: TableProperties, instant: Instant) -> bytes:
    """The bytes of an instant's file."""
    return storage.read(instant_path(properties, instant.file_name))


def load_record(
    storage: Storage, properties: TableProperties, instant: Instant
) -> AvroRecord | None:
    """What the instant's own file holds; None for an empty file and for schema history."""
    kind = record_kind(instant.action, instant.state)
    data = read_instant(storage, properties, instant)
    if kind is None or not data:
        return None
    return kind.read(data, path=instant_path(properties, instant.file_name))


def load_commit_metadata(
    storage: Storage, properties: TableProperties, instant: Instant
) -> CommitMetadata:
    """Metadata of a commit, deltacommit or replacecommit in any state but requested."""
    data = read_instant(storage, properties, instant)
    return CommitMetadata.read(data, path=instant_path(properties, instant.file_name))


def load_plan(storage: Storage, properties: TableProperties, instant: Instant) -> AvroRecord | None:
    """What an instant in any state was asked to do; None if it was asked without a plan.

    A completed commit or replacecommit is taken for the compaction or clustering it may have been.
    """
    actions = {
        "commit": ("compaction",),
        "deltacommit": ("logcompaction",),
        "replacecommit": ("clustering", "replacecommit"),
        "clustering": ("clustering", "replacecommit"),
    }.get(instant.action, (instant.action,))
    kind = _PLANS.get(actions[0])
    if kind is None:
        return None
    states = (State.REQUESTED, State.INFLIGHT) if kind is CleanerPlan else (State.REQUESTED,)
    try:
        return _load_first(storage, properties, instant, kind, actions, states)
    except NotFoundError:
        return None


def _load_first(
    storage: Storage,
    properties: TableProperties,
    instant: Instant,
    kind: type[R],
    actions: Sequence[str],
    states: Sequence[State] = (State.REQUESTED,),
) -> R:
    """The record of the first state file that is there and, if another may follow, not empty."""
    layout = properties.version.layout_version
    pending = properties.version.pending_clustering_action
    names = [
        format_instant_name(instant.requested_time, action, state, layout=layout)
        for action in actions
        if action != "clustering" or action == pending
        for state in states
    ]
    for name in names[:-1]:
        path = instant_path(properties, name)
        try:
            data = storage.read(path)
        except NotFoundError:
            continue
        if data:
            return kind.read(data, path=path)
    path = instant_path(properties, names[-1])
    return kind.read(storage.read(path), path=path)


def load_compaction_plan(
    storage: Storage, properties: TableProperties, instant: Instant
) -> CompactionPlan:
    """The plan of a compaction or log compaction in any state.

    An empty file is the plan of a writer that died before it wrote it: nobody can have read an
    operation from it, so it has none.
    """
    log = instant.completed_action == "deltacommit"
    action = "logcompaction" if log else "compaction"
    layout = properties.version.layout_version
    name = format_instant_name(instant.requested_time, action, State.REQUESTED, layout=layout)
    path = instant_path(properties, name)
    data = storage.read(path)
    return CompactionPlan.read(data, path=path) if data else CompactionPlan(operations=())


def load_requested_replace(
    storage: Storage, properties: TableProperties, instant: Instant
) -> RequestedReplaceMetadata:
    """The request of a replacecommit or clustering in any state."""
    actions = ("clustering", "replacecommit")
    return _load_first(storage, properties, instant, RequestedReplaceMetadata, actions)


def load_cleaner_plan(
    storage: Storage, properties: TableProperties, instant: Instant
) -> CleanerPlan:
    """The plan of a clean in any state."""
    states = (State.REQUESTED, State.INFLIGHT)
    return _load_first(storage, properties, instant, CleanerPlan, ("clean",), states)


def load_clean_metadata(
    storage: Storage, properties: TableProperties, instant: Instant
) -> CleanMetadata:
    """What a completed clean did."""
    return _load_own(storage, properties, instant, CleanMetadata)


def load_rollback_plan(
    storage: Storage, properties: TableProperties, instant: Instant
) -> RollbackPlan:
    """The plan of a rollback in any state."""
    return _load_first(storage, properties, instant, RollbackPlan, ("rollback",))


def load_rollback_metadata(
    storage: Storage, properties: TableProperties, instant: Instant
) -> RollbackMetadata:
    """What a completed rollback did."""
    return _load_own(storage, properties, instant, RollbackMetadata)


def load_restore_plan(
    storage: Storage, properties: TableProperties, instant: Instant
) -> RestorePlan:
    """The plan of a restore in any state."""
    return _load_first(storage, properties, instant, RestorePlan, ("restore",))


def load_savepoint(
    storage: Storage, properties: TableProperties, instant: Instant
) -> SavepointMetadata:
    """The files a completed savepoint keeps."""
    return _load_own(storage, properties, instant, SavepointMetadata)


def _load_own(storage: Storage, properties: TableProperties, instant: Instant, kind: type[R]) -> R:
    data = read_instant(storage, properties, instant)
    return kind.read(data, path=instant_path(properties, instant.file_name))
