"""What a change of the table means for its metadata table, ready to be published.

A batch is finished before the lock is taken; under the lock a transaction publishes it as the
metadata table's own commit of the same instant, before the data table's. `NO_METADATA` belongs to
tables without a metadata table.
"""

from __future__ import annotations

from typing import Protocol

from lakewright.storage.base import Storage

__all__ = ["NO_METADATA", "MetadataBatch"]


class MetadataBatch(Protocol):
    """Finished changes of the metadata table."""

    def publish(self, storage: Storage, instant: str) -> None:
        """Commit the changes under the data table's instant; the caller holds the lock."""
        ...


class _NoMetadata:
    """Nothing to publish."""

    def publish(self, storage: Storage, instant: str) -> None:
        """Do nothing."""


NO_METADATA: MetadataBatch = _NoMetadata()
