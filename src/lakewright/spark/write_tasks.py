"""Units of work that write: what a Python worker does with the rows of its task.

`WriteWork` is a plain value that travels once per task: the storage by reference, the context of
the write, and how rows become rows of the table. A task brings its rows to the table's columns,
forms their keys, writes them as files and gives back an `Outcome`: what it wrote, or why the write
cannot go on. Names of files carry the attempt (`WriteToken`), so no two attempts share one; which
of several attempts counts is Spark's word, and the commit deletes what the others left.

An error that no other attempt would mend is given back as it is, so that it reaches the caller
itself and Spark does not try again; it also closes the fence of the write, so that the other tasks
end at their next file. An error that may pass is raised, so that Spark tries again, for as long as
it would.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from lakewright.engine.base_writer import append_to_base_file, write_base_files
from lakewright.engine.partitioned_writer import write_grouped, write_inserts, write_partitioned
from lakewright.engine.row_store import collect_rows
from lakewright.engine.runner import InlineRunner
from lakewright.engine.sizing import Append, InsertPlan
from lakewright.engine.sorting import Arrangement, sorted_batches
from lakewright.engine.write_context import WriteContext, WriteToken
from lakewright.errors import FencedError, InputError, LakewrightError, StorageError
from lakewright.format.file_slices import BaseFile
from lakewright.format.key_spec import KeySpec
from lakewright.format.own_files import OUTCOME_FOLDER
from lakewright.format.records import WriteStat
from lakewright.format.row_keys import PARTITION_PATH, RowKeys
from lakewright.format.write_schema import RowConversion
from lakewright.runtime.clock import SystemClock
from lakewright.runtime.random import SystemRandom
from lakewright.spark.parquet_source import ParquetSource
from lakewright.spark.write_frame import as_sent
from lakewright.storage.base import Storage
from lakewright.storage.resolve import StorageRef
from lakewright.txn.fence import close_fence

__all__ = [
    "Attempt",
    "NewGroups",
    "Outcome",
    "Places",
    "Work",
    "WriteWork",
    "attempt_packed",
    "outcome_of",
]

TASK_MEMORY = 256 << 20
"""Rows that one task keeps in memory; more wait in scratch files."""
OUTCOME_BYTES = 4 << 20
"""Larger outcomes go through a file in our own folder of the table."""
CONTEXTS_KEPT = 4


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which attempt at which task this is."""

    task: int
    stage: int
    attempt: int
    """A number that no other attempt of the application has."""
    is_last: bool
    """Whether Spark would give up if it failed."""

    @property
    def token(self) -> WriteToken:
        """What the names of its files carry."""
        return WriteToken(self.task, self.stage, self.attempt)


class Work(Protocol):
    """What all tasks of one write share."""

    @property
    def storage(self) -> StorageRef:
        """The table's."""
        ...

    @property
    def context(self) -> WriteContext:
        """What their files have in common."""
        ...

    def write(self, storage: Storage, batches: Iterable[Any], token: WriteToken) -> list[WriteStat]:
        """Write what one task was sent."""
        ...


@dataclass(frozen=True, slots=True)
class NewGroups:
    """Rows become new file groups, in the order that is asked for within the task."""

    order: Arrangement
    partitioned: bool


@dataclass(frozen=True, slots=True)
class Places:
    """Rows go to places that were planned: one place for each partition that a task sees."""

    bases: tuple[Mapping[str, BaseFile | None], ...]
    """By task and partition: the base file whose group they join; None is a new group."""


@dataclass(frozen=True, slots=True)
class WriteWork:
    """The work of writes that put rows where there is room."""

    storage: StorageRef
    context: WriteContext
    rows: RowConversion
    keys: KeySpec
    plan: NewGroups | Places
    source: ParquetSource | None = None
    """Files that the tasks read; None where Spark sends them their rows."""

    def keyed(self, batches: Iterable[pa.RecordBatch], task: int) -> Iterator[pa.RecordBatch]:
        """Rows as they are written: the table's columns, keys in front."""
        keys = RowKeys(
            self.keys,
            instant=self.context.instant,
            task=task,
            populate_meta=self.context.populate_meta,
        )
        wanted = self.context.incoming_schema.names
        for batch in batches:
            if batch.num_rows:
                rows = keys.add_to(self.rows.apply(as_sent(batch, self.rows.source)))
                yield rows if rows.schema.names == wanted else rows.select(wanted)

    def write(
        self, storage: Storage, batches: Iterable[pa.RecordBatch], token: WriteToken
    ) -> list[WriteStat]:
        """Write the rows of one task."""
        if self.source is not None:
            batches = self.source.batches(token.task)
        rows = self.keyed(batches, token.task)
        if isinstance(self.plan, NewGroups):
            return self._new_groups(storage, self.plan, rows, token)
        return self._placed(storage, self.plan.bases[token.task], rows, token)

    def _new_groups(
        self,
        storage: Storage,
        plan: NewGroups,
        rows: Iterator[pa.RecordBatch],
        token: WriteToken,
    ) -> list[WriteStat]:
        random, clock = SystemRandom(), SystemClock()
        if plan.partitioned and not plan.order.columns:
            return write_partitioned(
                storage,
                self.context,
                token=token,
                batches=rows,
                random=random,
                clock=clock,
                runner=InlineRunner(),
                memory_bytes=TASK_MEMORY,
            )
        schema = self.context.incoming_schema
        ordered = sorted_batches(rows, schema, plan.order, memory_bytes=TASK_MEMORY)
        return write_grouped(
            storage, self.context, token=token, batches=ordered, random=random, clock=clock
        )

    def _placed(
        self,
        storage: Storage,
        bases: Mapping[str, BaseFile | None],
        rows: Iterator[pa.RecordBatch],
        token: WriteToken,
    ) -> list[WriteStat]:
        checked = (_only_in(bases, batch) for batch in rows)
        if len(bases) == 1:
            ((partition, base),) = bases.items()
            return self._one_place(storage, partition, base, checked, token)
        with collect_rows(checked, memory_bytes=TASK_MEMORY) as store:
            return write_inserts(
                storage,
                self.context,
                [_plan(p, bases[p], rows) for p, rows in store.counts.items()],
                store,
                token=token,
                random=SystemRandom(),
                clock=SystemClock(),
                runner=InlineRunner(),
            )

    def _one_place(
        self,
        storage: Storage,
        partition: str,
        base: BaseFile | None,
        rows: Iterator[pa.RecordBatch],
        token: WriteToken,
    ) -> list[WriteStat]:
        first = next(rows, None)
        if first is None:
            return []  # a share of few rows may turn out to be empty
        batches = _again(first, rows)
        if base is None:
            return write_base_files(
                storage,
                self.context,
                partition=partition,
                file_id_prefix=str(SystemRandom().uuid()),
                token=token,
                batches=batches,
                clock=SystemClock(),
            )
        return [
            append_to_base_file(
                storage,
                self.context,
                partition=partition,
                base=base,
                token=token,
                batches=batches,
                clock=SystemClock(),
            )
        ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task."""

    stats: tuple[WriteStat, ...] = ()
    error: LakewrightError | None = None


def attempt_packed(work: bytes, batches: Iterable[Any], attempt: Attempt) -> bytes:
    """Do one task; what became of it, packed for its way to the driver."""
    shared, storage = _opened(work)
    try:
        outcome = Outcome(tuple(shared.write(storage, batches, attempt.token)))
    except FencedError as error:
        outcome = Outcome(error=error)  # the write is over, whatever is tried
    except LakewrightError as error:
        if (error.retryable or isinstance(error, StorageError)) and not attempt.is_last:
            raise
        outcome = Outcome(error=error)
        close_fence(storage, shared.context.instant)
    packed = zlib.compress(pickle.dumps(outcome), 1)
    if len(packed) <= OUTCOME_BYTES:
        return packed
    path = f"{OUTCOME_FOLDER}/{shared.context.instant}/{attempt.token}"
    storage.replace(path, packed)
    return path.encode()


def outcome_of(packed: bytes, read: Callable[[str], bytes]) -> Outcome:
    """What became of a task; `read` opens what was too large to be sent."""
    if packed.startswith(b"."):  # a path; packed outcomes never begin so
        packed = read(packed.decode())
    outcome: Outcome = pickle.loads(zlib.decompress(packed))  # noqa: S301 - made by `attempt_packed`
    return outcome


@lru_cache(maxsize=CONTEXTS_KEPT)
def _opened(work: bytes) -> tuple[Work, Storage]:
    shared: Work = pickle.loads(work)  # noqa: S301 - made by `pack`
    return shared, shared.storage.open()


def _again(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _plan(partition: str, base: BaseFile | None, rows: int) -> InsertPlan:
    if base is None:
        return InsertPlan(partition, (), (rows,))
    return InsertPlan(partition, (Append(base, rows),), ())


def _only_in(partitions: Mapping[str, object], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch; `InputError` if it has rows that were not there when their places were chosen."""
    seen = batch.column(PARTITION_PATH).unique().to_pylist()  # bounded by the partitions of a task
    for partition in seen:
        if partition not in partitions:
            raise InputError(
                f"Rows of partition {partition!r} came to a task that has no place for them.",
                hint="The DataFrame gave other rows when it was asked again; save it first, or "
                "take what is random out of it. Nothing was written.",
                context={"partition": partition},
            )
    return batch
