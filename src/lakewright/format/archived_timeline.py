"""The archived timeline of a table, whatever its version keeps it in.

One answer for both archives: times as columns for readers that only ask whether and when something
was committed, and whole instants with typed plan and metadata for inspection and migration. An
archive that does not exist is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from lakewright.format.archive import archive_times, read_archive
from lakewright.format.history import read_history
from lakewright.format.instant import State, completed_action
from lakewright.format.records.archived import ArchivedMetaEntry
from lakewright.format.records.instants import record_kind
from lakewright.format.records.model import AvroRecord, read_record
from lakewright.format.table_properties import TableProperties
from lakewright.runtime.events import EventHook, ignore_events
from lakewright.storage.base import Storage

__all__ = ["ArchivedInstant", "archived_instants", "archived_times"]


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """A completed instant of the archive: what was asked, what was done.

    Version 6 loses some of it on archiving: log file lists, change data, runtime statistics.
    """

    requested_time: str
    completion_time: str
    action: str
    metadata: AvroRecord | None
    plan: AvroRecord | None


def archived_times(
    storage: Storage,
    properties: TableProperties,
    *,
    begin: str | None = None,
    end: str | None = None,
    on_event: EventHook = ignore_events,
) -> pa.Table:
    """`requested_time`, `completion_time` and `action` of archived instants, sorted by the first.

    `begin` and `end` bound the requested times, both included. `on_event` is told of regions of the
    archive that are damaged and skipped.
    """
    if properties.version.history_is_lsm:
        return read_history(storage, properties, begin=begin, end=end)
    return archive_times(storage, properties, begin=begin, end=end, on_event=on_event)


def archived_instants(
    storage: Storage,
    properties: TableProperties,
    *,
    begin: str | None = None,
    end: str | None = None,
    on_event: EventHook = ignore_events,
) -> Iterator[ArchivedInstant]:
    """Archived instants with their records, in the order of their requested times."""
    if properties.version.history_is_lsm:
        yield from _from_history(storage, properties, begin, end)
        return
    entries = read_archive(storage, properties, begin=begin, end=end, on_event=on_event)
    for _, states in groupby(entries, key=lambda e: e.commit_time):
        yield from _from_states(list(states))


def _from_history(
    storage: Storage, properties: TableProperties, begin: str | None, end: str | None
) -> Iterator[ArchivedInstant]:
    columns = ("requested_time", "completion_time", "action", "metadata", "plan")
    table = read_history(storage, properties, columns=columns, begin=begin, end=end)
    where = properties.history_folder
    for batch in table.to_batches(max_chunksize=1024):
        for requested_time, completion_time, action, metadata, plan in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):  # one row per archived instant
            yield ArchivedInstant(
                requested_time=requested_time,
                completion_time=completion_time,
                action=action or "",
                metadata=_done(metadata, action, where) if metadata else None,
                plan=read_record(plan, path=where) if plan else None,
            )


def _done(data: bytes, action: str, path: str) -> AvroRecord:
    kind = record_kind(action, State.COMPLETED)
    return read_record(data, path=path) if kind is None else kind.read(data, path=path)


def _from_states(entries: list[ArchivedMetaEntry]) -> Iterator[ArchivedInstant]:
    """The instants of one requested time, each from its state files."""
    for done in entries:
        if done.action_state not in (None, State.COMPLETED.name):
            continue
        action = done.action_type or ""
        asked = [
            entry
            for entry in entries
            if entry is not done and completed_action(entry.action_type or "") == action
        ]
        time = done.commit_time or ""
        yield ArchivedInstant(
            requested_time=time,
            completion_time=done.state_transition_time or time,
            action=action,
            metadata=_metadata(done),
            plan=next((plan for entry in asked if (plan := _plan(entry))), None),
        )


def _metadata(entry: ArchivedMetaEntry) -> AvroRecord | None:
    return (
        entry.hoodie_replace_commit_metadata
        or entry.hoodie_commit_metadata
        or entry.hoodie_clean_metadata
        or entry.hoodie_rollback_metadata
        or entry.hoodie_save_point_metadata
        or entry.hoodie_index_commit_metadata
    )


def _plan(entry: ArchivedMetaEntry) -> AvroRecord | None:
    return (
        entry.hoodie_compaction_plan
        or entry.hoodie_cleaner_plan
        or entry.hoodie_requested_replace_metadata
    )
