"""The `files` index: which partitions a table has, and which files each of them has.

A record maps names to sizes and tombstones. Records of a partition are folded in commit order, base
file first: a tombstone removes what came before it, what comes after it lives, and a file that was
written to again has its greatest size. All records of all partitions are folded at once.

The JVM folds log records among themselves first and drops a tombstone that met its file there; then
a file that the base also lists comes back to life. Folding once, in order, does not have that gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.errors import MetadataTableError
from lakewright.format.partitions import ListedFile
from lakewright.metadata.keys import ALL_PARTITIONS, partition_identifier, partition_path
from lakewright.metadata.record_schema import FILE_LIST, RecordKind
from lakewright.metadata.records import Decoded, FileGroupReader, Keys, Part, decoded, living

__all__ = [
    "FILE_TABLE",
    "FoldedLists",
    "file_table",
    "folded_lists",
    "listed_files",
    "listed_partitions",
]

_COLUMNS: Final = ("type", FILE_LIST)

FILE_TABLE: Final = pa.schema(
    [("partition", pa.string()), ("name", pa.string()), ("size", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class FoldedLists:
    """What all records of the index together say: keys, and the live names of each."""

    keys: pa.BinaryArray
    counts: npt.NDArray[np.int64]
    """Live names per key; the names and sizes of the keys follow one another."""
    names: pa.StringArray
    sizes: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Entries:
    """Map entries of records in commit order."""

    record: npt.NDArray[np.int64]
    """Which of the asked keys the entry belongs to."""
    names: pa.StringArray
    sizes: npt.NDArray[np.int64]
    deleted: npt.NDArray[np.bool_]


def listed_partitions(reader: FileGroupReader) -> list[str]:
    """Paths of all live partitions, sorted; `[""]` for a table without partitions."""
    keys = pa.array([ALL_PARTITIONS], pa.binary())
    entries, found = _entries(reader.read(Keys(keys)), keys)
    if not found.all():
        raise _broken("it has no list of partitions", reader.path)
    live, _ = _folded(entries)
    return sorted(partition_path(p) for p in entries.names.take(pa.array(live)).to_pylist())


def file_table(reader: FileGroupReader, partitions: Sequence[str]) -> pa.Table:
    """Live files of the partitions: partition, name, size; grouped in the order that is given."""
    identifiers = pa.array([partition_identifier(p) for p in partitions], pa.string())
    keys = identifiers.cast(pa.binary())
    entries, found = _entries(reader.read(Keys(keys)), keys)
    if not found.all():
        missing = partitions[int(np.argmin(found))]
        raise _broken(f"it has no list of files for partition '{missing}'", reader.path)
    live, sizes = _folded(entries)
    paths = pa.array(partitions, pa.string())
    return pa.table(
        [
            paths.take(pa.array(entries.record[live])),
            entries.names.take(pa.array(live)),
            pa.array(sizes, pa.int64()),
        ],
        schema=FILE_TABLE,
    )


def listed_files(reader: FileGroupReader, partitions: Sequence[str]) -> dict[str, list[ListedFile]]:
    """Live files of each partition, sorted by name."""
    table = file_table(reader, partitions)
    grouped = pc.run_end_encode(table["partition"].combine_chunks())
    names, sizes = table["name"].to_pylist(), table["size"].to_pylist()
    out: dict[str, list[ListedFile]] = {p: [] for p in partitions}
    first = 0
    for partition, end in zip(
        grouped.values.to_pylist(), grouped.run_ends.to_pylist(), strict=True
    ):
        # One object per file: they are the result.
        out[partition] = sorted(map(ListedFile, names[first:end], sizes[first:end]))
        first = end
    return out


def folded_lists(parts: Sequence[Part]) -> FoldedLists:
    """All records folded; a key whose names are all gone stays. For a new base file."""
    held = [p.keys for p in parts if p.values is not None]
    keys = pa.concat_arrays([pa.array([], pa.binary()), *held]).unique()
    entries, found = _entries(parts, keys)
    live, sizes = _folded(entries)
    counts = np.bincount(entries.record[live], minlength=len(keys))
    names = entries.names.take(pa.array(live))
    return FoldedLists(keys.filter(pa.array(found)), counts[found], names, sizes)


def _entries(parts: Sequence[Part], keys: pa.BinaryArray) -> tuple[_Entries, npt.NDArray[np.bool_]]:
    """Entries of the records with the given keys, and which of the keys have a record."""
    runs = list(decoded(living(parts, newest_only=False), _COLUMNS))
    found = np.zeros(len(keys), np.bool_)
    if not runs:
        none = np.zeros(0, np.int64)
        return _Entries(none, pa.array([], pa.string()), none, none.astype(np.bool_)), found
    flat = [_flattened(run, keys) for run in runs]
    for run in runs:
        found[_places(run.keys, keys)] = True
    return (
        _Entries(
            np.concatenate([p.record for p in flat]),
            pa.concat_arrays([p.names for p in flat]),
            np.concatenate([p.sizes for p in flat]),
            np.concatenate([p.deleted for p in flat]),
        ),
        found,
    )


def _flattened(run: Decoded, keys: pa.BinaryArray) -> _Entries:
    kinds = np.asarray(run.rows.column("type"))
    of_partitions = np.asarray(pc.equal(run.keys, ALL_PARTITIONS))
    wanted = np.where(of_partitions, RecordKind.PARTITION_LIST, RecordKind.FILE_LIST)
    if (kinds != wanted).any():
        at = int(np.argmax(kinds != wanted))
        raise _broken(f"type {kinds[at]} is where type {wanted[at]} belongs", run.path)
    maps = run.rows.column(FILE_LIST)
    counts = np.asarray(_sizes_of(maps))
    items = maps.items
    return _Entries(
        np.repeat(_places(run.keys, keys), counts),
        maps.keys,
        np.asarray(items.field("size")),
        np.asarray(items.field("isDeleted").cast(pa.uint8())).astype(np.bool_),
    )


def _sizes_of(maps: pa.MapArray) -> npt.NDArray[np.int64]:
    counts = np.diff(np.asarray(maps.offsets)).astype(np.int64)
    counts[np.asarray(maps.is_null())] = 0
    return counts


def _places(some: pa.BinaryArray, keys: pa.BinaryArray) -> npt.NDArray[np.int64]:
    return np.asarray(pc.index_in(some, value_set=keys)).astype(np.int64)


def _folded(entries: _Entries) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """Live entries (by the index of their last occurrence) and their sizes."""
    if not len(entries.record):
        return np.zeros(0, np.intp), np.zeros(0, np.int64)
    names = entries.names.dictionary_encode()
    code = entries.record * len(names.dictionary) + np.asarray(names.indices)
    order = np.argsort(code, kind="stable")
    code = code[order]
    first = np.flatnonzero(np.diff(code, prepend=-1))
    place = np.arange(len(code))
    deleted = entries.deleted[order]
    horizon = np.maximum.reduceat(np.where(deleted, place, -1), first)
    alive = place > np.repeat(horizon, np.diff(first, append=len(code)))
    sizes = np.maximum.reduceat(np.where(alive, entries.sizes[order], -1), first)
    last = np.append(first[1:], len(code)) - 1
    listed = ~deleted[last]
    return order[last[listed]], sizes[listed]


def _broken(why: str, path: str) -> MetadataTableError:
    return MetadataTableError(
        f"The files index of the metadata table is broken: {why}.",
        hint="Read the table without its metadata table, and rebuild that.",
        context={"path": path, "offset": 0},
    )
