"""Where appended rows go on Spark: places become tasks, and rows are shuffled to exactly them.

A place is a small base file that rows join, or a new file group (`engine.sizing`). Each place is
the work of one task; a task may have several, but never two of one partition, so that within a task
the partition path of a row tells its place. Which of the places of its partition a row goes to is
decided by a hash of its key, in the proportion of the planned rows: sizes are met nearly, and a row
that is computed again goes the same way again.

Spark 4.1 moves rows to the task that a column names. Before that a task is named by an integer
whose Murmur3 hash lands there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from lakewright.engine.sizing import InsertPlan
from lakewright.format.file_slices import BaseFile
from lakewright.spark.filters import column_of
from lakewright.spark.write_tasks import Places

__all__ = ["PATH", "Share", "hash_columns", "places", "routed", "shares", "task_names"]

PATH = "_lakewright_path"
"""The column of partition paths in frames that are routed."""
_TASK, _HASH, _FIRST, _LAST = (f"_lakewright_{n}" for n in ("task", "hash", "first", "last"))
HASH_RANGE = 1 << 30
TASKS_PER_CORE = 4
"""Places are put together into about so many tasks, where there are more of them."""
SPARK_SEED = 42
"""With which Spark's hash partitioning begins."""


@dataclass(frozen=True, slots=True)
class Share:
    """A place, and the part of its partition's rows that it gets: hashes from `first` to `last`."""

    partition: str
    base: BaseFile | None
    first: int
    last: int
    """Not included."""
    task: int


def shares(plans: Sequence[InsertPlan], cores: int) -> list[Share]:
    """The places of plans, spread over tasks."""
    most = max((len(p.appends) + len(p.new_groups) for p in plans), default=0)
    every = sum(len(p.appends) + len(p.new_groups) for p in plans)
    tasks = min(every, max(most, cores * TASKS_PER_CORE))
    found: list[Share] = []
    for plan in plans:
        places: list[tuple[BaseFile | None, int]] = [(a.base, a.rows) for a in plan.appends]
        places += [(None, rows) for rows in plan.new_groups]
        before = 0
        for base, rows in places:
            first, last = (n * HASH_RANGE // plan.rows for n in (before, before + rows))
            # Places of a partition have consecutive numbers, hence different tasks.
            found.append(Share(plan.partition, base, first, last, len(found) % tasks))
            before += rows
    return found


def places(found: Sequence[Share]) -> Places:
    """What each task has to know."""
    bases: list[dict[str, BaseFile | None]] = [{} for _ in range(_tasks(found))]
    for share in found:
        bases[share.task][share.partition] = share.base
    return Places(tuple(bases))


def routed(frame: DataFrame, found: Sequence[Share], hashed: Sequence[str]) -> DataFrame:
    """A frame, in which `PATH` is the partition path, with every row in the task of its place.

    `hashed` are the columns that tell rows of a partition apart.
    """
    tasks = _tasks(found)
    if tasks == 1:
        return frame.repartition(1).drop(PATH)
    by_id = hasattr(DataFrame, "repartitionById")
    names = np.arange(tasks) if by_id else task_names(tasks)
    split = len(found) > len({share.partition for share in found})
    table = [(s.partition, s.first, s.last, int(names[s.task])) for s in found]
    schema = [(PATH, StringType()), (_FIRST, LongType()), (_LAST, LongType())]
    fields = [StructField(name, kind) for name, kind in (*schema, (_TASK, IntegerType()))]
    where = F.broadcast(frame.sparkSession.createDataFrame(table, StructType(fields)))
    if split:
        frame = frame.withColumn(_HASH, _hash(hashed))
        same = frame[PATH] == where[PATH]
        within = (frame[_HASH] >= where[_FIRST]) & (frame[_HASH] < where[_LAST])
        joined = frame.join(where, same & within)
    else:
        joined = frame.join(where, PATH)
    task = column_of(_TASK)
    moved = joined.repartitionById(tasks, task) if by_id else joined.repartition(tasks, task)
    return moved.select([column_of(n) for n in frame.columns if n not in (PATH, _HASH)])


def task_names(tasks: int) -> npt.NDArray[np.int32]:
    """For every task an integer that Spark's hash partitioning sends there."""
    names = np.full(tasks, -1, np.int32)
    begin = 0
    while (names < 0).any():  # about log(tasks) rounds
        tried = np.arange(begin, begin + 4 * tasks, dtype=np.int32)
        hashes = murmur3_ints(tried).astype(np.int64) % tasks
        names[hashes[::-1]] = tried[::-1]
        begin += 4 * tasks
    return names


def murmur3_ints(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Murmur3 of 32-bit integers, as Spark's hash partitioning computes it."""
    with np.errstate(over="ignore"):
        mixed = _rotated(values.astype(np.uint32) * np.uint32(0xCC9E2D51), 15)
        hashes = np.uint32(SPARK_SEED) ^ (mixed * np.uint32(0x1B873593))
        hashes = _rotated(hashes, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        hashes = hashes ^ np.uint32(4)  # bytes of an integer
        hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (hashes ^ (hashes >> np.uint32(16))).astype(np.int32)


def _rotated(values: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def hash_columns(schema: pa.Schema, keys: Sequence[str]) -> list[str]:
    """Columns whose hash spreads rows: those of the key, or all that can be hashed."""
    first = [name.partition(".")[0] for name in keys]
    chosen = [name for name in (first or schema.names) if name in schema.names]
    return [name for name in chosen if not _holds_map(schema.field(name).type)]


def _tasks(found: Sequence[Share]) -> int:
    return max(share.task for share in found) + 1


def _hash(columns: Sequence[str]) -> Column:
    if not columns:
        return F.lit(0).cast("long")
    return F.pmod(F.xxhash64(*map(column_of, columns)), F.lit(HASH_RANGE).cast("long"))


def _holds_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_holds_map(kind.field(i).type) for i in range(kind.num_fields))
