"""Listings: which partitions and data files a table has, from its metadata table or its folders.

The metadata table is used when it is there and can be trusted; otherwise the folders are walked and
the reason is told as a warning. Both must give the same files, so that which one was used is never
visible in a result.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from lakewright.errors import FormatError, LakewrightError, NotFoundError
from lakewright.format.cleaned_files import with_cleaned_later
from lakewright.format.partitions import ListedFile, list_files, list_table
from lakewright.format.properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.table import MetadataTable
from lakewright.storage.base import Storage

UNTRUSTED = (FormatError, NotFoundError)
"""What reading a damaged or half-removed metadata table raises."""

NOT_USED = "metadata_table.not_used"
"""The event of a table that is read without the metadata table that it has."""

UNSIZED: Final = 1
"""What Hudi 0.x lists for a log that a dead write left or was about to make: its rollbacks know the
name alone, and not whether the file is there."""

_LOG: Final = logging.getLogger("lakewright.metadata_table")


@dataclass(frozen=True, slots=True)
class Warnings:
    """What of a metadata table was left aside, and why; once each.

    They are in the plans of reads, and in the program's log: rows are right all the same, so nobody
    would look into a plan for them.
    """

    table: str
    """Where the table is."""
    told: list[str] = field(default_factory=list)

    def left_aside(self, what: str, problem: LakewrightError) -> None:
        """Tell that a part of the metadata table was not used."""
        place = ", ".join(f"{k}={v}" for k, v in problem.context.items() if k in ("path", "offset"))
        self.tell(
            f"{what} not used: {problem.message}{f' [{place}]' if place else ''} Rows are right "
            "without it. `lakewright metadata verify` shows what is wrong, `lakewright metadata "
            "rebuild` repairs it."
        )

    def tell(self, warning: str) -> None:
        """Tell what concerns the metadata table."""
        if warning not in self.told:
            self.told.append(warning)
            _LOG.warning("%s: %s", self.table, warning)


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
    """Names found by walking the table's folders, each folder once; what cleans have taken away
    since the timeline was pinned is among them."""

    source = "listing"

    def __init__(self, storage: Storage, properties: TableProperties, timeline: Timeline) -> None:
        self._storage = storage
        self._properties = properties
        self._timeline = timeline
        self._found: Mapping[str, Sequence[ListedFile]] | None = None

    @property
    def _table(self) -> Mapping[str, Sequence[ListedFile]]:
        if self._found is None:
            self._found = with_cleaned_later(
                self._storage, self._properties, self._timeline, list_table(self._storage)
            )
        return self._found

    def partitions(self) -> list[str]:
        """Folders with a partition metadata file."""
        return sorted(self._table)

    def files(self, partitions: Iterable[str]) -> Mapping[str, Sequence[ListedFile]]:
        """Data files as they were when the folders were walked."""
        return {p: self._table[p] for p in partitions}


class MetadataListing:
    """Names found in the metadata table's `files` partition; the folders where it fails."""

    source = "metadata table"

    def __init__(self, table: MetadataTable, storage: Storage, warnings: Warnings) -> None:
        self._table = table
        self._storage = storage
        self._warnings = warnings

    def partitions(self) -> list[str]:
        """The live entries of the partition list."""
        return sorted(self._table.partitions())

    def files(self, partitions: Iterable[str]) -> Mapping[str, Sequence[ListedFile]]:
        """The live entries of each partition's record."""
        wanted = list(partitions)
        try:
            listed = self._table.files(wanted)
        except UNTRUSTED as error:
            self._warnings.left_aside("list of files", error)
            return {p: list_files(self._storage, p) for p in wanted}
        return {p: self._as_stored(p, files) for p, files in listed.items()}

    def _as_stored(self, partition: str, files: Sequence[ListedFile]) -> Sequence[ListedFile]:
        """The files of a partition; those whose size is not known as the folder has them."""
        unsized = [file.name for file in files if file.size == UNSIZED]
        if not unsized:
            return files
        self._warnings.tell(
            f"the metadata table does not know the size of {len(unsized)} files of the partition "
            f"'{partition}', such as {unsized[0]}, or whether they are there; its folder was "
            "asked. A rollback by Hudi 0.x leaves that behind: lakewright metadata rebuild."
        )
        stored = {file.name: file for file in list_files(self._storage, partition)}
        found = (stored.get(f.name) if f.size == UNSIZED else f for f in files)
        return [file for file in found if file is not None]


@dataclass(frozen=True, slots=True)
class OpenedListing:
    """The listing to use, the metadata table if it is trusted, and why not otherwise."""

    listing: Listing
    metadata: MetadataTable | None
    warnings: Warnings
    """Grow when a part of the metadata table turns out not to be readable."""


def open_listing(
    storage: Storage, properties: TableProperties, timeline: Timeline, *, use_metadata_table: bool
) -> OpenedListing:
    """Prefer the metadata table; fall back to the folders with a warning when it is not trusted."""
    warnings = Warnings(storage.uri)
    if use_metadata_table:
        try:
            metadata = MetadataTable.open(storage, properties, timeline)
            if metadata is not None:
                listing = MetadataListing(metadata, storage, warnings)
                listing.partitions()
                return OpenedListing(listing, metadata, warnings)
        except UNTRUSTED as error:
            warnings.left_aside("metadata table", error)
    return OpenedListing(StorageListing(storage, properties, timeline), None, warnings)
