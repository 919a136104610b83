"""What a delete deletes: keys that somebody gives, or the rows that pass a filter.

Keys come as the table's key and partition columns, from which record keys and paths are formed as
for any row, or as the stored meta columns. A delete by filter reads the keys of the rows that pass
it from one snapshot, and conflicts with every change to the partitions it has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from lakewright.engine.keyed.incoming import KEYED
from lakewright.engine.keyed.insert_guard import ReadGuard
from lakewright.engine.keyed.writer import KeyedWriter, refuse_generated_keys
from lakewright.engine.options import ReadOptions
from lakewright.engine.row_source import RowSource
from lakewright.engine.scan import Scan, make_scan
from lakewright.engine.scan_plan import partition_may_match
from lakewright.engine.write_job import WriteJob
from lakewright.engine.write_result import WriteResult
from lakewright.errors import InputError
from lakewright.expr import Expr
from lakewright.format.evolution import conversion
from lakewright.format.incoming_types import exact_cast
from lakewright.format.row_keys import PARTITION_PATH, RECORD_KEY, RowKeys
from lakewright.merge.registry import MergerRegistry

__all__ = ["delete_where", "key_batches", "key_columns"]


def key_batches(source: RowSource, job: WriteJob) -> Iterator[pa.RecordBatch]:
    """Record keys and partition paths of the rows that somebody wants to delete."""
    given = source.schema
    assert given is not None
    if RECORD_KEY in given.names:
        yield from _stored_keys(source, job)
        return
    refuse_generated_keys(job)
    table = job.schema.rows.schema
    wanted = key_columns(job)
    lacking = [name for name in wanted if name not in given.names]
    if lacking:
        raise InputError(
            f"The keys to delete lack {', '.join(lacking)}.",
            hint=f"Give the columns {', '.join(wanted)}, or {' and '.join(KEYED)}.",
            context={"lacking": lacking, "got": given.names},
        )
    keys = RowKeys(job.keys, instant="")
    target = pa.schema([table.field(name) for name in wanted])
    source_schema = pa.schema([given.field(name) for name in wanted])
    made = conversion(source_schema, target, promote=exact_cast)
    for batch in source.batches():
        yield keys.add_to(made.apply(batch.select(wanted))).select(KEYED)


def delete_where(
    job: WriteJob,
    where: str | Expr,
    writer: Callable[[WriteJob], KeyedWriter],
    options: ReadOptions,
    registry: MergerRegistry,
    read: Callable[[Scan], Iterable[pa.RecordBatch]] = Scan.to_batches,
) -> WriteResult:
    """Delete the rows of the job's snapshot that pass a filter; `read` gives their keys."""
    stored = job.snapshot.properties.populate_meta_fields
    scan = make_scan(
        job.snapshot,
        columns=list(KEYED) if stored else key_columns(job),
        where=where,
        mode="snapshot",
        meta=True,
        limit=None,
        options=options,
        registry=registry,
        on_event=job.access.on_event,
    )
    guard = ReadGuard(
        job.access.storage,
        job.snapshot.properties,
        job.snapshot.timeline,
        lambda partition: partition_may_match(partition, job.snapshot, scan.where),
    )
    found = read(scan)
    if not stored:
        keys = RowKeys(job.keys, instant="")
        found = (keys.add_to(batch).select(KEYED) for batch in found)
    return writer(replace(job, guard=guard)).delete(found)


def key_columns(job: WriteJob) -> list[str]:
    """Top-level columns that keys and paths are formed from."""
    fields = [*job.keys.record_key_fields, *(f.name for f in job.keys.partition_fields)]
    return list(dict.fromkeys(name.partition(".")[0] for name in fields))


def _stored_keys(source: RowSource, job: WriteJob) -> Iterator[pa.RecordBatch]:
    partitioned = bool(job.keys.partition_fields)
    for batch in source.batches():
        keys = batch.column(RECORD_KEY).cast(pa.string())
        if PARTITION_PATH in batch.schema.names:
            paths = batch.column(PARTITION_PATH).cast(pa.string())
        elif not partitioned:
            paths = pa.repeat(pa.scalar("", pa.string()), len(keys))
        else:
            raise InputError(
                f"The keys to delete lack {PARTITION_PATH}.",
                hint="Give the partition path of every key as well.",
            )
        if keys.null_count or paths.null_count:
            raise InputError(
                f"{keys.null_count + paths.null_count} keys to delete are null.",
                hint="Leave rows without a key out; nothing was deleted.",
            )
        yield pa.RecordBatch.from_arrays([keys, paths], names=list(KEYED))
