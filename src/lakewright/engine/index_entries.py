"""What an index of records has about rows: places of keys, or values with keys.

Plain values that travel to tasks. Entries of rows are texts; those that came are told with the file
group that has them, and what left is told as the entries alone. Put together for one file group of
the index, or for all, they are its change: a key that came anywhere has not left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.format.file_slices import FileGroupId
from lakewright.format.key_text import column_at
from lakewright.format.version import TableVersion
from lakewright.merge.config import RECORD_KEY_COLUMN
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.index_changes import IndexChange
from lakewright.metadata.keys import secondary_entries
from lakewright.metadata.payloads import record_index_records, secondary_entry_records
from lakewright.metadata.record_index import RECORD_LOCATIONS
from lakewright.metadata.secondary_text import secondary_texts

__all__ = ["Entries", "RecordEntries", "SecondaryEntries", "once", "valued_entries"]

_ENTRY: Final = pa.schema([("key", pa.string())])


class Entries(Protocol):
    """The entries of one index."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Top-level columns that are read."""
        ...

    @property
    def keys_only(self) -> bool:
        """Whether only keys that come or go change the index."""
        ...

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """The entries of rows, as texts."""
        ...

    def told(self, entries: pa.Array, group: FileGroupId) -> pa.Table:
        """Entries that came into a file group; the first column has them."""
        ...

    def change(self, came: Sequence[pa.Table], gone: Sequence[pa.Array]) -> IndexChange:
        """The change, from what came in the order of file groups, and what left."""
        ...


@dataclass(frozen=True, slots=True)
class RecordEntries:
    """The record index: where each key is, since when."""

    placed_ms: int | None
    version: TableVersion

    @property
    def columns(self) -> tuple[str, ...]:
        """The key."""
        return (RECORD_KEY_COLUMN,)

    @property
    def keys_only(self) -> bool:
        """An update in place changes nothing."""
        return True

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """The keys."""
        return rows.column(RECORD_KEY_COLUMN).cast(pa.string())

    def told(self, entries: pa.Array, group: FileGroupId) -> pa.Table:
        """The keys with their place."""
        places = (group.partition, group.file_id, self.placed_ms)
        kinds = RECORD_LOCATIONS.types[1:]
        columns = [
            pa.repeat(pa.scalar(v, kind), len(entries))
            for v, kind in zip(places, kinds, strict=True)
        ]
        return pa.table([entries, *columns], schema=RECORD_LOCATIONS)

    def change(self, came: Sequence[pa.Table], gone: Sequence[pa.Array]) -> IndexChange:
        """A record per key."""
        located = once(pa.concat_tables([RECORD_LOCATIONS.empty_table(), *came]))
        return _change(record_index_records(located, version=self.version), gone)


@dataclass(frozen=True, slots=True)
class SecondaryEntries:
    """A secondary index: which keys have which value of a column."""

    column: str
    """Its (dotted) name."""
    stored: str
    """The top-level column that has it."""
    version: TableVersion

    @property
    def columns(self) -> tuple[str, ...]:
        """The key and the column."""
        return (RECORD_KEY_COLUMN, self.stored)

    @property
    def keys_only(self) -> bool:
        """An update may change a value."""
        return False

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        """Values with keys."""
        texts = secondary_texts(column_at(rows, self.column))
        assert texts is not None
        keys = rows.column(RECORD_KEY_COLUMN).cast(pa.string())
        return valued_entries(texts, keys).cast(pa.string())

    def told(self, entries: pa.Array, group: FileGroupId) -> pa.Table:  # noqa: ARG002
        """The entries, wherever they are."""
        return pa.table([entries], schema=_ENTRY)

    def change(self, came: Sequence[pa.Table], gone: Sequence[pa.Array]) -> IndexChange:
        """A record per entry."""
        entries = pa.concat_tables([_ENTRY.empty_table(), *came])["key"].combine_chunks().unique()
        records = secondary_entry_records(entries.cast(pa.binary()), version=self.version)
        return _change(records, gone)


def valued_entries(texts: pa.StringArray, keys: pa.StringArray) -> pa.BinaryArray:
    """The entries of a secondary index that has none for records without a value."""
    valued = texts.is_valid()
    return secondary_entries(texts.filter(valued), keys.filter(valued))


def once(located: pa.Table) -> pa.Table:
    """One place for each key, the last: a table that has keys twice cannot have them all here."""
    codes = np.asarray(located["key"].combine_chunks().dictionary_encode().indices)
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    last[codes] = np.arange(len(codes))
    return located.take(pa.array(last)).combine_chunks()


def _change(records: MetadataRecords, gone: Sequence[pa.Array]) -> IndexChange:
    left = pa.concat_arrays([pa.array([], pa.string()), *gone]).unique().cast(pa.binary())
    return IndexChange(records, left.filter(pc.invert(pc.is_in(left, value_set=records.keys))))
