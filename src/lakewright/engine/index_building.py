"""Building indexes of the metadata table: while nobody writes, or beside writers.

A write that is told to build indexes does it under the lock, as Hudi's do, and only once. Whoever
builds them on a large table does it beside writers: only the beginning and the end take the lock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from lakewright.engine.first_records import FirstRecords, defined_secondaries
from lakewright.engine.snapshot import Snapshot, load_snapshot
from lakewright.errors import IndexesChangedError, NotFoundError, OptionError
from lakewright.format.partitions import list_table
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.batch import indexes_of
from lakewright.metadata.creation import NewIndex
from lakewright.metadata.definitions import (
    IndexDefinition,
    keeps_keys_per_partition,
    load_definitions,
)
from lakewright.metadata.file_groups import COLUMN_STATS, RECORD_INDEX
from lakewright.txn.access import Access
from lakewright.txn.lost_indexes import found_again, lost_indexes
from lakewright.txn.metadata_creation import Listing, build_metadata_table
from lakewright.txn.metadata_indexing import begin_building

__all__ = ["bring_back", "build_beside_writers", "build_indexes", "refuse_other_kind"]

TRIES: Final = 3


def build_indexes(
    access: Access,
    snapshot: Snapshot,
    indexes: Collection[str],
    registry: MergerRegistry,
    *,
    columns: Collection[str] | None = None,
    per_partition: bool | None = None,
) -> bool:
    """Build a metadata table with `files` and some other indexes, or those that it lacks, while
    nobody else writes; whether anything was built. Statistics are about `columns`, or all; a record
    index is `per_partition`, or as the table says. With one of all keys come the secondary indexes
    that the table defines, as with Hudi's writers.

    See `build_metadata_table` for when it is not. Raises `OptionError` if the table has a record
    index of the other kind.
    """
    present = indexes_of(snapshot.properties)
    if RECORD_INDEX in indexes:
        refuse_other_kind(snapshot, per_partition)
    first = FirstRecords(snapshot, registry, access.spawner, columns, per_partition)
    by_all_keys = RECORD_INDEX in indexes and not first.is_parted
    wanted = {*indexes, *(defined_secondaries(snapshot) if by_all_keys else ())}
    missing = {*first.able(wanted)} - present
    if present and not missing:
        return False

    def further(_: TableProperties, __: Timeline, listing: Listing) -> Sequence[NewIndex]:
        if not missing:
            return ()
        now = replace(first, snapshot=_now(access))
        return now.of(now.groups(now.able(missing)), listing)

    return build_metadata_table(access, further)


def bring_back(access: Access, registry: MergerRegistry) -> bool:
    """Build the indexes anew that a rollback or a restore had to drop, if nobody has done it;
    whether anything was built. While something forbids it they stay remembered."""
    wanted = lost_indexes(access.storage)
    if not wanted:
        return False
    snapshot = _now(access)
    if indexes_of(snapshot.properties):
        found_again(access.storage)
        return False
    known = load_definitions(access.storage, snapshot.properties).get(COLUMN_STATS)
    columns = known.source_fields if known is not None else None
    return build_indexes(access, snapshot, wanted, registry, columns=columns)


def build_beside_writers(
    access: Access,
    indexes: Collection[str],
    registry: MergerRegistry,
    *,
    defined: Collection[IndexDefinition] = (),
    columns: Collection[str] | None = None,
    per_partition: bool | None = None,
) -> list[str]:
    """Build indexes that the table lacks while others write it; their names.

    `defined` tells about those of them that the table does not know yet; statistics are about
    `columns`, or all; a record index is `per_partition`, or as the table says.

    The list of files is made first where there is no metadata table: that takes a listing under the
    lock. See `build_metadata_table` for when it cannot be; nothing is built then. Raises
    `PlanBusyError` if another process builds indexes, `IndexesChangedError` if others came in
    between each time.
    """
    for _ in range(TRIES):
        if not indexes_of(access.properties()) and not build_metadata_table(access):
            return []
        snapshot = _now(access)
        first = FirstRecords(snapshot, registry, access.spawner, columns, per_partition)
        groups = first.groups(first.able(indexes))
        if not groups:
            return []
        said = first.defined() if RECORD_INDEX in groups else None
        told = [*defined, *([said] if said is not None else [])]
        try:
            building = begin_building(access, groups, lambda: _now(access), defined=told)
        except IndexesChangedError:
            continue
        if building is None:
            return []
        first = replace(first, snapshot=building.basis)
        try:
            new = first.of(building.groups, list_table(access.storage))
            if building.finish(new, building.basis.schema.arrow.names):
                return sorted(building.groups)
        except NotFoundError:
            pass  # a clean took what was to be read
        finally:
            building.leave()
    raise IndexesChangedError(
        f"Indexes could not be built in {TRIES} tries: others changed the table in between.",
        hint="Run it again when fewer compactions and cleans run; until then nobody uses them.",
        context={"table": access.storage.uri, "indexes": ",".join(indexes)},
        retryable=True,
    )


def refuse_other_kind(snapshot: Snapshot, per_partition: bool | None) -> None:
    """`OptionError` if the table has a record index that is not of the kind that is asked for, or
    cannot have one."""
    if per_partition is None:
        return
    properties = snapshot.properties
    context = {"table": snapshot.storage.uri}
    if per_partition and not properties.version.defines_indexes:
        raise OptionError(
            f"Tables of version {properties.version} have no record index per partition.",
            hint="Choose one of all keys, or the index BLOOM or SIMPLE.",
            context=context,
        )
    has = keeps_keys_per_partition(snapshot.storage, properties)
    if RECORD_INDEX in indexes_of(properties) and has != per_partition:
        kinds = ("of all keys", "per partition")
        raise OptionError(
            f"The table has a record index {kinds[has]}; asked for is one {kinds[not has]}.",
            hint="Drop it first: lakewright metadata drop TABLE --index record_index.",
            context=context,
        )


def _now(access: Access) -> Snapshot:
    return load_snapshot(access.storage, clock=access.clock, use_metadata_table=False)
