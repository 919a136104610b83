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
from lakewright.format.file_slices import FileSystemView
from lakewright.format.internal_schema import InternalSchemas, load_internal_schemas
from lakewright.format.partitions import ListedFile
from lakewright.format.properties import TableProperties, load_properties
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


def load_snapshot(
    storage: Storage,
    *,
    clock: Clock,
    as_of: str | datetime | None = None,
    use_metadata_table: bool = True,
) -> Snapshot:
    """Pin the latest state, or the state as of a moment."""
    properties = load_properties(storage, clock=clock)
    timeline = load_timeline(storage, properties)
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


def _retained(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> Callable[[], str | None]:
    return lambda: earliest_commit_to_retain(storage, properties, timeline)
