"""The processes of one trial: a victim, two rivals and a writer, forked from a warm one.

All of them only tell what happens to them, through a pipe; who judges is another process
(`interop.service_judge`). Errors of lakewright are told by their names, anything else with its
trace.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import lakewright as lw
from interop.kill_process import spark_session
from interop.service_points import WatchPlan, watch_changes
from interop.service_stages import VERBS, Stage, is_over
from interop.service_tables import open_table, write_batch
from lakewright.errors import LakewrightError
from lakewright.services.table_services import TableServices

GO, END = "go", "end"
RIVAL_PAUSE_S = 0.1
WRITER_PAUSE_S = 0.1
CRASHED = "crashed"
PARENT_DEATH_SIGNAL = 1
"""As `prctl` knows it."""

Told = tuple[str, Any]
"""What a process tells: a word, and what there is to say about it."""


@dataclass(frozen=True)
class Work:
    """What the processes of a trial work on."""

    stage: Stage
    table: Path
    scratch: Path
    on_spark: bool = False
    """Whether the victim is a driver."""

    def opened(self, *, patient: bool = False) -> lw.Table:
        """The table."""
        return open_table(self.table, expiring=self.stage.expiring, patient=patient)

    def attempt(self, services: TableServices | None = None) -> tuple[str, str]:
        """Do the service; what came out in a word, and in a sentence."""
        verb = VERBS[self.stage.service]
        try:
            done = verb(services or self.opened().services, self.stage.plan)
        except LakewrightError as error:
            return type(error).__name__, str(error)
        except Exception:
            return CRASHED, traceback.format_exc()
        return ("did", "") if done else ("left", "")


class Child:
    """A process, and the pipe to it."""

    def __init__(self, run: Callable[..., None], work: Work, *arguments: Any) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, its = context.Pipe()
        name = run.__name__.removeprefix("be_")
        self.process = context.Process(target=_begin, args=(name, run, its, work, arguments))
        self.process.start()
        its.close()
        self.messages: list[Told] = []

    @property
    def pid(self) -> int:
        """Its number."""
        return int(self.process.pid or -1)

    def say(self, word: str) -> None:
        """Tell it something; it may be dead."""
        with suppress(OSError):
            self.pipe.send(word)

    def listen(self) -> None:
        """Take in what it has told."""
        with suppress(EOFError, OSError):
            while self.pipe.poll():
                self.messages.append(self.pipe.recv())

    def told(self, word: str) -> list[Any]:
        """What it has told by a word."""
        return [what for said, what in self.messages if said == word]


def end_with_parent() -> None:
    """Let this process be killed when the one that forked it ends."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _begin(
    name: str, run: Callable[..., None], pipe: Connection, work: Work, rest: tuple[Any, ...]
) -> None:
    os.setsid()
    end_with_parent()
    log = os.open(work.scratch / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        run(pipe, work, *rest)
    except Exception:
        pipe.send((CRASHED, traceback.format_exc()))


def be_victim(pipe: Connection, work: Work, watch: WatchPlan) -> None:
    """Do the service once, watched."""
    services = work.opened(patient=True).services
    watch = replace(watch, driver=os.getpid())
    if work.on_spark:
        watch.hand_down()
        services = spark_services(work)
    pipe.send(("ready", None))
    watch_changes(watch)
    pipe.send(("ended", work.attempt(services)))


def spark_services(work: Work) -> TableServices:
    """The services, by tasks of a session of their own."""
    from lakewright.format.own_files import storage_of_table
    from lakewright.spark import SparkTable, compaction_tasks
    from lakewright.storage.resolve import StorageRef

    compaction_tasks.HERE_BYTES = -1  # small plans too
    spark = spark_session(str(work.scratch), "interop.service_daemon")
    ref = StorageRef(str(work.table), options=storage_of_table(None))
    return SparkTable(spark, work.opened(patient=True), ref).services


def be_dead_writer(pipe: Connection, work: Work, watch: WatchPlan, number: int) -> None:
    """Write one batch, watched."""
    table = work.opened()
    watch_changes(watch)
    write_batch(table, number)
    pipe.send(("ended", None))


def be_rival(pipe: Connection, work: Work) -> None:
    """Try the service again and again, until it is over, and once more after that."""
    pipe.recv()
    tried: Counter[str] = Counter()
    over = False
    while not pipe.poll():
        last = over
        word, why = work.attempt()
        tried[word] += 1
        if tried[word] == 1 or word in ("did", CRASHED):
            pipe.send(("tried", (word, why)))
        if last:
            break
        over = is_over(work.stage, work.table)
        time.sleep(0 if over else RIVAL_PAUSE_S)
    pipe.send(("ended", tried))


def be_writer(pipe: Connection, work: Work, first: int) -> None:
    """Write batches until told to end, and clean, unless that is what is tried."""
    pipe.recv()
    cleans = not work.stage.service.startswith("clean")
    number = first
    while not pipe.poll():
        pipe.send(("begin", number))
        try:
            write_batch(work.opened(), number, cleans=cleans)
        except LakewrightError as error:
            pipe.send(("lost", (type(error).__name__, str(error))))
        else:
            pipe.send(("committed", number))
        number += 1
        time.sleep(WRITER_PAUSE_S)
    pipe.send(("ended", None))


def watch_plan(work: Work, names: Mapping[str, str] | None = None) -> WatchPlan:
    """How a process of a trial is watched."""
    chosen = work.stage.names if names is None else names
    return WatchPlan(str(work.table), str(work.scratch), dict(chosen))
