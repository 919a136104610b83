"""Damage of every kind that storage, crashes and malice do to bytes, from one number.

`mutate` is a pure function of the bytes, the number and the tools, so a recipe of numbers replays a
mutant exactly. A mutant is never longer than `BYTES_MAX`. Mutators know nothing of a format; what a
format adds (its tokens, changes that keep its frames whole) comes with the `Tools`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["BYTES_MAX", "Mutator", "Tools", "mutate", "mutate_plainly"]

BYTES_MAX: Final = 1 << 17
_CHANGES_MAX: Final = 6

Mutator = Callable[[bytes, Random], bytes]
"""Damaged bytes from bytes; must not fail on any input."""

_EDGES: Final = tuple(
    sorted(
        {
            sign * ((1 << bits) + step)
            for bits in (7, 8, 15, 16, 31, 32, 40, 62, 63)
            for step in (-1, 0, 1)
            for sign in (1, -1)
        }
        | {0, 1, -1, 2, -2, 3, 4, 32, 64, 100, 255, 1000, 4096, 65_535, 1 << 20, 1 << 30}
    )
)
"""Numbers at which lengths, counts and offsets overflow, turn negative or stop fitting."""
_WIDTHS: Final = ((">", 4), (">", 4), (">", 8), (">", 8), ("<", 4), ("<", 8), (">", 2), ("<", 2))
_OCTETS: Final = (0x00, 0x01, 0x02, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


@dataclass(frozen=True, slots=True)
class Tools:
    """What a target adds to the general mutators."""

    tokens: Sequence[bytes] = ()
    """Magics, key words and numbers that the format gives a meaning."""
    partners: Sequence[bytes] = ()
    """Other files of the same kind, for splicing."""
    shapes: Sequence[Mutator] = ()
    """Changes inside the format's frames."""


def mutate(data: bytes, number: int, tools: Tools) -> bytes:
    """The mutant of `data` that `number` names."""
    random = Random(number)  # noqa: S311 - repeatable, not secret
    for _ in range(_count(random)):
        choice = random.random()
        if tools.shapes and choice < 0.45:
            data = random.choice(tools.shapes)(data, random)
        elif tools.partners and choice < 0.55:
            data = _spliced(data, random.choice(tools.partners), random)
        elif tools.tokens and choice < 0.7:
            data = _with_token(data, random.choice(tools.tokens), random)
        else:
            data = random.choice(_GENERAL)(data, random)
        data = data[:BYTES_MAX]
    return data


def mutate_plainly(data: bytes, random: Random) -> bytes:
    """One change by a general mutator, for mutators that work inside a frame."""
    return random.choice(_GENERAL)(data, random)


def _count(random: Random) -> int:
    """Mostly one change: several hide each other."""
    count = 1
    while count < _CHANGES_MAX and random.random() < 0.3:
        count += 1
    return count


def _place(data: bytes, random: Random) -> int:
    """Anywhere; often near the ends, where headers, footers and magics are."""
    if not data:
        return 0
    choice = random.random()
    if choice < 0.2:
        return min(random.randrange(64), len(data) - 1)
    if choice < 0.4:
        return max(len(data) - 1 - random.randrange(64), 0)
    return random.randrange(len(data))


def _stretch(data: bytes, random: Random) -> tuple[int, int]:
    start = _place(data, random)
    length = random.choice((1, 1, 2, 4, 8, 16, 64, 256, 1024))
    return start, min(len(data), start + random.randint(1, length))


def _flip_bit(data: bytes, random: Random) -> bytes:
    at = _place(data, random)
    return (
        data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :] if data else b""
    )


def _set_octet(data: bytes, random: Random) -> bytes:
    at = _place(data, random)
    octet = random.choice(_OCTETS) if random.random() < 0.5 else random.randrange(256)
    return data[:at] + bytes([octet]) + data[at + 1 :]


def _truncate(data: bytes, random: Random) -> bytes:
    return data[: _place(data, random)]


def _cut_front(data: bytes, random: Random) -> bytes:
    return data[_place(data, random) :]


def _insert(data: bytes, random: Random) -> bytes:
    at = _place(data, random)
    return data[:at] + random.randbytes(random.choice((1, 1, 2, 4, 8, 16, 100))) + data[at:]


def _delete(data: bytes, random: Random) -> bytes:
    start, end = _stretch(data, random)
    return data[:start] + data[end:]


def _duplicate(data: bytes, random: Random) -> bytes:
    start, end = _stretch(data, random)
    times = random.choice((1, 1, 1, 2, 8, 64))
    return data[:end] + data[start:end] * times + data[end:]


def _move(data: bytes, random: Random) -> bytes:
    start, end = _stretch(data, random)
    rest = data[:start] + data[end:]
    at = _place(rest, random)
    return rest[:at] + data[start:end] + rest[at:]


def _fill(data: bytes, random: Random) -> bytes:
    start, end = _stretch(data, random)
    return data[:start] + bytes([random.choice(_OCTETS)]) * (end - start) + data[end:]


def _put_number(data: bytes, random: Random) -> bytes:
    """A length-field attack: an edge, or a number about the size of the file, in a fixed width."""
    order, width = random.choice(_WIDTHS)
    number = random.choice(_EDGES) if random.random() < 0.7 else len(data) + random.randint(-9, 9)
    at = _place(data, random)
    return data[:at] + _fixed(number, order, width) + data[at + width :]


def _shift_number(data: bytes, random: Random) -> bytes:
    """A number that is there already, a little or very much off."""
    order, width = random.choice(_WIDTHS)
    at = _place(data, random)
    if at + width > len(data):
        return data
    number = int.from_bytes(data[at : at + width], "big" if order == ">" else "little")
    change = random.choice((1, -1, 2, -2, 4, 8, -8, number, -2 * number, 1 << 8 * width - 1))
    return data[:at] + _fixed(number + change, order, width) + data[at + width :]


def _put_varint(data: bytes, random: Random) -> bytes:
    """A variable-length number, plain or zigzag, over or between the bytes."""
    number = random.choice(_EDGES)
    bits = (number << 1 ^ number >> 63) if random.random() < 0.6 else number
    encoded = _varint(bits & (1 << 64) - 1, overlong=random.random() < 0.1)
    at = _place(data, random)
    return data[:at] + encoded + data[at + random.choice((0, 1, len(encoded))) :]


_GENERAL: Final[tuple[Mutator, ...]] = (
    _flip_bit,
    _flip_bit,
    _set_octet,
    _set_octet,
    _truncate,
    _cut_front,
    _insert,
    _delete,
    _duplicate,
    _move,
    _fill,
    _put_number,
    _put_number,
    _shift_number,
    _put_varint,
    _put_varint,
)


def _spliced(data: bytes, other: bytes, random: Random) -> bytes:
    """The beginning of one file and the end of another, or a part of one inside the other."""
    if random.random() < 0.5:
        return data[: _place(data, random)] + other[_place(other, random) :]
    start, end = _stretch(other, random)
    at = _place(data, random)
    return data[:at] + other[start:end] + data[at:]


def _with_token(data: bytes, token: bytes, random: Random) -> bytes:
    at = _place(data, random)
    replaced = len(token) if random.random() < 0.5 else 0
    return data[:at] + token + data[at + replaced :]


def _fixed(number: int, order: str, width: int) -> bytes:
    code = {2: "H", 4: "I", 8: "Q"}[width]
    return struct.pack(f"{order}{code}", number & (1 << 8 * width) - 1)


def _varint(bits: int, *, overlong: bool) -> bytes:
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    if overlong:
        out[-1] |= 0x80
        out += b"\x80\x80\x00"
    return bytes(out)
