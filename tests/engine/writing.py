"""A table folder with an open fence, for tests that write files without a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakewright.codec.avro.arrow_types import from_arrow
from lakewright.engine.write_context import PARTITION_PATH, RECORD_KEY, WriteContext
from lakewright.format.file_slices import BaseFile
from lakewright.format.records.commit import WriteStat
from lakewright.format.version import TableVersion
from lakewright.runtime.process import ProcessIdentity
from lakewright.storage.base import Storage
from lakewright.storage.memory import MemoryStorage
from lakewright.txn.fence import Fence, close_fence, open_fence

INSTANT = "20260101000000000"
LATER = "20260102000000000"
ROWS = pa.schema([pa.field("id", pa.string(), nullable=False), ("n", pa.int64())])


def fenced(storage: Storage, instant: str = INSTANT) -> Fence:
    """An open fence of a pending instant."""
    pending = f".hoodie/{instant}.inflight"
    storage.replace(pending, b"")
    open_fence(storage, instant, ProcessIdentity("host", "boot", 1, "0"))
    return Fence(instant, pending)


def shut(storage: Storage, instant: str = INSTANT) -> None:
    """Close the fence, as a rollback would."""
    close_fence(storage, instant)


def context(
    storage: Storage,
    schema: pa.Schema = ROWS,
    *,
    instant: str = INSTANT,
    version: int = 8,
    **options: Any,
) -> WriteContext:
    """A write of these columns into the storage's table."""
    return WriteContext.of(
        from_arrow(schema, name="t_record", namespace="hoodie.t"),
        instant=instant,
        version=TableVersion.of(version),
        fence=fenced(storage, instant),
        **options,
    )


def incoming(
    written: WriteContext,
    keys: Sequence[str],
    partitions: Sequence[str] | str = "",
    **columns: Sequence[Any],
) -> pa.RecordBatch:
    """Rows as tasks get them; without columns, `id` is the key and `n` counts."""
    paths = [partitions] * len(keys) if isinstance(partitions, str) else list(partitions)
    values: dict[str, Any] = {RECORD_KEY: list(keys), PARTITION_PATH: paths}
    values |= columns or {"id": list(keys), "n": list(range(len(keys)))}
    schema = written.incoming_schema
    return pa.RecordBatch.from_arrays(
        [pa.array(values[f.name], f.type) for f in schema], schema=schema
    )


def base_of(stat: WriteStat, instant: str = INSTANT) -> BaseFile:
    """The base file that a write stat tells of."""
    assert stat.path is not None
    partition, _, name = stat.path.rpartition("/")
    file_id, token, _ = name.split("_")
    return BaseFile(partition, name, stat.file_size_in_bytes or 0, instant, file_id, token)


def data_files(storage: MemoryStorage) -> list[str]:
    """Every published data file."""
    return sorted(i.path for i in storage.walk("") if i.path.endswith(".parquet"))
