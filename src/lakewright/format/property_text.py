"""The text syntax of `java.util.Properties`: parsing and formatting, exactly as the JVM does it.

Pure functions over ISO-8859-1 bytes. Every text the JVM can write is read back to the same pairs,
and every text written here is read by the JVM to the same pairs. The only illegal input is a
malformed `\\uXXXX` escape, which raises `FormatError` with the offset of its line, as it makes
the JVM fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache

from lakewright.errors import FormatError

__all__ = [
    "date_comment",
    "format_properties",
    "iso_instant",
    "parse_properties",
    "property_offset",
]

_BLANKS = " \t\f"
_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\n|\r|\Z)")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|[\s\S])")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def parse_properties(data: bytes, *, path: str = "") -> dict[str, str]:
    """The pairs of a properties file; of duplicate keys the last one wins."""
    return dict(_pairs(data, path))


@lru_cache(maxsize=64)
def _pairs(data: bytes, path: str) -> tuple[tuple[str, str], ...]:
    """Kept, because every action reads the same properties again and again."""
    lines = _logical_lines(data.decode("latin-1"))
    return tuple(_pair(line, path, at) for at, line in lines)


def property_offset(data: bytes, key: str) -> int:
    """Where the line begins that decides a property; 0 where there is none."""
    lines = _logical_lines(data.decode("latin-1"))
    return max((at for at, line in lines if _pair(line, "", at)[0] == key), default=0)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined, and where they begin; comments and blanks left out."""
    joined, begin = "", 0
    for natural in _LINE.finditer(text):
        line = natural[1].lstrip(_BLANKS)
        if not joined:
            begin = natural.start()
        if not joined and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        continues = slashes % 2 == 1
        joined += line[:-1] if continues else line
        if not continues:
            yield begin, joined
            joined = ""
    if joined:
        yield begin, joined


def _pair(line: str, path: str, offset: int) -> tuple[str, str]:
    end, escaped = len(line), False
    for i, char in enumerate(line):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "=:" or char in _BLANKS:
            end = i
            break
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(line[:end], path, offset), _unescape(rest, path, offset)


def _unescape(text: str, path: str, offset: int) -> str:
    if "\\" not in text:
        return text

    def decoded(match: re.Match[str]) -> str:
        code = match.group(1)
        if code[0] != "u":
            return _CONTROL.get(code, code)
        if len(code) != 5:
            raise FormatError(
                "A properties file has a malformed \\uXXXX escape.",
                hint="Repair the line by hand; the JVM cannot read the file either.",
                context={
                    "path": path,
                    "offset": offset,
                    "text": match.string[match.start() : match.start() + 6],
                },
            )
        return chr(int(code[1:], 16))

    plain = _ESCAPE.sub(decoded, text)
    # Escapes are UTF-16 units: two of them may be the halves of one character.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def format_properties(pairs: Mapping[str, str], comments: Iterable[str] = ()) -> bytes:
    """The text of `pairs` in their order, below one `#` line per comment."""
    lines = [f"#{_escape_units(comment)}" for comment in comments]
    lines += [f"{_escape(k, key=True)}={_escape(v, key=False)}" for k, v in pairs.items()]
    return "".join(f"{line}\n" for line in lines).encode("latin-1")


def _escape(text: str, *, key: bool) -> str:
    escaped = "".join(
        _NAMED.get(c) or (f"\\{c}" if c in "\\=:#!" else c)
        for c in text  # bounded by the length of one property
    )
    if key:
        escaped = escaped.replace(" ", "\\ ")
    elif escaped.startswith(" "):
        escaped = "\\" + escaped
    return _escape_units(escaped)


def _escape_units(text: str) -> str:
    """`\\uXXXX` for every UTF-16 unit outside printable ASCII."""
    if text.isascii() and text.isprintable():
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    codes = (units[i] | units[i + 1] << 8 for i in range(0, len(units), 2))
    return "".join(chr(c) if 0x20 <= c <= 0x7E else f"\\u{c:04X}" for c in codes)


def iso_instant(now_ms: int) -> str:
    """`2025-09-22T20:21:37.375Z`, as in the comments of a JVM-written file."""
    moment = datetime.fromtimestamp(now_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03d}Z"


def date_comment(now_ms: int) -> str:
    """`Mon Sep 22 20:21:37 UTC 2025`, the JVM's second comment line, in UTC and English."""
    t = datetime.fromtimestamp(now_ms // 1000, UTC)
    return f"{_DAYS[t.weekday()]} {_MONTHS[t.month - 1]} {t:%d %H:%M:%S} UTC {t.year}"
