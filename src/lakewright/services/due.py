"""Whether a service would find something to do, told by the timeline and a few small files of it.

Asked after every commit and by `health`, so no partition is listed here and no lock is taken. The
answers err on the side of yes: a clean or an archive run that is begun looks closely by itself.
What makes files old is a new version of a base file, a compaction or a replacement; a table that
only grows is never cleaned for nothing.
"""

from __future__ import annotations

from typing import Final

from lakewright.errors import NotFoundError
from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.instant import Instant
from lakewright.format.instant_times import time_ms
from lakewright.format.records import CommitMetadata, WriteStat, load_commit_metadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.services.archive_options import ArchiveOptions
from lakewright.services.clean_basis import previous_clean
from lakewright.services.clean_options import CleanOptions
from lakewright.services.clean_plan import CleanBasis, instant_to_retain, instants_to_visit
from lakewright.services.clean_plan import is_due as clean_is_due
from lakewright.services.compaction_plan import (
    CompactionOptions,
    is_due,
    writes_since_compaction,
)
from lakewright.services.full_scans import full_scan_demands
from lakewright.storage.base import Storage
from lakewright.txn.access import Access

__all__ = ["archive_may_find", "clean_may_find", "compaction_is_due", "compaction_may_find"]

_NO_PREVIOUS: Final = (None, "", "null")


# ---- compaction --------------------------------------------------------------------------------


def compaction_is_due(
    properties: TableProperties, timeline: Timeline, options: CompactionOptions, *, now_ms: int
) -> bool:
    """Whether the trigger says so."""

    def ms_of(instant: str) -> int:
        found = time_ms(instant, zone=properties.timeline_zone)
        return now_ms if found is None else found

    return is_due(
        timeline,
        options,
        by_completion=properties.version.slices_by_completion_time,
        now_ms=now_ms,
        ms_of=ms_of,
    )


def compaction_may_find(
    access: Access, properties: TableProperties, timeline: Timeline, options: CompactionOptions
) -> bool:
    """Whether a compaction is due and a write since the last one has left a log."""
    if not properties.is_merge_on_read:
        return False
    if not compaction_is_due(properties, timeline, options, now_ms=access.clock.now_ms()):
        return False
    by_completion = properties.version.slices_by_completion_time
    since = writes_since_compaction(timeline, by_completion=by_completion)
    stats = (
        stat
        for instant in reversed(since)
        for stat in _metadata(access.storage, properties, instant).write_stats
    )
    return any(_is_log(stat) for stat in stats)


# ---- cleaning ----------------------------------------------------------------------------------


def clean_may_find(
    access: Access, properties: TableProperties, timeline: Timeline, options: CleanOptions
) -> bool:
    """Whether a clean is pending, or files have become old since the last one."""
    if timeline.filter_actions("clean").pending().first() is not None:
        return True
    basis = CleanBasis(
        timeline=timeline,
        version=properties.version,
        zone=properties.timeline_zone,
        now_ms=access.clock.now_ms(),
        completion_time_of=timeline.completion_time_of,
        merge_on_read=properties.is_merge_on_read,
        previous=previous_clean(access.storage, properties, timeline),
        full_scans=full_scan_demands(access.storage),
    )
    retained = instant_to_retain(basis, options)
    if not clean_is_due(basis, options) or (retained is None and not options.by_versions):
        return False
    if basis.full_scans:
        return True
    return any(
        _makes_old(instant, _metadata(access.storage, properties, instant), basis)
        for instant in reversed(_looked_into(basis, options, retained))
    )


def _looked_into(
    basis: CleanBasis, options: CleanOptions, retained: Instant | None
) -> tuple[Instant, ...]:
    """Completed writes that the next clean would look into."""
    visited = instants_to_visit(basis, options, retained)
    if visited is not None:
        return visited
    end = None if retained is None else retained.requested_time
    completed = basis.timeline.commits().completed().instants
    return tuple(i for i in completed if end is None or i.requested_time <= end)


def _makes_old(instant: Instant, metadata: CommitMetadata, basis: CleanBasis) -> bool:
    if metadata.partition_to_replace_file_ids:
        return True
    if basis.merge_on_read and instant.action == "commit":
        return True
    stats = metadata.write_stats
    return any(stat.prev_commit not in _NO_PREVIOUS and not _is_log(stat) for stat in stats)


# ---- archiving ---------------------------------------------------------------------------------


def archive_may_find(
    properties: TableProperties, timeline: Timeline, options: ArchiveOptions
) -> bool:
    """Whether there are more instants of a kind than should stay."""
    counted = [len(timeline.commits().completed())]
    if not properties.version.history_is_lsm:
        services = (timeline.filter_actions(action) for action in ("clean", "rollback"))
        counted.extend(len(service.completed()) for service in services)
    return max(counted) > options.keep_max_commits


# ---- parts -------------------------------------------------------------------------------------


def _metadata(storage: Storage, properties: TableProperties, instant: Instant) -> CommitMetadata:
    """What a commit says; nothing if it was archived meanwhile."""
    try:
        return load_commit_metadata(storage, properties, instant)
    except NotFoundError:
        return CommitMetadata()


def _is_log(stat: WriteStat) -> bool:
    name = (stat.path or "").rpartition("/")[2]
    return isinstance(parse_data_file(name), LogFileName)
