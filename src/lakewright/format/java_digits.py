"""The decimal digits that Java releases up to 18 choose for one floating point number.

Those releases write whole numbers that fit a long with all digits above the precision, and develop
other numbers digit by digit until the rest lies within half a unit in the last place: half of the
narrower gap for powers of two, at least two places where an exponent is written (the first one
counts even if the estimate of the magnitude was one too high and it is a leading zero). The last
comparison is made in 32 or 64 bits where the scaled numbers fit, and then may overflow. Record keys
written by a JVM hold all of this, so it is followed to the letter; Java 19 writes shortest digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LARGEST_LONG_EXPONENT = 62
LOG10_2 = math.log10(2)


@dataclass(frozen=True, slots=True)
class Layout:
    """One IEEE 754 format."""

    mantissa_bits: int
    """Stored bits; one more is implied in normal numbers."""
    bias: int

    @property
    def precision(self) -> int:
        """Bits of a normal number's mantissa."""
        return self.mantissa_bits + 1


SINGLE = Layout(23, 127)
DOUBLE = Layout(52, 1023)


def java_text(value: float, layout: Layout) -> str:
    """`Float.toString` or `Double.toString` of a finite number that is not zero."""
    sign = "-" if value < 0 else ""
    digits, point = java_digits(abs(value), layout)
    if 0 < point < 8:
        whole = digits[:point].ljust(point, "0")
        return f"{sign}{whole}.{digits[point:] or '0'}"
    if -3 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def java_digits(value: float, layout: Layout) -> tuple[str, int]:
    """Digits and the place of the point: the value is about 0.digits * 10**point."""
    numerator, denominator = value.as_integer_ratio()
    exponent = math.frexp(value)[1] - 1
    if denominator == 1 and exponent <= LARGEST_LONG_EXPONENT:
        return _whole_digits(numerator, exponent, layout)
    smallest_ulp = 1 - layout.bias - layout.mantissa_bits
    ulp_exponent = max(exponent - layout.mantissa_bits, smallest_ulp)
    power_of_two = numerator & (numerator - 1) == 0
    return _developed(numerator, denominator, ulp_exponent - 1 - power_of_two, exponent)


def _whole_digits(number: int, exponent: int, layout: Layout) -> tuple[str, int]:
    beyond = exponent - layout.precision - 1
    dropped = math.floor(beyond * LOG10_2) if beyond > 1 else 0
    scale: int = 10**dropped
    kept, residue = divmod(number, scale)
    kept += dropped > 0 and residue >= scale // 2
    digits = str(kept)
    return digits.rstrip("0"), len(digits) + dropped


def _estimated_power(mantissa: float, exponent: int) -> int:
    """The decimal exponent by a tangent of the logarithm; exact or one too high."""
    tangent = (mantissa - 1.5) * 0.289529654 + 0.176091259
    return math.floor(tangent + exponent * 0.301029995663981)


def _developed(
    numerator: int, denominator: int, margin_exponent: int, exponent: int
) -> tuple[str, int]:
    leading = numerator / (1 << (numerator.bit_length() - 1))
    power = _estimated_power(leading, exponent)
    down: int = 10 ** max(-power, 0)
    up: int = 10 ** max(power, 0)
    shift = max(-margin_exponent, 0)
    rest = numerator * down << shift
    unit = denominator * up << shift
    margin = denominator * down << (shift + margin_exponent)
    common = min(map(_trailing_zeros, (rest, unit, margin)))
    rest, unit, margin = rest >> common, unit >> common, margin >> common
    width = _machine_width(rest, 10 * unit)
    digits, low, high = "", False, False
    place = 0
    while not (low or high):
        digit, rest = divmod(rest, unit)
        rest, margin = rest * 10, _wrapped(margin * 10, width)
        low = margin <= 0 or rest < margin
        reach = _wrapped(rest + margin, width)
        high = margin <= 0 or reach > 10 * unit or (width is None and reach == 10 * unit)
        if place == 0:
            power -= digit == 0
            if not -3 <= power < 8:
                low = high = False
        place += 1
        digits += str(digit) if digits or digit else ""
    tie = _wrapped(_wrapped(2 * rest, width) - 10 * unit, width)
    if high and (not low or tie > 0 or (tie == 0 and int(digits[-1]) % 2 == 1)):
        return _rounded_up(digits, power)
    return digits, power + 1


def _rounded_up(digits: str, power: int) -> tuple[str, int]:
    text = str(int(digits or "0") + 1)
    if len(text) > len(digits):
        return text[: max(len(digits), 1)], power + 2
    return text, power + 1


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1


def _machine_width(rest: int, ten_units: int) -> int | None:
    """Bits of the machine integers that hold the scaled numbers; None where none do."""
    bits = max(rest.bit_length(), ten_units.bit_length())
    return 32 if bits < 32 else 64 if bits < 64 else None


def _wrapped(number: int, width: int | None) -> int:
    if width is None:
        return number
    half = 1 << (width - 1)
    return (number + half) % (2 * half) - half
