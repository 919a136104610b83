"""Record keys of a snapshot, slice by slice, with the values of one column beside them.

What the indexes of records are about: which keys are in which file group, after logs are merged.
Rows stream past in batches; `SpreadKeys` puts what an index would have about them aside, by file
group of the index, in memory up to a budget and in scratch files beyond it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakewright.engine.options import ReadOptions
from lakewright.engine.scan_plan import ScanTask
from lakewright.engine.slice_reader import SliceReader
from lakewright.engine.snapshot import Snapshot
from lakewright.format.file_slices import FileSlice
from lakewright.format.key_text import column_at
from lakewright.format.keys import KeySpec, record_keys
from lakewright.merge.config import RECORD_KEY_COLUMN
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.events import EventHook, ignore_events
from lakewright.storage.scratch import Scratch

__all__ = ["KeyedRows", "SpreadKeys", "slice_rows"]

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Some rows of one slice: their keys and, if it was asked for, their values of a column."""

    slice_: FileSlice
    keys: pa.StringArray
    values: pa.Array | None


def slice_rows(
    snapshot: Snapshot,
    options: ReadOptions,
    registry: MergerRegistry,
    *,
    column: str | None = None,
    slices: Iterable[FileSlice] | None = None,
    on_event: EventHook = ignore_events,
) -> Iterator[KeyedRows]:
    """All rows of the snapshot, or those of some slices; `column` is a (dotted) name."""
    populated = snapshot.properties.populate_meta_fields
    spec = KeySpec.from_properties(snapshot.properties)
    fields = [RECORD_KEY_COLUMN] if populated else list(spec.record_key_fields)
    if column is not None:
        fields.append(column)
    schema = snapshot.schema.arrow
    names = dict.fromkeys(f if f in schema.names else f.split(".")[0] for f in fields)
    reader = SliceReader(snapshot, tuple(names), None, options, registry, on_event=on_event)
    for slice_ in snapshot.live_slices() if slices is None else slices:
        for batch in reader.read(ScanTask(slice_)):
            keys = batch.column(RECORD_KEY_COLUMN) if populated else record_keys(batch, spec)
            values = None if column is None else column_at(batch, column)
            yield KeyedRows(slice_, keys.cast(pa.string()), values)


@dataclass(slots=True)
class SpreadKeys:
    """Keys put aside by the file group of an index that they belong to."""

    scratch: Scratch
    groups: int
    _held: list[tuple[FileSlice, pa.RecordBatch, Int64s]] = field(default_factory=list)

    def add(self, slice_: FileSlice, keys: pa.Array, numbers: Int64s) -> None:
        """Put keys of a slice aside; `numbers` tells the file group of each."""
        order = np.argsort(numbers, kind="stable")
        batch = pa.record_batch({"key": keys.take(pa.array(order, pa.int64()))})
        ends = np.cumsum(np.bincount(numbers, minlength=self.groups))
        self._held.append((slice_, self.scratch.hold(batch), np.append(0, ends)))

    def of(self, number: int) -> Iterator[tuple[FileSlice, pa.Array]]:
        """The keys of one file group, and the slices that they came from."""
        for slice_, batch, ends in self._held:
            first, last = int(ends[number]), int(ends[number + 1])
            if last > first:
                yield slice_, batch.column("key").slice(first, last - first)
