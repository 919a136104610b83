"""What tests of locks share: contenders on threads, chosen interleavings, processes that die."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lakewright.errors import LakewrightError, LockLostError
from lakewright.runtime import NEVER_CANCELLED, SeededRandom, SystemClock, SystemRandom, Task
from lakewright.runtime.process import ProcessIdentity
from lakewright.runtime.spawn import ThreadTask
from lakewright.storage.faults import Operation
from lakewright.txn.locks.protocol import Lease, LockHolder, LockProvider, acquire

T = TypeVar("T")


class HastyClock(SystemClock):
    """The real clock for contenders that have no time: every wait is cut to a moment."""

    def sleep(self, seconds: float) -> None:
        """Wait a moment."""
        time.sleep(min(seconds, 0.001))


class IdleSpawner:
    """Keeps background work instead of running it."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def spawn(self, fn: Callable[[], Any], name: str) -> Task[Any]:
        """Remember the name; the task ends at once."""
        self.kept.append(name)
        return ThreadTask(lambda: None, name)


@dataclass
class Machine:
    """Processes of one simulated machine; each asks through its own `view`."""

    dead: set[int] = field(default_factory=set)

    def process(self, pid: int) -> View:
        """What the process `pid` knows."""
        return View(self, ProcessIdentity("here", "boot", pid, str(pid)))


@dataclass
class View:
    """The machine as one of its processes sees it."""

    machine: Machine
    own: ProcessIdentity

    def is_dead(self, identity: ProcessIdentity) -> bool:
        """Whether a process of this machine is gone."""
        return identity.host == "here" and identity.pid in self.machine.dead


def obtained(answer: Lease | LockHolder) -> Lease:
    """The lease in an answer that must be one."""
    assert not isinstance(answer, LockHolder), answer
    return answer


def busy(answer: Lease | LockHolder) -> LockHolder:
    """The holder in an answer that must be one."""
    assert isinstance(answer, LockHolder), "the lock was granted"
    return answer


def eventually(action: Callable[[], T]) -> T:
    """What `action` returns once its passing failures are over."""
    for _ in range(4):
        try:
            return action()
        except LakewrightError as error:
            if not error.retryable:
                raise
    raise AssertionError("the failures do not pass")


def contend(
    make: Callable[[int], LockProvider], contenders: int, rounds: int, *, wait_s: float = 60.0
) -> None:
    """Let threads take the lock in turns; fail if two were ever inside, or if one was left out."""
    inside: list[int] = []
    entered = [0] * contenders
    problems: list[BaseException | str] = []
    start = threading.Barrier(contenders)

    def run(number: int) -> None:
        try:
            provider = make(number)
            start.wait(30)
            for _ in range(rounds):
                lease = acquire(
                    provider,
                    f"contender {number}",
                    wait_s=wait_s,
                    clock=HastyClock(),
                    random=SystemRandom(),
                    cancel=NEVER_CANCELLED,
                )
                inside.append(number)
                if inside != [number]:
                    problems.append(f"inside together: {inside}")
                lease.check()
                entered[number] += 1
                inside.remove(number)
                lease.release()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(contenders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert problems == []
    assert entered == [rounds] * contenders


class Interleaver:
    """Runs actors one storage operation at a time, in the order that `turns` chooses.

    Each actor is a thread that waits before every storage operation until it is its turn.
    """

    def __init__(self, turns: Sequence[int]) -> None:
        self._turns = list(turns)
        self._actors: list[threading.Thread] = []
        self._waiting: dict[int, threading.Event] = {}
        self._condition = threading.Condition()
        self._running: set[int] = set()
        self._local = threading.local()
        self.errors: list[BaseException] = []

    def before(self, operation: Operation) -> None:
        """Wait for the turn."""
        number = getattr(self._local, "number", None)
        if number is None:
            return
        turn = threading.Event()
        with self._condition:
            self._waiting[number] = turn
            self._running.discard(number)
            self._condition.notify_all()
        turn.wait(30)

    def after(self, operation: Operation) -> None:
        """Nothing: an operation ends at once."""

    def view(self, operation: Operation, newest: int) -> int:
        """The truth."""
        return newest

    def run(self, actors: Sequence[Callable[[], None]]) -> None:
        """Run all actors to their end."""

        def body(number: int, actor: Callable[[], None]) -> None:
            self._local.number = number
            try:
                actor()
            except BaseException as error:
                self.errors.append(error)
            with self._condition:
                self._running.discard(number)
                self._condition.notify_all()

        self._running = set(range(len(actors)))
        threads = [
            threading.Thread(target=body, args=(n, a), daemon=True) for n, a in enumerate(actors)
        ]
        for thread in threads:
            thread.start()
        step = 0
        while True:
            with self._condition:
                assert self._condition.wait_for(lambda: not self._running, 30)
                if not self._waiting:
                    break
                ready = sorted(self._waiting)
                choice = self._turns[step % len(self._turns)] if self._turns else 0
                chosen = ready[choice % len(ready)]
                self._running.add(chosen)
                turn = self._waiting.pop(chosen)
            turn.set()
            step += 1
        for thread in threads:
            thread.join(30)
        if self.errors:
            raise self.errors[0]


@dataclass
class Critical:
    """A section that must never be entered twice; entering without the right to is noticed."""

    inside: set[str] = field(default_factory=set)
    entries: list[str] = field(default_factory=list)
    collisions: list[str] = field(default_factory=list)

    def visit(self, provider: LockProvider, who: str, *, hold: Callable[[], None]) -> bool:
        """Try once; whether the section was entered. `hold` is done inside."""
        try:
            answer = provider.try_acquire(who)
        except LakewrightError:
            return False
        if isinstance(answer, LockHolder):
            return False
        try:
            answer.check()
        except LockLostError:
            answer.release()
            return False
        if self.inside:
            self.collisions.append(f"{who} beside {self.inside}")
        self.inside.add(who)
        self.entries.append(who)
        hold()
        self.inside.discard(who)
        answer.release()
        return True


def chance(seed: int | str = 0) -> SeededRandom:
    """Randomness for one provider."""
    return SeededRandom(seed)
