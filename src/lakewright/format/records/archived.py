"""Records of the archived timeline of version 6: one entry per state file, and the merge plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lakewright.format.records.cleaning import CleanerPlan, CleanMetadata
from lakewright.format.records.commit import CommitMetadata, WriteStat
from lakewright.format.records.model import AvroRecord
from lakewright.format.records.plans import CompactionPlan, RequestedReplaceMetadata
from lakewright.format.records.rollback import RollbackMetadata
from lakewright.format.records.savepoint import IndexCommitMetadata, SavepointMetadata

__all__ = [
    "ArchivedMetaEntry",
    "CompactionMetadata",
    "CompactionWriteStat",
    "MergeArchiveFilePlan",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionWriteStat(AvroRecord):
    """A field of old archives that no release fills."""

    avro_name: ClassVar[str] = "HoodieCompactionWriteStat"

    partition_path: str | None = None
    total_log_records: int | None = None
    total_log_files: int | None = None
    total_updated_records_compacted: int | None = None
    hoodie_write_stat: WriteStat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionMetadata(AvroRecord):
    """A field of old archives that no release fills."""

    avro_name: ClassVar[str] = "HoodieCompactionMetadata"

    partition_to_compaction_write_stats: Mapping[str, Sequence[CompactionWriteStat]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedMetaEntry(AvroRecord):
    """One archived state file; of the nested records at most one is filled."""

    avro_name: ClassVar[str] = "HoodieArchivedMetaEntry"

    hoodie_commit_metadata: CommitMetadata | None = None
    hoodie_clean_metadata: CleanMetadata | None = None
    hoodie_compaction_metadata: CompactionMetadata | None = None
    hoodie_rollback_metadata: RollbackMetadata | None = None
    hoodie_save_point_metadata: SavepointMetadata | None = None
    commit_time: str | None = None
    action_type: str | None = None
    version: int | None = None
    hoodie_compaction_plan: CompactionPlan | None = None
    hoodie_cleaner_plan: CleanerPlan | None = None
    action_state: str | None = None
    hoodie_replace_commit_metadata: CommitMetadata | None = None
    hoodie_requested_replace_metadata: RequestedReplaceMetadata | None = None
    hoodie_inflight_replace_metadata: CommitMetadata | None = None
    hoodie_index_commit_metadata: IndexCommitMetadata | None = None
    state_transition_time: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeArchiveFilePlan(AvroRecord):
    """Small archive files that are being merged into one."""

    avro_name: ClassVar[str] = "HoodieMergeArchiveFilePlan"

    version: int | None = 1
    candidate: Sequence[str] | None = None
    merged_archive_file_name: str | None = None
