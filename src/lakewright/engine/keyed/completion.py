"""Completing partial rows from what is stored.

Tables whose rule of merging knows only whole rows (payload classes, table version 6, users' own
mergers) get whole rows: the columns that a write does not bring along are those of the stored row.
Keys that are not stored have nulls there. The file groups that were read are changed by the same
write, so a change of them by others is a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakewright.engine.keyed.incoming import KEYED
from lakewright.engine.options import ReadOptions
from lakewright.engine.scan_plan import ScanTask
from lakewright.engine.slice_reader import SliceReader
from lakewright.engine.snapshot import Snapshot
from lakewright.engine.write_context import RECORD_KEY
from lakewright.format.evolution import conversion
from lakewright.format.file_slices import FileSlice
from lakewright.format.key_spec import KeySpec
from lakewright.format.keys import record_keys
from lakewright.merge.key_index import KeyIndex
from lakewright.merge.registry import MergerRegistry

__all__ = ["Completion"]


@dataclass(frozen=True, slots=True)
class Completion:
    """Fills in the columns that the rows of a write lack."""

    snapshot: Snapshot
    registry: MergerRegistry
    columns: frozenset[str]
    """What the rows bring along."""

    def complete(self, rows: pa.RecordBatch, slice_: FileSlice) -> pa.RecordBatch:
        """Rows of one file group, with the other columns of the rows that it has."""
        index = KeyIndex(rows.column(RECORD_KEY))
        table = self.snapshot.schema.arrow
        kept = [f for f in rows.schema if f.name not in self.columns and f.name not in KEYED]
        lacking = [f for f in kept if f.name in table.names]
        spec = KeySpec.from_properties(self.snapshot.properties)
        stored_keys = self.snapshot.properties.populate_meta_fields
        tops = [name.partition(".")[0] for name in spec.record_key_fields]
        names = tuple(
            dict.fromkeys([*([RECORD_KEY] if stored_keys else tops), *(f.name for f in lacking)])
        )
        reader = SliceReader(self.snapshot, names, None, ReadOptions(), self.registry)
        place = np.full(rows.num_rows, -1, dtype=np.int64)
        pieces: list[pa.RecordBatch] = []
        found = 0
        for batch in reader.read(ScanTask(slice_)):
            keys = batch.column(RECORD_KEY) if stored_keys else record_keys(batch, spec)
            codes = index.locate(keys)
            at = np.flatnonzero(codes >= 0)
            if len(at):
                place[codes[at]] = np.arange(found, found + len(at))
                pieces.append(batch.take(pa.array(at)))
                found += len(at)
        if not pieces:
            return rows
        stored = pa.concat_batches(pieces)
        target = pa.schema([f.with_nullable(True) for f in lacking])
        stored = conversion(stored.schema, target, path="").apply(stored, {})
        chosen = stored.take(pa.array(place, mask=place < 0))
        for field in lacking:
            number = rows.schema.get_field_index(field.name)
            rows = rows.set_column(number, rows.schema.field(number), chosen.column(field.name))
        return rows
