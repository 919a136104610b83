"""What a table on the simulated disk looks like right now, kept up change by change.

A checker asks here instead of listing: state files by instant, data files by the instant in their
names, heartbeats, rollback plans, who created what and in which order. Everything is taken from the
names and contents on the disk, never from what a process believes, and parsed with the real code of
the format. `TableState.of_storage` builds the same from any storage, for tests and real tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from lakewright.errors import LakewrightError
from lakewright.format.archived_timeline import archived_times
from lakewright.format.file_names import BaseFileName, LogFileName, parse_data_file
from lakewright.format.instant import (
    WRITE_ACTIONS,
    Instant,
    State,
    completed_action,
    parse_instant_name,
)
from lakewright.format.instant_times import format_time
from lakewright.format.records.cleaning import CleanerPlan
from lakewright.format.records.commit import CommitMetadata
from lakewright.format.records.instants import record_kind
from lakewright.format.records.model import AvroRecord
from lakewright.format.records.rollback import RestorePlan, RollbackMetadata, RollbackPlan
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage
from lakewright.storage.memory import MemoryBucket, MemoryStorage

__all__ = ["DataFileSeen", "StateFile", "TableState"]

HEARTBEATS: Final = ".hoodie/.heartbeat/"
CLEAN: Final = "clean"
ROLLBACK: Final = "rollback"
SILENCE_MS: Final = 10_000
"""Nobody who beats is silent for so long; who beats next has taken over."""
_META: Final = ".hoodie/"
_TAKES_AWAY: Final = frozenset({CLEAN, ROLLBACK, "restore"})


class Stored(NamedTuple):
    """An object as the checkers see it."""

    content: bytes
    modified_ms: int
    who: str
    order: int
    """Number of the change that made it; greater is later."""
    time_s: float


@dataclass(frozen=True, slots=True)
class StateFile:
    """One state file of an instant."""

    name: str
    requested_time: str
    action: str
    state: State
    completion_time: str | None
    stored: Stored
    family: str
    """The action under which all states of the instant are one."""
    instant: Instant
    """The same as a timeline has it."""


@dataclass(frozen=True, slots=True)
class DataFileSeen:
    """One data file."""

    path: str
    partition: str
    name: BaseFileName | LogFileName
    stored: Stored

    @property
    def is_base(self) -> bool:
        """Whether it is a base file."""
        return isinstance(self.name, BaseFileName)


class TableState:
    """One table, as it lies on the disk."""

    def __init__(self, properties: TableProperties) -> None:
        self.properties = properties
        self.version = properties.version
        self.state_files: dict[str, StateFile] = {}
        """By name."""
        self.data_files: dict[str, DataFileSeen] = {}
        """By path."""
        self.by_instant: dict[str, dict[str, DataFileSeen]] = {}
        """Data files by the instant in their names, then by path."""
        self.heartbeats: dict[str, Stored] = {}
        """By instant."""
        self.beaters: dict[str, dict[str, None]] = {}
        """Everybody who ever beat for each instant, in the order of their first beats."""
        self.beats: dict[str, list[str]] = {}
        """Who beat for each instant since somebody took it over, without repetitions beyond the
        second."""
        self.undone: set[str] = set()
        """Instants that a rollback or a restore was ever planned for, or that were made pending
        again for one."""
        self.once_completed: dict[str, StateFile] = {}
        """Completed writes by requested time, also those that are off the timeline again."""
        self.doomed: dict[str, list[str]] = {}
        """Data files that cleans were planned for, with the moments that these retain; empty for a
        clean that retains none."""
        self.dead: set[str] = set()
        """Processes that died."""
        self.ended: set[str] = set()
        """Processes that died or came to their end."""
        self.whole = True
        """Whether checkers look at everything, or at what came and went since they looked last."""
        self._came: dict[str, StateFile] = {}
        self._went: dict[str, StateFile] = {}
        self._new_data: dict[str, DataFileSeen] = {}
        self._lost_data: dict[str, DataFileSeen] = {}
        self._new_beats: dict[str, None] = {}
        self._archive = MemoryStorage(MemoryBucket(history=0))
        self._archived: frozenset[str] | None = frozenset()
        self._timeline: Timeline | None = None
        self._by_time: dict[str, list[StateFile]] = {}
        self._timelines: dict[str, Timeline] = {}
        """What the state files of each requested time come to."""
        self._rollbacks: list[tuple[StateFile, str, str]] | None = None
        self._records: dict[tuple[str, int], AvroRecord | LakewrightError | None] = {}
        self._folder = f"{properties.timeline_folder}/"
        self._archive_folder = f"{properties.history_folder}/"

    @classmethod
    def of_storage(cls, storage: Storage, properties: TableProperties) -> TableState:
        """The state of a table on any storage; the order of its files is that of their times."""
        state = cls(properties)
        objects = sorted(storage.walk(""), key=lambda info: (info.modified_ms, info.path))
        for order, info in enumerate(objects):
            content = storage.read(info.path)
            state.put(info.path, Stored(content, info.modified_ms, "", order, 0.0))
        return state

    # ---- keeping up ----------------------------------------------------------------------------

    def put(self, path: str, stored: Stored) -> str:
        """An object was written; what it is: `state`, `data`, `heartbeat` or nothing."""
        if path.startswith(_META):
            if path.startswith(HEARTBEATS):
                return self._put_heartbeat(path[len(HEARTBEATS) :], stored)
            if path.startswith(self._archive_folder):
                self._archive.replace(path, stored.content)
                self._archived = None
                return ""
            return self._put_state(path, stored)
        partition, _, name = path.rpartition("/")
        parsed = parse_data_file(name)
        if parsed is None:
            return ""
        seen = DataFileSeen(path, partition, parsed, stored)
        self.data_files[path] = self._new_data[path] = seen
        self.by_instant.setdefault(parsed.instant, {})[path] = seen
        return "data"

    def remove(self, path: str) -> str:
        """An object was deleted; what it was."""
        if path.startswith(HEARTBEATS):
            instant = path[len(HEARTBEATS) :]
            self.heartbeats.pop(instant, None)
            return "heartbeat"
        if path.startswith(self._archive_folder):
            self._archive.delete(path)
            self._archived = None
            return ""
        seen = self.data_files.pop(path, None)
        if seen is not None:
            del self.by_instant[seen.name.instant][path]
            self._lost_data[path] = seen
            return "data"
        name = path.removeprefix(self._folder)
        file = self.state_files.pop(name, None)
        if file is not None:
            self._went[name] = file
            known = self._by_time[file.requested_time]
            known.remove(file)
            if file.state is State.COMPLETED and any(f.state is State.INFLIGHT for f in known):
                self.undone.add(file.requested_time)
            self._changed(file)
            return "state"
        return ""

    def _changed(self, file: StateFile) -> None:
        self._timeline = None
        if file.action == ROLLBACK:
            self._rollbacks = None
        self._timelines.pop(file.requested_time, None)

    def _put_heartbeat(self, instant: str, stored: Stored) -> str:
        before = self.heartbeats.get(instant)
        self.heartbeats[instant] = stored
        self._new_beats[instant] = None
        beats = self.beats.setdefault(instant, [])
        if before is None or stored.modified_ms - before.modified_ms > SILENCE_MS:
            beats.clear()
        if beats[-2:] != [stored.who, stored.who]:
            beats.append(stored.who)
        self.beaters.setdefault(instant, {}).setdefault(stored.who)
        return "heartbeat"

    def _put_state(self, path: str, stored: Stored) -> str:
        name = path.removeprefix(self._folder)
        parsed = parse_instant_name(name, self.version.layout_version)
        if parsed is None:
            return ""
        completion_time = parsed.completion_time
        if parsed.state is State.COMPLETED and completion_time is None:
            completion_time = format_time(stored.modified_ms, zone=self.properties.timeline_zone)
        instant = Instant(parsed.requested_time, parsed.action, parsed.state, completion_time, name)
        file = StateFile(
            name,
            parsed.requested_time,
            parsed.action,
            parsed.state,
            completion_time,
            stored,
            completed_action(parsed.action),
            instant,
        )
        known = self._by_time.setdefault(file.requested_time, [])
        before = self.state_files.get(name)
        if before is not None:
            known.remove(before)
        known.append(file)
        self.state_files[name] = self._came[name] = file
        self._changed(file)
        if file.state is State.COMPLETED and file.action in WRITE_ACTIONS:
            self.once_completed[file.requested_time] = file
        if file.state is State.REQUESTED and file.action in _TAKES_AWAY:
            self._note_plan(file)
        return "state"

    def _note_plan(self, file: StateFile) -> None:
        """Keep what a plan is going to take away."""
        plan = self.record(file)
        if isinstance(plan, CleanerPlan):
            self._doom(plan)
        elif isinstance(plan, RollbackPlan) and plan.instant_to_rollback is not None:
            self.undone.add(plan.instant_to_rollback.commit_time)
        elif isinstance(plan, RestorePlan):
            self.undone.update(info.commit_time for info in plan.instants_to_rollback)

    def _doom(self, plan: CleanerPlan) -> None:
        kept = plan.earliest_instant_to_retain
        for partition, infos in (plan.file_paths_to_be_deleted_per_partition or {}).items():
            for info in infos:
                name = (info.file_path or "").rpartition("/")[2]
                path = f"{partition}/{name}" if partition else name
                self.doomed.setdefault(path, []).append(kept.timestamp if kept else "")

    def looked(self) -> None:
        """The checkers have looked."""
        for news in (self._came, self._went, self._new_data, self._lost_data, self._new_beats):
            news.clear()

    # ---- what to look at -----------------------------------------------------------------------

    def news(self) -> list[StateFile]:
        """State files that came."""
        return list((self.state_files if self.whole else self._came).values())

    def news_completed(self) -> list[StateFile]:
        """Completed state files that came."""
        return [f for f in self.news() if f.state is State.COMPLETED]

    def news_of(self, *actions: str) -> bool:
        """Whether a state file of one of these actions came or went."""
        return self.whole or any(
            f.action in actions for came in (self._came, self._went) for f in came.values()
        )

    def news_times(self) -> list[str]:
        """Requested times of state files that came or went."""
        if self.whole:
            return list(dict.fromkeys(f.requested_time for f in self.state_files.values()))
        files = (*self._came.values(), *self._went.values())
        return list(dict.fromkeys(f.requested_time for f in files))

    def gone(self) -> list[StateFile]:
        """State files that went."""
        return list(self._went.values())

    def states_went(self) -> bool:
        """Whether a state file went."""
        return self.whole or bool(self._went)

    def news_data(self) -> list[DataFileSeen]:
        """Data files that came."""
        return list((self.data_files if self.whole else self._new_data).values())

    def lost_data(self) -> list[str]:
        """Data files that went, where only news count."""
        return [] if self.whole else list(self._lost_data)

    def news_beats(self) -> list[str]:
        """Instants for which somebody beat."""
        return list(self.beats if self.whole else self._new_beats)

    # ---- asking --------------------------------------------------------------------------------

    @property
    def archived(self) -> frozenset[str]:
        """Requested times of instants that are in the archive."""
        if self._archived is None:
            times = archived_times(self._archive, self.properties)
            self._archived = frozenset(times["requested_time"].to_pylist())
        return self._archived

    def archived_before(self, timeline: Timeline) -> dict[str, str]:
        """Archived writes that a reader of a timeline takes for committed, with the times at which
        they were completed."""
        if not self.archived:
            return {}
        return {
            time: file.completion_time or time
            for time, file in self.once_completed.items()
            if time in self.archived and timeline.get(time) is None and timeline.is_archived(time)
        }

    @property
    def timeline(self) -> Timeline:
        """The active timeline."""
        if self._timeline is None:
            parts = [self._at(time) for time in sorted(self._by_time) if self._by_time[time]]
            self._timeline = Timeline(
                tuple(instant for part in parts for instant in part.instants),
                tuple(instant for part in parts for instant in part.duplicates),
            )
        return self._timeline

    def _at(self, requested_time: str) -> Timeline:
        """The instants of one requested time."""
        found = self._timelines.get(requested_time)
        if found is None:
            found = Timeline.of(f.instant for f in self._by_time[requested_time])
            self._timelines[requested_time] = found
        return found

    def states_of(self, requested_time: str) -> list[StateFile]:
        """State files of a requested time."""
        return self._by_time.get(requested_time, [])

    def completed(self) -> Iterator[StateFile]:
        """Completed state files."""
        return (f for f in self.state_files.values() if f.state is State.COMPLETED)

    def record(self, file: StateFile) -> AvroRecord | LakewrightError | None:
        """What a state file holds, or why it cannot be read; None for an empty one."""
        key = (file.name, file.stored.order)
        if key not in self._records:
            self._records[key] = _read(file)
        return self._records[key]

    def metadata(self, file: StateFile) -> CommitMetadata | None:
        """Commit metadata of a completed write; None for other actions and unreadable files."""
        record = self.record(file)
        return record if isinstance(record, CommitMetadata) else None

    def rollbacks(self) -> list[tuple[StateFile, str, str]]:
        """Pending and completed rollbacks: file of the highest state, target, its action."""
        if self._rollbacks is None:
            files = [self.state_files[i.file_name] for i in self.timeline.filter_actions(ROLLBACK)]
            self._rollbacks = [(file, *target) for file in files for target in self._targets(file)]
        return self._rollbacks

    def _targets(self, file: StateFile) -> Iterator[tuple[str, str]]:
        if file.state is State.COMPLETED:
            record = self.record(file)
            if isinstance(record, RollbackMetadata):
                for info in record.instants_rollback:
                    yield info.commit_time, info.action
            return
        requested = self.state_files.get(f"{file.requested_time}.rollback.requested")
        plan = self.record(requested) if requested is not None else None
        if isinstance(plan, RollbackPlan) and plan.instant_to_rollback is not None:
            yield plan.instant_to_rollback.commit_time, plan.instant_to_rollback.action

    def is_committed(self, instant: str) -> bool:
        """Whether what an instant wrote counts.

        Readers take everything before the start of the timeline for committed; here only what was
        archived is, so that files of an instant that was rolled back at the start are seen.
        """
        return instant in self.timeline.completion_times or instant in self.archived

    def is_there(self, instant: str) -> bool:
        """Whether an instant is on the timeline, in whatever state, or was committed."""
        return self.is_committed(instant) or self.timeline.get(instant) is not None


def _read(file: StateFile) -> AvroRecord | LakewrightError | None:
    kind = record_kind(file.action, file.state)
    if kind is None or not file.stored.content:
        return None
    try:
        return kind.read(file.stored.content, path=file.name)
    except LakewrightError as error:
        return error
