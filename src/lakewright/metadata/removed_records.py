"""What goes from the indexes of files when files are removed: statistics and bloom filters.

Exactly what the index has about these files is taken back, whichever columns that is about: by
deleted keys, or at version 6 by records that say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakewright.format.file_names import BaseFileName, parse_data_file
from lakewright.format.version import TableVersion
from lakewright.metadata.batch import FILE_INDEXES
from lakewright.metadata.contents import statistics_entries
from lakewright.metadata.file_groups import BLOOM_FILTERS, COLUMN_STATS
from lakewright.metadata.index_changes import IndexChange
from lakewright.metadata.keys import PARTITION_END, file_digests
from lakewright.metadata.payloads import bloom_filter_records
from lakewright.metadata.statistics_payloads import deleted_statistics_records
from lakewright.metadata.table import MetadataTable

__all__ = ["removed_changes"]

_FILE_END: Final = 48
"""Keys of statistics end with the digest of the file's name."""


def removed_changes(
    table: MetadataTable,
    removed: Mapping[str, Sequence[str]],
    *,
    instant: str,
    version: TableVersion,
) -> dict[str, IndexChange]:
    """Changes of the indexes of files, for files that are removed, by partition."""
    rows = [(partition, name) for partition, names in removed.items() for name in names]
    files = pa.table(
        {
            "partition": pa.array([partition for partition, _ in rows], pa.string()),
            "name": pa.array([name for _, name in rows], pa.string()),
        }
    )
    changes: dict[str, IndexChange] = {}
    for index in FILE_INDEXES.intersection(table.indexes):
        if index == COLUMN_STATS:
            changes[index] = _statistics(table, files, version)
        elif index == BLOOM_FILTERS:
            changes[index] = _filters(files, instant, version)
        else:
            changes[index] = IndexChange()
    return changes


def _statistics(table: MetadataTable, files: pa.Table, version: TableVersion) -> IndexChange:
    digests = file_digests(files["name"].combine_chunks())
    found = []
    for reader in table.groups(COLUMN_STATS):
        entries = statistics_entries(reader)
        of_files = pc.binary_slice(entries["key"], PARTITION_END, _FILE_END)
        found.append(entries.filter(pc.is_in(of_files, value_set=digests)))
    entries = pa.concat_tables(found).combine_chunks()
    if not version.metadata_operation_suffixes:
        return IndexChange(deleted=entries["key"].combine_chunks())
    known = files.filter(pc.is_in(files["name"], value_set=entries["file_name"].combine_chunks()))
    columns = sorted(entries["column"].unique().to_pylist())
    if not columns:
        return IndexChange()
    return IndexChange(deleted_statistics_records(columns, known, version=version))


def _filters(files: pa.Table, instant: str, version: TableVersion) -> IndexChange:
    bases = [isinstance(parse_data_file(name), BaseFileName) for name in files["name"].to_pylist()]
    mine = files.filter(pa.array(bases, pa.bool_()))
    gone = bloom_filter_records(mine, [None] * len(mine), instant=instant, version=version)
    if not version.metadata_operation_suffixes:
        return IndexChange(deleted=gone.keys)
    return IndexChange(gone)
