"""Rows that change their partition: a global index found them in another one than they are for.

The row leaves its old file group and is inserted where it belongs, in one commit. Before that it
must win against what is stored, by the table's own rule: a row that loses changes nothing. Where
the rule lets the newer row win in any case, nothing is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakewright.engine.keyed.base_merge import MergeRules
from lakewright.engine.keyed.incoming import IncomingRows
from lakewright.engine.keyed.lookup import Hits
from lakewright.engine.options import ReadOptions
from lakewright.engine.scan_plan import ScanTask
from lakewright.engine.slice_reader import SliceReader
from lakewright.engine.snapshot import Snapshot
from lakewright.engine.write_context import RECORD_KEY
from lakewright.format.evolution import conversion
from lakewright.format.file_slices import FileSlice
from lakewright.format.row_keys import RowKeys
from lakewright.merge.columns import Bools
from lakewright.merge.fold import LogVersions
from lakewright.merge.protocol import Phase
from lakewright.merge.reduction import LogOrder
from lakewright.merge.registry import MergerRegistry

__all__ = ["Moves", "moved_hits"]


def moved_hits(incoming: IncomingRows, hits: Hits, partition_of_file: Sequence[str]) -> Bools:
    """Which places are in another partition than their rows are for."""
    partitions, partition_of = incoming.partition_codes()
    number = {path: k for k, path in enumerate(partitions)}
    there = np.array([number.get(path, -1) for path in partition_of_file], dtype=np.int32)
    moved: Bools = there[hits.files] != partition_of[hits.codes]
    return moved


@dataclass(frozen=True, slots=True)
class Moves:
    """Decides about rows that would change their partition."""

    snapshot: Snapshot
    rules: MergeRules
    registry: MergerRegistry
    schema: pa.Schema
    """Record key, partition path and the table's columns."""

    def losers(self, incoming: IncomingRows, moved: Hits, slices: Mapping[int, FileSlice]) -> Bools:
        """Keys of the write whose stored version stays; `slices` are those to read, by file."""
        lost = np.zeros(len(incoming), dtype=np.bool_)
        if not len(moved.codes) or self.newer_wins():
            return lost
        for number in np.unique(moved.files):
            codes = np.unique(moved.codes[moved.files == number])
            lost[codes] |= self.lost_in(incoming.rows(codes), slices[int(number)])
        return lost

    def newer_wins(self) -> bool:
        """Whether the row of the write wins in any case."""
        promise = getattr(self.rules.merger, "log_order", None)
        context = self.rules.context(self.schema, Phase.BASE, key_column=RECORD_KEY)
        return callable(promise) and promise(context) is LogOrder.LATEST

    def lost_in(self, incoming: pa.RecordBatch, slice_: FileSlice) -> Bools:
        """Which rows of a write, one of each key, lose against what a slice has."""
        versions = LogVersions(
            self.rules.context(self.schema, Phase.LOG, key_column=RECORD_KEY), self.rules.merger
        )
        versions.add_rows(incoming)
        state = versions.finish()
        lost = np.zeros(incoming.num_rows, dtype=np.bool_)
        known = self.schema.names
        columns = tuple(name for name in self.snapshot.schema.arrow.names if name in known)
        reader = SliceReader(self.snapshot, columns, None, ReadOptions(), self.registry)
        formed = RowKeys(self.rules.keys, instant="")
        for stored in reader.read(ScanTask(slice_)):
            batch = stored if RECORD_KEY in stored.schema.names else formed.add_to(stored)
            found = state.locate(batch.column(RECORD_KEY), every=True)
            at = np.flatnonzero(found >= 0)
            if len(at):
                rows = batch.take(pa.array(at))
                rows = conversion(rows.schema, self.schema, path="").apply(rows, {})
                stays = state.loses_against(rows, found[at])
                lost[found[at][stays]] = True
        return lost
