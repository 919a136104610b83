"""JSON as the JVM's readers accept it, for texts that may be damaged.

`load_json` raises `ValueError` for everything that is not JSON with Unicode text: also for what
Python's own reader lets pass (`NaN`, infinities, halves of surrogate pairs, which no file can
hold), and for nesting or numbers beyond its limits. `json_offset` tells where in the bytes that is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["json_offset", "load_json"]


def load_json(text: str | bytes, *, parse_float: Callable[[str], Any] | None = None) -> Any:
    """The value of a JSON text; bytes must be UTF-8."""
    plain = text.decode("utf-8") if isinstance(text, bytes) else text
    try:
        value = json.loads(plain, parse_float=parse_float, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if "\\u" in plain:
        # An escape can spell half of a surrogate pair, which could never be written again.
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("it has half of a surrogate pair") from None
    return value


def json_offset(error: Exception) -> int:
    """The byte at which `load_json` gave up; 0, the beginning, where it cannot tell."""
    if isinstance(error, json.JSONDecodeError):
        return len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))
    return error.start if isinstance(error, UnicodeDecodeError) else 0


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
