"""What processes that look after a table do, through the real code of services, on stub files.

Each function is the life of one process: some rounds of one service, with pauses. A service may
fail with any error that has a name, since others are at work and things go wrong; but nothing that
it reads may ever be damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lakewright.errors import FormatError, LakewrightError
from lakewright.format.file_names import BaseFileName
from lakewright.format.file_slices import FileSlice
from lakewright.format.records import WriteStat
from lakewright.services.archive import ArchiveOptions, run_archive
from lakewright.services.clean import CleanOptions, run_clean
from lakewright.services.compaction import Compaction, SliceWork
from lakewright.services.compaction_plan import CompactionOptions, CompactionTrigger
from lakewright.services.restore import run_restore
from lakewright.services.rollback import roll_back_instant
from lakewright.services.savepoint import create_savepoint, delete_savepoint, list_savepoints
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.model import Effect
from lakewright.testing.sim.stub_rows import base_content, slice_rows
from lakewright.testing.sim.tables import SimTable
from lakewright.testing.sim.workloads.stub_writes import Writer
from lakewright.testing.sim.workloads.transactions import Setting, access_of
from lakewright.txn.access import Access
from lakewright.txn.markers import Marker, MarkerType
from lakewright.txn.publishing import publish_file
from lakewright.txn.recovery import roll_back_failed, sweep_traces

__all__ = ["ALWAYS", "KINDS", "ROLES", "ServiceSetting", "StubCompactor", "attempt"]

KINDS: Final = ("append", "log", "log", "log", "rewrite", "overwrite")
ALWAYS: Final = CompactionOptions(trigger=CompactionTrigger.ALWAYS)
_HOLDS_S_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class ServiceSetting:
    """What kind of world of services it is."""

    world: Setting
    roles: Mapping[str, int] = field(default_factory=dict)
    """How many processes of each role."""
    rounds: int = 1
    clean: CleanOptions = field(default_factory=CleanOptions)
    archive: ArchiveOptions = field(default_factory=ArchiveOptions)


def attempt(actor: Actor, role: str, act: Callable[[], Any]) -> None:
    """Run a service once; what it fails with is counted, unless it must not happen."""
    try:
        act()
    except FormatError as error:
        actor.world.violate("damaged", f"{actor.name} read something damaged: {error!r}")
    except LakewrightError as error:
        actor.world.count(f"{role}.{error.code}")
    else:
        actor.world.count(f"{role}.done")


class StubCompactor:
    """Compacts stub files."""

    def __init__(self, actor: Actor, table: SimTable) -> None:
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


# ---- roles -------------------------------------------------------------------------------------


def _writer(actor: Actor, table: SimTable, setting: ServiceSetting) -> None:
    writer = Writer(actor, table, access_of(actor, table, setting.world))
    chance = actor.random.fork("kinds")
    for _ in range(setting.world.writes):
        attempt(actor, "writer", lambda: writer.write(KINDS[chance.below(len(KINDS))]))
        actor.clock.sleep(chance.uniform(0, 3))


def _compactor(actor: Actor, table: SimTable, setting: ServiceSetting) -> None:
    access = access_of(actor, table, setting.world)
    service = Compaction(access, ALWAYS, compactor=StubCompactor(actor, table))

    def run() -> None:
        if actor.random.below(4) == 0:
            if service.schedule() is not None:
                actor.world.count("compaction left to others")
            return
        for done in service.run():
            table.model.acknowledge(done.instant, actor.world.now)
            actor.world.count("compacted")

    _rounds(actor, setting, "compactor", run, (0.1, 3.0))


def _cleaner(actor: Actor, table: SimTable, setting: ServiceSetting) -> None:
    access = access_of(actor, table, setting.world)

    def run() -> None:
        done = run_clean(access, setting.clean)
        actor.world.counts["files cleaned"] += done.files_deleted
        actor.world.counts["rolled back by cleaners"] += len(done.rolled_back)

    _rounds(actor, setting, "cleaner", run, (0.5, 5.0))


def _archiver(actor: Actor, table: SimTable, setting: ServiceSetting) -> None:
    access = access_of(actor, table, setting.world)

    def run() -> None:
        actor.world.counts["instants archived"] += run_archive(access, setting.archive).archived

    _rounds(actor, setting, "archiver", run, (0.5, 5.0))


def _keeper(actor: Actor, table: SimTable, setting: ServiceSetting) -> None:
    """Makes savepoints, and lets them go."""
    access = access_of(actor, table, setting.world)

    def run() -> None:
        kept = list_savepoints(access)
        if kept and actor.random.below(2):
            delete_savepoint(access, kept[0].instant)
            return
        commits = access.timeline(table.properties).commits().completed().instants
        newest = actor.random.below(2) == 0 or not commits
        chosen = None if newest else commits[actor.random.below(len(commits))].requested_time
        create_savepoint(access, chosen)

    _rounds(actor, setting, "keeper", run, (0.2, 4.0))


def _sweeper(actor: Actor, table: SimTable, setting: ServiceSetting) -> None:
    """Rolls back what failed, as every clean does first."""
    access = access_of(actor, table, setting.world)

    def run() -> None:
        actor.world.counts["rolled back by sweepers"] += len(roll_back_failed(access).rolled_back)
        sweep_traces(access)

    _rounds(actor, setting, "sweeper", run, (1.0, 6.0))


def _operator(actor: Actor, table: SimTable, setting: ServiceSetting) -> None:
    """Rolls back by name what is pending, or the newest commit."""
    access = access_of(actor, table, setting.world)

    def run() -> None:
        timeline = access.timeline(table.properties)
        pending, newest = timeline.writes().pending().instants, timeline.last_completed_commit()
        if pending and (newest is None or actor.random.below(2)):
            target = pending[actor.random.below(len(pending))]
        elif newest is not None:
            target = newest
        else:
            return
        table.model.take_back(target.requested_time)  # it may be completed by then
        done = roll_back_instant(
            access, target.requested_time, unschedule=actor.random.below(3) == 0
        )
        what = "commit" if target.completed else "pending"
        actor.world.count(f"rolled back by name: {what} {target.action} is {done.becomes.value}")

    _rounds(actor, setting, "operator", run, (0.5, 5.0))


def _restorer(actor: Actor, table: SimTable, setting: ServiceSetting) -> None:
    """Restores the table to one of its last commits, kept for that."""
    access = access_of(actor, table, setting.world)

    def run() -> None:
        if access.timeline(table.properties).filter_actions("restore").pending():
            run_restore(access)
        else:
            kept = create_savepoint(access).instant
            actor.clock.sleep(actor.random.uniform(0.0, 10.0))
            _give_up_later(actor, table, kept)
            run_restore(access, kept)
        actor.world.count("restored")

    _rounds(actor, setting, "restorer", run, (0.5, 3.0))


def _give_up_later(actor: Actor, table: SimTable, kept: str) -> None:
    """Tell the model what a restore may undo: what was requested or completed after a commit."""
    done = table.state.once_completed
    for instant, file in done.items():
        if (file.completion_time or "") > (done[kept].completion_time or ""):
            table.model.take_back(instant)
    table.model.restore(kept, actor.world.now)


def _reader(actor: Actor, table: SimTable, setting: ServiceSetting) -> None:
    """Pins a snapshot and reads its files now or after a while."""

    def run() -> None:
        holds_s = _HOLDS_S_MAX * actor.random.uniform(0, 1) ** 2 if actor.random.below(2) else 0.0
        table.check_reader(actor, holds_s=holds_s)

    _rounds(actor, setting, "reader", run, (0.1, 3.0))


def _rounds(
    actor: Actor,
    setting: ServiceSetting,
    role: str,
    act: Callable[[], None],
    pause_s: tuple[float, float],
) -> None:
    for _ in range(setting.rounds):
        actor.clock.sleep(actor.random.uniform(*pause_s))
        attempt(actor, role, act)


ROLES: Final[Mapping[str, Callable[[Actor, SimTable, ServiceSetting], None]]] = {
    "writer": _writer,
    "compactor": _compactor,
    "cleaner": _cleaner,
    "archiver": _archiver,
    "keeper": _keeper,
    "sweeper": _sweeper,
    "operator": _operator,
    "restorer": _restorer,
    "reader": _reader,
}
"""What a process does, by the name of its role."""
