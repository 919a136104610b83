"""The beginning of an index: its file groups, its first records, and that the table claims it.

Three steps, of which only the last can be seen. File groups are laid out as stubs, behind which
changes may be written at once; base files with the first records get the time of the stubs, so that
these changes are behind them; a commit at that time makes them count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from lakewright.errors import NotFoundError
from lakewright.format import property_keys as keys
from lakewright.format.file_names import parse_data_file
from lakewright.format.history import history_files
from lakewright.format.partitions import (
    PARTITION_METADATA_FILE,
    format_partition_metadata,
    list_files,
)
from lakewright.format.properties import update_properties
from lakewright.format.records import CommitMetadata, WriteStat
from lakewright.metadata.containers import BaseFileWriter
from lakewright.metadata.creation import NewIndex, first_instant
from lakewright.metadata.definitions import (
    DEFAULT_PATH,
)
from lakewright.metadata.encoding import MetadataRecords, no_records
from lakewright.metadata.file_groups import (
    STUB_ATTEMPT,
    IndexGroups,
    base_file_name,
    log_file_name,
    split_by_group,
    stub_block,
)
from lakewright.metadata.keys import file_group_number
from lakewright.metadata.record_schema import commit_schema
from lakewright.txn.access import Access
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.lost_indexes import found_again
from lakewright.txn.metadata_commit import STAGES
from lakewright.txn.metadata_stats import NOTHING_WRITTEN
from lakewright.txn.metadata_store import MetadataStore
from lakewright.txn.metadata_undo import DELTA_COMMIT

__all__ = [
    "BEGINNING",
    "INDEXING",
    "beginning_time",
    "claim",
    "commit_beginning",
    "lay_out",
    "write_records",
]

INDEXING: Final = "indexing"
"""The action of building indexes beside writers."""
BEGINNING: Final = "BULK_INSERT"
"""The operation of the commit that an index begins with; Hudi's have the same."""


def times_of(store: MetadataStore, index: str) -> set[str]:
    """Times that the beginning of an index must not have: those of commits, and of files that an
    earlier attempt at this index has left and may still be writing."""
    taken = {i.requested_time for i in store.timeline}
    try:
        names = [parse_data_file(file.name) for file in list_files(store.storage, index)]
    except NotFoundError:
        return taken
    return taken | {name.instant for name in names if name is not None}


def beginning_time(store: MetadataStore, index: str, others: Collection[str] = ()) -> str:
    """The time of the next beginning of an index; `others` begin at those times.

    Where something was archived it is an ordinary time: Hudi takes what is older than the first
    instant for committed, and would forget about base files if that became an instant before all.
    """
    version = store.properties.version
    if version.history_is_lsm and history_files(store.storage, store.properties):
        return store.next_time(after=max(others, default=""))
    taken = times_of(store, index) | {*others}
    return first_instant(store.data_properties, store.data_timeline, taken)


def lay_out(store: MetadataStore, lease: Lease, groups: IndexGroups, instant: str) -> None:
    """Make file groups, without anything that an earlier attempt has left."""
    storage, index = store.storage, groups.index
    storage.delete_tree(index, check=lease.check)
    mark = format_partition_metadata(instant, 1, now_ms=store.access.clock.now_ms())
    storage.replace(f"{index}/{PARTITION_METADATA_FILE}", mark)
    for group in groups.file_ids:
        stub = log_file_name(group, instant=instant, write_token=STUB_ATTEMPT)
        storage.create_if_absent(f"{index}/{stub}", stub_block(instant))


def write_records(
    store: MetadataStore, index: NewIndex, instant: str, check: Callable[[], None]
) -> list[WriteStat]:
    """Write the base files of an index; `check` is asked before each."""
    stage = store.access.random.below(STAGES)
    stats = []
    names = iter(index.groups.file_ids)
    for scope, count in index.groups.counts:
        for records in split_by_group(index.records.get(scope, no_records()), count):
            group = next(names)
            if len(records):
                check()
                stats.append(_base_file(store, index.name, group, records, instant, stage))
    return stats


def commit_beginning(
    store: MetadataStore, lease: Lease, index: str, instant: str, stats: Sequence[WriteStat]
) -> None:
    """Let the base files of an index count."""
    version = store.properties.version
    content = CommitMetadata(
        partition_to_write_stats={index: stats} if stats else {},
        compacted=False,
        extra_metadata={"schema": commit_schema(version)},
        operation_type=BEGINNING,
    )
    lease.check()
    store.files.request(instant, DELTA_COMMIT)
    lease.check()
    store.files.start(instant, DELTA_COMMIT)
    completed = store.next_time(after=instant)
    lease.check()
    store.files.complete(instant, DELTA_COMMIT, content.write(version), completed)


def _base_file(
    store: MetadataStore,
    index: str,
    group: str,
    records: MetadataRecords,
    instant: str,
    stage: int,
) -> WriteStat:
    number = file_group_number(group)
    token = f"{number}-{stage}-{number}"
    path = f"{index}/{base_file_name(group, write_token=token, instant=instant)}"

    def write(sink: Any) -> None:
        writer = BaseFileWriter(sink, version=store.properties.version)
        writer.write(records)
        writer.close()

    size = store.storage.create_from(path, write).size
    return replace(
        NOTHING_WRITTEN,
        file_id=group,
        path=path,
        prev_commit="null",
        partition_path=index,
        num_writes=len(records),
        num_inserts=len(records),
        total_write_bytes=size,
        file_size_in_bytes=size,
    )


def claim(
    access: Access,
    lease: Lease,
    *,
    built: Collection[str] = (),
    building: Collection[str] = (),
) -> None:
    """Let the table say that it has these indexes, builds those, and has no others."""
    told = {
        keys.METADATA_PARTITIONS: ",".join(sorted(built)),
        keys.METADATA_PARTITIONS_INFLIGHT: ",".join(sorted(building)),
    }
    if access.storage.exists(DEFAULT_PATH):
        told[keys.INDEX_DEFINITIONS_PATH] = DEFAULT_PATH
    update_properties(access.storage, told, clock=access.clock, check=lease.check)
    if built:
        found_again(access.storage)
