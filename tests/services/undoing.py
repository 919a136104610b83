"""Processes that undo writes of a table in memory, and die while they do so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lakewright.engine.coexistence import open_access
from lakewright.errors import LakewrightError
from lakewright.runtime import SeededRandom
from lakewright.runtime.process import ProcessIdentity
from lakewright.services.compaction import Compaction
from lakewright.services.compaction_plan import CompactionOptions, CompactionTrigger
from lakewright.storage.faults import FaultPlan, SimulatedCrash, crash
from lakewright.storage.memory import MemoryStorage
from lakewright.table import Table
from lakewright.txn.access import Access
from tests.engine.test_crash_everywhere import DYING, OPTIONS, World
from tests.txn.tables import KnownProcesses, NeverRuns

ALWAYS = CompactionOptions(trigger=CompactionTrigger.ALWAYS)
SURVIVOR = ProcessIdentity("here", "boot", 7, "2")
Verb = Callable[[Access], Any]


def access_of(
    world: World, storage: MemoryStorage | None = None, own: ProcessIdentity = SURVIVOR
) -> Access:
    """The table in the hands of a process."""
    return open_access(
        storage or world.storage,
        OPTIONS,
        clock=world.clock,
        random=SeededRandom(world.bucket.changes),
        spawner=NeverRuns(),
        processes=KnownProcesses(own=own, dead=world.processes.dead),
    )


def compact(world: World) -> str:
    """Execute what is planned, or plan and execute; the time of the first."""
    done = Compaction(access_of(world), ALWAYS).run()
    world.clock.advance(1)
    return done[0].instant


def timeline(world: World) -> list[str]:
    """What is on the timeline, in words."""
    return [str(i) for i in Table(world.storage, clock=world.clock).timeline]


def pending(world: World) -> list[str]:
    """What is not completed."""
    return [str(i) for i in Table(world.storage, clock=world.clock).timeline.pending()]


def newest(world: World) -> str:
    """The time of the newest completed commit."""
    last = Table(world.storage, clock=world.clock).timeline.last_completed_commit()
    assert last is not None
    return last.requested_time


def crashes(
    make: Callable[[], World], verb: Verb, *, effect: bool, stride: int = 1
) -> Iterator[tuple[int, World]]:
    """A world for every storage operation of a verb, or some, at which its process died."""
    index = 0
    while True:
        world = make()
        dying = MemoryStorage(world.bucket, faults=FaultPlan({index: crash(effect=effect)}))
        try:
            verb(access_of(world, dying, DYING))
        except SimulatedCrash:
            world.processes.dead.add(DYING)
            yield index, world
        else:
            return
        index += stride


def copied(world: World) -> World:
    """Another world with the same table at the same time."""
    other = World()
    other.clock.advance(world.clock.monotonic_s() - other.clock.monotonic_s())
    for path, content in world.bucket.objects().items():
        other.storage.replace(path, bytes(content))
        other.storage.set_modified(path, world.storage.stat(path).modified_ms)
    return other


def unchanged(world: World, verb: Callable[[], object], error: type[LakewrightError]) -> str:
    """The refusal of a verb that changes nothing, locks left out."""
    before = _objects(world)
    with pytest.raises(error) as refused:
        verb()
    assert _objects(world) == before
    return str(refused.value)


def _objects(world: World) -> dict[str, bytes]:
    objects = world.bucket.objects().items()
    return {path: bytes(content) for path, content in objects if "/.locks/" not in path}
