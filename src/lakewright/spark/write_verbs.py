"""The verbs of a write on Spark: what `SparkTable` does with DataFrames.

Everything before and after the data files is the engine's, the same as for Arrow. A bulk insert or
an overwrite is one pass over the frame, or over the files that it is a scan of. An append needs to
know how many rows each partition gets before it can say where they go: the frame is kept
(`persist`) from the first look on, so that one that would answer differently the second time cannot
split the write. An append that is small, and goes into small files, is collected and written by the
driver without tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it

from lakewright.engine.arrow_write import ArrowWriter, write_with_retries
from lakewright.engine.coexistence import LockChoice, open_access
from lakewright.engine.operations import Operation
from lakewright.engine.row_source import RowSource
from lakewright.engine.sizing import InsertPlan
from lakewright.engine.write_job import BegunWrite, WriteJob
from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.errors import InputError
from lakewright.format.records import WriteStat
from lakewright.format.row_keys import PARTITION_PATH
from lakewright.format.timeline import Timeline
from lakewright.runtime.cancel import NEVER_CANCELLED
from lakewright.runtime.events import Event, EventHook
from lakewright.services.after_commit import WriteServices
from lakewright.spark.compaction_tasks import SparkCompactor
from lakewright.spark.filters import column_of
from lakewright.spark.index_tasks import looking_on_spark
from lakewright.spark.parquet_source import TASKS_PER_CORE, ParquetSource, parquet_source
from lakewright.spark.write_frame import as_sent, incoming_frame, sent_schema
from lakewright.spark.write_order import (
    arranged,
    moves_rows,
    order_in_tasks,
    with_key_columns,
)
from lakewright.spark.write_places import PATH, hash_columns, places, routed, shares
from lakewright.spark.write_run import refuse_speculation, run_readers, run_tasks, watched
from lakewright.spark.write_tasks import NewGroups, Places, WriteWork
from lakewright.storage.resolve import StorageRef
from lakewright.table import Table, WriteArguments
from lakewright.txn.access import Access

__all__ = ["FrameWrites", "SparkWriter", "Verb"]

READ = "write.input.files"
THROUGH_SPARK = "write.input.spark."
"""Events that tell how rows come: workers read files, or why they come through Spark."""
MOVED = "sort_mode"
INLINE_ROWS = 100_000
INLINE_THREADS = 2
INLINE_BYTES = 64 << 20
"""Appends of so many rows, and of so many bytes with the files they join, need no tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkWriter(ArrowWriter):
    """Writes the rows of one job from a DataFrame."""

    frame: IncomingFrame
    ref: StorageRef

    def append(self, source: RowSource) -> WriteResult:  # noqa: ARG002 - rows come through Spark
        """Add rows, filling small files first."""
        job = self.job
        counts = self.frame.counts(job)
        if not counts and not job.options.allow_empty_commit:
            return WriteResult(job.operation.name, None)
        plans = job.plan_inserts(counts)
        if self.frame.is_small(plans):
            rows = RowSource(self.frame.collected(job))
            return ArrowWriter(job, threads=INLINE_THREADS).append(rows)
        with job.begun() as begun:
            begun.start(plans)
            stats = self._placed(begun, plans)
            _refuse_other_rows(counts, stats)
            return begun.commit(stats)

    def new_groups(self, begun: BegunWrite, source: RowSource) -> list[WriteStat]:  # noqa: ARG002
        """Rows as new file groups."""
        job, rows = self.job, self.frame.rows
        order = order_in_tasks(job, begun)
        partitioned = bool(job.keys.partition_fields)
        work = self._work(begun, NewGroups(order, partitioned=partitioned))
        files = self._files(partitioned=partitioned)
        self._tell(begun, files)
        if not isinstance(files, str):
            begun.start()
            work = replace(work, source=files)
            return run_readers(job.access, rows.sparkSession, work, len(files.tasks))
        frame = arranged(job, rows, order)
        begun.start()
        return run_tasks(job.access, frame, work)

    def _files(self, *, partitioned: bool) -> ParquetSource | str:
        """The files that the tasks can read themselves; otherwise why they cannot."""
        job = self.job
        if moves_rows(job):
            return MOVED
        return parquet_source(
            self.frame.rows,
            job.schema.rows.source,
            self.ref,
            # Every task makes a file in each of its partitions.
            tasks_per_core=1 if partitioned else TASKS_PER_CORE,
            tasks_max=job.options.bulk_insert_parallelism,
        )

    def _tell(self, begun: BegunWrite, files: ParquetSource | str) -> None:
        kind, count = (THROUGH_SPARK + files, 0) if isinstance(files, str) else (READ, files.files)
        self.job.access.on_event(Event(kind, count, unit="files", instant=begun.instant))

    def _placed(self, begun: BegunWrite, plans: list[InsertPlan]) -> list[WriteStat]:
        job, frame = self.job, self.frame.with_paths(self.job)
        found = shares(plans, frame.sparkSession.sparkContext.defaultParallelism)
        columns = hash_columns(job.schema.rows.source, job.keys.record_key_fields)
        moved = routed(frame, found, columns)
        return run_tasks(job.access, moved, self._work(begun, places(found)))

    def _work(self, begun: BegunWrite, plan: NewGroups | Places) -> WriteWork:
        job = self.job
        return WriteWork(self.ref, begun.context, job.schema.rows, job.keys, plan)


Verb = Callable[[SparkWriter, RowSource], WriteResult]


class IncomingFrame:
    """The rows of one write; what is kept of them is given back when it is closed."""

    def __init__(self, rows: object) -> None:
        self.rows = incoming_frame(rows)
        self.schema = sent_schema(self.rows.schema)
        """The columns in Arrow."""
        self._kept: DataFrame | None = None

    def with_paths(self, job: WriteJob) -> DataFrame:
        """The same rows with their partition paths as another column, kept for as long as this is
        open."""
        if self._kept is None:
            keyed, columns = with_key_columns(
                self.rows, job.keys, job.schema.rows, wanted=[PARTITION_PATH]
            )
            assert columns.partition_path is not None
            # A row that cannot have a path stops the write where its keys are formed.
            path = F.coalesce(columns.partition_path, F.lit("")).alias(PATH)
            own = [column_of(name) for name in self.rows.columns]
            self._kept = keyed.select(*own, path).persist()
        return self._kept

    def counts(self, job: WriteJob) -> dict[str, int]:
        """Rows by partition path."""
        frame = self.with_paths(job)
        counted = frame.groupBy(PATH).count()
        found = watched(job.access, frame.sparkSession.sparkContext, counted.collect)
        return {row[0]: row[1] for row in sorted(found)}

    def is_small(self, plans: list[InsertPlan]) -> bool:
        """Whether so few bytes will be written that tasks are not worth their while."""
        if not plans:
            return True
        if sum(plan.rows for plan in plans) > INLINE_ROWS:
            return False
        rewritten = sum(append.base.size for plan in plans for append in plan.appends)
        return rewritten + self._kept_bytes <= INLINE_BYTES

    @property
    def _kept_bytes(self) -> int:
        """What the kept rows take, as Spark has counted it while it kept them."""
        assert self._kept is not None
        fresh = self._kept.select("*")
        plan = fresh._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - not told otherwise
        return int(str(plan.stats().sizeInBytes()))

    def collected(self, job: WriteJob) -> pa.Table:
        """All rows, here."""
        frame = self.with_paths(job).drop(PATH)
        context = frame.sparkSession.sparkContext
        classic: Any = frame  # its own way to Arrow is public from Spark 4 on only
        batches = watched(job.access, context, classic._collect_as_arrow)  # noqa: SLF001
        return pa.Table.from_batches([as_sent(b, self.schema) for b in batches], self.schema)

    def close(self) -> None:
        """Let kept rows go."""
        if self._kept is not None:
            self._kept.unpersist()


@dataclass(frozen=True)
class FrameWrites:
    """Writes DataFrames to one table."""

    table: Table
    ref: StorageRef
    lock: LockChoice
    sole_writer: bool
    on_event: EventHook

    def write(
        self,
        operation: Operation,
        verb: Verb,
        rows: object,
        how: WriteArguments,
        *,
        extra: Mapping[str, str] | None = None,
        guard: Callable[[Timeline], None] | None = None,
        stream: bool = False,
    ) -> WriteResult:
        """Do one write; `extra` and `guard` are those of its `WriteJob`.

        `stream`: it is a batch of one.
        """
        with _opened(rows) as frame:
            refuse_speculation(frame.rows.sparkSession)
            options = self.table.write_options(how)
            access = self.access(options, how)

            def run(writer: ArrowWriter, source: RowSource) -> WriteResult:
                spark = frame.rows.sparkSession
                looking = looking_on_spark(spark, access, self.ref, self.table.registry)
                job = replace(writer.job, extra=dict(extra or {}), guard=guard, looking=looking)
                return verb(SparkWriter(job, frame=frame, ref=self.ref), source)

            services = self.services(frame.rows.sparkSession, access, options, stream=stream)
            return services.around(
                lambda: write_with_retries(
                    access,
                    options,
                    operation,
                    RowSource(frame.schema.empty_table()),  # its columns; rows come through Spark
                    run,
                    retries=how.get("retries", options.conflict_retries),
                    validators=how.get("validators", ()),
                    registry=self.table.registry,
                )
            )

    def services(
        self,
        spark: SparkSession,
        access: Access,
        options: WriteOptions,
        *,
        stream: bool = False,
    ) -> WriteServices:
        """The services that run with a write; slices are compacted by tasks of the session."""
        compactor = SparkCompactor(spark, self.ref)
        return self.table.write_services(access, options, compactor, stream=stream)

    def access(self, options: WriteOptions, how: WriteArguments) -> Access:
        """The means to write the table."""
        return open_access(
            self.ref.open(),
            options,
            lock=self.lock,
            sole_writer=self.sole_writer,
            cancel=how.get("cancel", NEVER_CANCELLED),
            on_event=self.on_event,
        )


@contextmanager
def _opened(rows: object) -> Iterator[IncomingFrame]:
    frame = IncomingFrame(rows)
    try:
        yield frame
    finally:
        frame.close()


def _refuse_other_rows(counts: Mapping[str, int], stats: list[WriteStat]) -> None:
    counted, written = sum(counts.values()), sum(stat.num_inserts or 0 for stat in stats)
    if counted != written:
        raise InputError(
            f"The DataFrame gave {counted} rows first and {written} when they were written.",
            hint="Its rows change from one look to the next, and what Spark had kept of them was "
            "lost: save them first, or write them with bulk_insert. Nothing was written.",
            context={"counted": counted, "written": written},
        )
