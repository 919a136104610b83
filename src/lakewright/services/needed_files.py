"""Which files readers of a state of the table need, and which of them a clean took or will take.

A state is a timeline: the one that is there, or the one that will be left after writes were taken
back. No clean deletes what the newest readers of its day need, so only cleans that came after the
first of these writes can have hurt the state. What they deleted is looked at as if it were still
there, so that a slice which has lost a file is found and not mistaken for an older one that is
whole. One partition is looked at after the other. Reads, never writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lakewright.errors import NotFoundError
from lakewright.format.cleaned_files import files_of_plan
from lakewright.format.file_slices import FileSlice, FileSystemView
from lakewright.format.instant import Instant
from lakewright.format.partitions import ListedFile, list_table
from lakewright.format.records import (
    CleanerPlan,
    CleanMetadata,
    file_name,
    load_cleaner_plan,
    load_record,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.format.view_inputs import (
    CompletionTimes,
    load_pending_compactions,
    load_replaced,
)
from lakewright.services.clean_selection import by_partition, files_of
from lakewright.storage.base import Storage
from lakewright.txn.access import Access

__all__ = [
    "Names",
    "Taken",
    "clean_record",
    "needed_files",
    "planned_clean",
    "taken_of",
]

Names = dict[str, list[str]]
"""File names by partition."""


def needed_files(
    storage: Storage,
    properties: TableProperties,
    timeline: Timeline,
    *,
    as_of: str | None = None,
    deleted: Mapping[str, Iterable[str]] | None = None,
) -> Names:
    """Every file that a reader of a state needs; `deleted` ones count as if they were there."""
    pending = by_partition(load_pending_compactions(storage, properties, timeline))
    replaced = load_replaced(storage, properties, timeline)
    completion_times = CompletionTimes(storage, properties, timeline)
    names: Names = {}
    for partition, files in _listed(storage, deleted or {}):
        view = FileSystemView.build(
            {partition: files},
            timeline=timeline,
            version=properties.version,
            pending_compactions=pending.get(partition, {}),
            replaced=replaced,
            completion_time_of=completion_times,
        )
        found = {file.name for slice_ in _slices(view, as_of) for file in files_of(slice_)}
        if found:
            names[partition] = sorted(found)
    return names


def _listed(
    storage: Storage, deleted: Mapping[str, Iterable[str]]
) -> Iterator[tuple[str, list[ListedFile]]]:
    table = list_table(storage)
    for partition in sorted({*table, *deleted}):
        files = table.get(partition, [])
        known = {file.name for file in files}
        files += [ListedFile(name, 0) for name in deleted.get(partition, ()) if name not in known]
        yield partition, files


def _slices(view: FileSystemView, as_of: str | None) -> Iterator[FileSlice]:
    yield from view.latest_merged_slices(as_of)
    yield from view.latest_slices(as_of)


# ---- what cleans take --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """A file of a state that a clean has deleted, or is going to delete."""

    clean: Instant
    partition: str
    name: str


def taken_of(
    access: Access, properties: TableProperties, cleans: Iterable[Instant], after: Timeline
) -> Taken | None:
    """A file that readers of the state `after` would miss; None if the state is whole."""
    taken = _taken(access, properties, cleans)
    if not taken:
        return None
    deleted: dict[str, set[str]] = {}
    for partition, name in taken:
        deleted.setdefault(partition, set()).add(name)
    needed = needed_files(access.storage, properties, after, deleted=deleted)
    for partition, names in needed.items():
        for name in names:
            clean = taken.get((partition, name))
            if clean is not None:
                return Taken(clean, partition, name)
    return None


def _taken(
    access: Access, properties: TableProperties, cleans: Iterable[Instant]
) -> dict[tuple[str, str], Instant]:
    """The clean that deleted a file, or will delete it, by partition and name."""
    taken: dict[tuple[str, str], Instant] = {}
    for clean in cleans:
        record = clean_record(access, properties, clean)
        for partition, names in _names_of(record).items():
            taken.update(((partition, name), clean) for name in names)
    return taken


def _names_of(record: CleanMetadata | CleanerPlan | None) -> Names:
    if record is None:
        return {}
    if isinstance(record, CleanerPlan):
        return files_of_plan(record)
    return {
        partition: [name for path in said.success_delete_files if (name := file_name(path))]
        for partition, said in record.partition_metadata.items()
    }


def clean_record(
    access: Access, properties: TableProperties, clean: Instant
) -> CleanMetadata | CleanerPlan | None:
    """What a clean did, or what it is going to do; None if that was never written."""
    if clean.completed:
        record = load_record(access.storage, properties, clean)
        if isinstance(record, CleanMetadata):
            return record
    return planned_clean(access, properties, clean)


def planned_clean(
    access: Access, properties: TableProperties, clean: Instant
) -> CleanerPlan | None:
    """The plan of a clean; None if its process died before it wrote one."""
    try:
        return load_cleaner_plan(access.storage, properties, clean)
    except NotFoundError:
        return None
