"""Every record of an index, as columns: what a verification holds against the table's files.

Readers answer questions about some keys; here all live records of one file group are given at once,
with their keys, because a record that nobody asks for is wrong too. Memory is that of one file
group. `misplaced` tells records that are not in the file group where they would be looked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.metadata.files import FILE_TABLE, folded_lists
from lakewright.metadata.keys import ALL_PARTITIONS, partition_path
from lakewright.metadata.record_index import located, without_deleted
from lakewright.metadata.record_schema import BLOOM_FILTER, COLUMN_STATS
from lakewright.metadata.records import (
    Decoded,
    Everything,
    FileGroupReader,
    Selection,
    decoded,
    living,
)
from lakewright.metadata.statistics import bools
from lakewright.metadata.verification import Difference, DifferenceKind

__all__ = [
    "BLOOM_ENTRIES",
    "STATISTICS_ENTRIES",
    "bloom_digest",
    "bloom_entries",
    "listed_everything",
    "misplaced",
    "record_entries",
    "secondary_entry_keys",
    "statistics_entries",
    "value_parts",
]

STATISTICS_ENTRIES: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("file_name", pa.string()),
        ("column", pa.string()),
        ("bounded", pa.bool_()),
    ]
)
"""`bounded` tells whether a least value is stored, usable or not."""

BLOOM_ENTRIES: Final = pa.schema(
    [("key", pa.binary()), ("type", pa.string()), ("md5", pa.string())]
)

EVERYTHING: Final = Everything()

_VALUE_PART: Final = r"(?s)^(?P<value>(?:[^\\$]|\\.)*\$)"
_DIGEST_CHARS: Final = 16


def listed_everything(reader: FileGroupReader) -> tuple[list[str], pa.Table]:
    """The partitions that the `files` index lists, and the files of all partitions it tells of."""
    folded = folded_lists(reader.read(EVERYTHING))
    owners = np.repeat(np.arange(len(folded.keys)), folded.counts)
    names = [partition_path(k.decode("utf-8", "replace")) for k in folded.keys.to_pylist()]
    of_list = np.asarray(pc.equal(folded.keys, ALL_PARTITIONS)).astype(np.bool_)
    of_partitions = pa.array(of_list[owners], pa.bool_())
    listed = folded.names.filter(of_partitions).to_pylist()
    places = pa.array(names, pa.string()).take(pa.array(owners, pa.int64()))
    files = pa.table([places, folded.names, pa.array(folded.sizes, pa.int64())], schema=FILE_TABLE)
    return sorted(partition_path(p) for p in listed), files.filter(pc.invert(of_partitions))


def statistics_entries(reader: FileGroupReader, selection: Selection = EVERYTHING) -> pa.Table:
    """Live records of a file group of statistics, without their numbers."""
    tables = [STATISTICS_ENTRIES.empty_table()]
    for run in _newest(reader, selection, COLUMN_STATS):
        told = run.rows.column(COLUMN_STATS)
        fields = dict(zip([f.name for f in told.type], told.flatten(), strict=True))
        columns = [
            run.keys,
            fields["fileName"],
            fields["columnName"],
            fields["minValue"].is_valid(),
        ]
        live = pc.invert(pc.fill_null(fields["isDeleted"], False))
        tables.append(pa.table(columns, schema=STATISTICS_ENTRIES).filter(live))
    return pa.concat_tables(tables).combine_chunks()


def bloom_entries(reader: FileGroupReader) -> pa.Table:
    """Live records of a file group of bloom filters; a filter is told by its digest."""
    tables = [BLOOM_ENTRIES.empty_table()]
    for run in _newest(reader, EVERYTHING, BLOOM_FILTER):
        told = run.rows.column(BLOOM_FILTER)
        fields = dict(zip([f.name for f in told.type], told.flatten(), strict=True))
        live = np.flatnonzero(~bools(fields["isDeleted"]))
        # One text of some hundred KiB per base file.
        digests = [bloom_digest(fields["bloomFilter"][row].as_py()) for row in live.tolist()]
        at = pa.array(live, pa.int64())
        columns = [run.keys.take(at), fields["type"].take(at), pa.array(digests, pa.string())]
        tables.append(pa.table(columns, schema=BLOOM_ENTRIES))
    return pa.concat_tables(tables).combine_chunks()


def bloom_digest(text: bytes) -> str:
    """What tells one stored filter from another."""
    return hashlib.md5(text, usedforsecurity=False).hexdigest()[:_DIGEST_CHARS]


def record_entries(reader: FileGroupReader) -> pa.Table:
    """All keys of a file group of the record index with their places."""
    return located(living(reader.read(EVERYTHING), newest_only=True))


def secondary_entry_keys(reader: FileGroupReader) -> pa.BinaryArray:
    """All entries of a file group of a secondary index: values and record keys, escaped."""
    return without_deleted(living(reader.read(EVERYTHING), newest_only=True))


def misplaced(
    index: str, keys: pa.Array | pa.ChunkedArray, number: int, belongs: npt.NDArray[np.int64]
) -> Iterator[Difference]:
    """Which of the keys of file group `number` belong into another one."""
    every = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    for row in np.flatnonzero(belongs != number).tolist():
        key, found = every[row].cast(pa.string()).as_py(), {"file_group": number}
        yield Difference(index, DifferenceKind.MISPLACED, key, found=found)


def value_parts(entries: pa.StringArray) -> pa.StringArray:
    """What entries of a secondary index begin with: their values, separator included."""
    parts = pc.extract_regex(entries, pattern=_VALUE_PART)
    return pc.coalesce(pc.struct_field(parts, "value"), entries)


def _newest(reader: FileGroupReader, selection: Selection, part: str) -> Iterator[Decoded]:
    return decoded(living(reader.read(selection), newest_only=True), ("type", part))
