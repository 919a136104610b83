"""Which file groups may have keys that only their logs know.

Writes that look for keys in base files append to a group only if its base file has the key. Still
the newest base file may lack it: a compaction takes a delete of the key into its base file, while a
write that looked before it was completed found the key in the old one and brings it back in a log.
Such a log is late: its write began before the compaction of its slice was completed. Groups without
a base file have all of their keys in logs; other engines make them.

Only names and the timeline are asked, and, at version 6, whose log names do not say who wrote them,
the commits that overlap a compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.file_slices import BaseFile, FileGroupId, FileSlice, LogFile
from lakewright.format.instant import Instant
from lakewright.format.instant_times import format_time, time_ms
from lakewright.format.partitions import ListedFile
from lakewright.format.records import CommitMetadata, load_commit_metadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.format.view_inputs import CompletionTimes
from lakewright.storage.base import Storage

__all__ = ["LateLogs", "written_logs"]

CLOCKS_APART_MS = 10_000
"""Version 6 knows completions by the storage's clock, and beginnings by that of the writer."""
LONGEST_COMPACTION_MS = 24 * 60 * 60 * 1000
"""Where the commit of a base file is archived, version 6 tells late logs by their age only."""


class LateLogs:
    """Tells late logs, as one timeline knows them."""

    def __init__(self, storage: Storage, properties: TableProperties, timeline: Timeline) -> None:
        self._storage = storage
        self._properties = properties
        self._timeline = timeline
        self._completion_time_of = CompletionTimes(storage, properties, timeline)
        self._overlapping: dict[str, frozenset[FileGroupId]] = {}

    def in_slice(self, slice_: FileSlice) -> bool:
        """Whether the logs of a slice must be looked into."""
        return bool(slice_.logs) and self._are_late(slice_)

    def compactions_after(self, begun: str) -> list[Instant]:
        """Compactions that a write may have missed which began at a time."""
        bound = begun if self._by_completion else self._earlier(begun)
        return [i for i in self._compactions() if (i.completion_time or "") > bound]

    @property
    def _by_completion(self) -> bool:
        return self._properties.version.slices_by_completion_time

    def _compactions(self) -> Iterable[Instant]:
        """Completed ones: the only actions of a merge-on-read table that are called commits."""
        return self._timeline.filter_actions("commit").completed()

    def _are_late(self, slice_: FileSlice) -> bool:
        base = slice_.base
        if base is None:
            return True
        made_by = self._timeline.get(base.instant)
        if made_by is not None and made_by.action != "commit":
            return False
        if self._by_completion:
            completed = self._completion_time_of(base.instant)
            return completed is None or any(log.instant < completed for log in slice_.logs)
        if made_by is not None:
            return slice_.group in self._changed_during(made_by)
        return any(_came_soon(base, log.modified_ms) for log in slice_.logs)

    def _changed_during(self, compaction: Instant) -> frozenset[FileGroupId]:
        """File groups in whose new slice writes appended that overlap a compaction in time."""
        time = compaction.requested_time
        if time not in self._overlapping:
            found: set[FileGroupId] = set()
            planned = self._earlier(time)
            for write in self._timeline.filter_actions("deltacommit").completed():
                after = (write.completion_time or planned) >= planned
                if after and self._began_before_end(write, compaction):
                    metadata = load_commit_metadata(self._storage, self._properties, write)
                    found |= {s.group for s in written_logs(metadata) if s.base_instant == time}
            self._overlapping[time] = frozenset(found)
        return self._overlapping[time]

    def _began_before_end(self, write: Instant, compaction: Instant) -> bool:
        end = compaction.completion_time or ""
        return self._earlier(write.requested_time) < end or (write.completion_time or "") <= end

    def _earlier(self, time: str) -> str:
        """A time by a clock that may be behind the writer's."""
        zone = self._properties.timeline_zone
        moment = time_ms(time, zone=zone)
        return time if moment is None else format_time(moment - CLOCKS_APART_MS, zone=zone)


def written_logs(metadata: CommitMetadata) -> Iterator[FileSlice]:
    """The log files that a commit wrote, each as a slice of its own; without change logs."""
    for stat in metadata.write_stats:
        name = (stat.path or "").rpartition("/")[2]
        parsed = parse_data_file(name)
        if isinstance(parsed, LogFileName) and not parsed.suffix:
            partition = stat.partition_path or ""
            log = LogFile.of(partition, ListedFile(name, stat.file_size_in_bytes or 0), parsed)
            group = FileGroupId(partition, parsed.file_id)
            yield FileSlice(group, parsed.instant, None, (log,))


def _came_soon(base: BaseFile, modified_ms: int | None) -> bool:
    if modified_ms is None or base.modified_ms is None:
        return True
    return modified_ms - base.modified_ms < LONGEST_COMPACTION_MS
