"""Indexes of whole files, held against the files: the listing, and the bloom filters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from lakewright.codec.bloom import SIMPLE
from lakewright.codec.parquet import ParquetFooter
from lakewright.engine.base_footer import BLOOM, BLOOM_TYPE
from lakewright.engine.committed_files import (
    CountingBlocks,
    DataFile,
    committed_files,
    listed_folders,
)
from lakewright.engine.snapshot import Snapshot
from lakewright.format.log_block import BlockType, LogBlock, read_blocks
from lakewright.metadata.contents import (
    BLOOM_ENTRIES,
    bloom_digest,
    bloom_entries,
    listed_everything,
    misplaced,
)
from lakewright.metadata.file_groups import BLOOM_FILTERS, FILES
from lakewright.metadata.files import FILE_TABLE
from lakewright.metadata.keys import (
    file_digests,
    file_group_index,
    joined_keys,
    partition_hashes,
)
from lakewright.metadata.table import MetadataTable
from lakewright.metadata.verification import (
    Compared,
    Difference,
    DifferenceKind,
    Finding,
    compared,
)

__all__ = ["verify_bloom_filters", "verify_listing"]


def verify_listing(snapshot: Snapshot, metadata: MetadataTable) -> Iterator[Finding]:
    """The index of files, and its list of partitions."""
    partitions, found = listed_everything(metadata.groups(FILES)[0])
    told = zip(found["partition"].to_pylist(), found["name"].to_pylist(), strict=True)
    known = frozenset(told)
    files = _saying_something(snapshot, committed_files(snapshot, known), known)
    for partition in sorted({f.partition for f in files}.difference(partitions)):
        yield Difference(FILES, DifferenceKind.MISSING, partition, expected={"partition": True})
    for partition in sorted(set(partitions).difference(listed_folders(snapshot))):
        yield Difference(FILES, DifferenceKind.UNEXPECTED, partition, found={"partition": True})
    columns = list(zip(*files, strict=True)) or [()] * len(FILE_TABLE)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, FILE_TABLE, strict=True)]
    expected = pa.table(arrays, schema=FILE_TABLE)
    yield from compared(FILES, expected, found, key=("partition", "name"), label="{}/{}")
    yield Compared(FILES, len(found) + len(partitions), 0)


def _saying_something(
    snapshot: Snapshot, files: Sequence[DataFile], told: Collection[tuple[str, str]]
) -> list[DataFile]:
    """Files without logs of version 6 that nobody was told of and nobody misses: those of writes
    that were cancelled by the process that found out, after it was taken for dead."""
    untold = [f for f in files if f[:2] not in told and not f.is_base]
    if not untold or not snapshot.properties.version.rollback_by_log_block:
        return list(files)
    counts, timeline = CountingBlocks(snapshot), snapshot.timeline
    done = {instant.requested_time for instant in timeline.completed()}

    def says(file: DataFile, block: LogBlock) -> bool:
        instant = block.instant or ""
        if block.type is not BlockType.COMMAND:
            return counts(file.path, instant)
        # The command of a rollback has its time; a write that cancels itself has but its own.
        over = instant in done or timeline.is_archived(instant)
        return over and instant != block.target_instant

    def is_silent(file: DataFile) -> bool:
        blocks = read_blocks(snapshot.storage.read(file.path), path=file.path)
        return not any(says(file, block) for block in blocks)

    silent = {file for file in untold if is_silent(file)}
    return [file for file in files if file not in silent]


def verify_bloom_filters(snapshot: Snapshot, metadata: MetadataTable) -> Iterator[Finding]:
    """Bloom filters of base files; a file whose footer has none has no record."""
    rows = [
        (file.partition, file.name, *told)
        for file in committed_files(snapshot)
        if file.is_base and (told := _stored_filter(snapshot, file)) is not None
    ]
    columns = list(zip(*rows, strict=True)) or [()] * 4
    places, names, kinds, digests = (pa.array(c, pa.string()) for c in columns)
    keys = joined_keys(partition_hashes(places), file_digests(names))
    expected = pa.table([keys, kinds, digests], schema=BLOOM_ENTRIES)
    groups = metadata.groups(BLOOM_FILTERS)
    tables = [BLOOM_ENTRIES.empty_table()]
    for number, reader in enumerate(groups):
        tables.append(bloom_entries(reader))
        belongs = file_group_index(tables[-1]["key"].cast(pa.string()), len(groups))
        yield from misplaced(BLOOM_FILTERS, tables[-1]["key"], number, belongs)
    found = pa.concat_tables(tables)
    known = dict(zip(keys.to_pylist(), map("/".join, zip(*columns[:2], strict=True)), strict=True))
    for difference in compared(BLOOM_FILTERS, _texts(expected), _texts(found), key=("key",)):
        name = known.get(difference.key.encode(), difference.key)
        yield replace(difference, key=name)
    yield Compared(BLOOM_FILTERS, len(found), 0)


def _stored_filter(snapshot: Snapshot, file: DataFile) -> tuple[str, str] | None:
    with snapshot.storage.open_input(file.path) as source:
        values = ParquetFooter.read(source, file.path).values
    text = values.get(BLOOM)
    return None if not text else (values.get(BLOOM_TYPE) or SIMPLE, bloom_digest(text.encode()))


def _texts(table: pa.Table) -> pa.Table:
    return table.set_column(0, "key", table["key"].cast(pa.string()))
