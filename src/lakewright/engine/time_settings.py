"""Settings of time-based partitions as a new table or a write gives them: names and values.

Both prefixes that Hudi knows are taken, and none. A setting that is unknown, a pattern that cannot
be used, or a kind of time that does not fit the column is a `ConfigError` before any row is seen.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import NoReturn

import pyarrow as pa
import pyarrow.types as pt

from lakewright.errors import ConfigError
from lakewright.format import property_keys as keys
from lakewright.format.partition_paths import TEXT_TYPES
from lakewright.format.time_patterns import compile_pattern

__all__ = ["SETTINGS", "check_time_settings", "time_settings"]

SETTINGS = (
    "timestamp.type",
    "timestamp.scalar.time.unit",
    "input.dateformat",
    "input.dateformat.list.delimiter.regex",
    "input.timezone",
    "output.dateformat",
    "output.timezone",
    "timezone",
)
KINDS = ("UNIX_TIMESTAMP", "EPOCHMILLISECONDS", "SCALAR", *TEXT_TYPES)
"""What releases up to 1.0 understand."""


def time_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Settings by the last part of their names; `ConfigError` for one that does not exist."""
    found = {}
    for key, value in given.items():
        name = key.removeprefix(keys.TIME_KEYGEN_PREFIX_OLD).removeprefix(keys.TIME_KEYGEN_PREFIX)
        if name not in SETTINGS:
            near = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.5)
            _refuse(
                f"{key} is no setting of time-based partitions",
                f"Did you mean {near[0]}?" if near else f"There are {', '.join(SETTINGS)}.",
                key,
            )
        found[name] = value
    return found


def check_time_settings(
    settings: Mapping[str, str], fields: tuple[str, ...], schema: pa.Schema
) -> None:
    """Settings that suffice for the time fields; none where there are no time fields."""
    if not fields:
        if settings:
            _refuse(
                "Settings of time-based partitions are given, but no partition field is a time",
                "Use the TIMESTAMP key generator, CUSTOM with column:TIMESTAMP, or no settings.",
                next(iter(settings)),
            )
        return
    if not settings.get("output.dateformat"):
        _refuse(
            "Time-based partitions need a pattern", "Set it, as yyyy/MM/dd.", "output.dateformat"
        )
    compile_pattern(settings["output.dateformat"])
    kind = settings.get("timestamp.type", "").upper()
    text = all(_is_text(schema, name) for name in fields)
    if kind not in KINDS and (kind or not text):
        _refuse(
            f"{kind or 'Nothing'} is no kind of time that every reader of the table knows",
            f"Choose one of {', '.join(KINDS)}.",
            "timestamp.type",
        )
    if (kind in TEXT_TYPES) != text and kind != "":
        _refuse(
            f"{kind} does not fit the column {', '.join(fields)}",
            "Text columns take DATE_STRING, numbers take the others.",
            "timestamp.type",
        )
    if text and not settings.get("input.dateformat"):
        _refuse("Times as text need the pattern of the text", "Set it.", "input.dateformat")
    delimiter = settings.get("input.dateformat.list.delimiter.regex") or ","
    for pattern in re.split(delimiter, settings.get("input.dateformat", "")):
        compile_pattern(pattern.strip()).parse(pa.array([], pa.string()))


def _is_text(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type if name in schema.names else pa.null()
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _refuse(message: str, hint: str, setting: str) -> NoReturn:
    name = setting if setting.startswith("hoodie.") else keys.TIME_KEYGEN_PREFIX + setting
    raise ConfigError(f"{message}.", hint=hint, context={"property": name})
