"""What indexes begin with, from the files that a table has.

Statistics come from every committed file, old versions of file groups too, as Hudi's do; those of
partitions enclose all of them. At version 8 the indexed columns are written down: the first of the
table that can have statistics, or those that somebody chose, and three meta columns. Indexes of
records are about the rows of the snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lakewright.codec.parquet import ParquetFooter
from lakewright.engine.committed_files import CountingBlocks
from lakewright.engine.index_entries import valued_entries
from lakewright.engine.index_records import (
    filter_records,
    secondary_definition,
    statistics_changes,
    told_files,
)
from lakewright.engine.indexed_columns import (
    first_columns,
    statistics_definition,
    stored_columns,
)
from lakewright.engine.options import ReadOptions
from lakewright.engine.record_changes import record_locations_of, secondary_column
from lakewright.engine.slice_keys import slice_rows
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import InputError, UnsupportedTableError
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.creation import NewIndex, committed_files
from lakewright.metadata.definitions import (
    IndexDefinition,
    keeps_keys_per_partition,
    load_definitions,
    record_index_definition,
    secondary_index_on,
)
from lakewright.metadata.file_groups import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    NEW_PARTITION_GROUPS,
    PARTITION_GROUPS_MOST,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY_PREFIX,
    IndexGroups,
    record_index_group_count,
)
from lakewright.metadata.payloads import record_index_records, secondary_entry_records
from lakewright.metadata.secondary_text import secondary_texts
from lakewright.runtime.spawn import Spawner
from lakewright.txn.metadata_creation import Listing

__all__ = ["FirstRecords", "defined_secondaries", "new_secondary_index", "refuse_unknown"]

_BUILT: Final = (BLOOM_FILTERS, COLUMN_STATS, RECORD_INDEX)
_INDEX_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
_LOGGED_ROW_BYTES: Final = 64
GROUPS: Final = 2
FILTER_GROUPS: Final = 4


@dataclass(frozen=True, slots=True)
class FirstRecords:
    """The first records of indexes of one snapshot."""

    snapshot: Snapshot
    registry: MergerRegistry
    spawner: Spawner
    columns: Collection[str] | None = None
    """Those that statistics are to be about, if somebody chose them."""
    per_partition: bool | None = None
    """Whether a record index keeps keys per partition; as the table says, if nobody chose it."""

    def able(self, wanted: Collection[str]) -> list[str]:
        """Those of some indexes that the table can have; statistics of partitions come with those
        of columns."""
        properties = self.snapshot.properties
        found = [name for name in (BLOOM_FILTERS, COLUMN_STATS) if name in wanted]
        defined = properties.version.defines_indexes
        if COLUMN_STATS in wanted and defined and properties.partition_fields:
            found.append(PARTITION_STATS)
        if properties.populate_meta_fields:
            found += [name for name in (RECORD_INDEX,) if name in wanted]
            found += sorted(n for n in wanted if n.startswith(SECONDARY_PREFIX))
        return found

    def groups(self, names: Collection[str]) -> dict[str, IndexGroups]:
        """The file groups that indexes get, for as long as they live."""
        fixed = {BLOOM_FILTERS: FILTER_GROUPS, COLUMN_STATS: GROUPS, PARTITION_STATS: 1}
        keyed = [name for name in names if name not in fixed]
        rows = self._rows() if keyed else {}
        count = record_index_group_count(sum(rows.values()))
        found = {name: IndexGroups.whole(name, fixed.get(name, count)) for name in names}
        if RECORD_INDEX in found and self.is_parted:
            least, most = NEW_PARTITION_GROUPS, PARTITION_GROUPS_MOST
            counts = {
                partition: record_index_group_count(some, least=least, most=most)
                for partition, some in rows.items()
            }
            found[RECORD_INDEX] = IndexGroups.parted(RECORD_INDEX, counts)
        return found

    def of(self, groups: Mapping[str, IndexGroups], listing: Listing) -> list[NewIndex]:
        """The indexes, with these file groups."""
        found: list[NewIndex] = []
        if COLUMN_STATS in groups:
            found += self._statistics(groups, listing)
        for name in groups:
            if name == RECORD_INDEX:
                found.append(self._places(groups[name]))
            elif name == BLOOM_FILTERS:
                found.append(self._filters(groups[name], listing))
            elif name.startswith(SECONDARY_PREFIX):
                found.append(self._entries(name, groups[name]))
        return found

    def defined(self) -> IndexDefinition | None:
        """What is to be said about a record index; nothing where it goes without saying."""
        said = keeps_keys_per_partition(self.snapshot.storage, self.snapshot.properties)
        if self.is_parted or said:
            return record_index_definition(per_partition=self.is_parted)
        return None

    @property
    def is_parted(self) -> bool:
        """Whether a record index of these records is one per partition."""
        if self.per_partition is not None:
            return self.per_partition
        return keeps_keys_per_partition(self.snapshot.storage, self.snapshot.properties)

    def _rows(self) -> dict[str, int]:
        """About how many rows partitions have: those of base files; what has only logs is
        guessed."""
        found: dict[str, int] = {}
        for slice_ in self.snapshot.live_slices():
            if slice_.base is None:
                rows = sum(log.size for log in slice_.logs) // _LOGGED_ROW_BYTES
            else:
                with self.snapshot.storage.open_input(slice_.base.path) as source:
                    rows = ParquetFooter.read(source, slice_.base.path).num_rows
            found[slice_.group.partition] = found.get(slice_.group.partition, 0) + rows
        return found

    def _places(self, groups: IndexGroups) -> NewIndex:
        """The place of every key."""
        snapshot = self.snapshot
        rows = slice_rows(snapshot, ReadOptions(), self.registry)
        located = record_locations_of(rows, snapshot, groups)
        version = snapshot.properties.version
        records = {s: record_index_records(told, version=version) for s, told in located.items()}
        # Partitions may have come since the file groups were chosen.
        grown = groups.with_partitions(scope for scope in records if scope is not None)
        return NewIndex(grown, records, self.defined())

    def _entries(self, name: str, groups: IndexGroups) -> NewIndex:
        """The value and the key of every row."""
        snapshot = self.snapshot
        definition = secondary_definition(snapshot, name)
        column = secondary_column(snapshot, definition)
        entries = [pa.array([], pa.binary())]
        for rows in slice_rows(snapshot, ReadOptions(), self.registry, column=column):
            assert rows.values is not None
            texts = secondary_texts(rows.values)
            assert texts is not None
            entries.append(valued_entries(texts, rows.keys))
        once = pa.concat_arrays(entries).unique()
        records = secondary_entry_records(once, version=snapshot.properties.version)
        return NewIndex(groups, {None: records}, definition)

    def _filters(self, groups: IndexGroups, listing: Listing) -> NewIndex:
        snapshot = self.snapshot
        latest = snapshot.timeline.completed().last()
        records = filter_records(
            snapshot.storage,
            self._paths(listing),
            instant=latest.requested_time if latest is not None else "",
            version=snapshot.properties.version,
        )
        return NewIndex(groups, {None: records})

    def _statistics(self, groups: Mapping[str, IndexGroups], listing: Listing) -> list[NewIndex]:
        """The statistics of columns, and from version 8 on of partitions."""
        snapshot = self.snapshot
        version = snapshot.properties.version
        columns = first_columns(snapshot.properties, stored_columns(snapshot), self.columns)
        counts = CountingBlocks(snapshot)
        files = told_files(
            snapshot.storage, self._paths(listing), columns, counts=counts, spawner=self.spawner
        )
        changes = statistics_changes(groups.keys(), files, columns, version=version)
        defined = version.defines_indexes
        names = (*columns.names,)
        definition = statistics_definition(names)
        told = {COLUMN_STATS: definition} if defined else {}
        return [
            NewIndex(groups[name], {None: change.records}, told.get(name))
            for name, change in changes.items()
        ]

    def _paths(self, listing: Listing) -> list[tuple[str, str]]:
        """Committed files, each with its partition."""
        return [
            (partition, f"{partition}/{name}" if partition else name)
            for partition, sizes in committed_files(self.snapshot.timeline, listing).written.items()
            for name in sizes
        ]


def refuse_unknown(snapshot: Snapshot, wanted: Collection[str]) -> None:
    """`InputError` for names that no index of this table could have."""
    known = {FILES, PARTITION_STATS, *_BUILT}
    defined = load_definitions(snapshot.storage, snapshot.properties)
    known.update(name for name in defined if name.startswith(SECONDARY_PREFIX))
    unknown = sorted({*wanted} - known)
    if unknown:
        raise InputError(
            f"No such index: {', '.join(unknown)}.",
            hint=f"Known here: {', '.join(sorted(known))}. For a new secondary index say which "
            "column it is on.",
            context={"table": snapshot.storage.uri},
        )


def defined_secondaries(snapshot: Snapshot) -> list[str]:
    """Secondary indexes that a table defines and that can be kept right, whether it has them or
    not: Hudi's restores take them away, and leave it to the next write to begin them again."""
    found = []
    for name, definition in load_definitions(snapshot.storage, snapshot.properties).items():
        if name.startswith(SECONDARY_PREFIX):
            with suppress(UnsupportedTableError):
                secondary_column(snapshot, definition)
                found.append(name)
    return found


def new_secondary_index(snapshot: Snapshot, name: str, column: str) -> IndexDefinition:
    """What a secondary index of this name on a column is; `InputError` if the table cannot have
    it."""
    definition = secondary_index_on(f"{SECONDARY_PREFIX}{name}", column)
    known = load_definitions(snapshot.storage, snapshot.properties).get(definition.name)
    trouble, way_out = "", ""
    if keeps_keys_per_partition(snapshot.storage, snapshot.properties):
        trouble = "it finds rows by a record index of all keys, and the table's is per partition"
        way_out = "Drop the record index first."
    elif not snapshot.properties.version.defines_indexes:
        trouble = f"tables of version {snapshot.properties.version} have no secondary indexes"
        way_out = "A record index finds rows by their keys."
    elif not snapshot.properties.populate_meta_fields:
        trouble = "the table stores no record keys, which indexes of records need"
        way_out = "Filters are still answered from statistics of columns."
    elif not _INDEX_NAME.fullmatch(name):
        trouble = "its name becomes a folder"
        way_out = "Use letters, digits and underscores."
    elif column not in snapshot.schema.arrow.names:
        trouble = "there is no such column"
        way_out = f"The table has {', '.join(snapshot.schema.arrow.names)}."
    elif known is not None and known.source_fields != definition.source_fields:
        trouble = f"the table knows that index on {', '.join(known.source_fields) or 'no column'}"
        way_out = "Give the new one another name."
    if trouble:
        raise InputError(
            f"No secondary index {name} on {column}: {trouble}.",
            hint=way_out,
            context={"table": snapshot.storage.uri, "index": definition.name},
        )
    try:
        secondary_column(snapshot, definition)
    except UnsupportedTableError as error:
        raise InputError(
            f"No secondary index {name} on {column}: its values are no texts, whole numbers, "
            "truth values, dates or timestamps.",
            hint="Filters on it are answered from statistics of columns.",
            context={"table": snapshot.storage.uri, "index": definition.name},
        ) from error
    return known or definition
