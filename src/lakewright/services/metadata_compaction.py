"""Compacting the metadata table: the logs of every file group become a new base file.

The caller holds the table's lock from the plan to the commit, as every writer of the metadata table
does, so a plan that is found pending is that of a dead process: it is executed with the files that
it names. Records of instants that could still be rolled back must not get into a base file, because
nothing takes them out of there again. So nothing is compacted while a write is pending that the
metadata table has heard of, and at version 6 while any earlier write is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from lakewright.format.instant import State
from lakewright.format.partitions import list_files
from lakewright.format.records import (
    CommitMetadata,
    CompactionPlan,
    WriteStat,
    load_compaction_plan,
)
from lakewright.format.view_inputs import load_view
from lakewright.metadata.containers import BaseFileWriter
from lakewright.metadata.file_groups import base_file_name
from lakewright.metadata.keys import file_group_number
from lakewright.metadata.merging import merged_records
from lakewright.metadata.record_schema import commit_schema
from lakewright.metadata.records import Everything
from lakewright.metadata.table import MetadataTable
from lakewright.runtime.events import Event
from lakewright.services.compaction_plan import (
    CompactionOptions,
    CompactionStrategy,
    plan_compaction,
    writes_since_compaction,
)
from lakewright.services.planned_slices import planned_slices
from lakewright.storage.base import Storage
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.metadata_commit import STAGES
from lakewright.txn.metadata_stats import NOTHING_WRITTEN
from lakewright.txn.metadata_store import MetadataStore
from lakewright.txn.metadata_undo import DELTA_COMMIT
from lakewright.txn.plan_kinds import COMPACTION
from lakewright.txn.rollback_plan import files_of_instant

__all__ = ["compact_metadata", "metadata_compaction_is_due"]

_ACTION: Final = "compaction"
_SUFFIX: Final = "001"
"""What version 6 puts behind the time of the last delta commit."""
_EVERYTHING: Final = CompactionOptions(strategy=CompactionStrategy.UNBOUNDED)


def metadata_compaction_is_due(store: MetadataStore, commits: int) -> bool:
    """Whether there are enough delta commits, and none of them may still be rolled back."""
    by_completion = store.properties.version.slices_by_completion_time
    since = writes_since_compaction(store.timeline, by_completion=by_completion)
    return len(since) >= commits and not _is_held_back(store)


def _is_held_back(store: MetadataStore) -> bool:
    deltas = store.timeline.filter_actions(DELTA_COMMIT).completed()
    pending = {i.requested_time for i in store.data_timeline.pending()}
    if store.properties.version.metadata_operation_suffixes:
        last = deltas.last()
        return last is not None and any(t <= last.requested_time for t in pending)
    return any(i.requested_time in pending for i in deltas)


def compact_metadata(store: MetadataStore, lease: Lease, data: Storage) -> str | None:
    """Compact every file group that has logs; the time of the compaction, if there was one.

    `data` is where the data table is; the caller has found that a compaction is due, or one is
    pending.
    """
    pending = store.timeline.pending_compactions().first()
    if pending is not None:
        instant = pending.requested_time
        plan = load_compaction_plan(store.storage, store.properties, pending)
        _forget_attempt(store, instant, plan)
    else:
        found = _planned(store)
        if found is None:
            return None
        instant, plan = found
        lease.check()
        store.files.request(instant, _ACTION, plan.write(store.properties.version))
    if pending is None or pending.state is State.REQUESTED:
        lease.check()
        store.files.start(instant, _ACTION)
    stats = _written(store.looked_again(), data, instant, plan)
    content = CommitMetadata(
        partition_to_write_stats=stats,
        compacted=True,
        extra_metadata={"schema": commit_schema(store.properties.version)},
        operation_type=COMPACTION.operation,
    )
    lease.check()
    completed = store.next_time(after=instant)
    data_bytes = content.write(store.properties.version)
    store.files.complete(instant, COMPACTION.completed, data_bytes, completed)
    groups = sum(map(len, stats.values()))
    store.access.on_event(Event("metadata_table.compacted", groups, unit="files", instant=instant))
    return instant


def _planned(store: MetadataStore) -> tuple[str, CompactionPlan] | None:
    # Changes of an index that is being built wait for its base files, which are older than they.
    indexes = sorted(store.data_properties.metadata_partitions)
    listing = {index: list_files(store.storage, index) for index in indexes}
    view = load_view(store.storage, store.properties, store.timeline, listing=listing)
    plan = plan_compaction(view, _EVERYTHING, taken=(), today="")
    if plan is None:
        return None
    if not store.properties.version.metadata_operation_suffixes:
        return store.next_time(), plan
    last = store.timeline.filter_actions(DELTA_COMMIT).completed().last()
    assert last is not None
    return f"{last.requested_time[:17]}{_SUFFIX}", plan


def _forget_attempt(store: MetadataStore, instant: str, plan: CompactionPlan) -> None:
    """Delete base files that a dead process left behind."""
    for index in sorted({o.partition_path or "" for o in plan.operations or ()}):
        for name in files_of_instant(list_files(store.storage, index), instant, logs=False):
            store.storage.delete(f"{index}/{name}")


def _written(
    store: MetadataStore, data: Storage, instant: str, plan: CompactionPlan
) -> dict[str, list[WriteStat]]:
    table = MetadataTable(
        data, store.data_properties, store.data_timeline, store.properties, store.timeline
    )
    stage = store.access.random.below(STAGES)
    stats: dict[str, list[WriteStat]] = {}
    for slice_ in planned_slices(store.storage, plan):
        index, group = slice_.group.partition, slice_.group.file_id
        parts = table.slice_reader(slice_).read(Everything())
        records = merged_records(index, parts, version=store.properties.version)
        if not len(records):
            continue  # the group lives on by its stub
        number = file_group_number(group)
        token = f"{number}-{stage}-{number}"
        path = f"{index}/{base_file_name(group, write_token=token, instant=instant)}"

        def write(sink: Any, held: Any = records) -> None:
            writer = BaseFileWriter(sink, version=store.properties.version)
            writer.write(held)
            writer.close()

        size = store.storage.create_from(path, write).size
        before = slice_.base
        stats.setdefault(index, []).append(
            replace(
                NOTHING_WRITTEN,
                file_id=group,
                path=path,
                prev_commit=before.instant if before is not None else "null",
                partition_path=index,
                num_writes=len(records),
                num_inserts=len(records),
                total_write_bytes=size,
                file_size_in_bytes=size,
                prev_base_file=before.name if before is not None else None,
            )
        )
    return stats
