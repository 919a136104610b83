"""Toy protocols: one that is right, and the same one with its lock left out.

Both let several processes rewrite one file group, read, crash and be started again. They exist to
show that the simulator sees what it must see and nothing else: the broken one is caught by the
checkers within a few seeds, the sound one never.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC

from lakewright.errors import AlreadyExistsError
from lakewright.format.file_names import BaseFileName
from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import Instant, State, format_instant_name
from lakewright.format.instant_times import format_time, time_ms
from lakewright.format.records.commit import CommitMetadata, WriteStat
from lakewright.format.timeline import Timeline, load_timeline
from lakewright.storage.base import Storage
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.faults import FaultRates
from lakewright.testing.sim.locks import SimLock
from lakewright.testing.sim.model import Effect
from lakewright.testing.sim.stub_rows import base_content, rows_at
from lakewright.testing.sim.tables import SimTable
from lakewright.testing.sim.workloads.workload import Workload
from lakewright.testing.sim.world import World
from lakewright.txn.locks.protocol import acquire

__all__ = ["WORKLOADS"]

_GROUP = FileGroupId("p0", "shared-0")
_WRITES = 3


def _make(seed: int, *, locked: bool) -> World:
    name = "toy" if locked else "toy-broken"
    world = World(seed, workload=name, folders=seed % 2 == 0)
    table = SimTable.make(world, version=(6, 8)[seed // 2 % 2], merge_on_read=False, locked=locked)
    rates = FaultRates(crash=0.01, unavailable=0.02, unknown=0.0 if seed % 2 == 0 else 0.02)
    for number in range(3):
        world.add(f"writer{number}", lambda a: _write(a, table, locked), rates=rates, restarts=3)
    world.add("reader", lambda a: _read(a, table), rates=FaultRates(unavailable=0.02))
    return world


def _read(actor: Actor, table: SimTable) -> None:
    for _ in range(6):
        actor.clock.sleep(0.5)
        table.check_reader(actor)


def _write(actor: Actor, table: SimTable, locked: bool) -> None:
    for number in range(_WRITES):
        with _locked(actor, table) if locked else nullcontext():
            _append(actor, table, f"{actor.name}-{number}")


@contextmanager
def _locked(actor: Actor, table: SimTable) -> Iterator[None]:
    provider = SimLock(table.ledger, actor, lease_s=10.0)
    lease = acquire(provider, actor.name, wait_s=1e6, clock=actor.clock, random=actor.random)
    try:
        yield
    finally:
        lease.release()


def _append(actor: Actor, table: SimTable, key: str) -> None:
    """Rewrite the one file group with one more row."""
    storage = table.storage(actor)
    timeline = load_timeline(storage, table.properties)
    for left in timeline.pending():
        _undo(storage, table, left)
    timeline = load_timeline(storage, table.properties)
    instant = _next(timeline, actor)
    _create(storage, table, instant, State.REQUESTED)
    _create(storage, table, instant, State.INFLIGHT)
    rows = {**rows_at(storage, table.properties, timeline).get(_GROUP, {}), key: actor.name}
    file = BaseFileName(_GROUP.file_id, f"{actor.random.below(99)}-0-1", instant).text
    path = f"{_GROUP.partition}/{file}"
    content = base_content(rows)
    storage.create_if_absent(path, content)
    stat = WriteStat(file_id=_GROUP.file_id, path=path, partition_path=_GROUP.partition)
    metadata = CommitMetadata(partition_to_write_stats={_GROUP.partition: [stat]})
    table.model.intend(instant, Effect({_GROUP: {key: actor.name}}))
    data = metadata.write(table.properties.version)
    _create(storage, table, instant, State.COMPLETED, data, _next(timeline, actor, instant))
    table.model.acknowledge(instant, actor.world.now)
    actor.world.count("commits")


def _next(timeline: Timeline, actor: Actor, after: str = "") -> str:
    times = [after, *(i.requested_time for i in timeline)]
    times += [i.completion_time or "" for i in timeline]
    last = max(times)
    now = format_time(actor.clock.now_ms(), zone=UTC)
    return now if now > last else format_time((time_ms(last, zone=UTC) or 0) + 1, zone=UTC)


def _undo(storage: Storage, table: SimTable, left: Instant) -> None:
    """Remove what a dead process left; only sound under the lock."""
    for seen in [i for i in storage.list(_GROUP.partition) if left.requested_time in i.path]:
        storage.delete(seen.path)
    for state in (State.INFLIGHT, State.REQUESTED):
        storage.delete(_path(table, left.requested_time, state))


def _create(
    storage: Storage,
    table: SimTable,
    instant: str,
    state: State,
    data: bytes = b"",
    completion_time: str | None = None,
) -> None:
    try:
        storage.create_if_absent(_path(table, instant, state, completion_time), data)
    except AlreadyExistsError:
        return  # the mistake that a lock forgives


def _path(table: SimTable, instant: str, state: State, completion_time: str | None = None) -> str:
    version = table.properties.version
    named = version.completion_time_in_name and state is State.COMPLETED
    name = format_instant_name(
        instant,
        "commit",
        state,
        layout=version.layout_version,
        completion_time=completion_time if named else None,
    )
    return f"{table.properties.timeline_folder}/{name}"


WORKLOADS = (
    Workload("toy", "a small sound protocol under a lock", lambda s: _make(s, locked=True)),
    Workload(
        "toy-broken",
        "the same without its lock: must be caught",
        lambda s: _make(s, locked=False),
        broken=True,
    ),
)
