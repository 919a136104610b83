"""What the files of a write mean for the indexes of files in the metadata table, told by them.

Before the lock, after the last task: a base file tells its columns in its footer, a log file by its
rows. Bounds that a footer does not tell (values above 4 KiB) are read from the column; of floating
numbers that have none, every number is within the bounds. A log of some columns only has no
statistics: readers keep files that are not in the index, but take what is missing beside others for
nulls. Statistics of a partition are widened by what was written; Hudi narrows them with its writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from lakewright.codec.bloom import SIMPLE, BloomFilter
from lakewright.codec.parquet import ParquetFooter, open_parquet, read_row_group
from lakewright.engine.base_footer import BLOOM, BLOOM_TYPE
from lakewright.engine.index_entries import Entries
from lakewright.engine.indexed_columns import indexed_columns, stored_columns
from lakewright.engine.record_changes import (
    GroupChange,
    GroupLook,
    changed_groups,
    entries_of_records,
    entries_of_values,
    secondary_column,
    snapshot_after,
)
from lakewright.engine.snapshot import Snapshot
from lakewright.engine.stored_statistics import (
    ColumnFacts,
    FileStatistics,
    base_file_statistics,
    column_bounds,
    log_file_statistics,
    statistics_tables,
)
from lakewright.format.file_names import BaseFileName, LogFileName, parse_data_file
from lakewright.format.records import CommitMetadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.version import TableVersion
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.batch import FILE_INDEXES, indexes_of
from lakewright.metadata.definitions import IndexDefinition, load_definitions
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.file_groups import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY_PREFIX,
    IndexGroups,
)
from lakewright.metadata.index_changes import (
    EncodedChange,
    IndexChange,
    IndexChanges,
    Indexing,
    encoded,
    stored_groups,
)
from lakewright.metadata.payloads import bloom_filter_records
from lakewright.metadata.statistics_payloads import statistics_records
from lakewright.runtime.lanes import in_lanes
from lakewright.runtime.spawn import Spawner
from lakewright.storage.base import Storage

__all__ = [
    "Looking",
    "filter_records",
    "in_whole",
    "indexing_of",
    "layout_for",
    "looking_here",
    "secondary_definition",
    "secondary_definitions",
    "statistics_changes",
    "told_files",
]

FILES_AT_ONCE: Final = 4
_A_NULL: Final = ColumnFacts(None, None, 1, 1, 0, 0)
_SUMMED: Final = ("value_count", "null_count", "total_size", "total_uncompressed_size")


Looking = Callable[[str, Entries, Snapshot, str, list[GroupChange]], EncodedChange]
"""Tells the change of an index of records: by its name and entries, from the snapshot before a
write, the time of that, and the file groups to look at."""


def looking_here(registry: MergerRegistry, spawner: Spawner) -> Looking:
    """Looks at the file groups in this process."""

    def look(
        index: str, entries: Entries, before: Snapshot, instant: str, groups: list[GroupChange]
    ) -> EncodedChange:
        layout = layout_for(before, index, groups)
        look = GroupLook.at(before, snapshot_after(before, instant), entries, registry)
        changes = look.changes(groups, layout, spawner)
        version = before.properties.version
        return encoded(changes, layout, instant=instant, version=version, spawner=spawner)

    return look


def layout_for(snapshot: Snapshot, index: str, changed: Iterable[GroupChange]) -> IndexGroups:
    """The file groups of an index of records, and those that partitions get with a change of file
    groups."""
    stored = stored_groups(snapshot.storage, snapshot.properties, index)
    return stored.with_partitions({change.group.partition for change in changed})


def indexing_of(
    snapshot: Snapshot,
    instant: str,
    content: CommitMetadata,
    schema: pa.Schema,
    looking: Looking,
    spawner: Spawner,
    *,
    columns: Collection[str] | None = None,
) -> Indexing:
    """Tells the changes of every index besides `files`; `schema` has the columns of files, meta
    ones too.

    `snapshot` is what the write is based on; its files are there. `columns` are those that the
    write chooses for statistics.
    """

    def indexing(properties: TableProperties) -> IndexChanges:
        now = replace(snapshot, properties=properties)
        if indexes_of(properties) <= {FILES}:
            return {}
        kinds = (
            partial(_of_records, now, instant, content, looking),
            partial(_of_files, now, instant, content, schema, spawner, columns),
        )
        records, files = in_lanes(_called, kinds, spawner=spawner, lanes=len(kinds), few=1)
        return {**records, **files}

    return indexing


def _called(work: Callable[[], IndexChanges]) -> IndexChanges:
    return work()


def _of_records(
    snapshot: Snapshot, instant: str, content: CommitMetadata, looking: Looking
) -> IndexChanges:
    wanted: dict[str, Entries] = {}
    if RECORD_INDEX in indexes_of(snapshot.properties):
        wanted[RECORD_INDEX] = entries_of_records(snapshot, instant)
    for definition in secondary_definitions(snapshot):
        wanted[definition.name] = entries_of_values(snapshot, definition)
    changes: dict[str, EncodedChange] = {}
    for name, entries in wanted.items():
        groups = changed_groups(snapshot, instant, content, keys_only=entries.keys_only)
        if groups:
            changes[name] = looking(name, entries, snapshot, instant, groups)
        else:
            changes[name] = EncodedChange(layout_for(snapshot, name, ()), ())
    return changes


def _of_files(
    snapshot: Snapshot,
    instant: str,
    content: CommitMetadata,
    schema: pa.Schema,
    spawner: Spawner,
    chosen: Collection[str] | None,
) -> IndexChanges:
    storage, properties = snapshot.storage, snapshot.properties
    wanted = indexes_of(properties) & FILE_INDEXES
    paths = [
        (partition, stat.path or "")
        for partition, stats in content.partition_to_write_stats.items()
        for stat in stats
    ]
    version = properties.version
    changes: dict[str, IndexChange] = {}
    if BLOOM_FILTERS in wanted:
        filters = filter_records(storage, paths, instant=instant, version=version)
        changes[BLOOM_FILTERS] = IndexChange(filters)
    if wanted - {BLOOM_FILTERS}:
        columns, definition = indexed_columns(snapshot, schema, chosen)
        written = {s.path or "": s.column_facts for s in content.write_stats}
        files = told_files(
            storage,
            paths,
            columns,
            counts=lambda _, block: block == instant,
            spawner=spawner,
            known={path: facts for path, facts in written.items() if facts is not None},
        )
        changes |= statistics_changes(
            wanted, files, columns, version=version, before=_older(snapshot, columns)
        )
        if definition is not None and COLUMN_STATS in changes:
            changes[COLUMN_STATS] = replace(changes[COLUMN_STATS], definition=definition)
    return changes


def _older(snapshot: Snapshot, columns: pa.Schema) -> list[FileStatistics]:
    """What rows from before a write tell about columns that come with it: they have nulls there,
    one of which stands for all of a partition."""
    came = {*columns.names} - {*stored_columns(snapshot).names}
    if not came:
        return []
    nulls = dict.fromkeys(came, _A_NULL)
    inhabited = {slice_.group.partition for slice_ in snapshot.live_slices()}
    return [FileStatistics(partition, "", nulls) for partition in sorted(inhabited)]


def secondary_definitions(snapshot: Snapshot) -> list[IndexDefinition]:
    """The secondary indexes of a table; `UnsupportedTableError` if one cannot be kept right."""
    names = sorted(i for i in indexes_of(snapshot.properties) if i.startswith(SECONDARY_PREFIX))
    found = [secondary_definition(snapshot, name) for name in names]
    for definition in found:
        secondary_column(snapshot, definition)
    return found


def secondary_definition(snapshot: Snapshot, name: str) -> IndexDefinition:
    """What the table says that a secondary index is about; of no column if it says nothing."""
    known = load_definitions(snapshot.storage, snapshot.properties)
    return known.get(name, IndexDefinition(name, "", "", (), {}))


def filter_records(
    storage: Storage, paths: Iterable[tuple[str, str]], *, instant: str, version: TableVersion
) -> MetadataRecords:
    """The bloom filters of base files, each with its partition; a file may have none."""
    rows: list[tuple[str, str]] = []
    filters: list[BloomFilter] = []
    for partition, path in paths:
        name = path.rpartition("/")[2]
        if isinstance(parse_data_file(name), BaseFileName):
            with storage.open_input(path) as source:
                values = ParquetFooter.read(source, path).values
            text = values.get(BLOOM)
            if text:
                rows.append((partition, name))
                filters.append(
                    BloomFilter.decode(text, values.get(BLOOM_TYPE) or SIMPLE, path=path)
                )
    named = {"partition": [p for p, _ in rows], "name": [n for _, n in rows]}
    files = pa.table(named, schema=pa.schema([(name, pa.string()) for name in named]))
    return bloom_filter_records(files, filters, instant=instant, version=version)


def statistics_changes(
    wanted: Collection[str],
    files: Sequence[FileStatistics],
    columns: pa.Schema,
    *,
    version: TableVersion,
    before: Sequence[FileStatistics] = (),
) -> dict[str, IndexChange]:
    """Records of the indexes of statistics about these files; `before` is what else is known of
    partitions."""
    changes = {}
    if COLUMN_STATS in wanted:
        told = [file for file in files if in_whole(file, columns)]
        records = statistics_records(statistics_tables(told, columns), version=version)
        changes[COLUMN_STATS] = IndexChange(records)
    if PARTITION_STATS in wanted:
        written = {file.partition for file in files}
        all_ = [_with_nulls(file, columns) for file in files]
        all_ += [file for file in before if file.partition in written]
        tables = {n: _per_partition(t) for n, t in statistics_tables(all_, columns).items()}
        records = statistics_records(tables, of_partitions=True, version=version)
        changes[PARTITION_STATS] = IndexChange(records)
    return changes


def in_whole(file: FileStatistics, columns: pa.Schema) -> bool:
    """Whether statistics of a file may be told: what it lacks is taken for nulls.

    That is so in a base file from before the column came. In a log it may be that only some columns
    of rows changed; then one file of a slice would have what a filter asks of some columns, another
    what it asks of the others, and none would be read.
    """
    is_base = isinstance(parse_data_file(file.name), BaseFileName)
    return is_base or len(file.columns) == len(columns)


def _with_nulls(file: FileStatistics, columns: pa.Schema) -> FileStatistics:
    """One null stands for the rows of a file that lacks a column."""
    lacking = {name: _A_NULL for name in columns.names if name not in file.columns}
    return replace(file, columns={**file.columns, **lacking}) if lacking else file


def told_files(
    storage: Storage,
    paths: Sequence[tuple[str, str]],
    columns: pa.Schema,
    *,
    counts: Callable[[str, str], bool],
    spawner: Spawner,
    known: Mapping[str, Mapping[str, ColumnFacts]] | None = None,
) -> list[FileStatistics]:
    """What files, each with its partition, tell about columns; of a log at a path those blocks
    whose instant counts.

    Change logs tell nothing. Files of which it is `known`, by their paths, are not read.
    """

    def look(place: tuple[str, str]) -> FileStatistics | None:
        partition, path = place
        name = path.rpartition("/")[2]
        parsed = parse_data_file(name)
        if isinstance(parsed, LogFileName):
            if parsed.is_cdc:
                return None
            facts = (known or {}).get(path)
            facts = facts or log_file_statistics(storage, path, counts=partial(counts, path))
        else:
            facts = base_file_statistics(storage, path)
        kept = {f.name: facts[f.name] for f in columns if f.name in facts}
        told = {n: _bounded(storage, path, n, f, columns) for n, f in kept.items()}
        return FileStatistics(partition, name, told)

    found = in_lanes(look, paths, spawner=spawner, lanes=FILES_AT_ONCE, few=1)
    return [file for file in found if file is not None]


def _bounded(
    storage: Storage, path: str, name: str, facts: ColumnFacts, columns: pa.Schema
) -> ColumnFacts:
    if facts.minimum is not None or facts.value_count == facts.null_count:
        return facts
    if pa.types.is_floating(columns.field(name).type):
        return facts._replace(minimum=-math.inf, maximum=math.nan)
    low, high = column_bounds(_column(storage, path, name))
    return facts._replace(minimum=low, maximum=high)


def _column(storage: Storage, path: str, name: str) -> pa.Array:
    with storage.open_input(path) as source:
        file = open_parquet(source, path=path, pre_buffer=False)
        groups = range(file.metadata.num_row_groups)
        batches = (read_row_group(file, g, path=path, columns=[name]) for g in groups)
        parts = [batch.column(name) for some in batches for batch in some]
        return pa.chunked_array(parts).combine_chunks()


def _per_partition(table: pa.Table) -> pa.Table:
    """Statistics of files as those of their partitions."""
    if not len(table):
        return table
    sums: Sequence[tuple[str, str]] = [(name, "sum") for name in _SUMMED]
    grouped = table.group_by("partition", use_threads=False).aggregate(
        [("min", "list"), ("max", "list"), *sums]
    )
    # One list per partition that was written, one value per file.
    bounds: Mapping[str, list[Any]] = {
        "min": [_end(values, min) for values in grouped["min_list"].to_pylist()],
        "max": [_end(values, max) for values in grouped["max_list"].to_pylist()],
    }
    places = grouped["partition"]
    kind = table.schema.field("min").type
    arrays = [places, places, *(pa.array(bounds[end], kind) for end in ("min", "max"))]
    arrays += [grouped[f"{name}_sum"] for name in _SUMMED]
    loose = pa.repeat(pa.scalar(False), len(grouped))
    return pa.table([*arrays, loose], schema=table.schema)


def _end(values: Sequence[Any], choose: Any) -> Any:
    known = [value for value in values if value is not None]
    if any(isinstance(value, float) and math.isnan(value) for value in known):
        return math.nan if choose is max else -math.inf
    return choose(known) if known else None
