"""Running the tasks of a write on Spark, from the driver.

Rows cross from the JVM to Python once, as Arrow, in large batches, and stay there; what comes back
is one small value per task. Spark retries what fails and picks one result per task.

What can go wrong: `spark.speculation=true` is refused before anything is written, because two
attempts at one task at the same time are wasted work and a late one of them may outlive the write.
An error of the write itself is raised as it was in the worker; what Spark reports about the
DataFrame (a failing function of the user's, a lost cluster) is Spark's own exception.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame, SparkSession

from lakewright.errors import ConfigError, FencedError
from lakewright.format.records import WriteStat
from lakewright.runtime.cancel import NEVER_CANCELLED
from lakewright.spark.tasks import pack
from lakewright.spark.write_tasks import Attempt, Outcome, Work, attempt_packed, outcome_of
from lakewright.txn.access import Access

__all__ = [
    "arrow_batches",
    "attempt_here",
    "attempts",
    "refuse_speculation",
    "run_readers",
    "run_tasks",
    "watched",
]

Answer = TypeVar("Answer")

SPECULATION = "spark.speculation"
TASK_FAILURES = "spark.task.maxFailures"
DEFAULT_FAILURES = 4
CANCEL_CHECK_S = 0.2
"""How often a running job looks whether it is still wanted."""
OUTCOME_SCHEMA = "outcome binary"
BATCH_ROWS_KEY = "spark.sql.execution.arrow.maxRecordsPerBatch"
BATCH_BYTES_KEY = "spark.sql.execution.arrow.maxBytesPerBatch"
BATCH_ROWS_MIN, BATCH_ROWS_MAX = 10_000, 65_536
"""The least is Spark's own number."""
BATCH_BYTES = 32 << 20
NO_LIMIT = 2**31 - 1


def refuse_speculation(spark: SparkSession) -> None:
    """Raise `ConfigError` if Spark may run two attempts of a task at once."""
    if spark.sparkContext.getConf().get(SPECULATION, "false") == "true":
        raise ConfigError(
            f"{SPECULATION}=true lets Spark run a task twice at the same time, which a write must "
            "not do.",
            hint=f"Set {SPECULATION}=false for applications that write tables.",
            context={"key": SPECULATION},
        )


def run_tasks(
    access: Access,
    frame: DataFrame,
    work: Work,
    *,
    batch_rows: int | None = None,
    sent: Sequence[bytes] | None = None,
) -> list[WriteStat]:
    """Write the rows of a frame; what was written, in a fixed order.

    `batch_rows` are sent to a worker at once. With `sent` the frame is there for its tasks only,
    and what each of them works on is its own piece.
    """
    context = frame.sparkSession.sparkContext
    shared, tries = pack(work), attempts(context)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = attempt_here(tries)
        given = batches if sent is None else _own(batches, sent[attempt.task])
        packed = attempt_packed(shared, given, attempt)
        yield pa.RecordBatch.from_pydict({"outcome": pa.array([packed], pa.binary())})

    with arrow_batches(frame, batch_rows):
        told = frame.mapInArrow(task, OUTCOME_SCHEMA)
        rows = watched(access, context, told.collect)
    return _written(access, [bytes(row[0]) for row in rows])


def run_readers(access: Access, spark: SparkSession, work: Work, tasks: int) -> list[WriteStat]:
    """Let tasks write rows that they read themselves; what was written, in a fixed order.

    Without a frame, because planning a query takes longer than such a job.
    """
    context = spark.sparkContext
    shared, tries = pack(work), attempts(context)

    def task(_: Iterable[int]) -> Iterator[bytes]:
        yield attempt_packed(shared, (), attempt_here(tries))

    if not tasks:
        return []
    told = context.parallelize(range(tasks), tasks).mapPartitions(task)
    return _written(access, watched(access, context, told.collect))


def _written(access: Access, packed: Iterable[bytes]) -> list[WriteStat]:
    outcomes = [outcome_of(outcome, access.storage.read) for outcome in packed]
    _raise_first(outcomes)
    stats = [stat for outcome in outcomes for stat in outcome.stats]
    return sorted(stats, key=lambda stat: (stat.partition_path or "", stat.file_id or ""))


def attempt_here(attempts: int) -> Attempt:
    """The attempt that this worker makes; Spark gives up after so many `attempts`."""
    context = TaskContext.get()
    assert context is not None
    return Attempt(
        context.partitionId(),
        context.stageId(),
        context.taskAttemptId(),
        context.attemptNumber() + 1 >= attempts,
    )


def _own(batches: Iterable[pa.RecordBatch], piece: bytes) -> Iterator[Any]:
    for _ in batches:
        pass  # of a frame that is there for its tasks only
    yield piece


@contextmanager
def arrow_batches(frame: DataFrame, rows: int | None = None) -> Iterator[None]:
    """Let Spark send so many rows at once, or more than it would; settings of the user win unless
    a number is told.

    A batch costs a worker the same whether it is small or large. Spark 4 measures a batch after
    each row unless there is no limit, which costs more than filling it.
    """
    spark = frame.sparkSession
    width = max(1, frame._jdf.schema().defaultSize())  # noqa: SLF001 - Spark's own guess
    many = max(BATCH_ROWS_MIN, min(BATCH_ROWS_MAX, BATCH_BYTES // width))
    known = spark._jsparkSession.sessionState().conf()  # noqa: SLF001 - tells what was set
    wanted = {BATCH_ROWS_KEY: str(rows or many), BATCH_BYTES_KEY: str(NO_LIMIT)}
    before = {key: spark.conf.get(key) if known.contains(key) else None for key in wanted}
    ours = {key: value for key, value in wanted.items() if rows or before[key] is None}
    for key, value in ours.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in ours.items():
            was = before[key]
            if spark.conf.get(key, None) == value:
                spark.conf.unset(key) if was is None else spark.conf.set(key, was)


def watched(access: Access, context: SparkContext, job: Callable[[], Answer]) -> Answer:
    """Run a job of Spark's; it ends soon after the caller takes the write back."""
    if access.cancel is NEVER_CANCELLED:
        return job()
    group = f"lakewright-{access.random.uuid()}"

    inner = context._jsc.sc()  # noqa: SLF001 - its properties belong to the thread
    properties = inner.getLocalProperties().clone()

    def grouped() -> Answer:
        inner.setLocalProperties(properties)
        context.setJobGroup(group, "a write of lakewright", interruptOnCancel=False)
        return job()

    running = access.spawner.spawn(grouped, name=group)
    try:
        while not running.join(CANCEL_CHECK_S):
            access.cancel.check()
    except BaseException:
        context.cancelJobGroup(group)
        running.join()
        raise
    return running.result()


def _raise_first(outcomes: list[Outcome]) -> None:
    """Raise why the write failed: what closed the fence rather than what found it closed."""
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    errors.sort(key=lambda error: isinstance(error, FencedError))
    if errors:
        raise errors[0]


def attempts(context: SparkContext) -> int:
    """How often Spark tries a task before it gives up."""
    master = context.master or ""
    local = re.fullmatch(r"local(\[[^,]*(,\s*(\d+)\s*)?\])?", master)
    if local:
        return int(local[3] or 1)
    return int(context.getConf().get(TASK_FAILURES, str(DEFAULT_FAILURES)) or DEFAULT_FAILURES)
