"""What a metadata table is: its indexes, how far it is, what is pending, how large it is.

Names and sizes only: no file of an index is opened. A metadata table that cannot be trusted is
described all the same, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakewright.errors import FormatError, NotFoundError
from lakewright.format.file_names import BaseFileName, parse_data_file
from lakewright.format.partitions import list_files
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.definitions import IndexDefinition, load_definitions
from lakewright.metadata.table import METADATA_FOLDER, MetadataTable
from lakewright.metadata.validity import check_fresh
from lakewright.storage.base import Storage

__all__ = ["IndexSummary", "MetadataSummary", "describe_metadata"]


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """One index, which is a partition of the metadata table."""

    index: str
    built: bool
    """Whether it may be read; otherwise it is being built, and writers keep it up to date."""
    columns: tuple[str, ...]
    """Columns that it is about; empty where no definition tells."""
    per_partition: bool
    """Whether it is a record index that keeps keys per partition."""
    file_groups: int
    base_files: int
    log_files: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """The index as plain values."""
        return {
            "index": self.index,
            "state": "built" if self.built else "being built",
            "file_groups": self.file_groups,
            "base_files": self.base_files,
            "log_files": self.log_files,
            "bytes": self.bytes,
            "columns": list(self.columns),
            "per_partition": self.per_partition,
        }


@dataclass(frozen=True, slots=True)
class MetadataSummary:
    """A metadata table; `problem` is why it is not used, None if it is."""

    table: str
    version: str
    indexes: tuple[IndexSummary, ...]
    synced_to: str | None
    """The newest completed instant of the table that the metadata table has."""
    last_commit: str | None
    """The newest completed write of the table."""
    last_compaction: str | None
    commits_since_compaction: int
    pending: tuple[str, ...]
    """Pending instants of the metadata table's own timeline."""
    problem: str | None

    @property
    def bytes(self) -> int:
        """Bytes of all files of all indexes."""
        return sum(index.bytes for index in self.indexes)

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain values."""
        return {
            "table": self.table,
            "version": self.version,
            "trusted": self.problem is None,
            "problem": self.problem,
            "synced to": self.synced_to,
            "last commit": self.last_commit,
            "last compaction": self.last_compaction,
            "commits since": self.commits_since_compaction,
            "pending": list(self.pending),
            "bytes": self.bytes,
            "indexes": [index.to_dict() for index in self.indexes],
        }

    def __str__(self) -> str:
        lines = [
            f"metadata table of {self.table}, version {self.version}, {self.bytes:,} bytes",
            f"  trusted     {'yes' if self.problem is None else 'no: ' + self.problem}",
            f"  synced to   {self.synced_to or 'nothing'} (last commit {self.last_commit})",
            f"  compaction  {self.last_compaction or 'none yet'}, "
            f"{self.commits_since_compaction} commits since",
            f"  pending     {', '.join(self.pending) or 'nothing'}",
        ]
        for index in self.indexes:
            state = ", per partition" if index.per_partition else ""
            state += "" if index.built else ", being built"
            files = f"{index.base_files} base and {index.log_files} log files"
            lines.append(
                f"  {index.index}: {index.file_groups} file groups, {files}, "
                f"{index.bytes:,} bytes{state}"
            )
        return "\n".join(lines)


def describe_metadata(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> MetadataSummary | None:
    """The metadata table of a table; None if the table has none."""
    listed = [(name, True) for name in properties.metadata_partitions]
    listed += [(name, False) for name in properties.metadata_partitions_inflight]
    if not listed:
        return None
    own, problem = _own_timeline(storage, properties, timeline)
    known = {i.requested_time for i in own.completed()}
    synced = [i.requested_time for i in timeline.completed() if i.requested_time in known]
    last = timeline.last_completed_commit()
    compactions = [i.requested_time for i in own.completed() if i.action == "commit"]
    compacted = max(compactions, default=None)
    deltas = own.completed().filter_actions("deltacommit")
    definitions = load_definitions(storage, properties)
    return MetadataSummary(
        table=properties.name,
        version=str(properties.version),
        indexes=tuple(_index(storage, name, built, definitions) for name, built in listed),
        synced_to=max(synced, default=None),
        last_commit=last.requested_time if last else None,
        last_compaction=compacted,
        commits_since_compaction=sum(i.requested_time > (compacted or "") for i in deltas),
        pending=tuple(f"{i.requested_time}.{i.action}" for i in own.pending()),
        problem=problem,
    )


def _own_timeline(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> tuple[Timeline, str | None]:
    """The metadata table's timeline, and why it is not trusted."""
    own = Timeline(())
    try:
        opened = MetadataTable.open(storage, properties, timeline, check=False)
        if opened is None:
            return own, "its list of files is not built yet"
        own = opened.timeline
        check_fresh(storage, properties, timeline, own)
        opened.partitions()
    except (FormatError, NotFoundError) as error:
        return own, error.message
    return own, None


def _index(
    storage: Storage, name: str, built: bool, definitions: Mapping[str, IndexDefinition]
) -> IndexSummary:
    files = list_files(storage.child(METADATA_FOLDER), name)
    parsed = [parse_data_file(file.name) for file in files]
    bases = sum(isinstance(p, BaseFileName) for p in parsed)
    definition = definitions.get(name)
    return IndexSummary(
        index=name,
        built=built,
        columns=() if definition is None else definition.source_fields,
        per_partition=definition is not None and definition.is_partitioned,
        file_groups=len({p.file_id for p in parsed if p is not None}),
        base_files=bases,
        log_files=len(files) - bases,
        bytes=sum(file.size for file in files),
    )
