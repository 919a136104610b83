"""One trial: a victim is killed or stopped at a point of a service; others go on, it wakes up late.

The writer writes all the time. Two rivals try the same as the victim, from its first sign of life
on, or from the moment it is hit. A stopped victim wakes up after a rival has taken over: in the
middle of the rival's work, or when that is done. Only a victim that stands still with a lock that
never expires is woken up before: until then the others must have been refused, and nothing must
have happened. After that it must end by itself, without harm.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from interop.kill_count import kill_session, members
from interop.kill_trials import copy_table
from interop.service_judge import be_judge
from interop.service_points import Point, Signal
from interop.service_process import (
    CRASHED,
    END,
    GO,
    Child,
    Work,
    be_rival,
    be_victim,
    be_writer,
    watch_plan,
)
from interop.service_stages import Stage, is_over
from interop.service_tables import TOLERANCE_S

LOOK_S = 0.02
WRITES_MIN = 2
STUCK_S = 60.0
"""How long after the signal everything must be over: the tolerance, and work on a busy machine."""
START_S = 300.0
"""How long a session of Spark may take to start, and a slow victim to come to its end."""
HARMLESS = frozenset(
    {
        "did",
        "left",
        "ConflictError",
        "FencedError",
        "PlanBusyError",
        "PlanStateError",
        "LockHeldError",
        "LockLostError",
        "WriteConflictError",
    }
)
"""How an attempt may end beside others."""
NEVER_ENDED = ("killed", "")
TAKING_THE_LOCK = "replace lock"
"""Where a dead process' lock is taken over: the folder's own lock is held there."""
REFUSED = frozenset({"LockHeldError", "StorageUnavailableError"})


@dataclass(frozen=True)
class Trial:
    """What is done to whom, and when."""

    id: str
    stage: Stage
    point: Point
    stop: bool
    wakes_during: bool = False
    """Whether a stopped victim wakes up while a rival works, not after it."""
    on_spark: bool = False
    whole_session: bool = False

    @property
    def name(self) -> str:
        """What happens, in words."""
        how = "stopped" if self.stop else "killed"
        where = f" on Spark{' with all workers' if self.whole_session else ''}"
        return f"{self.stage.name}{where if self.on_spark else ''}, {how} at: {self.point}"


@dataclass
class Outcome:
    """What came out of a trial."""

    trial: Trial
    table: Path
    facts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    over_s: float = 0.0
    """How long after the signal the service was over."""


def run_trial(trial: Trial, folder: Path, *, keep: bool = False) -> Outcome:
    """Run a trial in a folder of its own; what is wrong, or kept, stays there."""
    begun = time.monotonic()
    place = folder / "trials" / trial.id
    shutil.rmtree(place, ignore_errors=True)
    scratch = place / "scratch"
    scratch.mkdir(parents=True)
    copy_table(trial.stage.path, place / "table")
    outcome = Outcome(trial, place / "table")
    course = _Course(trial, Work(trial.stage, place / "table", scratch, trial.on_spark), outcome)
    try:
        course.run()
    finally:
        course.end_all()
    outcome.seconds = time.monotonic() - begun
    outcome.facts["failed" if outcome.wrong else "passed"] += 1
    if not outcome.wrong:
        shutil.rmtree(place if not keep else scratch, ignore_errors=True)
    return outcome


class _Course:
    def __init__(self, trial: Trial, work: Work, outcome: Outcome) -> None:
        self._trial = trial
        self._work = work
        self._outcome = outcome
        number = signal.SIGSTOP if trial.stop else signal.SIGKILL
        told = Signal(trial.point, number, trial.whole_session)
        watch = replace(watch_plan(work), signal=told)
        self._victim = Child(be_victim, work, watch)
        self._rivals = [Child(be_rival, work) for _ in range(2)]
        self._writer = Child(be_writer, work, trial.stage.batches + 1)
        self._children = [self._victim, *self._rivals, self._writer]

    def run(self) -> None:
        """From the first change to the verdict."""
        self._until(lambda: bool(self._victim.told("ready")) or self._victim_ended(), START_S)
        # A writer would roll back at once.
        begins = [self._writer] if self._trial.stage.service != "rollback" else []
        for child in begins:
            child.say(GO)
        self._until(lambda: self._has("gate") or self._hit_or_ended(), START_S)
        for child in self._children[1:]:
            if child not in begins:
                child.say(GO)
        self._until(self._hit_or_ended, START_S)
        hit = self._has("reached")
        self._outcome.facts["hit" if hit else "not hit"] += 1
        begun = time.monotonic()
        if hit and self._trial.stop:
            self._wake_up()
        self._until(lambda: is_over(self._work.stage, self._work.table), STUCK_S, "is not over")
        self._outcome.over_s = time.monotonic() - begun
        self._until(self._victim_ended, START_S, "has a victim that does not end")
        self._until(lambda: all(r.told("ended") for r in self._rivals), STUCK_S, "has no end")
        enough = lambda: len(self._writer.told("committed")) >= WRITES_MIN  # noqa: E731
        self._until(enough, STUCK_S, "keeps the writer from writing")
        self._writer.say(END)
        self._until(lambda: bool(self._writer.told("ended")), STUCK_S, "has a writer without end")
        if self._trial.on_spark:  # tasks may outlive their driver
            self._until(lambda: not any(members(self._victim.pid)), START_S)
        self._account()
        if not self._outcome.wrong:
            self._judge()

    def end_all(self) -> None:
        """Let nothing of the trial go on."""
        for child in self._children:
            kill_session(child.pid)
            child.process.join()
            child.pipe.close()

    # ---- waiting -------------------------------------------------------------------------------

    def _until(self, done: Callable[[], bool], seconds: float, what: str = "") -> bool:
        """Wait; `what` is wrong if it takes too long."""
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                if what:
                    self._outcome.wrong.append(f"after {seconds:g} s the service {what}")
                return False
            time.sleep(LOOK_S)
            for child in self._children:
                child.listen()
        return True

    def _has(self, file: str) -> bool:
        return (self._work.scratch / file).exists()

    def _victim_ended(self) -> bool:
        return bool(self._victim.told("ended")) or not self._victim.process.is_alive()

    def _hit_or_ended(self) -> bool:
        return self._has("reached") or self._victim_ended()

    # ---- standing still ------------------------------------------------------------------------

    def _wake_up(self) -> None:
        stopped = time.monotonic()
        facts, victim = self._outcome.facts, self._victim.pid
        self._until(lambda: _state(victim) == "T", STUCK_S, "has a victim that does not stop")
        if not self._trial.wakes_during or self._holds_lock():
            self._until(lambda: time.monotonic() > stopped + 1.2 * TOLERANCE_S, STUCK_S)
        if self._holds_lock() and not self._trial.stage.expiring:
            self._until(self._somebody_refused, STUCK_S, "refuses nobody while its lock is held")
            facts["stood still with the lock"] += 1
        elif self._trial.wakes_during:
            self._until(lambda: self._taken_over() or self._rivals_done(), STUCK_S, "is stuck")
            facts["woken up during the takeover"] += 1
        else:
            self._until(self._rivals_done, STUCK_S, "is stuck")
            facts["woken up after the takeover"] += 1
        for pid in members(victim):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _holds_lock(self) -> bool:
        if self._trial.point.name == TAKING_THE_LOCK:
            return True
        with suppress(OSError, ValueError, TypeError, KeyError):
            held = json.loads((self._work.table / ".hoodie" / "lock").read_text())
            return bool(held["lakewright"]["process"]["pid"] == self._victim.pid)
        return False

    def _somebody_refused(self) -> bool:
        tried = [word for rival in self._rivals for word, _ in rival.told("tried")]
        lost = [word for word, _ in self._writer.told("lost")]
        return not REFUSED.isdisjoint((*tried, *lost))

    def _taken_over(self) -> bool:
        """Whether a rival is behind an instant."""
        owners = {child.pid for child in self._rivals}
        for fence in (self._work.table / ".hoodie" / ".lakewright" / "fence").glob("*"):
            with suppress(OSError, ValueError, IndexError, KeyError):
                if json.loads(fence.read_text().splitlines()[1])["pid"] in owners:
                    return True
        return False

    def _rivals_done(self) -> bool:
        return is_over(self._work.stage, self._work.table) or all(
            rival.told("ended") for rival in self._rivals
        )

    # ---- the end -------------------------------------------------------------------------------

    def _account(self) -> None:
        facts, wrong = self._outcome.facts, self._outcome.wrong
        ended = [*self._victim.told("ended"), NEVER_ENDED][0]
        facts[f"victim: {ended[0]}"] += 1
        attempts = [ended] if ended != NEVER_ENDED else []
        for rival in self._rivals:
            attempts += rival.told("tried")
            facts["rivals: attempts"] += sum(sum(t.values()) for t in rival.told("ended"))
            if any(word == "did" for word, _ in rival.told("tried")):
                facts["taken over by a rival"] += 1
        harmless = HARMLESS | (REFUSED if self._trial.point.name == TAKING_THE_LOCK else set())
        wrong += [f"{word}: {why}" for word, why in attempts if word not in harmless]
        lost = self._writer.told("lost")
        wrong += [f"the writer: {word}: {why}" for word, why in lost if word not in harmless]
        for child in self._children:
            wrong += [f"a process crashed: {trace}" for trace in child.told(CRASHED)]
        facts["writer: committed"] += len(self._writer.told("committed"))
        facts["writer: refused"] += len(lost)

    def _judge(self) -> None:
        stage = self._trial.stage
        known = range(stage.batches + (stage.service != "rollback"))
        committed = [*known, *self._writer.told("committed")]
        begun = [*known, *self._writer.told("begin")]
        judge = Child(be_judge, self._work, committed, begun)
        self._children.append(judge)
        self._until(lambda: not judge.process.is_alive(), START_S, "cannot be judged")
        judge.listen()
        for verdict in judge.told("wrong"):
            self._outcome.wrong += verdict
        self._outcome.wrong += judge.told(CRASHED)
        if not judge.messages:
            self._outcome.wrong.append("the judge says nothing")


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
