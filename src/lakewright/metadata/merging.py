"""Records of a file group merged into one per key: what a new base file of the group holds.

Lists of files are folded, newer entries of the record, secondary and bloom indexes win, statistics
of one key are combined. What was deleted is gone, tombstones included: below a base file there is
nothing left that they could hide. All records of the group are held in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.avro.types import Record
from lakewright.errors import UnsupportedTableError
from lakewright.format.version import TableVersion
from lakewright.metadata import file_groups as indexes
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.files import folded_lists
from lakewright.metadata.keys import ALL_PARTITIONS
from lakewright.metadata.payloads import encoded_lists, list_maps
from lakewright.metadata.record_schema import (
    BLOOM_FILTER,
    COLUMN_STATS,
    RECORD_INDEX,
    SECONDARY_INDEX,
    RecordKind,
    written_record,
    written_schema,
)
from lakewright.metadata.records import Part, decoded, living
from lakewright.metadata.statistics import bools
from lakewright.metadata.statistics_merging import combined_statistics
from lakewright.metadata.transcoding import rewritten

__all__ = ["merged_records"]

_PARTS: Final = {
    indexes.RECORD_INDEX: (RecordKind.RECORD_INDEX, RECORD_INDEX),
    indexes.BLOOM_FILTERS: (RecordKind.BLOOM_FILTER, BLOOM_FILTER),
    indexes.COLUMN_STATS: (RecordKind.COLUMN_STATS, COLUMN_STATS),
    indexes.PARTITION_STATS: (RecordKind.PARTITION_STATS, COLUMN_STATS),
}


def merged_records(index: str, parts: Sequence[Part], *, version: TableVersion) -> MetadataRecords:
    """One record per key, sorted, of what the base file and the log blocks hold, oldest first."""
    record, schema = written_record(version), written_schema(version)
    if index == indexes.FILES:
        return _lists(parts, record).sorted()
    kind, part = _kind_of(index)
    path = parts[0].path if parts else ""
    left = living(parts, newest_only=part != COLUMN_STATS)
    records = rewritten(left, kind, part, record)
    if part == COLUMN_STATS:
        records = combined_statistics(records, kind, record, schema, path=path)
    elif part != RECORD_INDEX:
        records = _without_tombstones(records, part, schema, path)
    return records.sorted()


def _kind_of(index: str) -> tuple[RecordKind, str]:
    if index.startswith(indexes.SECONDARY_PREFIX):
        return RecordKind.SECONDARY_INDEX, SECONDARY_INDEX
    if index not in _PARTS:
        raise UnsupportedTableError(
            f"The metadata table's index {index} cannot be written.",
            hint="Drop that index with Hudi, or write the table with Hudi.",
            context={"index": index},
        )
    return _PARTS[index]


def _without_tombstones(
    records: MetadataRecords, part: str, schema: str, path: str
) -> MetadataRecords:
    if not len(records):
        return records
    (run,) = decoded([Part(records.keys, records.values, schema, path)], ("type", part))
    deleted = bools(pc.struct_field(run.rows.column(part), "isDeleted"))
    return records if not deleted.any() else records.take(pa.array(np.flatnonzero(~deleted)))


def _lists(parts: Sequence[Part], record: Record) -> MetadataRecords:
    """The list of partitions, and the lists of files of all of them."""
    folded = folded_lists(parts)
    alive = np.zeros(len(folded.sizes), np.bool_)
    maps = list_maps(folded.counts, folded.names, folded.sizes, alive)
    of_partitions = pc.equal(folded.keys, ALL_PARTITIONS)
    out = []
    for kind, mask in (
        (RecordKind.PARTITION_LIST, of_partitions),
        (RecordKind.FILE_LIST, pc.invert(of_partitions)),
    ):
        values = encoded_lists(kind, maps.filter(mask), record)
        out.append(MetadataRecords(folded.keys.filter(mask), values))
    return MetadataRecords.joined(out)
