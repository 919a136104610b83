"""A process that writes a table and is killed: before a chosen change of a file, or at some moment.

`write_in_process` runs one operation in a process and session of its own. With `kill_at` the whole
session dies just before that change (see `interop.kill_count`), on Spark with the JVM and the
workers; so each state that a dying process can leave on a disk can be made, temporary files
included. With `kill_after_s` the parent kills the process alone at a moment of its own; the JVM and
the workers of Spark find out by themselves, and may go on for a while.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lakewright as lw
from interop.kill_count import DRIVER, WORKER, KillPlan, count_changes, kill_session, members

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("sub", pa.int32()),
        ("region", pa.string()),
        ("day", pa.string()),
        ("ts", pa.int64()),
    ]
)
REGIONS = ("north", "Zürich", "a b")
"""Partitions that a table has; writes add one more."""
OPERATIONS = ("append", "bulk_insert", "overwrite", "overwrite_table", "delete_partition")
SPARK_OPERATIONS = ("append", "bulk_insert", "overwrite")
CHANGED = 1_000
"""How much newer a changed row is."""
PATIENCE_S = 120.0
ROOT = Path(__file__).resolve().parents[1]
SPARK = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # A machine that is busy must not look like a lost executor.
    "spark.network.timeout": "7200s",
    "spark.executor.heartbeatInterval": "3600s",
}

Write = Callable[[str, str], None]
"""Writes the table at a path by an operation."""


def rows(first: int, count: int, regions: Sequence[str] = (*REGIONS, "new 🚀")) -> pa.Table:
    """Rows with keys from a number on."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"ключ{i}" for i in numbers],
            "sub": [i % 3 for i in numbers],
            "region": [regions[i % len(regions)] for i in numbers],
            "day": ["2024-01-30" for _ in numbers],
            "ts": [*numbers],
        },
        schema=SCHEMA,
    )


def changed_rows(count: int) -> pa.Table:
    """Newer versions of the first rows that a table has."""
    stored = rows(0, count, REGIONS)
    newer = pc.add(stored["ts"], CHANGED)
    return stored.set_column(SCHEMA.get_field_index("ts"), SCHEMA.field("ts"), newer)


def operate(table: Any, operation: str, given: Callable[[pa.Table], Any]) -> None:
    """One operation; what it writes is always the same, given as the table takes it."""
    match operation:
        case "append":
            table.append(given(rows(100, 20)))
        case "bulk_insert":
            options = {"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}
            table.bulk_insert(given(rows(200, 20)), options=options)
        case "overwrite":
            table.overwrite(given(rows(303, 2)))
        case "overwrite_table":
            table.overwrite(given(rows(400, 20)), whole_table=True)
        case "delete_partition":
            table.delete_partition("Zürich")
        case "upsert":
            table.upsert(given(pa.concat_tables([changed_rows(9), rows(500, 4)])))
        case _:
            raise ValueError(operation)


def arrow_writer(scratch: str) -> Write:  # noqa: ARG001 - Spark's needs it
    """Writes from Arrow."""
    return lambda path, operation: operate(lw.Table.open(path), operation, lambda rows: rows)


def spark_session(scratch: str, daemon: str) -> Any:
    """A Spark whose workers are forked from a module that watches them."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    from lakewright.spark import session

    folders = {"spark.local.dir": scratch, "spark.sql.warehouse.dir": f"{scratch}/sql"}
    config = {**SPARK, **folders, "spark.python.daemon.module": daemon}
    return session("killed", master="local[2]", config=config)


def spark_writer(scratch: str) -> Write:
    """Writes with a Spark of its own, whose workers write all files."""
    spark = spark_session(scratch, "interop.kill_daemon")
    from lakewright.spark import SparkTable, write_verbs

    write_verbs.INLINE_ROWS = -1  # small appends too
    return lambda path, operation: operate(
        SparkTable.open(spark, path), operation, spark.createDataFrame
    )


WRITERS: Mapping[str, Callable[[str], Write]] = {"arrow": arrow_writer, "spark": spark_writer}
"""What writes, made ready with a scratch folder."""


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    killed: bool
    changes: int
    """How many changes were begun."""
    by_worker: bool
    """Whether the last of them was a worker's."""
    seconds: float
    """How long the operation took, or lived."""


def write_in_process(
    path: Path,
    operation: str,
    *,
    writer: str = "arrow",
    kill_at: int | None = None,
    kill_after_s: float | None = None,
) -> Ended:
    """Run an operation in a process that is killed, or is not."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["interop.kill_process"])
    scratch = Path(tempfile.mkdtemp(prefix="lakewright-kill-"))
    mine, its = context.Pipe()
    arguments = (its, str(path), operation, writer, kill_at, str(scratch))
    process = context.Process(target=_child, args=arguments)
    process.start()
    its.close()
    try:
        if not mine.poll(PATIENCE_S) or mine.recv() != "begins":
            raise RuntimeError(f"{writer} does not begin: {_log(scratch)}")
        started = time.monotonic()
        process.join(PATIENCE_S if kill_after_s is None else kill_after_s)
        if kill_after_s is not None:
            process.kill()
        process.join(PATIENCE_S)
        seconds = time.monotonic() - started
        killed = process.exitcode == -signal.SIGKILL
        if process.exitcode != 0 and not killed:
            raise RuntimeError(f"{operation} on {path} ended: {_log(scratch)}")
        _outlived(int(process.pid or -1), wait=killed)
        changes = (scratch / "changes").read_bytes()
    except EOFError:
        raise RuntimeError(f"{writer} ends before it begins: {_log(scratch)}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Ended(killed, len(changes), changes.endswith(WORKER), seconds)


def _outlived(session: int, *, wait: bool) -> None:
    """Let the rest of a session end, or end it."""
    end = time.monotonic() + PATIENCE_S
    while wait and any(members(session)) and time.monotonic() < end:
        time.sleep(0.02)
    kill_session(session)


def _log(scratch: Path) -> str:
    log = scratch / "log"
    return log.read_text(errors="replace")[-3000:] if log.exists() else "(no log)"


def _child(
    parent: Connection, path: str, operation: str, writer: str, kill_at: int | None, scratch: str
) -> None:
    os.setsid()
    log = os.open(f"{scratch}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    plan = KillPlan(path, f"{scratch}/changes", os.getpid(), kill_at)
    plan.hand_down()
    write = WRITERS[writer](scratch)
    parent.send("begins")
    count_changes(plan, DRIVER)
    write(path, operation)
