"""Least and greatest values of statistics records, as typed Arrow columns.

A stored bound is one of a dozen wrapper records whose choice depends on the column's type, on the
release that wrote it and on whether the metadata table was compacted since. `typed_bounds` brings
all of them to the column's own type; a bound that cannot be brought there exactly becomes null,
which means "unknown" and never prunes anything. Statistics with a value type are from index version
2 (table version 9), those without from version 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.hashing import ByteRows

__all__ = ["WRAPPERS", "decimals_of_bytes", "typed_bounds"]

WRAPPERS: Final[dict[str, pa.DataType]] = {
    "BooleanWrapper": pa.bool_(),
    "IntWrapper": pa.int32(),
    "LongWrapper": pa.int64(),
    "FloatWrapper": pa.float32(),
    "DoubleWrapper": pa.float64(),
    "BytesWrapper": pa.binary(),
    "StringWrapper": pa.string(),
    "DateWrapper": pa.int32(),
    "DecimalWrapper": pa.decimal128(30, 15),
    "TimeMicrosWrapper": pa.time64("us"),
    "TimestampMicrosWrapper": pa.int64(),
    "LocalDateWrapper": pa.int32(),
}
"""Wrappers with a single `value`, and its type; arrays of values have no order to prune by."""

_UNITS: Final = {15: "ms", 16: "us", 17: "ns", 18: "ms", 19: "us", 20: "ns"}
"""Unit of a timestamp by the ordinal of its value type."""
_SCALE_V1: Final = 15
_DECIMAL_BYTES: Final = 16


def typed_bounds(
    wrapped: Mapping[str, pa.Array], ordinals: pa.Array, details: pa.Array, target: pa.DataType
) -> pa.Array:
    """One bound per record in the type `target`; null where there is none that can be used.

    `wrapped` has one aligned array per wrapper; `ordinals` and `details` are the value type (null
    in version 1) and what it says beyond that.
    """
    bounds = pa.nulls(len(ordinals), target)
    for wrapper, values in wrapped.items():
        if values.null_count == len(values):
            continue
        for found in _converted(wrapper, values, ordinals, details, target):
            try:
                bounds = pc.coalesce(bounds, found.cast(target))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
    if pa.types.is_floating(target):
        bounds = pc.if_else(pc.is_nan(bounds), None, bounds)
    return bounds


def _converted(
    wrapper: str, values: pa.Array, ordinals: pa.Array, details: pa.Array, target: pa.DataType
) -> Iterator[pa.Array]:
    """Values of one wrapper on the way to `target`; nothing if the wrapper does not fit it."""
    if pa.types.is_timestamp(target):
        if wrapper in ("LongWrapper", "TimestampMicrosWrapper"):
            yield from _timestamps(wrapper, values, ordinals, target)
    elif pa.types.is_decimal(target):
        if wrapper == "BytesWrapper":
            yield from _decimals(values, ordinals, details)
        elif wrapper in ("DecimalWrapper", "IntWrapper", "LongWrapper"):
            yield values
    elif pa.types.is_time(target):
        if wrapper in ("IntWrapper", "LongWrapper", "TimeMicrosWrapper"):
            yield values
    elif wrapper in _FITTING.get(_kind(target), ()):
        yield values


_INTEGERS: Final = ("IntWrapper", "LongWrapper")
_FITTING: Final[dict[str, tuple[str, ...]]] = {
    "boolean": ("BooleanWrapper",),
    "integer": _INTEGERS,
    "floating": (*_INTEGERS, "FloatWrapper", "DoubleWrapper"),
    "text": ("StringWrapper",),
    "bytes": ("BytesWrapper",),
    "date": ("IntWrapper", "DateWrapper", "LocalDateWrapper"),
}


def _kind(target: pa.DataType) -> str:
    kinds = {
        "boolean": pa.types.is_boolean(target),
        "integer": pa.types.is_integer(target),
        "floating": pa.types.is_floating(target),
        "text": pa.types.is_string(target) or pa.types.is_large_string(target),
        "bytes": pa.types.is_binary(target) or pa.types.is_large_binary(target),
        "date": pa.types.is_date32(target),
    }
    return next((kind for kind, holds in kinds.items() if holds), "")


def _timestamps(
    wrapper: str, values: pa.Array, ordinals: pa.Array, target: pa.DataType
) -> Iterator[pa.Array]:
    """Each stored number in its own unit.

    Without a value type a number is in the column's unit, but releases before 1.1 confused
    milliseconds with microseconds, so columns of milliseconds have no bounds then.
    """
    told = np.asarray(ordinals.fill_null(0))
    for unit in ("ms", "us", "ns"):
        mine = np.isin(told, [o for o, u in _UNITS.items() if u == unit])
        if unit == ("us" if wrapper == "TimestampMicrosWrapper" else target.unit) != "ms":
            mine |= told == 0
        if mine.any():
            chosen = pc.if_else(pa.array(mine), values, None)
            yield chosen.cast(pa.timestamp(unit, target.tz))


def _decimals(values: pa.Array, ordinals: pa.Array, details: pa.Array) -> Iterator[pa.Array]:
    """Unscaled bytes: at scale 15 without a value type, else at the scale that it tells."""
    old = ordinals.is_null()
    yield decimals_of_bytes(pc.if_else(old, values, None), _SCALE_V1)
    for detail in details.filter(pc.invert(old)).unique().drop_null().to_pylist():
        scale = detail.rpartition(",")[2].strip()
        if scale.isascii() and scale.isdigit() and len(scale) < 3 and int(scale) <= 38:
            chosen = pc.and_(pc.invert(old), pc.equal(details, detail))
            yield decimals_of_bytes(pc.if_else(chosen, values, None), int(scale))


def decimals_of_bytes(values: pa.BinaryArray, scale: int) -> pa.Array:
    """Big-endian two's complement numbers as decimals; null for more than 16 bytes or none."""
    rows = ByteRows.of(values)
    usable = (rows.lengths > 0) & (rows.lengths <= _DECIMAL_BYTES)
    sign = np.zeros(len(rows), np.uint8)
    sign[usable] = np.where(rows.data[rows.starts[usable]] & 0x80, 0xFF, 0)
    little = np.repeat(sign[:, None], _DECIMAL_BYTES, axis=1)
    for place in range(_DECIMAL_BYTES):
        some = np.flatnonzero(usable & (rows.lengths > place))
        little[some, place] = rows.data[(rows.starts + rows.lengths)[some] - 1 - place]
    validity = pa.py_buffer(np.packbits(usable, bitorder="little"))
    buffers = [validity, pa.py_buffer(little)]
    return pa.Array.from_buffers(pa.decimal128(38, scale), len(values), buffers)
