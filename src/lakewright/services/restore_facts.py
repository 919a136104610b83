"""What a restore would take back and what stands against it, read from storage, changing nothing.

The state that is asked for must be whole. Of a savepoint all named files must be there. Without one
no clean may have taken a file, which is looked for in the whole table.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from lakewright.errors import NotFoundError
from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.instant import WRITE_ACTIONS
from lakewright.format.partitions import list_files
from lakewright.format.records import load_commit_metadata, load_savepoint
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline, is_pending_clustering
from lakewright.services.archive_limits import archived_after
from lakewright.services.clean_execution import CLEAN
from lakewright.services.needed_files import taken_of
from lakewright.services.restore_plan import RestoreDraft, RestoreFacts, draft_restore
from lakewright.txn.access import Access
from lakewright.txn.heartbeat import HEARTBEAT_FOLDER
from lakewright.txn.liveness import who_works_on
from lakewright.txn.rollback import pending_rollbacks

__all__ = ["Seen", "look", "workers"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A restore as it would be now."""

    properties: TableProperties
    timeline: Timeline
    draft: RestoreDraft
    facts: RestoreFacts


def look(access: Access, to: str | None) -> Seen:
    """What a restore to a commit would take back; `InstantNotFoundError` if it is not there."""
    properties = access.properties()
    timeline = access.timeline(properties)
    draft = draft_restore(
        timeline,
        to,
        by_completion=properties.version.completion_time_in_name,
        merge_on_read=properties.is_merge_on_read,
        clusterings=frozenset(
            i.requested_time
            for i in timeline.pending()
            if is_pending_clustering(access.storage, properties, i)
        ),
    )
    facts = workers(access, timeline, draft)
    if draft.undone:
        facts = _facts(access, properties, timeline, draft)
    return Seen(properties, timeline, draft, facts)


def workers(access: Access, timeline: Timeline, draft: RestoreDraft) -> RestoreFacts:
    """Only who works on the table now: on what is pending, and on a commit that is to go, whose
    process may still be clearing up after it."""
    beating = frozenset[str]()
    with suppress(NotFoundError):
        beating = frozenset(access.storage.names(HEARTBEAT_FOLDER))
    committed = (i for i in draft.undone if i.completed and i.requested_time in beating)
    times = (i.requested_time for i in (*timeline.pending(), *committed))
    found = ((time, who_works_on(access, time)) for time in times)
    return RestoreFacts(workers={time: worker for time, worker in found if worker is not None})


def _facts(
    access: Access, properties: TableProperties, timeline: Timeline, draft: RestoreDraft
) -> RestoreFacts:
    storage = access.storage
    known = WRITE_ACTIONS if draft.savepointed else WRITE_ACTIONS | {CLEAN}
    cleans = timeline.filter_actions(CLEAN).after(draft.first_undone)
    whole = draft.savepointed
    return RestoreFacts(
        workers=workers(access, timeline, draft).workers,
        archived_later=tuple(archived_after(storage, properties, draft.to, known)),
        late_rollbacks=tuple(
            time
            for time in pending_rollbacks(access, properties, timeline)
            if time in timeline.completion_times
        ),
        mixed=_mixed(access, properties, draft),
        taken=None if whole else taken_of(access, properties, cleans, draft.left),
        missing=_missing(access, properties, timeline, draft.to) if whole else None,
    )


def _missing(
    access: Access, properties: TableProperties, timeline: Timeline, commit: str
) -> str | None:
    """A file that a savepoint names and that is not there."""
    savepoint = timeline.savepoints().get(commit)
    assert savepoint is not None
    metadata = load_savepoint(access.storage, properties, savepoint)
    for partition, kept in metadata.partition_metadata.items():
        present = {file.name for file in list_files(access.storage, partition)}
        for name in kept.savepoint_data_file:
            if name not in present:
                return f"{partition}/{name}" if partition else name
    return None


def _mixed(
    access: Access, properties: TableProperties, draft: RestoreDraft
) -> tuple[str, str] | None:
    """Version 6: a write that stays and has put a log behind a compaction that goes.

    Hudi's writers may do so if the compaction was planned between their request and their work.
    """
    if not properties.version.rollback_by_log_block or not properties.is_merge_on_read:
        return None
    going = {i.requested_time for i in draft.undone if i.completed_action == "commit"}
    for instant in draft.left.filter_actions("deltacommit").completed() if going else ():
        metadata = load_commit_metadata(access.storage, properties, instant)
        for path in metadata.data_paths:
            name = parse_data_file(path.rpartition("/")[2])
            if isinstance(name, LogFileName) and name.instant in going:
                return instant.requested_time, name.instant
    return None
