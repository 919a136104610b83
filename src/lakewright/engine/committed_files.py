"""The files that completed instants wrote, out of a listing of folders.

What a running or failed write left is not among them. Where a log file's name does not tell which
write it is of, its blocks do.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from lakewright.engine.snapshot import Snapshot
from lakewright.format.file_names import BaseFileName, parse_data_file
from lakewright.format.log_block import read_blocks
from lakewright.format.partitions import ListedFile

__all__ = ["DataFile", "committed_files", "listed_folders"]


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
