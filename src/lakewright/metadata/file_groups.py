"""File groups of the metadata table: their names, and which of them a record belongs to.

An index is a partition of the metadata table with a fixed number of file groups, which is stored
nowhere: readers count the groups that they find. So every group, also one without records, begins
with a stub, a log file that deletes nothing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from lakewright.codec.byte_order import byte_order
from lakewright.errors import UnsupportedTableError
from lakewright.format.file_names import BaseFileName, LogFileName
from lakewright.format.log_block import BlockType, HeaderKey, encode_block
from lakewright.format.log_content import encode_delete_rows
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.keys import file_group_index

__all__ = [
    "BLOOM_FILTERS",
    "COLUMN_STATS",
    "EXPRESSION_PREFIX",
    "FILES",
    "PARTITION_STATS",
    "RECORD_INDEX",
    "SECONDARY_PREFIX",
    "STUB_ATTEMPT",
    "base_file_name",
    "file_id",
    "log_file_name",
    "record_index_group_count",
    "split_by_group",
    "stub_block",
]

FILES: Final = "files"
COLUMN_STATS: Final = "column_stats"
PARTITION_STATS: Final = "partition_stats"
RECORD_INDEX: Final = "record_index"
BLOOM_FILTERS: Final = "bloom_filters"
SECONDARY_PREFIX: Final = "secondary_index_"
EXPRESSION_PREFIX: Final = "expr_index_"

STUB_ATTEMPT: Final = "0-0-0"
"""Write token of the log file that a group begins with."""

_ID_PREFIXES: Final = {
    FILES: "files",
    COLUMN_STATS: "col-stats",
    PARTITION_STATS: "partition-stats",
    RECORD_INDEX: "record-index",
    BLOOM_FILTERS: "bloom-filters",
}
_RECORD_BYTES: Final = 48
_EXTENSION: Final = ".hfile"


def file_id(index: str, number: int) -> str:
    """The file id of a group: `col-stats-0001-0` is number 1 of `column_stats`."""
    prefix = _ID_PREFIXES.get(index)
    if prefix is None:
        if not index.startswith((SECONDARY_PREFIX, EXPRESSION_PREFIX)):
            raise UnsupportedTableError(
                f"The metadata table's index {index} is unknown.",
                hint="A newer Hudi wrote it; drop that index with Hudi, or write with that Hudi.",
                context={"index": index},
            )
        prefix = index.replace("_", "-")
    return f"{prefix}-{number:04d}-0"


def base_file_name(index: str, number: int, *, write_token: str, instant: str) -> str:
    """Name of a base file of a group."""
    return BaseFileName(file_id(index, number), write_token, instant, _EXTENSION).text


def log_file_name(
    index: str, number: int, *, instant: str, version: int = 1, write_token: str
) -> str:
    """Name of a log file of a group.

    `instant` is the delta commit's, or where log files carry their slice's, that of its base file.
    """
    return LogFileName(file_id(index, number), instant, version, write_token).text


def stub_block(instant: str) -> bytes:
    """The content of the log file that a group begins with."""
    none = pa.array([], pa.string())
    headers = {HeaderKey.INSTANT_TIME: instant}
    return encode_block(BlockType.DELETE, headers, encode_delete_rows(none, none))


def split_by_group(records: MetadataRecords, groups: int) -> list[MetadataRecords]:
    """The records of each file group, sorted by key."""
    if groups == 1:
        return [records.sorted()]
    numbers = file_group_index(records.keys.cast(pa.string()), groups).astype(np.uint16)
    order = byte_order(records.keys)
    arranged = records.take(pa.array(order[np.argsort(numbers[order], kind="stable")]))
    ends = np.cumsum(np.bincount(numbers, minlength=groups)).tolist()
    return [
        MetadataRecords(arranged.keys[a:b], arranged.values[a:b]) for a, b in pairwise([0, *ends])
    ]


def record_index_group_count(
    records: int,
    *,
    least: int = 10,
    most: int = 10_000,
    growth: float = 2.0,
    group_bytes: int = 1 << 30,
) -> int:
    """File groups of a new record index (or secondary index) for so many records.

    The number stays for the life of the index, so there is room to grow.
    """
    if least == most and least:
        return least
    wanted = int(np.ceil(records * growth)) // max(group_bytes // _RECORD_BYTES, 1)
    return min(max(wanted, least), most)
