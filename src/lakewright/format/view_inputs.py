"""What the file-system view needs from the timeline's files, and nothing else.

Only the instants that matter are opened: plans of pending compactions and metadata of completed
replacecommits. Completion times come from the names on the active timeline; the archived history is
read once, and only when a log file of an archived commit could belong to more than one slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakewright.errors import NotFoundError
from lakewright.format.archived_timeline import archived_instants, archived_times
from lakewright.format.file_slices import CompletionTimeOf, FileGroupId, FileSystemView
from lakewright.format.instant import WRITE_ACTIONS, Instant
from lakewright.format.partitions import ListedFile
from lakewright.format.records.commit import CommitMetadata
from lakewright.format.records.instants import load_commit_metadata, load_compaction_plan
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage


def load_view(
    storage: Storage,
    properties: TableProperties,
    timeline: Timeline,
    *,
    listing: Mapping[str, Sequence[ListedFile]],
    completion_time_of: CompletionTimeOf | None = None,
) -> FileSystemView:
    """The file-system view of the listed partitions.

    `completion_time_of` replaces the look-up in the active timeline and the archived history.
    """
    return FileSystemView.build(
        listing,
        timeline=timeline,
        version=properties.version,
        pending_compactions=load_pending_compactions(storage, properties, timeline),
        replaced=load_replaced(storage, properties, timeline),
        completion_time_of=completion_time_of or CompletionTimes(storage, properties, timeline),
    )


def load_pending_compactions(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> dict[FileGroupId, str]:
    """The compaction planned for each file group, by its requested time."""
    return _planned(storage, properties, timeline.pending_compactions())


def load_pending_log_compactions(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> dict[FileGroupId, str]:
    """The log compaction planned for each file group; it makes no slice of its own."""
    return _planned(storage, properties, timeline.pending_log_compactions())


def load_replaced(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> dict[FileGroupId, str]:
    """The instant that replaced each file group (overwrite, clustering, dropped partition)."""
    replaced: dict[FileGroupId, str] = {}
    for instant in timeline.filter_actions("replacecommit").completed():
        metadata = _replacing(storage, properties, instant)
        for partition, file_ids in (metadata.partition_to_replace_file_ids or {}).items():
            for file_id in file_ids:
                replaced.setdefault(FileGroupId(partition, file_id), instant.requested_time)
    return replaced


def _replacing(storage: Storage, properties: TableProperties, instant: Instant) -> CommitMetadata:
    """What a replacement says, wherever it is: it may be archived since the timeline was listed."""
    try:
        return load_commit_metadata(storage, properties, instant)
    except NotFoundError as error:
        time = instant.requested_time
        for archived in archived_instants(storage, properties, begin=time, end=time):
            if isinstance(archived.metadata, CommitMetadata):
                return archived.metadata
        raise NotFoundError(
            f"The commit {time} was taken back while the table was looked at.",
            hint="Open the table again: it is as it was before that commit.",
            context={"table": storage.uri, "instant": time},
            retryable=True,
        ) from error


def block_visibility(
    properties: TableProperties, timeline: Timeline
) -> Callable[[str], bool] | None:
    """The test of log blocks by their instant, or None where file names have decided already."""
    if properties.version.filters_blocks_by_timeline:
        return timeline.contains_completed_or_archived
    return None


class CompletionTimes:
    """Completion time by requested time: the active timeline first, then the archived history.

    The history is read at most twice: from the first archived time that is asked for on, and the
    older rest if that is needed too.
    """

    def __init__(self, storage: Storage, properties: TableProperties, timeline: Timeline) -> None:
        self._storage = storage
        self._properties = properties
        self._timeline = timeline
        self._archived: dict[str, str | None] = {}
        self._read_from: str | None = None

    def __call__(self, requested_time: str) -> str | None:
        """None for what is pending, unknown, or archived without a trace."""
        active = self._timeline.completion_time_of(requested_time)
        if active is not None or not self._timeline.is_archived(requested_time):
            return active
        if self._read_from is None:
            self._read(requested_time, None)
        elif requested_time < self._read_from:
            self._read("", self._read_from)
        return self._archived.get(requested_time)

    def _read(self, begin: str, end: str | None) -> None:
        times = archived_times(self._storage, self._properties, begin=begin or None, end=end)
        writes = times.filter(pc.is_in(times["action"], pa.array(sorted(WRITE_ACTIONS))))
        requested = writes["requested_time"].to_pylist()
        self._archived.update(zip(requested, writes["completion_time"].to_pylist(), strict=True))
        self._read_from = begin


def _planned(
    storage: Storage, properties: TableProperties, pending: Timeline
) -> dict[FileGroupId, str]:
    planned: dict[FileGroupId, str] = {}
    for instant in pending:
        plan = load_compaction_plan(storage, properties, instant)
        for operation in plan.operations or ():
            id_ = FileGroupId(operation.partition_path or "", operation.file_id or "")
            planned[id_] = instant.requested_time
    return planned
