"""The columns that statistics are about.

At version 8 they are written down, in the definition of the index. Unless somebody chose them they
are the first of the table that can have statistics, and three meta columns; then a column that is
new in the table comes into the definition with the same write, as with Hudi's writers, and so does
one that was chosen before it came. If it did not, Hudi's next write would name it, and take what
files of this one do not tell for nulls.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow as pa

from lakewright.codec.avro.arrow_types import arrow_schema
from lakewright.engine.snapshot import Snapshot
from lakewright.format.table_properties import TableProperties
from lakewright.format.table_schema import with_meta_columns, without_meta_columns
from lakewright.metadata.definitions import IndexDefinition, load_definitions
from lakewright.metadata.file_groups import COLUMN_STATS
from lakewright.metadata.record_schema import META_FIELDS
from lakewright.metadata.wrapping import wrapper_of
from lakewright.storage.base import Storage

__all__ = [
    "defined_columns",
    "first_columns",
    "indexed_columns",
    "statistics_definition",
    "stored_columns",
]

COLUMNS_MOST: Final = 32
_META: Final = ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")


def statistics_definition(names: tuple[str, ...]) -> IndexDefinition:
    """The definition of an index of statistics about these columns."""
    return IndexDefinition(COLUMN_STATS, COLUMN_STATS, COLUMN_STATS, names, {})


def stored_columns(snapshot: Snapshot) -> pa.Schema:
    """The columns of a table, meta ones too."""
    return arrow_schema(with_meta_columns(without_meta_columns(snapshot.schema.avro)))


def defined_columns(storage: Storage, properties: TableProperties) -> tuple[str, ...] | None:
    """The columns that the statistics of a table are about, for whoever builds them anew; None if
    it has none, or does not write them down."""
    if COLUMN_STATS not in properties.metadata_partitions:
        return None
    definition = load_definitions(storage, properties).get(COLUMN_STATS)
    return None if definition is None else definition.source_fields


def first_columns(
    properties: TableProperties, stored: pa.Schema, chosen: Collection[str] | None = None
) -> pa.Schema:
    """The columns that a new index of statistics is about: the first ones, or those that somebody
    chose, as far as they can have statistics.

    Before version 8 all are: nothing would tell the next writer about a choice.
    """
    if not properties.version.defines_indexes:
        return pa.schema(_able(properties, stored))
    return _defined(properties, stored, chosen)


def _able(properties: TableProperties, stored: pa.Schema) -> list[pa.Field]:
    """Columns that can have statistics."""
    left_out = {*(properties.partition_fields if properties.drop_partition_columns else ())}
    left_out.update(() if properties.populate_meta_fields else META_FIELDS)
    kept = (field for field in stored if field.name not in left_out)
    return [field for field in kept if wrapper_of(field.type) is not None]


def _defined(
    properties: TableProperties, stored: pa.Schema, chosen: Collection[str] | None = None
) -> pa.Schema:
    """The columns that a new definition names."""
    able = _able(properties, stored)
    rows = [field for field in able if field.name not in META_FIELDS]
    if chosen is None:
        rows = rows[:COLUMNS_MOST]
    else:
        rows = [field for field in rows if field.name in chosen]
    return pa.schema([*(f for f in able if f.name in _META), *rows])


def indexed_columns(
    snapshot: Snapshot, schema: pa.Schema, chosen: Collection[str] | None = None
) -> tuple[pa.Schema, IndexDefinition | None]:
    """The columns that a write of files with this schema tells about, and the definition that goes
    with it if they become more.

    Where somebody chose the columns, one that comes with the write is told if the write chooses it
    too. A table of version 6 has a definition if Hudi 1.x has written it.
    """
    known = {field.name: field for field in schema if wrapper_of(field.type) is not None}
    definition = load_definitions(snapshot.storage, snapshot.properties).get(COLUMN_STATS)
    if definition is None:
        return pa.schema(list(known.values())), None
    names = (*dict.fromkeys(definition.source_fields),)
    properties, stored = snapshot.properties, stored_columns(snapshot)
    if {*_defined(properties, stored).names} <= {*names}:
        more = _defined(properties, schema).names
    else:
        asked = _defined(properties, schema, chosen or ()).names
        more = [n for n in asked if n not in stored.names]
    names = (*dict.fromkeys((*names, *more)),)
    told = pa.schema([known[name] for name in names if name in known])
    grown = len(names) > len({*definition.source_fields})
    return told, statistics_definition(names) if grown else None
