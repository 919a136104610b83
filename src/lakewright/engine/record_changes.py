"""What a write means for the indexes of records: what came into a file group, and what left it.

Exact, whatever merges rows: what the merged slices of a file group have before the write and after
it is held against each other. For the record index that is keys, for a secondary index values with
keys. File groups that were replaced lose everything; what another group of the write has gained is
there all the same.

Where only keys matter, most file groups need not be looked at: an update in place moves nothing. A
base file tells by its stat. A log moves nothing if neither it nor an older one of its slice deletes
anything, and rows do not delete by what they say.

Which file groups are looked at is decided first; looking at one is a piece of work of its own, here
or in a task elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.engine.index_entries import Entries, RecordEntries, SecondaryEntries, once
from lakewright.engine.options import ReadOptions
from lakewright.engine.scan_plan import ScanTask
from lakewright.engine.slice_keys import KeyedRows
from lakewright.engine.slice_reader import SliceReader
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import UnsupportedTableError
from lakewright.format.buckets import bucket_of_file
from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.file_slices import FileGroupId, FileSlice, FileSystemView
from lakewright.format.instant import Instant, State, format_instant_name
from lakewright.format.instant_times import time_ms
from lakewright.format.key_text import column_at
from lakewright.format.log_block import BlockType, read_blocks
from lakewright.format.partitions import ListedFile, list_files
from lakewright.format.records import CommitMetadata, WriteStat
from lakewright.format.timeline import Timeline
from lakewright.merge.deletes import DELETED_COLUMN
from lakewright.merge.key_index import KeyIndex
from lakewright.merge.names import MergeMode
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.definitions import IndexDefinition
from lakewright.metadata.file_groups import IndexGroups
from lakewright.metadata.index_changes import IndexChange
from lakewright.metadata.secondary_text import secondary_texts
from lakewright.runtime.lanes import in_lanes
from lakewright.runtime.spawn import Spawner
from lakewright.storage.base import Storage
from lakewright.txn.markers import read_markers

__all__ = [
    "GroupChange",
    "GroupLook",
    "changed_groups",
    "entries_of_records",
    "entries_of_values",
    "record_locations_of",
    "secondary_column",
    "snapshot_after",
]

GROUPS_AT_ONCE: Final = 4
_LAST: Final = "99991231235959999"
"""A completion time behind all others."""
_PLAIN: Final = (MergeMode.COMMIT_TIME, MergeMode.EVENT_TIME)


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A file group that a write may have changed."""

    group: FileGroupId
    before: FileSlice | None
    after: FileSlice | None
    """None if the write replaces the group."""

    @property
    def bytes(self) -> int:
        """The size of its files: what looking at it reads, at most."""
        slices = [slice_ for slice_ in (self.before, self.after) if slice_ is not None]
        sizes = {log.path: log.size for slice_ in slices for log in slice_.logs}
        sizes |= {s.base.path: s.base.size for s in slices if s.base is not None}
        return sum(sizes.values())


@dataclass(frozen=True, slots=True)
class GroupLook:
    """Reads file groups before and after a write."""

    entries: Entries
    old: SliceReader
    new: SliceReader

    @classmethod
    def at(
        cls, before: Snapshot, after: Snapshot, entries: Entries, registry: MergerRegistry
    ) -> GroupLook:
        """A look at the table before the write and after it."""
        names = tuple(dict.fromkeys(entries.columns))
        old, new = (SliceReader(s, names, None, ReadOptions(), registry) for s in (before, after))
        return cls(entries, old, new)

    def moved(
        self, change: GroupChange, spawner: Spawner | None = None
    ) -> tuple[pa.Table, pa.Array]:
        """What came into a file group, and what left it; with a spawner it is read before and
        after the write at once."""
        sides = ((self.old, change.before), (self.new, change.after))
        if spawner is None:
            old, new = (self._read(*side) for side in sides)
        else:
            old, new = in_lanes(lambda s: self._read(*s), sides, spawner=spawner, lanes=2, few=1)
        if _only_came(old, new):
            return self.entries.told(new.slice(len(old)), change.group), old.slice(0, 0)
        places = KeyIndex(old).locate(new)
        came = new.filter(pa.array(places < 0))
        unseen = np.ones(len(old), dtype=np.bool_)
        unseen[places[places >= 0]] = False
        left = old.filter(pa.array(unseen))
        if len(left):  # of an entry that was there twice one place was seen
            left = left.filter(pc.invert(pc.is_in(left, value_set=new)))
        return self.entries.told(came, change.group), left

    def changes(
        self, changes: Sequence[GroupChange], layout: IndexGroups, spawner: Spawner
    ) -> dict[str | None, IndexChange]:
        """The change of the whole index, by the scope of its keys; several file groups are looked
        at beside each other."""
        look = partial(self.moved, spawner=spawner)
        moved = in_lanes(look, changes, spawner=spawner, lanes=GROUPS_AT_ONCE, few=1)
        scoped: dict[str | None, list[tuple[pa.Table, pa.Array]]] = {}
        for change, both in zip(changes, moved, strict=True):
            scoped.setdefault(layout.scope(change.group.partition), []).append(both)
        return {
            scope: self.entries.change([came for came, _ in some], [left for _, left in some])
            for scope, some in scoped.items()
        }

    def _read(self, reader: SliceReader, slice_: FileSlice | None) -> pa.Array:
        batches = () if slice_ is None else reader.read(ScanTask(slice_))
        return pa.concat_arrays([pa.array([], pa.string()), *map(self.entries.of, batches)])


def _only_came(old: pa.Array, new: pa.Array) -> bool:
    """Whether all entries stayed in their order, and others came behind them.

    As in most base files that are written anew; to ask so is ten times faster than to look for
    every entry.
    """
    if not old.equals(new.slice(0, len(old))):
        return False
    came = new.slice(len(old))
    known = pc.any(pc.is_in(old, value_set=came)).as_py()
    return not known and len(came.unique()) == len(came)


def entries_of_records(snapshot: Snapshot, instant: str) -> RecordEntries:
    """The entries of the record index that a write makes."""
    properties = snapshot.properties
    return RecordEntries(time_ms(instant, zone=properties.timeline_zone), properties.version)


def entries_of_values(snapshot: Snapshot, definition: IndexDefinition) -> SecondaryEntries:
    """The entries of a secondary index."""
    name = secondary_column(snapshot, definition)
    stored = name if name in snapshot.schema.arrow.names else name.split(".")[0]
    return SecondaryEntries(name, stored, snapshot.properties.version)


def changed_groups(
    snapshot: Snapshot, instant: str, content: CommitMetadata, *, keys_only: bool
) -> list[GroupChange]:
    """File groups whose entries may have changed; none by a compaction.

    `snapshot` is what the write is based on; its files are there, and its instant is pending. With
    `keys_only` those are left out in which no key came or went.
    """
    if content.compacted:
        return []
    storage = snapshot.storage
    written, replaced = _written(content), _replaced(content)
    partitions = {group.partition for group in (*written, *replaced)}
    listing = _valid(storage, instant, content, partitions)
    before, after = snapshot.view(listing), snapshot_after(snapshot, instant).view(listing)
    found = [GroupChange(group, before.merged_slice(group), None) for group in replaced]
    found += [
        GroupChange(group, before.merged_slice(group), after.merged_slice(group))
        for group, stats in written.items()
        if not keys_only or _moves_keys(snapshot, before, group, stats)
    ]
    return found


def snapshot_after(snapshot: Snapshot, instant: str) -> Snapshot:
    """The snapshot in which the write is completed; which groups it replaces is not asked there."""
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
    return replace(snapshot, timeline=Timeline.of([*snapshot.timeline.instants, mine]))


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


def record_locations_of(
    rows: Iterable[KeyedRows], snapshot: Snapshot, layout: IndexGroups
) -> dict[str | None, pa.Table]:
    """Where the keys of merged slices are, all of them, since their slices began; by scope."""
    zone: tzinfo = snapshot.properties.timeline_zone
    tables: dict[str | None, list[pa.Table]] = {}
    for some in rows:
        begun_ms = time_ms(some.slice_.base_instant, zone=zone)
        entries = RecordEntries(begun_ms, snapshot.properties.version)
        group = some.slice_.group
        tables.setdefault(layout.scope(group.partition), []).append(entries.told(some.keys, group))
    return {scope: once(pa.concat_tables(told)) for scope, told in tables.items()}


def _written(content: CommitMetadata) -> dict[FileGroupId, list[WriteStat]]:
    found: dict[FileGroupId, list[WriteStat]] = {}
    for stat in content.write_stats:
        group = FileGroupId(stat.partition_path or "", stat.file_id or "")
        found.setdefault(group, []).append(stat)
    return found


def _replaced(content: CommitMetadata) -> list[FileGroupId]:
    told = content.partition_to_replace_file_ids or {}
    return [FileGroupId(partition, id_) for partition, ids in told.items() for id_ in ids]


def _moves_keys(
    snapshot: Snapshot, view: FileSystemView, group: FileGroupId, stats: Iterable[WriteStat]
) -> bool:
    """Whether keys may have come into a file group, or have left it.

    Whoever writes the log of a bucket knows where its keys are by their hash, and not which are
    new.
    """
    before = view.merged_slice(group)
    if before is None or any(s.num_inserts != 0 or s.num_deletes != 0 for s in stats):
        return True
    names = (parse_data_file((s.path or "").rpartition("/")[2]) for s in stats)
    if not any(isinstance(name, LogFileName) for name in names):
        return False
    if bucket_of_file(group.file_id) is not None:
        return True
    merge = snapshot.merge
    marked = DELETED_COLUMN in snapshot.schema.arrow.names or merge.delete_field is not None
    rows_delete = marked or merge.mode not in _PLAIN
    return rows_delete or any(_deletes(snapshot.storage, log.path) for log in before.logs)


def _deletes(storage: Storage, path: str) -> bool:
    blocks = read_blocks(storage.read(path), path=path)
    return any(block.type is BlockType.DELETE for block in blocks)


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
