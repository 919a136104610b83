"""The files that completed instants wrote, out of a listing of folders.

What a running or failed write left is not among them. Where a log file's name does not tell which
write it is of, its blocks do.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from lakewright.engine.snapshot import Snapshot
from lakewright.format.file_names import BaseFileName, LogFileName, parse_data_file
from lakewright.format.log_block import BlockType, read_blocks
from lakewright.format.partitions import ListedFile

__all__ = ["CountingBlocks", "DataFile", "committed_files", "listed_folders"]


class DataFile(NamedTuple):
    """A data file of a partition."""

    partition: str
    name: str
    size: int

    @property
    def path(self) -> str:
        """Its place below the table."""
        return f"{self.partition}/{self.name}" if self.partition else self.name

    @property
    def is_base(self) -> bool:
        """Whether it is a base file, and not a log."""
        return isinstance(parse_data_file(self.name), BaseFileName)


def listed_folders(snapshot: Snapshot) -> Mapping[str, Sequence[ListedFile]]:
    """The files of all partitions of a snapshot."""
    return snapshot.opened.listing.files(snapshot.opened.listing.partitions())


def committed_files(
    snapshot: Snapshot, told: Container[tuple[str, str]] = frozenset()
) -> list[DataFile]:
    """Files of completed instants; those that were `told` of (partition, name) are not opened."""
    return [
        file
        for partition, files in listed_folders(snapshot).items()
        for file in (DataFile(partition, f.name, f.size) for f in files)
        if file[:2] in told or _is_committed(snapshot, file)
    ]


class CountingBlocks:
    """Which blocks of logs count: those of completed writes that no rollback has taken back.

    Where a rollback leaves blocks behind, command blocks in the same file group name their write.
    Once that is older than the timeline nothing else tells it from a completed one.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._timeline = snapshot.timeline
        self._cancelled: set[tuple[str, str, str]] = set()
        if snapshot.properties.version.rollback_by_log_block:
            for partition, files in listed_folders(snapshot).items():
                for file in files:
                    self._look(snapshot, DataFile(partition, file.name, file.size))

    def _look(self, snapshot: Snapshot, file: DataFile) -> None:
        if isinstance(parse_data_file(file.name), LogFileName):
            for block in read_blocks(snapshot.storage.read(file.path), path=file.path):
                if block.type is BlockType.COMMAND:
                    self._cancelled.add((*_group(file.path), block.target_instant or ""))

    def __call__(self, path: str, instant: str) -> bool:
        """Whether the blocks of an instant in a log file count."""
        known = self._timeline.contains_completed_or_archived(instant)
        return known and (*_group(path), instant) not in self._cancelled


def _group(path: str) -> tuple[str, str]:
    """The partition and the file group of a data file."""
    partition, _, name = path.rpartition("/")
    parsed = parse_data_file(name)
    return partition, "" if parsed is None else parsed.file_id


def _is_committed(snapshot: Snapshot, file: DataFile) -> bool:
    parsed = parse_data_file(file.name)
    if parsed is None:
        return True
    timeline = snapshot.timeline
    known = timeline.contains_completed_or_archived(parsed.instant)
    named = not snapshot.properties.version.filters_blocks_by_timeline
    if named or file.is_base or not timeline.pending():
        return known
    # A log behind a compaction that is only planned has the time of that.
    plans = {plan.requested_time for plan in timeline.pending_compactions()}
    if not known and parsed.instant not in plans:
        return False
    blocks = read_blocks(snapshot.storage.read(file.path), path=file.path)
    return any(timeline.contains_completed_or_archived(b.instant or "") for b in blocks)
