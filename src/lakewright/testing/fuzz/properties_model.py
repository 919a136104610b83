"""Properties files by a second, plain reader: one character after the other, as the JVM documents
its `Properties.load`. Shares no code with the product.
"""

from __future__ import annotations

__all__ = ["MalformedError", "model_properties"]

_BLANK = " \t\f"
_END = "\r\n"
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class MalformedError(Exception):
    """An escape of a Unicode character without four digits."""


def model_properties(data: bytes) -> dict[str, str]:
    """The pairs; characters beyond the first plane as pairs of UTF-16 units."""
    text = data.decode("latin-1")
    pairs: dict[str, str] = {}
    at = 0
    while at < len(text):
        line, at = _line(text, at)
        if line is not None:
            key, value = _split(line)
            pairs[_plain(key)] = _plain(value)
    return pairs


def _line(text: str, at: int) -> tuple[str | None, int]:
    """A logical line with its escapes, None for a blank one or a comment; and what follows it."""
    at = _behind_blanks(text, at)
    if at < len(text) and text[at] in "#!":
        while at < len(text) and text[at] not in _END:
            at += 1
        return None, _behind_end(text, at)
    line: list[str] = []
    while at < len(text) and text[at] not in _END:
        if text[at] != "\\":
            line.append(text[at])
            at += 1
        elif at + 1 < len(text) and text[at + 1] in _END:
            at = _behind_blanks(text, _behind_end(text, at + 1))
        else:
            line += text[at : at + 2] if at + 1 < len(text) else ""
            at += 2
    return "".join(line) or None, _behind_end(text, at)


def _behind_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _behind_end(text: str, at: int) -> int:
    return at + 2 if text[at : at + 2] == "\r\n" else at + 1


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    value = _behind_blanks(line, at)
    if value < len(line) and line[value] in "=:":
        value = _behind_blanks(line, value + 1)
    return line[:at], line[value:]


def _plain(text: str) -> str:
    out, at = [], 0
    while at < len(text):
        if text[at] != "\\":
            out.append(text[at])
            at += 1
            continue
        named = text[at + 1 : at + 2]
        at += 2
        if named != "u":
            out.append(_NAMED.get(named, named))
            continue
        digits = text[at : at + 4]
        if len(digits) < 4 or any(d not in "0123456789abcdefABCDEF" for d in digits):
            raise MalformedError(digits)
        out.append(chr(int(digits, 16)))
        at += 4
    return "".join(out)
