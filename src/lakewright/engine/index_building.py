"""Indexes that a table's metadata table begins with, from the files that the table has.

Statistics come from every committed file, old versions of file groups too, as Hudi's do; those of
partitions enclose all of them. At version 8 the indexed columns are written down: the first of the
table that can have statistics, and three meta columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa

from lakewright.codec.avro.arrow_types import arrow_schema
from lakewright.engine.index_records import filter_records, statistics_changes, told_files
from lakewright.engine.options import ReadOptions
from lakewright.engine.record_changes import record_locations_of
from lakewright.engine.slice_keys import slice_rows
from lakewright.engine.snapshot import Snapshot, load_snapshot
from lakewright.format.table_properties import TableProperties
from lakewright.format.table_schema import with_meta_columns, without_meta_columns
from lakewright.format.timeline import Timeline
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.batch import indexes_of
from lakewright.metadata.creation import NewIndex, committed_files
from lakewright.metadata.definitions import IndexDefinition
from lakewright.metadata.file_groups import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    PARTITION_STATS,
    RECORD_INDEX,
    record_index_group_count,
)
from lakewright.metadata.payloads import record_index_records
from lakewright.metadata.record_schema import META_FIELDS
from lakewright.metadata.wrapping import wrapper_of
from lakewright.storage.base import Storage
from lakewright.txn.access import Access
from lakewright.txn.metadata_creation import Listing, build_metadata_table

__all__ = ["build_indexes", "statistics_indexes"]

COLUMNS_MOST: Final = 32
GROUPS: Final = 2
FILTER_GROUPS: Final = 4
_META: Final = ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")


def build_indexes(access: Access, snapshot: Snapshot, indexes: Collection[str] = ()) -> bool:
    """Build a metadata table with `files` and some other indexes, or those that it lacks; whether
    anything was built.

    See `build_metadata_table` for when it is not.
    """
    present = indexes_of(snapshot.properties)
    known = snapshot.properties
    able = frozenset(indexes) if known.populate_meta_fields else frozenset(indexes) - {RECORD_INDEX}
    missing = able - present
    if present and not missing:
        return False
    stored = with_meta_columns(without_meta_columns(snapshot.schema.avro))
    left_out = {*(known.partition_fields if known.drop_partition_columns else ())}
    left_out.update(() if known.populate_meta_fields else META_FIELDS)
    kept = [field for field in arrow_schema(stored) if field.name not in left_out]

    def further(
        properties: TableProperties, timeline: Timeline, listing: Listing
    ) -> Sequence[NewIndex]:
        new: list[NewIndex] = []
        if COLUMN_STATS in missing:
            schema = pa.schema(kept)
            new += statistics_indexes(access.storage, properties, timeline, listing, schema)
        if RECORD_INDEX in missing:
            new.append(_records(access, properties))
        if BLOOM_FILTERS in missing:
            new.append(_filters(access.storage, properties, timeline, listing))
        return new

    return build_metadata_table(access, further)


def _records(access: Access, properties: TableProperties) -> NewIndex:
    """The place of every key, as the table is now; the caller holds the lock."""
    now = load_snapshot(access.storage, clock=access.clock, use_metadata_table=False)
    rows = slice_rows(now, ReadOptions(), MergerRegistry())
    located = record_locations_of(rows, properties.timeline_zone)
    groups = record_index_group_count(len(located))
    records = record_index_records(located, version=properties.version)
    return NewIndex(RECORD_INDEX, groups, records)


def _filters(
    storage: Storage, properties: TableProperties, timeline: Timeline, listing: Listing
) -> NewIndex:
    latest = timeline.completed().last()
    records = filter_records(
        storage,
        _paths(timeline, listing),
        instant=latest.requested_time if latest is not None else "",
        version=properties.version,
    )
    return NewIndex(BLOOM_FILTERS, FILTER_GROUPS, records)


def _paths(timeline: Timeline, listing: Listing) -> list[tuple[str, str]]:
    """Committed files, each with its partition."""
    return [
        (partition, f"{partition}/{name}" if partition else name)
        for partition, sizes in committed_files(timeline, listing).written.items()
        for name in sizes
    ]


def statistics_indexes(
    storage: Storage,
    properties: TableProperties,
    timeline: Timeline,
    listing: Listing,
    schema: pa.Schema,
) -> list[NewIndex]:
    """The statistics of columns, and from version 8 on of partitions, of a table that has some.

    `schema` has the columns of files, meta ones too.
    """
    defined = properties.version.merge_mode_stored
    columns = _indexed(schema, all_=not defined)
    counts = timeline.contains_completed_or_archived
    files = list(told_files(storage, _paths(timeline, listing), columns, counts=counts))
    wanted = {COLUMN_STATS}
    if defined and properties.partition_fields:
        wanted.add(PARTITION_STATS)
    changes = statistics_changes(wanted, files, columns, version=properties.version)
    definition = IndexDefinition(COLUMN_STATS, COLUMN_STATS, COLUMN_STATS, (*columns.names,), {})
    new = [
        NewIndex(
            COLUMN_STATS,
            GROUPS,
            changes[COLUMN_STATS].records,
            definition if defined else None,
        )
    ]
    if PARTITION_STATS in wanted:
        new.append(NewIndex(PARTITION_STATS, 1, changes[PARTITION_STATS].records))
    return new


def _indexed(schema: pa.Schema, *, all_: bool) -> pa.Schema:
    able = [field for field in schema if wrapper_of(field.type) is not None]
    if all_:
        return pa.schema(able)
    rows = [field for field in able if field.name not in META_FIELDS]
    return pa.schema([*(f for f in able if f.name in _META), *rows[:COLUMNS_MOST]])
