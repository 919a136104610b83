"""Where lakewright keeps files of its own in a table: below `.hoodie`, where Hudi never looks.

Files that are being written wait there until they get their names, so that a killed process leaves
nothing in a partition, in the timeline or among markers, where Hudi would stumble over it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lakewright.format.table_properties import META_FOLDER
from lakewright.storage.options import StorageOptions

__all__ = [
    "FENCE_FOLDER",
    "LOST_INDEXES_FILE",
    "OUTCOME_FOLDER",
    "UNFINISHED_FOLDER",
    "storage_of_table",
]

_OWN: Final = f"{META_FOLDER}/.lakewright"
FENCE_FOLDER: Final = f"{_OWN}/fence"
LOST_INDEXES_FILE: Final = f"{_OWN}/lost_indexes"
"""Indexes of the metadata table that had to be dropped and are to come back."""
UNFINISHED_FOLDER: Final = f"{_OWN}/unfinished"
OUTCOME_FOLDER: Final = f"{_OWN}/outcomes"
"""What tasks tell the process behind their instant, where that is too much for a message."""


def storage_of_table(options: StorageOptions | None) -> StorageOptions:
    """The options of a storage that is the folder of a table."""
    return replace(options or StorageOptions(), unfinished=UNFINISHED_FOLDER)
