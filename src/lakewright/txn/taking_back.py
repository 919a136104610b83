"""Taking back a file that was published too late: its instant is over.

A file of its own name goes. A log that version 6 put behind an older slice is different, because
the plan of a compaction may name it by now and must find it: once the write is rolled back for
sure it stays, and its blocks are cancelled as a rollback cancels them. The process that was going
to commit is sure of that. Of a write that is being committed nothing may be cancelled; what a late
task attempt published beside it goes.
"""

from __future__ import annotations

from typing import Final

from lakewright.errors import AlreadyExistsError, FormatError, NotFoundError
from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.instant import Instant, parse_instant_name
from lakewright.format.log_block import rollback_block
from lakewright.format.records import RollbackPlan
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage
from lakewright.txn.fence import Fence
from lakewright.txn.log_names import command_log_names
from lakewright.txn.markers import Marker, MarkerType

__all__ = ["take_back"]

_LAYOUT: Final = 1
"""The timeline layout of the versions that append to older slices."""
_ROLLBACK_PLAN: Final = ".rollback.requested"


def take_back(storage: Storage, fence: Fence, marker: Marker) -> None:
    """Undo the publishing of the file that `marker` announced."""
    name = parse_data_file(marker.file_name)
    appended = marker.type is MarkerType.APPEND and isinstance(name, LogFileName)
    if appended and isinstance(name, LogFileName) and name.instant != fence.instant:
        folder = fence.pending_path.rpartition("/")[0]
        if fence.own or _is_rolled_back(storage, folder, fence.instant):
            command = _cancelled(storage, marker.partition, name, fence.instant)
            if not _is_gone(storage, folder, name.instant):
                return
            storage.delete(command)
    storage.delete(marker.data_path)


def _cancelled(storage: Storage, partition: str, name: LogFileName, instant: str) -> str:
    """Write the command block behind a log; its path."""
    block = rollback_block(instant=instant, target=instant)
    for command in command_log_names(storage, partition, name.file_id, name.instant):
        path = f"{partition}/{command}" if partition else command
        try:
            storage.create_if_absent(path, block)
        except AlreadyExistsError:
            continue
        return path
    raise AssertionError("there is always a next name")


def _is_rolled_back(storage: Storage, folder: str, instant: str) -> bool:
    """Whether a write can never be committed: it was taken off the timeline, or is about to be."""
    if _is_gone(storage, folder, instant):
        return True
    plans = (name for name in storage.names(folder) if name.endswith(_ROLLBACK_PLAN))
    return any(_target(storage, f"{folder}/{name}") == instant for name in plans)


def _target(storage: Storage, path: str) -> str | None:
    try:
        info = RollbackPlan.read(storage.read(path), path=path).instant_to_rollback
    except (FormatError, NotFoundError):
        return None
    return info.commit_time if info is not None else None


def _is_gone(storage: Storage, folder: str, instant: str) -> bool:
    """Whether an instant was taken off the timeline, and not archived."""
    parsed = ((name, parse_instant_name(name, _LAYOUT)) for name in storage.names(folder))
    timeline = Timeline.of(Instant(*found, name) for name, found in parsed if found is not None)
    return timeline.get(instant) is None and not timeline.is_archived(instant)
