"""What of the metadata table counts: instants that are valid, and whether it is up to date.

The metadata table is committed before the data table's instant completes, so its own timeline
proves nothing alone: a block counts if its instant is completed on the data timeline, or is the
metadata table's own business and completed there. The data timeline is one that was pinned earlier:
a commit that it does not know belongs to the future of the reader, and does not count.

Nobody marks a metadata table as stale: a writer that does not know it simply leaves it behind.
`check_fresh` finds that out from names alone, except for cleans and rollbacks, whose files are
opened when the metadata table does not know them. It is untrusted if

- a completed change of files is not in it;
- a commit is in it that was rolled back in the data table alone;
- it was compacted with a commit that the reader must not see, or an index began with one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from lakewright.errors import MetadataTableError
from lakewright.format.archived_timeline import archived_times
from lakewright.format.instant import Instant
from lakewright.format.records.cleaning import CleanMetadata
from lakewright.format.records.instants import load_record
from lakewright.format.records.rollback import RollbackMetadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline, is_beginning_time, load_timeline
from lakewright.storage.base import Storage

__all__ = ["check_fresh", "missing_changes", "valid_instants"]

_DATA_TIME_CHARS: Final = 17
_SUFFIX_CHARS: Final = 3
_FIRST_INIT_SUFFIX: Final = 10
_OPERATION_SUFFIXES: Final = frozenset({"001", "002", "003", "004", "005", "006"})
_FILE_CHANGING: Final = frozenset({"commit", "deltacommit", "replacecommit", "clean"})


def valid_instants(
    properties: TableProperties, data: Timeline, metadata: Timeline
) -> Callable[[str], bool]:
    """The test of log blocks of the metadata table by their instant.

    Blocks of instants that were rolled back need no rule of their own: they are not completed on
    either timeline, and the rollback blocks that follow them find nothing left to cancel.
    """
    done = {i.requested_time for i in data.completed()}
    pending = {i.requested_time for i in data.pending()} - done
    own = {i.requested_time: i.completion_time or "" for i in metadata.completed()}
    suffixed = properties.version.metadata_operation_suffixes
    pinned = max((i.completion_time or "" for i in data.completed()), default="")

    def is_valid(instant: str) -> bool:
        if not (instant in own or metadata.is_archived(instant)):
            return False
        if instant in done or is_beginning_time(instant):
            return True
        if suffixed:
            # Hudi 0.x drops what the data timeline archived, 1.x does not; the files are there.
            return _is_operation(instant) or data.is_archived(instant)
        if instant in pending:
            return False
        # It took effect in the metadata table before something that the reader knows did.
        return own.get(instant, "") <= pinned or data.is_archived(instant)

    return is_valid


def _is_operation(instant: str) -> bool:
    """Whether a time is a data time and three digits: a service or initialisation of version 6."""
    suffix = instant[_DATA_TIME_CHARS:]
    if len(instant) != _DATA_TIME_CHARS + _SUFFIX_CHARS or not suffix.isdigit():
        return False
    return suffix in _OPERATION_SUFFIXES or int(suffix) >= _FIRST_INIT_SUFFIX


def check_fresh(
    storage: Storage,
    properties: TableProperties,
    data: Timeline,
    metadata: Timeline,
    *,
    undoing: bool = False,
) -> None:
    """Raise `MetadataTableError` if the metadata table does not say what the data timeline does.

    The data timeline may have been pinned a while ago, unless `undoing` tells that it is that of a
    writer. For a writer the metadata table may say too much: a commit that is being taken back is
    pending again, and in the metadata table until that is done.
    """
    if metadata.completed().first() is None:
        raise _untrusted("it has no completed instant", storage)
    for instant in missing_changes(storage, properties, data, metadata):
        what = f"{instant.action} {instant.requested_time}"
        raise _untrusted(f"it is stale: {what} is not in it", storage)
    undone = _undone_elsewhere(storage, properties, data, metadata)
    if undone is not None:
        raise _untrusted(f"it is stale: {undone} was rolled back and is still in it", storage)
    ahead = _compacted_ahead(properties, data, metadata)
    if undoing:
        ahead -= {i.requested_time for i in data.pending()}
    ahead -= _archived_early(storage, properties, data, ahead)
    if ahead:
        what = f"{min(ahead)}, which is not completed here"
        raise _untrusted(f"it was compacted with {what}", storage)
    if not undoing and _is_overtaken(storage, properties, data, metadata):
        raise _untrusted("it began anew behind what is read here", storage)


def missing_changes(
    storage: Storage, properties: TableProperties, data: Timeline, metadata: Timeline
) -> Iterator[Instant]:
    """Completed changes of files that are not in the metadata table.

    An instant is there if it is completed or archived on the metadata timeline, or if it took
    effect before the metadata table was initialised from a listing of files, or restored: a restore
    ends with one.
    """
    known = {i.requested_time for i in metadata.completed()}
    initialised = _initialised_at(metadata, in_name=properties.version.completion_time_in_name)
    for instant in data.completed():
        time = instant.requested_time
        if instant.action not in _FILE_CHANGING or time in known or metadata.is_archived(time):
            continue
        if initialised is not None and (instant.completion_time or time) <= initialised:
            continue
        if instant.action == "clean" and _cleaned_nothing(storage, properties, instant):
            continue
        yield instant


def _undone_elsewhere(
    storage: Storage, properties: TableProperties, data: Timeline, metadata: Timeline
) -> str | None:
    """A commit that is in the metadata table and was rolled back in the data table alone."""
    on_data = {i.requested_time for i in data}
    strangers = {
        i.requested_time
        for i in metadata.completed().filter_actions("deltacommit")
        if i.requested_time not in on_data
        and not data.is_archived(i.requested_time)
        and not is_beginning_time(i.requested_time)
        and not _is_operation(i.requested_time)
    }
    if strangers:
        for instant in data.completed().filter_actions("rollback"):
            record = load_record(storage, properties, instant)
            if isinstance(record, RollbackMetadata):
                found = strangers.intersection(record.commits_rollback)
                if found:
                    return min(found)
    return None


def _compacted_ahead(
    properties: TableProperties, data: Timeline, metadata: Timeline
) -> frozenset[str]:
    """Commits that do not count, below a base file that does."""
    is_valid = valid_instants(properties, data, metadata)
    suffixed = properties.version.metadata_operation_suffixes
    compactions = [i.requested_time for i in metadata.completed().filter_actions("commit")]
    newest = max(compactions, default="")

    def is_within(instant: Instant) -> bool:
        time = instant.requested_time
        if suffixed:
            return time <= newest[:_DATA_TIME_CHARS]
        return (instant.completion_time or time) < newest

    commits = metadata.completed().filter_actions("deltacommit")
    return frozenset(
        i.requested_time for i in commits if is_within(i) and not is_valid(i.requested_time)
    )


def _archived_early(
    storage: Storage, properties: TableProperties, data: Timeline, times: Collection[str]
) -> frozenset[str]:
    """Those of some times whose instants the archive has although older writes are active: version
    6 archives cleans and rollbacks by their own number."""
    absent = {*times} - {i.requested_time for i in data}
    if not absent or not properties.version.metadata_operation_suffixes:
        return frozenset()
    found = archived_times(storage, properties, begin=min(absent), end=max(absent))
    return frozenset(absent.intersection(found["requested_time"].to_pylist()))


def _is_overtaken(
    storage: Storage, properties: TableProperties, data: Timeline, metadata: Timeline
) -> bool:
    """Whether an index began with a state of its table that the data timeline does not know.

    Such a beginning tells nothing about files that a clean took away before it. Nearly always the
    table has not changed since: then its timeline is the same still.
    """
    known = max((i.completion_time or "" for i in data.completed()), default="")
    late = [
        i.requested_time
        for i in metadata.completed().filter_actions("deltacommit")
        if (i.completion_time or "") > known
    ]
    if not late:
        return False
    now = load_timeline(storage, properties)
    times = {i.requested_time for i in now}
    if all(time in times and not is_beginning_time(time) for time in late):
        return False
    seen = {(i.requested_time, i.action) for i in data.completed()}
    return any(
        (i.requested_time, i.action) not in seen
        for i in now.completed()
        if i.action in _FILE_CHANGING
    )


def _initialised_at(metadata: Timeline, *, in_name: bool) -> str | None:
    """When the first initialisation, or the last restore, took effect; it listed what was there.

    Where completion times are not in names, the time that the instant itself carries counts; an
    initialisation of a table without commits carries none and covers nothing.
    """
    times = [
        i.completion_time if in_name else i.requested_time[:_DATA_TIME_CHARS]
        for i in metadata.completed()
        if (is_beginning_time(i.requested_time) if in_name else _is_init(i.requested_time))
    ]
    restored = metadata.filter_actions("restore").completed().last()
    if restored is not None:
        return restored.requested_time[:_DATA_TIME_CHARS]
    return min((t for t in times if t is not None), default=None)


def _is_init(instant: str) -> bool:
    return _is_operation(instant) and instant[_DATA_TIME_CHARS:] not in _OPERATION_SUFFIXES


def _cleaned_nothing(storage: Storage, properties: TableProperties, instant: Instant) -> bool:
    metadata = load_record(storage, properties, instant)
    return isinstance(metadata, CleanMetadata) and metadata.total_files_deleted == 0


def _untrusted(why: str, storage: Storage) -> MetadataTableError:
    return MetadataTableError(
        f"The metadata table cannot be trusted: {why}.",
        hint="The table is read by listing its folders. `lakewright metadata verify` shows what is "
        "wrong, `lakewright metadata rebuild` repairs it.",
        context={"table": storage.uri},
    )
