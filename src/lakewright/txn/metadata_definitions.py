"""Storing what indexes are about; the caller holds the table's lock."""

from __future__ import annotations

from collections.abc import Collection

from lakewright.format.table_properties import TableProperties
from lakewright.metadata.definitions import (
    DEFAULT_PATH,
    IndexDefinition,
    format_definitions,
    load_definitions,
)
from lakewright.txn.access import Access
from lakewright.txn.locks.protocol import Lease

__all__ = ["define", "forget"]


def define(
    access: Access,
    lease: Lease,
    properties: TableProperties,
    definitions: Collection[IndexDefinition],
) -> None:
    """Store what indexes are about, where the table version has a place for it."""
    if definitions:
        path = properties.index_definitions_path or DEFAULT_PATH
        known = load_definitions(access.storage, properties)
        new = {definition.name: definition for definition in definitions}
        lease.check()
        access.storage.replace(path, format_definitions({**known, **new}))


def forget(
    access: Access, lease: Lease, properties: TableProperties, names: Collection[str]
) -> None:
    """Store no longer what some indexes are about, so that no writer begins them again."""
    path = properties.index_definitions_path or DEFAULT_PATH
    known = load_definitions(access.storage, properties)
    kept = {name: definition for name, definition in known.items() if name not in names}
    if len(kept) < len(known):
        lease.check()
        access.storage.replace(path, format_definitions(kept))
