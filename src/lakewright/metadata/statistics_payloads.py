"""Statistics of columns as records of the metadata table, for `column_stats` and `partition_stats`.

The inverse of `statistics`: tables per column as they are read, encoded together. Columns with the
same wrapper need not be neighbours. A record without bounds means a column of nulls to Hudi, whose
readers then skip the file; a missing bound of a file that has values is a `FormatError`. Nor may a
file have records of some indexed columns only: what is missing beside others is taken for nulls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.avro.types import Record, Union
from lakewright.errors import FormatError
from lakewright.format.version import TableVersion
from lakewright.metadata.encoding import MetadataRecords, encoded_parts, no_records
from lakewright.metadata.keys import file_digests, joined_keys, name_hashes, partition_hashes
from lakewright.metadata.record_schema import COLUMN_STATS, RecordKind, part_type, written_record
from lakewright.metadata.wrapping import wrapped_bounds, wrapped_column

__all__ = ["deleted_statistics_records", "statistics_keys", "statistics_records"]

_COUNTS: Final = {
    "valueCount": "value_count",
    "nullCount": "null_count",
    "totalSize": "total_size",
    "totalUncompressedSize": "total_uncompressed_size",
}
_BOUNDS: Final = {"minValue": "min", "maxValue": "max"}


def statistics_records(
    statistics: Mapping[str, pa.Table], *, of_partitions: bool = False, version: TableVersion
) -> MetadataRecords:
    """Statistics of columns per file, or per partition: a table per column, as they are read.

    Bounds are in a type that has a wrapper; they are null only where a file has no value at all.
    """
    if not statistics:
        return no_records()
    record = written_record(version)
    kind = RecordKind.PARTITION_STATS if of_partitions else RecordKind.COLUMN_STATS
    tables = list(statistics.values())
    rows = pa.concat_tables(t.drop_columns(list(_BOUNDS.values())) for t in tables)
    rows = rows.combine_chunks()
    bounds = {
        stored: wrapped_bounds([_column(t, name) for t in tables])
        for stored, name in _BOUNDS.items()
    }
    for wrapped in bounds.values():
        _require_bounds(wrapped, rows)
    columns = _spread(list(statistics), [len(t) for t in tables])
    names = _column(rows, "file_name")
    fields = {
        "fileName": names,
        "columnName": columns,
        **_bound_columns(bounds, record, len(rows)),
        **{stored: _column(rows, name) for stored, name in _COUNTS.items()},
        "isDeleted": pa.repeat(pa.scalar(False), len(rows)),
        "isTightBound": _column(rows, "is_tight"),
    }
    values = encoded_parts(kind, COLUMN_STATS, pa.RecordBatch.from_pydict(fields), record)
    partitions = _column(rows, "partition")
    keys = statistics_keys(columns, partitions, None if of_partitions else names)
    return MetadataRecords(keys, values)


def deleted_statistics_records(
    columns: Sequence[str], files: pa.Table, *, version: TableVersion
) -> MetadataRecords:
    """Records that take back the statistics of removed files (partition, name): version 6.

    Later versions delete the keys instead, which are the keys of these records.
    """
    record = written_record(version)
    count = len(columns) * len(files)
    every = files.take(pa.array(np.tile(np.arange(len(files)), len(columns))))
    named = _spread(columns, [len(files)] * len(columns))
    names = _column(every, "name")
    fields = {
        "fileName": names,
        "columnName": named,
        **_bound_columns({stored: {} for stored in _BOUNDS}, record, count),
        **dict.fromkeys(_COUNTS, pa.array(np.zeros(count, np.int64))),
        "isDeleted": pa.repeat(pa.scalar(True), count),
        "isTightBound": pa.repeat(pa.scalar(False), count),
    }
    batch = pa.RecordBatch.from_pydict(fields)
    values = encoded_parts(RecordKind.COLUMN_STATS, COLUMN_STATS, batch, record)
    return MetadataRecords(statistics_keys(named, _column(every, "partition"), names), values)


def statistics_keys(
    columns: pa.StringArray, partitions: pa.StringArray, names: pa.StringArray | None
) -> pa.BinaryArray:
    """Keys of statistics of columns in files, or with no names in whole partitions."""
    distinct = columns.dictionary_encode()
    hashes = pa.array(name_hashes(distinct.dictionary.to_pylist()), pa.binary())
    pieces = [hashes.take(distinct.indices), partition_hashes(partitions)]
    return joined_keys(*pieces, *([] if names is None else [file_digests(names)]))


def _require_bounds(wrapped: Mapping[str, pa.Array], rows: pa.Table) -> None:
    bounded = np.logical_or.reduce([np.asarray(v.is_valid()) for v in wrapped.values()])
    empty = pc.fill_null(pc.equal(rows["null_count"], rows["value_count"]), False)
    if not (bounded | np.asarray(empty)).all():
        raise FormatError(
            "Statistics of a file that has values lack a bound.",
            hint="Leave that file out in all columns: Hudi skips files whose bounds are missing.",
        )


def _bound_columns(
    bounds: Mapping[str, Mapping[str, pa.Array]], record: Record, count: int
) -> dict[str, pa.Array]:
    stats = part_type(record, COLUMN_STATS)
    assert isinstance(stats, Record)
    out = {}
    for field in stats.fields:
        if field.name in bounds:
            assert isinstance(field.type, Union)
            out[field.name] = wrapped_column(field.type, bounds[field.name], count)
    return out


def _spread(names: Sequence[str], counts: Sequence[int]) -> pa.StringArray:
    at = np.repeat(np.arange(len(names)), counts)
    return pa.array(names, pa.string()).take(pa.array(at))


def _column(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()
