"""Hudi's simple bucket index written down slowly: one key, one character at a time."""

from __future__ import annotations

from collections.abc import Sequence


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


def index_values(
    key: str, fields: Sequence[str], *, spans: bool = True
) -> list[str | None]:
    """The values of the index fields in a record key; `spans`: values may have commas."""
    if ":" not in key or (spans and "," not in key):
        return [key]
    pairs: list[tuple[str | None, str]] = []
    for part in key.split(","):
        name, colon, value = part.partition(":")
        if colon:
            pairs.append((name, value))
        elif spans and pairs:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]},{part}")
        else:
            pairs.append((None, part))
    kept = [value for name, value in pairs if name is None or name in fields]
    special: dict[str, str | None] = {"__null__": None, "__empty__": ""}
    return [special.get(value, value) for value in kept]


def slow_bucket(key: str, fields: Sequence[str], count: int, *, spans: bool = True) -> int:
    """The bucket of a record key."""
    return (list_hash(index_values(key, fields, spans=spans)) & 0x7FFFFFFF) % count
