"""Publishing what a change means for the metadata table, under the data table's lock.

The metadata table commits first, at the same time as the data table: until that instant completes,
readers leave the metadata commit out, and if it never does it is rolled back with the data. Before
it commits, whatever an earlier process left half-done is rolled back, and so is a commit at the
same time: some records add up, and must not be there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from lakewright.errors import (
    IndexesChangedError,
    LakewrightError,
    LockLostError,
    MetadataTableError,
)
from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.partitions import list_files
from lakewright.format.records import CommitMetadata, WriteStat
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.format.view_inputs import load_view
from lakewright.metadata.batch import MetadataBatch, indexes_of
from lakewright.metadata.containers import GroupLog
from lakewright.metadata.file_groups import log_file_name
from lakewright.metadata.index_changes import stored_groups
from lakewright.metadata.keys import file_group_number
from lakewright.metadata.record_schema import commit_schema
from lakewright.runtime.events import Event
from lakewright.txn.access import Access
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.metadata_definitions import define
from lakewright.txn.metadata_stats import NOTHING_WRITTEN
from lakewright.txn.metadata_store import MetadataStore, open_store
from lakewright.txn.metadata_undo import DELTA_COMMIT, cleared

__all__ = ["publish_metadata", "until_indexes_agree"]

OPERATION: Final = "UPSERT_PREPPED"
STAGES: Final = 1 << 30
"""Stages of write tokens are drawn at random, so that no two attempts give a file the same name."""
_INDEXES_CHANGE_MOST: Final = 3
T = TypeVar("T")


def until_indexes_agree(attempt: Callable[[], T]) -> T:
    """Attempt a publication again, a few times, if the table got other indexes since its batch was
    made, or lost them while it was made; `attempt` makes a new one each time."""
    for _ in range(_INDEXES_CHANGE_MOST):
        with suppress(IndexesChangedError, MetadataTableError):
            return attempt()
    return attempt()


def publish_metadata(
    access: Access,
    lease: Lease,
    properties: TableProperties,
    timeline: Timeline,
    batch: MetadataBatch,
) -> str | None:
    """Commit a batch to the metadata table; the time at which it was completed.

    `properties` and `timeline` are the data table's, read under the lock that the caller holds.
    Raises `IndexesChangedError` if the table has other indexes now than the batch was made for.
    """
    if indexes_of(properties) != batch.indexes or not all(
        groups.agrees(stored_groups(access.storage, properties, index))
        for index, groups in batch.groups.items()
    ):
        raise _other_indexes(access, properties, batch)
    if not batch.logs:
        return None
    store = cleared(open_store(access, lease, properties, timeline), lease, batch.instant)
    places = list(_places(store, batch))
    # First: what is told about a column that no definition names would be taken for nothing.
    define(access, lease, properties, batch.definitions)
    lease.check()
    store.files.request(batch.instant, DELTA_COMMIT)
    lease.check()
    store.files.start(batch.instant, DELTA_COMMIT, _profile(places).write(properties.version))
    _write(store, lease, places)
    completed = store.next_time(after=batch.instant)
    content = _content(properties, places).write(properties.version)
    lease.check()
    store.files.complete(batch.instant, DELTA_COMMIT, content, completed)
    count = sum(log.records for log in batch.logs)
    event = Event("metadata_table.committed", count, unit="records", instant=batch.instant)
    access.on_event(event)
    return completed


def _write(store: MetadataStore, lease: Lease, places: Sequence[_Place]) -> None:
    """Write the logs; who lost the lock on the way takes them away again.

    Another attempt at the same plan has the same instant, so a late log would count with it. At
    version 6 logs stay: a plan may name them, and a rollback has cancelled them.
    """
    try:
        for place in places:
            lease.check()
            token = store.access.random.token_hex()
            store.storage.create_if_absent(place.path, place.log.content, token=token)
        lease.check()
    except LockLostError:
        if store.properties.version.log_name_has_delta_instant:
            for place in places:
                with suppress(LakewrightError):
                    store.storage.delete(place.path)
        raise


def _other_indexes(
    access: Access, properties: TableProperties, batch: MetadataBatch
) -> IndexesChangedError:
    now = ", ".join(sorted(indexes_of(properties))) or "none"
    return IndexesChangedError(
        f"The indexes of the metadata table changed while the table was written (now: {now}).",
        hint="Nothing was published. Run the write again: it will keep the new ones.",
        context={"instant": batch.instant, "table": access.storage.uri},
        retryable=True,
    )


# ---- where the logs go -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """A log file that has its name."""

    log: GroupLog
    name: LogFileName
    slice_instant: str
    """Of the slice that it is added to."""
    base: str = ""
    older: tuple[str, ...] = ()
    """Other logs of the slice, where names tell that they belong to it."""

    @property
    def path(self) -> str:
        return f"{self.log.index}/{self.name.text}"


def _places(store: MetadataStore, batch: MetadataBatch) -> Iterator[_Place]:
    stage = store.access.random.below(STAGES)
    if store.properties.version.log_name_has_delta_instant:
        for log in batch.logs:
            name = _name(log, batch.instant, 1, stage)
            yield _Place(log, name, batch.instant)
        return
    for index in sorted({log.index for log in batch.logs}):
        yield from _behind_slices(store, index, [g for g in batch.logs if g.index == index], stage)


def _behind_slices(
    store: MetadataStore, index: str, logs: Iterable[GroupLog], stage: int
) -> Iterator[_Place]:
    """Version 6: behind the last log of the newest slice, planned ones included.

    The file groups of an index that is being built have no commit yet, only stubs.
    """
    listed = list_files(store.storage, index)
    view = load_view(store.storage, store.properties, store.timeline, listing={index: listed})
    newest = {s.group.file_id: s for s in view.latest_slices()}
    named = [n for f in listed if isinstance(n := parse_data_file(f.name), LogFileName)]
    being_built = index in store.data_properties.metadata_partitions_inflight
    for log in logs:
        group = log.file_id
        found = newest.get(group)
        stubs = [n.instant for n in named if n.file_id == group] if being_built else []
        if found is None and not stubs:
            raise MetadataTableError(
                f"The file group {group} of the metadata table is missing.",
                hint="Nothing was changed. Drop the metadata table, or rebuild it.",
                context={"table": store.storage.uri, "index": index},
            )
        instant = max(stubs) if found is None else found.base_instant
        behind = [n for n in named if (n.file_id, n.instant) == (group, instant)]
        version = max((n.version for n in behind), default=0) + 1
        name = _name(log, instant, version, stage)
        base = found.base.name if found is not None and found.base is not None else ""
        yield _Place(log, name, instant, base, tuple(n.text for n in behind))


def _name(log: GroupLog, instant: str, version: int, stage: int) -> LogFileName:
    number = file_group_number(log.file_id)
    token = f"{number}-{stage}-{number}"
    text = log_file_name(log.file_id, instant=instant, version=version, write_token=token)
    parsed = parse_data_file(text)
    assert isinstance(parsed, LogFileName)
    return parsed


# ---- what the commit says ----------------------------------------------------------------------


def _profile(places: Iterable[_Place]) -> CommitMetadata:
    """What is going to be written: Hudi's rollbacks of version 6 find the file groups here."""
    stats: dict[str, list[WriteStat]] = {}
    for place in places:
        of_index = stats.setdefault(
            place.log.index, [replace(NOTHING_WRITTEN, file_id="", prev_commit="null")]
        )
        of_index.append(
            replace(
                NOTHING_WRITTEN,
                file_id=place.log.file_id,
                prev_commit=place.slice_instant,
                num_update_writes=place.log.records,
            )
        )
    return CommitMetadata(partition_to_write_stats=stats, compacted=False, operation_type=OPERATION)


def _content(properties: TableProperties, places: Iterable[_Place]) -> CommitMetadata:
    stats: dict[str, list[WriteStat]] = {}
    for place in places:
        log, size = place.log, len(place.log.content)
        stat = replace(
            NOTHING_WRITTEN,
            file_id=log.file_id,
            path=place.path,
            prev_commit=place.slice_instant,
            partition_path=log.index,
            num_writes=log.records,
            num_deletes=log.deletes,
            num_update_writes=log.records,
            total_write_bytes=size,
            file_size_in_bytes=size,
            log_version=place.name.version,
            log_offset=0,
            base_file=place.base,
            log_files=[*place.older, place.name.text],
        )
        stats.setdefault(log.index, []).append(stat)
    return CommitMetadata(
        partition_to_write_stats=stats,
        compacted=False,
        extra_metadata={"schema": commit_schema(properties.version)},
        operation_type=OPERATION,
    )
