"""Tables whose metadata table is on: refused for writing, or written after it was dropped.

Nobody notices a metadata table that is behind its data, so a writer that does not maintain it must
not leave it. It is dropped in the order that is safe at every moment: first the table stops
claiming to have one, then the folder goes; a folder that a crash left behind goes with the next
write.
"""

from __future__ import annotations

from typing import Final

from lakewright.errors import UnsupportedTableError
from lakewright.format import property_keys as keys
from lakewright.format.properties import update_properties
from lakewright.format.table_properties import META_FOLDER, TableProperties
from lakewright.runtime.events import Event
from lakewright.txn.access import Access

__all__ = ["has_metadata_table", "pass_metadata_gate"]

METADATA_FOLDER: Final = f"{META_FOLDER}/metadata"


def has_metadata_table(properties: TableProperties) -> bool:
    """Whether the table claims to have a metadata table, whole or being built."""
    return bool(properties.metadata_partitions or properties.metadata_partitions_inflight)


def pass_metadata_gate(access: Access, *, drop: bool) -> None:
    """Return if the table may be written; with `drop` its metadata table is gone then."""
    properties = access.properties()
    claimed = has_metadata_table(properties)
    if claimed and not drop:
        raise UnsupportedTableError(
            "The table has a metadata table, which this write would leave behind its data.",
            hint="Write with metadata_table='drop' to remove it first (readers then list folders, "
            "and a Hudi writer with hoodie.metadata.enable=true builds it again), or write the "
            "table with Hudi.",
            context={
                "table": access.storage.uri,
                "property": keys.METADATA_PARTITIONS,
                "value": ",".join(properties.metadata_partitions),
            },
        )
    if claimed or access.storage.exists(METADATA_FOLDER):
        _drop(access)


def _drop(access: Access) -> None:
    with access.locked("dropping the metadata table") as lease:
        if has_metadata_table(access.properties()):
            lease.check()
            empty = {keys.METADATA_PARTITIONS: "", keys.METADATA_PARTITIONS_INFLIGHT: ""}
            update_properties(access.storage, empty, clock=access.clock)
        lease.check()
        removed = access.storage.delete_tree(METADATA_FOLDER)
    access.on_event(Event("metadata_table.dropped", removed, unit="files"))
