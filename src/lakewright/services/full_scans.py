"""Reasons why the next clean has to visit every partition, kept as small files of our own.

An incremental clean visits only partitions that were written since the previous one. What a clean
left because it was in use, and what a deleted savepoint had kept, lies elsewhere; the records of
table version 6 have no place to say so. A reason is written before what it tells of happens, and
forgotten under the lock by a clean that has visited everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lakewright.errors import NotFoundError
from lakewright.format.own_files import FENCE_FOLDER
from lakewright.storage.base import Storage

__all__ = ["demand_full_scan", "forget_full_scans", "full_scan_demands"]

FOLDER: Final = f"{FENCE_FOLDER.rpartition('/')[0]}/full_scans"


def demand_full_scan(storage: Storage, instant: str) -> None:
    """Let the next clean visit every partition, because of what happens at `instant`."""
    storage.replace(f"{FOLDER}/{instant}", b"")


def full_scan_demands(storage: Storage) -> frozenset[str]:
    """Why every partition has to be visited; empty if that is not needed."""
    try:
        return frozenset(filter(str.isdigit, storage.names(FOLDER)))
    except NotFoundError:
        return frozenset()


def forget_full_scans(storage: Storage, demands: Iterable[str]) -> None:
    """Every partition was visited."""
    for instant in sorted(demands):
        storage.delete(f"{FOLDER}/{instant}")
