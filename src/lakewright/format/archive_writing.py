"""Writing the archived timeline of version 6: one new log file per batch of instants.

A file is published whole and under a number that no file had, so a crash leaves a whole file or
none, and two processes cannot write the same one. Each state file of an instant is one Avro record,
in the form that Hudi 0.15 gives it: commit metadata without log file lists and change data, empty
state files of writes as default metadata. Records of the same instant that an earlier, interrupted
batch has written are harmless: readers take each state once.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

from lakewright.format.archive import archive_files, archive_times, merge_target
from lakewright.format.instant import Instant, State
from lakewright.format.log_block import BlockType, HeaderKey, encode_block
from lakewright.format.log_content import AVRO_CONTENT_VERSION
from lakewright.format.records.archived import ArchivedMetaEntry
from lakewright.format.records.commit import CommitMetadata
from lakewright.format.records.definitions import schema_json
from lakewright.format.records.instants import record_kind
from lakewright.format.records.model import AvroRecord, encode_body
from lakewright.format.table_properties import TableProperties
from lakewright.format.version import RecordLevel
from lakewright.storage.base import Storage

__all__ = ["archive_entry", "encode_archive", "encode_entry", "newest_archived", "next_archive"]

RECORDS_PER_BLOCK: Final = 10
"""As many as Hudi puts into one (`hoodie.commits.archival.batch`)."""
_TOKEN = "1-0-1"  # noqa: S105 - the write token of Hudi's archive files
_NUMBER = re.compile(r"\.commits_\.archive\.([0-9]{1,18})(?:_.*)?")
_WRITES = frozenset({"commit", "deltacommit"})
_FIELDS: Final = {
    ("clean", State.REQUESTED): "hoodie_cleaner_plan",
    ("clean", State.INFLIGHT): "hoodie_cleaner_plan",
    ("clean", State.COMPLETED): "hoodie_clean_metadata",
    ("compaction", State.REQUESTED): "hoodie_compaction_plan",
    ("logcompaction", State.REQUESTED): "hoodie_compaction_plan",
    ("replacecommit", State.REQUESTED): "hoodie_requested_replace_metadata",
    ("replacecommit", State.INFLIGHT): "hoodie_inflight_replace_metadata",
    ("replacecommit", State.COMPLETED): "hoodie_replace_commit_metadata",
    ("rollback", State.COMPLETED): "hoodie_rollback_metadata",
    **{(action, state): "hoodie_commit_metadata" for action in _WRITES for state in State},
}
"""Which field of an entry holds what a state file says; other state files leave only their name."""


@cache
def _schema() -> str:
    return schema_json("HoodieArchivedMetaEntry", RecordLevel.R0_15)


def archive_entry(
    state: Instant, content: bytes, changed_at: str, *, path: str = ""
) -> ArchivedMetaEntry:
    """The record of one state file that was last changed at a time.

    Raises `CorruptFileError` if the file holds something else than it should.
    """
    filled: dict[str, Any] = {}
    field = _FIELDS.get((state.action, state.state))
    if field is not None and (content or state.action in _WRITES):
        filled[field] = _record(state, content, path)
    return ArchivedMetaEntry(
        commit_time=state.requested_time,
        action_type=state.action,
        action_state=state.state.name,
        state_transition_time=changed_at,
        **filled,
    )


def _record(state: Instant, content: bytes, path: str) -> AvroRecord:
    kind = record_kind(state.action, state.state)
    if state.action in _WRITES:
        kind = CommitMetadata
    assert kind is not None
    record = kind.read(content, path=path)
    if isinstance(record, CommitMetadata):
        # Hudi drops the statistics that very old releases rolled from commit to commit.
        return replace(record, extra_metadata={**record.extra_metadata, "ROLLING_STAT": ""})
    return record


def encode_entry(entry: ArchivedMetaEntry) -> bytes:
    """The Avro bytes of an entry."""
    return encode_body(entry.to_avro(), _schema())


def encode_archive(entries: Sequence[bytes]) -> bytes:
    """The content of an archive file, from encoded entries."""
    headers = {HeaderKey.SCHEMA: _schema()}
    return b"".join(
        encode_block(BlockType.AVRO_DATA, headers, content) for content in _contents(entries)
    )


def _contents(entries: Sequence[bytes]) -> Iterator[bytes]:
    for first in range(0, len(entries), RECORDS_PER_BLOCK):
        part = entries[first : first + RECORDS_PER_BLOCK]
        framed = (struct.pack(">i", len(entry)) + entry for entry in part)
        yield struct.pack(">ii", AVRO_CONTENT_VERSION, len(part)) + b"".join(framed)


def next_archive(storage: Storage, properties: TableProperties) -> str:
    """The path of the next file: behind all files, and behind the one that a merge may write.

    Hudi deletes the target of a merge that died, whoever has written it.
    """
    files = archive_files(storage, properties)
    target = _NUMBER.fullmatch(merge_target(storage, properties) or "")
    number = max(files[0][0] if files else 0, int(target[1]) if target else 0) + 1
    return f"{properties.history_folder}/.commits_.archive.{number}_{_TOKEN}"


def newest_archived(storage: Storage, properties: TableProperties) -> frozenset[tuple[str, str]]:
    """Requested time and action of the completed instants in the file that was written last."""
    times = archive_times(storage, properties, newest_files=1)
    pairs = zip(times["requested_time"].to_pylist(), times["action"].to_pylist(), strict=True)
    return frozenset(pairs)
