"""Offsets in the history of a table: up to where changes were read, in a form that can be stored.

An offset is a time and the scheme that gives it a meaning: version 6 orders changes by requested
time, later versions by completion time. The scheme travels with the offset, so that one taken at a
table of version 6 is refused after the table moved on, instead of skipping or repeating changes.
The text form (`completion:20250922132154428`, `requested:earliest`) is stable.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from typing import Literal

from lakewright.errors import OptionError
from lakewright.format.instant_times import as_of_time

Scheme = Literal["requested", "completion"]
Moment = str | datetime | date
"""What callers say for an offset: an instant, a date-time, `earliest` or an offset's text."""

EARLIEST = "earliest"
_SCHEMES: tuple[Scheme, ...] = ("requested", "completion")


@dataclass(frozen=True, slots=True)
class ChangeOffset:
    """A place in the history; everything at or before it was read."""

    scheme: Scheme
    time: str
    """An instant time; empty before all history."""

    @classmethod
    def earliest(cls, scheme: Scheme) -> ChangeOffset:
        """The place before all history."""
        return cls(scheme, "")

    @classmethod
    def parse(cls, text: str) -> ChangeOffset:
        """The offset of a text that `str` made.

        >>> ChangeOffset.parse("completion:20250922132154428").time
        '20250922132154428'
        >>> str(ChangeOffset.parse("requested:earliest"))
        'requested:earliest'
        """
        scheme, colon, time = text.partition(":")
        for known in _SCHEMES:
            if scheme == known and colon and (time == EARLIEST or _is_digits(time)):
                return cls(known, "" if time == EARLIEST else time)
        raise OptionError(
            f"{text!r} is not a change offset.",
            hint="Offsets look like completion:20250922132154428 or requested:earliest; "
            "pass `Changes.end` or its text.",
            context={"offset": text},
        )

    def __str__(self) -> str:
        return f"{self.scheme}:{self.time or EARLIEST}"


def resolve_offset(
    said: Moment | ChangeOffset | None, scheme: Scheme, *, zone: tzinfo
) -> ChangeOffset | None:
    """The offset that a caller means; None for None.

    Plain instants and date-times are times of the table's own scheme. An offset of the other scheme
    is an `OptionError`.
    """
    if said is None:
        return None
    if isinstance(said, str) and said.strip().lower() == EARLIEST:
        return ChangeOffset.earliest(scheme)
    if isinstance(said, str) and said.partition(":")[0] in _SCHEMES:
        said = ChangeOffset.parse(said)
    if not isinstance(said, ChangeOffset):
        return ChangeOffset(scheme, as_of_time(said, zone=zone))
    if said.scheme != scheme:
        raise OptionError(
            f"The offset {said} counts {said.scheme} times, but this table orders its changes by "
            f"{scheme} time.",
            hint="The table changed its version since the offset was taken. Start again from a "
            "snapshot and the offset of the first read after it.",
            context={"offset": str(said), "scheme": scheme},
        )
    return said


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
