"""Skipping by statistics of the metadata table: partitions first, then file slices.

What cannot be decided is kept. Statistics of a file belong to its name and hold for every snapshot.
Statistics of a partition belong to its newest state, and Hudi merges them by the time at which a
write was requested. If one write is completed while another is under way, what is left may be what
the earlier one saw; a delta commit beside a pending compaction even leaves the files below that
out. And nothing tells which write a record is of. So they are used only where all writes are known,
and were done one after the other; and not

- for a snapshot of the past;
- for a column that some of the partition's files may not have, because rows of these read as null
  or as a default: it must have as many values there as the record key has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.engine.listing import UNTRUSTED
from lakewright.engine.snapshot import Snapshot
from lakewright.expr import ColumnRange, Expr, RangeColumns, can_match, columns, keep_mask
from lakewright.format.file_slices import FileSlice
from lakewright.format.history import history_files
from lakewright.format.timeline import Timeline
from lakewright.merge.config import RECORD_KEY_COLUMN
from lakewright.merge.names import MergeMode
from lakewright.metadata.file_groups import PARTITION_STATS
from lakewright.metadata.table import MetadataTable

__all__ = ["partitions_by_statistics", "slices_by_statistics"]

Mask = npt.NDArray[np.bool_]


def partitions_by_statistics(
    partitions: Sequence[str], snapshot: Snapshot, where: Expr | None
) -> Mask:
    """True for partitions of which some row may match, by the statistics of whole partitions."""
    everything = np.ones(len(partitions), np.bool_)
    metadata = snapshot.opened.metadata
    if where is None or metadata is None or not _tells_partitions(metadata, snapshot):
        return everything
    try:
        names = _indexed(metadata, where)
        if not names:
            return everything
        asked = list(dict.fromkeys([*names, RECORD_KEY_COLUMN]))
        told, ranges = metadata.partition_ranges(asked, partitions, snapshot.schema.arrow)
    except UNTRUSTED as error:
        snapshot.opened.warnings.left_aside("statistics of partitions", error)
        return everything
    number = {partition: i for i, partition in enumerate(partitions)}
    verdict = keep_mask(where, _whole(ranges, names), len(told))
    everything[[number[p] for p in told]] = verdict
    return everything


def _tells_partitions(metadata: MetadataTable, snapshot: Snapshot) -> bool:
    return (
        PARTITION_STATS in metadata.indexes
        and RECORD_KEY_COLUMN in metadata.statistics_columns()
        and snapshot.bound is None
        and _was_sequential(snapshot.timeline)
        and not history_files(snapshot.storage, snapshot.properties)
    )


def _was_sequential(timeline: Timeline) -> bool:
    """Whether each write was requested after the one before had completed, and none undone."""
    if any(
        len(plans) for plans in (timeline.pending_compactions(), timeline.pending_log_compactions())
    ):
        return False
    if len(timeline.filter_actions("rollback", "restore")):
        return False
    ended = ""
    for instant in timeline.commits().completed():
        if instant.requested_time < ended:
            return False
        ended = instant.completion_time or instant.requested_time
    return True


def _whole(ranges: Mapping[str, RangeColumns], names: Sequence[str]) -> dict[str, RangeColumns]:
    """The ranges of columns, unknown for partitions where not every row has the column."""
    rows = ranges[RECORD_KEY_COLUMN].value_count
    out = {}
    for name in names:
        known = ranges[name]
        whole = pc.fill_null(pc.equal(known.value_count, rows), False)
        sides = (known.min, known.max, known.null_count, known.value_count)
        out[name] = RangeColumns(*(pc.if_else(whole, side, None) for side in sides))
    return out


def slices_by_statistics(
    slices: Sequence[FileSlice],
    snapshot: Snapshot,
    where: Expr | None,
    partitions: Sequence[str],
) -> Mask:
    """True for slices of which some row may match, by the statistics of their files."""
    everything = np.ones(len(slices), np.bool_)
    metadata = snapshot.opened.metadata
    if where is None or metadata is None or not slices:
        return everything
    try:
        names = _indexed(metadata, where)
        if not names:
            return everything
        files, ranges = metadata.pruning_ranges(names, partitions, snapshot.schema.arrow)
    except UNTRUSTED as error:
        snapshot.opened.warnings.left_aside("statistics", error)
        return everything
    number = {file: i for i, file in enumerate(files)}
    verdict = keep_mask(where, ranges, len(files))
    for i, slice_ in enumerate(slices):
        members = [f.name for f in (slice_.base, *slice_.logs) if f is not None]
        rows = [number.get((slice_.group.partition, name)) for name in members]
        if None in rows:
            continue  # a file without statistics may hold anything
        found = [row for row in rows if row is not None]
        if not slice_.logs:
            everything[i] = verdict[found[0]]
        elif snapshot.merge.mode is not MergeMode.CUSTOM:
            everything[i] = can_match(where, partial(_joined_range, ranges, found))
    return everything


def _indexed(metadata: MetadataTable, where: Expr) -> list[str]:
    return [n for n in sorted(columns(where)) if n in metadata.statistics_columns()]


def _joined_range(
    ranges: Mapping[str, RangeColumns], rows: Sequence[int], column: str
) -> ColumnRange | None:
    """One range over all files of a slice: a merged row may mix values of several of them."""
    known = ranges.get(column)
    if known is None:
        return None
    low, high, nulls, values = [], [], 0, 0
    for row in rows:
        null_count, value_count = _count(known.null_count, row), _count(known.value_count, row)
        if null_count is None or value_count is None:
            return None
        nulls, values = nulls + null_count, values + value_count
        if value_count > null_count:
            if known.min is None or known.max is None:
                return None
            low.append(known.min[row].as_py())
            high.append(known.max[row].as_py())
    if None in low or None in high:
        return None
    if not low:
        return ColumnRange(None, None, nulls, values)
    return ColumnRange(min(low), max(high), nulls, values)


def _count(counts: pa.Array | None, row: int) -> int | None:
    return None if counts is None else counts[row].as_py()
