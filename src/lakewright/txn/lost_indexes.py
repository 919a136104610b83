"""Indexes that had to be dropped and are to come back: named in a file of our own until they are.

A rollback that the metadata table cannot follow, or a restore, drops it; building it anew is
another step, and whoever was going to do that may die. Then the next write does it.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from lakewright.errors import NotFoundError
from lakewright.format.own_files import LOST_INDEXES_FILE
from lakewright.storage.base import Storage

__all__ = ["found_again", "lost_indexes", "remember_lost"]


def remember_lost(storage: Storage, indexes: Collection[str]) -> None:
    """Name the indexes that go, before they go."""
    storage.replace(LOST_INDEXES_FILE, json.dumps(sorted(indexes)).encode())


def lost_indexes(storage: Storage) -> frozenset[str]:
    """The indexes that are to come back; a file that cannot be read names none."""
    try:
        named = json.loads(storage.read(LOST_INDEXES_FILE))
    except (NotFoundError, ValueError):
        return frozenset()
    return frozenset(map(str, named)) if isinstance(named, list) else frozenset()


def found_again(storage: Storage) -> None:
    """They are back, or nobody wants them any more."""
    storage.delete(LOST_INDEXES_FILE)
