"""Arrow types as callers bring them, and the types they are stored as.

Arrow has several types for the same values (large and viewed text, dictionaries, small and unsigned
integers, several units of time); tables have one. `stored_type` says which, or refuses a type that
no Hudi table can hold. `exact_cast` brings the values over, and never changes one silently: what
does not fit is an `InputError` with the column, before anything is published.

Unlike the rules for reading old files (`type_promotion`) nothing is reinterpreted, rounded or
turned into text here.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pt

from lakewright.errors import InputError, SchemaError
from lakewright.format.type_promotion import Kernel, Place

__all__ = ["exact_cast", "fits_into", "stored_type"]

DECIMAL_DIGITS_MAX = 38
LONG_DIGITS = 19

_SAME: dict[pa.DataType, pa.DataType] = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time32("ms"),
    pa.time64("ns"): pa.time64("us"),
}
_AS_THEY_ARE = (
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.time32("ms"),
    pa.time64("us"),
    pa.null(),
)


_Wrapper = tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType], Kernel]
_WRAPPERS: tuple[_Wrapper, ...] = (
    (lambda t: isinstance(t, pa.BaseExtensionType), lambda t: t.storage_type, lambda a: a.storage),
    (pt.is_dictionary, lambda t: t.value_type, lambda a: a.dictionary_decode()),
)
"""Types around other types: how to tell, what is inside, how to get there."""


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """The type that values of `kind` are stored as; `SchemaError` if there is none."""
    kind = _unwrapped(kind)
    if kind in _AS_THEY_ARE:
        return kind
    if kind in _SAME:
        return _SAME[kind]
    if pt.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        if not fields:
            raise _refused(column, kind, "A struct without fields cannot be stored; leave it out.")
        return pa.struct([_stored_field(f, f"{column}.{f.name}") for f in fields])
    if pt.is_map(kind):
        if stored_type(kind.key_type, column) != pa.string():
            raise _refused(column, kind, "Keys of maps are text; turn them into strings.")
        return pa.map_(pa.string(), _stored_field(kind.item_field, f"{column}.value"))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        element = _stored_field(kind.value_field, f"{column}.element")
        return pa.list_(element.with_name("element"))
    return _stored_scalar(kind, column)


def _stored_scalar(kind: pa.DataType, column: str) -> pa.DataType:
    if pt.is_timestamp(kind):
        unit = "ms" if kind.unit == "ms" else "us"
        return pa.timestamp(unit, None if kind.tz is None else "UTC")
    if pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_decimal(kind):
        if kind.precision > DECIMAL_DIGITS_MAX or kind.scale < 0:
            raise _refused(column, kind, "Decimals have at most 38 digits and no negative scale.")
        return pa.decimal128(kind.precision, kind.scale)
    if kind == pa.uint64():
        raise _refused(column, kind, "Cast it to int64, or to decimal128(20, 0) for all values.")
    if pt.is_duration(kind) or pt.is_interval(kind):
        raise _refused(column, kind, "Store spans of time as int64 with a unit of your choice.")
    raise _refused(column, kind, "Cast it to a type that tables have, or leave the column out.")


def fits_into(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of a stored type may be written to a column of another without changing it.

    Values are still checked one by one by `exact_cast` where the type alone does not tell.
    """
    if source == target or pt.is_null(source):
        return True
    if pt.is_integer(source):
        wider = pt.is_integer(target) and source.bit_width < target.bit_width
        return bool(wider or pt.is_floating(target) or pt.is_decimal(target))
    if pt.is_timestamp(source) and pt.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    alike: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]]] = [
        (lambda t: t == pa.float32(), lambda t: t == pa.float64()),
        (pt.is_string, pt.is_binary),
        (pt.is_binary, pt.is_string),
        (pt.is_binary, pt.is_fixed_size_binary),
        (pt.is_decimal, pt.is_decimal),
        (pt.is_time, pt.is_time),
    ]
    return any(have(source) and want(target) for have, want in alike)


def exact_cast(source: pa.DataType, target: pa.DataType, place: Place) -> Kernel | None:
    """How values of any incoming type become values of `target`, every one of them unchanged."""
    if source == target:
        return None
    for is_wrapped, value_type, unwrap in _WRAPPERS:
        if is_wrapped(source):
            return _after(unwrap, exact_cast(value_type(source), target, place))
    if not fits_into(stored_type(source, place.column), target):
        raise misfit(place.column, source, target)
    return _checked(_kernel(source, target), source, target, place.column)


def misfit(column: str, source: pa.DataType, target: pa.DataType) -> SchemaError:
    """The error for rows of a type that the table's column cannot take."""
    return SchemaError(
        f"Column {column} is {target} in the table; rows with {source} cannot be written to it.",
        hint=f"Cast the column to {target}, or write it under another name.",
        context={"column": column, "table": str(target), "incoming": str(source)},
    )


def _kernel(source: pa.DataType, target: pa.DataType) -> Kernel:
    if pt.is_date64(source):
        return _whole_days
    if pt.is_integer(source) and pt.is_decimal(target):
        digits = LONG_DIGITS + target.scale
        wide = pa.decimal128 if digits <= DECIMAL_DIGITS_MAX else pa.decimal256
        through = wide(digits, target.scale)
        return lambda array: array.cast(pa.int64()).cast(through).cast(target)
    if pt.is_fixed_size_binary(source) and pt.is_string(target):
        return lambda array: array.cast(pa.binary()).cast(target)
    return lambda array: array.cast(target)


def _whole_days(array: pa.Array) -> pa.Array:
    days = array.cast(pa.date32())
    if not days.cast(pa.date64()).equals(array):
        raise ValueError("a date has a time of day")
    return days


def _checked(kernel: Kernel, source: pa.DataType, target: pa.DataType, column: str) -> Kernel:
    def apply(array: pa.Array) -> pa.Array:
        try:
            return kernel(array)
        except (pa.ArrowException, ValueError) as error:
            raise InputError(
                f"A value of column {column} ({source}) does not fit {target}: {error}.",
                hint="Correct or round the values before writing them; nothing was written.",
                context={"column": column, "table": str(target), "incoming": str(source)},
            ) from error

    return apply


def _stored_field(field: pa.Field, column: str) -> pa.Field:
    return pa.field(field.name, stored_type(field.type, column), nullable=field.nullable)


def _unwrapped(kind: pa.DataType) -> pa.DataType:
    for is_wrapped, value_type, _ in _WRAPPERS:
        if is_wrapped(kind):
            return _unwrapped(value_type(kind))
    return kind


def _after(first: Kernel, then: Kernel | None) -> Kernel:
    return first if then is None else lambda array: then(first(array))


def _refused(column: str, kind: pa.DataType, hint: str) -> SchemaError:
    return SchemaError(
        f"Column {column} has the type {kind}, which no table can hold.",
        hint=hint,
        context={"column": column, "incoming": str(kind)},
    )
