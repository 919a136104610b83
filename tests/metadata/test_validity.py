"""Which blocks count, and when a metadata table is behind its table."""

from __future__ import annotations

import pytest

from lakewright.errors import MetadataTableError
from lakewright.format.instant import Instant, State
from lakewright.format.records.cleaning import CleanMetadata
from lakewright.format.records.rollback import RollbackMetadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.metadata.validity import check_fresh, valid_instants
from lakewright.storage.memory import MemoryStorage

SIX = TableProperties({"hoodie.table.version": "6"})
EIGHT = TableProperties({"hoodie.table.version": "8"})
INIT = "00000000000000000"
T1, T2, T3 = "20240101000000001", "20240101000000002", "20240101000000003"


def instant(
    time: str, action: str = "deltacommit", *, done: str | None = "", name: str | None = None
) -> Instant:
    """Completed at `done` (soon after it was requested, by default), or pending with None."""
    completed = done is not None
    completion = (done or time) if completed else None
    state = State.COMPLETED if completed else State.INFLIGHT
    return Instant(time, action, state, completion, name or f"{time}.{action}")


def line(*instants: Instant) -> Timeline:
    return Timeline.of(instants)


def test_a_block_counts_only_if_its_data_instant_completed() -> None:
    own = line(instant(INIT), instant(T1), instant(T2), instant(T3, done=None))
    data = line(instant(T1), instant(T2, done=None))
    valid = valid_instants(EIGHT, data, own)
    assert [valid(t) for t in (INIT, T1, T2, T3)] == [True, True, False, False]


def test_own_instants_of_the_metadata_table_count() -> None:
    service = "20240101000000009"
    own = line(instant(T1), instant(service, done=service + "1"))
    valid = valid_instants(EIGHT, line(instant(T1), instant(T2, done=service + "2")), own)
    assert valid(service)
    suffixed = [T1 + s for s in ("001", "004", "010", "012", "007")]
    own = line(instant("00000000000000010"), *(instant(t) for t in suffixed), instant(service))
    valid = valid_instants(SIX, line(instant(T1)), own)
    assert [valid(t) for t in suffixed] == [True, True, True, True, False]
    assert valid("00000000000000010") and not valid(service)


def test_a_commit_that_the_reader_does_not_know_yet_does_not_count() -> None:
    """The data timeline was pinned before that commit was requested."""
    own = line(instant(INIT), instant(T1), instant(T2))
    valid = valid_instants(EIGHT, line(instant(T1)), own)
    assert valid(T1) and not valid(T2)
    assert not valid_instants(SIX, line(instant(T1)), own)(T2)


def test_a_metadata_table_that_was_compacted_ahead_of_the_reader_is_not_trusted() -> None:
    for properties, compaction in ((EIGHT, T3), (SIX, T2 + "001")):
        for data in (line(instant(T1)), line(instant(T1), instant(T2, done=None))):
            own = line(instant(INIT), instant(T1), instant(T2), instant(compaction, "commit"))
            with pytest.raises(MetadataTableError, match=f"compacted with {T2}"):
                fresh(properties, data, own)
    below = line(instant(INIT), instant(T1), instant(T2, "commit"), instant(T3))
    fresh(EIGHT, line(instant(T1), instant(T3, done=None)), below)


def test_a_commit_that_was_rolled_back_in_the_data_table_alone_makes_it_stale() -> None:
    storage = MemoryStorage()
    record = RollbackMetadata(
        start_rollback_time=T3,
        time_taken_in_millis=1,
        total_files_deleted=0,
        commits_rollback=[T2],
        partition_metadata={},
    )
    storage.create_if_absent(f".hoodie/timeline/{T3}.rollback", record.write(EIGHT.version))
    data = line(instant(T1), instant(T3, "rollback"))
    before = instant(INIT, done="20230101000000000")
    check_fresh(storage, EIGHT, data, line(before, instant(T1)))
    with pytest.raises(MetadataTableError, match=f"{T2} was rolled back"):
        check_fresh(storage, EIGHT, data, line(before, instant(T1), instant(T2)))


def test_what_both_timelines_archived_counts() -> None:
    for properties in (SIX, EIGHT):
        valid = valid_instants(properties, line(instant(T2)), line(instant(T2)))
        assert valid(T1) and not valid(T3)


def fresh(properties: TableProperties, data: Timeline, own: Timeline) -> None:
    check_fresh(MemoryStorage(), properties, data, own)


def test_a_metadata_table_that_knows_every_change_is_fresh() -> None:
    data = line(
        instant(T1, "commit"),
        instant(T2, "replacecommit"),
        instant(T2 + "9", "savepoint"),
        instant(T3, done=None),
    )
    fresh(EIGHT, data, line(instant(INIT, done="20230101000000000"), instant(T1), instant(T2)))


def test_a_missing_commit_makes_it_stale() -> None:
    own = line(instant(INIT, done="20230101000000000"), instant(T1))
    with pytest.raises(MetadataTableError, match=f"stale: commit {T2}"):
        fresh(EIGHT, line(instant(T1, "commit"), instant(T2, "commit")), own)
    pending = line(instant(INIT, done="20230101000000000"), instant(T1), instant(T2, done=None))
    with pytest.raises(MetadataTableError, match="stale"):
        fresh(EIGHT, line(instant(T1), instant(T2)), pending)


def test_an_empty_timeline_is_not_trusted() -> None:
    with pytest.raises(MetadataTableError, match="no completed instant"):
        fresh(EIGHT, line(instant(T1)), line(instant(INIT, done=None)))


def test_what_was_there_before_initialisation_was_listed_by_it() -> None:
    data = line(instant(T1, "commit"), instant(T2, "commit"))
    fresh(EIGHT, data, line(instant(INIT, done=T3)))
    fresh(SIX, data, line(instant(T2 + "010")))
    with pytest.raises(MetadataTableError, match=T2):
        fresh(EIGHT, data, line(instant(INIT, done=T1)))
    with pytest.raises(MetadataTableError, match=T2):
        fresh(SIX, data, line(instant(T1 + "010")))
    with pytest.raises(MetadataTableError, match=T1):
        fresh(SIX, data, line(instant("00000000000000010")))


def test_archived_instants_are_known() -> None:
    fresh(EIGHT, line(instant(T1), instant(T2)), line(instant(T2)))


def clean_with(files: int) -> MemoryStorage:
    storage = MemoryStorage()
    metadata = CleanMetadata(
        start_clean_time=T2,
        time_taken_in_millis=1,
        total_files_deleted=files,
        earliest_commit_to_retain="",
        partition_metadata={},
    )
    storage.create_if_absent(f".hoodie/timeline/{T2}.clean", metadata.write(EIGHT.version))
    return storage


def test_a_clean_that_is_missing_matters_only_if_it_deleted_files() -> None:
    data = line(instant(T1), instant(T2, "clean"))
    own = line(instant(INIT, done="20230101000000000"), instant(T1))
    check_fresh(clean_with(0), EIGHT, data, own)
    with pytest.raises(MetadataTableError, match="clean"):
        check_fresh(clean_with(3), EIGHT, data, own)
