"""JSON as Hudi's Jackson prints and reads it: two-space indent, `" : "`, `[ a, b ]`, `{ }`.

`parse_json` keeps the text of numbers that Python's floats would change, so that `format_json` of
what was parsed gives back the same bytes. Text that is not JSON, or not an object, raises
`CorruptFileError` with the path and the offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lakewright.codec.json_text import json_offset, load_json
from lakewright.errors import CorruptFileError

__all__ = ["format_json", "parse_json"]


class _Number(float):
    """A float that remembers its text."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __reduce__(self) -> tuple[type[_Number], tuple[str]]:
        return _Number, (self.text,)


def parse_json(data: bytes, *, path: str) -> dict[str, Any]:
    """The object of a UTF-8 JSON text, keys in their order."""
    try:
        value = load_json(data, parse_float=_Number)
    except ValueError as error:
        raise _broken(f"is not JSON: {error}", path, json_offset(error)) from error
    if not isinstance(value, dict):
        raise _broken("holds no JSON object", path, 0)
    return value


def format_json(value: Any) -> bytes:
    """The pretty-printed UTF-8 text, without a final newline."""
    return _text(value, "").encode("utf-8")


def _text(value: Any, indent: str) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        if not value:
            return "{ }"
        inner = indent + "  "
        lines = (f"{inner}{_string(k)} : {_text(v, inner)}" for k, v in value.items())
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list | tuple):
        return f"[ {', '.join(_text(v, indent) for v in value)} ]" if value else "[ ]"
    return value.text if isinstance(value, _Number) else json.dumps(value)


_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_SHORT = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def _string(text: str) -> str:
    escaped = _SPECIAL.sub(lambda m: _SHORT.get(m[0]) or f"\\u{ord(m[0]):04X}", text)
    return f'"{escaped}"'


def _broken(what: str, path: str, offset: int) -> CorruptFileError:
    return CorruptFileError(
        f"A metadata file {what}.",
        hint="The file is damaged; restore it from another copy of the table.",
        context={"path": path, "offset": offset},
    )
