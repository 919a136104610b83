"""Fuzzing in child processes, watched from outside.

A mutant may end its process (an abort in a library), hang it in code that no alarm reaches, or run
into the limit on memory; so mutants are read in children, and each child says what it is about to
read. When a child dies or stands still, that mutant is the finding, and a new child goes on behind
it. A run ends after the asked number of files or seconds, whichever comes first.
"""

from __future__ import annotations

import importlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any, Final

from lakewright.errors import OptionError
from lakewright.testing.fuzz.corpus import Corpus
from lakewright.testing.fuzz.fuzzing import Finding, Fuzzer, schedule
from lakewright.testing.fuzz.judging import Kind, Limits, Outcome, Target

__all__ = ["Plan", "Report", "Tally", "find_target", "run_plan"]

_ANNOUNCED_BYTES: Final = 1 << 12
_REPORT_EVERY_S: Final = 0.5
_DEATHS_MAX: Final = 50
_SHOWN_PER_FAULT: Final = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    targets: tuple[str, ...]
    """Names; `module:attribute` names a target outside of the house's own."""
    places: tuple[Path, ...] = ()
    """Folders and zips with seeds."""
    seed: int = 0
    files: int | None = None
    seconds: float | None = None
    workers: int = 1
    cpu_s: float = 4.0
    """Processor time that one file may take."""
    hang_s: float = 60.0
    """Time after which a child that does not answer is taken for hung."""


@dataclass(slots=True)
class Tally:
    """How the mutants of one target ended."""

    files: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    endings: dict[str, int] = field(default_factory=dict)

    def count(self, outcome: Outcome, seconds: float) -> None:
        """Add one mutant."""
        self.files += 1
        self.seconds += seconds
        self.slowest_s = max(self.slowest_s, seconds)
        kind = outcome.kind.value
        self.endings[kind] = self.endings.get(kind, 0) + 1

    def add(self, other: Tally) -> None:
        """Add all mutants of another tally."""
        self.files += other.files
        self.seconds += other.seconds
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        for kind, number in other.endings.items():
            self.endings[kind] = self.endings.get(kind, 0) + number


@dataclass(slots=True)
class Report:
    """What a run did and found."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    """The first few of each fault."""
    faults: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """How many mutants showed each fault."""
    edges: int = 0
    """The most that one child covered."""
    seconds: float = 0.0
    empty: tuple[str, ...] = ()
    """Targets without a seed."""

    @property
    def files(self) -> int:
        """All mutants."""
        return sum(t.files for t in self.tallies.values())

    def found(self, finding: Finding) -> bool:
        """Add a finding; whether its fault is a new one."""
        number = self.faults.get(finding.key, 0)
        self.faults[finding.key] = number + 1
        if number < _SHOWN_PER_FAULT:
            self.findings.append(finding)
        return number == 0


def find_target(name: str) -> Target:
    """A target by its name."""
    from lakewright.testing.fuzz.targets import TARGETS

    if name in TARGETS:
        return TARGETS[name]
    module, _, attribute = name.partition(":")
    if attribute:
        found = getattr(importlib.import_module(module), attribute)
        if isinstance(found, Target):
            return found
    raise OptionError(f"There is no target {name!r}.", hint=f"Use one of: {', '.join(TARGETS)}.")


def run_plan(plan: Plan, on_finding: Callable[[Finding], None] | None = None) -> Report:
    """Run a plan to its end; `on_finding` is told the first mutant of each fault at once."""
    report = Report()
    began = time.monotonic()
    children = [_Child(plan, number) for number in range(plan.workers)]
    try:
        while any(not child.over for child in children):
            for message in _messages(children):
                if isinstance(message, Finding):
                    if report.found(message) and on_finding is not None:
                        on_finding(message)
                else:
                    _add(report, message)
    finally:
        for child in children:
            child.stop()
    report.seconds = time.monotonic() - began
    return report


@dataclass(frozen=True, slots=True)
class _Progress:
    """What a child did since its last message."""

    tallies: dict[str, Tally]
    edges: int
    empty: tuple[str, ...]


def _add(report: Report, progress: _Progress) -> None:
    for name, tally in progress.tallies.items():
        report.tallies.setdefault(name, Tally()).add(tally)
    report.edges = max(report.edges, progress.edges)
    report.empty = progress.empty


def _messages(children: Sequence[_Child]) -> Iterator[Any]:
    """What the children say until the next look at the clock; deaths and hangs as findings."""
    living = [child for child in children if not child.over]
    for ready in wait([child.inbox for child in living], timeout=_REPORT_EVERY_S):
        child = next(c for c in living if c.inbox is ready)
        message = child.received()
        if message is not None:
            yield message
    for child in living:
        death = child.death()
        if death is not None:
            yield death


class _Child:
    """One process and what is known about it."""

    def __init__(self, plan: Plan, number: int) -> None:
        self._plan = plan
        self._number = number
        self._context = multiprocessing.get_context("spawn")
        self._announced: Any = self._context.RawArray("c", _ANNOUNCED_BYTES)
        self._done: Any = self._context.RawValue("Q", 0)
        self._deaths = 0
        self._seen = -1
        self._seen_at = 0.0
        self.over = False
        self._start()

    def _start(self) -> None:
        self.inbox, outbox = self._context.Pipe(duplex=False)
        self._silent = False
        self._announced.value = b""
        self._seen, self._seen_at = -1, time.monotonic()
        self._process = self._context.Process(
            target=_work,
            args=(self._plan, self._number, self._deaths, outbox, self._announced, self._done),
            daemon=True,
        )
        self._process.start()
        outbox.close()

    def received(self) -> Any | None:
        """The next message; None at the end of a process."""
        try:
            return self.inbox.recv()
        except EOFError:
            self._silent = True
            return None

    def death(self) -> Finding | None:
        """The mutant that ended the child or that it hangs in; None while it is well."""
        now = time.monotonic()
        if self._done.value != self._seen:
            self._seen, self._seen_at = self._done.value, now
        hung = now - self._seen_at > self._plan.hang_s
        if hung:
            self._process.kill()
        elif self._process.is_alive():
            return None
        self._process.join()
        if not self._silent and self.inbox.poll():
            return None  # what it said last comes first
        if not hung and self._process.exitcode == 0:
            self.over = True
            return None
        return self._buried(hung)

    def _buried(self, hung: bool) -> Finding:
        target, _, recipe = self._announced.value.decode("utf-8", "replace").partition(" ")
        code = self._process.exitcode
        kind = Kind.HANG if hung else Kind.CRASH
        self._deaths += 1
        if self._deaths < _DEATHS_MAX and recipe:
            self._done.value += 1
            self._start()
        else:
            self.over = True
        where = "warm-up" if not recipe else f"exit code {code}"
        return Finding(target or "?", recipe, kind, where, f"the process ended with {code}")

    def stop(self) -> None:
        """End the process."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()


def _work(
    plan: Plan, worker: int, deaths: int, outbox: Connection, announced: Any, done: Any
) -> None:
    """The life of a child: its share of the files, reported from time to time."""
    began = time.monotonic()
    targets = [find_target(name) for name in plan.targets]
    fuzzer = Fuzzer(targets, Corpus.load(plan.places), Limits(cpu_s=plan.cpu_s))
    for finding in fuzzer.warm_up() if not deaths else fuzzer.warm_up()[:0]:
        outbox.send(finding)
    fed = [t for t in targets if t.name not in fuzzer.empty]
    names = schedule(fed)
    random = Random(f"{plan.seed}:{worker}:{deaths}")  # noqa: S311 - repeatable, not secret
    share = None if plan.files is None else -(-plan.files // plan.workers)
    tallies: dict[str, Tally] = {}
    last = time.monotonic()
    while fed and (share is None or done.value < share):
        name, number = next(names), random.getrandbits(48)
        started = time.process_time()
        outcome, found = fuzzer.run(
            name,
            number,
            lambda recipe: _announce(announced, f"{name} {recipe}"),  # noqa: B023
        )
        now = time.monotonic()
        done.value += 1
        tallies.setdefault(name, Tally()).count(outcome, time.process_time() - started)
        if found is not None:
            outbox.send(found)
        if now - last > _REPORT_EVERY_S:
            outbox.send(_Progress(tallies, fuzzer.edges, tuple(fuzzer.empty)))
            tallies, last = {}, now
            if plan.seconds is not None and now - began > plan.seconds:
                break
    outbox.send(_Progress(tallies, fuzzer.edges, tuple(fuzzer.empty)))
    outbox.close()


def _announce(announced: Any, text: str) -> None:
    announced.value = text.encode()[: _ANNOUNCED_BYTES - 1]
