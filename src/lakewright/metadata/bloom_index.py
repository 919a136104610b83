"""The `bloom_filters` index: the bloom filter of each base file, without opening the file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.bloom import BloomFilter
from lakewright.metadata.keys import (
    file_digest,
    file_group_index,
    name_hashes,
    partition_identifier,
)
from lakewright.metadata.record_schema import BLOOM_FILTER
from lakewright.metadata.records import FileGroupReader, Keys, Part, decoded, living

__all__ = ["bloom_filters"]


def bloom_filters(
    readers: Sequence[FileGroupReader], partition: str, names: Sequence[str]
) -> dict[str, BloomFilter]:
    """The filters of base files of one partition, by file name; files without one are absent."""
    place = name_hashes([partition_identifier(partition)])[0]
    keys = pa.array([place + file_digest(name) for name in names], pa.binary())
    groups = file_group_index(keys.cast(pa.string()), len(readers))
    parts: list[Part] = []
    for number in np.unique(groups).tolist():
        mine = keys.filter(pa.array(groups == number))
        parts += living(readers[number].read(Keys(mine)), newest_only=True)
    out: dict[str, BloomFilter] = {}
    for run in decoded(parts, (BLOOM_FILTER,)):
        told = run.rows.column(BLOOM_FILTER)
        fields = dict(zip([f.name for f in told.type], told.flatten(), strict=True))
        at = np.asarray(pc.index_in(run.keys, value_set=keys)).tolist()
        # One filter per asked file, each of some hundred KiB.
        for index, kind, text, deleted in zip(
            at,
            fields["type"].to_pylist(),
            fields["bloomFilter"].to_pylist(),
            fields["isDeleted"].to_pylist(),
            strict=True,
        ):
            if not deleted:
                out[names[index]] = BloomFilter.decode(text, kind, path=names[index])
    return out
