"""Which files an action of the table adds and removes, as a log of the `files` index.

Pure. A write names its files in its stats, a clean and a rollback in their metadata. Every write
tells its partitions to the list of partitions, even if there are none; a clean only those that it
removed. Replaced files stay listed until a clean deletes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakewright.format.records import CleanMetadata, CommitMetadata, RollbackMetadata, file_name
from lakewright.format.version import TableVersion
from lakewright.metadata.containers import GroupLog, data_block
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.file_groups import FILES, file_id
from lakewright.metadata.files import FILE_TABLE
from lakewright.metadata.payloads import file_list_records, partition_list_record

__all__ = [
    "FileChanges",
    "cancelled_logs",
    "cleaned_files",
    "deleted_files",
    "files_log",
    "files_records",
    "rollback_logs",
    "written_files",
]


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Files that came and went, by partition."""

    written: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Sizes by name."""
    removed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    partitions: tuple[str, ...] | None = None
    """Partitions that are there from now on; None: the action does not tell."""
    partitions_removed: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the metadata table has nothing to learn."""
        named = any(self.written.values()) or any(self.removed.values())
        return not named and self.partitions is None and not self.partitions_removed


def written_files(content: CommitMetadata) -> FileChanges:
    """The files of a write, change logs included; a file that is named twice has its last size."""
    written: dict[str, dict[str, int]] = {}
    for partition, stats in content.partition_to_write_stats.items():
        sizes = written.setdefault(partition, {})
        for stat in stats:
            own = [(stat.path, stat.file_size_in_bytes or stat.total_write_bytes or 0)]
            for path, size in (*own, *(stat.cdc_stats or {}).items()):
                if path:
                    name = path.rpartition("/")[2]
                    sizes[name] = max(size, sizes.get(name, 0))
    return FileChanges(written, partitions=tuple(sorted(p for p in written if written[p])))


def cleaned_files(metadata: CleanMetadata) -> FileChanges:
    """The files that a clean deleted."""
    found = metadata.partition_metadata or {}
    removed = {p: list(m.delete_path_patterns) for p, m in found.items()}
    gone = tuple(sorted(p for p, m in found.items() if m.is_partition_deleted))
    return FileChanges(removed=removed, partitions_removed=gone)


def rollback_logs(metadata: RollbackMetadata) -> FileChanges:
    """The log files that are there because of a rollback: its own, and those that it cancelled."""
    written: dict[str, dict[str, int]] = {}
    for partition, undone in metadata.partition_metadata.items():
        logs = {**(undone.log_files_from_failed_commit or {}), **(undone.rollback_log_files or {})}
        if logs:
            named = {file_name(path) or path: size for path, size in logs.items()}
            written[partition] = named
    return FileChanges(written)


def cancelled_logs(metadata: RollbackMetadata) -> dict[str, set[str]]:
    """Names of the log files that a rollback left, with blocks that it cancelled, by partition."""
    return {
        partition: {file_name(path) or path for path in undone.log_files_from_failed_commit}
        for partition, undone in metadata.partition_metadata.items()
        if undone.log_files_from_failed_commit
    }


def deleted_files(metadata: RollbackMetadata) -> dict[str, set[str]]:
    """Names of the files that a rollback deleted, by partition."""
    return {
        partition: {file_name(path) or path for path in undone.success_delete_files}
        for partition, undone in metadata.partition_metadata.items()
        if undone.success_delete_files
    }


def files_records(changes: FileChanges, *, version: TableVersion) -> MetadataRecords:
    """The changes as records, sorted by key."""
    parts = []
    if changes.partitions is not None or changes.partitions_removed:
        present, gone = changes.partitions or (), changes.partitions_removed
        parts.append(partition_list_record(present, gone, version=version))
    # One entry per file that came or went.
    rows: list[tuple[str, str, int | None]] = [
        (p, name, size) for p, sizes in changes.written.items() for name, size in sizes.items()
    ]
    rows += [(p, name, None) for p, names in changes.removed.items() for name in names]
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        parts.append(file_list_records(pa.table(columns, schema=FILE_TABLE), version=version))
    return MetadataRecords.joined(parts).sorted()


def files_log(changes: FileChanges, *, instant: str, version: TableVersion) -> GroupLog | None:
    """The log file of the changes; None if there are none."""
    if changes.is_empty:
        return None
    records = files_records(changes, version=version)
    content = data_block(records, instant=instant, version=version)
    return GroupLog(FILES, file_id(FILES, 0), content, len(records))
