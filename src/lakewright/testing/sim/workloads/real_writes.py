"""Real writes: the engine's own verbs with real Parquet files, on the simulated disk.

What stubs stand in for elsewhere is done here: keys, partition marks, Parquet files, small files.
Each write's rows are unique, and the model knows them by the instant that wrote them, so that the
rows of a scan tell exactly which writes it saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa

from lakewright.engine.arrow_write import ArrowWriter, write_with_retries
from lakewright.engine.new_table import NewTable
from lakewright.engine.operations import (
    APPEND,
    BULK_INSERT,
    DELETE_PARTITION,
    OVERWRITE_PARTITIONS,
    OVERWRITE_TABLE,
    Operation,
)
from lakewright.engine.options import ReadOptions
from lakewright.engine.proposal import Proposal
from lakewright.engine.row_source import RowSource
from lakewright.engine.table_creation import create_table
from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.errors import InputError, LakewrightError, OutcomeUnknownError
from lakewright.format.file_slices import FileGroupId
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage
from lakewright.table import Table
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.faults import FaultRates
from lakewright.testing.sim.model import Effect
from lakewright.testing.sim.tables import ROOT, SimTable
from lakewright.testing.sim.workloads.transactions import (
    Setting,
    access_of,
    check_nothing_left,
    outwaited,
    setting_of,
)
from lakewright.testing.sim.workloads.workload import Workload
from lakewright.testing.sim.world import World
from lakewright.txn.access import Access

__all__ = ["VERBS", "WORKLOADS", "RealTable", "one_real_write"]

_SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("value", pa.int64())])
_PARTS = ("p0", "p1")
_ONE_THREAD = ReadOptions(threads=1)

_Verb = Callable[[ArrowWriter, RowSource], WriteResult]
VERBS: Mapping[str, tuple[Operation, _Verb]] = {
    "append": (APPEND, ArrowWriter.append),
    "bulk_insert": (BULK_INSERT, ArrowWriter.bulk_insert),
    "overwrite": (OVERWRITE_PARTITIONS, ArrowWriter.overwrite_partitions),
    "overwrite_table": (OVERWRITE_TABLE, ArrowWriter.overwrite_table),
    "delete_partition": (DELETE_PARTITION, lambda w, _: w.delete_partitions(["p0"])),
}
"""What each verb is and does."""


class RealTable:
    """A table with real files, and the model of its rows."""

    def __init__(self, world: World, setting: Setting) -> None:
        spec = NewTable(
            name="simulated",
            schema=_SCHEMA,
            type="mor" if setting.merge_on_read else "cow",
            version=setting.version,
            key_fields=("id",),
            partition_fields=("part",),
            timeline_timezone="UTC",
        )
        setup = world.setup
        properties = create_table(
            setup.storage.child(ROOT), spec, clock=setup.clock, random=setup.random
        )
        self.world = world
        self.table = SimTable.of(world, properties)
        world.finally_check(lambda: self._compare(setup.storage.child(ROOT), setup, 0.0))

    def write(self, actor: Actor, access: Access, verb: str, number: int) -> bool:
        """One write of two rows or none; whether it was committed."""
        operation, act = VERBS[verb]
        parts = _PARTS[:1] if verb == "overwrite" else _PARTS
        names = [f"{actor.name}-{number}-{part}" for part in parts]
        values = [number] * len(parts)
        rows = pa.table([names, list(parts), values], schema=_SCHEMA)
        proposed: list[str] = []

        def intend(proposal: Proposal) -> None:
            proposed.append(proposal.instant)
            self.table.model.intend(proposal.instant, _effect(verb, proposal.instant, names))

        options = WriteOptions(failed_writes=access.failed_writes)
        source = RowSource(None if verb == "delete_partition" else rows)
        try:
            result = write_with_retries(
                access, options, operation, source, act, validators=[intend]
            )
        except LakewrightError as error:
            self.world.count(f"refused.{error.code}")
            if proposed and not isinstance(error, OutcomeUnknownError):
                self.table.model.refuse(proposed[-1], error.code)
            if isinstance(error, InputError) and verb != "delete_partition":
                raise
            return False
        assert result.instant is not None
        self.table.model.acknowledge(result.instant, self.world.now)
        self.world.count(f"committed.{verb}")
        return True

    def check(self, actor: Actor) -> None:
        """Scan the table as a process does, and compare the rows with the model's."""
        self._compare(self.table.storage(actor), actor, self.world.now)
        self.world.count("reads")

    def _compare(self, storage: Storage, actor: Actor, began_s: float) -> None:
        table = Table(storage, clock=actor.clock, options=_ONE_THREAD)
        scan = table.scan(columns=["id", "part"])
        seen = sorted(zip(*scan.to_arrow().to_pydict().values(), strict=True))
        timeline = scan.snapshot.timeline
        expected = self._rows(timeline)
        if seen != expected:
            missing = sorted(set(expected) - set(seen))[:3]
            extra = sorted(set(seen) - set(expected))[:3]
            text = f"{actor.name} reads other rows: missing {missing}, not expected {extra}"
            self.world.violate("14.16", f"{text}, {len(seen)} of {len(expected)} rows")
        for instant in self.table.model.lost(timeline, before_s=began_s):
            self.world.violate("lost", f"{instant} was acknowledged, and {actor.name} misses it")

    def _rows(self, timeline: Timeline) -> list[tuple[str, str]]:
        content = self.table.model.content(timeline)
        return sorted((key, part) for rows in content.values() for key, part in rows.items())


def _effect(verb: str, instant: str, names: list[str]) -> Effect:
    """Rows by the instant that wrote them, in place of file groups."""
    gone = {"overwrite_table": _PARTS, "overwrite": _PARTS[:1], "delete_partition": _PARTS[:1]}
    written = () if verb == "delete_partition" else tuple(zip(names, _PARTS, strict=False))
    adds = {FileGroupId(part, instant): {name: part} for name, part in written}
    return Effect(adds, overwrites=frozenset(gone.get(verb, ())))


def one_real_write(verb: str, setting: Setting) -> World:
    """A world in which `writer` does one write on a table with some rows; for crashes at each of
    its operations."""
    world = World(0, workload="one-real-write", folders=setting.folders)
    table = RealTable(world, setting)
    before = access_of(world.setup, table.table, setting)
    for number, earlier in enumerate(("bulk_insert", "append")):
        assert table.write(world.setup, before, earlier, number)
    world.add("writer", lambda a: table.write(a, access_of(a, table.table, setting), verb, 0))
    world.at_rest("reader", table.check)
    world.at_rest("recovery", lambda a: _recovery(a, table, setting))
    return world


def _recovery(actor: Actor, table: RealTable, setting: Setting) -> None:
    access = outwaited(actor, table.table, setting)
    if not table.write(actor, access, "append", 0):
        actor.world.violate("recovery", "the next write fails")
    check_nothing_left(actor, table.table, access)
    table.check(actor)


def _make(seed: int) -> World:
    rates = FaultRates(crash=0.004, unavailable=0.01, unknown=0.01)
    setting = replace(setting_of(seed, rates=rates), writers=2, writes=2)
    world = World(seed, workload="real", folders=setting.folders)
    table = RealTable(world, setting)

    def write(actor: Actor) -> None:
        access = access_of(actor, table.table, setting)
        chance = actor.random.fork("verbs")
        for number in range(setting.writes):
            table.write(actor, access, [*VERBS][chance.below(len(VERBS))], number)
            actor.clock.sleep(chance.uniform(0, 2))

    for number in range(setting.writers):
        world.add(f"writer{number}", write, rates=setting.rates, restarts=1, delay_s=number)
    world.add("reader", lambda a: _read(a, table))
    world.at_rest("recovery", lambda a: _recovery(a, table, setting))
    return world


def _read(actor: Actor, table: RealTable) -> None:
    for _ in range(4):
        actor.clock.sleep(1)
        table.check(actor)


WORKLOADS = (
    Workload(
        "real", "the engine's verbs with real files, crashes and errors", _make, share=1, real=True
    ),
)
