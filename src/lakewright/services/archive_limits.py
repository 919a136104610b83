"""What keeps instants on the timeline and is told only by files: plans, partitions, metadata.

Reads, never writes. What cannot be read counts as a reason to keep: a pending rollback without a
readable plan, a metadata table without a timeline. Replaced file groups are looked for where they
were: a reader that no longer finds the replacecommit would take files that are still there for
live ones, whatever the last clean said that it had deleted. And one commit that tells the columns
stays, for the table and for each savepoint: Hudi does not ask compactions, and would go back to the
columns that the table was created with.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator

from lakewright.errors import LakewrightError
from lakewright.format.archived_timeline import archived_times
from lakewright.format.file_names import parse_data_file
from lakewright.format.instant import WRITE_ACTIONS, Instant
from lakewright.format.partitions import list_files
from lakewright.format.properties import PROPERTIES_FILE, parse_properties
from lakewright.format.records import load_commit_metadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.table_schema import SERVICE_OPERATIONS
from lakewright.format.timeline import Timeline, earliest_commit_to_retain, load_timeline
from lakewright.metadata.table import METADATA_FOLDER
from lakewright.services.archive_options import ArchiveOptions
from lakewright.services.archive_plan import NOTHING, ArchiveFacts, Begun, Limit, LimitKind
from lakewright.services.clean_plan import CleanBasis, instant_to_retain
from lakewright.storage.base import Storage
from lakewright.txn.access import Access
from lakewright.txn.metadata_gate import has_metadata_table
from lakewright.txn.rollback import pending_rollbacks

__all__ = ["archive_facts", "archived_after", "replaced_limit", "schema_limit"]


def archive_facts(
    access: Access,
    properties: TableProperties,
    timeline: Timeline,
    options: ArchiveOptions,
    begun: Begun,
) -> ArchiveFacts:
    """Everything that a plan needs to know, replaced files left out."""
    rollbacks = pending_rollbacks(access, properties, timeline)
    read = {rollback.instant for rollback in rollbacks.values()}
    limits = [
        *_unread_rollbacks(timeline, read),
        *_metadata_limit(access.storage, properties, timeline),
    ]
    if options.not_from is not None:
        limits.append(Limit(LimitKind.DATA_TIMELINE, options.not_from, options.not_from))
    if options.block_on_latest_clean:
        retained = earliest_commit_to_retain(access.storage, properties, timeline)
        if retained is not None:
            limits.append(Limit(LimitKind.LAST_CLEAN, retained, retained))
    basis = CleanBasis(
        timeline=timeline,
        version=properties.version,
        zone=properties.timeline_zone,
        now_ms=access.clock.now_ms(),
        completion_time_of=timeline.completion_time_of,
    )
    retained_now = instant_to_retain(basis, options.clean)
    return ArchiveFacts(
        merge_on_read=properties.is_merge_on_read,
        services_by_count=not properties.version.history_is_lsm,
        pending_times=tuple(sorted(rollbacks)),
        retained=None if retained_now is None else retained_now.requested_time,
        limits=tuple(limits),
        begun=begun,
    )


def _unread_rollbacks(timeline: Timeline, read: set[str]) -> Iterator[Limit]:
    for rollback in timeline.filter_actions("rollback").pending():
        if rollback.requested_time not in read:
            time = rollback.requested_time
            yield Limit(LimitKind.UNREADABLE_ROLLBACK, NOTHING, time)


def _metadata_limit(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> Iterator[Limit]:
    """Log records of the metadata table are judged by instants that must be active until they are
    compacted."""
    if not has_metadata_table(properties):
        return
    compaction = _last_metadata_compaction(storage)
    if compaction is None:
        yield Limit(LimitKind.METADATA_TABLE, NOTHING)
    elif not properties.version.completion_time_in_name:
        yield Limit(LimitKind.METADATA_TABLE, compaction, compaction)
    else:
        later = (
            c.requested_time
            for c in timeline.commits().completed()
            if (c.completion_time or "") > compaction
        )
        if (first := next(later, None)) is not None:
            yield Limit(LimitKind.METADATA_TABLE, first, compaction)


def _last_metadata_compaction(storage: Storage) -> str | None:
    folder = storage.child(METADATA_FOLDER)
    try:
        properties = TableProperties(parse_properties(folder.read(PROPERTIES_FILE)))
        timeline = load_timeline(folder, properties)
    except LakewrightError:
        return None
    last = timeline.filter_actions("commit").completed().last()
    return None if last is None else last.requested_time


def replaced_limit(
    storage: Storage, properties: TableProperties, instants: Iterable[Instant]
) -> Limit | None:
    """The first of these, oldest first, that replaced file groups which still have files."""
    present: dict[str, frozenset[str]] = {}
    for instant in instants:
        if instant.action != "replacecommit":
            continue
        metadata = load_commit_metadata(storage, properties, instant)
        for partition, file_ids in (metadata.partition_to_replace_file_ids or {}).items():
            if partition not in present:
                present[partition] = _file_groups(storage, partition)
            if not present[partition].isdisjoint(file_ids):
                time = instant.requested_time
                return Limit(LimitKind.REPLACED_FILES, time, time)
    return None


def schema_limit(
    storage: Storage,
    properties: TableProperties,
    timeline: Timeline,
    options: ArchiveOptions,
    going: Collection[Instant],
) -> Limit | None:
    """The first of these without which nobody would know the columns, now or after a restore."""
    if not going:
        return None
    commits = timeline.commits().completed().instants
    saved = timeline.savepoints().first()
    targets = [commits[-1].requested_time]
    if saved is not None and not options.beyond_savepoint:  # it keeps all that is behind it
        targets.insert(0, saved.requested_time)
    for target in targets:
        until = reversed([c for c in commits if c.requested_time <= target])
        newest = next((c for c in until if _tells_columns(storage, properties, c)), None)
        if newest is not None and newest in going:
            return Limit(LimitKind.SCHEMA, newest.requested_time, newest.requested_time)
    return None


def _tells_columns(storage: Storage, properties: TableProperties, commit: Instant) -> bool:
    metadata = load_commit_metadata(storage, properties, commit)
    changes = (metadata.operation_type or "").upper() not in SERVICE_OPERATIONS
    return changes and bool(metadata.schema)


def archived_after(
    storage: Storage,
    properties: TableProperties,
    instant: str,
    actions: Container[str] = WRITE_ACTIONS,
) -> list[str]:
    """Requested times of archived instants that are later than one, oldest first."""
    found = archived_times(storage, properties, begin=instant)
    times, said = (found[name].to_pylist() for name in ("requested_time", "action"))
    pairs = zip(times, said, strict=True)
    return [time for time, action in pairs if time > instant and action in actions]


def _file_groups(storage: Storage, partition: str) -> frozenset[str]:
    names = (parse_data_file(file.name) for file in list_files(storage, partition))
    return frozenset(name.file_id for name in names if name is not None)
