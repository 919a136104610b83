"""Rollback and restore: what is to be undone, and what was.

Paths are full paths. Version 6 undoes log data by command blocks in new log files
(`rollback_log_files`); later versions delete the log files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from lakewright.format.records.model import AvroRecord

__all__ = [
    "InstantInfo",
    "RestoreMetadata",
    "RestorePlan",
    "RollbackMetadata",
    "RollbackPartitionMetadata",
    "RollbackPlan",
    "RollbackRequest",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstantInfo(AvroRecord):
    """An instant that is rolled back."""

    avro_name: ClassVar[str] = "HoodieInstantInfo"

    commit_time: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest(AvroRecord):
    """One file to delete, or one file group whose log blocks are undone."""

    avro_name: ClassVar[str] = "HoodieRollbackRequest"

    partition_path: str
    file_id: str | None = ""
    latest_base_instant: str | None = ""
    files_to_be_deleted: Sequence[str] = field(default_factory=list)
    log_blocks_to_be_deleted: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan(AvroRecord):
    """What a rollback is to undo."""

    avro_name: ClassVar[str] = "HoodieRollbackPlan"

    instant_to_rollback: InstantInfo | None = None
    rollback_requests: Sequence[RollbackRequest] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPartitionMetadata(AvroRecord):
    """What a rollback did in one partition."""

    avro_name: ClassVar[str] = "HoodieRollbackPartitionMetadata"

    partition_path: str
    success_delete_files: Sequence[str]
    failed_delete_files: Sequence[str]
    rollback_log_files: Mapping[str, int] | None = field(default_factory=dict)
    log_files_from_failed_commit: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackMetadata(AvroRecord):
    """What a rollback did."""

    avro_name: ClassVar[str] = "HoodieRollbackMetadata"

    start_rollback_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    commits_rollback: Sequence[str]
    partition_metadata: Mapping[str, RollbackPartitionMetadata]
    version: int | None = 1
    instants_rollback: Sequence[InstantInfo] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan(AvroRecord):
    """What a restore is to undo."""

    avro_name: ClassVar[str] = "HoodieRestorePlan"

    instants_to_rollback: Sequence[InstantInfo] = field(default_factory=list)
    version: int | None = 2
    savepoint_to_restore_timestamp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreMetadata(AvroRecord):
    """What a restore did, by rolled-back instant."""

    avro_name: ClassVar[str] = "HoodieRestoreMetadata"

    start_restore_time: str
    time_taken_in_millis: int
    instants_to_rollback: Sequence[str]
    hoodie_restore_metadata: Mapping[str, Sequence[RollbackMetadata | None]]
    version: int | None = 1
    restore_instant_info: Sequence[InstantInfo] = field(default_factory=list)
