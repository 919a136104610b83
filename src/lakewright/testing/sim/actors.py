"""Actors: the simulated processes of a world, with storage, clock, chance and background tasks.

An actor runs one function; what it spawns belongs to it and dies with it. `crash` is the death of
the process: nothing of it has any effect afterwards. A stalled actor stands still with all its
threads, as after SIGSTOP, and does not notice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lakewright.errors import OutcomeUnknownError, StorageUnavailableError
from lakewright.runtime.process import ProcessIdentity
from lakewright.runtime.random import SeededRandom
from lakewright.runtime.retry import RetryBudget
from lakewright.runtime.spawn import Task
from lakewright.storage.faults import Operation, SimulatedCrash
from lakewright.storage.memory import MemoryClient
from lakewright.storage.retrying import RetryingStorage
from lakewright.testing.sim.clocks import ActorClock
from lakewright.testing.sim.coverage import fault_key, role_of
from lakewright.testing.sim.disk import SimStorage
from lakewright.testing.sim.faults import Fate, FateKind, FateMaker, FaultRates
from lakewright.testing.sim.scheduler import NEVER, Fiber

if TYPE_CHECKING:
    from lakewright.testing.sim.world import World

__all__ = ["Actor", "SimProcesses", "SimTask"]

T = TypeVar("T")
_LISTINGS = frozenset({"list", "walk"})
_ALIKE = frozenset({FateKind.UNAVAILABLE, FateKind.JUMP})
"""Fates for which it does not matter on which side of the effect they come."""


class Actor:
    """One simulated process; also its `Spawner` and the fault hook of its storage."""

    def __init__(self, world: World, name: str, fn: Callable[[Actor], Any], rates: FaultRates):
        self.world = world
        self.name = name
        self.number = len(world.actors) + 1
        self.dead = False
        self.died_at = 0.0
        self.stalled_at = 0.0
        """When it began to stand still the last time."""
        self.resume_at = 0.0
        """True time until which the process stands still."""
        self.clock = ActorClock(world.scheduler)
        self.random = SeededRandom(f"{world.seed}/{name}")
        self.fates = FateMaker(rates, random.Random(f"{world.seed}/{name}/faults"))  # noqa: S311
        self.fates.certain = world.disk.has_folders
        self.main = Fiber(name, self, lambda: fn(self))
        self._client = MemoryClient(world.disk.bucket, self)
        self.on_operation: Callable[[Operation, bool], None] | None = None
        """Told of every storage operation, before and after its effect; may hold it up."""
        self._pending: dict[int, Fate] = {}
        self._publishing: set[Fiber] = set()
        """Threads in the one operation between their last look at the lock and its effect; one that
        failed may be tried again, and is still the same."""
        self._spawned = 0
        self.storage = SimStorage(
            world.disk, world.trace, root="", client=self._client, place=world.place
        )
        """Everything on the disk, faults included."""

    def __repr__(self) -> str:
        return f"Actor({self.name!r})"

    @property
    def operations(self) -> int:
        """How many storage operations it has begun."""
        return self._client.operations

    def retrying(self, attempts: int = 8) -> RetryingStorage:
        """The disk as products see it: passing failures are tried again."""
        budget = RetryBudget(attempts=attempts, seconds=600.0)
        return RetryingStorage(self.storage, budget=budget, clock=self.clock, random=self.random)

    def crash_at(self, index: int, *, effect: bool) -> None:
        """Die at the storage operation with that number, before or after its effect."""
        self.fates.exact[index] = Fate(FateKind.CRASH, effect)

    def stall_at(self, index: int, seconds: float, *, effect: bool = False) -> None:
        """Stand still at the storage operation with that number."""
        self.fates.exact[index] = Fate(FateKind.STALL, effect, seconds)

    def crash(self, why: str = "killed") -> None:
        """Die here and now; called by a fiber of another actor or of this one."""
        self.world.trace.add(self.world.now, self.name, "† crash", "", why)
        self.dead = True
        self.died_at = self.world.now
        self._client.killed = True
        self.world.scheduler.kill(lambda fiber: fiber.owner is self)
        self.world.died(self)

    def stall(self, seconds: float) -> None:
        """Stand still for so many true seconds from now on."""
        self.world.trace.add(self.world.now, self.name, "‖ stall", "", f"{seconds:.3f} s")
        self.stalled_at = self.world.now
        self.resume_at = self.world.now + seconds

    # ---- Spawner -------------------------------------------------------------------------------

    def spawn(self, fn: Callable[[], T], name: str) -> Task[T]:
        """Start `fn` as a thread of this process; before the world begins nothing is started."""
        self._spawned += 1
        fiber = Fiber(f"{self.name}/{self._spawned}", self, fn)
        if self.world.scheduler.current is None:
            return SimTask(self.world, fiber, name)
        self.world.trace.add(self.world.now, self.name, "spawn", name, fiber.name)
        self.world.scheduler.start(fiber)
        self.world.scheduler.pause(self.world.now)
        return SimTask(self.world, fiber, name)

    # ---- the fault hook of its storage ---------------------------------------------------------

    def before(self, operation: Operation) -> None:
        """Take time, switch, and meet what prevents the operation."""
        scheduler = self.world.scheduler
        current = scheduler.current
        if current is None:
            return
        if current.owner is not self:
            raise AssertionError(f"{current} used the storage of {self.name} at {operation}")
        due = scheduler.now + self.fates.latency_s()
        if self.fates.rates.stall:
            publishes = self.fates.steady(operation)
            (self._publishing.add if publishes else self._publishing.discard)(current)
        scheduler.pause(due)
        if self.on_operation is not None:
            self.on_operation(operation, False)
        fate = self.fates.fate(operation)
        if fate is None:
            return
        if fate.effect:
            self._pending[operation.index] = fate
        else:
            self._meet(fate, operation)

    def after(self, operation: Operation) -> None:
        """Tell the observers, and meet what hides the effect."""
        world = self.world
        scheduler, disk = world.scheduler, world.disk
        if scheduler.current is None:
            disk.settle(operation, "setup", scheduler.now)
            return
        world.trace.add(scheduler.now, scheduler.current.name, operation.name, operation.path)
        self._publishing.discard(scheduler.current)
        if disk.bucket.changes != disk.seen:
            disk.settle(operation, self.name, scheduler.now)
        fate = self._pending.pop(operation.index, None) if self._pending else None
        if fate is not None:
            self._meet(fate, operation)
        if self.on_operation is not None:
            self.on_operation(operation, True)

    def view(self, operation: Operation, newest: int) -> int:
        """The newest state, or for listings an older one where the storage is not that strong."""
        if operation.name in _LISTINGS and self.fates.rates.lag_s_max:
            lag_s = self.fates.lag_s()
            if lag_s:
                self.world.count("listing.old")
                return self.world.disk.change_at(self.world.now - lag_s)
        return newest

    def _meet(self, fate: Fate, operation: Operation) -> None:
        when = "after" if fate.effect else "before"
        kind = fate.kind.value if fate.kind in _ALIKE else f"{fate.kind.value} {when}"
        self.world.count(fault_key(kind, role_of(self.name), operation))
        where = f"{when} {operation.name} {operation.path} (operation {operation.index})"
        if fate.kind is FateKind.CRASH:
            self.crash(where)
            raise SimulatedCrash(f"{self.name} died {where}")
        if fate.kind is FateKind.STALL:
            if self._publishing - {self.world.scheduler.current}:
                return  # a process stands still with all its threads, and one must not now
            self.stall(fate.amount)
            self.world.scheduler.pause(self.world.now)
            return
        time_s, who = self.world.place()
        if fate.kind is FateKind.JUMP:
            self.world.trace.add(time_s, who, "clock jump", "", f"{fate.amount:.0f} ms")
            self.clock.jump(fate.amount)
            return
        self.world.trace.add(time_s, who, f"! {fate.kind.value}", operation.path, when)
        lost = fate.kind is FateKind.UNKNOWN
        raise (OutcomeUnknownError if lost else StorageUnavailableError)(
            f"Injected failure of {operation.name}.",
            hint="Try again.",
            context={"path": operation.path, "operation": operation.index},
            retryable=True,
        )


class SimProcesses:
    """What a simulated process can know about others: on one machine, who is certainly dead."""

    def __init__(self, actor: Actor, *, one_machine: bool) -> None:
        self._actor = actor
        self._one_machine = one_machine

    @property
    def own(self) -> ProcessIdentity:
        """This process."""
        return self._identity(self._actor)

    def is_dead(self, identity: ProcessIdentity) -> bool:
        """Whether a process of this machine is certainly gone."""
        if identity.host != self.own.host:
            return False
        actors = self._actor.world.actors
        return not any(
            self._identity(a) == identity and not a.dead and not a.main.done for a in actors
        )

    def _identity(self, actor: Actor) -> ProcessIdentity:
        host = "machine" if self._one_machine else actor.name
        return ProcessIdentity(host, "boot", actor.number, actor.name)


class SimTask(Generic[T]):
    """A background task of an actor."""

    def __init__(self, world: World, fiber: Fiber, name: str) -> None:
        self._world = world
        self._fiber = fiber
        self._name = name

    @property
    def name(self) -> str:
        """What it was spawned as."""
        return self._name

    @property
    def done(self) -> bool:
        """Whether it returned or failed."""
        return self._fiber.done

    @property
    def error(self) -> BaseException | None:
        """Why it failed; None while it runs and after it returned."""
        return self._fiber.error

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; whether it came in time. Before the world begins it runs now."""
        if self._world.scheduler.current is None:
            self._world.scheduler.run_alone(self._fiber)
            return True
        until = NEVER if timeout_s is None else self._world.now + timeout_s
        return self._world.scheduler.wait(self._fiber, until)

    def result(self) -> T:
        """Wait for its end and return what it returned or raise what it raised."""
        self.join()
        if self._fiber.error is not None:
            raise self._fiber.error
        value: T = self._fiber.value
        return value
