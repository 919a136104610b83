"""Tables for simulated worlds: their properties on the disk, their state, model and checkers.

`SimTable.make` puts an empty table on the disk and lets all checkers watch it. `check_reader` is
what a reading process does again and again: pin a timeline, read the rows, and compare them with
what the model says about exactly the committed instants of that timeline.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from lakewright.format import property_keys as keys
from lakewright.format.partitions import (
    PARTITION_METADATA_FILE,
    format_partition_metadata,
    partition_depth,
)
from lakewright.format.properties import PROPERTIES_FILE
from lakewright.format.property_text import format_properties
from lakewright.format.table_properties import TableProperties, checksum
from lakewright.format.version import TableVersion
from lakewright.storage.base import Storage
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.checkers import ALL_CHECKERS, Checker, watch
from lakewright.testing.sim.clocks import EPOCH_MS
from lakewright.testing.sim.locks import Ledger, published_by_holder, watch_lock_files
from lakewright.testing.sim.model import TableModel, differences
from lakewright.testing.sim.stub_rows import read_rows
from lakewright.testing.sim.table_state import TableState
from lakewright.testing.sim.world import World

__all__ = ["ROOT", "SimTable", "table_properties"]

ROOT = "table"
SCHEMA = {
    "type": "record",
    "name": "simulated_record",
    "namespace": "hoodie.simulated",
    "fields": [
        {"name": name, "type": ["null", "string"], "default": None}
        for name in ("_hoodie_operation", "key", "part")
    ],
}
"""Where the operation column is known, nobody looks for it in stub files."""


def table_properties(version: int, *, merge_on_read: bool) -> dict[str, str]:
    """The properties of a small table with one partition column."""
    of = TableVersion.of(version)
    return {
        keys.NAME: "simulated",
        keys.TYPE: "MERGE_ON_READ" if merge_on_read else "COPY_ON_WRITE",
        keys.VERSION: str(of),
        keys.LAYOUT_VERSION: str(of.layout_version),
        keys.TIMELINE_TIMEZONE: "UTC",
        keys.RECORD_KEY_FIELDS: "key",
        keys.PARTITION_FIELDS: "part",
        keys.CREATE_SCHEMA: json.dumps(SCHEMA),
        keys.CHECKSUM: checksum("", "simulated"),
    }


@dataclass(frozen=True, slots=True)
class SimTable:
    """A table of a world, with what is known about it."""

    world: World
    properties: TableProperties
    state: TableState
    model: TableModel
    ledger: Ledger

    @classmethod
    def make(
        cls,
        world: World,
        *,
        version: int,
        merge_on_read: bool,
        partitions: Sequence[str] = ("p0", "p1"),
        checkers: Sequence[Checker] = ALL_CHECKERS,
        locked: bool = True,
    ) -> SimTable:
        """An empty table for stub rows, watched by `checkers`."""
        properties = TableProperties(table_properties(version, merge_on_read=merge_on_read))
        storage = world.setup.storage.child(ROOT)
        text = format_properties(properties.values, ("simulated",))
        storage.create_if_absent(PROPERTIES_FILE, text)
        storage.make_dir(properties.timeline_folder)
        for partition in partitions:
            content = format_partition_metadata(
                "0" * 17, partition_depth(partition), now_ms=EPOCH_MS
            )
            storage.create_if_absent(f"{partition}/{PARTITION_METADATA_FILE}", content)
        table = cls.of(world, properties, checkers=checkers, locked=locked)
        world.finally_check(table.check_final)
        return table

    @classmethod
    def of(
        cls,
        world: World,
        properties: TableProperties,
        *,
        checkers: Sequence[Checker] = ALL_CHECKERS,
        locked: bool = True,
    ) -> SimTable:
        """The table that is on the disk, watched from now on.

        `locked`: what belongs under the table's lock must be published under it.
        """
        state, model = TableState(properties), TableModel(properties.version)
        table = cls(world, properties, state, model, Ledger())
        if locked:
            world.observe(watch_lock_files(world, table.ledger, root=ROOT))
            world.observe(published_by_holder(world, state, table.ledger, root=ROOT))
        watch(world, state, checkers, root=ROOT)
        return table

    def storage(self, actor: Actor) -> Storage:
        """The table as a process sees it, passing failures tried again."""
        return actor.retrying().child(ROOT)

    def check_reader(self, actor: Actor) -> None:
        """Read a snapshot as a process does, and compare it with the model."""
        began_s = self.world.now
        timeline, seen = read_rows(self.storage(actor), actor.clock)
        for line in differences(seen, self.model.content(timeline)):
            self.world.violate("14.16", f"{actor.name} reads another table: {line}")
        for instant in self.model.lost(timeline, before_s=began_s):
            self.world.violate("lost", f"{instant} was acknowledged, and {actor.name} misses it")
        self.world.count("reads")

    def check_final(self) -> None:
        """The last state against the model: rows, promises, and nothing of unknown origin."""
        timeline, seen = read_rows(self.world.setup.storage.child(ROOT), self.world.setup.clock)
        for line in differences(seen, self.model.content(timeline)):
            self.world.violate("14.16", f"the table is not what was written: {line}")
        for instant in self.model.unknown(timeline):
            self.world.violate("14.16", f"nobody was going to commit {instant}")
        for instant in self.model.lost(timeline, before_s=float("inf")):
            self.world.violate("lost", f"{instant} was acknowledged, and is not committed")
        for instant, why in self.model.refused.items():
            if instant in timeline.completion_times:
                self.world.violate("lost", f"{instant} is committed, but its writer heard: {why}")
