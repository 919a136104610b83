"""The file that makes a folder a partition, written before the first data file in it.

A folder without it is invisible to every reader that lists, so it comes first. It is written once
and never replaced; whoever comes second finds it in place.
"""

from __future__ import annotations

import pyarrow as pa

from lakewright.codec.parquet_writer import ParquetPolicy, ParquetSink
from lakewright.engine.write_context import WriteContext
from lakewright.errors import AlreadyExistsError
from lakewright.format.partitions import (
    PARTITION_METADATA_FILE,
    format_partition_metadata,
    partition_depth,
)
from lakewright.storage.base import Storage

__all__ = ["mark_partition"]

_DUMMY = pa.schema([pa.field("dummyint", pa.int64())])


def mark_partition(storage: Storage, context: WriteContext, partition: str, *, now_ms: int) -> None:
    """Make sure that the folder is a partition."""
    ending = ".parquet" if context.partition_metafile == "parquet" else ""
    name = f"{PARTITION_METADATA_FILE}{ending}"
    path = f"{partition}/{name}" if partition else name
    if storage.exists(path):
        return
    depth = partition_depth(partition)
    if ending:
        data = _parquet(context.instant, depth)
    else:
        data = format_partition_metadata(context.instant, depth, now_ms=now_ms)
    try:
        storage.create_if_absent(path, data)
    except AlreadyExistsError:
        return


def _parquet(instant: str, depth: int) -> bytes:
    out = pa.BufferOutputStream()
    file = ParquetSink(out, _DUMMY, ParquetPolicy(codec="uncompressed"))
    file.close({"commitTime": instant, "partitionDepth": str(depth)})
    return bytes(out.getvalue())
