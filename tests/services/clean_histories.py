"""Random histories of a table for the tests of cleaning: names and states, no bytes.

A history goes through writes, late writes, compactions, overwrites, savepoints and cleans, as a
table of version 6 or 8 would, and knows at every moment which files there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC

from lakewright.format.file_names import BaseFileName, LogFileName
from lakewright.format.file_slices import FileGroupId, FileSlice, FileSystemView
from lakewright.format.instant import Instant, State, completed_action
from lakewright.format.instant_times import format_time
from lakewright.format.partitions import ListedFile
from lakewright.format.records import CleanerPlan, CleanMetadata, CommitMetadata, WriteStat
from lakewright.format.timeline import Timeline
from lakewright.format.version import TableVersion
from lakewright.services.clean_plan import (
    CleanBasis,
    CleanOptions,
    PlannedClean,
    PreviousClean,
    instant_to_retain,
    instants_to_visit,
    partitions_of,
    plan_clean,
)
from lakewright.services.clean_selection import Protection, files_of

START_MS = 1_760_000_000_000
STEP_MS = 20 * 60_000
PARTITIONS = ("a", "b")
BASE_PATH = "mem://table"


@dataclass
class Write:
    """One write of the history."""

    time: str
    action: str
    completed: str | None = None
    stats: dict[str, list[WriteStat]] = field(default_factory=dict)
    replaced: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Plan:
    """A pending compaction of one group."""

    group: FileGroupId
    base_instant: str
    names: frozenset[str]


class History:
    """A table as it goes on."""

    def __init__(self, version: int) -> None:
        self.version = TableVersion.of(version)
        self.ticks = 0
        self.writes: dict[str, Write] = {}
        self.files: dict[str, set[str]] = {p: set() for p in PARTITIONS}
        self.groups: list[FileGroupId] = []
        self.plans: dict[str, Plan] = {}
        self.late: list[str] = []
        self.savepoints: dict[str, dict[str, frozenset[str]]] = {}
        self.live: set[str] = set()
        self.previous: PreviousClean | None = None
        self.full_scan = False
        self.cleans: list[Instant] = []

    # ---- time ----------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Where the clock stands."""
        return START_MS + self.ticks * STEP_MS

    def tick(self) -> str:
        """The next moment, as a time."""
        self.ticks += 1
        return format_time(self.now_ms, zone=UTC)

    # ---- what happens --------------------------------------------------------------------------

    def insert(self, partition: str) -> None:
        """A new file group."""
        write = self._begin("deltacommit")
        group = FileGroupId(partition, f"g{len(self.groups)}-0")
        self.groups.append(group)
        self._base(write, group, new=True)
        self._complete(write)

    def update(self, pick: int) -> None:
        """A new base file of a group that nobody compacts."""
        group = self._pick(pick, busy=False)
        if group is not None and not self._late_on(group):
            write = self._begin("deltacommit")
            self._base(write, group, new=False)
            self._complete(write)

    def log(self, pick: int, *, late: bool) -> None:
        """A log of a group; a late one completes when others have."""
        group = self._pick(pick, busy=True)
        if group is None or self._late_on(group, bases_only=True):
            return
        write = self._begin("deltacommit")
        name = self._log_name(group, write.time)
        self.files[group.partition].add(name)
        self._stat(write, group, name, new=False)
        if late and self.version.slices_by_completion_time:
            self.late.append(write.time)
            self.live.add(write.time)
        else:
            self._complete(write)

    def late_base(self, pick: int) -> None:
        """A base file of a write that completes when others have."""
        group = self._pick(pick, busy=False)
        if group is None or self._late_on(group):
            return
        write = self._begin("deltacommit")
        self._base(write, group, new=False)
        self.late.append(write.time)
        self.live.add(write.time)

    def finish_late(self, pick: int) -> None:
        """The end of a late write."""
        if self.late:
            time = self.late.pop(pick % len(self.late))
            self.live.discard(time)
            self._complete(self.writes[time])

    def die(self, pick: int) -> None:
        """A late write is not alive any more, but still pending."""
        if self.late:
            self.live.discard(self.late[pick % len(self.late)])

    def schedule(self, pick: int) -> None:
        """A compaction of the newest slice of a group is planned."""
        group = self._pick(pick, busy=False)
        slice_ = None if group is None else self._newest(group)
        if group is None or slice_ is None or self._late_on(group, bases_only=True):
            return
        write = self._begin("compaction")
        names = frozenset(f.name for f in files_of(slice_))
        self.plans[write.time] = Plan(group, slice_.base_instant, names)

    def compact(self, pick: int) -> None:
        """A planned compaction is done."""
        if self.plans:
            time = sorted(self.plans)[pick % len(self.plans)]
            plan = self.plans.pop(time)
            self._base(self.writes[time], plan.group, new=False)
            self._complete(self.writes[time])

    def replace(self, pick: int) -> None:
        """A group is taken over by a new one."""
        group = self._pick(pick, busy=False)
        if group is None or self._late_on(group):
            return
        write = self._begin("replacecommit")
        write.replaced = {group.partition: [group.file_id]}
        new = FileGroupId(group.partition, f"g{len(self.groups)}-0")
        self.groups.append(new)
        self._base(write, new, new=True)
        self._complete(write)

    def keep(self, pick: int) -> None:
        """A savepoint of a commit that is still whole."""
        retained = self.previous.retained if self.previous else ""
        by_versions = self.previous is not None and not retained
        times = [w.time for w in self.committed() if w.time >= retained]
        if not times:
            return
        time = times[-1] if by_versions else times[pick % len(times)]
        self.savepoints[time] = {p: frozenset(n) for p, n in self.needed(time).items()}

    def let_go(self) -> None:
        """A savepoint is deleted."""
        if self.savepoints:
            del self.savepoints[min(self.savepoints)]
            self.full_scan = True

    # ---- cleaning ------------------------------------------------------------------------------

    def basis(self) -> CleanBasis:
        """What a clean would be planned on."""
        planned: dict[str, frozenset[str]] = {}
        for plan in self.plans.values():
            before = planned.get(plan.group.partition, frozenset())
            planned[plan.group.partition] = before | plan.names
        return CleanBasis(
            timeline=self.timeline(),
            version=self.version,
            zone=UTC,
            now_ms=self.now_ms,
            completion_time_of=self.timeline().completion_time_of,
            previous=self.previous,
            protection=Protection(
                savepointed=self._savepointed(),
                planned=planned,
                compacting={p.group: p.base_instant for p in self.plans.values()},
                live=frozenset(self.live),
            ),
            pending_compactions={p.group: t for t, p in self.plans.items()},
            replaced=self._replaced(),
            plans=frozenset(self.plans),
            full_scans=frozenset({"1"} if self.full_scan else ()),
        )

    def plan(self, options: CleanOptions, *, everywhere: bool = False) -> PlannedClean:
        """The plan of a clean."""
        basis = self.basis()
        retained = instant_to_retain(basis, options)
        visits = None if everywhere else instants_to_visit(basis, options, retained)
        wanted = set(PARTITIONS)
        if visits is not None:
            wanted = {
                p
                for i in visits
                for p in partitions_of(self.metadata(i.requested_time), merge_on_read=True)
            }
        listing = [(p, self.listed(p)) for p in sorted(wanted)]
        return plan_clean(basis, options, listing, base_path=BASE_PATH)

    def clean(self, planned: PlannedClean) -> None:
        """Do what a plan says."""
        if not planned.files:
            return
        for partition, names in deleted(planned.plan).items():
            self.files[partition] -= names
        retained = planned.plan.earliest_instant_to_retain
        time, completed = self.tick(), self.tick()
        metadata = CleanMetadata(
            start_clean_time=time,
            time_taken_in_millis=0,
            total_files_deleted=planned.files,
            earliest_commit_to_retain=retained.timestamp if retained else "",
            last_completed_commit_timestamp=planned.plan.last_completed_commit_timestamp,
            partition_metadata={},
            extra_metadata=planned.plan.extra_metadata,
        )
        self.previous = PreviousClean(metadata)
        self.full_scan = planned.held_back
        self.cleans.append(Instant(time, "clean", State.COMPLETED, completed, f"{time}.clean"))

    # ---- what readers see ----------------------------------------------------------------------

    def committed(self) -> list[Write]:
        """Completed writes in requested order."""
        return [w for _, w in sorted(self.writes.items()) if w.completed is not None]

    def needed(self, as_of: str | None) -> dict[str, set[str]]:
        """Files that a reader of a moment reads, by partition."""
        return _by_partition(self.view().latest_merged_slices(as_of))

    def needed_at(self, moment: str) -> dict[str, set[str]]:
        """Files that somebody who looked at the table at a moment of the past has to read."""
        return _by_partition(self.view(moment).latest_merged_slices())

    def view(self, moment: str | None = None) -> FileSystemView:
        """The table now, or as it was seen at a moment."""
        timeline = self.timeline(moment)
        planned = {p.group: t for t, p in self.plans.items()}
        if moment is not None:
            planned |= {
                group: w.time
                for w in self.writes.values()
                for group in self._compacted(w)
                if w.time <= moment and (w.completed or "9") > moment
            }
            planned = {g: t for g, t in planned.items() if t <= moment}
        return FileSystemView.build(
            {p: self.listed(p) for p in PARTITIONS},
            timeline=timeline,
            version=self.version,
            pending_compactions=planned,
            replaced=self._replaced(moment),
            completion_time_of=timeline.completion_time_of,
        )

    def timeline(self, moment: str | None = None) -> Timeline:
        """The timeline now, or as it was at a moment."""
        found = [
            Instant(t, "savepoint", State.COMPLETED, t, f"{t}.savepoint") for t in self.savepoints
        ]
        for write in self.writes.values():
            if moment is not None and write.time > moment:
                continue
            done = write.completed is not None and (moment is None or write.completed <= moment)
            action = completed_action(write.action) if done else write.action
            state = State.COMPLETED if done else State.INFLIGHT
            completed = write.completed if done else None
            found.append(Instant(write.time, action, state, completed, f"{write.time}.{action}"))
        return Timeline.of([*found, *self.cleans])

    def listed(self, partition: str) -> list[ListedFile]:
        """The files of a partition."""
        return [ListedFile(name, 1) for name in sorted(self.files[partition])]

    def metadata(self, time: str) -> CommitMetadata:
        """What the write of a time says."""
        write = self.writes[time]
        return CommitMetadata(
            partition_to_write_stats=write.stats, partition_to_replace_file_ids=write.replaced
        )

    # ---- parts ---------------------------------------------------------------------------------

    def _begin(self, action: str) -> Write:
        write = Write(self.tick(), action)
        self.writes[write.time] = write
        return write

    def _complete(self, write: Write) -> None:
        write.completed = self.tick()

    def _base(self, write: Write, group: FileGroupId, *, new: bool) -> None:
        name = BaseFileName(group.file_id, "0-0-0", write.time).text
        self.files[group.partition].add(name)
        self._stat(write, group, name, new=new)

    def _stat(self, write: Write, group: FileGroupId, name: str, *, new: bool) -> None:
        previous = "null" if new else "1"
        stat = WriteStat(file_id=group.file_id, path=name, prev_commit=previous)
        write.stats.setdefault(group.partition, []).append(stat)

    def _log_name(self, group: FileGroupId, time: str) -> str:
        if self.version.log_name_has_delta_instant:
            return LogFileName(group.file_id, time, 1, "0-0-0").text
        planned = [t for t, p in self.plans.items() if p.group == group]
        slice_ = self._newest(group)
        assert slice_ is not None
        at = planned[0] if planned else slice_.base_instant
        return LogFileName(group.file_id, at, self.ticks, "0-0-0").text

    def _pick(self, pick: int, *, busy: bool) -> FileGroupId | None:
        gone = self._replaced()
        planned = {p.group for p in self.plans.values()}
        live = [
            g
            for g in self.groups
            if g not in gone and (busy or g not in planned) and self._newest(g) is not None
        ]
        return live[pick % len(live)] if live else None

    def _newest(self, group: FileGroupId) -> FileSlice | None:
        return self.view().merged_slice(group)

    def _late_on(self, group: FileGroupId, *, bases_only: bool = False) -> bool:
        stats = (s for t in self.late for s in self.writes[t].stats.get(group.partition, ()))
        return any(
            s.file_id == group.file_id and not (bases_only and ".log." in (s.path or ""))
            for s in stats
        )

    def _compacted(self, write: Write) -> Sequence[FileGroupId]:
        if write.action != "compaction":
            return ()
        return [FileGroupId(p, s.file_id or "") for p, ss in write.stats.items() for s in ss]

    def _replaced(self, moment: str | None = None) -> dict[FileGroupId, str]:
        return {
            FileGroupId(partition, file_id): w.time
            for w in self.committed()
            for partition, ids in w.replaced.items()
            for file_id in ids
            if moment is None or (w.completed or "9") <= moment
        }

    def _savepointed(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for kept in self.savepoints.values():
            for partition, names in kept.items():
                found[partition] = found.get(partition, frozenset()) | names
        return found


def deleted(plan: CleanerPlan) -> dict[str, set[str]]:
    """File names that a plan deletes, by partition."""
    paths = plan.file_paths_to_be_deleted_per_partition or {}
    return {
        p: {(i.file_path or "").rpartition("/")[2] for i in found} for p, found in paths.items()
    }


def _by_partition(slices: Sequence[FileSlice]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for slice_ in slices:
        names = found.setdefault(slice_.group.partition, set())
        names.update(file.name for file in files_of(slice_))
    return found
