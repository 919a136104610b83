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
from lakewright.format.file_names import BaseFileName, LogFileName, parse_data_file
from lakewright.format.instant import Instant, State, completed_action, parse_instant_name
from lakewright.format.instant_times import format_time
from lakewright.format.records.commit import CommitMetadata
from lakewright.format.records.instants import record_kind
from lakewright.format.records.model import AvroRecord
from lakewright.format.records.rollback import RollbackMetadata, RollbackPlan
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage

__all__ = ["DataFileSeen", "StateFile", "TableState"]

HEARTBEATS: Final = ".hoodie/.heartbeat/"
_META: Final = ".hoodie/"


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
        self.beats: dict[str, list[str]] = {}
        """Who beat for each instant, without repetitions beyond the second."""
        self.archived: set[str] = set()
        """Instants that were committed and archived."""
        self.dead: set[str] = set()
        """Processes that died."""
        self.ended: set[str] = set()
        """Processes that died or came to their end."""
        self.changed_files: set[str] = set()
        """State files that came or went since the checkers looked last."""
        self._timeline: Timeline | None = None
        self._instants: dict[str, list[StateFile]] | None = None
        self._records: dict[tuple[str, int], AvroRecord | LakewrightError | None] = {}
        self._folder = f"{properties.timeline_folder}/"

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
            return self._put_state(path, stored)
        partition, _, name = path.rpartition("/")
        parsed = parse_data_file(name)
        if parsed is None:
            return ""
        seen = DataFileSeen(path, partition, parsed, stored)
        self.data_files[path] = seen
        self.by_instant.setdefault(parsed.instant, {})[path] = seen
        return "data"

    def remove(self, path: str) -> str:
        """An object was deleted; what it was."""
        if path.startswith(HEARTBEATS):
            self.heartbeats.pop(path[len(HEARTBEATS) :], None)
            return "heartbeat"
        seen = self.data_files.pop(path, None)
        if seen is not None:
            del self.by_instant[seen.name.instant][path]
            return "data"
        name = path.removeprefix(self._folder)
        if self.state_files.pop(name, None) is not None:
            self._timeline = self._instants = None
            self.changed_files.add(name)
            return "state"
        return ""

    def _put_heartbeat(self, instant: str, stored: Stored) -> str:
        self.heartbeats[instant] = stored
        beats = self.beats.setdefault(instant, [])
        if beats[-2:] != [stored.who, stored.who]:
            beats.append(stored.who)
        return "heartbeat"

    def _put_state(self, path: str, stored: Stored) -> str:
        name = path.removeprefix(self._folder)
        parsed = parse_instant_name(name, self.version.layout_version)
        if parsed is None:
            return ""
        completion_time = parsed.completion_time
        if parsed.state is State.COMPLETED and completion_time is None:
            completion_time = format_time(stored.modified_ms, zone=self.properties.timeline_zone)
        self.state_files[name] = StateFile(
            name,
            parsed.requested_time,
            parsed.action,
            parsed.state,
            completion_time,
            stored,
            completed_action(parsed.action),
        )
        self._timeline = self._instants = None
        self.changed_files.add(name)
        return "state"

    # ---- asking --------------------------------------------------------------------------------

    @property
    def timeline(self) -> Timeline:
        """The active timeline."""
        if self._timeline is None:
            self._timeline = Timeline.of(
                Instant(f.requested_time, f.action, f.state, f.completion_time, f.name)
                for f in self.state_files.values()
            )
        return self._timeline

    def instants(self) -> dict[str, list[StateFile]]:
        """State files by requested time."""
        if self._instants is None:
            self._instants = {}
            for file in self.state_files.values():
                self._instants.setdefault(file.requested_time, []).append(file)
        return self._instants

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

    def rollbacks(self) -> Iterator[tuple[StateFile, str, str]]:
        """Pending and completed rollbacks: file of the highest state, target, its action."""
        for instant in self.timeline.filter_actions("rollback"):
            file = self.state_files[instant.file_name]
            for target, action in self._targets(file):
                yield file, target, action

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


def _read(file: StateFile) -> AvroRecord | LakewrightError | None:
    kind = record_kind(file.action, file.state)
    if kind is None or not file.stored.content:
        return None
    try:
        return kind.read(file.stored.content, path=file.name)
    except LakewrightError as error:
        return error
