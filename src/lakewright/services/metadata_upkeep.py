"""The metadata table's own services: compaction, then cleaning, then archiving, as for any table.

All under the lock of its table. How much it keeps follows from what its table keeps. Its timeline
must not begin after its table's: readers judge its records by both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from lakewright.errors import FormatError, NotFoundError
from lakewright.format.instant import COMMIT_ACTIONS
from lakewright.format.timeline import load_timeline
from lakewright.metadata.creation import is_beginning, metadata_properties
from lakewright.metadata.table import METADATA_FOLDER
from lakewright.runtime.events import Event
from lakewright.services.archive import run_archive
from lakewright.services.archive_options import ArchiveOptions
from lakewright.services.clean import run_clean
from lakewright.services.clean_options import CleanOptions
from lakewright.services.compaction_plan import writes_since_compaction
from lakewright.services.metadata_compaction import compact_metadata, metadata_compaction_is_due
from lakewright.services.metadata_options import MetadataUpkeep
from lakewright.txn.access import Access
from lakewright.txn.metadata_gate import has_metadata_table
from lakewright.txn.metadata_store import MetadataStore, open_store
from lakewright.txn.metadata_undo import finished
from lakewright.txn.restoring import pending_restore

__all__ = ["Tended", "tend_metadata_table"]

COMMITS_RETAINED_LEAST: Final = 20
MORE_THAN_DATA: Final = 1.2
_NOTHING: Final = ""


@dataclass(frozen=True, slots=True)
class Tended:
    """What was done to the metadata table."""

    compaction: str | None = None
    files_deleted: int = 0
    archived: int = 0


def tend_metadata_table(access: Access, upkeep: MetadataUpkeep) -> Tended:
    """Run what is due; nothing for a table without a metadata table, or while one is restored."""
    if not _may_be_due(access, upkeep):
        return Tended()
    with access.locked("services of the metadata table") as lease:
        properties = access.properties()
        timeline = access.timeline(properties)
        if not has_metadata_table(properties) or pending_restore(timeline) is not None:
            return Tended()
        store = open_store(access, lease, properties, timeline)
        due = metadata_compaction_is_due(store, upkeep.compact_commits)
        left = store.timeline.pending_compactions().first() is not None
        if not due and not left:
            return Tended()
        store = finished(store, lease)
        compaction = compact_metadata(store, lease, access.storage)
        store = store.looked_again()
        cleaned = run_clean(store.access, _clean_options(upkeep.clean))
        archived = run_archive(store.access, _archive_options(store, upkeep.archive)).archived
        access.clock.sleep(0.001)  # what its table requests next has a time of its own
    done = Tended(compaction, cleaned.files_deleted, archived)
    access.on_event(Event("metadata_table.tended", archived, unit="instants"))
    return done


def _may_be_due(access: Access, upkeep: MetadataUpkeep) -> bool:
    """Whether the lock is worth taking."""
    properties = access.properties()
    if not has_metadata_table(properties):
        return False
    own = access.storage.child(METADATA_FOLDER)
    try:
        timeline = load_timeline(own, metadata_properties(properties))
    except (FormatError, NotFoundError):
        return True  # somebody builds it anew, or it is damaged: under the lock one can tell
    by_completion = properties.version.slices_by_completion_time
    since = writes_since_compaction(timeline, by_completion=by_completion)
    return len(since) >= upkeep.compact_commits or bool(timeline.pending_compactions())


def _clean_options(data: CleanOptions) -> CleanOptions:
    """A little more than its table keeps."""
    more: dict[str, Any] = {
        "commits_retained": max(COMMITS_RETAINED_LEAST, _more(data.commits_retained)),
        "file_versions_retained": _more(data.file_versions_retained),
        "hours_retained": _more(data.hours_retained),
        "drop_metadata_table": False,
    }
    return replace(data, **more)


def _more(number: int) -> int:
    return math.ceil(number * MORE_THAN_DATA)


def _archive_options(store: MetadataStore, data: ArchiveOptions) -> ArchiveOptions:
    return replace(
        data,
        keep_min_commits=data.keep_min_commits + 1,
        keep_max_commits=data.keep_max_commits + 1,
        clean=_clean_options(data.clean),
        not_from=_first_needed(store),
    )


def _first_needed(store: MetadataStore) -> str:
    """The first time of the table's timeline; nothing may go where it is older than what the
    metadata table was told of by commits."""
    data = store.data_timeline
    needed = [i.requested_time for i in data if i.action in COMMIT_ACTIONS or not i.completed]
    known = [i.requested_time for i in store.timeline if not is_beginning(i.requested_time)]
    if not needed or not known or min(needed) < min(known):
        return _NOTHING
    return min(needed)
