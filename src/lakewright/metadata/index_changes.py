"""What a change means for an index besides `files`: records that come, keys that go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from lakewright.errors import MetadataTableError, NotFoundError
from lakewright.format.file_names import parse_data_file
from lakewright.format.table_properties import TableProperties
from lakewright.format.version import TableVersion
from lakewright.metadata.containers import GroupLog, log_blocks
from lakewright.metadata.definitions import IndexDefinition, load_definitions
from lakewright.metadata.encoding import MetadataRecords, no_records
from lakewright.metadata.file_groups import IndexGroups, split_by_group
from lakewright.metadata.keys import file_group_index
from lakewright.metadata.table import METADATA_FOLDER
from lakewright.runtime.lanes import in_lanes
from lakewright.runtime.spawn import Spawner
from lakewright.storage.base import Storage

__all__ = [
    "EncodedChange",
    "IndexChange",
    "IndexChanges",
    "Indexing",
    "encoded",
    "group_log",
    "index_logs",
    "nothing_indexed",
    "stored_groups",
]

GROUPS_AT_ONCE: Final = 2
"""File groups whose logs are made at a time; it is work of the processor."""


@dataclass(frozen=True, slots=True)
class IndexChange:
    """Changes of one index; no key is in both."""

    records: MetadataRecords = field(default_factory=no_records)
    deleted: pa.BinaryArray = field(default_factory=lambda: pa.array([], pa.binary()))
    definition: IndexDefinition | None = None
    """What the index is about from now on, if that changes."""


@dataclass(frozen=True, slots=True)
class EncodedChange:
    """Changes of one index as the log files that they are."""

    groups: IndexGroups
    """Those of the index when they were made, and of partitions that begin with them."""
    logs: tuple[GroupLog, ...]


IndexChanges = Mapping[str, IndexChange | EncodedChange]
"""Changes by the name of the index."""
Indexing = Callable[[TableProperties], IndexChanges]
"""Tells what a change means for the indexes that a table has besides `files`."""


def nothing_indexed(_: TableProperties) -> IndexChanges:
    """For tables without such indexes."""
    return {}


def stored_groups(storage: Storage, properties: TableProperties, index: str) -> IndexGroups:
    """File groups of an index, as its folder has them; `storage` is the data table's.

    One that is kept per partition has none before the first rows come.
    """
    try:
        names = storage.names(f"{METADATA_FOLDER}/{index}")
    except NotFoundError:
        names = []
    found = {parsed.file_id for name in names if (parsed := parse_data_file(name)) is not None}
    if found:
        return IndexGroups.named(index, found)
    definition = load_definitions(storage, properties).get(index)
    if definition is not None and definition.is_partitioned:
        return IndexGroups.parted(index, {})
    raise MetadataTableError(
        f"The index {index} of the metadata table has no file groups.",
        hint="Nothing was published. Drop the metadata table, or rebuild it, and write again.",
        context={"table": storage.uri, "index": index},
    )


def index_logs(
    change: IndexChange, groups: IndexGroups, *, instant: str, version: TableVersion
) -> Iterator[GroupLog]:
    """The log files of a change of an index whose file groups are for all keys, one for each that
    it touches."""
    for number, mine in _split({None: change}, groups):
        log = group_log(groups, number, mine, instant=instant, version=version)
        if log is not None:
            yield log


def encoded(
    changes: Mapping[str | None, IndexChange],
    groups: IndexGroups,
    *,
    instant: str,
    version: TableVersion,
    spawner: Spawner,
) -> EncodedChange:
    """Changes of many records, by the scope of their keys, as their log files, some of which are
    made beside each other."""

    def log(numbered: tuple[int, IndexChange]) -> GroupLog | None:
        number, mine = numbered
        return group_log(groups, number, mine, instant=instant, version=version)

    parts = [*_split(changes, groups)]
    logs = in_lanes(log, parts, spawner=spawner, lanes=GROUPS_AT_ONCE, few=1)
    return EncodedChange(groups, tuple(made for made in logs if made is not None))


def _split(
    changes: Mapping[str | None, IndexChange], groups: IndexGroups
) -> Iterator[tuple[int, IndexChange]]:
    """The part of every file group, with its number."""
    first = 0
    for scope, count in groups.counts:
        if scope in changes:
            change = changes[scope]
            records = split_by_group(change.records, count)
            gone = _split_keys(change.deleted, count)
            both = zip(records, gone, strict=True)
            yield from ((first + n, IndexChange(*mine)) for n, mine in enumerate(both))
        first += count


def group_log(
    groups: IndexGroups,
    number: int,
    change: IndexChange,
    *,
    instant: str,
    version: TableVersion,
) -> GroupLog | None:
    """The log file of one file group, whose records are sorted; None if nothing changes there."""
    index, records, deleted = groups.index, change.records, change.deleted
    content = b"".join(log_blocks(records, deleted, index=index, instant=instant, version=version))
    if not content:
        return None
    return GroupLog(index, groups.file_ids[number], content, len(records), len(deleted))


def _split_keys(keys: pa.BinaryArray, groups: int) -> list[pa.BinaryArray]:
    if groups == 1 or not len(keys):
        return [keys, *([keys[:0]] * (groups - 1))]
    numbers = file_group_index(keys.cast(pa.string()), groups)
    return [keys.take(pa.array(np.flatnonzero(numbers == n))) for n in range(groups)]
