"""Cleaner plans and what a clean deleted.

Version 2 of the plan holds full paths, version 2 of the metadata holds file names. A clean by file
versions retains no earliest instant: the plan has None and the metadata an empty text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from lakewright.format.records.model import AvroRecord

__all__ = [
    "ActionInstant",
    "CleanFileInfo",
    "CleanMetadata",
    "CleanPartitionMetadata",
    "CleanerPlan",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionInstant(AvroRecord):
    """An instant as a plan names it."""

    avro_name: ClassVar[str] = "HoodieActionInstant"

    timestamp: str
    action: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanFileInfo(AvroRecord):
    """One file to delete, by its full path."""

    avro_name: ClassVar[str] = "HoodieCleanFileInfo"

    file_path: str | None = None
    is_bootstrap_base_file: bool | None = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerPlan(AvroRecord):
    """What a clean is to delete."""

    avro_name: ClassVar[str] = "HoodieCleanerPlan"

    earliest_instant_to_retain: ActionInstant | None = None
    last_completed_commit_timestamp: str = ""
    policy: str
    files_to_be_deleted_per_partition: Mapping[str, Sequence[str]] | None = field(
        default_factory=dict
    )
    version: int | None = 2
    file_paths_to_be_deleted_per_partition: Mapping[str, Sequence[CleanFileInfo]] | None = field(
        default_factory=dict
    )
    partitions_to_be_deleted: Sequence[str] | None = field(default_factory=list)
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPartitionMetadata(AvroRecord):
    """What a clean did in one partition."""

    avro_name: ClassVar[str] = "HoodieCleanPartitionMetadata"

    partition_path: str
    policy: str
    delete_path_patterns: Sequence[str]
    success_delete_files: Sequence[str]
    failed_delete_files: Sequence[str]
    is_partition_deleted: bool | None = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanMetadata(AvroRecord):
    """What a clean did."""

    avro_name: ClassVar[str] = "HoodieCleanMetadata"

    start_clean_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    earliest_commit_to_retain: str
    last_completed_commit_timestamp: str = ""
    partition_metadata: Mapping[str, CleanPartitionMetadata]
    version: int | None = 2
    bootstrap_partition_metadata: Mapping[str, CleanPartitionMetadata] | None = field(
        default_factory=dict
    )
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)
