"""Running the tasks of a write on Spark, from the driver.

Rows cross from the JVM to Python once, as Arrow, and stay there; what comes back is one small value
per task. Spark retries what fails and picks one result per task.

What can go wrong: `spark.speculation=true` is refused before anything is written, because two
attempts at one task at the same time are wasted work and a late one of them may outlive the write.
An error of the write itself is raised as it was in the worker; what Spark reports about the
DataFrame (a failing function of the user's, a lost cluster) is Spark's own exception.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame, SparkSession

from lakewright.errors import ConfigError, FencedError
from lakewright.format.records import WriteStat
from lakewright.runtime.cancel import NEVER_CANCELLED
from lakewright.spark.tasks import pack
from lakewright.spark.write_tasks import Attempt, Outcome, WriteWork, attempt_packed, outcome_of
from lakewright.txn.access import Access

__all__ = ["refuse_speculation", "run_tasks", "watched"]

Answer = TypeVar("Answer")

SPECULATION = "spark.speculation"
TASK_FAILURES = "spark.task.maxFailures"
DEFAULT_FAILURES = 4
CANCEL_CHECK_S = 0.2
"""How often a running job looks whether it is still wanted."""
OUTCOME_SCHEMA = "outcome binary"


def refuse_speculation(spark: SparkSession) -> None:
    """Raise `ConfigError` if Spark may run two attempts of a task at once."""
    if spark.sparkContext.getConf().get(SPECULATION, "false") == "true":
        raise ConfigError(
            f"{SPECULATION}=true lets Spark run a task twice at the same time, which a write must "
            "not do.",
            hint=f"Set {SPECULATION}=false for applications that write tables.",
            context={"key": SPECULATION},
        )


def run_tasks(access: Access, frame: DataFrame, work: WriteWork) -> list[WriteStat]:
    """Write the rows of a frame; what was written, in a fixed order."""
    shared, attempts = pack(work), _attempts(frame.sparkSession.sparkContext)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        attempt = Attempt(
            context.partitionId(),
            context.stageId(),
            context.taskAttemptId(),
            context.attemptNumber() + 1 >= attempts,
        )
        packed = attempt_packed(shared, batches, attempt)
        yield pa.RecordBatch.from_pydict({"outcome": pa.array([packed], pa.binary())})

    told = frame.mapInArrow(task, OUTCOME_SCHEMA)
    rows = watched(access, frame.sparkSession.sparkContext, told.collect)
    outcomes = [outcome_of(bytes(row[0]), access.storage.read) for row in rows]
    _raise_first(outcomes)
    stats = [stat for outcome in outcomes for stat in outcome.stats]
    return sorted(stats, key=lambda stat: (stat.partition_path or "", stat.file_id or ""))


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


def _attempts(context: SparkContext) -> int:
    """How often Spark tries a task before it gives up."""
    master = context.master or ""
    local = re.fullmatch(r"local(\[[^,]*(,\s*(\d+)\s*)?\])?", master)
    if local:
        return int(local[3] or 1)
    return int(context.getConf().get(TASK_FAILURES, str(DEFAULT_FAILURES)) or DEFAULT_FAILURES)
