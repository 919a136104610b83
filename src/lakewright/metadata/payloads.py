"""What a table's files and rows say, as records of the metadata table: the inverse of its readers.

Every function takes columns and gives keys with encoded values, in the layout of the table version.
Tables of columns have the schemas that the readers give out (`file_table`, `record_locations`).
Nothing is sorted here. What can go wrong: values that Hudi's readers would
fail on or take for something else are a `FormatError`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.avro.types import Record
from lakewright.codec.bloom import BloomFilter
from lakewright.errors import FormatError
from lakewright.format.version import TableVersion
from lakewright.metadata.encoding import MetadataRecords, encoded_parts, no_records
from lakewright.metadata.keys import (
    ALL_PARTITIONS,
    file_digests,
    joined_keys,
    partition_hashes,
    partition_identifier,
    secondary_entries,
)
from lakewright.metadata.record_index import NO_FILE_INDEX, TEXT_ENCODING, UUID_ENCODING
from lakewright.metadata.record_schema import (
    BLOOM_FILTER,
    FILE_LIST,
    RECORD_INDEX,
    SECONDARY_INDEX,
    RecordKind,
    written_record,
)

__all__ = [
    "bloom_filter_records",
    "encoded_lists",
    "file_list_records",
    "list_maps",
    "partition_list_record",
    "record_index_records",
    "secondary_entry_records",
    "secondary_index_records",
]

_NO_BITS: Final = -1
_UUID_CHARS: Final = 36
_FILE_INDEX: Final = re.compile(r"-(0|[1-9][0-9]{0,8})")


def partition_list_record(
    partitions: Sequence[str], removed: Sequence[str] = (), *, version: TableVersion
) -> MetadataRecords:
    """The record of written and of removed partitions; it may be empty."""
    names = [partition_identifier(p) for p in (*partitions, *removed)]
    flags = np.arange(len(names)) >= len(partitions)
    sizes = np.zeros(len(names), np.int64)
    maps = list_maps(np.array([len(names)]), pa.array(names, pa.string()), sizes, flags)
    values = encoded_lists(RecordKind.PARTITION_LIST, maps, written_record(version))
    return MetadataRecords(pa.array([ALL_PARTITIONS], pa.binary()), values)


def file_list_records(files: pa.Table, *, version: TableVersion) -> MetadataRecords:
    """A record per partition with its files: columns partition, name, size; size null if removed.

    Files keep their order. A file that lives has a size above 0: Hudi's readers fail on any other.
    """
    places = files["partition"].combine_chunks().dictionary_encode()
    codes = np.asarray(places.indices).astype(np.int64)
    order = pa.array(np.argsort(codes, kind="stable"))
    sizes = files["size"].combine_chunks().take(order)
    if pc.any(pc.less_equal(sizes, 0)).as_py():
        raise FormatError(
            "A file of no bytes cannot be listed in the metadata table.",
            hint="Files that live have a size; files that were removed have none.",
        )
    counts = np.bincount(codes, minlength=len(places.dictionary))
    maps = list_maps(
        counts,
        files["name"].combine_chunks().take(order),
        np.asarray(sizes.fill_null(0)),
        np.asarray(sizes.is_null()),
    )
    values = encoded_lists(RecordKind.FILE_LIST, maps, written_record(version))
    keys = [partition_identifier(p).encode() for p in places.dictionary.to_pylist()]
    return MetadataRecords(pa.array(keys, pa.binary()), values)


def bloom_filter_records(
    files: pa.Table,
    filters: Sequence[BloomFilter | None],
    *,
    instant: str,
    version: TableVersion,
) -> MetadataRecords:
    """The filter of each base file (partition, name); None takes it back."""
    names = files["name"].combine_chunks()
    # One text of some hundred KiB per base file.
    texts = [b"" if f is None else f.encode().encode() for f in filters]
    kinds = ["" if f is None else f.kind for f in filters]
    fields = {
        "type": pa.array(kinds, pa.string()),
        "timestamp": _repeated(instant, len(names)),
        "bloomFilter": pa.array(texts, pa.binary()),
        "isDeleted": pa.array([f is None for f in filters], pa.bool_()),
    }
    values = encoded_parts(
        RecordKind.BLOOM_FILTER,
        BLOOM_FILTER,
        pa.RecordBatch.from_pydict(fields),
        written_record(version),
    )
    places = partition_hashes(files["partition"].combine_chunks())
    return MetadataRecords(joined_keys(places, file_digests(names)), values)


def record_index_records(locations: pa.Table, *, version: TableVersion) -> MetadataRecords:
    """Where records are: columns key, partition, file_id, instant_ms.

    Each distinct place is encoded once; there are as many as file groups were written.
    """
    keys = locations["key"].combine_chunks().cast(pa.binary())
    if not len(keys):
        return no_records()
    names = ("partition", "file_id", "instant_ms")
    encoded = [locations[n].combine_chunks().dictionary_encode() for n in names]
    code = np.zeros(len(keys), np.int64)
    for column in encoded:
        code = code * len(column.dictionary) + np.asarray(column.indices)
    distinct = pa.array(code).dictionary_encode()
    rest = np.asarray(distinct.dictionary)
    chosen: list[pa.Array] = []
    for column in reversed(encoded):
        rest, at = np.divmod(rest, len(column.dictionary))
        chosen.insert(0, column.dictionary.take(pa.array(at)))
    values = _locations(chosen[0], chosen[1], chosen[2], written_record(version))
    return MetadataRecords(keys, values.take(distinct.indices))


def secondary_index_records(
    values: pa.StringArray, keys: pa.StringArray, *, version: TableVersion
) -> MetadataRecords:
    """Entries of a secondary index: the indexed value of each record, as text, and its key."""
    return secondary_entry_records(secondary_entries(values, keys), version=version)


def secondary_entry_records(entries: pa.BinaryArray, *, version: TableVersion) -> MetadataRecords:
    """Records of the keys of a secondary index."""
    live = pa.RecordBatch.from_pydict({"isDeleted": pa.array([False])})
    one = encoded_parts(RecordKind.SECONDARY_INDEX, SECONDARY_INDEX, live, written_record(version))
    return MetadataRecords(entries, one.take(pa.array(np.zeros(len(entries), np.int64))))


def _locations(
    partitions: pa.Array, file_ids: pa.Array, instants: pa.Array, record: Record
) -> pa.BinaryArray:
    # One object per file group that was written.
    parts = [_file_id_parts(f) for f in file_ids.to_pylist()]
    columns = list(zip(*parts, strict=True))
    fields = {
        "partitionName": partitions,
        "fileIdHighBits": pa.array(columns[0], pa.int64()),
        "fileIdLowBits": pa.array(columns[1], pa.int64()),
        "fileIndex": pa.array(columns[2], pa.int32()),
        "fileId": pa.array(columns[3], pa.string()),
        "instantTime": instants,
        "fileIdEncoding": pa.array(columns[4], pa.int32()),
        "position": pa.nulls(len(parts), pa.int64()),
    }
    batch = pa.RecordBatch.from_pydict(fields)
    return encoded_parts(RecordKind.RECORD_INDEX, RECORD_INDEX, batch, record)


def _file_id_parts(file_id: str) -> tuple[int, int, int, str, int]:
    """High bits, low bits, file index, text and encoding of a file id."""
    parsed, index = _uuid(file_id[:_UUID_CHARS]), NO_FILE_INDEX
    if len(file_id) > _UUID_CHARS:
        match = _FILE_INDEX.fullmatch(file_id, _UUID_CHARS)
        parsed, index = (parsed, int(match[1])) if match is not None else (None, index)
    if parsed is None:
        return _NO_BITS, _NO_BITS, NO_FILE_INDEX, file_id, TEXT_ENCODING
    high, low = _signed(parsed.int >> 64), _signed(parsed.int & (1 << 64) - 1)
    return high, low, index, "", UUID_ENCODING


def _uuid(text: str) -> UUID | None:
    """The id, if its text is the one that is formed from its bits."""
    try:
        parsed = UUID(text)
    except ValueError:
        return None
    return parsed if str(parsed) == text else None


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def list_maps(counts: Any, names: pa.Array, sizes: Any, deleted: Any) -> pa.MapArray:
    """Maps of names to sizes and tombstones, from what follows one another in columns."""
    offsets = np.append(0, np.cumsum(counts))
    items = pa.StructArray.from_arrays(
        [pa.array(sizes, pa.int64()), pa.array(deleted, pa.bool_())], names=["size", "isDeleted"]
    )
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, items)


def encoded_lists(kind: RecordKind, maps: pa.MapArray, record: Record) -> pa.BinaryArray:
    """Values of records of the files index."""
    batch = pa.RecordBatch.from_pydict({FILE_LIST: maps})
    return encoded_parts(kind, FILE_LIST, batch, record)


def _repeated(text: str, count: int) -> pa.StringArray:
    return pa.repeat(pa.scalar(text, pa.string()), count)
