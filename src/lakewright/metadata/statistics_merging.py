"""Several statistics of one key combined into one record, bounds in the wrappers they came in.

Ranges widen, counts add up; a tight record or a deletion before starts anew. Releases wrap the same
column differently (a compaction of Hudi 0.15 makes plain numbers of dates and bytes of decimals),
so bounds of one key are brought to one wrapper first. Where that cannot be done without a guess the
records are broken: a record without bounds would make Hudi's readers skip a file that has rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.avro.types import Record, Union
from lakewright.metadata.bounds import decimals_of_bytes
from lakewright.metadata.encoding import MetadataRecords, encoded_parts
from lakewright.metadata.record_schema import COLUMN_STATS, RecordKind, part_type
from lakewright.metadata.records import Part, broken, decoded
from lakewright.metadata.statistics import bools, counted_records, wrapped_values
from lakewright.metadata.wrapping import wrapped_column

__all__ = ["combined_statistics"]

_COUNTS: Final = ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")
_LASTS: Final = ("fileName", "columnName", "isDeleted", "isTightBound")
_WIDENED: Final = (
    ("IntWrapper", "DateWrapper"),
    ("LocalDateWrapper", "DateWrapper"),
    ("BytesWrapper", "DecimalWrapper"),
    ("IntWrapper", "LongWrapper"),
    ("TimestampMicrosWrapper", "LongWrapper"),
    ("FloatWrapper", "DoubleWrapper"),
)
"""Wrappers that mean the same column as another one, where a key has both."""
_DECIMAL_SCALE: Final = 15

Int64s = npt.NDArray[np.int64]


def combined_statistics(
    records: MetadataRecords, kind: RecordKind, record: Record, schema: str, *, path: str
) -> MetadataRecords:
    """One record per key of records in commit order; keys that were deleted last are gone."""
    if not len(records):
        return records
    (run,) = decoded([Part(records.keys, records.values, schema, path)], ("type", COLUMN_STATS))
    stats = run.rows.column(COLUMN_STATS)
    if stats.null_count:
        raise broken("a record of column statistics is empty", path)
    fields = dict(zip([f.name for f in stats.type], stats.flatten(), strict=True))
    codes = np.asarray(records.keys.dictionary_encode().indices).astype(np.int64)
    absent = pa.repeat(pa.scalar(False), len(records))
    places = counted_records(
        codes,
        gone=bools(fields["isDeleted"]),
        tight=bools(fields.get("isTightBound", absent)),
    )
    code = codes[places]
    alone = np.bincount(code, minlength=int(codes.max()) + 1)[code] == 1
    kept = records.take(pa.array(places[alone]))
    if alone.all():
        return kept
    several = places[~alone]
    at = pa.array(several)
    folded = _folded({n: c.take(at) for n, c in fields.items()}, code[~alone], record, path)
    lasts = pa.array(several[_last(code[~alone])])
    values = encoded_parts(kind, COLUMN_STATS, pa.RecordBatch.from_pydict(folded), record)
    return MetadataRecords.joined([kept, MetadataRecords(records.keys.take(lasts), values)])


def _folded(
    fields: dict[str, pa.Array], code: Int64s, record: Record, path: str
) -> dict[str, pa.Array]:
    """The fields of one record per key; `code` is grouped, oldest first."""
    last = pa.array(_last(code))
    out: dict[str, pa.Array] = {name: fields[name].take(last) for name in _LASTS if name in fields}
    numbers = np.cumsum(np.diff(code, prepend=code[0]) != 0)
    table = pa.table({"key": numbers, **{n: fields[n] for n in _COUNTS}})
    sums = table.group_by("key", use_threads=False).aggregate([(n, "sum") for n in _COUNTS])
    out |= {n: sums[f"{n}_sum"].combine_chunks() for n in _COUNTS}
    part = part_type(record, COLUMN_STATS)
    assert isinstance(part, Record)
    for name, best in (("minValue", "min"), ("maxValue", "max")):
        wrapped = wrapped_values(part, name, fields[name], path)
        unified = _unified(wrapped, numbers, path)
        found = {
            wrapper: _best(values, numbers, best)
            for wrapper, values in unified.items()
            if values.null_count < len(values)
        }
        union = next(f.type for f in part.fields if f.name == name)
        assert isinstance(union, Union)
        out[name] = wrapped_column(union, found, len(last))
    return out


def _last(code: Int64s) -> npt.NDArray[np.intp]:
    return np.flatnonzero(np.append(np.diff(code) != 0, True))


def _unified(wrapped: dict[str, pa.Array], numbers: Int64s, path: str) -> dict[str, pa.Array]:
    """The bounds of each key in one wrapper."""
    out = {name: values for name, values in wrapped.items() if values.null_count < len(values)}
    for source, target in _WIDENED:
        if source in out and target in out:
            both = _keys_with(out[source], numbers) & _keys_with(out[target], numbers)
            moved = pc.and_(pa.array(both[numbers]), out[source].is_valid())
            brought = _as(out[source], out[target].type)
            out[target] = pc.coalesce(out[target], pc.if_else(moved, brought, None))
            out[source] = pc.if_else(moved, None, out[source])
    used = sum(_keys_with(values, numbers).astype(np.int64) for values in out.values())
    if np.any(used > 1):
        raise broken("statistics of one column are of types that do not compare", path)
    return out


def _keys_with(values: pa.Array, numbers: Int64s) -> npt.NDArray[np.bool_]:
    """Which keys have a bound among these."""
    return np.bincount(numbers, weights=np.asarray(values.is_valid()).astype(np.float64)) > 0


def _as(values: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(target) and pa.types.is_binary(values.type):
        return decimals_of_bytes(values, _DECIMAL_SCALE).cast(target)
    return values.cast(target)


def _best(values: pa.Array, numbers: Int64s, best: str) -> pa.Array:
    table = pa.table({"key": numbers, "bound": values})
    found = table.group_by("key", use_threads=False).aggregate([("bound", best)])
    return found[f"bound_{best}"].combine_chunks()
