"""Savepoints and index builds: the files a savepoint keeps, the partitions an indexing fills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lakewright.format.records.model import AvroRecord

__all__ = [
    "IndexCommitMetadata",
    "IndexPartitionInfo",
    "IndexPlan",
    "SavepointMetadata",
    "SavepointPartitionMetadata",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointPartitionMetadata(AvroRecord):
    """File names a savepoint keeps in one partition."""

    avro_name: ClassVar[str] = "HoodieSavepointPartitionMetadata"

    partition_path: str
    savepoint_data_file: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointMetadata(AvroRecord):
    """Who kept which files, and why; the time is epoch milliseconds."""

    avro_name: ClassVar[str] = "HoodieSavepointMetadata"

    savepointed_by: str
    savepointed_at: int
    comments: str
    partition_metadata: Mapping[str, SavepointPartitionMetadata]
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPartitionInfo(AvroRecord):
    """One partition of the metadata table and the instant up to which it is built."""

    avro_name: ClassVar[str] = "HoodieIndexPartitionInfo"

    version: int | None = 1
    metadata_partition_path: str | None = None
    index_upto_instant: str | None = None
    extra_metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlan(AvroRecord):
    """What an indexing is to build."""

    avro_name: ClassVar[str] = "HoodieIndexPlan"

    version: int | None = 1
    index_partition_infos: Sequence[IndexPartitionInfo] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCommitMetadata(AvroRecord):
    """What an indexing built."""

    avro_name: ClassVar[str] = "HoodieIndexCommitMetadata"

    version: int | None = 1
    operation_type: str | None = None
    index_partition_infos: Sequence[IndexPartitionInfo] | None = None
