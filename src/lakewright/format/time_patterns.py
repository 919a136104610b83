"""Joda-Time patterns on columns: local times to text and back.

Time-based partitions are named by such patterns (`yyyy/MM/dd`, `hh` for the clock hour 1 to 12,
`'T'` for quoted text). A pattern is compiled once; letters that no partition uses (eras, zone
names) are refused with a `ConfigError` that names them, never guessed. Times here are local:
milliseconds since 1970 as a clock in some zone shows them; zones are the caller's business.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.errors import ConfigError

__all__ = ["ParsedTimes", "TimePattern", "compile_pattern"]

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_NUMBERS = "yYxMdDHhKkmsSwe"
_WIDEST = {"y": 9, "Y": 9, "x": 9, "D": 3}
_FORMATTED_ONLY = "xweE"
"""Letters that text is made with but never read by."""
_MONTHS = tuple(calendar.month_name[1:])
_DAYS = tuple(calendar.day_name)


@dataclass(frozen=True, slots=True)
class _Part:
    """A run of one letter, or literal text (`letter` empty)."""

    letter: str
    count: int
    text: str = ""

    @property
    def is_number(self) -> bool:
        name_of_month = self.letter == "M" and self.count > 2
        return bool(self.letter) and self.letter in _NUMBERS and not name_of_month


@dataclass(frozen=True, slots=True)
class ParsedTimes:
    """Rows that a pattern could read."""

    local_ms: pa.Array
    """int64, null where the text does not follow the pattern."""
    offset_minutes: pa.Array | None
    """int64, null where the text has no offset; None if the pattern has none."""


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A compiled pattern."""

    text: str
    parts: tuple[_Part, ...]

    def format(self, local_ms: pa.Array, offset_minutes: pa.Array | None = None) -> pa.Array:
        """Local times as text; offsets are needed only where the pattern writes them."""
        moments = local_ms.cast(pa.timestamp("ms"))
        pieces = [self._piece(part, moments, local_ms, offset_minutes) for part in self.parts]
        if not pieces:
            return pa.array([""] * len(local_ms), pa.string())
        joined = pc.binary_join_element_wise(*pieces, "")
        return joined if isinstance(joined, pa.Array) else pa.repeat(joined, len(local_ms))

    def parse(self, text: pa.Array) -> ParsedTimes:
        """Text as local times; what does not follow the whole pattern is null."""
        groups = [p for p in self.parts if p.letter]
        unread = next((p for p in groups if p.letter in _FORMATTED_ONLY), None)
        if unread is not None:
            raise _unusable(self.text, f"the letter {unread.letter!r} cannot be read back")
        if any(p.letter in "yY" and p.count == 2 for p in groups):
            raise _unusable(self.text, "Java reads years of two digits by the current year")
        found = pc.extract_regex(text, self._regex())
        fields = {p.letter: (p, pc.struct_field(found, [i])) for i, p in enumerate(groups)}
        offset = fields.pop("Z", None)
        numbers = {letter: _parsed_number(*field) for letter, field in fields.items()}
        return ParsedTimes(
            _local_ms(numbers, len(text)), None if offset is None else _parsed_offset(offset[1])
        )

    def _piece(
        self,
        part: _Part,
        moments: pa.Array,
        local_ms: pa.Array,
        offset_minutes: pa.Array | None,
    ) -> pa.Array | pa.Scalar:
        if not part.letter:
            return pa.scalar(part.text)
        if part.letter == "Z":
            zeros = pa.array(np.zeros(len(local_ms), np.int64))
            return _offset_text(offset_minutes if offset_minutes is not None else zeros, part)
        if part.letter == "a":
            return pc.if_else(pc.less(pc.hour(moments), 12), pa.scalar("AM"), pa.scalar("PM"))
        if part.letter == "E":
            names = pa.array(_DAYS if part.count > 3 else [d[:3] for d in _DAYS])
            return names.take(pc.day_of_week(moments))
        if part.letter == "M" and part.count > 2:
            names = pa.array(_MONTHS if part.count > 3 else [m[:3] for m in _MONTHS])
            return names.take(pc.subtract(pc.month(moments), 1))
        if part.letter == "S":
            millis = pc.utf8_lpad(pc.millisecond(moments).cast(pa.string()), 3, "0")
            return pc.utf8_slice_codeunits(pc.utf8_rpad(millis, part.count, "0"), 0, part.count)
        number = _FIELDS[part.letter](moments)
        if part.letter in "yYx" and part.count == 2:
            number = pc.subtract(number, pc.multiply(pc.divide(number, 100), 100))
        return pc.utf8_lpad(number.cast(pa.string()), part.count, "0")

    def _regex(self) -> str:
        pieces = []
        for i, part in enumerate(self.parts):
            if not part.letter:
                pieces.append(re.escape(part.text))
                continue
            after = self.parts[i + 1] if i + 1 < len(self.parts) else None
            pieces.append(f"(?P<g{i}>{_part_regex(part, after is not None and after.is_number)})")
        return "^" + "".join(pieces) + "$"


@lru_cache(maxsize=64)
def compile_pattern(text: str) -> TimePattern:
    """Compile a Joda-Time pattern."""
    parts: list[_Part] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _unusable(text, "a quote is not closed")
        at = found.end()
        quoted, letter = found[1], found[2]
        if quoted is not None:
            parts.append(_Part("", 0, quoted.replace("''", "'") if quoted else "'"))
        elif letter is None:
            parts.append(_Part("", 0, found[0]))
        elif letter in _NUMBERS or letter in "ZaE":
            parts.append(_Part(letter, len(found[0])))
        else:
            raise _unusable(text, f"the letter {letter!r} has no meaning for partitions")
    return TimePattern(text, tuple(parts))


_FIELDS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "y": pc.year,
    "Y": pc.year,
    "x": pc.iso_year,
    "M": pc.month,
    "d": pc.day,
    "D": pc.day_of_year,
    "H": pc.hour,
    "k": lambda m: pc.add(_modulo(pc.subtract(pc.hour(m), 1), 24), 1),
    "K": lambda m: _modulo(pc.hour(m), 12),
    "h": lambda m: pc.add(_modulo(pc.subtract(pc.hour(m), 1), 12), 1),
    "m": pc.minute,
    "s": pc.second,
    "w": pc.iso_week,
    "e": lambda m: pc.add(pc.day_of_week(m), 1),
}


def _modulo(number: pa.Array, base: int) -> pa.Array:
    lifted = pc.add(number, base)
    return pc.subtract(lifted, pc.multiply(pc.divide(lifted, base), base))


def _part_regex(part: _Part, number_follows: bool) -> str:
    if part.letter == "Z":
        return r"Z|[+-][0-9]{2}:?[0-9]{2}"
    if part.letter == "a":
        return r"(?i:AM|PM)"
    if part.letter == "M" and part.count > 2:
        return "(?i:" + "|".join(f"{m}|{m[:3]}" for m in _MONTHS) + ")"
    if number_follows:
        return f"[0-9]{{{part.count}}}"
    widest = part.count if part.letter == "S" else _WIDEST.get(part.letter, 2)
    return f"[0-9]{{1,{max(widest, part.count)}}}"


def _parsed_number(part: _Part, text: pa.Array) -> pa.Array:
    if part.letter == "a":
        return pc.equal(pc.utf8_upper(text), "PM").cast(pa.int64())
    if part.letter == "M" and part.count > 2:
        short = pc.utf8_lower(pc.utf8_slice_codeunits(text, 0, 3))
        index = pc.index_in(short, pa.array([m[:3].lower() for m in _MONTHS]))
        return pc.add(index.cast(pa.int64()), 1)
    if part.letter == "S":
        return pc.utf8_slice_codeunits(pc.utf8_rpad(text, 3, "0"), 0, 3).cast(pa.int64())
    return text.cast(pa.int64())


def _local_ms(numbers: dict[str, pa.Array], rows: int) -> pa.Array:
    """Fields to milliseconds; null where a field is missing or no calendar has it."""
    if not numbers:
        return pa.nulls(rows, pa.int64())

    def of(letters: str, default: int) -> np.ndarray:
        for letter in letters:
            if letter in numbers:
                array = numbers[letter].fill_null(default)
                return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.int64)
        return np.full(rows, default, dtype=np.int64)

    year, month, day, ordinal = of("yY", 1970), of("M", 1), of("d", 1), of("D", 1)
    minute, second = of("m", 0), of("s", 0)
    clock_12 = "h" in numbers or "K" in numbers
    hour = of("hK", 0) % 12 + 12 * of("a", 0) if clock_12 else of("Hk", 0) % 24
    wrong = (month < 1) | (month > 12) | (year > 9999) | (of("Hk", 0) > 24) | (of("hK", 0) > 12)
    months = (year - 1970) * 12 + np.where(wrong, 1, month) - 1
    start, following = (_first_day(months), _first_day(months + 1))
    wrong |= (day < 1) | (day > following - start) | (ordinal < 1) | (ordinal > 366)
    wrong |= (minute > 59) | (second > 59)
    days = start + (day - 1) + (ordinal - 1)
    total = ((days * 24 + hour) * 60 + minute) * 60 + second
    first = next(iter(numbers.values()))
    missing = first.is_null().to_numpy(zero_copy_only=False)
    return pa.array(total * 1000 + of("S", 0), pa.int64(), mask=missing | wrong)


def _first_day(months: np.ndarray) -> np.ndarray:
    """Days since 1970 of the first day of months since 1970."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _parsed_offset(text: pa.Array) -> pa.Array:
    digits = pc.replace_substring_regex(text, r"^([+-])(\d{2}):?(\d{2})$", r"\1\2\3")
    number = pc.if_else(pc.equal(digits, "Z"), pa.scalar("0"), pc.utf8_ltrim(digits, "+"))
    found = number.cast(pa.int64())
    hours = pc.divide(found, 100)
    return pc.add(pc.multiply(hours, 60), pc.subtract(found, pc.multiply(hours, 100)))


def _offset_text(minutes: pa.Array, part: _Part) -> pa.Array:
    sign = pc.if_else(pc.less(minutes, 0), pa.scalar("-"), pa.scalar("+"))
    size = pc.abs(minutes)
    hours = pc.divide(size, 60)
    rest = pc.subtract(size, pc.multiply(hours, 60))
    texts = [pc.utf8_lpad(n.cast(pa.string()), 2, "0") for n in (hours, rest)]
    colon = ":" if part.count > 1 else ""
    clock = pc.binary_join_element_wise(*texts, colon)
    return pc.binary_join_element_wise(sign, clock, "")


def _unusable(pattern: str, why: str) -> ConfigError:
    return ConfigError(
        f"The time pattern {pattern!r} cannot be used: {why}.",
        hint="Use Joda-Time letters for years to milliseconds, such as yyyy/MM/dd/HH.",
        context={"pattern": pattern},
    )
