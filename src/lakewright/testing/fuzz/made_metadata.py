"""HFiles and records of the metadata table that we write ourselves, as seeds."""

from __future__ import annotations

import pyarrow as pa

from lakewright.codec.bloom import BloomFilter
from lakewright.codec.hfile import HFilePolicy, encode_hfile
from lakewright.format.version import TableVersion
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.payloads import (
    bloom_filter_records,
    file_list_records,
    partition_list_record,
    record_index_records,
    secondary_index_records,
)
from lakewright.metadata.record_schema import written_schema
from lakewright.metadata.statistics_payloads import statistics_records

__all__ = ["index_records", "written_hfiles"]

_VERSION = TableVersion.of(8)


def written_hfiles() -> dict[str, bytes]:
    """Small HFiles by name: many blocks, one block, none, and blocks that are cut to be walked."""
    keys = pa.array([f"key-{n:03}".encode() for n in range(120)], pa.binary())
    values = pa.array([bytes([n % 7]) * (n % 11) for n in range(120)], pa.binary())
    info = {"schema": written_schema(_VERSION).encode()}
    few = HFilePolicy(block_bytes=300)
    plain = HFilePolicy(codec="none", block_bytes=1000)
    return {
        "blocks.hfile": encode_hfile(keys, values, info=info, policy=few),
        "plain.hfile": encode_hfile(keys, values, meta={"bloomFilter": b"bits"}, policy=plain),
        "one-block.hfile": encode_hfile(keys, values, info=info),
        "empty.hfile": encode_hfile(keys[:0], values[:0], info=info),
        "long-blocks.hfile": _long_blocks(),
    }


def _long_blocks() -> bytes:
    """Few bytes when compressed; values hold what looks like the end of a key and a cell."""
    lure = bytes.fromhex("0000000c000000010000007fffffffffffffff04")
    keys = pa.array([f"{n:05}".encode() for n in range(1200)], pa.binary())
    values = pa.array(
        [(lure if n % 5 == 0 else b"") + bytes(240) for n in range(1200)], pa.binary()
    )
    return encode_hfile(keys, values, policy=HFilePolicy(block_bytes=9000))


def index_records() -> dict[str, tuple[str, list[tuple[bytes, bytes]]]]:
    """Schema and cells of each index; names tell the index."""
    schema = written_schema(_VERSION)
    return {index: (schema, _cells(records)) for index, records in _records().items()}


def _records() -> dict[str, MetadataRecords]:
    names = ["a.parquet", "b.parquet", ".c.log.1_0-1-1"]
    files = pa.table(
        {
            "partition": ["city=sf", "city=sf", ""],
            "name": names,
            "size": pa.array([5, None, 70], pa.int64()),
        }
    )
    filters = [BloomFilter.build(pa.array([n]), entries=10, fpp=0.1) for n in names[:2]]
    locations = pa.table(
        {
            "key": [f"key-{n}" for n in range(6)],
            "partition": ["city=sf", ""] * 3,
            "file_id": ["036ded81-9ed4-479f-bcea-7145dfa0079b-0", "text", "text"] * 2,
            "instant_ms": pa.array([1766264468078] * 6, pa.int64()),
        }
    )
    bounds = {"id": pa.array(["a", "b", "c"]), "ts": pa.array([1, 2, 3], pa.int64())}
    statistics = {name: _statistics(files, column) for name, column in bounds.items()}
    values, keys = pa.array(["x", None, "y$"]), pa.array(["k1", "k2", "k3"])
    listed = [
        partition_list_record(["city=sf", ""], ["gone"], version=_VERSION),
        file_list_records(files, version=_VERSION),
    ]
    return {
        "files": MetadataRecords.joined(listed),
        "column_stats": statistics_records(statistics, version=_VERSION),
        "partition_stats": statistics_records(statistics, of_partitions=True, version=_VERSION),
        "bloom_filters": bloom_filter_records(
            files.slice(0, 2), filters, instant="20240101000000000", version=_VERSION
        ),
        "record_index": record_index_records(locations, version=_VERSION),
        "secondary_index_a": secondary_index_records(values, keys, version=_VERSION),
    }


def _statistics(files: pa.Table, bounds: pa.Array) -> pa.Table:
    counts = ("value_count", "null_count", "total_size", "total_uncompressed_size")
    numbers = {name: pa.array([9, 9, 9], pa.int64()) for name in counts}
    numbers["null_count"] = pa.array([0, 1, 2], pa.int64())
    return pa.table(
        {
            "partition": files["partition"],
            "file_name": files["name"],
            "min": bounds,
            "max": bounds,
            **numbers,
            "is_tight": [False, True, False],
        }
    )


def _cells(records: MetadataRecords) -> list[tuple[bytes, bytes]]:
    arranged = records.sorted()
    return list(zip(arranged.keys.to_pylist(), arranged.values.to_pylist(), strict=True))
