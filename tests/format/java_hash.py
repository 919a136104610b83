"""Hudi's simple bucket index written down slowly: one key, one character at a time."""

from __future__ import annotations

from collections.abc import Sequence

SPECIAL: dict[str, str | None] = {"__null__": None, "__empty__": ""}


def _wrapped(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number


def text_hash(text: str) -> int:
    """The hash code of a Java string."""
    code = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        code = _wrapped(31 * code + int.from_bytes(units[at : at + 2], "big"))
    return code


def list_hash(values: Sequence[str | None]) -> int:
    """The hash code of a Java list of strings."""
    code = 1
    for value in values:
        code = _wrapped(31 * code + (0 if value is None else text_hash(value)))
    return code


def index_values(key: str, fields: Sequence[str], *, spans: bool) -> list[str | None]:
    """The values of the index fields in a record key; `spans`: values may have separators."""
    if ":" not in key or (spans and "," not in key):
        return [key]
    kept: list[str] = []
    if not spans:
        parts = key.split(",")
        while not parts[-1]:
            parts.pop()
        for part in parts:
            name, colon, value = part.partition(":")
            if not colon or name in fields:
                kept.append(value if colon else part)
        return [SPECIAL.get(value, value) for value in kept]
    name, *pieces = key.split(":")
    said = ""
    for number, piece in enumerate(pieces):
        before, comma, following = piece.rpartition(",")
        last = number == len(pieces) - 1
        said += piece if last or not comma else before
        if last or comma:
            kept += [said] if name in fields else []
            name, said = following, ""
        else:
            said += ":"
    return [SPECIAL.get(value, value) for value in kept] or [key]


def slow_bucket(key: str, fields: Sequence[str], count: int, *, spans: bool = True) -> int:
    """The bucket of a record key."""
    return (list_hash(index_values(key, fields, spans=spans)) & 0x7FFFFFFF) % count
