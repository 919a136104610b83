"""Numbers, dates and times as Java's `toString` writes them, on whole columns.

Record keys, partition paths and number-to-string schema changes hold such text on disk, so it must
agree with the JVM to the letter. Floating point follows the releases up to Java 18, on which Hudi
runs: their digits are the shortest ones except for powers of two, subnormal numbers and whole
numbers beyond the mantissa, and those few are worked out one distinct value at a time.

Guarantees: nulls stay null; every function takes any slice of an array and returns `string` (or
`float64`). Nothing here depends on the machine's zone or locale.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.format.java_digits import DOUBLE, SINGLE, Layout, java_text
from lakewright.format.zones import local_times

__all__ = [
    "date_text",
    "decimal_text",
    "floating_text",
    "hex_text",
    "sql_timestamp_text",
    "widened_through_text",
]

PLAIN_FROM, PLAIN_BELOW = 1e-3, 1e7
"""Magnitudes that Java writes without an exponent."""
LAST_PLAIN_DAY = 2_932_896
"""The last day of the year 9999."""
HEX_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def floating_text(array: pa.Array) -> pa.Array:
    """`Float.toString` or `Double.toString` of a float32 or float64 array."""
    layout = SINGLE if array.type == pa.float32() else DOUBLE
    valid = array.is_valid()
    values = array.fill_null(0.0).to_numpy(zero_copy_only=False)
    text = _shortest_text(pa.array(values, array.type), np.abs(values))
    odd = np.flatnonzero(_is_odd(values, layout))
    if len(odd):
        text = _patched(text, odd, _odd_text(values[odd], layout))
    return pc.if_else(valid, text, pa.scalar(None, pa.string()))


def widened_through_text(array: pa.Array) -> pa.Array:
    """float32 as float64 through its text, so that 1.1 stays 1.1."""
    finite = pc.is_finite(array)
    whole = pc.fill_null(pc.invert(finite), True)
    text = pc.if_else(whole, pa.scalar("0"), floating_text(array))
    return pc.if_else(whole, array.cast(pa.float64()), text.cast(pa.float64()))


def decimal_text(array: pa.Array) -> pa.Array:
    """`BigDecimal.toString` at the column's scale: an exponent only below 1E-6."""
    return array.cast(pa.string())


def date_text(array: pa.Array) -> pa.Array:
    """`LocalDate.toString` of a date32 array: years of more than four digits have a sign."""
    text = array.cast(pa.string())
    far = pc.greater(array.cast(pa.int32()), LAST_PLAIN_DAY)
    return pc.if_else(far, pc.binary_join_element_wise("+", text, ""), text)


def sql_timestamp_text(array: pa.Array, *, zone: str) -> pa.Array:
    """`java.sql.Timestamp.toString` in `zone`: cut to milliseconds, one digit or more."""
    unit = array.type.unit
    raw = array.cast(pa.int64())
    per_milli = {"us": 1_000, "ns": 1_000_000}.get(unit)
    if unit == "s":
        raw = pc.multiply_checked(raw, 1_000)
    elif per_milli is not None:
        raw = pc.divide(raw, per_milli)  # integer division cuts toward zero, as Java's does
    shown = local_times(raw, zone).cast(pa.timestamp("ms"))
    seconds = pc.floor_temporal(shown, unit="second").cast(pa.timestamp("s"))
    fraction = pc.millisecond(shown)
    digits = pc.utf8_rtrim(pc.utf8_lpad(fraction.cast(pa.string()), 3, "0"), "0")
    digits = pc.if_else(pc.equal(digits, ""), pa.scalar("0"), digits)
    moment = pc.strftime(seconds, format="%Y-%m-%d %H:%M:%S")
    return pc.binary_join_element_wise(moment, digits, ".")


def hex_text(array: pa.Array) -> pa.Array:
    """Two lower-case hex digits for each byte of a binary array."""
    plain = pa.concat_arrays([array.cast(pa.binary())])
    size = len(plain)
    _, offsets, content = plain.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32, count=plain.offset + size + 1)[plain.offset :]
    raw = np.frombuffer(content or b"", dtype=np.uint8)[ends[0] : ends[-1]]
    digits = np.empty((len(raw), 2), dtype=np.uint8)
    digits[:, 0] = HEX_DIGITS[raw >> 4]
    digits[:, 1] = HEX_DIGITS[raw & 15]
    text = pa.LargeStringArray.from_buffers(
        size, pa.py_buffer((ends - ends[0]).astype(np.int64) * 2), pa.py_buffer(digits)
    )
    return pc.if_else(plain.is_valid(), text.cast(pa.string()), pa.scalar(None, pa.string()))


def _shortest_text(values: pa.Array, magnitudes: np.ndarray) -> pa.Array:
    """Java's layout of the shortest digits that tell a value from its neighbours."""
    text = values.cast(pa.string())
    has_point = pc.match_substring(text, ".")
    plain = pc.if_else(has_point, text, pc.binary_join_element_wise(text, "0", "."))
    with np.errstate(invalid="ignore"):
        outside = (magnitudes < PLAIN_FROM) | (magnitudes >= PLAIN_BELOW)
    scientific = np.flatnonzero(outside & (magnitudes != 0))
    if len(scientific):
        plain = _patched(plain, scientific, _scientific(text.take(pa.array(scientific))))
    special = np.flatnonzero(~np.isfinite(magnitudes))
    if len(special):
        names = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        # Bounded by the count of NaN and infinite values.
        words = [names[t] for t in text.take(pa.array(special)).to_pylist()]
        plain = _patched(plain, special, pa.array(words, pa.string()))
    return plain


def _scientific(text: pa.Array) -> pa.Array:
    """`d.dddE±n` from `ddd.ddd` or `d.ddde±n`; what is no number comes back null."""
    parts = pc.extract_regex(
        text, r"^(?P<sign>-?)(?P<whole>\d+)(?:\.(?P<part>\d+))?(?:e(?P<power>[+-]?\d+))?$"
    )
    sign, whole, part, power = (pc.struct_field(parts, i) for i in range(4))
    all_digits = pc.binary_join_element_wise(whole, part, "")
    significant = pc.utf8_ltrim(all_digits, "0")
    leading_zeros = pc.subtract(pc.utf8_length(all_digits), pc.utf8_length(significant))
    powers = pc.if_else(pc.equal(power, ""), pa.scalar("0"), pc.utf8_ltrim(power, "+"))
    point = pc.subtract(pc.subtract(pc.utf8_length(whole), 1), leading_zeros)
    exponent = pc.add(powers.cast(pa.int32()), point)
    digits = pc.utf8_rtrim(significant, "0")
    rest = pc.utf8_slice_codeunits(digits, 1)
    rest = pc.if_else(pc.equal(rest, ""), pa.scalar("0"), rest)
    first = pc.binary_join_element_wise(sign, pc.utf8_slice_codeunits(digits, 0, 1), "")
    mantissa = pc.binary_join_element_wise(first, rest, ".")
    return pc.binary_join_element_wise(mantissa, exponent.cast(pa.string()), "E")


def _patched(text: pa.Array, rows: np.ndarray, patch: pa.Array) -> pa.Array:
    """`text` with `patch` in the given rows."""
    index = np.arange(len(text))
    index[rows] = len(text) + np.arange(len(rows))
    return pa.concat_arrays([text, patch]).take(pa.array(index))


def _is_odd(values: np.ndarray, layout: Layout) -> np.ndarray:
    """Values whose digits older Java releases do not choose as the shortest ones."""
    mantissa, exponent = np.frexp(np.abs(values))
    smallest_normal = 2 - layout.bias
    odd = (mantissa == 0.5) | (exponent < smallest_normal) | (exponent > layout.precision)
    return np.asarray(odd & np.isfinite(values) & (values != 0))


def _odd_text(values: np.ndarray, layout: Layout) -> pa.Array:
    distinct, inverse = np.unique(values, return_inverse=True)
    # Bounded by the distinct odd values of the column: powers of two, subnormal and huge numbers.
    texts = [java_text(float(v), layout) for v in distinct]
    return pa.array(texts, pa.string()).take(pa.array(inverse))
