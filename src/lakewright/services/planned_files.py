"""The files that pending plans are going to read, by partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from lakewright.format.records import CompactionPlan, RequestedReplaceMetadata, file_name

__all__ = ["PlannedFiles", "files_of_clustering", "files_of_compaction"]

PlannedFiles = dict[str, set[str]]
"""File names by partition."""


def files_of_compaction(plan: CompactionPlan) -> PlannedFiles:
    """What a compaction or log compaction reads."""
    found: PlannedFiles = {}
    for operation in plan.operations or ():
        paths = (operation.data_file_path, *(operation.delta_file_paths or ()))
        _add(found, operation.partition_path, paths)
    return found


def files_of_clustering(request: RequestedReplaceMetadata) -> PlannedFiles:
    """What a clustering reads."""
    found: PlannedFiles = {}
    groups = request.clustering_plan.input_groups if request.clustering_plan else None
    for group in groups or ():
        for slice_ in group.slices or ():
            paths = (slice_.data_file_path, *(slice_.delta_file_paths or ()))
            _add(found, slice_.partition_path, paths)
    return found


def _add(found: PlannedFiles, partition: str | None, paths: Iterable[str | None]) -> None:
    names = (file_name(path) for path in paths)
    found.setdefault(partition or "", set()).update(name for name in names if name)
