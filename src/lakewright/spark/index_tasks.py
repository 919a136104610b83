"""Changes of the indexes of records, on Spark: the driver never holds keys.

One task per file group that the write may have changed reads what it had and has. What came and
what left is spread by a shuffle to the file group of the index that it belongs to, where another
task makes it a finished log file. The driver gets these, some ten bytes per key, and publishes
them. Small changes are looked at here.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from lakewright.engine.index_entries import Entries
from lakewright.engine.index_records import Looking, layout_for, looking_here
from lakewright.engine.record_changes import GroupChange, GroupLook, snapshot_after
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import LakewrightError
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.containers import GroupLog
from lakewright.metadata.file_groups import IndexGroups
from lakewright.metadata.index_changes import EncodedChange, IndexChange, group_log
from lakewright.spark.keyed_chunks import decoded, encoded
from lakewright.spark.keyed_rows import arrow_rows, may_pass
from lakewright.spark.keyed_tasks import spread
from lakewright.spark.session import tasks_run_here
from lakewright.spark.tasks import PinnedSnapshot, pack
from lakewright.spark.write_run import attempt_here, attempts
from lakewright.storage.resolve import StorageRef
from lakewright.txn.access import Access

__all__ = ["looking_on_spark"]

HERE_BYTES: Final = 64 << 20
"""So much is read here sooner than tasks begin: two stages take a second, whatever they do."""
ALONE: Final = 8
"""So many times as much if tasks had no other machine than the driver's."""
_PARTS: Final = "number int, place int, came binary, gone binary, error binary"
_LOGS: Final = "file_id string, content binary, records long, deletes long, error binary"


def looking_on_spark(
    spark: SparkSession, access: Access, ref: StorageRef, registry: MergerRegistry
) -> Looking:
    """Looks at many file groups in tasks."""
    here = looking_here(registry, access.spawner)
    here_bytes = HERE_BYTES * (ALONE if tasks_run_here(spark) else 1)

    def look(
        name: str, entries: Entries, before: Snapshot, instant: str, groups: list[GroupChange]
    ) -> EncodedChange:
        if sum(change.bytes for change in groups) <= here_bytes:
            return here(name, entries, before, instant, groups)
        work = _Work(
            entries,
            PinnedSnapshot.of(before, ref),
            PinnedSnapshot.of(snapshot_after(before, instant), ref),
            registry,
            layout_for(before, name, groups),
            instant,
        )
        return EncodedChange(work.groups, tuple(_logs(spark, access, work, groups)))

    return look


@dataclass(frozen=True, slots=True)
class _Work:
    """What all tasks share."""

    entries: Entries
    before: PinnedSnapshot
    after: PinnedSnapshot
    registry: MergerRegistry
    groups: IndexGroups
    instant: str

    def parts(self, place: int, change: GroupChange) -> Iterator[pa.RecordBatch]:
        """What came into and left a file group, by the file group of the index."""
        look = GroupLook.at(self.before.open(), self.after.open(), self.entries, self.registry)
        came, gone = look.moved(change)
        scope = self.groups.scope(change.group.partition)
        came_at = self.groups.numbers_of(came.column(0).combine_chunks(), scope)
        gone_at = self.groups.numbers_of(gone, scope)
        for number in np.union1d(came_at, gone_at).tolist():
            mine = came.filter(pa.array(came_at == number)).combine_chunks()
            left = pa.record_batch([gone.filter(pa.array(gone_at == number))], names=["key"])
            [batch] = mine.to_batches() or [_none_of(mine.schema)]
            yield _part(number, place, encoded(batch), encoded(left))

    def log(self, number: int, parts: list[dict[str, Any]]) -> GroupLog | None:
        """The log file of one file group of the index."""
        ordered = sorted(parts, key=lambda part: part["place"])
        came = [pa.Table.from_batches([decoded(part["came"])]) for part in ordered]
        gone = [decoded(part["gone"]).column(0) for part in ordered]
        change = self.entries.change(came, gone)
        change = IndexChange(change.records.sorted(), change.deleted)
        version = self.before.properties.version
        return group_log(self.groups, number, change, instant=self.instant, version=version)


def _logs(
    spark: SparkSession, access: Access, work: _Work, groups: list[GroupChange]
) -> Iterator[GroupLog]:
    parallel = spark.sparkContext.defaultParallelism
    tasks = spread([change.bytes for change in groups], parallel)
    each: list[list[tuple[int, GroupChange]]] = [[] for _ in range(max(tasks) + 1)]
    for place, (task, change) in enumerate(zip(tasks, groups, strict=True)):
        each[task].append((place, change))
    shared, packed, tries = pack(work), [pack(own) for own in each], attempts(spark.sparkContext)

    def parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass  # of a frame that is there for its tasks only
        attempt = attempt_here(tries)
        try:
            mine: _Work = pickle.loads(shared)  # noqa: S301 - made by `pack`
            for place, change in pickle.loads(packed[attempt.task]):  # noqa: S301 - as above
                yield from mine.parts(place, change)
        except LakewrightError as error:
            if may_pass(error) and not attempt.is_last:
                raise
            yield _part(-1, 0, None, None, pickle.dumps(error))

    def logs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine: _Work = pickle.loads(shared)  # noqa: S301 - made by `pack`
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, some in groupby(rows, key=lambda row: row["number"]):
            if number < 0:
                yield from (_log(None, row["error"]) for row in some)
            elif (log := mine.log(number, list(some))) is not None:
                yield _log(log)

    first = spark.range(0, len(each), 1, len(each)).mapInArrow(parts, _PARTS)
    wide = min(len(work.groups), 2 * parallel)
    second = first.repartition(wide, "number").sortWithinPartitions("number", "place")
    for batch in arrow_rows(access, second.mapInArrow(logs, _LOGS)):
        for row in batch.to_pylist():
            if row["error"] is not None:
                raise pickle.loads(row["error"])  # noqa: S301 - made by a task of ours
            told = (row["file_id"], row["content"], row["records"], row["deletes"])
            yield GroupLog(work.groups.index, *told)


def _part(
    number: int, place: int, came: bytes | None, gone: bytes | None, error: bytes | None = None
) -> pa.RecordBatch:
    kinds = (pa.int32(), pa.int32(), pa.binary(), pa.binary(), pa.binary())
    return _row((number, place, came, gone, error), kinds, _PARTS)


def _log(log: GroupLog | None, error: bytes | None = None) -> pa.RecordBatch:
    kinds = (pa.string(), pa.binary(), pa.int64(), pa.int64(), pa.binary())
    told = ("", b"", 0, 0) if log is None else (log.file_id, log.content, log.records, log.deletes)
    return _row((*told, error), kinds, _LOGS)


def _row(values: tuple[Any, ...], kinds: tuple[pa.DataType, ...], ddl: str) -> pa.RecordBatch:
    names = [column.split()[0] for column in ddl.split(", ")]
    arrays = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _none_of(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)
