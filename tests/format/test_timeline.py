"""The active timeline: one listing, highest states, pure questions; real tables."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import ConflictError, CorruptFileError
from lakewright.format import property_keys as keys
from lakewright.format import timeline as timelines
from lakewright.format.instant import Instant, State, parse_instant_name
from lakewright.format.records import (
    CleanMetadata,
    ClusteringPlan,
    CommitMetadata,
    RequestedReplaceMetadata,
    load_commit_metadata,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import (
    Timeline,
    earliest_commit_to_retain,
    instant_files,
    is_pending_clustering,
    load_timeline,
    read_instant,
)
from lakewright.format.version import TableVersion
from lakewright.runtime.clock import ManualClock
from lakewright.storage.base import ObjectInfo
from lakewright.storage.local import LocalStorage
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from tests.fixtures import SHARED_ABSENT, shared_tables
from tests.format.timeline_tables import readable_tables

needs_shared = pytest.mark.skipif(not shared_tables(), reason=SHARED_ABSENT)


def properties(version: int = 8) -> TableProperties:
    layout = TableVersion.of(version).layout_version
    return TableProperties(
        {
            keys.NAME: "t",
            keys.VERSION: str(version),
            keys.LAYOUT_VERSION: str(layout),
            keys.TIMELINE_TIMEZONE: "UTC",
        }
    )


def table(names: Iterable[str], version: int = 8) -> tuple[MemoryStorage, TableProperties]:
    storage, props = MemoryStorage(), properties(version)
    for name in names:
        storage.replace(f"{props.timeline_folder}/{name}", b"")
    return storage, props


def timeline(*names: str, version: int = 8) -> Timeline:
    return load_timeline(*table(names, version))


def times(part: Timeline) -> list[str]:
    return [i.requested_time for i in part]


# ---- listing -----------------------------------------------------------------------------------


def test_of_each_instant_the_highest_state_is_kept() -> None:
    found = timeline(
        "2.deltacommit.requested",
        "2.deltacommit.inflight",
        "1.commit.requested",
        "1.inflight",
        "1_3.commit",
    )
    assert [str(i) for i in found] == ["1 commit COMPLETED", "2 deltacommit INFLIGHT"]
    assert found.instants[0].completion_time == "3"
    assert found.instants[1].completion_time is None


@pytest.mark.parametrize("version", [6, 8])
def test_an_unchanged_listing_is_the_same_timeline_and_a_changed_one_is_another(
    version: int,
) -> None:
    done = "1_3.commit" if version == 8 else "1.commit"
    clock = ManualClock()
    storage, props = MemoryStorage(MemoryBucket(clock=clock)), properties(version)
    path = f"{props.timeline_folder}/{done}"
    storage.replace(path, b"")
    first = load_timeline(storage, props)
    assert load_timeline(storage, props) is first
    storage.replace(f"{props.timeline_folder}/2.clean.requested", b"")
    assert times(load_timeline(storage, props)) == ["1", "2"]
    storage.delete(f"{props.timeline_folder}/2.clean.requested")
    clock.sleep(5.0)
    storage.replace(path, b"again")
    touched = load_timeline(storage, props)
    assert (touched == first) == (version == 8)  # version 6 has times of files


def test_a_finished_service_does_not_look_pending() -> None:
    found = timeline(
        "1.compaction.requested",
        "1.compaction.inflight",
        "1_2.commit",
        "3.clustering.requested",
        "3_4.replacecommit",
        "5.logcompaction.requested",
        "5_6.deltacommit",
    )
    assert len(found) == 3 and len(found.pending()) == 0
    assert not found.pending_compactions() and not found.pending_log_compactions()


def test_a_savepoint_is_another_instant_than_the_commit_of_its_time() -> None:
    found = timeline("1_2.commit", "1_3.savepoint")
    assert [i.action for i in found] == ["commit", "savepoint"]
    assert found.get("1") is found.instants[0]
    assert found.get("1", "savepoint") is found.instants[1]


def test_an_instant_is_found_by_the_action_of_any_of_its_states() -> None:
    found = timeline("1.compaction.requested", "1_2.commit", "3.compaction.requested")
    assert found.get("1", "compaction") is found.get("1", "commit") is found.instants[0]
    assert found.get("3", "compaction") is found.get("3", "commit") is found.instants[1]
    assert found.get("1", "deltacommit") is None


def test_files_that_are_no_instants_are_left_out() -> None:
    six = timeline(
        "hoodie.properties",
        ".1.commit.crc",
        "1.commit",
        "1.commit.d4c7a",
        "archived/x",
        "2_3.commit",
        version=6,
    )
    assert times(six) == ["1"]


def test_of_two_completions_the_newest_counts_and_the_other_is_told() -> None:
    found = timeline("1.inflight", "1_5.commit", "1_3.commit")
    assert [i.completion_time for i in found] == ["5"]
    assert [i.completion_time for i in found.duplicates] == ["3"]


def test_completion_times_of_version_6_are_modification_times_of_completed_files() -> None:
    storage, props = table(["1.commit.requested", "1.commit", "2.commit.requested"], version=6)
    storage.set_modified(".hoodie/1.commit", 1758547314428)
    first, second = load_timeline(storage, props)
    assert first.completion_time == "20250922132154428" and not first.legacy
    assert second.completion_time is None


def test_a_completed_file_without_completion_time_is_legacy_in_layout_2() -> None:
    storage, props = table(["1.commit", "2_3.commit"])
    storage.set_modified(".hoodie/timeline/1.commit", 1758547314428)
    old, new = load_timeline(storage, props)
    assert old.legacy and old.completion_time == "20250922132154428"
    assert not new.legacy
    storage.replace(".hoodie/timeline/1.commit", b'{"operationType":"INSERT"}')
    assert load_commit_metadata(storage, props, old).operation_type == "INSERT"


def test_no_instants_are_an_empty_timeline_where_folders_need_not_exist() -> None:
    empty = timeline()
    assert len(empty) == 0 and empty.first() is None and empty.last() is None
    assert empty.starts_at is None and not empty.contains_completed_or_archived("1")


def test_a_missing_timeline_folder_on_a_disk_is_an_error(tmp_path: object) -> None:
    with pytest.raises(CorruptFileError, match="timeline folder"):
        load_timeline(LocalStorage(str(tmp_path)), properties())


# ---- questions ---------------------------------------------------------------------------------


def sample() -> Timeline:
    return timeline(
        "01_02.commit",
        "01_03.savepoint",
        "04_05.deltacommit",
        "06_20.deltacommit",
        "07_08.commit",
        "09_10.clean",
        "11.compaction.requested",
        "12.deltacommit.inflight",
        "13.clustering.requested",
        "14_15.replacecommit",
        "16.logcompaction.requested",
        "17_18.rollback",
    )


def test_parts_of_a_timeline() -> None:
    whole = sample()
    assert times(whole.commits()) == ["01", "04", "06", "07", "12", "13", "14"]
    assert times(whole.commits().completed()) == ["01", "04", "06", "07", "14"]
    assert times(whole.writes()) == ["01", "04", "06", "07", "11", "12", "13", "14", "16"]
    assert times(whole.visible()) == ["01", "04", "06", "07", "11", "14"]
    assert times(whole.pending()) == ["11", "12", "13", "16"]
    assert times(whole.pending_compactions()) == ["11"]
    assert times(whole.pending_log_compactions()) == ["16"]
    assert times(whole.savepoints()) == ["01"]
    assert times(whole.filter_actions("clean", "rollback")) == ["09", "17"]
    assert times(whole.up_to("06")) == ["01", "01", "04", "06"]
    assert times(whole.after("12")) == ["13", "14", "16", "17"]
    assert times(whole.commits().completed_in("05", "15")) == ["07", "14"]
    assert times(whole.completed_in(None, "03")) == ["01", "01"]


def test_single_instants() -> None:
    whole = sample()
    assert whole.last_completed_commit() is whole.get("14")
    assert whole.last_clean() is whole.get("09")
    assert whole.get("11", "commit") is whole.get("11", "compaction") is whole.get("11")
    assert whole.get("99") is None and whole.get("11", "clean") is None
    assert whole.first() is whole.instants[0] and whole.last() is whole.instants[-1]


def test_completion_order_puts_late_finishers_later_and_pending_ones_last() -> None:
    order = [i.requested_time for i in sample().writes().in_completion_order()]
    assert order == ["01", "04", "07", "14", "06", "11", "12", "13", "16"]


def test_the_timeline_starts_at_the_first_write_that_no_savepoint_keeps() -> None:
    whole = sample()
    assert whole.savepointed_times == {"01"}
    assert whole.starts_at == "04"
    assert whole.is_archived("03") and not whole.is_archived("04")


def test_an_index_that_begins_late_does_not_make_archived_instants_unknown() -> None:
    begun, other, first, later = (
        "00000000000000001",
        "00000000000000004",
        "20240101000000000",
        "20240102000000000",
    )
    done = Instant(begun, "deltacommit", State.COMPLETED, later, f"{begun}.deltacommit")
    write = Instant(first, "deltacommit", State.COMPLETED, first, f"{first}.deltacommit")
    both = Timeline.of([done, write])
    assert both.starts_at == first and both.contains_completed_or_archived(begun)
    assert both.is_archived("20231231000000000") and not both.is_archived(later)
    assert both.is_archived(other), "the beginning of another index"
    pending = replace(done, state=State.INFLIGHT, completion_time=None)
    unfinished = Timeline.of([pending, write])
    assert not unfinished.contains_completed_or_archived(begun)
    alone = Timeline.of([done])
    assert alone.starts_at == begun and not alone.is_archived(other)


def test_committed_is_completed_here_or_archived() -> None:
    whole = sample()
    for committed in ("01", "04", "06", "07", "14", "02", "00"):
        assert whole.contains_completed_or_archived(committed)
    for not_committed in ("05", "09", "11", "12", "13", "17", "99"):
        assert not whole.contains_completed_or_archived(not_committed)


def test_questions_about_the_table_have_one_answer_on_every_part() -> None:
    whole = sample()
    part = whole.filter_actions("replacecommit").completed()
    assert part.starts_at == whole.starts_at
    assert part.savepointed_times == whole.savepointed_times
    assert part.contains_completed_or_archived("06")
    assert part.completion_time_of("06") == "20"
    assert whole.completion_time_of("12") is None and whole.completion_time_of("09") is None


@given(
    st.lists(
        st.tuples(
            st.integers(1, 30),
            st.sampled_from(["commit", "deltacommit", "compaction", "clean", "savepoint"]),
            st.sampled_from(list(State)),
        ),
        max_size=40,
    )
)
def test_any_listing_order_gives_the_same_timeline(files: list[tuple[int, str, State]]) -> None:
    instants = [
        Instant(f"{t:02}", action, state, f"{t + 1:02}" if state is State.COMPLETED else None, "")
        for t, action, state in files
        if not (action == "compaction" and state is State.COMPLETED)
    ]
    built = Timeline.of(instants)
    model: dict[tuple[str, str], State] = {}
    for i in instants:
        key = (i.requested_time, i.completed_action)
        model[key] = max(model.get(key, i.state), i.state)
    assert [(i.requested_time, i.completed_action) for i in built] == sorted(model)
    assert all(model[(i.requested_time, i.completed_action)] == i.state for i in built)
    again = Timeline.of(reversed(instants))
    assert [(i.requested_time, i.completed_action, i.state) for i in again] == [
        (i.requested_time, i.completed_action, i.state) for i in built
    ]


def test_ten_thousand_instants_load_fast() -> None:
    storage, props = table([])
    for i in range(10_000):
        t = f"2025{i:013}"
        for suffix in (".deltacommit.requested", ".deltacommit.inflight", f"_{t}.deltacommit"):
            storage.replace(f"{props.timeline_folder}/{t}{suffix}", b"")
    started = time.process_time()
    loaded = load_timeline(storage, props)
    spent = time.process_time() - started
    assert len(loaded) == 10_000 and not loaded.pending()
    assert spent < 1.0


def test_loading_takes_one_listing_and_reads_no_file() -> None:
    seen: list[str] = []

    class Watched(MemoryStorage):
        def __getattribute__(self, name: str) -> object:
            if name in ("list", "read", "stat", "walk", "exists", "read_range", "open_input"):
                seen.append(name)
            return super().__getattribute__(name)

    storage = Watched(MemoryBucket())
    load_timeline(storage, properties())
    assert seen == ["list"]


class Paged(MemoryStorage):
    """Lists in two pages, between which an archiver removes the oldest instants."""

    archivings = 1
    removed = 0.75
    """The share of the instants that one archiving removes."""

    def list(self, path: str = "") -> list[ObjectInfo]:
        found = sorted(super().list(path), key=lambda info: info.path)
        if self.archivings:
            self.archivings -= 1
            for info in found[: math.ceil(len(found) * self.removed)]:
                self.delete(info.path)
        second = [info for info in found[len(found) // 2 :] if self.exists(info.path)]
        return found[: len(found) // 2] + second


def written(storage: MemoryStorage, props: TableProperties, count: int) -> list[str]:
    """Commits one after the other."""
    by_name = props.version.completion_time_in_name
    made = [f"2025{i:013}" for i in range(count)]
    for t in made:
        name = f"{t}_{t}.commit" if by_name else f"{t}.commit"
        storage.replace(f"{props.timeline_folder}/{name}", b"")
    return made


@pytest.mark.parametrize("version", [6, 8])
def test_a_long_listing_beside_an_archiver_has_no_hole(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "LISTED_AT_ONCE", 20)
    storage, props = Paged(), properties(version)
    made = written(storage, props, 40)
    assert times(load_timeline(storage, props)) == made[30:]
    assert storage.archivings == 0


def test_a_timeline_that_is_archived_again_and_again_is_a_conflict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timelines, "LISTED_AT_ONCE", 0)
    storage, props = Paged(), properties()
    storage.archivings, storage.removed = 99, 0.01
    written(storage, props, 40)
    with pytest.raises(ConflictError, match="again and again") as caught:
        load_timeline(storage, props)
    assert caught.value.retryable


# ---- questions that need a file ----------------------------------------------------------------


def put(storage: MemoryStorage, props: TableProperties, name: str, data: bytes) -> Instant:
    storage.replace(f"{props.timeline_folder}/{name}", data)
    parsed = parse_instant_name(name, props.version.layout_version)
    assert parsed is not None
    return Instant(*parsed, name)


@pytest.mark.parametrize("version", [6, 8])
def test_a_pending_replacecommit_is_a_clustering_if_its_request_has_a_plan(version: int) -> None:
    storage, props = table([], version)
    plan = RequestedReplaceMetadata(operation_type="CLUSTER", clustering_plan=ClusteringPlan())
    clustering = put(storage, props, "1.replacecommit.requested", plan.write(props.version))
    overwrite = put(
        storage,
        props,
        "2.replacecommit.requested",
        RequestedReplaceMetadata().write(props.version),
    )
    empty = put(storage, props, "3.replacecommit.requested", b"")
    inflight = put(storage, props, "1.replacecommit.inflight", b"")
    lost = put(storage, props, "4.replacecommit.inflight", b"")
    assert is_pending_clustering(storage, props, clustering)
    assert is_pending_clustering(storage, props, inflight)
    assert not is_pending_clustering(storage, props, overwrite)
    assert not is_pending_clustering(storage, props, empty)
    assert not is_pending_clustering(storage, props, lost)


def test_the_clustering_action_needs_no_look_into_its_request() -> None:
    storage, props = table([])
    pending = put(storage, props, "1.clustering.inflight", b"")
    done = put(storage, props, "2_3.replacecommit", CommitMetadata().write(props.version))
    assert is_pending_clustering(storage, props, pending)
    assert not is_pending_clustering(storage, props, done)


def test_the_last_clean_that_says_something_bounds_what_is_retained() -> None:
    storage, props = table([])
    assert earliest_commit_to_retain(storage, props, load_timeline(storage, props)) is None
    clean = CleanMetadata(
        start_clean_time="5",
        time_taken_in_millis=1,
        total_files_deleted=0,
        earliest_commit_to_retain="3",
        partition_metadata={},
    )
    put(storage, props, "5_6.clean", clean.write(props.version))
    put(storage, props, "7_8.clean", b"")
    assert earliest_commit_to_retain(storage, props, load_timeline(storage, props)) == "3"


# ---- real tables -------------------------------------------------------------------------------


@needs_shared
def test_real_timelines_hold_every_file_and_only_completed_writes_count() -> None:
    for real in readable_tables():
        files = instant_files(real.storage, real.properties)
        loaded = load_timeline(real.storage, real.properties)
        groups = {(f.requested_time, f.completed_action) for f in files}
        assert {(i.requested_time, i.completed_action) for i in loaded} == groups
        assert loaded.duplicates == () and len(loaded.pending()) == 0, real.name
        for instant in loaded:
            assert instant.completion_time is not None and not instant.legacy
            assert read_instant(real.storage, real.properties, instant)
            if real.properties.version.completion_time_in_name:
                assert instant.completion_time >= instant.requested_time


@needs_shared
def test_real_clusterings_are_told_from_real_overwrites() -> None:
    told = set()
    for real in readable_tables():
        for instant in real.files():
            if instant.completed_action == "replacecommit" and not instant.completed:
                told.add(is_pending_clustering(real.storage, real.properties, instant))
    assert told == {True, False}


@needs_shared
def test_the_earliest_commit_to_retain_of_a_real_table() -> None:
    (real,) = [t for t in readable_tables() if t.name == "mor_v8_services/hudi-v8-table-mor"]
    loaded = load_timeline(real.storage, real.properties)
    assert earliest_commit_to_retain(real.storage, real.properties, loaded) == "20250922133036728"
    assert loaded.starts_at == "20250922133033589"
    assert loaded.contains_completed_or_archived("20250922133030689")
