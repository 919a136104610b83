"""The archived timeline of version 6: log files of Avro records, one record per state file.

Files `.commits_.archive.<N>_<token>` are read whole, newest first. A damaged block (a crash while
appending) is skipped and told (`CORRUPT_ARCHIVE`, with file and offset); an instant that a crashed
run archived twice counts once. A file that cannot be read is ignored only if a merge of small files
was about to write it. Times are read as columns without decoding the metadata around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.avro.datum import read_datum
from lakewright.errors import CorruptFileError, FormatError, NotFoundError
from lakewright.format.block_rows import avro_rows, record_schema
from lakewright.format.instant import State
from lakewright.format.log_block import BlockType, LogBlock, read_blocks
from lakewright.format.log_content import avro_frames
from lakewright.format.records.archived import ArchivedMetaEntry, MergeArchiveFilePlan
from lakewright.format.records.model import MisfitError
from lakewright.format.table_properties import TableProperties
from lakewright.runtime.events import Event, EventHook, ignore_events
from lakewright.storage.base import ObjectInfo, Storage

__all__ = [
    "ARCHIVE_TIMES_SCHEMA",
    "CORRUPT_ARCHIVE",
    "archive_files",
    "archive_times",
    "merge_target",
    "read_archive",
]

CORRUPT_ARCHIVE: Final = "archive.corrupt_block"
"""The event of a region that is skipped."""

ARCHIVE_TIMES_SCHEMA: Final = pa.schema(
    [
        ("requested_time", pa.string()),
        ("completion_time", pa.string()),
        ("action", pa.string()),
    ]
)
"""Columns of `archive_times`."""

_FILE = re.compile(r"\.commits_\.archive\.([0-9]{1,18})(?:_.*)?")
_MERGE_PLAN = "mergeArchivePlan"
_TIMES = ("commitTime", "actionType", "actionState", "stateTransitionTime")


def archive_files(storage: Storage, properties: TableProperties) -> list[tuple[int, ObjectInfo]]:
    """The files of the archive with their numbers, the newest first."""
    try:
        listed = storage.list(properties.history_folder)
    except NotFoundError:
        return []
    numbered = [(int(m[1]), f) for f in listed if (m := _FILE.fullmatch(f.name))]
    return sorted(numbered, key=lambda p: (p[0], p[1].name), reverse=True)


def _archive_blocks(
    storage: Storage,
    properties: TableProperties,
    on_event: EventHook,
    newest_files: int | None = None,
) -> Iterator[LogBlock]:
    """The sound blocks of all files, or of the newest ones; newest file first."""
    for _, file in archive_files(storage, properties)[:newest_files]:
        try:
            blocks = read_blocks(storage.read(file.path), path=file.path)
        except FormatError:
            if merge_target(storage, properties) == file.name:
                continue
            raise
        for block in blocks:
            if block.type is BlockType.CORRUPT:
                on_event(
                    Event(
                        CORRUPT_ARCHIVE,
                        done=block.length,
                        unit="bytes",
                        path=block.path,
                        offset=block.offset,
                    )
                )
            elif block.type is BlockType.AVRO_DATA:
                yield block


def merge_target(storage: Storage, properties: TableProperties) -> str | None:
    """The name of the file that a merge of small files is about to write, or was when it died."""
    path = f"{properties.history_folder}/{_MERGE_PLAN}"
    try:
        plan = MergeArchiveFilePlan.read(storage.read(path), path=path)
    except (NotFoundError, FormatError):
        return None
    return plan.merged_archive_file_name


def _corrupt(what: str, block: LogBlock) -> CorruptFileError:
    return CorruptFileError(
        f"An archive file holds {what}.",
        hint="Restore the file from another copy of the table.",
        context={"path": block.path, "offset": block.offset},
    )


def archive_times(
    storage: Storage,
    properties: TableProperties,
    *,
    begin: str | None = None,
    end: str | None = None,
    newest_files: int | None = None,
    on_event: EventHook = ignore_events,
) -> pa.Table:
    """Completed archived instants requested in the closed range, by requested time and action.

    `newest_files` looks only into so many of the files that were written last.
    """
    blocks = _archive_blocks(storage, properties, on_event, newest_files)
    parts = [_block_times(block) for block in blocks]
    if not parts:
        return ARCHIVE_TIMES_SCHEMA.empty_table()
    table = pa.concat_tables(parts)
    times = table.column("requested_time")
    keep = pc.is_valid(times)
    if begin is not None:
        keep = pc.and_(keep, pc.greater_equal(times, begin))
    if end is not None:
        keep = pc.and_(keep, pc.less_equal(times, end))
    by = ["requested_time", "action"]
    once = (
        table.filter(keep).group_by(by, use_threads=False).aggregate([("completion_time", "first")])
    )
    named = once.select([*by, "completion_time_first"]).rename_columns([*by, "completion_time"])
    return named.sort_by([(name, "ascending") for name in by]).select(ARCHIVE_TIMES_SCHEMA.names)


def _block_times(block: LogBlock) -> pa.Table:
    schema = record_schema(block)
    # Very old files have no state or transition time; every record there is a completed one.
    wanted = [name for name in _TIMES if any(f.name == name for f in schema.fields)]
    batch = avro_rows([block], columns=wanted)

    def column(name: str) -> Any:
        if name not in wanted:
            return pa.nulls(batch.num_rows, pa.string())
        try:
            return pc.cast(batch.column(name), pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _corrupt(f"a {name} that is no text", block) from error

    times = column("commitTime")
    table = pa.table(
        [times, pc.coalesce(column("stateTransitionTime"), times), column("actionType")],
        schema=ARCHIVE_TIMES_SCHEMA,
    )
    states = column("actionState")
    return table.filter(pc.equal(pc.coalesce(states, State.COMPLETED.name), State.COMPLETED.name))


def read_archive(
    storage: Storage,
    properties: TableProperties,
    *,
    begin: str | None = None,
    end: str | None = None,
    on_event: EventHook = ignore_events,
) -> list[ArchivedMetaEntry]:
    """Archived state files requested in the closed range, by time, action and state."""
    found: dict[tuple[str, str, State], ArchivedMetaEntry] = {}
    for block in _archive_blocks(storage, properties, on_event):
        for entry in _block_entries(block):  # one record per archived state file
            time = entry.commit_time
            if time is None or (begin is not None and time < begin) or (end and time > end):
                continue
            key = (time, entry.action_type or "", _state(entry, block))
            found.setdefault(key, entry)
    return [found[key] for key in sorted(found)]


def _state(entry: ArchivedMetaEntry, block: LogBlock) -> State:
    try:
        return State[entry.action_state or State.COMPLETED.name]
    except KeyError:
        raise _corrupt(f"a state {entry.action_state!r} that is none", block) from None


def _block_entries(block: LogBlock) -> Iterator[ArchivedMetaEntry]:
    starts, ends = avro_frames(block)
    schema = record_schema(block)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        try:
            value, stopped = read_datum(block.content[:end], schema, start)
        except CorruptFileError as error:
            raise _corrupt(f"a record that cannot be decoded ({error.message})", block) from error
        if stopped != end:
            raise _corrupt("a record that does not fill its frame", block)
        try:
            yield ArchivedMetaEntry.from_avro(value)
        except MisfitError as error:
            raise _corrupt(f"an entry with {error}", block) from error
