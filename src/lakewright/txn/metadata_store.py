"""The metadata table, opened to be changed: a table of its own below its data table's lock.

It has no lock; whoever changes it holds the data table's, from the first file to the last. So
nothing that is pending there under the lock belongs to a process that still works on it. Its times
are the data table's, and those that it takes for itself are greater than all times of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from lakewright.errors import LakewrightError, MetadataTableError
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.table import METADATA_FOLDER
from lakewright.storage.base import Storage
from lakewright.txn.access import Access, FailedWrites
from lakewright.txn.locks.held import HeldLock
from lakewright.txn.locks.protocol import Lease
from lakewright.txn.states import InstantFiles
from lakewright.txn.times import latest_time, next_time

__all__ = ["ROLLBACK_SUFFIX", "MetadataStore", "open_store"]

ROLLBACK_SUFFIX: Final = "006"
"""What version 6 puts behind the time of a rollback in the metadata table."""


@dataclass(frozen=True, slots=True)
class MetadataStore:
    """A metadata table and its timeline, as they were when somebody looked last."""

    access: Access
    """To the metadata table; its lock is the data table's."""
    properties: TableProperties
    timeline: Timeline
    data_properties: TableProperties
    data_timeline: Timeline

    @property
    def storage(self) -> Storage:
        """Where its files are."""
        return self.access.storage

    @property
    def files(self) -> InstantFiles:
        """The state files of its instants."""
        return self.access.files(self.properties)

    def looked_again(self) -> MetadataStore:
        """The same with the timeline as it is now."""
        return replace(self, timeline=self.access.timeline(self.properties))

    def next_time(self, after: str = "") -> str:
        """A time greater than all of both tables, and than `after`."""
        known = latest_time(self.data_timeline, self.data_properties) or ""
        after = max(known, after[:17])
        return next_time(self.timeline, self.properties, self.access.clock, after=after)

    def rollback_time(self) -> str:
        """The time of a rollback that the data table knows nothing of."""
        fresh = self.next_time()
        suffixed = self.properties.version.metadata_operation_suffixes
        return f"{fresh}{ROLLBACK_SUFFIX}" if suffixed else fresh


def open_store(
    access: Access, lease: Lease, properties: TableProperties, data_timeline: Timeline
) -> MetadataStore:
    """Open the metadata table of a table, whose lock the caller holds by `lease`.

    Nothing waits for clocks there: all its writers share that lock. Raises `MetadataTableError` if
    it is not there, or not of the same version.
    """
    own = replace(
        access,
        storage=access.storage.child(METADATA_FOLDER),
        lock=HeldLock(lease),
        alone=True,
        failed_writes=FailedWrites.NEVER,
        metadata_of=properties,
    )
    try:
        stored = own.properties()
        same_version = stored.version == properties.version
        timeline = own.timeline(stored)
    except LakewrightError as problem:
        raise MetadataTableError(
            f"The metadata table cannot be opened: {problem.message}",
            hint="Nothing was changed. Drop the metadata table, or rebuild it, and write again.",
            context={"table": access.storage.uri},
        ) from problem
    if not same_version:
        raise MetadataTableError(
            f"The metadata table has version {stored.version}, its table {properties.version}.",
            hint="Finish the upgrade that was interrupted, or drop the metadata table.",
            context={"table": access.storage.uri},
        )
    return MetadataStore(own, stored, timeline, properties, data_timeline)
