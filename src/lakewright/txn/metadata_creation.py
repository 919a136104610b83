"""Giving a table a metadata table, from a listing of its files; and taking it away again.

Both under the table's lock, and in an order that is safe at every moment. A new one is complete
before the table claims to have it. One that goes stops being claimed first, then its folder goes; a
folder that a crash left behind is nobody's and goes with the next change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lakewright.format import property_keys as keys
from lakewright.format.partitions import (
    PARTITION_METADATA_FILE,
    ListedFile,
    format_partition_metadata,
    list_table,
)
from lakewright.format.properties import update_properties
from lakewright.format.records import CommitMetadata, WriteStat
from lakewright.format.table_folder import found_table
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.batch import indexes_of
from lakewright.metadata.containers import BaseFileWriter
from lakewright.metadata.creation import (
    NewIndex,
    committed_files,
    first_instant,
    metadata_properties,
)
from lakewright.metadata.definitions import DEFAULT_PATH, format_definitions, load_definitions
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.file_changes import files_records
from lakewright.metadata.file_groups import (
    FILES,
    STUB_ATTEMPT,
    base_file_name,
    file_id,
    log_file_name,
    split_by_group,
    stub_block,
)
from lakewright.metadata.record_schema import commit_schema
from lakewright.metadata.table import METADATA_FOLDER
from lakewright.runtime.events import Event
from lakewright.txn.access import Access
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.metadata_commit import STAGES
from lakewright.txn.metadata_stats import NOTHING_WRITTEN
from lakewright.txn.metadata_store import MetadataStore, open_store
from lakewright.txn.metadata_undo import DELTA_COMMIT, cleared
from lakewright.txn.restoring import refuse_restore

__all__ = [
    "Further",
    "Listing",
    "build_metadata_table",
    "drop_indexes",
    "drop_metadata_table",
    "drop_under",
]

_OPERATION: Final = "BULK_INSERT"


Listing = Mapping[str, Sequence[ListedFile]]
Further = Callable[[TableProperties, Timeline, Listing], Sequence[NewIndex]]
"""Indexes to begin besides `files`, from what the table has."""


def _nothing_further(
    properties: TableProperties,  # noqa: ARG001
    timeline: Timeline,  # noqa: ARG001
    listing: Listing,  # noqa: ARG001
) -> Sequence[NewIndex]:
    return ()


def build_metadata_table(access: Access, further: Further = _nothing_further) -> bool:
    """Build the metadata table with its `files` index, and `further` ones; or add these to one that
    is there. Whether this call built anything.

    Nothing is built where something is pending whose files cannot be told from committed ones, or
    another process builds an index: then the next write tries again.
    """
    with access.locked("building the metadata table") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        refuse_restore(timeline, "indexed")
        if properties.metadata_partitions_inflight or _is_undecided(properties, timeline):
            return False
        present = properties.metadata_partitions
        listing = list_table(access.storage)
        indexes = [i for i in further(properties, timeline, listing) if i.name not in present]
        if not present:
            records = files_records(committed_files(timeline, listing), version=properties.version)
            indexes.insert(0, NewIndex(FILES, 1, records))
            _found(access, lease, properties)
        store = cleared(open_store(access, lease, properties, timeline), lease, "")
        for index in indexes:
            taken = [i.requested_time for i in store.timeline]
            _begin(store, lease, first_instant(properties, timeline, taken), index)
            store = store.looked_again()
        _define(access, properties, indexes)
        lease.check()
        _claim(access, *present, *(index.name for index in indexes))
    access.on_event(Event("metadata_table.built", len(indexes), unit="indexes"))
    return bool(indexes)


def _found(access: Access, lease: Lease, properties: TableProperties) -> None:
    """Make an empty metadata table, over whatever a crash has left there."""
    lease.check()
    access.storage.delete_tree(METADATA_FOLDER)
    own = access.storage.child(METADATA_FOLDER)
    found_table(own, metadata_properties(properties), clock=access.clock, random=access.random)


def _is_undecided(properties: TableProperties, timeline: Timeline) -> bool:
    by_name = properties.version.log_name_has_delta_instant
    return not by_name and timeline.pending().first() is not None


def _begin(store: MetadataStore, lease: Lease, instant: str, index: NewIndex) -> None:
    """The first commit of an index: a stub in every file group, base files with its records."""
    storage, version = store.storage, store.properties.version
    storage.delete_tree(index.name)  # what an earlier attempt has left
    mark = format_partition_metadata(instant, 1, now_ms=store.access.clock.now_ms())
    storage.replace(f"{index.name}/{PARTITION_METADATA_FILE}", mark)
    for number in range(index.groups):
        stub = log_file_name(index.name, number, instant=instant, write_token=STUB_ATTEMPT)
        storage.create_if_absent(f"{index.name}/{stub}", stub_block(instant))
    store.files.request(instant, DELTA_COMMIT)
    store.files.start(instant, DELTA_COMMIT)
    stage = store.access.random.below(STAGES)
    stats = []
    for number, records in enumerate(split_by_group(index.records, index.groups)):
        if len(records):
            lease.check()
            stats.append(_base_file(store, index.name, number, records, instant, stage))
    content = CommitMetadata(
        partition_to_write_stats={index.name: stats} if stats else {},
        compacted=False,
        extra_metadata={"schema": commit_schema(version)},
        operation_type=_OPERATION,
    )
    lease.check()
    completed = store.next_time(after=instant)
    store.files.complete(instant, DELTA_COMMIT, content.write(version), completed)


def _base_file(
    store: MetadataStore,
    index: str,
    number: int,
    records: MetadataRecords,
    instant: str,
    stage: int,
) -> WriteStat:
    token = f"{number}-{stage}-{number}"
    path = f"{index}/{base_file_name(index, number, write_token=token, instant=instant)}"

    def write(sink: Any) -> None:
        writer = BaseFileWriter(sink, version=store.properties.version)
        writer.write(records)
        writer.close()

    size = store.storage.create_from(path, write).size
    return replace(
        NOTHING_WRITTEN,
        file_id=file_id(index, number),
        path=path,
        prev_commit="null",
        partition_path=index,
        num_writes=len(records),
        num_inserts=len(records),
        total_write_bytes=size,
        file_size_in_bytes=size,
    )


def _define(access: Access, properties: TableProperties, indexes: Sequence[NewIndex]) -> None:
    """Store what the indexes are about, where the table version has a place for it."""
    new = {index.name: d for index in indexes if (d := index.definition) is not None}
    if new:
        path = properties.index_definitions_path or DEFAULT_PATH
        known = load_definitions(access.storage, properties)
        access.storage.replace(path, format_definitions({**known, **new}))


def drop_metadata_table(access: Access) -> None:
    """Take the metadata table away, or what a crash left of one."""
    with access.locked("dropping the metadata table") as lease:
        drop_under(access, lease)


def drop_under(access: Access, lease: Lease) -> None:
    """Take the metadata table away; the caller holds the lock."""
    if indexes_of(access.properties()):
        lease.check()
        _claim(access)
    lease.check()
    removed = access.storage.delete_tree(METADATA_FOLDER)
    access.on_event(Event("metadata_table.dropped", removed, unit="files"))


def drop_indexes(access: Access, dropped: Collection[str]) -> None:
    """Take some indexes away and keep the others; not `files`, without which none can be used."""
    with access.locked("dropping indexes of the metadata table") as lease:
        kept = [i for i in access.properties().metadata_partitions if i not in dropped]
        lease.check()
        _claim(access, *kept)
        removed = 0
        for index in sorted(dropped):
            lease.check()
            removed += access.storage.delete_tree(f"{METADATA_FOLDER}/{index}")
    access.on_event(Event("metadata_table.indexes_dropped", removed, unit="files"))


def _claim(access: Access, *indexes: str) -> None:
    """Let the table say that it has these indexes, and no others."""
    told = {
        keys.METADATA_PARTITIONS: ",".join(sorted(indexes)),
        keys.METADATA_PARTITIONS_INFLIGHT: "",
    }
    if access.storage.exists(DEFAULT_PATH):
        told[keys.INDEX_DEFINITIONS_PATH] = DEFAULT_PATH
    update_properties(access.storage, told, clock=access.clock)
