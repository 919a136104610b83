"""The folders and the properties file that make a folder a table, of whichever kind.

The properties file is published last and only if no other is there: of several creators one wins.
"""

from __future__ import annotations

from typing import Final

from lakewright.format.properties import META_FOLDER, PROPERTIES_FILE
from lakewright.format.property_text import date_comment, format_properties, iso_instant
from lakewright.format.table_properties import TableProperties
from lakewright.runtime.clock import Clock
from lakewright.runtime.random import Random
from lakewright.storage.base import Storage

__all__ = ["PLACEHOLDER", "found_table"]

FOLDERS: Final = (".aux/.bootstrap/.fileids", ".aux/.bootstrap/.partitions", ".schema", ".temp")
PLACEHOLDER: Final = ".lakewright"
"""Keeps the timeline folder where folders exist only by their files: Hudi lists it at once."""


def found_table(
    storage: Storage, properties: TableProperties, *, clock: Clock, random: Random
) -> None:
    """Make the root of `storage` a table; `AlreadyExistsError` if it is one."""
    for folder in _folders(properties):
        storage.make_dir(folder)
    if not storage.guarantees.real_directories and properties.version.timeline_in_own_folder:
        storage.replace(f"{properties.timeline_folder}/{PLACEHOLDER}", b"")
    now_ms = clock.now_ms()
    comments = (f"Properties saved on {iso_instant(now_ms)}", date_comment(now_ms))
    data = format_properties(properties.values, comments)
    storage.create_if_absent(PROPERTIES_FILE, data, token=random.token_hex())


def _folders(properties: TableProperties) -> list[str]:
    own = [f"{META_FOLDER}/{name}" for name in FOLDERS]
    in_own_folder = properties.version.timeline_in_own_folder
    timeline = [properties.timeline_folder] if in_own_folder else []
    return [*own, *timeline, properties.history_folder]
