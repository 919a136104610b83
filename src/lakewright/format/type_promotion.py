"""Values of an older type as values of a newer one: the type changes that Hudi allows, on columns.

One place holds the rules of schema evolution for values that are not nested. Widening is numeric
(but float to double goes through decimal text), numbers become text as Java writes them, text
becomes dates, and text or numbers become decimals rounded half up. A logical type that a writer
lost or damaged is restored by reinterpreting the stored integers: long where the table says
timestamp, int where it says date, and microseconds where the table says milliseconds and both are
in UTC, because older releases stored milliseconds under that annotation. Everything else is refused
with a `SchemaError` when the conversion is compiled; a value that does not fit, when it is applied.

Guarantees: nulls stay null, lengths never change, equal types cost nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.errors import SchemaError
from lakewright.format.java_text import (
    date_text,
    decimal_text,
    floating_text,
    widened_through_text,
)

__all__ = ["Kernel", "Place", "promotion"]

Kernel = Callable[[pa.Array], pa.Array]

TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DECIMAL_DIGITS = 76
LONG_DIGITS = 19
JAVA_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """The column a conversion is for, with its full dotted name."""

    column: str

    def impossible(self, source: pa.DataType, target: pa.DataType) -> SchemaError:
        """The error for a type change that no value survives."""
        return SchemaError(
            f"Column {self.column} is stored as {source} and cannot be read as {target}.",
            hint="The table's schema changed in a way Hudi does not allow; read as of an instant "
            "before the change, or rewrite the files with the new type.",
            context={"column": self.column, "stored": str(source), "wanted": str(target)},
        )

    def unfit(self, source: pa.DataType, target: pa.DataType, why: object) -> SchemaError:
        """The error for a value that does not fit the new type."""
        return SchemaError(
            f"A value of column {self.column}, stored as {source}, does not fit {target}: {why}.",
            hint="Read as of an instant before the type change, or rewrite the value.",
            context={"column": self.column, "stored": str(source), "wanted": str(target)},
        )


def promotion(source: pa.DataType, target: pa.DataType, place: Place) -> Kernel | None:
    """How values of `source` become values of `target`; None where they are the same already."""
    if source == target:
        return None
    if pt.is_null(source):
        return lambda array: pa.nulls(len(array), target)
    if pt.is_dictionary(source):
        return _decoded(promotion(source.value_type, target, place))
    for rule in (_to_text, _to_bytes, _to_integer, _to_floating, _to_decimal, _to_temporal):
        kernel = rule(source, target)
        if kernel is not None:
            return _checked(kernel, source, target, place)
    raise place.impossible(source, target)


def _decoded(inner: Kernel | None) -> Kernel:
    if inner is None:
        return lambda array: array.dictionary_decode()
    return lambda array: inner(array.dictionary_decode())


def _checked(kernel: Kernel, source: pa.DataType, target: pa.DataType, place: Place) -> Kernel:
    def apply(array: pa.Array) -> pa.Array:
        try:
            return kernel(array)
        except (pa.ArrowException, ValueError, ArithmeticError) as error:
            raise place.unfit(source, target, error) from error

    return apply


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pt.is_binary(kind)
        or pt.is_large_binary(kind)
        or pt.is_binary_view(kind)
        or pt.is_fixed_size_binary(kind)
    )


def _is_java_floating(kind: pa.DataType) -> bool:
    return kind in (pa.float32(), pa.float64())


def _cast(target: pa.DataType, *, safe: bool = True) -> Kernel:
    return lambda array: array.cast(target, safe=safe)


def _reinterpreted(target: pa.DataType) -> Kernel:
    return lambda array: array.view(target)


def _then(*kernels: Kernel) -> Kernel:
    def apply(array: pa.Array) -> pa.Array:
        for kernel in kernels:
            array = kernel(array)
        return array

    return apply


def _to_text(source: pa.DataType, target: pa.DataType) -> Kernel | None:
    if not _is_text(target):
        return None
    if _is_text(source) or pt.is_integer(source):
        return _cast(target)
    makers: list[tuple[Callable[[pa.DataType], bool], Kernel]] = [
        (_is_bytes, _utf8_text),
        (_is_java_floating, floating_text),
        (pt.is_decimal, decimal_text),
        (pt.is_date32, date_text),
    ]
    for fits, kernel in makers:
        if fits(source):
            return kernel if target == pa.string() else _then(kernel, _cast(target))
    return None


def _utf8_text(array: pa.Array) -> pa.Array:
    """Bytes as UTF-8; bytes that are not become U+FFFD, as in Java."""
    plain = array.cast(pa.binary())
    try:
        return plain.cast(pa.string())
    except pa.ArrowInvalid:
        # Bounded by one damaged batch; such columns hold bytes that never were text.
        texts = [None if v is None else v.decode("utf-8", "replace") for v in plain.to_pylist()]
        return pa.array(texts, pa.string())


def _to_bytes(source: pa.DataType, target: pa.DataType) -> Kernel | None:
    if not _is_bytes(target) or pt.is_decimal(source):
        return None
    if _is_text(source) and not pt.is_fixed_size_binary(target):
        return _cast(target)
    return _cast(target) if _is_bytes(source) else None


def _to_integer(source: pa.DataType, target: pa.DataType) -> Kernel | None:
    if not pt.is_signed_integer(target):
        return None
    if pt.is_integer(source):
        spare = source.bit_width < target.bit_width
        widens = spare or (pt.is_signed_integer(source) and source.bit_width == target.bit_width)
        return _cast(target) if widens else None
    stored_as = _stored_integer(source)
    if stored_as is None or stored_as.bit_width > target.bit_width:
        return None
    raw = _reinterpreted(stored_as)
    return raw if stored_as == target else _then(raw, _cast(target))


def _stored_integer(kind: pa.DataType) -> pa.DataType | None:
    """The integer that a date, time or timestamp is stored as."""
    if pt.is_date32(kind) or pt.is_time32(kind):
        return pa.int32()
    if pt.is_timestamp(kind) or pt.is_time64(kind):
        return pa.int64()
    return None


def _to_floating(source: pa.DataType, target: pa.DataType) -> Kernel | None:
    if target not in (pa.float32(), pa.float64()):
        return None
    if pt.is_integer(source):
        return _cast(target, safe=False)
    if source == pa.float16():
        return _cast(target)
    return widened_through_text if source == pa.float32() else None


def _to_decimal(source: pa.DataType, target: pa.DataType) -> Kernel | None:
    if not pt.is_decimal(target):
        return None
    if pt.is_decimal(source):
        return _cast(target)
    if pt.is_integer(source):
        digits = LONG_DIGITS + target.scale
        wide = pa.decimal128(digits, target.scale) if digits <= 38 else None
        wide = wide or pa.decimal256(min(digits, DECIMAL_DIGITS), target.scale)
        return _then(_cast(pa.int64()), _cast(wide), _cast(target))
    if _is_java_floating(source):
        return _then(floating_text, partial(_parsed_decimals, target=target))
    return partial(_parsed_decimals, target=target) if _is_text(source) else None


def _parsed_decimals(array: pa.Array, *, target: pa.DataType) -> pa.Array:
    encoded = array.dictionary_encode()
    unit = Decimal(1).scaleb(-target.scale)
    with localcontext() as context:
        context.prec = DECIMAL_DIGITS
        context.rounding = ROUND_HALF_UP
        # Bounded by the distinct values of a column whose type was changed.
        values = [_parsed_decimal(text, unit) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, target).take(encoded.indices)


def _parsed_decimal(text: str, unit: Decimal) -> Decimal:
    if JAVA_DECIMAL.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a number")
    try:
        return Decimal(text).quantize(unit)
    except InvalidOperation:
        raise ValueError(f"{text!r} has too many digits") from None


def _to_temporal(source: pa.DataType, target: pa.DataType) -> Kernel | None:
    if pt.is_date32(target):
        return _to_date(source, target)
    if pt.is_timestamp(target):
        return _to_timestamp(source, target)
    if pt.is_time32(target) or pt.is_time64(target):
        return _to_time(source, target)
    return None


def _to_date(source: pa.DataType, target: pa.DataType) -> Kernel | None:
    if source == pa.int32():
        return _reinterpreted(target)
    if pt.is_date64(source):
        return _cast(target)
    return _then(_padded_date, _cast(target)) if _is_text(source) else None


def _padded_date(array: pa.Array) -> pa.Array:
    """`2024-3-7` as `2024-03-07`; Java reads both."""
    month = pc.replace_substring_regex(array, r"^(\d{4})-(\d)-", r"\1-0\2-")
    return pc.replace_substring_regex(month, r"^(\d{4}-\d{2})-(\d)$", r"\1-0\2")


def _to_timestamp(source: pa.DataType, target: pa.DataType) -> Kernel | None:
    if source == pa.int64():
        return _reinterpreted(target)
    if not pt.is_timestamp(source):
        return None
    zoned = source.tz is not None and target.tz is not None
    if zoned and (source.unit, target.unit) == ("us", "ms"):
        return _reinterpreted(target)
    return _then(_reinterpreted(pa.int64()), _rescaled(source, target), _reinterpreted(target))


def _to_time(source: pa.DataType, target: pa.DataType) -> Kernel | None:
    if source == _stored_integer(target):
        return _reinterpreted(target)
    if not (pt.is_time32(source) or pt.is_time64(source)):
        return None
    raw = _then(_reinterpreted(_stored_integer(source)), _cast(pa.int64()))
    return _then(
        raw, _rescaled(source, target), _cast(_stored_integer(target)), _reinterpreted(target)
    )


def _rescaled(source: pa.DataType, target: pa.DataType) -> Kernel:
    """int64 ticks of one unit as ticks of another; coarser units take the floor."""
    have, want = TICKS_PER_SECOND[source.unit], TICKS_PER_SECOND[target.unit]
    if want > have:
        return lambda array: pc.multiply_checked(array, want // have)
    if want == have:
        return lambda array: array

    def floored(array: pa.Array) -> pa.Array:
        ticks = array.fill_null(0).to_numpy(zero_copy_only=False)
        mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        return pa.array(np.floor_divide(ticks, have // want), pa.int64(), mask=mask)

    return floored
