"""Compaction on Spark: each slice of a plan by a task, read and written inside a Python worker.

The driver only plans, schedules and commits; rows never pass through the JVM. Names of files carry
the attempt, so a task that Spark runs again leaves a file that the commit removes.

Spark ends workers that were idle for a minute, so a compaction mostly has to start them. Where
tasks would run on the driver's machine anyway, and the plan is small, its threads are done before
that pays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from lakewright.engine.write_context import WriteContext, WriteToken
from lakewright.format.file_slices import FileSlice
from lakewright.format.records import WriteStat
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.clock import SystemClock
from lakewright.runtime.spawn import ThreadSpawner
from lakewright.services.compacted_slice import SliceCompactor
from lakewright.services.compaction import SliceWork
from lakewright.spark.keyed_tasks import spread
from lakewright.spark.session import tasks_run_here
from lakewright.spark.tasks import PinnedSnapshot
from lakewright.spark.write_run import refuse_speculation, run_readers
from lakewright.storage.base import Storage
from lakewright.storage.resolve import StorageRef
from lakewright.txn.access import Access

__all__ = ["SparkCompactor"]

HERE_BYTES = 512 << 20
"""A plan of so many bytes is compacted by threads of the driver, if it runs on the only machine.

Two threads get through about 100 MB/s, further ones add little; a worker through 80, after it has
loaded its modules and got its memory, which takes two to three seconds.
"""


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """What all tasks of one compaction share."""

    storage: StorageRef
    context: WriteContext
    snapshot: PinnedSnapshot
    registry: MergerRegistry
    merge_memory: int
    slices: tuple[FileSlice, ...]
    numbers: tuple[tuple[int, ...], ...]
    """The slices of every task."""
    idle: bool
    """Whether there are more cores than tasks."""

    def write(self, storage: Storage, batches: Iterable[Any], token: WriteToken) -> list[WriteStat]:
        """Compact the slices of one task."""
        del batches
        compactor = SliceCompactor(
            self.snapshot.open(), self.context, self.registry, self.merge_memory
        )
        return [
            compactor.compact(
                storage,
                self.slices[number],
                token=WriteToken(number, token.stage, token.attempt),
                clock=SystemClock(),
                spawner=ThreadSpawner() if self.idle else None,
            )
            for number in self.numbers[token.task]
        ]


@dataclass(frozen=True, slots=True)
class SparkCompactor:
    """Compacts the slices of a plan by tasks of a session, few bytes by threads of its driver."""

    spark: SparkSession
    ref: StorageRef

    def __call__(self, access: Access, work: SliceWork) -> Sequence[WriteStat]:
        """Compact all slices of an attempt."""
        refuse_speculation(self.spark)
        if not work.slices:
            return []
        cores = int(self.spark.sparkContext.defaultParallelism)
        costs = [_bytes(slice_) for slice_ in work.slices]
        if sum(costs) <= HERE_BYTES and tasks_run_here(self.spark):
            return work.by_threads(access, cores)
        task_of = spread(costs, cores)
        tasks = max(task_of) + 1
        numbers = tuple(
            tuple(n for n, task in enumerate(task_of) if task == number) for number in range(tasks)
        )
        compactor = work.compactor
        shared = CompactionWork(
            self.ref,
            compactor.context,
            PinnedSnapshot.of(compactor.snapshot, self.ref),
            compactor.registry,
            compactor.merge_memory,
            work.slices,
            numbers,
            idle=tasks < cores,
        )
        return run_readers(access, self.spark, shared, tasks)


def _bytes(slice_: FileSlice) -> int:
    base = slice_.base.size if slice_.base is not None else 0
    return base + sum(log.size for log in slice_.logs)
