"""The metadata table of a Hudi table, read: listings, statistics and indexes.

`MetadataTable.open` gives None where a table has no metadata table, and `MetadataTableError` where
it has one that cannot be trusted: readers then list folders. An opened one is a snapshot: timelines
and file slices are read once, records on demand. It is never written here. What it answers is what
the data table's completed instants say; blocks of instants that did not complete are left out.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final

import pyarrow as pa

from lakewright.errors import LakewrightError, MetadataTableError
from lakewright.format.file_slices import FileSlice
from lakewright.format.log_block import read_blocks
from lakewright.format.log_scan import select_blocks
from lakewright.format.partitions import ListedFile, list_files
from lakewright.format.properties import PROPERTIES_FILE, parse_properties
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline, load_timeline
from lakewright.format.view_inputs import load_view
from lakewright.metadata import files as files_index
from lakewright.metadata.files import Difference
from lakewright.metadata.keys import file_group_number
from lakewright.metadata.records import FileGroupReader
from lakewright.metadata.validity import check_fresh, valid_instants
from lakewright.storage.base import Storage

__all__ = ["METADATA_FOLDER", "MetadataTable"]

METADATA_FOLDER: Final = ".hoodie/metadata"
FILES: Final = "files"


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

    @classmethod
    def open(
        cls, storage: Storage, properties: TableProperties, timeline: Timeline
    ) -> MetadataTable | None:
        """The metadata table of the table at `storage`; None if it has none.

        `timeline` is the data table's. Raises `MetadataTableError` if the metadata table is
        missing, unreadable, of another version, or behind the data timeline.
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
        check_fresh(storage, properties, timeline, own_timeline)
        return cls(storage, properties, timeline, own, own_timeline)

    @property
    def indexes(self) -> tuple[str, ...]:
        """The partitions of the metadata table that are complete and may be read."""
        return self._data_properties.metadata_partitions

    def partitions(self) -> list[str]:
        """Paths of all partitions, sorted; `[""]` for a table without partitions."""
        return files_index.listed_partitions(self._groups(FILES)[0])

    def files(self, partitions: Sequence[str]) -> dict[str, list[ListedFile]]:
        """Data files of each partition, sorted by name."""
        return files_index.listed_files(self._groups(FILES)[0], partitions)

    def file_table(self, partitions: Sequence[str]) -> pa.Table:
        """Data files as columns: partition, name, size."""
        return files_index.file_table(self._groups(FILES)[0], partitions)

    def compare_with_listing(self, listing: Mapping[str, Sequence[ListedFile]]) -> list[Difference]:
        """Where the whole table's listing and this one differ.

        Files of instants that are pending or were never completed are on storage only.
        """
        return files_index.compare(listing, self.files(self.partitions()))

    def _groups(self, index: str) -> list[FileGroupReader]:
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
        slices = {file_group_number(g.file_id): g for g in view.groups}
        if not slices or set(slices) != set(range(len(slices))) or len(slices) != len(view.groups):
            raise MetadataTableError(
                f"The file groups of {index} are not numbered one after the other.",
                hint="A stray file is in the folder; rebuild the index.",
                context={"table": self._data_storage.uri, "index": index},
            )
        newest = {s.group: s for s in view.latest_merged_slices()}
        return [self._reader(newest.get(slices[n])) for n in range(len(slices))]

    def _reader(self, slice_: FileSlice | None) -> FileGroupReader:
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
