"""Indexes of records, held against the rows: where each key is, which keys have which value.

All rows of the merged slices are read once, in the columns that matter, and put aside by the file
group of the index that they belong to; then one file group after the other is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakewright.engine.index_entries import valued_entries
from lakewright.engine.options import ReadOptions
from lakewright.engine.slice_keys import SpreadKeys, slice_rows
from lakewright.engine.snapshot import Snapshot
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.contents import (
    misplaced,
    record_entries,
    secondary_entry_keys,
    value_parts,
)
from lakewright.metadata.file_groups import RECORD_INDEX
from lakewright.metadata.keys import (
    NULL_PREFIX,
    file_group_index,
    secondary_entries,
    secondary_prefixes,
)
from lakewright.metadata.record_index import RECORD_LOCATIONS
from lakewright.metadata.secondary_text import secondary_texts
from lakewright.metadata.table import MetadataTable
from lakewright.metadata.verification import (
    Compared,
    Finding,
    compared,
    row_keys,
)
from lakewright.storage.scratch import Scratch

__all__ = ["RowVerification"]

_PLACE: Final = ("key", "partition", "file_id")
_NO_ENTRIES: Final = RECORD_LOCATIONS.empty_table()


@dataclass(frozen=True, slots=True)
class RowVerification:
    """Holds what a metadata table says about records against a snapshot's rows."""

    snapshot: Snapshot
    metadata: MetadataTable
    options: ReadOptions
    registry: MergerRegistry

    def record_index(self) -> Iterator[Finding]:
        """The place of every key. A key that the table has twice is at either place."""
        stored = self.metadata.layout(RECORD_INDEX)
        inhabited = {slice_.group.partition for slice_ in self.snapshot.live_slices()}
        layout = stored.with_partitions(inhabited)
        there = dict(zip(stored.file_ids, self.metadata.groups(RECORD_INDEX), strict=True))
        with Scratch(self.options.merge_memory, folder=self.options.scratch_folder) as scratch:
            spread = SpreadKeys(scratch, len(layout))
            for rows in slice_rows(self.snapshot, self.options, self.registry):
                scope = layout.scope(rows.slice_.group.partition)
                spread.add(rows.slice_, rows.keys, layout.numbers_of(rows.keys, scope))
            for number, name in enumerate(layout.file_ids):
                # Keys of a partition that has no file groups are missing, all of them.
                found = record_entries(there[name]) if name in there else _NO_ENTRIES
                scope = layout.partitions[number]
                belongs = layout.numbers_of(found["key"].combine_chunks(), scope)
                yield from misplaced(RECORD_INDEX, found["key"], number, belongs)
                found = found.select(_PLACE)
                expected = _nearest(_places(spread, number), found)
                yield from compared(RECORD_INDEX, expected, found, key=("key",))
                yield Compared(RECORD_INDEX, len(found), 0)

    def secondary_index(self, index: str) -> Iterator[Finding]:
        """The entries of a secondary index: one per row, its value and its key.

        Where rows without a value need none, nothing is said about such entries: nobody asks for
        them, and whoever makes none leaves those of others behind.
        """
        definition = self.metadata.definitions.get(index)
        if definition is None or len(definition.source_fields) != 1:
            yield Compared(index, 0, 0, note="its definition is missing")
            return
        by_value = definition.hashes_secondary_key_only
        groups = self.metadata.groups(index)
        count, column = len(groups), definition.source_fields[0]
        with Scratch(self.options.merge_memory, folder=self.options.scratch_folder) as scratch:
            spread = SpreadKeys(scratch, count)
            for rows in slice_rows(self.snapshot, self.options, self.registry, column=column):
                assert rows.values is not None
                texts = secondary_texts(rows.values)
                if texts is None:
                    kind = rows.values.type
                    yield Compared(index, 0, 0, note=f"values of type {kind} are not compared")
                    return
                if definition.has_nulls:
                    entries = secondary_entries(texts, rows.keys).cast(pa.string())
                else:
                    entries = valued_entries(texts, rows.keys).cast(pa.string())
                hashed = secondary_prefixes(texts) if by_value else entries
                spread.add(rows.slice_, entries, file_group_index(hashed, count))
            for number, reader in enumerate(groups):
                keys = secondary_entry_keys(reader).cast(pa.string())
                hashed = value_parts(keys) if by_value else keys
                yield from misplaced(index, keys, number, file_group_index(hashed, count))
                if not definition.has_nulls:
                    keys = keys.filter(pc.invert(pc.starts_with(keys, NULL_PREFIX)))
                found = pa.table({"key": keys})
                expected = pa.table({"key": _entries(spread, number)})
                yield from compared(index, expected, found, key=("key",))
                yield Compared(index, len(found), 0)


def _places(spread: SpreadKeys, number: int) -> pa.Table:
    tables = [pa.table({name: pa.array([], pa.string()) for name in _PLACE})]
    for slice_, keys in spread.of(number):
        group = slice_.group
        places = (
            pa.repeat(pa.scalar(t, pa.string()), len(keys))
            for t in (group.partition, group.file_id)
        )
        tables.append(pa.table([keys, *places], names=_PLACE))
    return pa.concat_tables(tables).combine_chunks()


def _entries(spread: SpreadKeys, number: int) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *(keys for _, keys in spread.of(number))])


def _nearest(expected: pa.Table, found: pa.Table) -> pa.Table:
    """Without those places of a key that was found at another of its places."""
    right = pc.is_in(row_keys(expected, _PLACE), value_set=row_keys(found, _PLACE))
    settled = expected["key"].filter(right).combine_chunks()
    return expected.filter(pc.or_(right, pc.invert(pc.is_in(expected["key"], value_set=settled))))
