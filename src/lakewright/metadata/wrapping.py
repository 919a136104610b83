"""Least and greatest values of columns in the wrappers that statistics store: index version 1.

The inverse of `bounds`: the column's type decides the wrapper, as Hudi 0.15 and 1.0 choose it. A
column whose type has no wrapper there (nested ones, decimals that do not fit 30 digits at scale 15)
has no statistics, and Hudi's readers know that it has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lakewright.codec.avro.arrow_types import arrow_type
from lakewright.codec.avro.types import Record, Union
from lakewright.errors import FormatError
from lakewright.metadata.bounds import WRAPPERS

__all__ = ["wrapped_bounds", "wrapped_column", "wrapper_of"]

_DECIMAL: Final = WRAPPERS["DecimalWrapper"]


def wrapper_of(kind: pa.DataType) -> str | None:
    """The wrapper of bounds of a column of this type; None if such columns have none."""
    if pt.is_decimal(kind):
        fits = kind.scale <= _DECIMAL.scale
        digits = kind.precision + _DECIMAL.scale - kind.scale
        return "DecimalWrapper" if fits and digits <= _DECIMAL.precision else None
    return next((name for name, holds in _RULES if holds(kind)), None)


_RULES: Final = (
    ("BooleanWrapper", pt.is_boolean),
    ("DateWrapper", pt.is_date32),
    ("IntWrapper", lambda t: pt.is_signed_integer(t) and t.bit_width <= 32),
    ("LongWrapper", pt.is_int64),
    ("IntWrapper", pt.is_time32),
    ("LongWrapper", pt.is_time64),
    ("LongWrapper", pt.is_timestamp),
    ("FloatWrapper", pt.is_float32),
    ("DoubleWrapper", pt.is_float64),
    ("StringWrapper", lambda t: pt.is_string(t) or pt.is_large_string(t)),
    ("BytesWrapper", lambda t: pt.is_binary(t) or pt.is_large_binary(t)),
)
"""Numbers of dates, times and timestamps are stored as the column stores them."""


def wrapped_bounds(pieces: Sequence[pa.Array]) -> dict[str, pa.Array]:
    """Bounds of several columns, one behind the other, in each wrapper that they use.

    The columns of wrappers are as long as all pieces together, and null where another one is used.
    """
    wrappers = [_require_wrapper(piece.type) for piece in pieces]
    out = {}
    for wrapper in dict.fromkeys(wrappers):
        kind = WRAPPERS[wrapper]
        stored = [
            _stored(piece, kind) if own == wrapper else pa.nulls(len(piece), kind)
            for piece, own in zip(pieces, wrappers, strict=True)
        ]
        out[wrapper] = pa.concat_arrays(stored)
    return out


def wrapped_column(union: Union, bounds: Mapping[str, pa.Array], count: int) -> pa.StructArray:
    """A column of the union of wrappers, from bounds by wrapper; null where none has one."""
    kind = arrow_type(union)
    named = [b.name.rpartition(".")[2] for b in union.branches if isinstance(b, Record)]
    members = []
    missing = np.ones(count, np.bool_)
    for name, field in zip(named, kind, strict=True):
        values = bounds.get(name)
        if values is None:
            members.append(pa.nulls(count, field.type))
            continue
        absent = values.is_null()
        missing &= np.asarray(absent)
        inner = values.cast(field.type.field("value").type)
        members.append(pa.StructArray.from_arrays([inner], names=["value"], mask=absent))
    return pa.StructArray.from_arrays(
        members, names=[f.name for f in kind], mask=pa.array(missing, pa.bool_())
    )


def _require_wrapper(kind: pa.DataType) -> str:
    wrapper = wrapper_of(kind)
    if wrapper is None:
        raise FormatError(
            f"Bounds of type {kind} have no place in statistics of columns.",
            hint="Leave the column out of the indexed columns.",
        )
    return wrapper


def _stored(bounds: pa.Array, target: pa.DataType) -> pa.Array:
    """The numbers, texts or bytes that are stored for bounds."""
    kind = bounds.type
    if pt.is_temporal(kind) and pt.is_integer(target):
        return bounds.view(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(target)
    return bounds.cast(target)
