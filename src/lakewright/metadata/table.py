"""The metadata table of a Hudi table, read: listings, statistics and indexes.

`MetadataTable.open` gives None where a table has no metadata table, and `MetadataTableError` where
it has one that cannot be trusted: readers then list folders. An opened one is a snapshot: timelines
and file slices are read once, records on demand. It is never written here. What it answers is what
the data table's completed instants say; blocks of instants that did not complete are left out.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cached_property
from typing import Final

import pyarrow as pa

from lakewright.codec.bloom import BloomFilter
from lakewright.errors import LakewrightError, MetadataTableError
from lakewright.expr.prune import RangeColumns
from lakewright.format.file_slices import FileSlice
from lakewright.format.log_block import read_blocks
from lakewright.format.log_scan import select_blocks
from lakewright.format.partitions import ListedFile, list_files
from lakewright.format.properties import PROPERTIES_FILE, parse_properties
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline, load_timeline
from lakewright.format.view_inputs import load_view
from lakewright.metadata import files as files_index
from lakewright.metadata.bloom_index import bloom_filters
from lakewright.metadata.definitions import IndexDefinition, load_definitions
from lakewright.metadata.file_groups import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    IndexGroups,
)
from lakewright.metadata.record_index import (
    record_locations,
    require_placed,
    secondary_keys,
    without_deleted,
)
from lakewright.metadata.records import FileGroupReader
from lakewright.metadata.statistics import aligned_ranges, column_statistics
from lakewright.metadata.validity import check_fresh, valid_instants
from lakewright.runtime.spawn import Spawner
from lakewright.storage.base import Storage

__all__ = ["METADATA_FOLDER", "MetadataTable"]

METADATA_FOLDER: Final = ".hoodie/metadata"


class _AnyName:
    """Contains every name."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)


class MetadataTable:
    """A trusted metadata table, as of when it was opened."""

    def __init__(
        self,
        storage: Storage,
        properties: TableProperties,
        timeline: Timeline,
        own_properties: TableProperties,
        own_timeline: Timeline,
    ) -> None:
        """Use `open`."""
        self._data_storage = storage
        self._data_properties = properties
        self._storage = storage.child(METADATA_FOLDER)
        self._properties = own_properties
        self._timeline = own_timeline
        self._is_valid = valid_instants(properties, timeline, own_timeline)
        self._readers: dict[str, list[FileGroupReader]] = {}
        self._layouts: dict[str, IndexGroups] = {}

    @classmethod
    def open(
        cls,
        storage: Storage,
        properties: TableProperties,
        timeline: Timeline,
        *,
        check: bool = True,
    ) -> MetadataTable | None:
        """The metadata table of the table at `storage`; None if it has none.

        `timeline` is the data table's. Raises `MetadataTableError` if the metadata table is
        missing, unreadable, of another version, or behind the data timeline. Without `check` one
        that is behind is opened too: to look at it, not to be believed.
        """
        if FILES not in properties.metadata_partitions:
            return None
        folder = storage.child(METADATA_FOLDER)
        try:
            own = TableProperties(parse_properties(folder.read(PROPERTIES_FILE)))
            same_version = own.version == properties.version
            own_timeline = load_timeline(folder, own)
        except LakewrightError as problem:
            raise MetadataTableError(
                f"The metadata table cannot be opened: {problem.message}",
                hint="The table is read by listing its folders; rebuild the metadata table.",
                context={"table": storage.uri},
            ) from problem
        if not same_version:
            raise MetadataTableError(
                f"The metadata table has version {own.version}, its table {properties.version}.",
                hint="Finish the upgrade that was interrupted, or remove the metadata table.",
                context={"table": storage.uri},
            )
        if check:
            check_fresh(storage, properties, timeline, own_timeline)
        return cls(storage, properties, timeline, own, own_timeline)

    @property
    def timeline(self) -> Timeline:
        """The metadata table's own timeline."""
        return self._timeline

    @property
    def indexes(self) -> tuple[str, ...]:
        """The partitions of the metadata table that are complete and may be read."""
        return self._data_properties.metadata_partitions

    def partitions(self) -> list[str]:
        """Paths of all partitions, sorted; `[""]` for a table without partitions."""
        return files_index.listed_partitions(self.groups(FILES)[0])

    def files(self, partitions: Sequence[str]) -> dict[str, list[ListedFile]]:
        """Data files of each partition, sorted by name."""
        return files_index.listed_files(self.groups(FILES)[0], partitions)

    def file_table(self, partitions: Sequence[str]) -> pa.Table:
        """Data files as columns: partition, name, size."""
        return files_index.file_table(self.groups(FILES)[0], partitions)

    def statistics_columns(self) -> Container[str]:
        """Columns that may have statistics of files; every name, where no definition lists them."""
        if COLUMN_STATS not in self.indexes:
            return frozenset()
        definition = self.definitions.get(COLUMN_STATS)
        return _AnyName() if definition is None else frozenset(definition.source_fields)

    def column_stats(
        self, columns: pa.Schema, partitions: Sequence[str] | None = None
    ) -> dict[str, pa.Table]:
        """Statistics of each column of `columns` per file, bounds in the column's type.

        Tables have partition, file_name, min, max, value_count, null_count, total_size,
        total_uncompressed_size and is_tight; null bounds are unknown ones.
        """
        return self._statistics(COLUMN_STATS, columns, partitions)

    def partition_stats(
        self, columns: pa.Schema, partitions: Sequence[str] | None = None
    ) -> dict[str, pa.Table]:
        """As `column_stats`, per partition; `file_name` repeats the partition path."""
        return self._statistics(PARTITION_STATS, columns, partitions)

    def pruning_ranges(
        self, columns: Sequence[str], partitions: Sequence[str], schema: pa.Schema
    ) -> tuple[list[tuple[str, str]], dict[str, RangeColumns]]:
        """Files with statistics, as (partition, name), and the ranges of the columns for them."""
        wanted = pa.schema([schema.field(c) for c in columns])
        return aligned_ranges(self.column_stats(wanted, partitions))

    def partition_ranges(
        self, columns: Sequence[str], partitions: Sequence[str], schema: pa.Schema
    ) -> tuple[list[str], dict[str, RangeColumns]]:
        """Partitions with statistics, and the ranges of the columns for them."""
        wanted = pa.schema([schema.field(c) for c in columns])
        places, ranges = aligned_ranges(self.partition_stats(wanted, partitions))
        return [partition for partition, _ in places], ranges

    def record_index_size(self) -> int:
        """How many keys the record index has."""
        readers = self.groups(RECORD_INDEX)
        require_placed(readers, self.layout(RECORD_INDEX))
        return sum(reader.count() for reader in readers)

    def secondary_index_size(self, name: str) -> int:
        """How many entries of values a secondary index has: one per record that has one, if it is
        whole."""
        found = sum(group.count(lambda p: len(without_deleted(p))) for group in self.groups(name))
        return found - len(self.secondary_index(name, [None]))

    def record_index(
        self,
        keys: pa.StringArray,
        partitions: pa.StringArray | None = None,
        *,
        spawner: Spawner | None = None,
    ) -> pa.Table:
        """Where each record is: key, partition, file_id, instant_ms; null where it is nowhere.

        `partitions` has that of each key, which an index per partition must be told and another one
        does not ask. With a spawner several file groups of the index are read at a time.
        """
        layout = self.layout(RECORD_INDEX)
        if layout.is_parted and partitions is None:
            raise MetadataTableError(
                "The record index keeps keys per partition.",
                hint="Ask for keys together with their partitions.",
                context={"table": self._data_storage.uri},
            )
        asked = partitions if layout.is_parted else None
        readers = self.groups(RECORD_INDEX)
        return record_locations(readers, layout, keys, asked, spawner=spawner)

    def secondary_index(self, name: str, values: Sequence[str | None]) -> pa.Table:
        """Record keys that have one of the values: columns value, key.

        Values are the text of what Avro stores: a date is its number of days since 1970.
        """
        definition = self.definitions.get(name)
        by_value = definition is not None and definition.hashes_secondary_key_only
        return secondary_keys(self.groups(name), values, by_value=by_value)

    def bloom_filters(self, partition: str, names: Sequence[str]) -> dict[str, BloomFilter]:
        """Bloom filters of base files, by file name; files without one are absent."""
        return bloom_filters(self.groups(BLOOM_FILTERS), partition, names)

    @cached_property
    def definitions(self) -> dict[str, IndexDefinition]:
        """Index definitions by name."""
        return load_definitions(self._data_storage, self._data_properties)

    def _statistics(
        self, index: str, columns: pa.Schema, partitions: Sequence[str] | None
    ) -> dict[str, pa.Table]:
        known = self.partitions() if partitions is None else list(partitions)
        groups = self.groups(index)
        return column_statistics(groups, columns, known, all_partitions=partitions is None)

    def layout(self, index: str) -> IndexGroups:
        """Which file groups an index has."""
        self.groups(index)
        return self._layouts[index]

    def groups(self, index: str) -> list[FileGroupReader]:
        """Readers of an index's file groups, by their number."""
        if index not in self.indexes:
            raise MetadataTableError(
                f"The metadata table has no index {index}.",
                hint=f"Use one of {', '.join(self.indexes)}, or let a Hudi writer build it.",
                context={"table": self._data_storage.uri},
            )
        if index not in self._readers:
            self._readers[index] = self._open_groups(index)
        return self._readers[index]

    def _open_groups(self, index: str) -> list[FileGroupReader]:
        listing = {index: list_files(self._storage, index)}
        view = load_view(self._storage, self._properties, self._timeline, listing=listing)
        there = {group.file_id: group for group in view.groups}
        definition = None if there else self.definitions.get(index)
        if definition is not None and definition.is_partitioned:
            layout = IndexGroups.parted(index, {})
        else:
            layout = IndexGroups.named(index, there)
        self._layouts[index] = layout
        newest = {s.group: s for s in view.latest_merged_slices()}
        return [self.slice_reader(newest.get(there[name])) for name in layout.file_ids]

    def slice_reader(self, slice_: FileSlice | None) -> FileGroupReader:
        """What one slice of a file group holds, as far as it counts; None holds nothing."""
        if slice_ is None:
            return FileGroupReader(self._storage, None, ())
        blocks = [
            block
            for log in slice_.logs
            for block in read_blocks(self._storage.read(log.path), path=log.path)
        ]
        selected = select_blocks(blocks, is_visible=self._is_valid, latest=None).blocks
        base = slice_.base
        return FileGroupReader(
            self._storage, (base.path, base.size) if base is not None else None, selected
        )
