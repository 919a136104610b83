"""Dates, times and timestamps as text, and as counts since 1970-01-01.

Guarantees: exact to the microsecond, no clock, no local time zone. A text that is not a moment
gives None.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone

_DATE = r"(\d{4})-(\d{1,2})-(\d{1,2})"
_TIME = r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?"
_ZONE = r"(Z|[+-]\d{2}:?\d{2})?"
_DATE_ONLY = re.compile(_DATE, re.ASCII)
_TIME_ONLY = re.compile(_TIME, re.ASCII)
_TIMESTAMP = re.compile(rf"{_DATE}(?:[ T]{_TIME}\s*{_ZONE})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def parse_date(text: str) -> date | None:
    """`2024-01-31`."""
    matched = _DATE_ONLY.fullmatch(text.strip())
    if matched is None:
        return None
    try:
        return date(int(matched[1]), int(matched[2]), int(matched[3]))
    except ValueError:
        return None


def parse_time(text: str) -> time | None:
    """`23:59[:59[.999999]]`."""
    matched = _TIME_ONLY.fullmatch(text.strip())
    return None if matched is None else _time(matched.groups())


def parse_timestamp(text: str) -> datetime | None:
    """`2024-01-31[ 23:59[:59[.999999]][Z|+01:00]]`; in UTC if it names a zone, else without one."""
    matched = _TIMESTAMP.fullmatch(text.strip())
    if matched is None:
        return None
    groups = matched.groups()
    day = parse_date(text.strip()[: matched.end(3)])
    clock = _time(groups[3:7]) if groups[3] is not None else time()
    if day is None or clock is None:
        return None
    moment = datetime.combine(day, clock)
    zone = groups[7]
    if zone is None:
        return moment
    try:
        return moment.replace(tzinfo=_zone(zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _time(groups: tuple[str | None, ...]) -> time | None:
    hour, minute, second, fraction = groups
    try:
        return time(
            int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "").ljust(6, "0"))
        )
    except ValueError:
        return None


def _zone(text: str) -> timezone:
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    if minutes > 59:
        raise ValueError(text)
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def micros_of(moment: datetime) -> int:
    """Microseconds since 1970-01-01 of a moment without zone or in UTC."""
    return (moment.replace(tzinfo=None) - _EPOCH) // _MICROSECOND


def moment_of(micros: int, *, zoned: bool) -> datetime:
    """The moment that many microseconds after 1970-01-01."""
    moment = _EPOCH + timedelta(microseconds=micros)
    return moment.replace(tzinfo=UTC) if zoned else moment


def micros_of_day(value: time) -> int:
    """Microseconds since midnight."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def time_of_day(micros: int) -> time:
    """The time that many microseconds after midnight."""
    return (_EPOCH + timedelta(microseconds=micros)).time()
