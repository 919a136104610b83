"""Points in the work of a service, by name, and a signal that comes at one of them.

Every change that a process makes below a table's folder is told by the interpreter before it
happens (see `interop.kill_count`). Here each one gets a name that is the same in every run, such as
`create base file` or `after replace heartbeat of the plan`; a `Point` is the n-th change of a name.
Just before it the signal goes out: SIGKILL, or SIGSTOP, which somebody else ends by SIGCONT.

What is seen goes to files in a scratch folder, because on Spark the processes that make changes do
not all know the one that watches: `changes` has a line for each, `gate` appears with the first sign
of life that the process gives, `reached` when the signal goes out.

Imports nothing but the standard library: Spark's workers are forked from a process that does.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interop.kill_count import changed_path, members

VARIABLE = "INTEROP_WATCH_PLAN"
VERBS = {"os.link": "create", "os.rename": "replace", "os.remove": "delete"}
"""Folders and times are left out: nothing depends on when they are made or changed."""
INSTANT = re.compile(r"\d{17}")
TIMELINE_FILE = re.compile(r"\d{17}(?:_\d{17})?\.([a-z]+)(?:\.(requested|inflight))?")
PLACES = (
    (".hoodie/.heartbeat/", "heartbeat"),
    (".hoodie/.lakewright/fence/", "fence"),
    (".hoodie/.temp/", "marker"),
)
UNFINISHED = ".hoodie/.lakewright/unfinished/"
FIRST_SIGN = "heartbeat"
PUBLICATION = re.compile(r"create \w+ (requested|inflight|completed) ")


@dataclass(frozen=True, order=True)
class Point:
    """The change of a name that comes after `number` others of that name."""

    name: str
    number: int = 0

    def __str__(self) -> str:
        return self.name if not self.number else f"{self.name} ({self.number + 1})"

    @property
    def phase(self) -> str:
        """What the change is about."""
        return re.sub(r"^(after )?\w+ | of the .*", "", self.name)

    @property
    def publishes(self) -> bool:
        """Whether a file of the timeline is about to get its name."""
        return PUBLICATION.match(self.name) is not None


@dataclass(frozen=True)
class Signal:
    """What is sent at a point, and to whom."""

    point: Point
    signal: int
    whole_session: bool = False
    """Also to the JVM and the workers of a driver on Spark."""


@dataclass(frozen=True)
class WatchPlan:
    """What is watched, and what happens."""

    folder: str
    scratch: str
    names: Mapping[str, str]
    """What instants are called; `*` is every other one."""
    driver: int = 0
    """The process that gets the signal; it leads its session."""
    signal: Signal | None = None

    def hand_down(self) -> None:
        """Make the plan known to processes that this one will start."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def handed_down(cls) -> WatchPlan:
        """The plan of the process that started this one."""
        values = json.loads(os.environ[VARIABLE])
        told = values.pop("signal")
        point = told and Point(**told.pop("point"))
        return cls(**values, signal=told and Signal(point, **told))


def watch_changes(plan: WatchPlan) -> None:
    """Watch what this process, and those that are forked from it, do from now on."""
    sys.addaudithook(_Watch(plan).heard)


def points_of(scratch: Path) -> Iterator[Point]:
    """The points that a watched run came to, each once and in order; beats in the background and
    what comes after them are no points, because their number is chance."""
    seen: Counter[str] = Counter()
    for name in (scratch / "changes").read_text().splitlines():
        point = Point(name, seen[name])
        seen[name] += 1
        if FIRST_SIGN not in name or not point.number:
            yield point


class _Watch:
    def __init__(self, plan: WatchPlan) -> None:
        self._plan = plan
        self._seen: Counter[str] = Counter()
        self._one_at_a_time = threading.Lock()
        self._of_thread = threading.local()
        self._process = 0

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called by the interpreter before it does something."""
        if event not in VERBS:
            return
        path = changed_path(self._plan.folder, event, arguments)
        name = None if path is None else self._name(event, path[len(self._plan.folder) + 1 :])
        if name is None:
            return
        with self._one_at_a_time:
            if self._process != os.getpid():  # forked since
                self._process = os.getpid()
                self._seen.clear()
            point = Point(name, self._seen[name])
            self._seen[name] += 1
            self._append("changes", f"{name}\n")
            if FIRST_SIGN in name:
                self._append("gate", name)
            told = self._plan.signal
            if told is not None and told.point == point and self._first("reached"):
                self._send(told)

    def _name(self, event: str, path: str) -> str | None:
        """What a change is called; None for one that is none, or has no name."""
        if path.endswith(".crc"):
            return None
        if path.startswith(UNFINISHED):
            before = getattr(self._of_thread, "name", None)
            self._of_thread.name = None
            return before and f"after {before}"
        found = f"{VERBS[event]} {self._subject(path)}"
        self._of_thread.name = None if event == "os.remove" else found
        return found

    def _subject(self, path: str) -> str:
        name = path.rpartition("/")[2]
        for folder, word in PLACES:
            if path.startswith(folder):
                return f"{word} of the {self._instant(path)}"
        state = TIMELINE_FILE.fullmatch(name)
        if path.startswith(".hoodie") and state is not None:
            action, pending = state.groups()
            return f"{action} {pending or 'completed'} of the {self._instant(name)}"
        if path.startswith(".hoodie"):
            return name.partition("-")[0]
        return "log file" if ".log." in name else "base file" if "_" in name else name

    def _instant(self, path: str) -> str:
        found = INSTANT.search(path)
        names = self._plan.names
        return names.get(found[0] if found else "", names.get("*", "other"))

    def _send(self, told: Signal) -> None:
        driver, own = self._plan.driver or os.getpid(), os.getpid()
        hit = [*members(driver)] if told.whole_session else [driver]
        for pid in sorted(hit, key=lambda pid: pid == own):
            with suppress(ProcessLookupError):
                os.kill(pid, told.signal)

    def _append(self, file: str, text: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        descriptor = os.open(f"{self._plan.scratch}/{file}", flags)
        os.write(descriptor, text.encode())
        os.close(descriptor)

    def _first(self, file: str) -> bool:
        """Whether this is the only process that comes here."""
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            os.close(os.open(f"{self._plan.scratch}/{file}", flags))
        except FileExistsError:
            return False
        return True
