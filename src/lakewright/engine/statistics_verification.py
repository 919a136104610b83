"""Statistics of columns, held against what the files tell: per file, and per partition.

Those of files must be equal. Those of partitions are another matter: Hudi counts files twice, keeps
the bounds of replaced files and takes zero for the bound of a column of nulls, so they are held to
what they are good for, which is that no row lies outside of them.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakewright.engine.committed_files import (
    CountingBlocks,
    DataFile,
    committed_files,
    listed_folders,
)
from lakewright.engine.snapshot import Snapshot
from lakewright.engine.stored_statistics import (
    FileStatistics,
    base_file_statistics,
    leaf_types,
    log_file_statistics,
    statistics_tables,
)
from lakewright.metadata.contents import misplaced, statistics_entries
from lakewright.metadata.file_groups import COLUMN_STATS, PARTITION_STATS
from lakewright.metadata.keys import (
    COLUMN_HASH_CHARS,
    column_prefixes,
    file_group_index,
    name_hashes,
)
from lakewright.metadata.records import Prefixes
from lakewright.metadata.statistics_payloads import statistics_keys
from lakewright.metadata.table import MetadataTable
from lakewright.metadata.verification import (
    Compared,
    Difference,
    DifferenceKind,
    Finding,
    compared,
    enclosing,
)

__all__ = ["verify_column_statistics", "verify_partition_statistics"]

AT_ONCE: Final = 1 << 21
"""Files times columns whose statistics are held at once; beyond, footers are read repeatedly."""

_MUTE: Final = "mute"


def verify_column_statistics(snapshot: Snapshot, metadata: MetadataTable) -> Iterator[Finding]:
    """Statistics of columns per file."""
    index = _Statistics(snapshot, metadata, COLUMN_STATS)
    columns, records = yield from index.columns()
    for some, expected, found in index.chunks(columns, committed_files(snapshot)):
        yield from index.foreign(some, found)
        for name, told in index.with_mutes(some, found).items():
            differences = compared(
                COLUMN_STATS,
                expected[name].drop_columns("is_tight"),
                told,
                key=("partition", "file_name"),
                label="{}/{}" + f" {name}",
                mute=_MUTE,
            )
            yield from (d for d in differences if not index.may_lack(d))
    yield Compared(COLUMN_STATS, records, 0)


def verify_partition_statistics(snapshot: Snapshot, metadata: MetadataTable) -> Iterator[Finding]:
    """Statistics of columns per partition; a partition without rows may have kept what it had."""
    live = [
        DataFile(s.group.partition, f.name, f.size)
        for s in snapshot.live_slices()
        for f in (s.base, *s.logs)
        if f is not None
    ]
    index = _Statistics(snapshot, metadata, PARTITION_STATS)
    columns, records = yield from index.columns()
    for some, expected, found in index.chunks(columns, live):
        yield from index.foreign(some, found)
        for name, told in index.with_mutes(some, found).items():
            wanted = _per_partition(expected[name])
            inhabited = pc.is_in(told["partition"], wanted["partition"].combine_chunks())
            yield from enclosing(
                PARTITION_STATS,
                wanted,
                told.filter(inhabited),
                key=("partition",),
                label="{}" + f" {name}",
                mute=_MUTE,
            )
    yield Compared(PARTITION_STATS, records, 0)


class _Statistics:
    """One of the two indexes, read whole."""

    def __init__(self, snapshot: Snapshot, metadata: MetadataTable, index: str) -> None:
        self._snapshot, self._metadata, self._index = snapshot, metadata, index
        self._partitions = sorted({*listed_folders(snapshot), *metadata.partitions()})
        self._counts = CountingBlocks(snapshot)
        self._in_part: set[str] = set()
        """Logs that do not have all columns."""
        self._undefined: frozenset[str] = frozenset()
        """Columns that had statistics before the table got a definition."""

    def columns(self) -> Generator[Finding, None, tuple[pa.Schema, int]]:
        """The columns with statistics, in the table's types, and how many records there are.

        Gives every record that is in the wrong file group, or about a column that is not indexed.
        """
        kinds = leaf_types(self._snapshot.schema.arrow)
        definition = self._metadata.definitions.get(COLUMN_STATS)
        defined = None if definition is None else definition.source_fields
        of_files = self._index == COLUMN_STATS
        if defined and of_files and not self._snapshot.properties.version.defines_indexes:
            self._undefined = frozenset(kinds.keys() - {*defined})
            defined = (*defined, *sorted(self._undefined))
        hashes = None if defined is None else pa.array(name_hashes(defined), pa.binary())
        groups = self._metadata.groups(self._index)
        names: set[str] = set()
        records = 0
        for number, reader in enumerate(groups):
            entries = statistics_entries(reader)
            records += len(entries)
            belongs = file_group_index(entries["key"].cast(pa.string()), len(groups))
            yield from misplaced(self._index, entries["key"], number, belongs)
            names.update(entries["column"].drop_null().unique().to_pylist())
            if hashes is not None:
                column = pc.binary_slice(entries["key"].combine_chunks(), 0, COLUMN_HASH_CHARS)
                foreign = pc.invert(pc.is_in(column, value_set=hashes))
                yield from self._unexpected(entries.filter(foreign))
        # Hudi 0.15 counts nested columns of logs, and says nothing about them.
        chosen = sorted(names & kinds.keys()) if defined is None else defined
        return pa.schema([pa.field(n, kinds.get(n, pa.null())) for n in chosen]), records

    def chunks(
        self, columns: pa.Schema, files: list[DataFile]
    ) -> Iterator[tuple[pa.Schema, Mapping[str, pa.Table], Mapping[str, pa.Table]]]:
        """Some columns at a time, with what is expected of them and what was found."""
        step = max(1, AT_ONCE // max(1, len(files)))
        of_partitions = self._index == PARTITION_STATS
        read = self._metadata.partition_stats if of_partitions else self._metadata.column_stats
        for first in range(0, len(columns), step):
            some = pa.schema(list(columns)[first : first + step])
            expected = statistics_tables(self._stored(files, {*columns.names}), some)
            yield some, expected, read(some, self._partitions)

    def may_lack(self, found: Difference) -> bool:
        """Whether it is right to say nothing: see `in_whole`; and of columns that no definition
        names nothing is told any more."""
        name, _, column = found.key.rpartition(" ")
        silent = name.lstrip("/") in self._in_part or column in self._undefined
        return found.kind is DifferenceKind.MISSING and silent

    def _stored(self, files: Iterable[DataFile], names: set[str]) -> Iterator[FileStatistics]:
        storage, counts = self._snapshot.storage, self._counts
        for file in files:
            if file.is_base:
                facts = base_file_statistics(storage, file.path)
            else:
                facts = log_file_statistics(storage, file.path, counts=partial(counts, file.path))
                if not names <= facts.keys():
                    self._in_part.add(file.path)
            yield FileStatistics(file.partition, file.name, facts)

    def foreign(self, columns: pa.Schema, found: Mapping[str, pa.Table]) -> Iterator[Difference]:
        """Records of these columns that belong to no partition that there is."""
        known = pa.concat_arrays([self._keys(name, table) for name, table in found.items()])
        for reader in self._metadata.groups(self._index):
            entries = statistics_entries(reader, _of_columns(columns))
            foreign = pc.invert(pc.is_in(entries["key"], value_set=known))
            yield from self._unexpected(entries.filter(foreign))

    def with_mutes(self, columns: pa.Schema, found: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """What was found, and where bounds are stored that tell nothing about the column."""
        groups = self._metadata.groups(self._index)
        entries = pa.concat_tables(statistics_entries(g, _of_columns(columns)) for g in groups)
        bounded = entries.filter(entries["bounded"])["key"].combine_chunks()
        out = {}
        for name, table in found.items():
            stored = pc.is_in(self._keys(name, table), value_set=bounded)
            low, high = (table[end].combine_chunks() for end in ("min", "max"))
            mute = low.is_null()
            if pa.types.is_floating(low.type):  # of a column with NaN: bounds around everything
                open_ = pc.equal(low, pa.scalar(-math.inf, low.type)).fill_null(False)
                mute = pc.or_(mute, pc.and_(open_, high.is_null()))
            out[name] = table.append_column(_MUTE, pc.and_(stored, mute))
        return out

    def _keys(self, column: str, table: pa.Table) -> pa.BinaryArray:
        named = pa.repeat(pa.scalar(column, pa.string()), len(table))
        places = table["partition"].combine_chunks()
        of_files = self._index == COLUMN_STATS
        files = table["file_name"].combine_chunks() if of_files else None
        return statistics_keys(named, places, files)

    def _unexpected(self, entries: pa.Table) -> Iterator[Difference]:
        for row in entries.select(["key", "file_name", "column"]).to_pylist():
            name = f"{row['file_name']} {row['column']}"
            found = {"key": row["key"].decode("utf-8", "replace")}
            yield Difference(self._index, DifferenceKind.UNEXPECTED, name, found=found)


def _of_columns(columns: pa.Schema) -> Prefixes:
    return Prefixes(tuple(column_prefixes(columns.names, None)))


def _per_partition(statistics: pa.Table) -> pa.Table:
    """Statistics of files put together by partition."""
    bounds = [] if pa.types.is_null(statistics.schema.field("min").type) else ["min", "max"]
    names = [*bounds, "value_count", "null_count"]
    kinds = {"min": "min", "max": "max"}
    grouped = statistics.group_by("partition", use_threads=False).aggregate(
        [(name, kinds.get(name, "sum")) for name in names]
    )
    grouped = grouped.rename_columns(["partition", *names])
    for name in {"min", "max"}.difference(names):
        grouped = grouped.append_column(name, pa.nulls(len(grouped)))
    return grouped
