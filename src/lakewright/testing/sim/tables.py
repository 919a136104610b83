"""Tables for simulated worlds: their properties on the disk, their state, model and checkers.

`SimTable.make` puts an empty table on the disk and lets all checkers watch it. `check_reader` is
what a reading process does again and again: pin a timeline, read the rows, and compare them with
what the model says about exactly the committed instants of that timeline.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from lakewright.errors import NotFoundError
from lakewright.format import property_keys as keys
from lakewright.format.file_names import parse_data_file
from lakewright.format.instant import parse_instant_name
from lakewright.format.partitions import (
    PARTITION_METADATA_FILE,
    format_partition_metadata,
    partition_depth,
)
from lakewright.format.properties import PROPERTIES_FILE, load_properties
from lakewright.format.property_text import format_properties
from lakewright.format.table_properties import TableProperties, checksum
from lakewright.format.timeline import Timeline, load_timeline
from lakewright.format.version import TableVersion
from lakewright.storage.base import Storage
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.checkers import ALL_CHECKERS, Checker, watch
from lakewright.testing.sim.clocks import EPOCH_MS
from lakewright.testing.sim.locks import Ledger, published_by_holder, watch_lock_files
from lakewright.testing.sim.model import TableModel, differences
from lakewright.testing.sim.stub_rows import read_rows, rows_of_slices, slices_at
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

    def check_reader(self, actor: Actor, *, holds_s: float = 0.0) -> None:
        """Read a snapshot as a process does, and compare it with the model.

        A reader that holds its snapshot for a while may find files gone that no clean had to keep.
        """
        began_s = self.world.now
        storage = self.storage(actor)
        properties = load_properties(storage, clock=actor.clock)
        timeline = load_timeline(storage, properties)
        try:
            slices = slices_at(storage, properties, timeline)
            actor.clock.sleep(holds_s)
            seen = rows_of_slices(storage, properties, timeline, slices)
        except NotFoundError as error:
            self._judge_gone(actor, timeline, error)
            return
        if not all(map(self.state.is_committed, timeline.completion_times)):
            # Whoever takes commits back tells readers to wait: they see the state in between.
            self.world.count("reads.rolled back meanwhile")
            return
        archived = self.state.archived_before(timeline)
        for line in differences(seen, self.model.content(timeline, archived)):
            self.world.violate("14.16", f"{actor.name} reads another table: {line}")
        undone = self.state.undone
        for instant in self.model.lost(
            timeline, before_s=began_s, archived=archived, undone=undone
        ):
            self.world.violate("lost", f"{instant} was acknowledged, and {actor.name} misses it")
        self.world.count("reads")

    def _judge_gone(self, actor: Actor, timeline: Timeline, error: NotFoundError) -> None:
        """A file that a reader needs is gone: only a clean that had not to keep it may be why, or
        that the commit, or the plan, was taken back whose file it is."""
        path = str(error.context.get("path", ""))
        wrote = self._wrote(path) or error.context.get("instant")
        if wrote is not None and not self.state.is_committed(str(wrote)):
            self.world.count("reads.rolled back meanwhile")
            return
        moments = self.state.doomed.get(path, ())
        if any(not kept or _is_older(timeline, kept) for kept in moments):
            self.world.count("reads.cleaned meanwhile")
            return
        why = f"planned by cleans that retain {moments}" if moments else "and by no clean"
        self.world.violate("retention", f"{path} of the snapshot of {actor.name} is gone, {why}")

    def _wrote(self, path: str) -> str | None:
        """The instant of a data file or of a state file."""
        name = path.rpartition("/")[2]
        data = parse_data_file(name)
        if data is not None:
            return data.instant
        said = parse_instant_name(name, self.properties.version.layout_version)
        return said.requested_time if said is not None else None

    def check_final(self) -> None:
        """The last state against the model: rows, promises, and nothing of unknown origin."""
        timeline, seen = read_rows(self.world.setup.storage.child(ROOT), self.world.setup.clock)
        archived = self.state.archived_before(timeline)
        for line in differences(seen, self.model.content(timeline, archived)):
            self.world.violate("14.16", f"the table is not what was written: {line}")
        for instant in self.model.unknown(timeline):
            self.world.violate("14.16", f"nobody was going to commit {instant}")
        undone = self.state.undone
        for instant in self.model.lost(
            timeline, before_s=float("inf"), archived=archived, undone=undone
        ):
            self.world.violate("lost", f"{instant} was acknowledged, and is not committed")
        for instant, why in self.model.refused.items():
            if instant in timeline.completion_times:
                self.world.violate("lost", f"{instant} is committed, but its writer heard: {why}")


def _is_older(timeline: Timeline, kept: str) -> bool:
    """Whether a timeline is from before the moment that a clean retains."""
    if not timeline.contains_completed_or_archived(kept):
        return True
    return any(i.requested_time < kept for i in timeline.writes().pending())
