"""What a change of the table means for its metadata table, ready to be published.

A batch holds the whole content of every log file of one metadata commit. It is made before the lock
is taken, from what was written; under the lock a transaction only names the files, and publishes
them as the metadata table's own commit of the same instant, before the data table's. A batch knows
for which indexes it was made, and which file groups these had: if that changed meanwhile it must
not be published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from lakewright.errors import UnsupportedTableError
from lakewright.format.records import CommitMetadata
from lakewright.format.table_properties import TableProperties
from lakewright.metadata.containers import GroupLog
from lakewright.metadata.definitions import IndexDefinition
from lakewright.metadata.file_changes import FileChanges, files_log, written_files
from lakewright.metadata.file_groups import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    IndexGroups,
    stub_block,
)
from lakewright.metadata.index_changes import EncodedChange, IndexChanges, index_logs, stored_groups
from lakewright.storage.base import Storage

__all__ = [
    "FILE_INDEXES",
    "NO_METADATA",
    "MetadataBatch",
    "batch_of_commit",
    "batch_of_files",
    "indexes_of",
]

FILE_INDEXES: Final = frozenset({COLUMN_STATS, PARTITION_STATS, BLOOM_FILTERS})
"""Indexes that are about files, besides the list of files itself."""


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """The log files of one commit of the metadata table."""

    instant: str
    indexes: frozenset[str]
    """Indexes of the table when the batch was made; none: it has no metadata table."""
    logs: tuple[GroupLog, ...] = ()
    groups: Mapping[str, IndexGroups] = field(default_factory=dict)
    """File groups of every index besides `files`, among which the logs are spread."""
    definitions: tuple[IndexDefinition, ...] = ()
    """Of indexes that are about something else from now on."""


NO_METADATA: Final = MetadataBatch("", frozenset())
"""Of a table without a metadata table."""


def indexes_of(properties: TableProperties) -> frozenset[str]:
    """Indexes that every change must reach: those that are built, and those being built."""
    return frozenset(properties.metadata_partitions + properties.metadata_partitions_inflight)


def batch_of_commit(
    storage: Storage,
    properties: TableProperties,
    instant: str,
    content: CommitMetadata,
    indexed: IndexChanges,
) -> MetadataBatch:
    """What a write, or the execution of a plan, means for the metadata table.

    `indexed` has the changes of every index besides `files`; `storage` is the data table's.
    """
    return batch_of_files(storage, properties, instant, written_files(content), indexed)


def batch_of_files(
    storage: Storage,
    properties: TableProperties,
    instant: str,
    changes: FileChanges,
    indexed: IndexChanges,
) -> MetadataBatch:
    """What files that came or went mean for the metadata table."""
    indexes = indexes_of(properties)
    if not indexes:
        return NO_METADATA
    untold = sorted(indexes - indexed.keys() - {FILES})
    if untold:
        raise UnsupportedTableError(
            f"The metadata table has the index {', '.join(untold)}, which this change does not "
            "keep right.",
            hint="Nothing was published. Drop that index with Hudi, or write the table with Hudi.",
            context={"instant": instant, "table": storage.uri},
        )
    version = properties.version
    files = files_log(changes, instant=instant, version=version)
    logs = [] if files is None else [files]
    groups: dict[str, IndexGroups] = {}
    definitions: list[IndexDefinition] = []
    for index in sorted(indexes - {FILES}):
        change = indexed[index]
        if isinstance(change, EncodedChange):
            groups[index] = change.groups.with_partitions(changes.partitions or ())
            logs += change.logs
            logs += _stubs(storage, properties, groups[index], change.logs, instant)
        else:
            groups[index] = stored_groups(storage, properties, index)
            logs += index_logs(change, groups[index], instant=instant, version=version)
            definitions += [change.definition] if change.definition is not None else []
    return MetadataBatch(instant, indexes, tuple(logs), groups, tuple(definitions))


def _stubs(
    storage: Storage,
    properties: TableProperties,
    groups: IndexGroups,
    logs: Iterable[GroupLog],
    instant: str,
) -> Iterator[GroupLog]:
    """What file groups begin with that partitions get with this change, and no key: whoever finds a
    partition in the list of files expects them."""
    if groups.is_parted:
        there = {*stored_groups(storage, properties, groups.index).file_ids}
        there.update(log.file_id for log in logs)
        for group in groups.file_ids:
            if group not in there:
                yield GroupLog(groups.index, group, stub_block(instant), 0)
