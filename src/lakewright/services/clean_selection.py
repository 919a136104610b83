"""Which file slices of one file group a clean deletes. Pure: slices in, slices out.

The policy proposes, protections dispose. A policy never proposes the newest slice of a live group,
nor (by commits and hours) the newest slice older than the retained moment, which queries of that
moment read. Whatever it proposes stays if a savepoint or a pending plan names one of its files, or
if a write that is alive now may have begun with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lakewright.format.file_slices import DataFile, FileGroup, FileGroupId, FileSlice
from lakewright.services.clean_options import CleanOptions

__all__ = ["Protection", "Selection", "by_partition", "files_of", "select_slices"]

CompletedAt = Callable[[str], str]
"""When the write of a requested time took effect."""
_NO_NAMES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Protection:
    """What somebody still needs, whatever the policy says."""

    savepointed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """File names that savepoints keep, by partition."""
    planned: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """File names that pending plans of all kinds are going to read, by partition."""
    compacting: Mapping[FileGroupId, str] = field(default_factory=dict)
    """Base instant of the slice that a pending (log) compaction of a group reads."""
    live: frozenset[str] = frozenset()
    """Times of the writes that are alive now."""


@dataclass(slots=True)
class Selection:
    """What a clean deletes of one group, or of several."""

    files: list[DataFile] = field(default_factory=list)
    held_back: bool = False
    """Something old stays only because it is in use now, so a later clean has to look again."""


def select_slices(
    group: FileGroup,
    options: CleanOptions,
    retained: str | None,
    protection: Protection,
    completed_at: CompletedAt,
    selection: Selection,
) -> None:
    """Add what goes of a group to a selection; `retained` is None for cleans by versions."""
    partition = group.id.partition
    savepointed = protection.savepointed.get(partition, _NO_NAMES)
    planned = protection.planned.get(partition, _NO_NAMES)
    compacting = protection.compacting.get(group.id)
    in_use: set[str] | None = None
    for slice_ in _proposed(group, options, retained, compacting):
        files = files_of(slice_)
        if any(file.name in savepointed for file in files):
            continue
        if in_use is None:
            in_use = _in_use(group, protection.live, completed_at)
        if (
            slice_.base_instant in in_use
            or any(file.name in planned for file in files)
            or (compacting is not None and slice_.base_instant >= compacting)
        ):
            selection.held_back = selection.held_back or bool(files)
            continue
        selection.files.extend(files)


def files_of(slice_: FileSlice) -> list[DataFile]:
    """Every file of a slice, change logs included."""
    base: list[DataFile] = [] if slice_.base is None else [slice_.base]
    return [*base, *slice_.logs, *slice_.cdc_logs]


def by_partition(groups: Mapping[FileGroupId, str]) -> dict[str, dict[FileGroupId, str]]:
    """What is said of file groups, by partition."""
    found: dict[str, dict[FileGroupId, str]] = {}
    for id_, said in groups.items():
        found.setdefault(id_.partition, {})[id_] = said
    return found


def _proposed(
    group: FileGroup, options: CleanOptions, retained: str | None, compacting: str | None
) -> Sequence[FileSlice]:
    """Slices that the policy lets go."""
    slices = group.slices
    if group.replaced_at is not None:
        return slices if retained is None or group.replaced_at < retained else ()
    if retained is not None:
        # An empty slice is one that a compaction is going to make; nobody reads it.
        return [s for s in slices if s.base_instant < retained and not s.is_empty][1:]
    if compacting is None:
        return slices[options.file_versions_retained :]
    # What the compaction reads counts as the version that it is going to make.
    free = [s for s in slices if s.base_instant < compacting]
    return free[options.file_versions_retained - 1 :]


def _in_use(group: FileGroup, live: frozenset[str], completed_at: CompletedAt) -> set[str]:
    """Base instants of slices that a write may read which is alive."""
    return {instant for began in live for instant in _seen_at(group, began, completed_at)}


def _seen_at(group: FileGroup, moment: str, completed_at: CompletedAt) -> Iterator[str]:
    """Base instants of slices that were the newest at a moment.

    What was seen is told by completion times; requested times are honoured too, because clocks of
    other writers and copied files may say something else.
    """
    replaced = group.replaced_at
    if replaced is not None and max(replaced, completed_at(replaced)) <= moment:
        return
    for taken in (completed_at, _requested):
        for slice_ in group.slices:
            if slice_.is_empty or taken(slice_.base_instant) > moment:
                continue
            yield slice_.base_instant
            if slice_.base is not None:
                break


def _requested(instant: str) -> str:
    return instant
