"""Which files the plan of a clean takes away, and what a table had before cleans took some.

A reader pins the timeline first and lists files later. A clean that is planned in between may take
away what the reader needs; a listing would then show less than the snapshot has, and nobody would
notice. So names of files that later cleans name are added to such a listing: what is needed of them
is missed when it is read.
"""

from __future__ import annotations

from lakewright.errors import CorruptFileError, NotFoundError, UnsupportedTableError
from lakewright.format.file_names import parse_data_file
from lakewright.format.partitions import ListedFile
from lakewright.format.records import CleanerPlan, file_name, load_cleaner_plan
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline, load_timeline
from lakewright.storage.base import Storage

__all__ = ["files_of_plan", "with_cleaned_later"]

_CLEAN = "clean"
Listing = dict[str, list[ListedFile]]


def with_cleaned_later(
    storage: Storage, properties: TableProperties, pinned: Timeline, listing: Listing
) -> Listing:
    """A listing that was made after a timeline was pinned, with files that cleans planned since
    then may have taken away; these have no size."""
    now = load_timeline(storage, properties)
    found = {partition: list(files) for partition, files in listing.items()}
    for clean in now.filter_actions(_CLEAN):
        if pinned.get(clean.requested_time, _CLEAN) is not None:
            continue
        try:
            plan = load_cleaner_plan(storage, properties, clean)
        except NotFoundError:
            continue  # it was taken back, or its plan was never written
        for partition, names in files_of_plan(plan).items():
            files = found.setdefault(partition, [])
            known = {file.name for file in files}
            files.extend(ListedFile(name, 0) for name in names if name not in known)
            files.sort()
    return found


def files_of_plan(plan: CleanerPlan) -> dict[str, list[str]]:
    """File names that a plan deletes, by partition; of plans of both versions."""
    found: dict[str, list[str]] = {}
    for partition, infos in (plan.file_paths_to_be_deleted_per_partition or {}).items():
        if any(info.is_bootstrap_base_file for info in infos):
            raise UnsupportedTableError(
                "The clean deletes source files of a bootstrapped table.",
                hint="Let Hudi execute this clean.",
                context={"partition": partition},
            )
        found.setdefault(partition, []).extend(_data_file(info.file_path) for info in infos)
    for partition, paths in (plan.files_to_be_deleted_per_partition or {}).items():
        known = found.setdefault(partition, [])
        known.extend(n for n in map(_data_file, paths) if n not in known)
    return found


def _data_file(path: str | None) -> str:
    name = file_name(path)
    if name is None or parse_data_file(name) is None:
        raise CorruptFileError(
            f"The plan of a clean names {path!r}, which is not a data file.",
            hint="Nothing was deleted. Look at the plan, and remove the clean if it is damaged.",
            context={"path": path or ""},
        )
    return name
