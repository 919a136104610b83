"""Keyed writes on overlapping keys: several processes upsert and delete the same few rows.

The engine's planner, guards, retries and transactions are real; data files are stubs, or real in
the workload `keyed-real`. Every reader compares what it sees with a model: the committed writes one
after another, in the order in which they completed, and no key twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakewright.engine.arrow_write import with_retries
from lakewright.engine.keyed.deletes import delete_where, key_batches
from lakewright.engine.keyed.writer import KeyedWriter
from lakewright.engine.new_table import NewTable
from lakewright.engine.operations import DELETE, UPSERT
from lakewright.engine.options import ReadOptions
from lakewright.engine.proposal import Proposal
from lakewright.engine.row_source import RowSource
from lakewright.engine.scan import Scan
from lakewright.engine.table_creation import create_table
from lakewright.engine.write_job import NON_BLOCKING, WriteJob
from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.errors import (
    ConflictError,
    FencedError,
    LakewrightError,
    OutcomeUnknownError,
)
from lakewright.format.properties import load_properties
from lakewright.format.timeline import Timeline, load_timeline
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.random import Random
from lakewright.storage.base import Storage
from lakewright.table import Table
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.checkers import Checker
from lakewright.testing.sim.faults import NO_RATES, FaultRates
from lakewright.testing.sim.keyed_model import FILTER_BELOW, Change, KeyedModel, Place
from lakewright.testing.sim.keyed_stubs import VALUE, filtered_keys, keyed_rows, stubbed_files
from lakewright.testing.sim.tables import ROOT, SimTable
from lakewright.testing.sim.workloads.processes import add_processes
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
    roll_back_by_name,
    setting_of,
)
from lakewright.testing.sim.workloads.workload import Workload
from lakewright.testing.sim.world import World
from lakewright.txn.access import Access

__all__ = [
    "KEYS",
    "VERBS",
    "WORKLOADS",
    "KeyedSetting",
    "KeyedTable",
    "fill",
    "keyed_setting_of",
    "keyed_world",
    "one_keyed_write",
]

_SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string()), (VALUE, pa.string()), ("n", pa.int64())]
)
_PARTS = ("p0", "p1")
KEYS = ("k0", "k1", "k2", "k3")
_ONE_THREAD = ReadOptions(threads=1)
_RETRIES = 2
_NUMBERS = 4
VERBS = ("upsert", "upsert", "upsert", "delete", "delete_where")
"""What a writer does, as often as it is named."""

_Told = Callable[[Proposal], None]


@dataclass(frozen=True, slots=True)
class KeyedSetting:
    """What kind of world it is, and how rows find their file groups."""

    world: Setting
    index: str
    stubs: bool = True
    non_blocking: bool = False

    @property
    def verbs(self) -> tuple[str, ...]:
        """What writers do: without order among them, nobody deletes what a reader chose."""
        return tuple(v for v in VERBS if not (self.non_blocking and v == "delete_where"))

    @property
    def everywhere(self) -> bool:
        """Whether a key is one row in the whole table."""
        return self.index.startswith("GLOBAL") or self.index == "RECORD_INDEX"

    def options(self) -> WriteOptions:
        """How every write works."""
        mode: Any = NON_BLOCKING if self.non_blocking else "SINGLE_WRITER"
        return WriteOptions(index_type=self.index, bucket_count=2, concurrency_mode=mode)


class KeyedTable:
    """A table of a few keys, and the model of its rows."""

    def __init__(
        self, world: World, setting: KeyedSetting, *, checkers: Sequence[Checker] | None = None
    ) -> None:
        spec = NewTable(
            name="simulated",
            schema=_SCHEMA,
            type="mor" if setting.world.merge_on_read else "cow",
            version=setting.world.version,
            key_fields=("id",),
            partition_fields=("part",),
            populate_meta_fields=not setting.stubs,
            timeline_timezone="UTC",
        )
        setup = world.setup
        properties = create_table(
            setup.storage.child(ROOT), spec, clock=setup.clock, random=setup.random
        )
        self.world = world
        self.setting = setting
        chosen = checkers_of(setting.world) if checkers is None else checkers
        self.table = SimTable.of(world, properties, checkers=chosen)
        self.model = KeyedModel(
            joined=setting.stubs,
            everywhere=setting.everywhere,
            as_begun=setting.non_blocking,
        )
        self._options = setting.options()
        world.surroundings = stubbed_files if setting.stubs else nullcontext
        world.finally_check(self.check_final)

    # ---- writing -------------------------------------------------------------------------------

    def write(self, access: Access, verb: str, chance: Random, name: str) -> bool:
        """One write of some rows; whether it was committed."""
        change, attempt = self._prepared(access, verb, chance, name)
        proposed: list[str] = []

        def intend(proposal: Proposal) -> None:
            if proposed:
                self.model.refused[proposed[-1]] = "it was tried again"
            proposed.append(proposal.instant)
            self.model.changes[proposal.instant] = change

        try:
            result = with_retries(access, lambda: attempt(intend), retries=_RETRIES)
        except LakewrightError as error:
            self._refused(error, proposed)
            return False
        assert result.instant is not None
        self.model.acknowledged[result.instant] = self.world.now
        self.world.count(f"committed.{verb}")
        if result.attempts > 1:
            self.world.count("committed.again")
        return True

    def _refused(self, error: LakewrightError, proposed: list[str]) -> None:
        self.world.count(f"refused.{error.code}")
        if proposed and not isinstance(error, OutcomeUnknownError):
            self.model.refused[proposed[-1]] = error.code
        if isinstance(error, ConflictError) and not error.retryable:
            self.world.violate("conflict", f"a loser may not try again: {error!r}")
        if isinstance(error, FencedError) and not self.setting.world.disturbed:
            raise error

    def _prepared(
        self, access: Access, verb: str, chance: Random, name: str
    ) -> tuple[Change, Callable[[_Told], WriteResult]]:
        """What a write does, and how."""
        places = _places(chance)
        if verb == "upsert":
            # A row that is deleted and inserted elsewhere has no older versions there.
            puts = {
                place: f"{name}.{at}:{chance.below(_NUMBERS)}" for at, place in enumerate(places)
            }
            if self.setting.everywhere:
                puts = {place: puts[place] for place in {p[1]: p for p in places}.values()}
            rows = _rows(puts)
            return Change(puts=puts), lambda told: self._upsert(access, rows, told)
        if verb == "delete":
            gone = frozenset(places)
            keys = pa.table({"id": [k for _, k in places], "part": [p for p, _ in places]})
            return Change(gone=gone), lambda told: self._delete(access, keys, told)
        parts = _PARTS[: 1 + chance.below(2)]
        where = f"n < {FILTER_BELOW}" + (" and part = 'p0'" if len(parts) == 1 else "")
        change = Change(filtered=frozenset(parts))
        return change, lambda told: self._delete_where(access, where, told)

    def _upsert(self, access: Access, rows: pa.Table, told: _Told) -> WriteResult:
        source = RowSource(rows)
        job = WriteJob.prepare(access, self._options, UPSERT, source.schema, validators=[told])
        return KeyedWriter(job, MergerRegistry()).upsert(source)

    def _delete(self, access: Access, keys: pa.Table, told: _Told) -> WriteResult:
        job = WriteJob.prepare(access, self._options, DELETE, None, validators=[told])
        return KeyedWriter(job, MergerRegistry()).delete(key_batches(RowSource(keys), job))

    def _delete_where(self, access: Access, where: str, told: _Told) -> WriteResult:
        registry = MergerRegistry()
        job = WriteJob.prepare(access, self._options, DELETE, None, validators=[told])
        read = filtered_keys if self.setting.stubs else Scan.to_batches
        return delete_where(
            job, where, lambda j: KeyedWriter(j, registry), _ONE_THREAD, registry, read=read
        )

    # ---- reading -------------------------------------------------------------------------------

    def check(self, actor: Actor) -> None:
        """Read the table as a process does, and compare the rows with the model's."""
        self._compare(self.table.storage(actor), actor, self.world.now)
        self.world.count("reads")

    def check_final(self) -> None:
        """The last state against the model: rows, promises, and nothing of unknown origin."""
        setup = self.world.setup
        timeline = self._compare(setup.storage.child(ROOT), setup, float("inf"))
        for instant in self.model.unknown(timeline):
            self.world.violate("14.16", f"nobody was going to commit {instant}")
        for instant, why in self.model.broken_words(timeline):
            self.world.violate("lost", f"{instant} is committed, but its writer heard: {why}")

    def content(self, timeline: Timeline) -> dict[Place, str]:
        """What must be in the table at a moment."""
        return self.model.content(timeline, self.table.state.archived_before(timeline))

    def _compare(self, storage: Storage, actor: Actor, began_s: float) -> Timeline:
        timeline, found = self._read(storage, actor)
        if not self._stands(timeline):
            self.world.count("reads.rolled back meanwhile")
            return timeline
        seen, expected = dict(found), self.content(timeline)
        keys = [place[1] if self.setting.everywhere else place for place, _ in found]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            self.world.violate("key twice", f"{actor.name} finds {twice[0]} more than once")
        if seen != expected:
            missing = sorted(expected.items() - seen.items())[:3]
            extra = sorted(seen.items() - expected.items())[:3]
            text = f"{actor.name} reads other rows: missing {missing}, not expected {extra}"
            self.world.violate("14.16", text)
        for instant in self._lost(timeline, began_s):
            self.world.violate("lost", f"{instant} was acknowledged, and {actor.name} misses it")
        return timeline

    def _stands(self, timeline: Timeline) -> bool:  # noqa: ARG002
        """Whether nobody has taken back what a reader sees; here nobody takes back commits."""
        return True

    def _lost(self, timeline: Timeline, before_s: float) -> list[str]:
        archived = self.table.state.archived_before(timeline)
        return self.model.lost(timeline, before_s=before_s, archived=archived)

    def _read(self, storage: Storage, actor: Actor) -> tuple[Timeline, list[tuple[Place, str]]]:
        if self.setting.stubs:
            properties = load_properties(storage, clock=actor.clock)
            timeline = load_timeline(storage, properties)
            return timeline, keyed_rows(storage, properties, timeline)
        table = Table(storage, clock=actor.clock, options=_ONE_THREAD)
        scan = table.scan(columns=["part", "id", VALUE])
        values = scan.to_arrow().to_pydict().values()
        return scan.snapshot.timeline, [((p, k), v) for p, k, v in zip(*values, strict=True)]


def _places(chance: Random) -> list[Place]:
    every = [(part, key) for part in _PARTS for key in KEYS]
    chosen = {every[chance.below(len(every))]: None for _ in range(1 + chance.below(3))}
    return list(chosen)


def _rows(puts: dict[Place, str]) -> pa.Table:
    columns: list[list[Any]] = [
        [key for _, key in puts],
        [part for part, _ in puts],
        list(puts.values()),
        [int(value.rpartition(":")[2]) for value in puts.values()],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
    return pa.table(arrays, schema=_SCHEMA)


# ---- worlds ------------------------------------------------------------------------------------


def keyed_world(name: str, seed: int, setting: KeyedSetting) -> World:
    """Writers and a reader on one table with some rows."""
    world = World(seed, workload=name, folders=setting.world.folders)
    table = KeyedTable(world, setting)
    fill(table)
    add_processes(
        world,
        "writer",
        setting.world.writers,
        lambda a: _writer(a, table),
        rates=setting.world.rates,
    )
    if setting.world.impatient:
        world.add("operator", lambda a: roll_back_by_name(a, table.table, setting.world))
    calm = replace(setting.world.rates, crash=0.0, stall=0.0)
    world.add("reader", lambda a: _reader(a, table), rates=calm)
    world.at_rest("recovery", lambda a: _recovery(a, table))
    return world


def one_keyed_write(verb: str, setting: KeyedSetting) -> World:
    """A world in which `writer` does one write on a table with some rows; for crashes at each of
    its operations."""
    world = World(0, workload="one-keyed-write", folders=setting.world.folders)
    table = KeyedTable(world, setting)
    fill(table)

    def write(actor: Actor) -> None:
        access = access_of(actor, table.table, setting.world)
        table.write(access, verb, actor.random.fork(verb), actor.name)

    world.add("writer", write)
    world.at_rest("reader", table.check)
    world.at_rest("recovery", lambda a: _recovery(a, table))
    return world


def fill(table: KeyedTable) -> None:
    """Writes before the world begins, so that there are base files, and logs behind them."""
    world, setting = table.world, table.setting
    with world.surroundings():
        before = access_of(world.setup, table.table, setting.world)
        chance = world.random.fork("before")
        for number in range(1 + chance.below(2)):
            assert table.write(before, "upsert", chance, f"before{number}")


def _writer(actor: Actor, table: KeyedTable) -> None:
    setting = table.setting.world
    access = access_of(actor, table.table, setting)
    chance = actor.random.fork("writes")
    for number in range(setting.writes):
        verbs = table.setting.verbs
        verb = verbs[chance.below(len(verbs))]
        table.write(access, verb, chance, f"{actor.name}.{number}")
        actor.clock.sleep(chance.uniform(0, 3))


def _reader(actor: Actor, table: KeyedTable) -> None:
    rates = table.setting.world.rates
    for _ in range(3 * table.setting.world.writes):
        actor.clock.sleep(actor.random.uniform(0.1, 2.0))
        try:
            table.check(actor)
        except LakewrightError as error:
            if rates.unavailable == rates.outage == 0.0:
                raise
            actor.world.count(f"reader.{error.code}")


def _recovery(actor: Actor, table: KeyedTable) -> None:
    """After the longest time that anybody may wait, the next process puts everything right."""
    access = outwaited(actor, table.table, table.setting.world)
    if not table.write(access, "upsert", actor.random.fork("last"), actor.name):
        actor.world.violate("recovery", "the next write fails")
    check_nothing_left(actor, table.table, access)
    table.check(actor)


def keyed_setting_of(seed: int, *, rates: FaultRates = NO_RATES, **more: Any) -> KeyedSetting:
    """Every combination comes up within some hundred seeds."""
    indexes = ("SIMPLE", "GLOBAL_SIMPLE", "BUCKET")
    world = setting_of(seed, rates=rates)
    return KeyedSetting(replace(world, writes=min(world.writes, 2)), indexes[seed % 3], **more)


def _made(name: str, rates: FaultRates) -> Callable[[int], World]:
    return lambda seed: keyed_world(name, seed, keyed_setting_of(seed, rates=rates))


def _impatient(seed: int) -> World:
    setting = keyed_setting_of(seed)
    hurried = replace(setting, world=replace(setting.world, impatient=True))
    return keyed_world("keyed-impatient", seed, hurried)


def _non_blocking(seed: int) -> World:
    setting = setting_of(seed, rates=(NO_RATES, CRASHES, STORM)[seed % 3])
    world = replace(setting, version=8, merge_on_read=True)
    return keyed_world("keyed-non-blocking", seed, KeyedSetting(world, "BUCKET", non_blocking=True))


def _real(seed: int) -> World:
    rates = FaultRates(crash=0.003, unavailable=0.01, unknown=0.01)
    setting = keyed_setting_of(seed, rates=rates, stubs=False)
    return keyed_world(
        "keyed-real", seed, replace(setting, world=replace(setting.world, writers=2, writes=2))
    )


WORKLOADS = (
    Workload(
        "keyed-calm", "upserts and deletes of the same keys", _made("keyed-calm", NO_RATES), share=1
    ),
    Workload("keyed-crashes", "their writers die", _made("keyed-crashes", CRASHES), share=1),
    Workload(
        "keyed-errors", "operations fail, answers are lost", _made("keyed-errors", ERRORS), share=1
    ),
    Workload("keyed-stalls", "processes stand still", _made("keyed-stalls", STALLS), share=1),
    Workload(
        "keyed-impatient", "writes are rolled back by name while they run", _impatient, share=1
    ),
    Workload("keyed-storm", "everything at once", _made("keyed-storm", STORM), share=2),
    Workload(
        "keyed-non-blocking", "writers of one bucket that need no lock", _non_blocking, share=1
    ),
    Workload(
        "keyed-real",
        "upserts and deletes with real files, crashes and errors",
        _real,
        share=1,
        real=True,
    ),
)
