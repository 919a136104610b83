"""The operations of writing: what each is called and what it may do."""

from __future__ import annotations

from dataclasses import dataclass

from lakewright.format.records.plans import RequestedReplaceMetadata
from lakewright.format.table_properties import TableProperties

__all__ = [
    "APPEND",
    "BULK_INSERT",
    "DELETE",
    "DELETE_PARTITION",
    "MERGE",
    "OVERWRITE_PARTITIONS",
    "OVERWRITE_TABLE",
    "UPSERT",
    "Operation",
]


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of write."""

    name: str
    hudi: str
    """What commits call it."""
    replaces: bool = False
    """Whether file groups that were there go."""
    keyed: bool = False
    """Whether rows find their file groups by an index."""

    def action(self, properties: TableProperties) -> str:
        """The action on the timeline."""
        if self.replaces:
            return "replacecommit"
        return "deltacommit" if properties.table_type == "MERGE_ON_READ" else "commit"

    def requested(self, properties: TableProperties) -> bytes:
        """What the requested file holds."""
        if not self.replaces:
            return b""
        request = RequestedReplaceMetadata(operation_type=None, version=None)
        if self is DELETE_PARTITION:
            request = RequestedReplaceMetadata(operation_type=self.hudi, extra_metadata={})
        return request.write(properties.version)


APPEND = Operation("append", "INSERT")
BULK_INSERT = Operation("bulk_insert", "BULK_INSERT")
OVERWRITE_PARTITIONS = Operation("overwrite", "INSERT_OVERWRITE", replaces=True)
OVERWRITE_TABLE = Operation("overwrite", "INSERT_OVERWRITE_TABLE", replaces=True)
UPSERT = Operation("upsert", "UPSERT", keyed=True)
MERGE = Operation("merge", "UPSERT", keyed=True)
DELETE = Operation("delete", "DELETE", keyed=True)
DELETE_PARTITION = Operation("delete_partition", "DELETE_PARTITION", replaces=True)
