"""Ordering values: how Hudi compares them, for whole columns.

The order is Java's for the boxed class of the column: numbers by value whatever their width, floats
totally (NaN greatest, -0.0 below 0.0), text and bytes by unsigned bytes, false before true. A null
or missing value is the default, the int 0: zero among numbers, dates and timestamps, lowest among
everything else. Several columns compare left to right. The result is a total order without gaps, so
the greatest of many values may be found in any grouping. Types that have no order raise
`MergeError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.errors import MergeError
from lakewright.merge.columns import Bools, Int64s, column_at, valid

Int8s = npt.NDArray[np.int8]

_SIGN = np.int64(-(2**63))
_MAGNITUDE = np.int64(2**63 - 1)
_WORD_DIGITS = 18
"""Decimals of at most so many digits fit the low word of their 128 bits."""


def ordering_values(rows: pa.RecordBatch, ordering_columns: Sequence[str]) -> list[pa.Array]:
    """The ordering columns of a batch, by dotted path; null where the schema has none."""
    return [column_at(rows, path) for path in ordering_columns]


def is_default(columns: Sequence[pa.Array], size: int) -> Bools:
    """Rows whose ordering value is the default: null, or the int 0, and only of a single column.

    A long 0 is a value. Several columns make an array, which is never the default.
    """
    if not columns:
        return np.ones(size, dtype=np.bool_)
    if len(columns) > 1:
        return np.zeros(size, dtype=np.bool_)
    column = columns[0]
    if pt.is_null(column.type):
        return np.ones(size, dtype=np.bool_)
    # A date is the int of its days for the readers on Spark.
    if pt.is_int32(column.type) or pt.is_date32(column.type):
        days: Bools = _numbers(column, pa.int32()) == 0
        return days
    return ~valid(column)


def compare(older: Sequence[pa.Array], newer: Sequence[pa.Array], size: int = 0) -> Int8s:
    """-1 where the older ordering value is smaller, 0 where equal, 1 where it is greater.

    Both sides have one array per ordering column, all of one length. Without ordering columns all
    of `size` pairs are equal.
    """
    if len(older) != len(newer):
        raise MergeError(
            f"Ordering values of {len(older)} and of {len(newer)} columns cannot be compared.",
            hint="Give both sides one array per ordering column of the table.",
        )
    result = np.zeros(len(older[0]) if older else size, dtype=np.int8)
    for left, right in zip(older, newer, strict=True):
        np.copyto(result, _compare_one(*_common(_plain(left), _plain(right))), where=result == 0)
    return result


def order_keys(columns: Sequence[pa.Array], size: int = 0) -> Int64s:
    """Integers in the same order as the ordering values; equal for equal values.

    They are comparable within one call only. Without ordering columns all of `size` are equal.
    """
    codes = [_codes(_plain(column)) for column in columns]
    if not codes:
        return np.zeros(size, dtype=np.int64)
    if len(codes) == 1:
        return codes[0]
    order = np.lexsort(codes[::-1])
    changed = np.zeros(len(order), dtype=np.int64)
    for code in codes:
        changed[1:] |= np.diff(code[order]) != 0
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(changed)
    return ranks


def _compare_one(older: pa.Array, newer: pa.Array) -> Int8s:
    left, right = _number_codes(older), _number_codes(newer)
    if left is not None and right is not None:
        return (left > right).astype(np.int8) - (left < right).astype(np.int8)
    _refuse_unordered(older.type)
    if pt.is_decimal(older.type):
        older, newer = _zero_filled(older), _zero_filled(newer)
    greater = pc.greater(older, newer).fill_null(False).to_numpy(zero_copy_only=False)
    less = pc.less(older, newer).fill_null(False).to_numpy(zero_copy_only=False)
    result: Int8s = greater.astype(np.int8) - less.astype(np.int8)
    if older.null_count or newer.null_count:
        there, here = valid(older).astype(np.int8), valid(newer).astype(np.int8)
        result = np.where(there & here, result, there - here)
    return result


def _codes(column: pa.Array) -> Int64s:
    numbers = _number_codes(column)
    if numbers is not None:
        return numbers
    _refuse_unordered(column.type)
    if pt.is_decimal(column.type):
        column = _zero_filled(column)
    present = valid(column)
    ranks = np.zeros(len(column), dtype=np.int64)
    if present.any():
        ranks[present] = pc.rank(column.drop_null(), tiebreaker="dense").to_numpy()
    return ranks


def _number_codes(column: pa.Array) -> Int64s | None:
    """Values that order as 64-bit integers; None for types that need Arrow's own comparison."""
    kind = column.type
    if pt.is_null(kind):
        return np.zeros(len(column), dtype=np.int64)
    if pt.is_boolean(kind):
        return np.where(valid(column), as_flags(column), -1).astype(np.int64)
    if pt.is_uint64(kind):
        bits: Int64s = _numbers(column, kind).view(np.int64) ^ _SIGN
        return bits
    if pt.is_integer(kind):
        return _numbers(column, kind).astype(np.int64, copy=False)
    if pt.is_floating(kind):
        reals = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        bits = np.where(np.isnan(reals), np.nan, reals).view(np.int64)
        return np.where(bits < 0, bits ^ _MAGNITUDE, bits)
    if pt.is_decimal128(kind) and kind.precision <= _WORD_DIGITS:
        words = np.frombuffer(column.buffers()[1], dtype=np.int64)[2 * column.offset :: 2]
        return np.where(valid(column), words[: len(column)], 0)
    if pt.is_temporal(kind) and not pt.is_interval(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return _numbers(column.view(width), width).astype(np.int64, copy=False)
    return None


def as_flags(column: pa.Array) -> Bools:
    """A boolean column as a vector, null as false."""
    flags: Bools = column.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


def _numbers(column: pa.Array, width: pa.DataType) -> npt.NDArray[np.int64]:
    """Integer-like values with null as 0."""
    plain = column if column.type == width else column.view(width)
    if plain.null_count:
        plain = plain.fill_null(0)
    numbers: npt.NDArray[np.int64] = plain.to_numpy(zero_copy_only=False)
    return numbers


def _plain(column: pa.Array) -> pa.Array:
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pt.is_decimal32(column.type) or pt.is_decimal64(column.type):
        return column.cast(pa.decimal128(column.type.precision, column.type.scale))
    return column


def _zero_filled(column: pa.Array) -> pa.Array:
    return column.fill_null(pa.scalar(Decimal(0), column.type)) if column.null_count else column


def _common(older: pa.Array, newer: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Both columns in one type; ints and floats of different width compare by value."""
    left, right = older.type, newer.type
    if left == right:
        return older, newer
    if pt.is_null(left) or pt.is_null(right):
        target = right if pt.is_null(left) else left
    elif pt.is_integer(left) and pt.is_integer(right):
        target = pa.int64()
    elif pt.is_timestamp(left) and pt.is_timestamp(right):
        units = ("s", "ms", "us", "ns")
        target = pa.timestamp(units[max(units.index(left.unit), units.index(right.unit))], left.tz)
        newer = newer if left.tz == right.tz else newer.cast(pa.timestamp(right.unit, left.tz))
    elif _is_number(left) and _is_number(right):
        target = _common_number(left, right)
    elif _is_bytes(left) and _is_bytes(right):
        target = pa.large_binary()
    else:
        raise MergeError(
            f"Ordering values of type {left} and of type {right} cannot be compared.",
            hint="Convert both to the type of the table's ordering column first.",
        )
    exact = not pt.is_floating(target)
    return older.cast(target, safe=exact), newer.cast(target, safe=exact)


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pt.is_floating(left) or pt.is_floating(right):
        return pa.float64()
    scale = max(getattr(left, "scale", 0), getattr(right, "scale", 0))
    return pa.decimal256(38 + scale, scale)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pt.is_string(kind)
        or pt.is_large_string(kind)
        or pt.is_binary(kind)
        or pt.is_large_binary(kind)
        or pt.is_fixed_size_binary(kind)
    )


def _refuse_unordered(kind: pa.DataType) -> None:
    if _is_bytes(kind) or pt.is_decimal(kind):
        return
    raise MergeError(
        f"A column of type {kind} has no order.",
        hint="Ordering fields must be numbers, text, bytes, booleans, dates or timestamps.",
    )
