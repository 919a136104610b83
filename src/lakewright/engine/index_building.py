"""Building indexes of the metadata table: while nobody writes, or beside writers.

A write that is told to build indexes does it under the lock, as Hudi's do, and only once. Whoever
builds them on a large table does it beside writers: only the beginning and the end take the lock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from lakewright.engine.first_records import FirstRecords, defined_secondaries
from lakewright.engine.snapshot import Snapshot, load_snapshot
from lakewright.errors import IndexesChangedError, NotFoundError
from lakewright.format.partitions import list_table
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.batch import indexes_of
from lakewright.metadata.creation import NewIndex
from lakewright.metadata.definitions import IndexDefinition
from lakewright.metadata.file_groups import RECORD_INDEX
from lakewright.txn.access import Access
from lakewright.txn.metadata_creation import Listing, build_metadata_table
from lakewright.txn.metadata_indexing import begin_building

__all__ = ["build_beside_writers", "build_indexes"]

TRIES: Final = 3


def build_indexes(
    access: Access,
    snapshot: Snapshot,
    indexes: Collection[str],
    registry: MergerRegistry,
    *,
    columns: Collection[str] | None = None,
) -> bool:
    """Build a metadata table with `files` and some other indexes, or those that it lacks, while
    nobody else writes; whether anything was built. Statistics are about `columns`, or all.
    With a record index come the secondary indexes that the table defines, as with Hudi's writers.

    See `build_metadata_table` for when it is not.
    """
    present = indexes_of(snapshot.properties)
    wanted = {*indexes, *(defined_secondaries(snapshot) if RECORD_INDEX in indexes else ())}
    missing = {*FirstRecords(snapshot, registry, access.spawner).able(wanted)} - present
    if present and not missing:
        return False

    def further(_: TableProperties, __: Timeline, listing: Listing) -> Sequence[NewIndex]:
        if not missing:
            return ()
        first = FirstRecords(_now(access), registry, access.spawner, columns)
        return first.of(first.groups(first.able(missing)), listing)

    return build_metadata_table(access, further)


def build_beside_writers(
    access: Access,
    indexes: Collection[str],
    registry: MergerRegistry,
    *,
    defined: Collection[IndexDefinition] = (),
    columns: Collection[str] | None = None,
) -> list[str]:
    """Build indexes that the table lacks while others write it; their names.

    `defined` tells about those of them that the table does not know yet; statistics are about
    `columns`, or all.

    The list of files is made first where there is no metadata table: that takes a listing under the
    lock. See `build_metadata_table` for when it cannot be; nothing is built then. Raises
    `PlanBusyError` if another process builds indexes, `IndexesChangedError` if others came in
    between each time.
    """
    snapshot = _now(access)
    if not indexes_of(snapshot.properties) and not build_metadata_table(access):
        return []
    for _ in range(TRIES):
        first = FirstRecords(snapshot, registry, access.spawner)
        groups = first.groups(first.able(indexes))
        if not groups:
            return []
        building = begin_building(access, groups, lambda: _now(access), defined=defined)
        if building is None:
            return []
        first = FirstRecords(building.basis, registry, access.spawner, columns)
        try:
            new = first.of({**building.groups}, list_table(access.storage))
            if building.finish(new, building.basis.schema.arrow.names):
                return sorted(building.groups)
        except NotFoundError:
            pass  # a clean took what was to be read
        finally:
            building.leave()
        snapshot = _now(access)
    raise IndexesChangedError(
        f"Indexes could not be built in {TRIES} tries: others changed the table in between.",
        hint="Run it again when fewer compactions and cleans run; until then nobody uses them.",
        context={"table": access.storage.uri, "indexes": ",".join(indexes)},
        retryable=True,
    )


def _now(access: Access) -> Snapshot:
    return load_snapshot(access.storage, clock=access.clock, use_metadata_table=False)
