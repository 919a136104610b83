"""Where archived instants go: the archive of the table's version, behind one small protocol.

`begun` tells which instants an interrupted run has archived; `add` takes an instant with its state
files; `flush` makes all that were added durable, at once and whole, before it returns; `tidy` keeps
the archive in shape. Until `flush`, nothing of what was added is visible to anybody. An instant
that is in the archive already is not added to version 8's; version 6's readers do not mind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lakewright.format.archive_writing import (
    archive_entry,
    encode_archive,
    encode_entry,
    newest_archived,
    next_archive,
)
from lakewright.format.history import read_history
from lakewright.format.history_writing import (
    HistoryPolicy,
    append_history,
    clean_history,
    compact_history,
    history_row,
    history_table,
)
from lakewright.format.instant import WRITE_ACTIONS, Instant
from lakewright.format.instant_times import format_time
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.runtime.random import Random
from lakewright.services.archive_plan import Begun
from lakewright.storage.base import Storage

__all__ = ["ArchiveStore", "StateFile", "open_store"]

Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class StateFile:
    """One file of an instant, as a listing showed it."""

    instant: Instant
    """The instant in the state that the file is of."""
    path: str
    size: int
    modified_ms: int


class ArchiveStore(Protocol):
    """The archive of one table."""

    size: int
    """Bytes that were added and are not durable yet."""

    def begun(self, timeline: Timeline) -> Begun:
        """What is in the archive already, although it is active."""
        ...

    def add(self, instant: Instant, files: Mapping[str, StateFile]) -> None:
        """Take a completed instant with its state files by name, in the order of their states."""
        ...

    def flush(self, check: Check) -> None:
        """Make everything that was added durable; nothing happens if there is nothing."""
        ...

    def tidy(self, check: Check) -> int:
        """Keep the archive in shape; how many levels were joined."""
        ...


def open_store(
    storage: Storage, properties: TableProperties, policy: HistoryPolicy, random: Random
) -> ArchiveStore:
    """The archive that the table's version has."""
    if properties.version.history_is_lsm:
        return _History(storage, properties, policy)
    return _LogFiles(storage, properties, random)


def _begun(timeline: Timeline, archived: frozenset[tuple[str, str]]) -> Begun:
    active = {(i.requested_time, i.completed_action) for i in timeline.completed()}
    writes = [time for time, action in archived if action in WRITE_ACTIONS]
    return Begun(archived & active, max(writes, default=None))


@dataclass
class _LogFiles:
    """Version 6: a log file per flush."""

    storage: Storage
    properties: TableProperties
    random: Random
    size: int = 0
    _entries: list[bytes] = field(default_factory=list)

    def begun(self, timeline: Timeline) -> Begun:
        # Every flush is followed by removing what it has archived, so only the last one can have
        # been interrupted before that.
        return _begun(timeline, newest_archived(self.storage, self.properties))

    def add(self, instant: Instant, files: Mapping[str, StateFile]) -> None:  # noqa: ARG002
        zone = self.properties.timeline_zone
        for file in files.values():
            content = self.storage.read(file.path) if file.size else b""
            changed_at = format_time(file.modified_ms, zone=zone)
            entry = archive_entry(file.instant, content, changed_at, path=file.path)
            self._entries.append(encode_entry(entry))
            self.size += len(self._entries[-1])

    def flush(self, check: Check) -> None:
        if not self._entries:
            return
        path = next_archive(self.storage, self.properties)
        data = encode_archive(self._entries)
        check()
        self.storage.create_if_absent(path, data, token=self.random.token_hex())
        self._entries, self.size = [], 0

    def tidy(self, check: Check) -> int:  # noqa: ARG002
        return 0


@dataclass
class _History:
    """Version 8: a file of level 0 per flush, and levels."""

    storage: Storage
    properties: TableProperties
    policy: HistoryPolicy
    size: int = 0
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _known: frozenset[tuple[str, str]] = frozenset()

    def begun(self, timeline: Timeline) -> Begun:
        first = timeline.first()
        if first is None:
            return Begun()
        table = read_history(
            self.storage,
            self.properties,
            columns=("requested_time", "action"),
            begin=first.requested_time,
        )
        found = zip(table["requested_time"].to_pylist(), table["action"].to_pylist(), strict=True)
        begun = _begun(timeline, frozenset(found))
        self._known = begun.instants
        return begun

    def add(self, instant: Instant, files: Mapping[str, StateFile]) -> None:
        if (instant.requested_time, instant.completed_action) in self._known:
            return
        states = {name: file.instant for name, file in files.items() if file.size}
        row = history_row(instant, states, lambda name: self.storage.read(files[name].path))
        self._rows.append(row)
        self.size += len(row["metadata"] or b"") + len(row["plan"] or b"")

    def flush(self, check: Check) -> None:
        if not self._rows:
            return
        append_history(self.storage, self.properties, history_table(self._rows), check=check)
        self._rows, self.size = [], 0

    def tidy(self, check: Check) -> int:
        levels = compact_history(self.storage, self.properties, self.policy, check=check)
        kept = self.policy.manifests_kept + levels
        clean_history(self.storage, self.properties, kept=kept, check=check)
        return levels
