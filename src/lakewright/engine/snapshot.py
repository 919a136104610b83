"""A snapshot: one committed state of a table, pinned by one listing of its timeline.

Everything a scan, a plan or an inspection derives comes from the values pinned here, so a writer
that commits meanwhile changes nothing that was pinned. The timeline is read before any file
listing: files that appear later belong to instants the pinned timeline does not know, and are
therefore never visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakewright.engine.listing import OpenedListing, open_listing
from lakewright.engine.time_travel import AsOf, resolve_as_of
from lakewright.errors import ConflictError, FormatError
from lakewright.format.file_slices import FileSlice, FileSystemView
from lakewright.format.internal_schema import InternalSchemas, load_internal_schemas
from lakewright.format.partitions import ListedFile
from lakewright.format.properties import TableProperties, load_properties
from lakewright.format.settling import wait_until_whole
from lakewright.format.table_schema import TableSchema, resolve_table_schema
from lakewright.format.timeline import (
    Timeline,
    earliest_commit_to_retain,
    is_pending_clustering,
    load_timeline,
)
from lakewright.format.view_inputs import load_view
from lakewright.merge.config import MergeConfig
from lakewright.runtime.clock import Clock
from lakewright.storage.base import Storage

SWITCHES_MAX = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One pinned state of a table."""

    storage: Storage
    properties: TableProperties
    timeline: Timeline
    schema: TableSchema
    internal_schemas: InternalSchemas | None
    merge: MergeConfig
    opened: OpenedListing
    as_of: AsOf | None

    @property
    def bound(self) -> str | None:
        """Upper bound on requested times; None is the latest."""
        return self.as_of.requested_time if self.as_of else None

    def renames(self, instant: str) -> Mapping[str, str]:
        """Old column names by new ones in what an instant wrote (schema-on-read)."""
        if self.internal_schemas is None:
            return {}
        return self.internal_schemas.renames(instant, at=self.bound)

    def view(self, listing: Mapping[str, Sequence[ListedFile]]) -> FileSystemView:
        """File groups and slices of the listed files, as this snapshot's timeline sees them."""
        return load_view(self.storage, self.properties, self.timeline, listing=listing)

    def live_slices(self) -> list[FileSlice]:
        """The slices that make up the snapshot, by partition and file group."""
        listing = self.opened.listing
        view = self.view(listing.files(listing.partitions()))
        slices = [s for s in view.latest_merged_slices(self.bound) if s.base is not None or s.logs]
        return sorted(slices, key=lambda s: (s.group.partition, s.group.file_id))


def load_snapshot(
    storage: Storage,
    *,
    clock: Clock,
    as_of: str | datetime | None = None,
    use_metadata_table: bool = True,
) -> Snapshot:
    """Pin the latest state, or the state as of a moment."""
    properties, timeline = _pinned(storage, clock)
    wait_until_whole(storage, properties, timeline, clock=clock)
    bound = None
    if as_of is not None:
        bound = resolve_as_of(
            as_of,
            timeline,
            zone=properties.timeline_zone,
            earliest_retained=_retained(storage, properties, timeline),
            is_clustering=lambda i: is_pending_clustering(storage, properties, i),
        )
    at = bound.requested_time if bound else None
    return Snapshot(
        storage=storage,
        properties=properties,
        timeline=timeline,
        schema=resolve_table_schema(storage, properties, timeline, as_of=at),
        internal_schemas=load_internal_schemas(storage, properties, timeline),
        merge=MergeConfig.from_properties(properties.version, properties.values),
        opened=open_listing(storage, properties, timeline, use_metadata_table=use_metadata_table),
        as_of=bound,
    )


def _pinned(storage: Storage, clock: Clock) -> tuple[TableProperties, Timeline]:
    """Properties and timeline that belong together, also while the table changes its version.

    The properties say in which layout the timeline is; if they changed while it was listed, what
    was listed may be a timeline that a migration has already left.
    """
    properties = load_properties(storage, clock=clock)
    for _ in range(SWITCHES_MAX):
        timeline: Timeline | None = None
        failure: FormatError | None = None
        try:
            timeline = load_timeline(storage, properties)
        except FormatError as error:
            failure = error
        again = load_properties(storage, clock=clock)
        if again.version == properties.version:
            if timeline is not None:
                return properties, timeline
            raise failure or AssertionError("a timeline was neither read nor refused")
        properties = again
    raise ConflictError(
        "The table changed its version again and again while it was opened.",
        hint="Wait for the migration to finish, then open it again.",
        context={"table": storage.uri},
        retryable=True,
    )


def _retained(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> Callable[[], str | None]:
    return lambda: earliest_commit_to_retain(storage, properties, timeline)
