"""Writing base files: new file groups, and new versions of small ones.

Every file is published as `txn/publishing` says. A write that fails, or finds the fence closed,
publishes nothing; what it leaves is a marker, which whoever finishes or rolls back the instant
reads.

Rows stream: memory is one row group. A file that has reached the write's size is closed and the
rest goes to the next file group of the same prefix (`-0`, `-1`, …); its last row group is cut so
that the file ends near that size. New versions of existing groups never roll.

Guarantees: rows keep their order; each file's footer tells its bounds and, where the table has one,
its bloom filter; sequence numbers do not repeat within one call.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa

from lakewright.engine.base_file import Filled, NewVersion, RowCursor
from lakewright.engine.base_reader import BaseReader
from lakewright.engine.write_context import WriteContext, WriteToken
from lakewright.format.file_names import BaseFileName
from lakewright.format.file_slices import BaseFile
from lakewright.format.records.commit import WriteStat
from lakewright.runtime.clock import Clock
from lakewright.runtime.spawn import Spawner
from lakewright.storage.base import Storage
from lakewright.txn.markers import MarkerType

__all__ = ["append_to_base_file", "write_base_files"]


def write_base_files(
    storage: Storage,
    context: WriteContext,
    *,
    partition: str,
    file_id_prefix: str,
    token: WriteToken,
    batches: Iterable[pa.RecordBatch],
    clock: Clock,
    spawner: Spawner | None = None,
    first_row: int = 0,
) -> list[WriteStat]:
    """Write rows of one partition as new file groups; none if there are no rows.

    Batches are in the write's `incoming_schema`. `first_row` is where sequence numbers begin. With
    a `spawner` bloom filters are built beside the encoding.
    """
    rows = RowCursor(batches)
    stats: list[WriteStat] = []
    while rows.peek() is not None:
        name = BaseFileName(f"{file_id_prefix}-{len(stats)}", str(token), context.instant)
        file = NewVersion(context, partition, name, token.task, spawner)
        fill = partial(file.fill_new, rows, first_row)
        stats.append(file.publish(storage, fill, MarkerType.CREATE, clock, previous=None))
        first_row += stats[-1].num_writes or 0
    return stats


def append_to_base_file(
    storage: Storage,
    context: WriteContext,
    *,
    partition: str,
    base: BaseFile,
    token: WriteToken,
    batches: Iterable[pa.RecordBatch],
    clock: Clock,
    spawner: Spawner | None = None,
    first_row: int = 0,
) -> WriteStat:
    """Write a new version of a file group: the rows of its base file, then the new ones.

    Old rows keep their meta columns but the file name, and come in the write's schema.
    """
    name = BaseFileName(base.file_id, str(token), context.instant)
    file = NewVersion(context, partition, name, token.task, spawner)

    def fill(sink: Any) -> Filled:
        reader = BaseReader.open(storage, base, schema=context.schema)
        return file.fill_appended(reader, batches, first_row, sink)

    return file.publish(storage, fill, MarkerType.MERGE, clock, previous=base)
