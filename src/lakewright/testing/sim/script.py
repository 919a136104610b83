"""Stories: worlds in which a test says who does what, and in which order.

A `Stage` is a world with one table. A story runs on it as a function that directs processes: each
runs the product's code up to a point that the story names, a storage operation or a look at the
lock, and is held there while others run, time passes, or it dies. The other threads of a held
process go on, so it still beats; a stalled one stands still altogether. Whoever is held when the
story ends goes on to its end.

Every checker watches. After the story nobody may be left behind: a process waits until nothing can
be taken for alive any more, finishes what is pending, writes, and reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from lakewright.errors import LakewrightError
from lakewright.storage.faults import Operation
from lakewright.testing.sim.actors import Actor, SimProcesses
from lakewright.testing.sim.checkers import ALL_CHECKERS, Checker, When, rolled_back_when_dead
from lakewright.testing.sim.checkers.liveness import removed_when_old
from lakewright.testing.sim.locks import SimLock
from lakewright.testing.sim.scheduler import NEVER, Fiber, Scheduler
from lakewright.testing.sim.tables import ROOT, SimTable
from lakewright.testing.sim.workloads.stub_writes import Writer
from lakewright.testing.sim.workloads.transactions import check_nothing_left
from lakewright.testing.sim.world import World
from lakewright.txn.access import Access, FailedWrites
from lakewright.txn.heartbeat import HeartbeatOptions
from lakewright.txn.locks.protocol import Lease, LockHolder, LockProvider
from lakewright.txn.recovery import roll_back_failed

__all__ = [
    "DELAY_S",
    "LEASE_S",
    "LOCK",
    "STORY_CHECKERS",
    "TOLERANCE_S",
    "UNLOCK",
    "Aside",
    "Point",
    "Process",
    "Stage",
    "Story",
    "after",
    "before",
]

LOCK: Final = "lock"
"""The operation of asking for the table's lock; its path is the purpose."""
UNLOCK: Final = "unlock"
LEASE_S: Final = 5.0
TOLERANCE_S: Final = 20.0
DELAY_S: Final = 600.0
"""How old a removable plan must be before it is taken away."""
_BEAT = HeartbeatOptions(interval_ms=2_000, misses=10)
STORY_CHECKERS = (
    *ALL_CHECKERS,
    rolled_back_when_dead(_BEAT.tolerance_of_others_ms, 1_000, one_machine=False),
    removed_when_old(int(DELAY_S * 1000), 1_000),
)

Deed = Callable[[Access], Any]
"""What a process does."""
Story = Callable[["Stage"], None]


@dataclass(frozen=True, slots=True)
class Point:
    """A moment in the life of a process: its nth operation that matches, before or after."""

    operation: str
    path: str
    """A pattern for the path below the table, or for the purpose of a lock."""
    nth: int
    effect: bool

    def matches(self, operation: str, path: str, *, effect: bool) -> bool:
        """Whether an operation is of this kind."""
        same = operation == self.operation and effect is self.effect
        return same and fnmatchcase(path, self.path)


def before(operation: str, path: str = "*", nth: int = 1) -> Point:
    """Just before an operation takes effect."""
    return Point(operation, path, nth, effect=False)


def after(operation: str, path: str = "*", nth: int = 1) -> Point:
    """Just after an operation took effect."""
    return Point(operation, path, nth, effect=True)


class Aside:
    """A thread that is held beside the one that its process is held by."""

    def __init__(self, scheduler: Scheduler, fiber: Fiber) -> None:
        self._scheduler = scheduler
        self._fiber: Fiber | None = fiber

    def go(self) -> None:
        """Let it go on; again does nothing."""
        if self._fiber is not None:
            fiber, self._fiber = self._fiber, None
            self._scheduler.wake(fiber)


class Process:
    """A process that a story directs."""

    def __init__(self, stage: Stage, name: str, deed: Deed, changes: dict[str, Any]) -> None:
        self.name = name
        self.value: Any = None
        """What its deed returned."""
        self.error: LakewrightError | None = None
        """How its deed failed."""
        self.ended = False
        self._stage = stage
        self._scheduler = stage.world.scheduler
        self._deed = deed
        self._changes = changes
        self._stop: Point | None = None
        self._left = 0
        self._held: Fiber | None = None
        self._asides: list[Aside] = []
        self._director: Fiber | None = None
        self.actor = stage.world.add(name, self._live)
        self.actor.on_operation = self._on_operation
        self._stop, self._left = before("begin", name), 1

    # ---- what the story says -------------------------------------------------------------------

    def to(self, point: Point) -> Process:
        """Let it run to a point and hold it there."""
        if not self.towards(point):
            raise AssertionError(f"{self.name} ended before {point}: {self.error!r}")
        return self

    def towards(self, point: Point) -> bool:
        """Let it run to a point, or to its end; whether it is held at the point."""
        self._stop, self._left = point, point.nth
        self._release()
        self._wait()
        return not self.ended

    def finish(self) -> Any:
        """Let it run to its end, which must be a good one; what its deed returned."""
        self.end()
        if self.error is not None:
            raise AssertionError(f"{self.name} failed: {self.error!r}") from self.error
        return self.value

    def fails(self, *kinds: type[LakewrightError], match: str = "") -> LakewrightError:
        """Let it run to its end, which must be a failure of a kind."""
        self.end()
        if not isinstance(self.error, kinds) or match not in str(self.error):
            raise AssertionError(f"{self.name} gave {self.value!r}, {self.error!r}")
        return self.error

    def end(self) -> Process:
        """Let it run to its end, whatever that is."""
        self._stop = None
        self._release()
        self._wait()
        return self

    def also(self, point: Point) -> Aside:
        """Hold another thread of it at a point; it stays there until it is let go."""
        held = self._taken()
        self._stop, self._left = point, point.nth
        self._wait()
        found, self._held = self._taken(), held
        if found is None:
            raise AssertionError(f"{self.name} ended before {point}: {self.error!r}")
        self._asides.append(Aside(self._scheduler, found))
        return self._asides[-1]

    def stall(self, seconds: float) -> Process:
        """Let it stand still with all its threads; it goes on afterwards where the story says."""
        self.actor.stall(seconds)
        return self

    def let_all_go(self) -> None:
        """Let all of it run to its end."""
        for aside in self._asides:
            aside.go()
        if not self.ended:
            self.end()

    def crash(self) -> None:
        """Let it die where it is."""
        self.actor.crash("as told")
        self._held = None
        self._wait()

    # ---- how it obeys --------------------------------------------------------------------------

    def _live(self, actor: Actor) -> None:
        try:
            self.meet("begin", self.name, effect=False)
            self.value = self._deed(self._stage.access(actor, self, **self._changes))
        except LakewrightError as error:
            self.error = error
        finally:
            self.ended = True
            self._report()

    def _on_operation(self, operation: Operation, effect: bool) -> None:
        self.meet(operation.name, operation.path.removeprefix(f"{ROOT}/"), effect=effect)

    def meet(self, operation: str, path: str, *, effect: bool) -> None:
        """Stand still here if the story says so."""
        if self._stop is None or not self._stop.matches(operation, path, effect=effect):
            return
        self._left -= 1
        if self._left:
            return
        self._stop = None
        self._held = self._scheduler.current
        self._report()
        self._scheduler.pause(NEVER)

    def _release(self) -> None:
        held = self._taken()
        if held is not None:
            self._scheduler.wake(held)

    def _taken(self) -> Fiber | None:
        held, self._held = self._held, None
        return held

    def _wait(self) -> None:
        """The story waits until it is held or ended."""
        if self._held is None and not self.ended:
            self._director = self._scheduler.current
            self._scheduler.pause(NEVER)

    def _report(self) -> None:
        if self._director is not None:
            director, self._director = self._director, None
            self._scheduler.wake(director)


class _WatchedLock:
    """A lock at which a story can hold its process."""

    def __init__(self, lock: LockProvider, process: Process) -> None:
        self._lock = lock
        self._process = process

    @property
    def place(self) -> str:
        """What and where it is."""
        return self._lock.place

    @property
    def shared(self) -> bool:
        """Whether others are excluded."""
        return self._lock.shared

    def try_acquire(self, who: str) -> Lease | LockHolder:
        """The lock, or who is in the way."""
        self._process.meet(LOCK, who, effect=False)
        found = self._lock.try_acquire(who)
        if isinstance(found, LockHolder):
            return found
        return _WatchedLease(found, self._process)


class _WatchedLease:
    """A held lock at whose release a story can hold its process."""

    def __init__(self, lease: Lease, process: Process) -> None:
        self._lease = lease
        self._process = process

    @property
    def holder(self) -> LockHolder:
        """What others are told."""
        return self._lease.holder

    def check(self) -> None:
        """Raise unless it is still ours."""
        self._lease.check()

    def release(self) -> None:
        """Give it back."""
        who = self._lease.holder.who
        self._process.meet(UNLOCK, who, effect=False)
        self._lease.release()
        self._process.meet(UNLOCK, who, effect=True)


class Stage:
    """A world with one table, for one story."""

    def __init__(
        self,
        *,
        version: int = 8,
        merge_on_read: bool = True,
        folders: bool = False,
        checkers: tuple[Checker, ...] = STORY_CHECKERS,
    ) -> None:
        self.world = World(0, workload="story", folders=folders)
        self.checkers = checkers
        self.table = SimTable.make(
            self.world, version=version, merge_on_read=merge_on_read, checkers=checkers
        )
        self.finish_pending: Deed = lambda _: None
        """What finishes the plans that the story left pending."""
        self._processes: list[Process] = []
        self._failure: BaseException | None = None

    # ---- for stories ---------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The table's version."""
        return int(str(self.table.properties.version))

    def process(self, name: str, deed: Deed, **changes: Any) -> Process:
        """A new process; it begins when the story lets it. `changes` are fields of its access."""
        process = Process(self, name, deed, changes)
        self._processes.append(process)
        return process

    def run(self, name: str, deed: Deed, **changes: Any) -> Any:
        """A process from its beginning to its end; what its deed returned."""
        return self.process(name, deed, **changes).finish()

    def wait(self, seconds: float) -> None:
        """Let time pass for everybody."""
        self.world.scheduler.pause(self.world.now + seconds)

    def access(self, actor: Actor, process: Process | None = None, **changes: Any) -> Access:
        """Everything that a process needs to change the table."""
        lock: LockProvider = SimLock(self.table.ledger, actor, lease_s=LEASE_S)
        if process is not None:
            lock = _WatchedLock(lock, process)
        access = Access(
            storage=self.table.storage(actor),
            lock=lock,
            alone=True,
            failed_writes=FailedWrites.LAZY,
            heartbeat=_BEAT,
            rollback_delay_ms=int(DELAY_S * 1000),
            lock_wait_s=60.0,
            clock=actor.clock,
            random=actor.random,
            spawner=actor,
            processes=SimProcesses(actor, one_machine=self.world.disk.has_folders),
        )
        return replace(access, **changes)

    # ---- playing -------------------------------------------------------------------------------

    def play(self, story: Story, *, recovers: bool = True) -> Stage:
        """Play a story to its end; an assertion of the story that fails is raised here."""

        def direct(_: Actor) -> None:
            try:
                story(self)
            except Exception as error:
                self._failure = error
            finally:
                for process in self._processes:
                    process.let_all_go()

        self.world.add("director", direct)
        if recovers:
            self.world.at_rest("recovery", self._recover)
        self.world.run()
        if self._failure is not None:
            raise self._failure
        return self

    def _recover(self, actor: Actor) -> None:
        """After the longest time that anybody may wait, one process puts everything right."""
        actor.clock.sleep(DELAY_S + 2 * TOLERANCE_S)
        access = replace(self.access(actor), failed_writes=FailedWrites.EAGER)
        roll_back_failed(access)
        self.finish_pending(access)
        if not Writer(actor, self.table, access).write("append"):
            self.world.violate("recovery", "the next write fails")
        check_nothing_left(actor, self.table, access)
        self.table.check_reader(actor)

    @property
    def complaints(self) -> dict[str, list[str]]:
        """What every checker says, by rule: what was seen on the way, and now at rest."""
        found: dict[str, list[str]] = {}
        for violation in self.world.violations:
            found.setdefault(violation.rule, []).append(violation.text)
        self.table.state.whole = True
        for checker in (c for c in self.checkers if c.when is not When.AT_ONCE):
            for text in checker.check(self.table.state):
                known = found.setdefault(checker.rule, [])
                if text not in known:
                    known.append(text)
        return found
