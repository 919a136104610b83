"""Instant times: the text of moments on a timeline, and what callers may say for a moment.

An instant time is `yyyyMMddHHmmssSSS` (17 digits; 14 before Hudi 0.10, longer with a suffix in
metadata tables of version 6) in the zone of the table. Instants are compared as text everywhere;
only showing them, ageing them and `as_of` need the moment behind the text. Zones are parameters:
`LOCAL_ZONE` is the machine's own, with its daylight-saving rules, which is what tables that store
`LOCAL` mean. Every other digit text is a legal instant that has no moment.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo

from lakewright.errors import InstantNotFoundError

__all__ = ["LOCAL_ZONE", "LocalZone", "as_of_time", "format_time", "parse_time", "time_ms"]

_SECONDS_DIGITS = 14
_MILLIS_DIGITS = 17
_DIGITS = re.compile(r"[0-9]+")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DATE_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(Z|[+-]\d{2}:?\d{2})?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LocalZone(tzinfo):
    """The zone of this machine at each moment, unlike a fixed offset taken once."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        """Offset of the machine's clock at the wall time `dt`."""
        wall = dt or datetime(1970, 1, 1)
        return wall.replace(tzinfo=None).astimezone().utcoffset() or timedelta(0)

    def dst(self, dt: datetime | None) -> timedelta | None:  # noqa: ARG002
        """Not told apart from the offset."""
        return None

    def tzname(self, dt: datetime | None) -> str:  # noqa: ARG002
        """The name that table properties use."""
        return "LOCAL"

    def fromutc(self, dt: datetime) -> datetime:
        """The wall time of a moment given in UTC."""
        local = dt.replace(tzinfo=UTC).astimezone()
        return local.replace(tzinfo=self)

    def __repr__(self) -> str:
        return "LocalZone()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalZone)

    def __hash__(self) -> int:
        return hash(LocalZone)


LOCAL_ZONE = LocalZone()
"""The machine's zone."""


def format_time(moment_ms: int, *, zone: tzinfo) -> str:
    """The 17-digit instant time of a moment in epoch milliseconds."""
    if isinstance(zone, LocalZone):
        # The C library's local time is several times faster than a Python tzinfo.
        moment = datetime.fromtimestamp(moment_ms // 1000)
    else:
        moment = datetime.fromtimestamp(moment_ms // 1000, zone)
    return _text(moment, moment_ms % 1000)


def parse_time(instant: str, *, zone: tzinfo) -> datetime | None:
    """The moment of an instant time; None for digits that are no date.

    14 digits mean the end of that second; of longer texts the first 17 digits count.
    """
    if not _DIGITS.fullmatch(instant):
        return None
    if len(instant) == _SECONDS_DIGITS:
        instant += "999"
    if len(instant) < _MILLIS_DIGITS:
        return None
    wall = _wall_time(instant)
    return None if wall is None else wall.replace(tzinfo=zone)


def _wall_time(digits: str) -> datetime | None:
    try:
        return datetime(
            int(digits[:4]),
            int(digits[4:6]),
            int(digits[6:8]),
            int(digits[8:10]),
            int(digits[10:12]),
            int(digits[12:14]),
            int(digits[14:17]) * 1000,
        )
    except ValueError:
        return None


def time_ms(instant: str, *, zone: tzinfo) -> int | None:
    """Epoch milliseconds of an instant time; None for digits that are no date."""
    moment = parse_time(instant, zone=zone)
    return None if moment is None else (moment - _EPOCH) // timedelta(milliseconds=1)


def as_of_time(said: str | datetime | date | int, *, zone: tzinfo) -> str:
    """The instant time that bounds a snapshot, from what a caller said.

    Accepted: instants of 14 or 17 digits (taken as they are), `yyyy-MM-dd`,
    `yyyy-MM-dd HH:mm:ss[.SSS]` (also with `T`, `Z` or an offset; without milliseconds the end of
    the second is meant), epoch seconds (10 digits) and milliseconds (13 digits), `date` and
    `datetime` values. Texts and values without an offset are in the table's `zone`.
    """
    try:
        bound = _as_of(said, zone)
    except (ValueError, OverflowError):
        # An offset of more than a day, or a moment beyond the years that dates can have.
        bound = None
    if bound is None:
        raise InstantNotFoundError(
            f"{said!r} is not a moment that can be read.",
            hint="Say an instant (20250922132154428), a date (2025-09-22), a date-time "
            "(2025-09-22 13:21:54.428) or epoch seconds or milliseconds.",
            context={"as_of": str(said)},
        )
    return bound


def _as_of(said: str | datetime | date | int, zone: tzinfo) -> str | None:
    if isinstance(said, datetime):
        return _wall_text(said if said.tzinfo is None else said.astimezone(zone))
    if isinstance(said, date):
        return f"{said.year:04d}{said:%m%d}000000000"
    return _as_of_text(str(said).strip(), zone)


def _as_of_text(text: str, zone: tzinfo) -> str | None:
    if _DIGITS.fullmatch(text):
        if len(text) in (_SECONDS_DIGITS, _MILLIS_DIGITS):
            return text if parse_time(text, zone=zone) is not None else None
        if len(text) == 10:
            return format_time(int(text) * 1000, zone=zone)
        return format_time(int(text), zone=zone) if len(text) == 13 else None
    if _DATE.fullmatch(text):
        digits = text.replace("-", "") + "000000000"
        return digits if _wall_time(digits) is not None else None
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, offset = match.groups()
    millis = "999" if fraction is None else f"{fraction:0<3}"[:3]
    digits = day.replace("-", "") + clock.replace(":", "") + millis
    wall = _wall_time(digits)
    if wall is None or offset is None:
        return None if wall is None else digits
    moment = datetime.fromisoformat(f"{wall.isoformat(timespec='milliseconds')}{offset}")
    return _wall_text(moment.astimezone(zone))


def _wall_text(moment: datetime) -> str:
    return _text(moment, moment.microsecond // 1000)


def _text(moment: datetime, millis: int) -> str:
    # `%Y` does not pad years before 1000.
    return f"{moment.year:04d}{moment:%m%d%H%M%S}{millis:03d}"
