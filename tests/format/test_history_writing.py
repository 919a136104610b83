"""Writing both archives: what Hudi wrote is written again, changes are whole or not there."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.avro.datum import read_datum
from lakewright.errors import AlreadyExistsError, CorruptFileError, PreconditionFailedError
from lakewright.format import property_keys as keys
from lakewright.format.archive import read_archive
from lakewright.format.archive_writing import (
    RECORDS_PER_BLOCK,
    archive_entry,
    encode_archive,
    encode_entry,
    newest_archived,
    next_archive,
)
from lakewright.format.block_rows import record_schema
from lakewright.format.history import (
    HISTORY_SCHEMA,
    HistoryFile,
    current_history,
    format_manifest,
    read_history,
)
from lakewright.format.history_writing import (
    HistoryPolicy,
    append_history,
    clean_history,
    compact_history,
    files_to_join,
    history_row,
    history_table,
)
from lakewright.format.instant import Instant, State
from lakewright.format.log_block import HeaderKey, LogBlock, read_blocks
from lakewright.format.log_content import avro_frames
from lakewright.format.properties import load_properties
from lakewright.format.records import ArchivedMetaEntry, CommitMetadata, MergeArchiveFilePlan
from lakewright.format.records.model import AvroRecord
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import instant_files
from lakewright.format.version import TableVersion
from lakewright.runtime import ManualClock
from lakewright.storage.local import LocalStorage
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from tests.corpus import committed_tables
from tests.format.test_history import FOLDER, put, rows

EIGHT = TableProperties({keys.NAME: "t", keys.VERSION: "8", keys.LAYOUT_VERSION: "2"})
SIX = TableProperties({keys.NAME: "t", keys.VERSION: "6", keys.LAYOUT_VERSION: "1"})
ARCHIVE = ".hoodie/archived/.commits_.archive.{}_1-0-1"


def no_check() -> None:
    """The lock is held."""


def real(name: str, into: Path) -> tuple[LocalStorage, TableProperties]:
    """A committed table."""
    (table,) = [t for t in committed_tables() if t.name == name]
    storage = LocalStorage(table.unpack(into))
    return storage, load_properties(storage, clock=ManualClock())


def whole(storage: MemoryStorage) -> list[dict[str, object]]:
    found: list[dict[str, object]] = read_history(
        storage, EIGHT, columns=HISTORY_SCHEMA.names
    ).to_pylist()
    return found


# ---- the history of version 8 ------------------------------------------------------------------


def test_a_real_history_written_again_has_the_same_files_rows_and_manifests(
    tmp_path: Path,
) -> None:
    theirs, properties = real("v8_mor_archived_simple", tmp_path)
    ours = MemoryStorage()
    folder = properties.history_folder
    snapshot = current_history(theirs, properties)
    assert snapshot.version == 3
    for file in snapshot.files:
        part = read_history(
            theirs, properties, columns=HISTORY_SCHEMA.names, begin=file.first, end=file.last
        )
        made = append_history(ours, EIGHT, part, check=no_check)
        assert made.name == file.name
        written = pq.ParquetFile(io.BytesIO(ours.read(f"{FOLDER}/{made.name}")))
        real_file = pq.ParquetFile(io.BytesIO(theirs.read(f"{folder}/{file.name}")))
        assert str(written.schema).splitlines()[3:] == str(real_file.schema).splitlines()[3:]
        assert written.metadata.metadata.keys() == real_file.metadata.metadata.keys()
        assert written.read().to_pylist() == real_file.read().to_pylist()
    assert ours.read(f"{FOLDER}/_version_") == theirs.read(f"{folder}/_version_")
    assert current_history(ours, EIGHT).version == 3
    for number in (1, 2, 3):
        names = [f.name for f in current_history(theirs, properties).files[:number]]
        sizes = {f.name: f.size for f in current_history(ours, EIGHT).files}
        expected = format_manifest([HistoryFile.of(n, sizes[n]) for n in names])
        assert ours.read(f"{FOLDER}/manifest_{number}") == expected


def test_rows_of_active_instants_hold_what_hudi_would_have_put_there(tmp_path: Path) -> None:
    storage, properties = real("v8_mor_archived_simple", tmp_path)
    archived = read_history(storage, properties, columns=HISTORY_SCHEMA.names).to_pylist()
    shape = {(row["action"], row["plan"] is not None) for row in archived}
    files = {f.file_name: f for f in instant_files(storage, properties)}
    for instant in files.values():
        if not instant.completed:
            continue
        states = {
            name: file
            for name, file in files.items()
            if (file.requested_time, file.completed_action)
            == (instant.requested_time, instant.action)
            and storage.stat(f"{properties.timeline_folder}/{name}").size
        }
        row = history_row(
            instant, states, lambda name: storage.read(f"{properties.timeline_folder}/{name}")
        )
        assert (row["action"], row["plan"] is not None) in shape
        assert row["metadata"] == storage.read(f"{properties.timeline_folder}/{instant.file_name}")
        assert row["completion_time"] == instant.completion_time


def test_the_plan_of_a_replacement_is_its_inflight_file_unless_that_is_empty() -> None:
    requested = Instant("1", "replacecommit", State.REQUESTED, None, "1.replacecommit.requested")
    inflight = Instant("1", "replacecommit", State.INFLIGHT, None, "1.replacecommit.inflight")
    completed = Instant("1", "replacecommit", State.COMPLETED, "2", "1_2.replacecommit")
    files = {i.file_name: i for i in (requested, inflight, completed)}
    row = history_row(completed, files, str.encode)
    assert row["plan"] == b"1.replacecommit.inflight" and row["metadata"] == b"1_2.replacecommit"
    del files[inflight.file_name]
    assert history_row(completed, files, str.encode)["plan"] == b"1.replacecommit.requested"
    empty = history_row(completed, {}, str.encode)
    assert empty["plan"] is None and empty["metadata"] is None


def test_rows_are_sorted_however_they_come() -> None:
    made = history_table(
        [
            dict(zip(HISTORY_SCHEMA.names, (t, t, "c", None, None), strict=True))
            for t in ("3", "1", "2")
        ]
    )
    assert made.column("requested_time").to_pylist() == ["1", "2", "3"]


def test_what_a_crash_left_is_written_over() -> None:
    storage = MemoryStorage()
    append_history(storage, EIGHT, rows("1", "2"), check=no_check)
    storage.replace(f"{FOLDER}/3_4_0.parquet", b"half")
    storage.replace(f"{FOLDER}/manifest_2", b"left by a crash")
    append_history(storage, EIGHT, rows("3", "4"), check=no_check)
    assert [r["requested_time"] for r in whole(storage)] == ["1", "2", "3", "4"]
    assert current_history(storage, EIGHT).version == 2


def test_a_file_of_the_current_manifest_is_never_written_over() -> None:
    storage = MemoryStorage()
    first = append_history(storage, EIGHT, rows("1", "3"), check=no_check)
    second = append_history(storage, EIGHT, rows("1", "2", "3", action="clean"), check=no_check)
    assert (first.level, second.level) == (0, 1)


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_writer_that_slept_cannot_undo_what_another_one_published(asked: int) -> None:
    bucket = MemoryBucket(clock=ManualClock())
    storage, other = MemoryStorage(bucket), MemoryStorage(bucket)
    append_history(storage, EIGHT, rows("1"), check=no_check)
    calls = 0

    def sleeping() -> None:
        nonlocal calls
        calls += 1
        if calls == asked:
            append_history(other, EIGHT, rows("2"), check=no_check)
            append_history(other, EIGHT, rows("3"), check=no_check)

    with pytest.raises((AlreadyExistsError, PreconditionFailedError)):
        append_history(storage, EIGHT, rows("4"), check=sleeping)
    kept = [r["requested_time"] for r in whole(other)]
    assert kept[:3] == ["1", "2", "3"]


# ---- levels ------------------------------------------------------------------------------------


def test_ten_files_of_a_level_become_one_of_the_next() -> None:
    storage = MemoryStorage()
    for n in range(10, 20):
        append_history(storage, EIGHT, rows(str(n)), check=no_check)
    before = whole(storage)
    assert compact_history(storage, EIGHT, HistoryPolicy(), check=no_check) == 1
    assert [f.name for f in current_history(storage, EIGHT).files] == ["10_19_1.parquet"]
    assert whole(storage) == before
    assert compact_history(storage, EIGHT, HistoryPolicy(), check=no_check) == 0
    assert clean_history(storage, EIGHT, kept=4, check=no_check) == 7
    left = {i.name for i in storage.list(FOLDER)}
    # The three manifests before the join still name the small files.
    assert {"manifest_8", "manifest_11", "10_19_1.parquet", "10_10_0.parquet"} <= left
    assert "manifest_7" not in left
    assert clean_history(storage, EIGHT, kept=1, check=no_check) == 3 + 10
    assert {i.name for i in storage.list(FOLDER)} == {
        "_version_",
        "manifest_11",
        "10_19_1.parquet",
    }
    assert whole(storage) == before


def test_of_an_instant_that_occurs_twice_the_first_one_still_counts_after_a_join() -> None:
    storage = MemoryStorage()
    append_history(storage, EIGHT, rows("3", "4", done="-first"), check=no_check)
    append_history(storage, EIGHT, rows("1", "3", done="-second"), check=no_check)
    before = whole(storage)
    policy = HistoryPolicy(join_files=2)
    assert compact_history(storage, EIGHT, policy, check=no_check) == 1
    assert [f.name for f in current_history(storage, EIGHT).files] == ["1_4_1.parquet"]
    assert whole(storage) == before
    append_history(storage, EIGHT, rows("3", done="-third"), check=no_check)
    assert whole(storage) == before


def test_a_join_that_a_crash_left_half_done_is_done_again() -> None:
    storage = MemoryStorage()
    for n in (1, 2):
        append_history(storage, EIGHT, rows(str(n)), check=no_check)
    storage.replace(f"{FOLDER}/1_2_1.parquet", b"whole, but nothing names it")
    assert compact_history(storage, EIGHT, HistoryPolicy(join_files=2), check=no_check) == 1
    assert [r["requested_time"] for r in whole(storage)] == ["1", "2"]


def test_a_real_history_survives_a_join(tmp_path: Path) -> None:
    storage, properties = real("v8_mor_archived_simple", tmp_path)
    before = read_history(storage, properties, columns=HISTORY_SCHEMA.names)
    policy = HistoryPolicy(join_files=3)
    assert compact_history(storage, properties, policy, check=no_check) == 1
    assert len(current_history(storage, properties).files) == 1
    assert read_history(storage, properties, columns=HISTORY_SCHEMA.names).equals(before)


def test_nothing_is_removed_while_a_kept_manifest_cannot_be_read() -> None:
    storage = MemoryStorage()
    for n in range(1, 6):
        append_history(storage, EIGHT, rows(str(n)), check=no_check)
    storage.replace(f"{FOLDER}/manifest_4", b"{")
    count = len(storage.list(FOLDER))
    with pytest.raises(CorruptFileError):
        clean_history(storage, EIGHT, kept=3, check=no_check)
    assert len(storage.list(FOLDER)) == count


SIZES = st.lists(st.tuples(st.integers(1, 100), st.sampled_from([0, 0, 0, 1, 9])), max_size=20)


@given(SIZES, st.integers(2, 6), st.integers(1, 200))
@settings(max_examples=200, deadline=None)
def test_files_of_one_level_are_joined_in_order_and_within_the_size(
    made: list[tuple[int, int]], join_files: int, join_bytes: int
) -> None:
    files = [
        HistoryFile.of(f"{100 + n}_{100 + n}_{level}.parquet", size)
        for n, (size, level) in enumerate(made)
    ]
    policy = HistoryPolicy(join_files=join_files, join_bytes=join_bytes)
    taken = files_to_join(files, 0, policy)
    of_level = [f for f in files if f.level == 0]
    assert not taken or 2 <= len(taken) <= join_files
    assert not taken or len(of_level) >= join_files
    assert all(f.level == 0 for f in taken)
    if taken:
        start = of_level.index(taken[0])
        assert tuple(of_level[start : start + len(taken)]) == taken
        assert sum(f.size for f in taken[:-1]) <= join_bytes
        assert all(f.size > join_bytes for f in of_level[:start])
    assert files_to_join(files, 9, policy) == ()


# ---- the archive of version 6 ------------------------------------------------------------------


def frames(block: LogBlock) -> list[bytes]:
    starts, ends = avro_frames(block)
    content = bytes(block.content)
    return [content[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def test_real_archive_records_are_written_again_byte_for_byte(tmp_path: Path) -> None:
    storage, properties = real("v6_cow_archived_simple", tmp_path)
    count = 0
    for file in storage.list(properties.history_folder):
        for block in read_blocks(storage.read(file.path), path=file.path):
            assert list(block.headers) == [HeaderKey.SCHEMA]
            for body in frames(block):
                value, _ = read_datum(body, record_schema(block))
                assert encode_entry(ArchivedMetaEntry.from_avro(value)) == body
                count += 1
    assert count == 18


def test_a_real_archive_written_again_reads_the_same(tmp_path: Path) -> None:
    theirs, properties = real("v6_cow_archived_simple", tmp_path)
    entries = read_archive(theirs, properties)
    ours = MemoryStorage()
    ours.replace(ARCHIVE.format(1), encode_archive([encode_entry(e) for e in entries]))
    assert read_archive(ours, SIX) == entries
    blocks = read_blocks(ours.read(ARCHIVE.format(1)), path="")
    assert [len(frames(b)) for b in blocks] == [RECORDS_PER_BLOCK, 8]
    assert bytes(blocks[0].content)[:8] == struct.pack(">ii", 3, RECORDS_PER_BLOCK)


def test_state_files_become_the_records_that_hudi_makes_of_them(tmp_path: Path) -> None:
    theirs, properties = real("v6_cow_archived_simple", tmp_path)
    made = []
    for state in instant_files(theirs, properties):
        path = f"{properties.timeline_folder}/{state.file_name}"
        made.append(encode_entry(archive_entry(state, theirs.read(path), "5", path=path)))
    ours = MemoryStorage()
    ours.replace(ARCHIVE.format(1), encode_archive(made))
    shapes = {_shape(e) for e in read_archive(ours, SIX)}
    assert len(shapes) == 6
    assert shapes <= {_shape(e) for e in read_archive(theirs, properties)}


def _shape(entry: ArchivedMetaEntry) -> tuple[object, ...]:
    """What of an entry is filled, and of the commit metadata in it."""
    commit = entry.hoodie_commit_metadata or CommitMetadata()
    return (
        entry.action_type,
        entry.action_state,
        _filled(entry),
        tuple(sorted(commit.extra_metadata)),
        commit.operation_type,
        frozenset(_filled(stat) for stat in commit.write_stats),
    )


def _filled(record: AvroRecord) -> tuple[str, ...]:
    return tuple(name for name, value in record.to_avro().items() if value is not None)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("action", ["commit", "clean", "rollback", "replacecommit", "compaction"])
def test_empty_state_files_are_archived_too(action: str, state: State) -> None:
    entry = archive_entry(Instant("1", action, state, None, "x"), b"", "2")
    assert (entry.commit_time, entry.action_type, entry.action_state) == ("1", action, state.name)
    filled = entry.hoodie_commit_metadata
    assert (filled is not None) == (action == "commit")
    assert encode_entry(entry)


def test_a_state_file_that_holds_something_else_is_not_archived() -> None:
    state = Instant("1", "clean", State.COMPLETED, "2", "1.clean")
    with pytest.raises(CorruptFileError):
        archive_entry(state, CommitMetadata().write(TableVersion.of(8)), "2", path="1.clean")


def test_the_next_file_lies_behind_all_others_and_behind_the_target_of_a_merge() -> None:
    storage = MemoryStorage()
    assert next_archive(storage, SIX) == ARCHIVE.format(1)
    storage.replace(ARCHIVE.format(9), b"")
    storage.replace(ARCHIVE.format(10), b"")
    assert next_archive(storage, SIX) == ARCHIVE.format(11)
    plan = MergeArchiveFilePlan(merged_archive_file_name=ARCHIVE.format(11).rsplit("/", 1)[1])
    storage.replace(".hoodie/archived/mergeArchivePlan", plan.write(TableVersion.of(6)))
    assert next_archive(storage, SIX) == ARCHIVE.format(12)


def test_only_the_newest_file_tells_what_was_archived_last() -> None:
    storage = MemoryStorage()
    for number, time in ((1, "1"), (2, "2")):
        entries = [
            archive_entry(Instant(time, "commit", state, None, "x"), b"", time) for state in State
        ]
        storage.replace(ARCHIVE.format(number), encode_archive([encode_entry(e) for e in entries]))
    assert newest_archived(storage, SIX) == {("2", "commit")}
    assert newest_archived(MemoryStorage(), SIX) == frozenset()


def test_helpers_of_the_reader_tests_write_what_the_writer_would() -> None:
    storage, other = MemoryStorage(), MemoryStorage()
    assert append_history(storage, EIGHT, rows("1"), check=no_check) == put(other, rows("1"))
