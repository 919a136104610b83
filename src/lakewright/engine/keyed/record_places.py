"""Which file group each key is in, as the record index of the metadata table says.

The index decides only where to look: the rows are looked for in the base file of that group and,
for keys that it lacks, in its logs. Nothing is known if the table has no such index, or if it
cannot be read whole; then, and if a key is not where it should be, all files are asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.engine.keyed.lookup import Int32s
from lakewright.engine.listing import UNTRUSTED
from lakewright.engine.snapshot import Snapshot
from lakewright.format.file_slices import FileGroupId
from lakewright.merge.columns import Int64s
from lakewright.metadata.file_groups import RECORD_INDEX
from lakewright.metadata.table import MetadataTable
from lakewright.runtime.spawn import Spawner

__all__ = ["codes_by_place", "record_places"]

KEYS_FOR_THREADS = 10_000
"""Fewer are looked up sooner than threads begin."""


def record_places(
    snapshot: Snapshot,
    keys: pa.Array,
    partitions: pa.Array | None,
    groups: Sequence[FileGroupId],
    spawner: Spawner,
) -> Int32s | None:
    """The number of each key's file group, -1 for keys that are nowhere; None if it is not known.

    With `partitions` each key is asked for within its own: that takes an index per partition, as
    the place of a key in all of them takes one of all keys. A key in a file group that is not there
    any more is a sign that the index was not maintained, and so is a partition with rows that it
    does not know.
    """
    try:
        metadata = MetadataTable.open(snapshot.storage, snapshot.properties, snapshot.timeline)
        if metadata is None or RECORD_INDEX not in metadata.indexes:
            return None
        layout = metadata.layout(RECORD_INDEX)
        if layout.is_parted != (partitions is not None):
            return None
        if layout.is_parted and not {g.partition for g in groups} <= {*layout.partitions}:
            return None
        helper = spawner if len(keys) >= KEYS_FOR_THREADS else None
        within = None if partitions is None else partitions.cast(pa.string())
        found = metadata.record_index(keys.cast(pa.string()), within, spawner=helper)
    except UNTRUSTED as error:
        snapshot.opened.warnings.left_aside("record index", error)
        return None
    known = pa.array([_text(group.partition, group.file_id) for group in groups], pa.string())
    told = pc.binary_join_element_wise(found["partition"], found["file_id"], "\0")
    numbers = pc.index_in(told, value_set=known)
    if numbers.null_count > told.null_count:
        return None
    places: Int32s = pc.fill_null(numbers, -1).to_numpy().astype(np.int32)
    return places


def codes_by_place(places: Int32s) -> dict[int, Int64s]:
    """The numbers of the keys of each file group that has some."""
    order = np.argsort(places, kind="stable")
    order = order[places[order] >= 0]
    numbers, starts = np.unique(places[order], return_index=True)
    ends = [*starts[1:], len(order)]
    return {int(n): order[start:end] for n, start, end in zip(numbers, starts, ends, strict=False)}


def _text(partition: str, file_id: str) -> str:
    return f"{partition}\0{file_id}"
