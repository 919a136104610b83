"""Giving a table a metadata table, from a listing of its files; and taking it away again.

Both under the table's lock, and in an order that is safe at every moment. A new one is complete
before the table claims to have it. One that goes stops being claimed first, then its folder goes; a
folder that a crash left behind is nobody's and goes with the next change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from lakewright.format.partitions import ListedFile, list_table
from lakewright.format.table_folder import found_table
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.batch import indexes_of
from lakewright.metadata.creation import (
    NewIndex,
    committed_files,
    metadata_properties,
)
from lakewright.metadata.file_changes import files_records
from lakewright.metadata.file_groups import FILES
from lakewright.metadata.table import METADATA_FOLDER
from lakewright.runtime.events import Event
from lakewright.txn.access import Access
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.lost_indexes import found_again, remember_lost
from lakewright.txn.metadata_beginnings import (
    INDEXING,
    beginning_time,
    claim,
    commit_beginning,
    lay_out,
    write_records,
)
from lakewright.txn.metadata_definitions import define, forget
from lakewright.txn.metadata_store import open_store
from lakewright.txn.metadata_undo import cleared
from lakewright.txn.restoring import refuse_restore

__all__ = [
    "Further",
    "Listing",
    "build_metadata_table",
    "drop_indexes",
    "drop_metadata_table",
    "drop_under",
]

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
            indexes.insert(0, NewIndex.of(FILES, 1, records))
            _found(access, lease, properties)
        store = cleared(open_store(access, lease, properties, timeline), lease, "")
        for index in indexes:
            instant = beginning_time(store, index.name)
            lay_out(store, lease, index.groups, instant)
            stats = write_records(store, index, instant, lease.check)
            commit_beginning(store, lease, index.name, instant, stats)
            store = store.looked_again()
        told = [i.definition for i in indexes if i.definition is not None]
        define(access, lease, properties, told)
        claim(access, lease, built=(*present, *(index.name for index in indexes)))
    access.on_event(Event("metadata_table.built", len(indexes), unit="indexes"))
    return bool(indexes)


def _found(access: Access, lease: Lease, properties: TableProperties) -> None:
    """Make an empty metadata table, over whatever a crash has left there."""
    access.storage.delete_tree(METADATA_FOLDER, check=lease.check)
    own = access.storage.child(METADATA_FOLDER)
    found_table(own, metadata_properties(properties), clock=access.clock, random=access.random)


def _is_undecided(properties: TableProperties, timeline: Timeline) -> bool:
    by_name = properties.version.log_name_has_delta_instant
    return not by_name and any(i.action != INDEXING for i in timeline.pending())


def drop_metadata_table(access: Access, *, to_return: bool = False) -> None:
    """Take the metadata table away, or what a crash left of one."""
    with access.locked("dropping the metadata table") as lease:
        drop_under(access, lease, to_return=to_return)


def drop_under(access: Access, lease: Lease, *, to_return: bool = False) -> None:
    """Take the metadata table away; the caller holds the lock.

    If it is `to_return`, its indexes are remembered until somebody has built them anew.
    """
    properties = access.properties()
    indexes = indexes_of(properties)
    lease.check()
    if not to_return:
        found_again(access.storage)
    elif indexes:
        remember_lost(access.storage, indexes)
    if indexes:
        claim(access, lease)
    for found in access.timeline(properties).filter_actions(INDEXING).pending():
        lease.check()
        access.files(properties).remove(found.requested_time, INDEXING)
    removed = access.storage.delete_tree(METADATA_FOLDER, check=lease.check)
    access.on_event(Event("metadata_table.dropped", removed, unit="files"))


def drop_indexes(access: Access, dropped: Collection[str], *, forgotten: bool = False) -> None:
    """Take some indexes away and keep the others; not `files`, without which none can be used.

    Unless they are `forgotten` the table goes on defining them, and writers may begin them again.
    """
    with access.locked("dropping indexes of the metadata table") as lease:
        properties = access.properties()
        claim(
            access,
            lease,
            built=[i for i in properties.metadata_partitions if i not in dropped],
            building=[i for i in properties.metadata_partitions_inflight if i not in dropped],
        )
        if forgotten:
            forget(access, lease, properties, dropped)
        removed = 0
        for index in sorted(dropped):
            removed += access.storage.delete_tree(f"{METADATA_FOLDER}/{index}", check=lease.check)
    access.on_event(Event("metadata_table.indexes_dropped", removed, unit="files"))
