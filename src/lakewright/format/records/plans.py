"""Compaction and clustering plans, as their `.requested` files hold them.

A compaction plan of version 2 names files relative to their partition; a clustering plan holds full
paths, possibly of another machine. `file_name` cuts any of them to the last segment, which together
with the partition finds the file wherever the table lies now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from lakewright.format.records.model import AvroRecord

__all__ = [
    "ClusteringGroup",
    "ClusteringPlan",
    "ClusteringStrategy",
    "CompactionOperation",
    "CompactionPlan",
    "CompactionStrategy",
    "RequestedReplaceMetadata",
    "SliceInfo",
    "file_name",
]


def file_name(path: str | None) -> str | None:
    """Last segment of a stored path; None for none and for the empty text that also means none."""
    return (path or "").rsplit("/", 1)[-1] or None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOperation(AvroRecord):
    """One file slice to compact."""

    avro_name: ClassVar[str] = "HoodieCompactionOperation"

    base_instant_time: str | None
    delta_file_paths: Sequence[str] | None = field(default_factory=list)
    data_file_path: str | None = None
    file_id: str | None
    partition_path: str | None = None
    metrics: Mapping[str, float] | None = None
    bootstrap_file_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStrategy(AvroRecord):
    """How a log compaction is to be executed."""

    avro_name: ClassVar[str] = "HoodieCompactionStrategy"

    compactor_class_name: str | None = None
    strategy_params: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan(AvroRecord):
    """What a compaction or log compaction is to do."""

    avro_name: ClassVar[str] = "HoodieCompactionPlan"

    operations: Sequence[CompactionOperation] | None = None
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)
    version: int | None = 2
    strategy: CompactionStrategy | None = None
    preserve_hoodie_metadata: bool | None = False
    missing_schedule_partitions: Sequence[str] | None = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceInfo(AvroRecord):
    """One file slice to cluster."""

    avro_name: ClassVar[str] = "HoodieSliceInfo"

    data_file_path: str | None = None
    delta_file_paths: Sequence[str] | None = field(default_factory=list)
    file_id: str | None
    partition_path: str | None = None
    bootstrap_file_path: str | None = ""
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringGroup(AvroRecord):
    """File slices that are rewritten together."""

    avro_name: ClassVar[str] = "HoodieClusteringGroup"

    slices: Sequence[SliceInfo] | None = None
    metrics: Mapping[str, float] | None = None
    num_output_file_groups: int | None = 1
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringStrategy(AvroRecord):
    """How a clustering is to be executed."""

    avro_name: ClassVar[str] = "HoodieClusteringStrategy"

    strategy_class_name: str | None = None
    strategy_params: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringPlan(AvroRecord):
    """What a clustering is to do."""

    avro_name: ClassVar[str] = "HoodieClusteringPlan"

    input_groups: Sequence[ClusteringGroup] | None = None
    strategy: ClusteringStrategy | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 1
    preserve_hoodie_metadata: bool | None = True
    missing_schedule_partitions: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedReplaceMetadata(AvroRecord):
    """A requested replacecommit or clustering; all None for an overwrite, which has no plan."""

    avro_name: ClassVar[str] = "HoodieRequestedReplaceMetadata"

    operation_type: str | None = None
    clustering_plan: ClusteringPlan | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = None

    @classmethod
    def read(cls, data: bytes, *, path: str = "") -> Self:
        """The request; an empty file reads as one without a plan."""
        if not data:
            return cls()
        return super(RequestedReplaceMetadata, cls).read(data, path=path)
