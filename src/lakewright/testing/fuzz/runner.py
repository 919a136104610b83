"""Fuzzing in child processes, watched from outside.

A mutant may end its process (an abort in a library), hang it in code that no alarm reaches, or run
into the limit on memory; so mutants are read in children, and each child shows what it is about to
read. When a child dies or stands still, that mutant is the finding, and a new child goes on behind
it. A run ends after the asked number of files or seconds, whichever comes first.

Work is done in rounds. After each round a child tells what it has learnt; with a state file, a run
that was stopped goes on behind the last whole round of each child, exactly as it would have.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any, Final

from lakewright.errors import OptionError
from lakewright.testing.fuzz.corpus import Corpus
from lakewright.testing.fuzz.fuzzing import Finding, Fuzzer, Memory, schedule
from lakewright.testing.fuzz.judging import Kind, Limits, Target
from lakewright.testing.fuzz.mutators import BYTES_MAX
from lakewright.testing.fuzz.report import Report, Tally, with_saved_input

__all__ = ["Plan", "find_target", "run_plan"]

_ANNOUNCED_BYTES: Final = 1 << 12
_REPORT_EVERY_S: Final = 0.5
_DEATHS_MAX: Final = 50


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
    jobs: int = 1
    cpu_s: float = 4.0
    """Processor time that one file may take."""
    hang_s: float = 600.0
    """Time after which a child that neither works nor ends is taken for hung."""
    round_files: int = 1000
    """Files between two places at which a run can be taken up again."""
    state: Path | None = None
    """File to take a run up from, if it is there, and to note it in."""
    save: Path | None = None
    """Folder for the bytes of findings."""

    @property
    def identity(self) -> dict[str, Any]:
        """What must be equal for a run to be taken up again."""
        places = [str(place) for place in self.places]
        return {
            "seed": self.seed,
            "targets": list(self.targets),
            "jobs": self.jobs,
            "round_files": self.round_files,
            "places": places,
        }


def find_target(name: str) -> Target:
    """A target by its name."""
    module, _, attribute = name.partition(":")
    if attribute:
        found = getattr(importlib.import_module(module), attribute)
        if isinstance(found, Target):
            return found
    from lakewright.testing.fuzz.targets import TARGETS

    if name in TARGETS:
        return TARGETS[name]
    raise OptionError(f"There is no target {name!r}.", hint=f"Use one of: {', '.join(TARGETS)}.")


def run_plan(
    plan: Plan,
    on_finding: Callable[[Finding], None] | None = None,
    on_progress: Callable[[Report], None] | None = None,
) -> Report:
    """Run a plan to its end; `on_finding` is told the first mutant of each fault at once."""
    done, starts = _taken_up(plan)
    began = time.monotonic()
    children = [_Child(plan, number, start) for number, start in enumerate(starts)]
    try:
        while any(not child.over for child in children):
            for child, message in _messages(children):
                if isinstance(message, Finding):
                    told = with_saved_input(message, plan.save)
                    if child.report.found(told) and on_finding is not None:
                        on_finding(told)
                elif isinstance(message, _Progress):
                    child.report.counted(message.tallies, message.edges)
                    child.report.empty = message.empty
                else:
                    child.begin_round(message)
                    done.add(child.take_report())
                    done.seconds += time.monotonic() - began
                    began = time.monotonic()
                    _note(plan, done, [c.start for c in children])
            if on_progress is not None:
                on_progress(_sum(done, children, began))
    finally:
        for child in children:
            child.stop()
    return _sum(done, children, began)


def _sum(done: Report, children: Sequence[_Child], began: float) -> Report:
    report = Report()
    report.add(done)
    for child in children:
        report.add(child.report)
    report.seconds += time.monotonic() - began
    return report


# ---- taking a run up again ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a child begins: so many files are done, and this was learnt from them."""

    done: int = 0
    memory: Memory = field(default_factory=Memory)


def _taken_up(plan: Plan) -> tuple[Report, list[_Start]]:
    if plan.state is None or not plan.state.exists():
        return Report(), [_Start() for _ in range(plan.jobs)]
    noted = json.loads(plan.state.read_text())
    if noted["plan"] != plan.identity:
        raise OptionError(
            f"{plan.state} is of another run: {noted['plan']}.",
            hint="Give the same seed, targets, jobs and places, or another state file.",
        )
    starts = [_Start(told["done"], Memory(**told["memory"])) for told in noted["children"]]
    return Report.from_json(noted["report"]), starts


def _note(plan: Plan, done: Report, starts: Sequence[_Start]) -> None:
    if plan.state is None:
        return
    children = [asdict(start) for start in starts]
    noted = {"plan": plan.identity, "report": done.to_json(), "children": children}
    plan.state.parent.mkdir(parents=True, exist_ok=True)
    beside = plan.state.with_name(f"{plan.state.name}.new")
    beside.write_text(json.dumps(noted))
    beside.replace(plan.state)


# ---- children -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Progress:
    """What a child did since its last message."""

    tallies: dict[str, Tally]
    edges: int
    empty: tuple[str, ...]


def _messages(children: Sequence[_Child]) -> Iterator[tuple[_Child, Any]]:
    """What the children say until the next look at the clock; deaths and hangs as findings."""
    living = [child for child in children if not child.over]
    for ready in wait([child.inbox for child in living], timeout=_REPORT_EVERY_S):
        child = next(c for c in living if c.inbox is ready)
        message = child.received()
        if message is not None:
            yield child, message
    for child in living:
        death = child.death()
        if death is not None:
            yield child, death


class _Shared:
    """What a child shows while it works, readable after its death."""

    def __init__(self, context: Any) -> None:
        self.recipe: Any = context.RawArray("c", _ANNOUNCED_BYTES)
        self.data: Any = context.RawArray("B", BYTES_MAX)
        self.size: Any = context.RawValue("Q", 0)
        self.done: Any = context.RawValue("Q", 0)

    def announce(self, recipe: str, data: bytes) -> None:
        """Show a mutant that is about to be read."""
        self.size.value = 0
        self.recipe.value = recipe.encode()[: _ANNOUNCED_BYTES - 1]
        memoryview(self.data).cast("B")[: len(data)] = data
        self.size.value = len(data)

    def announced(self) -> tuple[str, bytes]:
        """The mutant that was shown last."""
        data = bytes(memoryview(self.data).cast("B")[: self.size.value])
        return self.recipe.value.decode("utf-8", "replace"), data


class _Child:
    """One process and what is known about it."""

    def __init__(self, plan: Plan, number: int, start: _Start) -> None:
        self._plan = plan
        self._number = number
        self._context = multiprocessing.get_context("spawn")
        self._shared = _Shared(self._context)
        self._shared.done.value = start.done
        self._deaths = 0
        self._seen = -1
        self._seen_at = 0.0
        self.start = start
        self.report = Report()
        """Since the last whole round."""
        self.over = False
        self._start()

    def _start(self) -> None:
        self.inbox, outbox = self._context.Pipe(duplex=False)
        self._silent = False
        self._shared.announce("", b"")
        self._seen, self._seen_at = -1, time.monotonic()
        self._process = self._context.Process(
            target=_work,
            args=(self._plan, self._number, self._deaths, self.start, outbox, self._shared),
            daemon=True,
        )
        self._process.start()
        outbox.close()

    def begin_round(self, start: _Start) -> None:
        """Note where a new child would have to begin."""
        self.start = start

    def take_report(self) -> Report:
        """What was done since it was last taken."""
        report, self.report = self.report, Report()
        return report

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
        if self._shared.done.value != self._seen:
            self._seen, self._seen_at = self._shared.done.value, now
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
        shown, data = self._shared.announced()
        target, _, recipe = shown.partition(" ")
        code = self._process.exitcode
        kind = Kind.HANG if hung or code == -signal.SIGVTALRM else Kind.CRASH
        self._deaths += 1
        if self._deaths < _DEATHS_MAX and recipe:
            self._shared.done.value += 1
            self._start()
        else:
            self.over = True
        where = "warm-up" if not recipe else f"exit code {code}"
        return Finding(target or "?", recipe, kind, where, f"the process ended with {code}", data)

    def stop(self) -> None:
        """End the process."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()


def _work(
    plan: Plan, worker: int, deaths: int, start: _Start, outbox: Connection, shared: _Shared
) -> None:
    """The life of a child: its share of the files, reported from time to time."""
    began = last = time.monotonic()
    targets = [find_target(name) for name in plan.targets]
    fuzzer = Fuzzer(targets, Corpus.load(plan.places), Limits(cpu_s=plan.cpu_s))
    for finding in fuzzer.warm_up():
        if not deaths and not start.done:
            outbox.send(finding)
    if start.done:
        fuzzer.recall(start.memory)
    fed = [t for t in targets if t.name not in fuzzer.empty]
    done = shared.done
    names = islice(schedule(fed), done.value, None)
    random = _numbers(plan, worker, done.value, deaths)
    share = None if plan.files is None else -(-plan.files // plan.jobs)
    tallies: dict[str, Tally] = {}
    while fed and (share is None or done.value < share):
        name, number = next(names), random.getrandbits(48)
        started = time.process_time()
        outcome, found = fuzzer.run(
            name,
            number,
            lambda recipe, data: shared.announce(f"{name} {recipe}", data),  # noqa: B023
        )
        now = time.monotonic()
        done.value += 1
        tallies.setdefault(name, Tally()).count(outcome, time.process_time() - started)
        if found is not None:
            outbox.send(found)
        round_over = done.value % plan.round_files == 0
        if round_over or now - last > _REPORT_EVERY_S:
            outbox.send(_Progress(tallies, fuzzer.edges, tuple(fuzzer.empty)))
            tallies, last = {}, now
        if round_over:
            outbox.send(_Start(done.value, fuzzer.memory()))
            random = _numbers(plan, worker, done.value, 0)
        if plan.seconds is not None and now - began > plan.seconds:
            break
    outbox.send(_Progress(tallies, fuzzer.edges, tuple(fuzzer.empty)))
    outbox.close()


def _numbers(plan: Plan, worker: int, done: int, deaths: int) -> Random:
    """The numbers of a round; behind a death, others."""
    round_ = done // plan.round_files
    return Random(f"{plan.seed}:{worker}:{round_}:{deaths}")  # noqa: S311 - repeatable, not secret
