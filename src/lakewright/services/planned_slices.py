"""The file slices that the plan of a compaction names, with exactly its files."""

from __future__ import annotations

from collections.abc import Mapping

from lakewright.errors import CorruptFileError
from lakewright.format.file_names import (
    BaseFileName,
    LogFileName,
    log_order_key,
    parse_data_file,
)
from lakewright.format.file_slices import BaseFile, FileGroupId, FileSlice, LogFile
from lakewright.format.partitions import ListedFile, list_files
from lakewright.format.records import CompactionOperation, CompactionPlan, file_name
from lakewright.storage.base import Storage

__all__ = ["planned_slices"]


def planned_slices(storage: Storage, plan: CompactionPlan) -> tuple[FileSlice, ...]:
    """The slices of a plan, with exactly the files that it names."""
    operations = plan.operations or ()
    partitions = {o.partition_path or "" for o in operations}
    listed = {p: {f.name: f for f in list_files(storage, p)} for p in sorted(partitions)}
    return tuple(_slice(o, listed[o.partition_path or ""]) for o in operations)


def _slice(operation: CompactionOperation, listed: Mapping[str, ListedFile]) -> FileSlice:
    partition = operation.partition_path or ""
    group = FileGroupId(partition, operation.file_id or "")
    base, logs = None, []
    for path in filter(None, (operation.data_file_path, *(operation.delta_file_paths or ()))):
        file, name = _listed(path, listed)
        if isinstance(name, LogFileName):
            logs.append(LogFile.of(partition, file, name))
        else:
            base = BaseFile.of(partition, file, name)
    return FileSlice(
        group, operation.base_instant_time or "", base, tuple(sorted(logs, key=log_order_key))
    )


def _listed(
    path: str, listed: Mapping[str, ListedFile]
) -> tuple[ListedFile, BaseFileName | LogFileName]:
    name = file_name(path) or ""
    parsed = parse_data_file(name)
    if name not in listed or parsed is None:
        raise CorruptFileError(
            f"The file {name} of the plan is not there.",
            hint="Something deleted it that did not know of the plan. Nothing was changed; look at "
            "the cleans and rollbacks on the timeline.",
            context={"path": path},
        )
    return listed[name], parsed
