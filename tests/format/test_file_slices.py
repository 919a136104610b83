"""File groups and slices from listed files and a timeline."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.format.file_slices import (
    FileGroupId,
    FileSlice,
    FileSystemView,
    OrphanReason,
)
from lakewright.format.instant import Instant, State
from lakewright.format.partitions import ListedFile
from lakewright.format.timeline import Timeline
from lakewright.format.version import TableVersion

SIX, EIGHT = TableVersion.of(6), TableVersion.of(8)


def done(requested: str, action: str = "deltacommit", completed: str | None = None) -> Instant:
    name = f"{requested}.{action}"
    return Instant(requested, action, State.COMPLETED, completed or requested, name)


def pending(requested: str, action: str = "deltacommit") -> Instant:
    name = f"{requested}.{action}.inflight"
    return Instant(requested, action, State.INFLIGHT, None, name)


def base(instant: str, file_id: str = "f", token: str = "0-0-0") -> str:
    return f"{file_id}_{token}_{instant}.parquet"


def log(instant: str, version: int = 1, file_id: str = "f", suffix: str = "") -> str:
    return f".{file_id}_{instant}.log.{version}_0-0-0{suffix}"


def view_of(
    version: TableVersion,
    names: list[str],
    instants: list[Instant],
    *,
    planned: Mapping[str, str] | None = None,
    replaced: Mapping[str, str] | None = None,
    archived: Mapping[str, str] | None = None,
) -> FileSystemView:
    timeline = Timeline.of(instants)

    def completion_time_of(requested: str) -> str | None:
        return timeline.completion_time_of(requested) or (archived or {}).get(requested)

    return FileSystemView.build(
        {"p": [ListedFile(n, 1) for n in names]},
        timeline=timeline,
        version=version,
        pending_compactions={FileGroupId("p", k): v for k, v in (planned or {}).items()},
        replaced={FileGroupId("p", k): v for k, v in (replaced or {}).items()},
        completion_time_of=completion_time_of,
    )


def facts(slice_: FileSlice) -> tuple[str, str | None, list[str]]:
    name = slice_.base.name if slice_.base else None
    return slice_.base_instant, name, [f.name for f in slice_.logs]


def merged(view: FileSystemView, as_of: str | None = None) -> list[Any]:
    return [facts(s) for s in view.latest_merged_slices(as_of)]


def orphans(view: FileSystemView) -> dict[str, OrphanReason]:
    return {o.name: o.reason for o in view.orphans()}


# ---- version 6 ---------------------------------------------------------------------------------


def test_version_6_logs_join_the_slice_their_name_says() -> None:
    names = [base("100"), log("100", 2), log("100", 10), base("200"), log("200")]
    view = view_of(SIX, names, [done("100"), done("150"), done("200", "commit"), done("250")])
    assert [facts(s) for s in view.all_slices()] == [
        ("200", base("200"), [log("200")]),
        ("100", base("100"), [log("100", 2), log("100", 10)]),
    ]
    assert merged(view) == [("200", base("200"), [log("200")])]
    assert view.orphans() == []


def test_version_6_hides_slices_of_uncommitted_instants() -> None:
    names = [base("100"), base("200"), log("200"), base("300")]
    view = view_of(SIX, names, [done("100"), pending("200", "commit")])
    assert merged(view) == [("100", base("100"), [])]
    assert orphans(view) == {
        base("200"): OrphanReason.PENDING,
        log("200"): OrphanReason.PENDING,
        base("300"): OrphanReason.UNKNOWN_INSTANT,
    }


def test_version_6_keeps_logs_whose_blocks_may_not_be_committed() -> None:
    view = view_of(SIX, [base("100"), log("100")], [done("100"), pending("150")])
    assert merged(view) == [("100", base("100"), [log("100")])]


def test_version_6_merges_the_slice_of_a_pending_compaction_with_the_one_before() -> None:
    names = [base("100"), log("100"), base("200"), log("200")]
    instants = [done("100"), done("150"), pending("200", "compaction"), done("250")]
    view = view_of(SIX, names, instants, planned={"f": "200"})
    assert merged(view) == [("100", base("100"), [log("100"), log("200")])]
    assert [facts(s) for s in view.latest_slices()] == [("200", None, [log("200")])]
    assert [b.name for b in view.latest_base_files()] == [base("100")]
    assert orphans(view) == {base("200"): OrphanReason.PENDING_COMPACTION}
    assert merged(view, "150") == [("100", base("100"), [log("100")])]


def test_a_planned_compaction_makes_an_empty_slice_for_writers_only() -> None:
    instants = [done("100"), pending("200", "compaction")]
    view = view_of(SIX, [base("100")], instants, planned={"f": "200"})
    assert [facts(s) for s in view.latest_slices()] == [("200", None, [])]
    assert merged(view) == [("100", base("100"), [])]
    only_logs = view_of(SIX, [log("200")], instants, planned={"f": "200"})
    assert merged(only_logs) == [("200", None, [log("200")])]
    assert only_logs.latest_base_files() == []


# ---- versions 8 and 9 --------------------------------------------------------------------------


def test_version_8_logs_join_the_newest_slice_begun_before_they_completed() -> None:
    names = [base("108"), log("127"), log("128"), base("129"), log("130")]
    instants = [
        done("108", completed="109"),
        done("127", completed="128"),
        done("128", completed="129"),
        done("129", "commit", "131"),
        done("130", completed="132"),
    ]
    view = view_of(EIGHT, names, instants)
    assert [facts(s) for s in view.all_slices()] == [
        ("129", base("129"), [log("128"), log("130")]),
        ("108", base("108"), [log("127")]),
    ]


def test_version_8_drops_logs_of_uncommitted_instants() -> None:
    names = [base("100"), log("150"), log("160"), log("170")]
    view = view_of(EIGHT, names, [done("100"), done("150", completed="155"), pending("160")])
    assert merged(view) == [("100", base("100"), [log("150")])]
    assert orphans(view) == {
        log("160"): OrphanReason.PENDING,
        log("170"): OrphanReason.UNKNOWN_INSTANT,
    }


def test_version_8_never_loses_a_committed_log_to_an_uncommitted_base_file() -> None:
    names = [base("100"), base("150"), log("140")]
    view = view_of(EIGHT, names, [done("100"), done("140", completed="160"), pending("150")])
    assert merged(view) == [("100", base("100"), [log("140")])]


def test_version_8_groups_with_logs_only_are_named_by_their_first_log() -> None:
    instants = [done("100", completed="115"), done("110", completed="112")]
    view = view_of(EIGHT, [log("110"), log("100")], instants)
    assert merged(view) == [("100", None, [log("100"), log("110")])]
    half = view_of(EIGHT, [log("110"), log("100")], [done("90"), pending("100"), instants[1]])
    assert merged(half) == [("110", None, [log("110")])]


def test_version_8_merges_logs_after_a_planned_compaction_with_what_it_compacts() -> None:
    names = [base("100"), log("150"), log("190"), base("200"), log("250")]
    instants = [
        done("100"),
        done("150", completed="160"),
        done("190", completed="210"),
        pending("200", "compaction"),
        done("250", completed="260"),
    ]
    view = view_of(EIGHT, names, instants, planned={"f": "200"})
    assert [facts(s) for s in view.all_slices()] == [
        ("200", None, [log("190"), log("250")]),
        ("100", base("100"), [log("150")]),
    ]
    assert merged(view) == [("100", base("100"), [log("150"), log("190"), log("250")])]
    assert merged(view, "200") == [("100", base("100"), [log("150"), log("190")])]
    assert merged(view, "170") == [("100", base("100"), [log("150")])]


def test_archived_completion_times_are_asked_only_where_they_decide() -> None:
    names = [base("100"), log("120"), base("200"), log("210")]
    active = [done("300", completed="301")]
    asked: list[str] = []

    def lookup(requested: str) -> str | None:
        asked.append(requested)
        return {"120": "205"}.get(requested)

    view = FileSystemView.build(
        {"p": [ListedFile(n, 1) for n in names]},
        timeline=Timeline.of(active),
        version=EIGHT,
        pending_compactions={},
        replaced={},
        completion_time_of=lookup,
    )
    assert asked == ["120"]
    assert [facts(s) for s in view.all_slices()] == [
        ("200", base("200"), [log("120"), log("210")]),
        ("100", base("100"), []),
    ]
    forgotten = view_of(EIGHT, names, active)
    assert [facts(s)[2] for s in forgotten.all_slices()] == [[log("210")], [log("120")]]


def test_instants_of_another_length_compare_by_request() -> None:
    names = [base("100"), log("150"), base("200")]
    instants = [done("100"), done("150", completed="20250101000000000"), done("200")]
    view = view_of(EIGHT, names, instants)
    assert [facts(s)[2] for s in view.all_slices()] == [[], [log("150")]]


# ---- every version -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [SIX, EIGHT], ids=str)
def test_archived_instants_count_as_committed(version: TableVersion) -> None:
    view = view_of(version, [base("050"), log("050")], [done("100"), done("110")])
    assert merged(view) == [("050", base("050"), [log("050")])]
    savepointed = [done("010"), done("010", "savepoint"), done("100")]
    assert merged(view_of(version, [base("050")], savepointed)) == [("050", base("050"), [])]


@pytest.mark.parametrize("version", [SIX, EIGHT], ids=str)
def test_nothing_is_committed_without_any_commit(version: TableVersion) -> None:
    view = view_of(version, [base("050"), log("060")], [pending("100")])
    assert view.groups == {} and len(view.orphans()) == 2
    assert view_of(version, [], []).latest_merged_slices() == []


@pytest.mark.parametrize("version", [SIX, EIGHT], ids=str)
def test_replaced_groups_are_hidden_from_their_replacement_on(version: TableVersion) -> None:
    names = [base("100"), base("200", "g")]
    instants = [done("100"), done("200", "replacecommit"), done("300")]
    view = view_of(version, names, instants, replaced={"f": "200"})
    assert merged(view) == [("200", base("200", "g"), [])]
    assert merged(view, "150") == [("100", base("100"), [])]
    assert merged(view, "200") == [("200", base("200", "g"), [])]
    assert len(view.all_slices()) == 2 and len(view.all_slices(include_replaced=False)) == 1
    assert view.groups[FileGroupId("p", "f")].replaced_at == "200"


@pytest.mark.parametrize("version", [SIX, EIGHT], ids=str)
def test_time_travel_is_by_requested_time_inclusively(version: TableVersion) -> None:
    names = [base("100"), base("200")]
    view = view_of(version, names, [done("100"), done("200")])
    assert merged(view, "099") == []
    assert merged(view, "100") == merged(view, "199") == [("100", base("100"), [])]
    assert merged(view, "200") == [("200", base("200"), [])]
    assert [b.name for b in view.latest_base_files("150")] == [base("100")]
    assert [facts(s) for s in view.latest_base_slices("150")] == [("100", base("100"), [])]


def test_time_travel_drops_later_logs_where_names_tell() -> None:
    names = [base("100"), log("150"), log("160")]
    view = view_of(EIGHT, names, [done("100"), done("150"), done("160")])
    assert merged(view, "150") == [("100", base("100"), [log("150")])]


@pytest.mark.parametrize("version", [SIX, EIGHT], ids=str)
def test_change_logs_are_kept_apart_and_make_no_slice(version: TableVersion) -> None:
    names = [base("100"), base("200"), log("200", suffix=".cdc"), log("250", suffix=".cdc")]
    names += [log("050", suffix=".cdc"), log("100", file_id="g", suffix=".cdc")]
    view = view_of(version, names, [done("050"), done("100"), done("200"), pending("250")])
    (slice_,) = view.latest_merged_slices()
    assert facts(slice_) == ("200", base("200"), [])
    assert [f.name for f in slice_.cdc_logs] == [log("200", suffix=".cdc")]
    assert orphans(view) == {
        log("250", suffix=".cdc"): OrphanReason.PENDING,
        log("050", suffix=".cdc"): OrphanReason.NO_SLICE,
        log("100", file_id="g", suffix=".cdc"): OrphanReason.NO_SLICE,
    }


@pytest.mark.parametrize("version", [SIX, EIGHT], ids=str)
def test_of_two_base_files_of_one_instant_the_last_listed_stays(version: TableVersion) -> None:
    names = [base("100", token="0-1-1"), base("100", token="0-1-2")]
    for listed in (names, names[::-1]):
        view = view_of(version, listed, [done("100")])
        assert merged(view) == [("100", names[1], [])]
        assert orphans(view) == {names[0]: OrphanReason.DUPLICATE}


def test_names_that_only_look_like_data_files_are_reported() -> None:
    view = view_of(SIX, ["odd.parquet"], [done("100")])
    (orphan,) = view.orphans()
    assert (orphan.name, orphan.partition, orphan.instant) == ("odd.parquet", "p", None)
    assert orphan.reason is OrphanReason.UNRECOGNISED_NAME


def test_paths_of_files_begin_at_the_table() -> None:
    timeline = Timeline.of([done("100")])
    for partition, prefix in (("", ""), ("a/b", "a/b/")):
        view = FileSystemView.build(
            {partition: [ListedFile(base("100"), 5, 7), ListedFile(log("100"), 6, 8)]},
            timeline=timeline,
            version=SIX,
            pending_compactions={},
            replaced={},
            completion_time_of=timeline.completion_time_of,
        )
        (slice_,) = view.latest_merged_slices()
        assert slice_.base is not None and slice_.base.path == prefix + base("100")
        assert slice_.logs[0].path == prefix + log("100")
        assert (slice_.base.size, slice_.base.modified_ms) == (5, 7)
        assert slice_.group == FileGroupId(partition, "f")


# ---- against a direct model --------------------------------------------------------------------

TIMES = st.integers(1, 12).map(lambda n: f"{n * 10:03d}")


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Instant], list[str], str | None]:
    requested = sorted(draw(st.sets(TIMES, min_size=1, max_size=8)))
    instants = []
    for t in requested:
        delay = draw(st.integers(0, 40))
        finished = draw(st.booleans() | st.just(True))
        instants.append(done(t, completed=f"{int(t) + delay:03d}") if finished else pending(t))
    planned = None
    if draw(st.booleans()):
        planned = f"{draw(st.integers(1, 12)) * 10 + 5:03d}"
        instants.append(pending(planned, "compaction"))
    names = draw(
        st.lists(
            st.one_of(
                TIMES.map(base),
                st.builds(log, TIMES, st.integers(1, 2)),
                st.just(planned).map(lambda c: base(c) if c else base("005")),
                st.just(planned).map(lambda c: log(c) if c else log("005")),
            ),
            unique=True,
            max_size=10,
        )
    )
    return instants, names, planned


def model(
    version: TableVersion, instants: list[Instant], names: list[str], planned: str | None
) -> list[tuple[str, str | None, list[str]]]:
    """Slices of the one group, newest first, by the rules one at a time."""
    completed = {i.requested_time: i.completion_time for i in instants if i.completed}
    start = min(i.requested_time for i in instants)

    def committed(t: str) -> bool:
        return (bool(completed) or planned is not None) and (t in completed or t < start)

    def instant_of(name: str) -> str:
        return name.split("_")[2 if name[0] != "." else 1].split(".")[0]

    bases = {instant_of(n): n for n in names if n[0] != "." and committed(instant_of(n))}
    bases.pop(planned or "", None)
    logs = sorted((n for n in names if n[0] == "."), key=lambda n: (instant_of(n), n))
    slices: dict[str, list[str]] = {b: [] for b in bases}
    if version is SIX:
        logs = [n for n in logs if committed(instant_of(n)) or instant_of(n) == planned]
        if planned and (bases or logs):
            slices[planned] = []
        for name in logs:
            slices.setdefault(instant_of(name), []).append(name)
    else:
        logs = [n for n in logs if committed(instant_of(n)) and instant_of(n) != planned]
        if planned and (bases or logs):
            slices[planned] = []
        for name in logs:
            t = instant_of(name)
            at_or_before = [s for s in slices if s <= (completed.get(t) or t)]
            slices.setdefault(max(at_or_before, default=t), []).append(name)
    return [(s, bases.get(s), slices[s]) for s in sorted(slices, reverse=True)]


@settings(max_examples=150)
@given(tables(), st.sampled_from([SIX, EIGHT]))
def test_slices_agree_with_a_direct_model(
    table: tuple[list[Instant], list[str], str | None], version: TableVersion
) -> None:
    instants, names, planned = table
    view = view_of(version, names, instants, planned={"f": planned} if planned else None)
    slices = [facts(s) for s in view.all_slices()]
    assert slices == model(version, instants, names, planned)
    held = [n for _, b, logs in slices for n in ([b] if b else []) + logs]
    assert sorted(held + [o.name for o in view.orphans()]) == sorted(names)
    newest = merged(view)
    if slices and slices[0][0] != planned:
        assert newest == [slices[0]]


def test_grouping_takes_linear_time() -> None:
    def seconds(groups: int) -> float:
        names = [
            name
            for g in range(groups)
            for name in (base("100", f"g{g}-0"), base("200", f"g{g}-0"), log("150", 1, f"g{g}-0"))
        ]
        random.Random(groups).shuffle(names)
        instants = [done("100"), done("150", completed="160"), done("200", "commit", "210")]
        begin = time.process_time()
        view = view_of(EIGHT, names, instants)
        assert len(view.latest_merged_slices()) == groups
        return time.process_time() - begin

    small, large = seconds(500), seconds(8_000)
    assert large < 16 * small * 6
