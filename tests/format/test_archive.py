"""The archived timeline of version 6: real archives, repeated entries, damage."""

from __future__ import annotations

import struct

import pytest

from lakewright.codec.avro.schema import parse_schema
from lakewright.errors import CorruptFileError, FormatError
from lakewright.format import property_keys as keys
from lakewright.format.archive import CORRUPT_ARCHIVE, archive_times, read_archive
from lakewright.format.archived_timeline import archived_instants, archived_times
from lakewright.format.log_block import BlockType, HeaderKey, encode_block, read_blocks
from lakewright.format.records import (
    ArchivedMetaEntry,
    CleanerPlan,
    CleanMetadata,
    CommitMetadata,
    CompactionPlan,
    MergeArchiveFilePlan,
    RequestedReplaceMetadata,
    WriteStat,
)
from lakewright.format.records.definitions import schema_json
from lakewright.format.records.model import encode_body
from lakewright.format.table_properties import TableProperties
from lakewright.format.version import RecordLevel, TableVersion
from lakewright.runtime.events import Event
from lakewright.storage.memory import MemoryStorage
from tests.fixtures import SHARED_ABSENT, shared_tables
from tests.format.timeline_tables import OpenTable, readable_tables

needs_shared = pytest.mark.skipif(not shared_tables(), reason=SHARED_ABSENT)
PROPERTIES = TableProperties({keys.NAME: "t", keys.VERSION: "6", keys.LAYOUT_VERSION: "1"})
FILE = ".hoodie/archived/.commits_.archive.{}_1-0-1"
SCHEMA = schema_json("HoodieArchivedMetaEntry", RecordLevel.R0_15)


def block(*entries: ArchivedMetaEntry) -> bytes:
    bodies = [encode_body(e.to_avro(), SCHEMA) for e in entries]
    content = struct.pack(">ii", 3, len(bodies)) + b"".join(
        struct.pack(">i", len(b)) + b for b in bodies
    )
    return encode_block(BlockType.AVRO_DATA, {HeaderKey.SCHEMA: SCHEMA}, content)


def entry(time: str, action: str, state: str | None, **fields: object) -> ArchivedMetaEntry:
    moved = f"{time}9" if state == "COMPLETED" else None
    return ArchivedMetaEntry(
        commit_time=time,
        action_type=action,
        action_state=state,
        state_transition_time=moved,
        **fields,  # type: ignore[arg-type]
    )


COMPACTION = CompactionPlan(operations=[], missing_schedule_partitions=None)
REQUEST = RequestedReplaceMetadata(operation_type="CLUSTER")
REPLACED = CommitMetadata(partition_to_replace_file_ids={"p": ["f"]}, operation_type="CLUSTER")
CLEANED = CleanMetadata(
    start_clean_time="3",
    time_taken_in_millis=1,
    total_files_deleted=0,
    earliest_commit_to_retain="1",
    partition_metadata={},
)
WRITTEN = CommitMetadata(
    partition_to_write_stats={"p": [WriteStat(file_id="f", log_files=["lost on archiving"])]},
    operation_type="COMPACT",
)
ENTRIES = (
    entry("1", "compaction", "REQUESTED", hoodie_compaction_plan=COMPACTION),
    entry("1", "compaction", "INFLIGHT"),
    entry("1", "commit", "COMPLETED", hoodie_commit_metadata=WRITTEN),
    entry("2", "replacecommit", "REQUESTED", hoodie_requested_replace_metadata=REQUEST),
    entry("2", "replacecommit", "COMPLETED", hoodie_replace_commit_metadata=REPLACED),
    entry("3", "clean", "INFLIGHT", hoodie_cleaner_plan=CleanerPlan(policy="X")),
    entry("3", "clean", "COMPLETED", hoodie_clean_metadata=CLEANED),
    entry("4", "deltacommit", "INFLIGHT"),
)


def stored(*blocks: bytes) -> MemoryStorage:
    storage = MemoryStorage()
    for number, data in enumerate(blocks, 1):
        storage.replace(FILE.format(number), data)
    return storage


def times(
    storage: MemoryStorage, begin: str | None = None, end: str | None = None
) -> list[tuple[str, str, str]]:
    rows = archive_times(storage, PROPERTIES, begin=begin, end=end).to_pylist()
    return [(r["requested_time"], r["completion_time"], r["action"]) for r in rows]


ALL_TIMES = [("1", "19", "commit"), ("2", "29", "replacecommit"), ("3", "39", "clean")]


def test_times_are_those_of_completed_instants_in_order() -> None:
    storage = stored(block(*ENTRIES[3:]), block(*ENTRIES[:3]))
    assert times(storage) == ALL_TIMES
    assert times(storage, begin="2") == ALL_TIMES[1:]
    assert times(storage, begin="2", end="2") == ALL_TIMES[1:2]
    assert times(storage, end="1") == ALL_TIMES[:1]


def test_an_instant_archived_twice_counts_once() -> None:
    storage = stored(block(*ENTRIES), block(*ENTRIES[:5]))
    assert times(storage) == ALL_TIMES
    assert len(read_archive(storage, PROPERTIES)) == len(ENTRIES)


def test_archived_instants_join_their_states() -> None:
    found = list(archived_instants(stored(block(*ENTRIES)), PROPERTIES))
    assert [(i.requested_time, i.completion_time, i.action) for i in found] == ALL_TIMES
    assert found[0].plan == COMPACTION
    assert isinstance(found[0].metadata, CommitMetadata)
    assert [s.file_id for s in found[0].metadata.write_stats] == ["f"]
    assert found[1].plan == REQUEST and found[1].metadata == REPLACED
    assert isinstance(found[2].plan, CleanerPlan) and found[2].metadata == CLEANED
    newest = archived_instants(stored(block(*ENTRIES)), PROPERTIES, begin="3")
    assert [i.requested_time for i in newest] == ["3"]


def test_entries_without_a_state_are_completed_ones_of_very_old_files() -> None:
    storage = stored(block(entry("1", "commit", None)))
    assert times(storage) == [("1", "1", "commit")]
    assert [i.completion_time for i in archived_instants(storage, PROPERTIES)] == ["1"]


def test_a_block_cut_by_a_crash_is_skipped_and_told() -> None:
    sound, torn = block(*ENTRIES[:3]), block(*ENTRIES[3:])[:-40]
    storage = stored(sound + torn)
    assert times(storage) == ALL_TIMES[:1]
    told: list[Event] = []
    assert len(list(archived_instants(storage, PROPERTIES, on_event=told.append))) == 1
    archived_times(storage, PROPERTIES, on_event=told.append)
    seen = [(e.kind, e.offset, e.done, e.unit) for e in told]
    assert seen == [(CORRUPT_ARCHIVE, len(sound), len(torn), "bytes")] * 2
    assert all(e.path is not None and e.path.endswith("_1-0-1") for e in told)


def test_a_sound_archive_tells_nothing() -> None:
    told: list[Event] = []
    archived_times(stored(block(*ENTRIES)), PROPERTIES, on_event=told.append)
    assert told == []


def test_no_archive_is_an_empty_one() -> None:
    assert archived_times(MemoryStorage(), PROPERTIES).num_rows == 0
    assert list(archived_instants(MemoryStorage(), PROPERTIES)) == []
    assert archived_times(stored(b""), PROPERTIES).num_rows == 0


def test_other_files_in_the_folder_are_ignored() -> None:
    storage = stored(block(*ENTRIES))
    for name in ("..commits_.archive.1_1-0-1.crc", "mergeArchivePlan", "x"):
        storage.replace(f".hoodie/archived/{name}", b"no archive")
    assert times(storage) == ALL_TIMES


def broken_block() -> bytes:
    """A sound frame whose type nobody knows: not a crash, so not skipped."""
    data = bytearray(block(ENTRIES[0]))
    data[18:22] = struct.pack(">i", 99)
    return bytes(data)


def test_an_unreadable_file_is_an_error_unless_a_merge_was_writing_it() -> None:
    storage = stored(block(*ENTRIES), broken_block())
    with pytest.raises(FormatError):
        times(storage)
    plan = MergeArchiveFilePlan(candidate=[], merged_archive_file_name=".commits_.archive.2_1-0-1")
    storage.replace(".hoodie/archived/mergeArchivePlan", plan.write(TableVersion.of(6)))
    assert times(storage) == ALL_TIMES


def test_an_entry_with_an_unknown_state_is_corrupt() -> None:
    with pytest.raises(CorruptFileError, match="WAITING"):
        read_archive(stored(block(entry("1", "commit", "WAITING"))), PROPERTIES)


# ---- a real archive ----------------------------------------------------------------------------


def real(name: str) -> OpenTable:
    (found,) = [t for t in readable_tables() if t.name == name]
    return found


@needs_shared
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("mor_v6_services/hudi-v6-table-mor", 5),
        ("mor_v6_services/hudi-v6-table-mor/.hoodie/metadata", 4),
    ],
)
def test_real_archives_give_the_same_instants_as_columns_and_as_records(
    name: str, count: int
) -> None:
    table = real(name)
    rows = archived_times(table.storage, table.properties).to_pylist()
    whole = list(archived_instants(table.storage, table.properties))
    assert len(rows) == len(whole) == count
    assert rows == [
        {
            "requested_time": i.requested_time,
            "completion_time": i.completion_time,
            "action": i.action,
        }
        for i in whole
    ]
    assert all(isinstance(i.metadata, CommitMetadata) for i in whole)
    assert len(read_archive(table.storage, table.properties)) == 3 * count


@needs_shared
def test_the_schema_of_a_real_archive_is_ours_field_by_field() -> None:
    table = real("mor_v6_services/hudi-v6-table-mor")
    path = ".hoodie/archived/.commits_.archive.1_1-0-1"
    blocks = read_blocks(table.storage.read(path), path=path)
    ours = parse_schema(SCHEMA)
    theirs = parse_schema(blocks[0].schema)
    assert [f.name for f in theirs.fields] == [f.name for f in ours.fields]  # type: ignore[union-attr]
