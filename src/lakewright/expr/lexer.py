"""Words of a filter's text.

Guarantees: every character belongs to a token or raises `FilterError` with its position; the text
is scanned once, in linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import NoReturn

from lakewright.errors import FilterError
from lakewright.expr.text import KEYWORDS

FILTER_CHARS_MAX = 1_000_000
_SHOWN_CHARS = 40


class Kind(Enum):
    """What a token is."""

    NAME = auto()
    QUOTED = auto()
    KEYWORD = auto()
    NUMBER = auto()
    STRING = auto()
    OPERATOR = auto()
    MARK = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """One word; `text` is unquoted, keywords in capitals; positions count from 1."""

    kind: Kind
    text: str
    position: int
    adjacent: bool
    """Whether nothing stands between this token and the one before."""


_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<string>'(?:[^']|'')*')
  | (?P<backtick>`(?:[^`]|``)*`)
  | (?P<double>"(?:[^"]|"")*")
  | (?P<name>[^\W\d]\w*)
  | (?P<operator><=|>=|<>|!=|==|=|<|>)
  | (?P<mark>[(),.+-])
    """,
    re.VERBOSE,
)
_UNCLOSED = {"'": "text", "`": "name", '"': "name"}


def fail(text: str, position: int, message: str, hint: str) -> NoReturn:
    """Raise a `FilterError` that points at `position` in `text`."""
    start = max(0, position - 1 - _SHOWN_CHARS // 2)
    shown = text[start : start + _SHOWN_CHARS]
    raise FilterError(
        f"{message} at character {position} of the filter, near {shown!r}.",
        hint=hint,
        context={"position": position},
    )


def tokens(text: str) -> list[Token]:
    """All words of `text`, ended by an END token."""
    if len(text) > FILTER_CHARS_MAX:
        fail(
            text, 1, "A text of this length cannot begin", "Use the Python form col(...).isin(...)."
        )
    found: list[Token] = []
    at = 0
    adjacent = False
    while at < len(text):
        matched = _TOKEN.match(text, at)
        if matched is None:
            _unknown(text, at)
        if matched.lastgroup == "space":
            adjacent = False
        else:
            found.append(_token(matched, adjacent))
            adjacent = True
        at = matched.end()
    found.append(Token(Kind.END, "", len(text) + 1, adjacent))
    return found


def _token(matched: re.Match[str], adjacent: bool) -> Token:
    word, position = matched[0], matched.start() + 1
    match matched.lastgroup:
        case "number":
            return Token(Kind.NUMBER, word, position, adjacent)
        case "string":
            return Token(Kind.STRING, word[1:-1].replace("''", "'"), position, adjacent)
        case "backtick":
            return Token(Kind.QUOTED, word[1:-1].replace("``", "`"), position, adjacent)
        case "double":
            return Token(Kind.QUOTED, word[1:-1].replace('""', '"'), position, adjacent)
        case "name":
            if word.upper() in KEYWORDS:
                return Token(Kind.KEYWORD, word.upper(), position, adjacent)
            return Token(Kind.NAME, word, position, adjacent)
        case "operator":
            return Token(Kind.OPERATOR, word, position, adjacent)
    return Token(Kind.MARK, word, position, adjacent)


def _unknown(text: str, at: int) -> NoReturn:
    character = text[at]
    if character in _UNCLOSED:
        what = _UNCLOSED[character]
        fail(text, at + 1, f"A quoted {what} is not closed", f"Add the closing {character}.")
    fail(text, at + 1, f"{character!r} is not expected", "Quote names with ` and text with '.")
