"""Statistics of columns, per file (`column_stats`) and per partition (`partition_stats`).

Records of all asked columns are decoded at once and come out as one table per column, with bounds
in the column's own type. Several records of one file (it was written to again) are combined in
commit order: a deleted or tight record starts anew, otherwise ranges widen and counts add up. Null
bounds mean "unknown". Where a column has nothing but nulls, bounds are null whatever was stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.avro.types import Record, Union
from lakewright.expr.prune import RangeColumns
from lakewright.metadata.bounds import WRAPPERS, typed_bounds
from lakewright.metadata.keys import (
    COLUMN_HASH_CHARS,
    PARTITION_END,
    column_prefixes,
    name_hashes,
    partition_identifier,
)
from lakewright.metadata.record_schema import COLUMN_STATS
from lakewright.metadata.records import (
    Decoded,
    FileGroupReader,
    Prefixes,
    broken,
    decoded,
    living,
)

__all__ = [
    "MANY_PARTITIONS",
    "aligned_ranges",
    "bools",
    "column_statistics",
    "counted_records",
    "statistics_schema",
    "wrapped_values",
]

MANY_PARTITIONS: Final = 64
"""Partitions from which a column's statistics are read whole and filtered afterwards."""

_COUNTS: Final = ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")
_COUNT_NAMES: Final = ("value_count", "null_count", "total_size", "total_uncompressed_size")

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Decoded records in commit order, whatever generation of the schema they are from."""

    keys: pa.BinaryArray
    names: pa.StringArray
    low: Mapping[str, pa.Array]
    high: Mapping[str, pa.Array]
    ordinals: pa.Array
    details: pa.Array
    counts: Mapping[str, pa.Array]
    deleted: pa.BooleanArray
    tight: pa.BooleanArray

    def take(self, at: pa.Array) -> _Rows:
        return _Rows(
            self.keys.take(at),
            self.names.take(at),
            {k: v.take(at) for k, v in self.low.items()},
            {k: v.take(at) for k, v in self.high.items()},
            self.ordinals.take(at),
            self.details.take(at),
            {k: v.take(at) for k, v in self.counts.items()},
            self.deleted.take(at),
            self.tight.take(at),
        )


def column_statistics(
    readers: Iterable[FileGroupReader],
    columns: pa.Schema,
    partitions: Sequence[str],
    *,
    all_partitions: bool,
) -> dict[str, pa.Table]:
    """A table per column: partition, file_name, min, max, counts, sizes, is_tight.

    `partitions` are the known partition paths; with `all_partitions` they are all there are, so
    records are read by column only. `file_name` is the partition path in partition statistics.
    """
    by_column = all_partitions or len(partitions) >= MANY_PARTITIONS
    prefixes = column_prefixes(columns.names, None if by_column else partitions)
    runs = []
    for reader in readers:  # the records of one key are all in one file group
        parts = living(reader.read(Prefixes(tuple(prefixes))), newest_only=False)
        runs += [_rows(run) for run in decoded(parts, ("type", COLUMN_STATS))]
    if not runs:
        return {f.name: _empty(f.type) for f in columns}
    rows = _joined(runs)
    places = name_hashes([partition_identifier(p) for p in partitions])
    where = pc.index_in(
        pc.binary_slice(rows.keys, COLUMN_HASH_CHARS, PARTITION_END),
        value_set=pa.array(places, pa.binary()),
    )
    of_column = pc.index_in(
        pc.binary_slice(rows.keys, 0, COLUMN_HASH_CHARS),
        value_set=pa.array(name_hashes(columns.names), pa.binary()),
    )
    paths = pa.array(partitions, pa.string())
    out = {}
    for number, field in enumerate(columns):
        mine = pc.and_(pc.fill_null(pc.equal(of_column, number), False), where.is_valid())
        at = pa.array(np.flatnonzero(mine))
        out[field.name] = _column(rows.take(at), paths.take(where.take(at)), field.type)
    return out


def aligned_ranges(
    statistics: Mapping[str, pa.Table],
) -> tuple[list[tuple[str, str]], dict[str, RangeColumns]]:
    """All files with any statistics, as (partition, name), and the ranges of each column for them.

    Ranges are null for a file without statistics of that column.
    """
    keys = {c: _file_keys(t) for c, t in statistics.items()}
    if not keys:
        return [], {}
    every = pa.concat_arrays(list(keys.values())).unique()
    ranges = {}
    for column, table in statistics.items():
        at = pc.index_in(every, value_set=keys[column])
        found = table.select(["min", "max", "null_count", "value_count"]).combine_chunks().take(at)
        ranges[column] = RangeColumns(*(c.combine_chunks() for c in found.columns))
    files = [tuple(k.split("/\0", 1)) for k in every.to_pylist()]
    return [(p, n) for p, n in files], ranges


def _file_keys(table: pa.Table) -> pa.StringArray:
    joined = pc.binary_join_element_wise(table["partition"], table["file_name"], "/\0")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _rows(run: Decoded) -> _Rows:
    """One decoded run with its wrappers by name and missing fields as nulls."""
    stats = run.rows.column(COLUMN_STATS)
    if stats.null_count:
        raise broken("a record of column statistics is empty", run.path)
    record = _record_of(run)
    fields = dict(zip([f.name for f in stats.type], stats.flatten(), strict=True))
    absent = pa.nulls(len(stats), pa.bool_()).fill_null(False)
    if fields["fileName"].null_count:
        raise broken("a record of column statistics names no file", run.path)
    value_type = fields.get("valueType")
    ordinals, details = pa.nulls(len(stats), pa.int32()), pa.nulls(len(stats), pa.string())
    if value_type is not None:
        ordinals = pc.struct_field(value_type, "typeOrdinal")
        details = pc.struct_field(value_type, "additionalInfo")
    return _Rows(
        run.keys,
        fields["fileName"],
        wrapped_values(record, "minValue", fields["minValue"], run.path),
        wrapped_values(record, "maxValue", fields["maxValue"], run.path),
        ordinals,
        details,
        {name: fields[stored] for stored, name in zip(_COUNTS, _COUNT_NAMES, strict=True)},
        fields["isDeleted"],
        fields.get("isTightBound", absent),
    )


def _record_of(run: Decoded) -> Record:
    field = next(f for f in run.schema.fields if f.name == COLUMN_STATS)
    inner = field.type.optional if isinstance(field.type, Union) else field.type
    if not isinstance(inner, Record):
        raise broken("the schema of column statistics is no record", run.path)
    return inner


def wrapped_values(
    record: Record, name: str, values: pa.StructArray, path: str
) -> dict[str, pa.Array]:
    """The values of each wrapper, by the names of the union's branches."""
    union = next(f.type for f in record.fields if f.name == name)
    branches = union.branches if isinstance(union, Union) else ()
    named = [b.name.rpartition(".")[2] for b in branches if isinstance(b, Record)]
    if len(named) < 2 or len(named) != values.type.num_fields:
        raise broken(f"{name} is no union of wrappers", path)
    members = dict(zip(named, values.flatten(), strict=True))
    found = {}
    for wrapper, kind in WRAPPERS.items():
        if wrapper in members:
            fields = members[wrapper].flatten()
            if not fields or not (fields[0].type == kind or _alike(fields[0].type, kind)):
                raise broken(f"a {wrapper} of {name} has no value of type {kind}", path)
            found[wrapper] = fields[0]
    return found


def _alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Decimals of any precision; releases differ there."""
    return bool(pa.types.is_decimal(found) and pa.types.is_decimal(wanted))


def _joined(runs: Sequence[_Rows]) -> _Rows:
    def bounds(side: str) -> dict[str, pa.Array]:
        out = {}
        for wrapper in WRAPPERS:
            found = [getattr(r, side).get(wrapper) for r in runs]
            kind = next((a.type for a in found if a is not None), None)
            if kind is not None:
                pairs = zip(found, runs, strict=True)
                filled = [pa.nulls(len(r.keys), kind) if a is None else a for a, r in pairs]
                out[wrapper] = pa.concat_arrays(filled)
        return out

    if len(runs) == 1:
        return runs[0]
    return _Rows(
        pa.concat_arrays([r.keys for r in runs]),
        pa.concat_arrays([r.names for r in runs]),
        bounds("low"),
        bounds("high"),
        pa.concat_arrays([r.ordinals for r in runs]),
        pa.concat_arrays([r.details for r in runs]),
        {n: pa.concat_arrays([r.counts[n] for r in runs]) for n in _COUNT_NAMES},
        pa.concat_arrays([r.deleted for r in runs]),
        pa.concat_arrays([r.tight for r in runs]),
    )


def _column(rows: _Rows, partitions: pa.StringArray, kind: pa.DataType) -> pa.Table:
    only_nulls = pc.fill_null(
        pc.equal(rows.counts["null_count"], rows.counts["value_count"]), False
    )
    bounds = [
        pc.if_else(only_nulls, pa.scalar(None, kind), typed_bounds(side, *rest, kind))
        for side in (rows.low, rows.high)
        for rest in [(rows.ordinals, rows.details)]
    ]
    table = pa.table(
        [partitions, rows.names, *bounds, *rows.counts.values(), rows.tight],
        schema=statistics_schema(kind),
    )
    return _combined(table, rows.keys, rows.deleted)


def _combined(table: pa.Table, keys: pa.BinaryArray, deleted: pa.BooleanArray) -> pa.Table:
    """One row per key: what its last run of records without a new start adds up to."""
    if not len(table):
        return table
    codes = np.asarray(keys.dictionary_encode().indices)
    places = counted_records(codes, gone=bools(deleted), tight=bools(table["is_tight"]))
    kept, code = table.take(pa.array(places)), codes[places]
    if len(np.unique(code)) == len(code):
        return kept
    sums = [(n, "sum") for n in _COUNT_NAMES]
    lasts = [("partition", "last"), ("file_name", "last")]
    ends = [("min", "min"), ("max", "max"), *sums, ("is_tight", "last")]
    grouped = kept.append_column("key", pa.array(code)).group_by("key", use_threads=False)
    folded = grouped.aggregate([*lasts, *ends]).drop_columns("key")
    return folded.rename_columns(table.column_names).cast(table.schema)


def counted_records(codes: npt.NDArray[Any], *, gone: Bools, tight: Bools) -> npt.NDArray[np.intp]:
    """Which of several records of each key count, by their places: key by key, oldest first.

    `codes` tell the keys of records in commit order. A tight record and the one after a deleted one
    start anew; a key whose last record is deleted has none that counts.
    """
    if not len(codes):
        return np.zeros(0, np.intp)
    order = np.argsort(codes, kind="stable")
    code, gone, tight = codes[order], gone[order], tight[order]
    first = np.diff(code, prepend=-1) != 0
    last = np.append(first[1:], True)
    after_gone = np.append(False, gone[:-1]) & ~first
    run = np.cumsum(first | gone | tight | after_gone)
    final = np.zeros(int(code.max()) + 1, np.int64)
    final[code[last]] = np.where(gone[last], -1, run[last])
    counted: npt.NDArray[np.intp] = order[run == final[code]]
    return counted


def bools(values: pa.Array | pa.ChunkedArray) -> Bools:
    """Flags as numpy has them; null is false."""
    return np.asarray(pc.fill_null(values, False)).astype(np.bool_)


def statistics_schema(kind: pa.DataType) -> pa.Schema:
    """The columns of the statistics of a column of type `kind`."""
    counts = [(name, pa.int64()) for name in _COUNT_NAMES]
    named = [("partition", pa.string()), ("file_name", pa.string()), ("min", kind), ("max", kind)]
    return pa.schema([*named, *counts, ("is_tight", pa.bool_())])


def _empty(kind: pa.DataType) -> pa.Table:
    return statistics_schema(kind).empty_table()
