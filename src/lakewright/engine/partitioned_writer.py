"""Rows of many partitions as base files: bulk inserts, and inserts that fill small files.

Rows come in any order; they are collected by partition in bounded memory (see `row_store`) and
written one partition after the other, several at once where the runner has threads. Rows that come
grouped by partition are streamed instead. The first error stops everything; what was published
until then has a marker and is removed with its instant.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakewright.engine.base_writer import append_to_base_file, write_base_files
from lakewright.engine.row_store import RowStore, collect_rows
from lakewright.engine.runner import Runner
from lakewright.engine.sizing import Append, InsertPlan
from lakewright.engine.write_context import PARTITION_PATH, WriteContext, WriteToken
from lakewright.format.records.commit import WriteStat
from lakewright.runtime.clock import Clock
from lakewright.runtime.random import Random
from lakewright.runtime.spawn import Spawner
from lakewright.storage.base import Storage

__all__ = ["write_grouped", "write_inserts", "write_partitioned", "write_side_by_side"]

NewPrefix = Callable[[], str]


def write_partitioned(
    storage: Storage,
    context: WriteContext,
    *,
    token: WriteToken,
    batches: Iterable[pa.RecordBatch],
    random: Random,
    clock: Clock,
    runner: Runner,
    memory_bytes: int,
    folder: str | None = None,
) -> list[WriteStat]:
    """Write rows in any order as new file groups, each partition for itself."""
    with collect_rows(batches, memory_bytes=memory_bytes, folder=folder) as store:
        plans = [InsertPlan(partition, (), (rows,)) for partition, rows in store.counts.items()]
        return write_inserts(
            storage,
            context,
            plans,
            store,
            token=token,
            random=random,
            clock=clock,
            runner=runner,
        )


def write_inserts(
    storage: Storage,
    context: WriteContext,
    plans: Sequence[InsertPlan],
    store: RowStore,
    *,
    token: WriteToken,
    random: Random,
    clock: Clock,
    runner: Runner,
) -> list[WriteStat]:
    """Write collected rows to the places that were planned for them (see `sizing`)."""

    def write(place: _Place) -> list[WriteStat]:
        rows = store.rows(place.partition, place.start, place.stop)
        if place.append is not None:
            return [
                append_to_base_file(
                    storage,
                    context,
                    partition=place.partition,
                    base=place.append.base,
                    token=token,
                    batches=rows,
                    clock=clock,
                    first_row=place.first_row,
                )
            ]
        return write_base_files(
            storage,
            context,
            partition=place.partition,
            file_id_prefix=place.prefix,
            token=token,
            batches=rows,
            clock=clock,
            first_row=place.first_row,
        )

    places = list(_places(plans, lambda: str(random.uuid())))
    stats = list(runner.stream(places, write))
    return sorted(stats, key=lambda stat: (stat.partition_path or "", stat.file_id or ""))


def write_grouped(
    storage: Storage,
    context: WriteContext,
    *,
    token: WriteToken,
    batches: Iterable[pa.RecordBatch],
    random: Random,
    clock: Clock,
    spawner: Spawner | None = None,
) -> list[WriteStat]:
    """Write rows that come grouped by partition (sorted rows, or one partition only).

    A partition that comes back later gets another file group.
    """
    stats: list[WriteStat] = []
    rows = 0
    groups = _Groups(batches)
    while (partition := groups.next_partition()) is not None:
        stats += write_base_files(
            storage,
            context,
            partition=partition,
            file_id_prefix=str(random.uuid()),
            token=token,
            batches=groups.rows(partition),
            clock=clock,
            spawner=spawner,
            first_row=rows,
        )
        rows = sum(stat.num_writes or 0 for stat in stats)
    return stats


def write_side_by_side(
    storage: Storage,
    context: WriteContext,
    *,
    partition: str,
    tokens: Sequence[WriteToken],
    batches: Iterable[pa.RecordBatch],
    random: Random,
    clock: Clock,
    runner: Runner,
) -> list[WriteStat]:
    """Write rows of one partition, in no particular order, as one file group per token at once.

    Whichever writer is free takes the next batch; tokens must belong to different tasks.
    """
    shared = _Shared(batches)
    prefixes = [str(random.uuid()) for _ in tokens]

    def write(writer: int) -> list[WriteStat]:
        return write_base_files(
            storage,
            context,
            partition=partition,
            file_id_prefix=prefixes[writer],
            token=tokens[writer],
            batches=shared,
            clock=clock,
        )

    stats = list(runner.stream(range(len(tokens)), write))
    return sorted(stats, key=lambda stat: stat.file_id or "")


@dataclass(frozen=True, slots=True)
class _Place:
    """One file group, and the rows of the partition that go there."""

    partition: str
    start: int
    stop: int
    first_row: int
    append: Append | None
    prefix: str


def _places(plans: Sequence[InsertPlan], new_prefix: NewPrefix) -> Iterator[_Place]:
    first_row = 0
    for plan in plans:
        at = 0
        for append in plan.appends:
            yield _Place(plan.partition, at, at + append.rows, first_row + at, append, "")
            at += append.rows
        for rows in plan.new_groups:
            yield _Place(plan.partition, at, at + rows, first_row + at, None, new_prefix())
            at += rows
        first_row += at


class _Groups:
    """Cuts batches where the partition changes."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._left: pa.RecordBatch | None = None

    def next_partition(self) -> str | None:
        """The partition of the next row; None at the end."""
        while self._left is None or not self._left.num_rows:
            self._left = next(self._batches, None)
            if self._left is None:
                return None
        return str(self._left.column(PARTITION_PATH)[0].as_py())

    def rows(self, partition: str) -> Iterator[pa.RecordBatch]:
        """The rows up to the first of another partition."""
        while self.next_partition() == partition:
            batch = self._left
            if batch is None:
                return
            other = pc.index(pc.equal(batch.column(PARTITION_PATH), partition), False).as_py()
            stop = batch.num_rows if other < 0 else other
            self._left = batch.slice(stop)
            yield batch.slice(0, stop)


class _Shared:
    """One stream of batches for several writers."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._lock = threading.Lock()

    def __iter__(self) -> _Shared:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            return next(self._batches)
