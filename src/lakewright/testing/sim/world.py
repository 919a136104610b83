"""A world: one seed, a disk, actors, faults, checkers, and how it ended.

Everything that happens follows from the seed and from the code under test. A workload builds a
world (`add` actors, `observe` changes), `run` plays it: first the actors with their faults, then
one after another the steps of `at_rest` without any, so that recovery can be demanded, and last the
checks of the final state. Whatever is found is a `Violation` in the `Outcome`, with the trace.
"""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from lakewright.runtime.random import SeededRandom
from lakewright.storage.faults import SimulatedCrash
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.cached_values import without_class_locks
from lakewright.testing.sim.clocks import StoreClock
from lakewright.testing.sim.disk import Change, Disk
from lakewright.testing.sim.faults import NO_RATES, FaultRates
from lakewright.testing.sim.known_contents import remembered
from lakewright.testing.sim.scheduler import Scheduler, StuckError
from lakewright.testing.sim.trace import Trace

__all__ = ["Outcome", "Violation", "World"]

STEPS_MAX: Final = 200_000
VIOLATIONS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be, and when it was seen first."""

    rule: str
    """Which rule, as `14.2` for the invariant of that number, or a name."""
    text: str
    time_s: float = 0.0
    change: int = 0

    def __str__(self) -> str:
        return f"[{self.rule}] at {self.time_s:.6f} s: {self.text}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a world ended."""

    workload: str
    seed: int
    violations: tuple[Violation, ...]
    digest: str
    steps: int
    operations: int
    seconds: float
    """True time that passed in it."""
    counts: Counter[str] = field(repr=False, default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether nothing was violated."""
        return not self.violations


class World:
    """One simulated world."""

    def __init__(
        self, seed: int, *, workload: str = "", folders: bool = False, steps_max: int = STEPS_MAX
    ) -> None:
        self.seed = seed
        self.workload = workload
        self.random = SeededRandom(seed)
        """For the workload's own choices."""
        self.chance = random.Random(f"{seed}/world")  # noqa: S311
        self.scheduler = Scheduler(resume_at=lambda actor: actor.resume_at)
        self.scheduler.steps_max = steps_max
        self.trace = Trace()
        self.actors: list[Actor] = []
        self.store_clock = StoreClock(self.scheduler)
        self.disk = Disk(self.store_clock, folders=folders)
        self.dead: set[str] = set()
        """Names of the processes that died."""
        self.ended: set[str] = set()
        """Names of the processes that died or came to their end."""
        self.surroundings: Callable[[], AbstractContextManager[None]] = nullcontext
        """What is open while the world is played, such as stubs in place of real parts."""
        self.counts: Counter[str] = Counter()
        self.violations: list[Violation] = []
        self._seen: set[tuple[str, str]] = set()
        self._restarts: dict[str, tuple[Callable[[Actor], Any], FaultRates, int, float]] = {}
        self._at_rest: list[tuple[str, Callable[[Actor], Any]]] = []
        self._finals: list[Callable[[], None]] = []
        self.setup = Actor(self, "setup", lambda _: None, NO_RATES)
        """For preparing the disk before the world begins; nothing goes wrong for it."""

    @property
    def now(self) -> float:
        """True time in seconds since the world began."""
        return self.scheduler.now

    def place(self) -> tuple[float, str]:
        """True time, and who runs."""
        fiber = self.scheduler.current
        return self.scheduler.now, fiber.name if fiber else "setup"

    # ---- building ------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        fn: Callable[[Actor], Any],
        *,
        rates: FaultRates = NO_RATES,
        delay_s: float = 0.0,
        restarts: int = 0,
        restart_after_s: float = 1.0,
    ) -> Actor:
        """Let a process run `fn`; after a crash it is started anew, `restarts` times at most."""

        def life(actor: Actor) -> Any:
            try:
                return fn(actor)
            finally:
                self.ended.add(actor.name)

        actor = Actor(self, name, life, rates)
        self.actors.append(actor)
        self._restarts[name] = (fn, rates, restarts, restart_after_s)
        self.scheduler.start(actor.main, delay=delay_s)
        return actor

    def observe(self, observer: Callable[[Change], None]) -> None:
        """Call `observer` after every change of the disk."""
        self.disk.observers.append(observer)

    def at_rest(self, name: str, fn: Callable[[Actor], Any]) -> None:
        """Run `fn` as a process without faults after all actors have ended, in the given order."""
        self._at_rest.append((name, fn))

    def finally_check(self, check: Callable[[], None]) -> None:
        """Call `check` when everything is over."""
        self._finals.append(check)

    # ---- while it runs -------------------------------------------------------------------------

    def count(self, what: str) -> None:
        """Note that something happened that a good set of worlds contains."""
        self.counts[what] += 1

    def violate(self, rule: str, text: str) -> None:
        """Note a violation; the same one is noted once."""
        if (rule, text) in self._seen or len(self.violations) >= VIOLATIONS_MAX:
            return
        self._seen.add((rule, text))
        time_s, who = self.place()
        self.trace.add(time_s, who, "VIOLATION", rule, text)
        self.violations.append(Violation(rule, text, time_s, self.disk.bucket.changes))

    def died(self, actor: Actor) -> None:
        """Start the process anew, if it is to be."""
        self.dead.add(actor.name)
        self.ended.add(actor.name)
        fn, rates, left, after_s = self._restarts.get(actor.name, (None, NO_RATES, 0, 0.0))
        if fn is not None and left > 0:
            stem, _, number = actor.name.partition("#")
            name = f"{stem}#{int(number or 1) + 1}"
            again = self.add(
                name,
                fn,
                rates=rates,
                delay_s=after_s * (0.5 + self.chance.random()),
                restarts=left - 1,
                restart_after_s=after_s,
            )
            again.clock.offset_ms, again.clock.pace = actor.clock.offset_ms, actor.clock.pace

    # ---- running -------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Play the world to its end."""
        with remembered():
            return self._run()

    def _run(self) -> Outcome:
        self._play()
        for name, fn in self._at_rest:
            if self.violations:
                break
            self.add(name, fn)
            self._play()
        if not self.violations:
            for check in self._finals:
                check()
        return Outcome(
            workload=self.workload,
            seed=self.seed,
            violations=tuple(self.violations),
            digest=f"{self.disk.digest:08x}-{self.trace.count}-{self.scheduler.steps}",
            steps=self.scheduler.steps,
            operations=sum(actor.operations for actor in self.actors),
            seconds=self.now,
            counts=self.counts,
        )

    def _play(self) -> None:
        """Run until the main thread of every actor has ended; then their tasks end too."""
        umpire = Actor(self, "umpire", lambda _: self._outlive(), NO_RATES)
        self.scheduler.start(umpire.main)
        try:
            with without_class_locks(), self.surroundings():
                self.scheduler.run()
        except StuckError as error:
            self.violate("stuck", str(error))
        for actor in self.actors:
            self._judge(actor)

    def _outlive(self) -> None:
        """Outlive every actor, those restarted included, then end what they left running."""
        waited = 0
        while waited < len(self.actors):
            actor = self.actors[waited]
            self.scheduler.wait(actor.main)
            waited += 1
        self.scheduler.kill(lambda fiber: fiber.name != "umpire")

    def _judge(self, actor: Actor) -> None:
        error = actor.main.error
        if error is None or isinstance(error, SimulatedCrash):
            return
        actor.main.error = None
        where = "".join(traceback.format_exception(error))
        self.violate("actor", f"{actor.name} failed: {error!r}\n{where}")
