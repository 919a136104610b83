"""Changes to JSON that stay JSON: other values, other types, fields gone, renamed or repeated.

Bytes that are no JSON end in the parser; these go further, to whatever trusts what was parsed.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

__all__ = ["change_json", "change_json_line"]

_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**40,
    0.5,
    "",
    "null",
    "int",
    "long",
    "string",
    "bytes",
    "record",
    "array",
    "\x00",
    "ж",
    "\ud800",
    "9" * 25,
    [],
    {},
    [[]],
    {"": None},
    ["null", "string"],
    {"type": "array", "items": "int"},
    {"type": "map", "values": "boolean"},
    {"type": "fixed", "name": "fx", "size": 3},
)


def change_json(data: bytes, random: Random) -> bytes:
    """The same text with one place of its tree changed; other bytes are left as they are."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return data
    places = list(_places(tree))
    if not places:
        return json.dumps(random.choice(_VALUES)).encode()
    holder, key = random.choice(places)
    _change(holder, key, random)
    return json.dumps(tree, separators=(",", ":")).encode()


def change_json_line(data: bytes, random: Random) -> bytes:
    """As `change_json`, for the first line only."""
    line, end, rest = data.partition(b"\n")
    return change_json(line, random) + end + rest


def _places(tree: Any) -> Any:
    """Every element of every object and list, as what holds it and its key."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict | list):
            for key in list(node) if isinstance(node, dict) else range(len(node)):
                yield node, key
                pending.append(node[key])


def _change(holder: Any, key: Any, random: Random) -> None:
    value = holder[key]
    match random.randrange(7):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[random.choice((f"{key}x", "", "name", "type", "default"))] = holder.pop(key)
        case 2 if isinstance(holder, list):
            holder.insert(random.randrange(len(holder) + 1), value)
        case 3 if isinstance(value, list):
            random.shuffle(value)
        case 4:
            holder[key] = [value] if random.random() < 0.5 else {"type": value}
        case 5 if isinstance(value, int) and not isinstance(value, bool):
            holder[key] = value + random.choice((1, -1, 2**31, -(2**63)))
        case _:
            holder[key] = random.choice(_VALUES)
