"""Times of zones on columns: what a clock shows at a moment, and how far it is from UTC.

Arrow knows the changes that a zone's file lists, which ends with the year 2037; what comes later
follows the zone's rule, as in Java. Times are milliseconds since 1970. Zones are names, or offsets
in Java's spelling (`GMT+8:00`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["arrow_zone", "distance_from_utc", "local_times"]

LISTED_UNTIL_MS: Final = 2_145_916_800_000
"""The year 2038 begins."""
CALENDAR_ENDS_MS: Final = 253_402_214_400_000
"""The last day of the year 9999 begins; later times keep what Arrow says."""
QUARTER_MS: Final = 900_000
"""No zone changes its offset but at a quarter of an hour."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def arrow_zone(text: str) -> str:
    """Java's `GMT+8:00` and `Z` as Arrow spells them; names stay."""
    fixed = re.fullmatch(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d{2}))?", text)
    if fixed:
        return f"{fixed[1]}{int(fixed[2]):02d}:{fixed[3] or '00'}"
    return "UTC" if text in ("Z", "GMT") else text


def local_times(millis: pa.Array, zone: str) -> pa.Array:
    """What a clock in the zone shows at moments, as int64."""
    name = arrow_zone(zone)
    local = pc.local_timestamp(millis.cast(pa.timestamp("ms", name))).cast(pa.int64())
    return _patched(local, millis, name, lambda zone, quarter: quarter + _offset(zone, quarter))


def distance_from_utc(local: pa.Array, zone: str) -> pa.Array:
    """By how much a clock in the zone is ahead of UTC when it shows a time, as int64."""
    name = arrow_zone(zone)
    moments = pc.assume_timezone(
        local.cast(pa.timestamp("ms")), name, ambiguous="earliest", nonexistent="earliest"
    )
    distance = pc.subtract(local, moments.cast(pa.int64()))
    return _patched(distance, local, name, _shown_offset, follows=False)


def _patched(
    answers: pa.Array,
    times: pa.Array,
    zone: str,
    rule: Callable[[ZoneInfo, int], int],
    *,
    follows: bool = True,
) -> pa.Array:
    """Answers with those replaced that Arrow does not know; `follows`: they move with the time."""
    values = times.fill_null(0).to_numpy(zero_copy_only=False)
    far = np.flatnonzero((values >= LISTED_UNTIL_MS) & (values < CALENDAR_ENDS_MS))
    if not len(far) or zone == "UTC" or zone[0] in "+-":
        return answers
    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        return answers
    quarters, place = np.unique(values[far] // QUARTER_MS * QUARTER_MS, return_inverse=True)
    # Bounded by the distinct quarters of an hour after 2037.
    found = np.array([rule(known, int(quarter)) for quarter in quarters], np.int64)[place]
    rest = values[far] % QUARTER_MS if follows else 0
    new = answers.fill_null(0).to_numpy(zero_copy_only=False).copy()
    new[far] = found + rest
    return pa.array(new, pa.int64(), mask=answers.is_null().to_numpy(zero_copy_only=False))


def _offset(zone: ZoneInfo, quarter: int) -> int:
    moment = (_EPOCH + timedelta(milliseconds=quarter)).astimezone(zone)
    return _millis(moment.utcoffset())


def _shown_offset(zone: ZoneInfo, quarter: int) -> int:
    shown = (_EPOCH + timedelta(milliseconds=quarter)).replace(tzinfo=zone)
    return _millis(shown.utcoffset())


def _millis(offset: timedelta | None) -> int:
    return (offset or timedelta()) // timedelta(milliseconds=1)
