"""Typed records of the timeline: every plan and every metadata an instant file can hold.

Each record is a frozen value with `read(data, path=...)` and `write(version)`; `instants` finds and
reads the right file of an instant.
"""

from lakewright.format.records.archived import (
    ArchivedMetaEntry,
    CompactionMetadata,
    CompactionWriteStat,
    MergeArchiveFilePlan,
)
from lakewright.format.records.cleaning import (
    ActionInstant,
    CleanerPlan,
    CleanFileInfo,
    CleanMetadata,
    CleanPartitionMetadata,
)
from lakewright.format.records.commit import CommitMetadata, RuntimeStats, WriteStat
from lakewright.format.records.instants import (
    load_clean_metadata,
    load_cleaner_plan,
    load_commit_metadata,
    load_compaction_plan,
    load_plan,
    load_record,
    load_requested_replace,
    load_restore_plan,
    load_rollback_metadata,
    load_rollback_plan,
    load_savepoint,
    read_instant,
)
from lakewright.format.records.model import AvroRecord
from lakewright.format.records.plans import (
    ClusteringGroup,
    ClusteringPlan,
    ClusteringStrategy,
    CompactionOperation,
    CompactionPlan,
    CompactionStrategy,
    RequestedReplaceMetadata,
    SliceInfo,
    file_name,
)
from lakewright.format.records.rollback import (
    InstantInfo,
    RestoreMetadata,
    RestorePlan,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
)
from lakewright.format.records.savepoint import (
    IndexCommitMetadata,
    IndexPartitionInfo,
    IndexPlan,
    SavepointMetadata,
    SavepointPartitionMetadata,
)

__all__ = [
    "ActionInstant",
    "ArchivedMetaEntry",
    "AvroRecord",
    "CleanFileInfo",
    "CleanMetadata",
    "CleanPartitionMetadata",
    "CleanerPlan",
    "ClusteringGroup",
    "ClusteringPlan",
    "ClusteringStrategy",
    "CommitMetadata",
    "CompactionMetadata",
    "CompactionOperation",
    "CompactionPlan",
    "CompactionStrategy",
    "CompactionWriteStat",
    "IndexCommitMetadata",
    "IndexPartitionInfo",
    "IndexPlan",
    "InstantInfo",
    "MergeArchiveFilePlan",
    "RequestedReplaceMetadata",
    "RestoreMetadata",
    "RestorePlan",
    "RollbackMetadata",
    "RollbackPartitionMetadata",
    "RollbackPlan",
    "RollbackRequest",
    "RuntimeStats",
    "SavepointMetadata",
    "SavepointPartitionMetadata",
    "SliceInfo",
    "WriteStat",
    "file_name",
    "load_clean_metadata",
    "load_cleaner_plan",
    "load_commit_metadata",
    "load_compaction_plan",
    "load_plan",
    "load_record",
    "load_requested_replace",
    "load_restore_plan",
    "load_rollback_metadata",
    "load_rollback_plan",
    "load_savepoint",
    "read_instant",
]
