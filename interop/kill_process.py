"""A process that writes a table and kills itself: before a chosen change of a file, or never.

`write_in_process` runs one operation in a process of its own, which counts every call that changes
something below the table (create, link, rename, delete, make a folder, set a time), whichever
module makes it, and sends itself SIGKILL just before call number `kill_at`. So each state that a
dying process can leave on a disk can be made, temporary files included. With `kill_after_s` the
parent kills at a moment of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakewright as lw

CHANGES = frozenset(
    {"os.link", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.utime", "os.truncate"}
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
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
PATIENCE_S = 120


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


def operate(table: lw.Table, operation: str) -> None:
    """One operation; what it writes is always the same."""
    match operation:
        case "append":
            table.append(rows(100, 20))
        case "bulk_insert":
            options = {"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}
            table.bulk_insert(rows(200, 20), options=options)
        case "overwrite":
            table.overwrite(rows(303, 2))
        case "overwrite_table":
            table.overwrite(rows(400, 20), whole_table=True)
        case "delete_partition":
            table.delete_partition("Zürich")
        case _:
            raise ValueError(operation)


WRITERS: Mapping[str, Callable[[str, str], None]] = {
    "arrow": lambda path, operation: operate(lw.Table.open(path), operation),
}
"""What writes, given the table and the operation; further engines are added here."""


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    killed: bool
    changes: int
    """How many changes it made; known only of one that was not killed."""


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
    mine, its = context.Pipe()
    process = context.Process(target=_child, args=(its, str(path), operation, writer, kill_at))
    process.start()
    its.close()
    if kill_after_s is not None and mine.poll(PATIENCE_S) and mine.recv() == "begins":
        process.join(kill_after_s)
        process.kill()
    process.join(PATIENCE_S)
    if process.exitcode == -signal.SIGKILL:
        return Ended(killed=True, changes=0)
    if process.exitcode != 0:
        raise RuntimeError(f"{operation} on {path} ended with {process.exitcode}")
    if kill_after_s is None:
        mine.recv()
    return Ended(killed=False, changes=int(mine.recv()))


def _child(parent: Connection, path: str, operation: str, writer: str, kill_at: int | None) -> None:
    counter = _Counter(path, kill_at)
    parent.send("begins")
    sys.addaudithook(counter.heard)
    WRITERS[writer](path, operation)
    counter.kill_at = None
    parent.send(counter.seen)


class _Counter:
    """Counts changes below a folder, and kills."""

    def __init__(self, folder: str, kill_at: int | None) -> None:
        self.folder = folder
        self.kill_at = kill_at
        self.seen = 0
        self._lock = threading.Lock()

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called by the interpreter before it does something."""
        if event == "open":
            changes = isinstance(arguments[2], int) and arguments[2] & WRITING
        else:
            changes = event in CHANGES
        if not changes or not any(self._below(a) for a in arguments[:2]):
            return
        with self._lock:
            if self.seen == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            self.seen += 1

    def _below(self, argument: Any) -> bool:
        text = os.fsdecode(argument) if isinstance(argument, str | bytes | os.PathLike) else ""
        return text.startswith(self.folder)
