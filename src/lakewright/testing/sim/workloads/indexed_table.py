"""A keyed table with a metadata table, and what its readers and its end must show.

Readers read with the metadata table and without it, and by filters on the key and on an indexed
column; each time they must find the rows of the model. At rest the metadata table must be trusted,
and say what the files say, record by record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lakewright.engine.index_building import build_beside_writers, build_indexes
from lakewright.engine.options import ReadOptions
from lakewright.engine.snapshot import load_snapshot
from lakewright.errors import FormatError, LakewrightError
from lakewright.format.timeline import Timeline
from lakewright.format.version import TableVersion
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.definitions import secondary_index_on
from lakewright.metadata.file_groups import BLOOM_FILTERS, COLUMN_STATS, RECORD_INDEX
from lakewright.metadata.verification import Difference
from lakewright.storage.base import Storage
from lakewright.table import Table
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.keyed_model import Place
from lakewright.testing.sim.keyed_stubs import VALUE
from lakewright.testing.sim.workloads.keyed_writes import KEYS, KeyedSetting, KeyedTable, fill
from lakewright.testing.sim.workloads.transactions import access_of, checkers_of
from lakewright.testing.sim.world import World
from lakewright.txn.access import Access

__all__ = ["BY_PARTITIONS", "IndexedTable"]

BY_PARTITIONS: Final = "RECORD_LEVEL_INDEX"
_LEFT_BEHIND: Final = frozenset({"14.10", "14.22"})
"""Where logs carry the time of their slice they stay when their writes are rolled back. If the
slice was taken back by name meanwhile, there is no such instant."""
_SECONDARY: Final = secondary_index_on("secondary_index_by_value", VALUE)
_UNIQUE: Final = ReadOptions(threads=1, keys_are_unique=True)
_COUNTED: Final = ReadOptions(threads=1)
_WITHOUT: Final = ReadOptions(threads=1, use_metadata_table=False)


class IndexedTable(KeyedTable):
    """A keyed table with a metadata table."""

    def __init__(self, world: World, setting: KeyedSetting, *, undone_by_name: bool) -> None:
        """`undone_by_name`: somebody takes commits back."""
        self._options_of_readers = _COUNTED
        self._undone_by_name = undone_by_name
        version = TableVersion.of(setting.world.version)
        left = _LEFT_BEHIND if undone_by_name and version.rollback_by_log_block else frozenset()
        checkers = [c for c in checkers_of(setting.world) if c.rule not in left]
        super().__init__(world, setting, checkers=checkers)
        self.indexes = {BLOOM_FILTERS, COLUMN_STATS}
        self.per_partition = setting.index == BY_PARTITIONS
        if setting.everywhere or self.per_partition:
            self.indexes.add(RECORD_INDEX)
        self.defined = [_SECONDARY] if setting.everywhere and version.defines_indexes else []

    def begin(self) -> None:
        """Rows, and indexes of them."""
        fill(self)
        access = access_of(self.world.setup, self.table, self.setting.world)
        now = load_snapshot(access.storage, clock=access.clock, use_metadata_table=False)
        parted = self.per_partition or None
        built = build_indexes(access, now, self.indexes, MergerRegistry(), per_partition=parted)
        assert built, "nothing is pending yet"
        if self.defined:
            self.build(access)

    def build(self, access: Access) -> None:
        """Build what is missing beside others."""
        wanted = self.indexes | {definition.name for definition in self.defined}
        parted = self.per_partition or None
        build_beside_writers(
            access, wanted, MergerRegistry(), defined=self.defined, per_partition=parted
        )

    def _refused(self, error: LakewrightError, proposed: list[str]) -> None:
        super()._refused(error, proposed)
        if isinstance(error, FormatError):
            self.world.violate("refused", f"a write failed for others' sake: {error!r}")

    # ---- reading -------------------------------------------------------------------------------

    def check(self, actor: Actor) -> None:
        """Read everything with the metadata table and without, and by filters."""
        trusting = _UNIQUE if self.setting.everywhere else _COUNTED
        for options in (trusting, _WITHOUT):
            self._options_of_readers = options
            super().check(actor)
        self._check_filters(actor, trusting)

    def _check_filters(self, actor: Actor, options: ReadOptions) -> None:
        chance = actor.random.fork(f"filters/{self.world.now}")
        key = KEYS[chance.below(len(KEYS))]
        self._check_filter(actor, options, f"id = '{key}'", lambda place, _: place[1] == key)
        rows = self.content(self.table.state.timeline)
        if rows:
            asked = sorted(rows.values())[chance.below(len(rows))]
            where = f"{VALUE} = '{asked}'"
            self._check_filter(actor, options, where, lambda _, value: value == asked)

    def _check_filter(
        self, actor: Actor, options: ReadOptions, where: str, passes: Callable[[Place, str], bool]
    ) -> None:
        table = Table(self.table.storage(actor), clock=actor.clock, options=options)
        scan = table.scan(columns=["part", "id", VALUE], where=where)
        values = scan.to_arrow().to_pydict().values()
        seen = sorted(((p, k), v) for p, k, v in zip(*values, strict=True))
        timeline = scan.snapshot.timeline
        if not self._stands(timeline):
            return
        expected = sorted(row for row in self.content(timeline).items() if passes(*row))
        self.world.count("filtered reads")
        if seen != expected:
            plan = scan.plan()
            text = f"{actor.name} finds {seen} where {where}, not {expected}, by {plan}"
            self.world.violate("filter", text)

    def _read(self, storage: Storage, actor: Actor) -> tuple[Timeline, list[tuple[Place, str]]]:
        table = Table(storage, clock=actor.clock, options=self._options_of_readers)
        scan = table.scan(columns=["part", "id", VALUE])
        values = scan.to_arrow().to_pydict().values()
        trusted = scan.snapshot.opened.metadata is not None
        self.world.count("reads by the metadata table" if trusted else "reads by folders")
        return scan.snapshot.timeline, [((p, k), v) for p, k, v in zip(*values, strict=True)]

    def _stands(self, timeline: Timeline) -> bool:
        return all(map(self.table.state.is_committed, timeline.completion_times))

    def _lost(self, timeline: Timeline, before_s: float) -> list[str]:
        lost = super()._lost(timeline, before_s)
        undone = self.table.state.undone if self._undone_by_name else ()
        return [instant for instant in lost if instant not in undone]

    # ---- the metadata table --------------------------------------------------------------------

    def verify(self, actor: Actor) -> None:
        """Hold every record of the metadata table against the files."""
        table = Table(self.table.storage(actor), clock=actor.clock, options=_COUNTED)
        opened = table.snapshot().opened
        if opened.metadata is None:
            self.world.violate("indexes", f"it is not trusted: {opened.warnings.told}")
            return
        self.world.count(f"verified: {len(opened.metadata.indexes)} indexes")
        for found in table.metadata.verify():
            if isinstance(found, Difference):
                self.world.violate("indexes", str(found))
