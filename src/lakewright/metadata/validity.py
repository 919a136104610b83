"""What of the metadata table counts: instants that are valid, and whether it is up to date.

The metadata table is committed before the data table's instant completes, so its own timeline
proves nothing alone: a block counts if its instant is completed on the data timeline, or is the
metadata table's own business and completed there. And nobody marks a metadata table as stale: a
writer that does not know it simply leaves it behind. `check_fresh` finds that out from names alone,
except for cleans, whose file is opened when the metadata table does not know them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lakewright.errors import MetadataTableError
from lakewright.format.instant import Instant
from lakewright.format.records.cleaning import CleanMetadata
from lakewright.format.records.instants import load_record
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage

__all__ = ["check_fresh", "valid_instants"]

_INIT_PREFIX: Final = "00000000000000"
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
    own = {i.requested_time for i in metadata.completed()}
    suffixed = properties.version.metadata_operation_suffixes

    def is_valid(instant: str) -> bool:
        if not (instant in own or metadata.is_archived(instant)):
            return False
        if instant in done or instant.startswith(_INIT_PREFIX):
            return True
        if suffixed:
            # A JVM drops what the data timeline archived; the files are there all the same.
            return _is_operation(instant) or data.is_archived(instant)
        return instant not in pending

    return is_valid


def _is_operation(instant: str) -> bool:
    """Whether a time is a data time and three digits: a service or initialisation of version 6."""
    suffix = instant[_DATA_TIME_CHARS:]
    if len(instant) != _DATA_TIME_CHARS + _SUFFIX_CHARS or not suffix.isdigit():
        return False
    return suffix in _OPERATION_SUFFIXES or int(suffix) >= _FIRST_INIT_SUFFIX


def check_fresh(
    storage: Storage, properties: TableProperties, data: Timeline, metadata: Timeline
) -> None:
    """Raise `MetadataTableError` if a completed change of files is missing in the metadata table.

    An instant is there if it is completed or archived on the metadata timeline, or if it took
    effect before the metadata table was initialised from a listing of files.
    """
    known = {i.requested_time for i in metadata.completed()}
    if not known:
        raise _untrusted("it has no completed instant", storage)
    initialised = _initialised_at(metadata, in_name=properties.version.completion_time_in_name)
    for instant in data.completed():
        time = instant.requested_time
        if instant.action not in _FILE_CHANGING or time in known or metadata.is_archived(time):
            continue
        if initialised is not None and (instant.completion_time or time) <= initialised:
            continue
        if instant.action == "clean" and _cleaned_nothing(storage, properties, instant):
            continue
        raise _untrusted(f"it is stale: {instant.action} {time} is not in it", storage)


def _initialised_at(metadata: Timeline, *, in_name: bool) -> str | None:
    """When the first initialisation took effect; what completed before was listed by it.

    Where completion times are not in names, the time that the instant itself carries counts; an
    initialisation of a table without commits carries none and covers nothing.
    """
    times = [
        i.completion_time if in_name else i.requested_time[:_DATA_TIME_CHARS]
        for i in metadata.completed()
        if (i.requested_time.startswith(_INIT_PREFIX) if in_name else _is_init(i.requested_time))
    ]
    return min((t for t in times if t is not None), default=None)


def _is_init(instant: str) -> bool:
    return _is_operation(instant) and instant[_DATA_TIME_CHARS:] not in _OPERATION_SUFFIXES


def _cleaned_nothing(storage: Storage, properties: TableProperties, instant: Instant) -> bool:
    metadata = load_record(storage, properties, instant)
    return isinstance(metadata, CleanMetadata) and metadata.total_files_deleted == 0


def _untrusted(why: str, storage: Storage) -> MetadataTableError:
    return MetadataTableError(
        f"The metadata table cannot be trusted: {why}.",
        hint="The table is read by listing its folders; rebuild or remove the metadata table.",
        context={"table": storage.uri},
    )
