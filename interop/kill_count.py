"""Counting the changes that the processes of one session make below a folder, and killing them all.

Every call that changes something there (create, link, rename, delete, make a folder, set a time) is
counted before it happens, whichever module and whichever process of the session makes it. Before
change number `kill_at` SIGKILL goes to every process of the session: driver, JVM and workers.

Imports nothing but the standard library: Spark's workers are forked from a process that does.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHANGES = frozenset(
    {"os.link", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.utime", "os.truncate"}
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
VARIABLE = "INTEROP_KILL_PLAN"
DRIVER, WORKER = b"d", b"w"


@dataclass(frozen=True)
class KillPlan:
    """What is counted, and when the session dies."""

    folder: str
    count_file: str
    """One byte for each change: who made it."""
    session: int
    kill_at: int | None

    def hand_down(self) -> None:
        """Make the plan known to processes that this one will start."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def handed_down(cls) -> KillPlan:
        """The plan of the process that started this one."""
        return cls(**json.loads(os.environ[VARIABLE]))


def count_changes(plan: KillPlan, who: bytes) -> None:
    """Count what this process and those that are forked from it do from now on."""
    sys.addaudithook(_Counter(plan, who).heard)


def changed_path(folder: str, event: str, arguments: tuple[Any, ...]) -> str | None:
    """What an event that the interpreter tells of is going to change below a folder; None: nothing.

    Of two names it is the new one.
    """
    if event == "open":
        changes = isinstance(arguments[2], int) and arguments[2] & WRITING
    else:
        changes = event in CHANGES
    if not changes:
        return None
    given = (a for a in reversed(arguments[:2]) if isinstance(a, str | bytes | os.PathLike))
    return next((path for path in map(os.fsdecode, given) if path.startswith(folder)), None)


def members(session: int) -> Iterator[int]:
    """The living processes of a session."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    yield int(entry.name)


def kill_session(session: int) -> None:
    """SIGKILL for every process of a session, this one last."""
    own = os.getpid()
    for pid in sorted(members(session), key=lambda pid: pid == own):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class _Counter:
    def __init__(self, plan: KillPlan, who: bytes) -> None:
        self._plan = plan
        self._who = who
        self._file = os.open(plan.count_file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._threads = threading.Lock()

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called by the interpreter before it does something."""
        if changed_path(self._plan.folder, event, arguments) is None:
            return
        with self._threads:
            fcntl.lockf(self._file, fcntl.LOCK_EX)  # other processes wait
            number = os.fstat(self._file).st_size
            os.write(self._file, self._who)
            if number == self._plan.kill_at:
                kill_session(self._plan.session)
            fcntl.lockf(self._file, fcntl.LOCK_UN)
