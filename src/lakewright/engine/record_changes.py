"""What a write means for the indexes of records: what came into a file group, and what left it.

Exact, whatever merges rows: what the merged slices of a file group have before the write and after
it is held against each other. For the record index that is keys, for a secondary index values with
keys. File groups that were replaced lose everything; what another group of the write has gained is
there all the same.

Where only keys matter, most file groups need not be looked at: an update in place moves nothing. A
base file tells by its stat. A log moves nothing if neither it nor an older one of its slice deletes
anything, and rows do not delete by what they say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.engine.options import ReadOptions
from lakewright.engine.scan_plan import ScanTask
from lakewright.engine.slice_keys import KeyedRows
from lakewright.engine.slice_reader import SliceReader
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import UnsupportedTableError
from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.file_slices import FileGroupId, FileSlice, FileSystemView
from lakewright.format.instant import Instant, State, format_instant_name
from lakewright.format.instant_times import time_ms
from lakewright.format.key_text import column_at
from lakewright.format.log_block import BlockType, read_blocks
from lakewright.format.partitions import ListedFile, list_files
from lakewright.format.records import CommitMetadata, WriteStat
from lakewright.format.timeline import Timeline
from lakewright.merge.config import RECORD_KEY_COLUMN
from lakewright.merge.deletes import DELETED_COLUMN
from lakewright.merge.names import MergeMode
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.definitions import IndexDefinition
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.index_changes import IndexChange
from lakewright.metadata.keys import secondary_entries
from lakewright.metadata.payloads import record_index_records, secondary_entry_records
from lakewright.metadata.record_index import RECORD_LOCATIONS
from lakewright.metadata.secondary_text import secondary_texts
from lakewright.storage.base import Storage
from lakewright.txn.markers import read_markers

__all__ = ["record_changes", "record_locations_of", "secondary_changes", "secondary_column"]

_LAST: Final = "99991231235959999"
"""A completion time behind all others."""
_PLAIN: Final = (MergeMode.COMMIT_TIME, MergeMode.EVENT_TIME)

Entries = Callable[[pa.RecordBatch], pa.Array]
"""What an index has about rows, as text."""


def record_changes(
    snapshot: Snapshot, instant: str, content: CommitMetadata, registry: MergerRegistry
) -> IndexChange:
    """The change of the record index; `snapshot` is what the write is based on.

    The files of the write are there, and its instant is pending.
    """
    if content.compacted:
        return IndexChange()
    look = _Look.at(snapshot, instant, content, [RECORD_KEY_COLUMN], _keys, registry)
    placed_ms = time_ms(instant, zone=snapshot.properties.timeline_zone)
    came = [RECORD_LOCATIONS.empty_table()]
    gone = look.replaced(content)
    for group, stats in _written(content).items():
        if look.moves_keys(group, stats):
            new, left = look.moved(group)
            came.append(_located(new, group, placed_ms))
            gone.append(left)
    located = _once(pa.concat_tables(came))
    records = record_index_records(located, version=snapshot.properties.version)
    return _change(records, gone)


def secondary_changes(
    snapshot: Snapshot,
    instant: str,
    content: CommitMetadata,
    definition: IndexDefinition,
    registry: MergerRegistry,
) -> IndexChange:
    """The change of a secondary index, likewise."""
    if content.compacted:
        return IndexChange()
    name = secondary_column(snapshot, definition)
    columns = [RECORD_KEY_COLUMN, name if name in snapshot.schema.arrow.names else _top(name)]

    def entries(rows: pa.RecordBatch) -> pa.Array:
        texts = secondary_texts(column_at(rows, name))
        assert texts is not None
        return secondary_entries(texts, _keys(rows)).cast(pa.string())

    look = _Look.at(snapshot, instant, content, columns, entries, registry)
    moved = [look.moved(group) for group in _written(content)]
    came = pa.concat_arrays([pa.array([], pa.string()), *(new for new, _ in moved)]).unique()
    records = secondary_entry_records(came.cast(pa.binary()), version=snapshot.properties.version)
    return _change(records, [*look.replaced(content), *(left for _, left in moved)])


def secondary_column(snapshot: Snapshot, definition: IndexDefinition) -> str:
    """The one column of a secondary index; `UnsupportedTableError` if it cannot be kept right."""
    names = definition.source_fields
    schema = snapshot.schema.arrow
    if len(names) == 1 and not definition.hashes_secondary_key_only:
        empty = column_at(pa.RecordBatch.from_pylist([], schema=schema), names[0])
        if secondary_texts(empty) is not None:
            return names[0]
    raise UnsupportedTableError(
        f"The secondary index {definition.name} cannot be kept right: it is on "
        f"{', '.join(names) or 'no column'}.",
        hint="Write with metadata_table='drop', or write the table with Hudi.",
        context={"table": snapshot.storage.uri, "index": definition.name},
    )


def record_locations_of(rows: Iterable[KeyedRows], zone: tzinfo) -> pa.Table:
    """Where the keys of merged slices are, all of them, since their slices began."""
    tables = [RECORD_LOCATIONS.empty_table()]
    for some in rows:
        group = some.slice_.group
        tables.append(_located(some.keys, group, time_ms(some.slice_.base_instant, zone=zone)))
    return _once(pa.concat_tables(tables))


def _once(located: pa.Table) -> pa.Table:
    """One place for each key, the last: a table that has keys twice cannot have them all here."""
    codes = np.asarray(located["key"].combine_chunks().dictionary_encode().indices)
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    last[codes] = np.arange(len(codes))
    return located.take(pa.array(last)).combine_chunks()


def _change(records: MetadataRecords, gone: list[pa.Array]) -> IndexChange:
    left = pa.concat_arrays([pa.array([], pa.string()), *gone]).unique().cast(pa.binary())
    return IndexChange(records, left.filter(_absent(left, records.keys)))


def _keys(rows: pa.RecordBatch) -> pa.Array:
    return rows.column(RECORD_KEY_COLUMN).cast(pa.string())


def _top(name: str) -> str:
    return name.split(".")[0]


def _written(content: CommitMetadata) -> dict[FileGroupId, list[WriteStat]]:
    found: dict[FileGroupId, list[WriteStat]] = {}
    for stat in content.write_stats:
        group = FileGroupId(stat.partition_path or "", stat.file_id or "")
        found.setdefault(group, []).append(stat)
    return found


def _replaced(content: CommitMetadata) -> list[FileGroupId]:
    told = content.partition_to_replace_file_ids or {}
    return [FileGroupId(partition, id_) for partition, ids in told.items() for id_ in ids]


def _absent(some: pa.Array, others: pa.Array) -> pa.Array:
    return pc.invert(pc.is_in(some, value_set=others))


def _located(keys: pa.Array, group: FileGroupId, placed_ms: int | None) -> pa.Table:
    places = (group.partition, group.file_id, placed_ms)
    kinds = RECORD_LOCATIONS.types[1:]
    columns = [
        pa.repeat(pa.scalar(v, kind), len(keys)) for v, kind in zip(places, kinds, strict=True)
    ]
    return pa.table([keys, *columns], schema=RECORD_LOCATIONS)


# ---- the table before and after ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Look:
    """The touched partitions before and after the write."""

    storage: Storage
    before: FileSystemView
    after: FileSystemView
    old: SliceReader
    new: SliceReader
    entries: Entries
    rows_delete: bool
    """Whether rows may delete by what they say."""

    @classmethod
    def at(
        cls,
        snapshot: Snapshot,
        instant: str,
        content: CommitMetadata,
        columns: Iterable[str],
        entries: Entries,
        registry: MergerRegistry,
    ) -> _Look:
        storage, merge = snapshot.storage, snapshot.merge
        partitions = {g.partition for g in (*_written(content), *_replaced(content))}
        listing = _valid(storage, instant, content, partitions)
        later = replace(snapshot, timeline=_completed(snapshot, instant))
        options, names = ReadOptions(), tuple(dict.fromkeys(columns))
        old, new = (SliceReader(s, names, None, options, registry) for s in (snapshot, later))
        marked = DELETED_COLUMN in snapshot.schema.arrow.names or merge.delete_field is not None
        rows_delete = marked or merge.mode not in _PLAIN
        views = snapshot.view(listing), later.view(listing)
        return cls(storage, *views, old, new, entries, rows_delete)

    def moves_keys(self, group: FileGroupId, stats: Iterable[WriteStat]) -> bool:
        """Whether keys may have come into a file group, or have left it."""
        before = self.before.merged_slice(group)
        if before is None or any(s.num_inserts != 0 or s.num_deletes != 0 for s in stats):
            return True
        names = (parse_data_file((s.path or "").rpartition("/")[2]) for s in stats)
        if not any(isinstance(name, LogFileName) for name in names):
            return False
        return self.rows_delete or any(self._deletes(log.path) for log in before.logs)

    def _deletes(self, path: str) -> bool:
        blocks = read_blocks(self.storage.read(path), path=path)
        return any(block.type is BlockType.DELETE for block in blocks)

    def moved(self, group: FileGroupId) -> tuple[pa.Array, pa.Array]:
        """What came into a file group, and what left it."""
        old = self._read(self.old, self.before.merged_slice(group))
        new = self._read(self.new, self.after.merged_slice(group))
        return new.filter(_absent(new, old)), old.filter(_absent(old, new))

    def replaced(self, content: CommitMetadata) -> list[pa.Array]:
        """All that file groups had which the write replaces."""
        slices = map(self.before.merged_slice, _replaced(content))
        return [self._read(self.old, slice_) for slice_ in slices]

    def _read(self, reader: SliceReader, slice_: FileSlice | None) -> pa.Array:
        batches = () if slice_ is None else reader.read(ScanTask(slice_))
        return pa.concat_arrays([pa.array([], pa.string()), *map(self.entries, batches)])


def _valid(
    storage: Storage, instant: str, content: CommitMetadata, partitions: Iterable[str]
) -> Mapping[str, list[ListedFile]]:
    """The files of partitions, without those of failed task attempts of the write."""
    markers = read_markers(storage, instant) or ()
    failed = {m.data_path for m in markers} - content.data_paths
    return {
        partition: [
            file
            for file in list_files(storage, partition)
            if (f"{partition}/{file.name}" if partition else file.name) not in failed
        ]
        for partition in sorted(partitions)
    }


def _completed(snapshot: Snapshot, instant: str) -> Timeline:
    """The timeline on which the write is completed; which groups it replaces is not asked there."""
    properties = snapshot.properties
    action = "deltacommit" if properties.is_merge_on_read else "commit"
    name = format_instant_name(
        instant,
        action,
        State.COMPLETED,
        layout=properties.version.layout_version,
        completion_time=_LAST if properties.version.completion_time_in_name else None,
    )
    mine = Instant(instant, action, State.COMPLETED, _LAST, name)
    return Timeline.of([*snapshot.timeline.instants, mine])
