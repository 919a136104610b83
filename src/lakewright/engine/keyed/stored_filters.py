"""Which base files may have the keys of a write, as the bloom filters in the metadata table say.

A file whose filter excludes all keys of its partition is not even opened. A file without a filter
there may have any key; so may all if the index is not there or cannot be read whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakewright.engine.keyed.incoming import IncomingRows, codes_by_partition
from lakewright.engine.listing import UNTRUSTED
from lakewright.engine.snapshot import Snapshot
from lakewright.format.file_slices import BaseFile
from lakewright.merge.columns import Int64s
from lakewright.metadata.file_groups import BLOOM_FILTERS
from lakewright.metadata.table import MetadataTable

__all__ = ["files_to_ask"]


def files_to_ask(
    snapshot: Snapshot,
    incoming: IncomingRows,
    files: Sequence[BaseFile],
    *,
    within_partition: bool,
) -> Int64s:
    """The numbers of the files that may have keys of the write."""
    everywhere = np.arange(len(files))
    try:
        metadata = MetadataTable.open(snapshot.storage, snapshot.properties, snapshot.timeline)
        if metadata is None or BLOOM_FILTERS not in metadata.indexes:
            return everywhere
        return _excluded(metadata, incoming, files, within_partition=within_partition)
    except UNTRUSTED as error:
        snapshot.opened.warnings.left_aside("bloom filters of the metadata table", error)
        return everywhere


def _excluded(
    metadata: MetadataTable,
    incoming: IncomingRows,
    files: Sequence[BaseFile],
    *,
    within_partition: bool,
) -> Int64s:
    numbers: dict[str, list[int]] = {}
    for number, base in enumerate(files):
        numbers.setdefault(base.partition, []).append(number)
    codes = codes_by_partition(incoming) if within_partition else {}
    asked: list[int] = []
    for partition, here in numbers.items():
        keys = incoming.keys
        if within_partition:
            keys = keys.take(pa.array(codes.get(partition, np.zeros(0, np.int64))))
        if not len(keys):
            continue
        known = metadata.bloom_filters(partition, [files[number].name for number in here])
        for number in here:
            stored = known.get(files[number].name)
            if stored is None or stored.might_contain(keys).any():
                asked.append(number)
    return np.array(sorted(asked), np.int64)
