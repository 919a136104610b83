"""Tables whose metadata table is on: kept right with every change, refused, or dropped on demand.

Nobody notices a metadata table that is behind its data. So a table is written only if every index
of it is one that is kept right here, and nothing is missing in it already; otherwise it is refused
by name, before anything has happened, or loses its metadata table if the caller says so.
"""

from __future__ import annotations

from typing import Final

from lakewright.errors import MetadataTableError, NotFoundError, UnsupportedTableError
from lakewright.format import property_keys as keys
from lakewright.format.table_properties import TableProperties
from lakewright.metadata.batch import FILE_INDEXES, indexes_of
from lakewright.metadata.definitions import load_definitions
from lakewright.metadata.file_groups import FILES, RECORD_INDEX, SECONDARY_PREFIX
from lakewright.metadata.index_changes import stored_groups
from lakewright.metadata.table import METADATA_FOLDER, MetadataTable
from lakewright.metadata.validity import check_fresh
from lakewright.txn.access import Access
from lakewright.txn.lost_indexes import lost_indexes
from lakewright.txn.metadata_creation import drop_indexes, drop_metadata_table

__all__ = ["MAINTAINED", "has_metadata_table", "pass_metadata_gate"]

MAINTAINED: Final = FILE_INDEXES | {FILES, RECORD_INDEX}
"""Indexes that every change of ours keeps right, besides the secondary ones."""
_VERSION: Final = "V1"
_WAY_OUT: Final = (
    "Write with metadata_table='trim' to remove such indexes first, or with 'drop' to remove the "
    "whole metadata table (readers then list folders); a Hudi writer that has them switched on "
    "builds them again. Or write the table with Hudi."
)


def has_metadata_table(properties: TableProperties) -> bool:
    """Whether the table claims to have a metadata table, whole or being built."""
    return bool(indexes_of(properties))


def pass_metadata_gate(access: Access, *, drop: bool, trim: bool = False) -> None:
    """Return if the table may be written; with `drop` its metadata table is gone then, with `trim`
    those of its indexes are that are not kept right here.

    Raises `UnsupportedTableError` for an index that is not kept right here, `MetadataTableError`
    for a metadata table that is behind its table or damaged.
    """
    properties = access.properties()
    claimed = has_metadata_table(properties)
    if drop:
        storage = access.storage
        if claimed or storage.exists(METADATA_FOLDER) or lost_indexes(storage):
            drop_metadata_table(access)
    elif claimed:
        foreign = _unmaintained(properties)
        if trim and foreign and FILES in properties.metadata_partitions:
            drop_indexes(access, foreign)
        _require_kept_right(access)
    elif access.storage.exists(METADATA_FOLDER):
        drop_metadata_table(access, to_return=True)


def _require_kept_right(access: Access) -> None:
    """Look at the metadata table, and once more where nobody can be in the middle of a change of
    it."""
    try:
        _look(access)
    except (MetadataTableError, UnsupportedTableError, NotFoundError):
        with access.locked("look at the metadata table"):
            _look(access)


def _look(access: Access) -> None:
    properties = access.properties()
    if not has_metadata_table(properties):
        return
    _refuse_unmaintained(access, properties)
    timeline = access.timeline(properties)
    opened = MetadataTable.open(access.storage, properties, timeline, check=False)
    if opened is not None:
        check_fresh(access.storage, properties, timeline, opened.timeline, undoing=True)


def _unmaintained(properties: TableProperties) -> frozenset[str]:
    """Indexes that are not kept right; that of records only where files store their keys."""
    found = indexes_of(properties)
    if not properties.populate_meta_fields:
        return found - (MAINTAINED - {RECORD_INDEX})
    return frozenset(i for i in found - MAINTAINED if not i.startswith(SECONDARY_PREFIX))


def _refuse_unmaintained(access: Access, properties: TableProperties) -> None:
    bare = tuple(
        i for i in properties.metadata_partitions_inflight if not _has_groups(access, properties, i)
    )
    if bare:
        raise _refused(
            access,
            f"The index {', '.join(bare)} of its metadata table is being built and has no place "
            "for changes yet",
            keys.METADATA_PARTITIONS_INFLIGHT,
            bare,
        )
    indexes = properties.metadata_partitions
    foreign = sorted(_unmaintained(properties))
    if foreign or FILES not in indexes:
        what = f"the index {', '.join(foreign)}" if foreign else "no list of files"
        said = f"The table has a metadata table with {what}, which this write would leave behind"
        raise _refused(access, said, keys.METADATA_PARTITIONS, indexes)
    if indexes != (FILES,):
        _refuse_newer(access, properties)


def _has_groups(access: Access, properties: TableProperties, index: str) -> bool:
    try:
        stored_groups(access.storage, properties, index)
    except MetadataTableError:
        return False
    return True


def _refuse_newer(access: Access, properties: TableProperties) -> None:
    """Indexes that were built by the rules of a newer release."""
    defines = properties.version.defines_indexes
    for definition in load_definitions(access.storage, properties).values():
        newer = definition.version != _VERSION or (definition.is_partitioned and not defines)
        if newer and definition.name in indexes_of(properties):
            said = (
                f"The index {definition.name} of its metadata table has a newer layout, which "
                "this write would not keep"
            )
            raise _refused(access, said, keys.METADATA_PARTITIONS, properties.metadata_partitions)


def _refused(
    access: Access, what: str, key: str, indexes: tuple[str, ...]
) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"{what}.",
        hint=_WAY_OUT,
        context={"table": access.storage.uri, "property": key, "value": ",".join(indexes)},
    )
