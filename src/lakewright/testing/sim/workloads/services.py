"""Writers, compactors and cleaners on one table, through the real code of services.

Data work is stubbed: a compaction reads and writes stub files, everything else (plans, the
execution of plans, rollbacks, conflicts) is the product's. Several processes schedule and execute
the same plans, die, stall and are started again; in the end one process finishes what is pending.
No row may change by any of it, and no plan may be completed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakewright.errors import LakewrightError
from lakewright.format.file_names import BaseFileName
from lakewright.format.file_slices import FileSlice
from lakewright.format.records import WriteStat
from lakewright.services.compaction import Compaction, SliceWork
from lakewright.services.compaction_plan import CompactionOptions, CompactionTrigger
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.faults import NO_RATES, FaultRates
from lakewright.testing.sim.model import Effect
from lakewright.testing.sim.stub_rows import base_content, slice_rows
from lakewright.testing.sim.tables import SimTable
from lakewright.testing.sim.workloads.stub_writes import Writer
from lakewright.testing.sim.workloads.transactions import (
    CRASHES,
    ERRORS,
    STALLS,
    STORM,
    Setting,
    access_of,
    check_nothing_left,
    checkers_of,
    outwaited,
    setting_of,
)
from lakewright.testing.sim.workloads.workload import Workload
from lakewright.testing.sim.world import World
from lakewright.txn.access import Access, FailedWrites
from lakewright.txn.markers import Marker, MarkerType
from lakewright.txn.publishing import publish_file
from lakewright.txn.recovery import roll_back_failed, sweep_traces

__all__ = ["WORKLOADS", "StubCompactor", "make"]

KINDS = ("append", "log", "log", "log", "rewrite", "overwrite")
ALWAYS = CompactionOptions(trigger=CompactionTrigger.ALWAYS)
EXECUTORS = 2
ROUNDS = 3


class StubCompactor:
    """Compacts stub files."""

    def __init__(self, actor: Actor, table: SimTable) -> None:
        self._actor = actor
        self._table = table
        self._random = actor.random.fork("compaction")

    def __call__(self, access: Access, work: SliceWork) -> Sequence[WriteStat]:
        """Write the new base file of every slice, sometimes at the second try."""
        self._table.model.intend(work.compactor.context.instant, Effect())
        return [self._compacted(access, work, slice_) for slice_ in work.slices]

    def _compacted(self, access: Access, work: SliceWork, slice_: FileSlice) -> WriteStat:
        context = work.compactor.context
        timeline = work.compactor.snapshot.timeline
        rows = slice_rows(
            access.storage, self._table.properties, timeline, slice_, latest=context.instant
        )
        content = base_content(rows)
        group = slice_.group
        if self._random.below(6) == 0:
            self._publish(access, work, slice_, content, f"0-{work.stage}-0")
        name = self._publish(access, work, slice_, content, f"0-{work.stage}-1")
        return WriteStat(
            file_id=group.file_id,
            path=f"{group.partition}/{name}",
            partition_path=group.partition,
            prev_commit=slice_.base_instant,
            num_writes=len(rows),
            file_size_in_bytes=len(content),
        )

    def _publish(
        self, access: Access, work: SliceWork, slice_: FileSlice, content: bytes, token: str
    ) -> str:
        context, group = work.compactor.context, slice_.group
        name = BaseFileName(group.file_id, token, context.instant).text
        marker = Marker(group.partition, name, MarkerType.MERGE)
        publish_file(access.storage, context.fence, marker, lambda sink: sink.write(content))
        return name


def make(name: str, seed: int, rates: FaultRates) -> World:
    """A world of services."""
    setting = replace(setting_of(seed, rates=rates), merge_on_read=True)
    world = World(seed, workload=name, folders=setting.folders)
    table = SimTable.make(
        world, version=setting.version, merge_on_read=True, checkers=checkers_of(setting)
    )
    for number in range(setting.writers):
        actor = world.add(
            f"writer{number}",
            lambda a: _writer(a, table, setting),
            rates=setting.rates,
            delay_s=world.random.uniform(0, 2),
            restarts=2,
            restart_after_s=5.0,
        )
        actor.clock.offset_ms = world.random.uniform(-90, 90)
    for number in range(EXECUTORS):
        actor = world.add(
            f"compactor{number}",
            lambda a: _compactor(a, table, setting),
            rates=setting.rates,
            delay_s=world.random.uniform(0, 4),
            restarts=2,
            restart_after_s=5.0,
        )
        actor.clock.offset_ms = world.random.uniform(-90, 90)
    world.add("cleaner", lambda a: _cleaner(a, table, setting), rates=setting.rates)
    world.at_rest("recovery", lambda a: _recovery(a, table, setting))
    return world


def _writer(actor: Actor, table: SimTable, setting: Setting) -> None:
    writer = Writer(actor, table, access_of(actor, table, setting))
    chance = actor.random.fork("kinds")
    for _ in range(setting.writes + 1):
        try:
            writer.write(KINDS[chance.below(len(KINDS))])
        except LakewrightError as error:
            actor.world.count(f"failed.{error.code}")
        actor.clock.sleep(chance.uniform(0, 3))


def _compactor(actor: Actor, table: SimTable, setting: Setting) -> None:
    access = access_of(actor, table, setting)
    service = Compaction(access, ALWAYS, compactor=StubCompactor(actor, table))
    for _ in range(ROUNDS):
        actor.clock.sleep(actor.random.uniform(0.1, 3.0))
        try:
            for done in service.run():
                table.model.acknowledge(done.instant, actor.world.now)
                actor.world.count("compacted")
        except LakewrightError as error:
            actor.world.count(f"compaction.{error.code}")


def _cleaner(actor: Actor, table: SimTable, setting: Setting) -> None:
    access = access_of(actor, table, setting)
    for _ in range(ROUNDS):
        actor.clock.sleep(actor.random.uniform(1.0, 6.0))
        try:
            roll_back_failed(access)
            sweep_traces(access)
        except LakewrightError as error:
            actor.world.count(f"cleaner.{error.code}")


def _recovery(actor: Actor, table: SimTable, setting: Setting) -> None:
    """After the longest time that anybody may wait, one process finishes everything."""
    access = replace(outwaited(actor, table, setting), failed_writes=FailedWrites.EAGER)
    service = Compaction(access, ALWAYS, compactor=StubCompactor(actor, table))
    service.run()
    if service.pending():
        actor.world.violate("recovery", f"{service.pending()} cannot be executed")
    if not Writer(actor, table, access).write("append"):
        actor.world.violate("recovery", "the next write fails")
    check_nothing_left(actor, table, access)
    table.check_reader(actor)


WORKLOADS = (
    Workload(
        "services-calm",
        "writers, compactors and a cleaner, nothing goes wrong",
        lambda seed: make("services-calm", seed, NO_RATES),
    ),
    Workload(
        "services-crashes",
        "the same, processes die at any operation",
        lambda seed: make("services-crashes", seed, CRASHES),
    ),
    Workload(
        "services-errors",
        "the same, operations fail and answers are lost",
        lambda seed: make("services-errors", seed, ERRORS),
    ),
    Workload(
        "services-stalls",
        "the same, processes stand still",
        lambda seed: make("services-stalls", seed, STALLS),
    ),
    Workload(
        "services-storm",
        "the same, everything at once",
        lambda seed: make("services-storm", seed, STORM),
    ),
)
