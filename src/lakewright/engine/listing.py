"""Listings: which partitions and data files a table has, from its metadata table or its folders.

The metadata table is used when it is there and can be trusted; otherwise the folders are walked and
the reason is kept as a warning. Both must give the same files, so that which one was used is never
visible in a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from lakewright.errors import FormatError, NotFoundError
from lakewright.format.partitions import ListedFile, list_table
from lakewright.format.properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.table import MetadataTable
from lakewright.storage.base import Storage


class Listing(Protocol):
    """A source of partition and file names."""

    @property
    def source(self) -> str:
        """Where the names come from, for people."""
        ...

    def partitions(self) -> list[str]:
        """All partition paths, sorted."""
        ...

    def files(self, partitions: Iterable[str]) -> Mapping[str, Sequence[ListedFile]]:
        """Data files of the given partitions."""
        ...


class StorageListing:
    """Names found by walking the table's folders, each folder once."""

    source = "listing"

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @cached_property
    def _table(self) -> Mapping[str, Sequence[ListedFile]]:
        return list_table(self._storage)

    def partitions(self) -> list[str]:
        """Folders with a partition metadata file."""
        return sorted(self._table)

    def files(self, partitions: Iterable[str]) -> Mapping[str, Sequence[ListedFile]]:
        """Data files as they were when the folders were walked."""
        return {p: self._table[p] for p in partitions}


@dataclass(frozen=True, slots=True)
class MetadataListing:
    """Names found in the metadata table's `files` partition."""

    table: MetadataTable
    source: str = "metadata table"

    def partitions(self) -> list[str]:
        """The live entries of the partition list."""
        return sorted(self.table.partitions())

    def files(self, partitions: Iterable[str]) -> Mapping[str, Sequence[ListedFile]]:
        """The live entries of each partition's record."""
        return self.table.files(list(partitions))


@dataclass(frozen=True, slots=True)
class OpenedListing:
    """The listing to use, the metadata table if it is trusted, and why not otherwise."""

    listing: Listing
    metadata: MetadataTable | None
    warnings: tuple[str, ...] = ()


def open_listing(
    storage: Storage, properties: TableProperties, timeline: Timeline, *, use_metadata_table: bool
) -> OpenedListing:
    """Prefer the metadata table; fall back to the folders with a warning when it is not trusted."""
    if not use_metadata_table:
        return OpenedListing(StorageListing(storage), None)
    try:
        metadata = MetadataTable.open(storage, properties, timeline)
        if metadata is None:
            return OpenedListing(StorageListing(storage), None)
        listing = MetadataListing(metadata)
        listing.partitions()
    except (FormatError, NotFoundError) as error:
        warning = f"metadata table not used: {error.message}"
        return OpenedListing(StorageListing(storage), None, (warning,))
    return OpenedListing(listing, metadata)
