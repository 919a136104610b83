"""Which instants are archived: each limit by itself, and all of them against a plain model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import OptionError
from lakewright.format.instant import COMMIT_ACTIONS, Instant, State
from lakewright.format.timeline import Timeline
from lakewright.services.archive_options import ArchiveOptions
from lakewright.services.archive_plan import (
    NOTHING,
    ArchiveFacts,
    ArchivePlan,
    Begun,
    Limit,
    LimitKind,
    plan_archive,
)

OPTIONS = ArchiveOptions(keep_min_commits=2, keep_max_commits=3)
LSM = ArchiveFacts()
COUNTED = ArchiveFacts(services_by_count=True)


def done(time: int, action: str = "commit") -> Instant:
    """A completed instant."""
    return Instant(f"{time:03}", action, State.COMPLETED, f"{time:03}5", f"{time:03}.{action}")


def begun(time: int, action: str = "commit", state: State = State.INFLIGHT) -> Instant:
    """A pending instant."""
    return Instant(f"{time:03}", action, state, None, f"{time:03}.{action}.{state.name.lower()}")


def plan(
    *instants: Instant, options: ArchiveOptions = OPTIONS, facts: ArchiveFacts = LSM
) -> ArchivePlan:
    return plan_archive(Timeline.of(instants), options, facts)


def times(found: ArchivePlan) -> list[int]:
    return [int(i.requested_time) for i in found.instants]


TEN = tuple(done(n) for n in range(1, 11))


# ---- how many ----------------------------------------------------------------------------------


def test_nothing_goes_before_there_are_more_commits_than_the_maximum() -> None:
    found = plan(*TEN[:3])
    assert not found.instants and not found.due and found.blocked_by is None
    assert times(plan(*TEN[:4])) == [1, 2]


def test_what_cleaning_retains_makes_the_minimum_greater() -> None:
    found = plan(*TEN, facts=replace(LSM, retained="006"))
    # The retained commit, the four after it, and one more before it.
    assert (found.keep_min, found.keep_max) == (6, 7)
    assert times(found) == [1, 2, 3, 4]
    assert plan(*TEN, facts=replace(LSM, retained="010")).keep_min == 2


@pytest.mark.parametrize("keep", [{"keep_min_commits": 30}, {"keep_min_commits": 0}])
def test_numbers_that_make_no_sense_are_refused(keep: dict[str, int]) -> None:
    with pytest.raises(OptionError):
        ArchiveOptions(**keep)  # type: ignore[arg-type]


def test_options_are_taken_by_the_names_of_hudi() -> None:
    options = ArchiveOptions.of(
        {
            "hoodie.keep.min.commits": "4",
            "hoodie.keep.max.commits": "5",
            "hoodie.archive.beyond.savepoint": "true",
            "hoodie.timeline.compaction.batch.size": "3",
            "hoodie.cleaner.commits.retained": "2",
            "something.else": "x",
        }
    )
    assert (options.keep_min_commits, options.keep_max_commits) == (4, 5)
    assert options.beyond_savepoint and options.history.join_files == 3
    assert options.clean.commits_retained == 2
    with pytest.raises(OptionError, match=r"hoodie\.keep\.min\.commits"):
        ArchiveOptions.of({"hoodie.keep.min.commits": "many"})


# ---- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["commit", "compaction", "clustering", "clean", "rollback"])
@pytest.mark.parametrize("state", [State.REQUESTED, State.INFLIGHT])
def test_a_pending_instant_keeps_the_commit_before_it_and_all_later_ones(
    action: str, state: State
) -> None:
    instants = [i for i in TEN if i.requested_time != "005"]
    found = plan(*instants, begun(5, action, state))
    assert times(found) == [1, 2, 3]
    assert found.blocked_by == Limit(LimitKind.PENDING, "004", "005")


def test_the_target_of_a_pending_rollback_limits_although_it_is_gone() -> None:
    facts = replace(LSM, pending_times=("003",))
    instants = [i for i in TEN if i.requested_time != "003"]
    assert times(plan(*instants, begun(11, "rollback"), facts=facts)) == [1]


def test_a_pending_instant_before_all_commits_lets_nothing_go() -> None:
    assert times(plan(begun(0), *TEN)) == []


def test_a_pending_restore_stops_everything() -> None:
    assert times(plan(*TEN, begun(99, "restore"))) == []


def test_an_instant_that_was_completed_twice_stays_with_all_later_ones() -> None:
    twice = replace(done(4), completion_time="0047", file_name="004_0047.commit")
    assert times(plan(*TEN, twice)) == [1, 2, 3]


def test_commits_behind_a_savepoint_stay_unless_they_are_asked_for() -> None:
    savepoint = done(3, "savepoint")
    assert times(plan(*TEN, savepoint)) == [1, 2]
    beyond = replace(OPTIONS, beyond_savepoint=True)
    assert times(plan(*TEN, savepoint, options=beyond)) == [1, 2, 4, 5, 6, 7, 8]


def test_limits_from_files_hold() -> None:
    replaced = replace(LSM, limits=(Limit(LimitKind.REPLACED_FILES, "004", "004"),))
    assert times(plan(*TEN, facts=replaced)) == [1, 2, 3]
    metadata = replace(LSM, limits=(Limit(LimitKind.METADATA_TABLE, NOTHING),))
    found = plan(*TEN, facts=metadata)
    assert times(found) == [] and found.due
    assert found.blocked_by == Limit(LimitKind.METADATA_TABLE, NOTHING)


@pytest.mark.parametrize(
    ("deltas", "kept_from"), [(2, 5), (4, 5), (5, 6), (8, 9)], ids=["few", "four", "due", "overdue"]
)
def test_delta_commits_that_are_counted_for_a_compaction_stay(deltas: int, kept_from: int) -> None:
    before = [done(n, "deltacommit") for n in range(1, 5)]
    after = [done(n, "deltacommit") for n in range(6, 6 + deltas)]
    facts = replace(LSM, merge_on_read=True)
    found = plan(*before, done(5), *after, facts=facts)
    assert max(times(found)) < kept_from
    assert Limit(LimitKind.COMPACTION_TRIGGER, f"{kept_from:03}", f"{kept_from:03}") in found.limits


# ---- cleans and rollbacks ----------------------------------------------------------------------


def mixed() -> list[Instant]:
    """Ten commits with a clean or a rollback behind each."""
    kinds = ("clean", "rollback")
    found = [done(10 * n) for n in range(1, 11)]
    return [*found, *(done(10 * n + 1, kinds[n % 2]) for n in range(1, 11))]


def test_with_a_history_cleans_and_rollbacks_go_with_the_commits_around_them() -> None:
    found = times(plan(*mixed()))
    assert found == sorted([*range(10, 90, 10), *range(11, 80, 10)])


def test_in_log_files_cleans_and_rollbacks_go_by_their_own_counts() -> None:
    found = plan(*mixed(), facts=COUNTED)
    by_action = {
        a: [int(i.requested_time) for i in found.instants if i.action == a]
        for a in ("clean", "rollback")
    }
    assert by_action == {"clean": [21, 41, 61], "rollback": [11, 31, 51]}
    few = [i for i in mixed() if i.action in COMMIT_ACTIONS][:3]
    many = [done(n, "clean") for n in range(101, 106)]
    assert times(plan(*few, *many, facts=COUNTED)) == [101, 102, 103]
    assert times(plan(*few, *many)) == []


def test_the_newest_clean_stays() -> None:
    assert times(plan(*TEN, done(0, "clean"))) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_savepoints_restores_and_indexings_are_never_archived() -> None:
    others = [done(0, a) for a in ("restore", "indexing")]
    assert times(plan(*TEN, *others)) == [1, 2, 3, 4, 5, 6, 7, 8]


# ---- runs that died ----------------------------------------------------------------------------


def test_what_a_dead_run_has_archived_goes_although_nothing_is_due() -> None:
    facts = replace(LSM, begun=Begun(frozenset({("002", "commit"), ("001", "clean")}), "002"))
    found = plan(done(2), done(3), done(4), done(1, "clean"), done(5, "clean"), facts=facts)
    assert not found.due and times(found) == [1, 2]


def test_a_savepoint_that_was_made_since_keeps_what_a_dead_run_has_archived() -> None:
    facts = replace(LSM, begun=Begun(frozenset({("002", "commit")}), "002"))
    assert times(plan(done(2), done(3), done(2, "savepoint"), facts=facts)) == []


def test_a_commit_older_than_archived_ones_goes_when_its_savepoint_is_gone() -> None:
    facts = replace(LSM, begun=Begun(until="005"))
    assert times(plan(done(2), done(6), done(7), facts=facts)) == [2]


def test_the_last_commit_always_stays() -> None:
    facts = replace(LSM, begun=Begun(until="009"))
    assert times(plan(done(2), done(3), facts=facts)) == [2]


# ---- all together ------------------------------------------------------------------------------

ACTIONS = ("commit", "deltacommit", "replacecommit", "clean", "rollback")
STATES = st.sampled_from([State.COMPLETED] * 9 + [State.INFLIGHT])
LISTS = st.lists(st.tuples(st.sampled_from(ACTIONS), STATES, st.booleans()), max_size=30)


@given(
    LISTS,
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(0, 30), max_size=1),
    st.none() | st.integers(0, 10),
)
@settings(max_examples=150, deadline=None)
def test_any_timeline_is_archived_as_the_model_says(
    events: list[tuple[str, State, bool]],
    keep: tuple[int, int],
    beyond: bool,
    by_count: bool,
    file_limit: list[int],
    until: int | None,
) -> None:
    instants, saved = [], set()
    for time, (action, state, savepoint) in enumerate(events):
        is_done = state is State.COMPLETED
        instants.append(done(time, action) if is_done else begun(time, action))
        if is_done and savepoint and action == "replacecommit":
            saved.add(f"{time:03}")
            instants.append(done(time, "savepoint"))
    options = ArchiveOptions(
        keep_min_commits=keep[0],
        keep_max_commits=sum(keep),
        beyond_savepoint=beyond,
    )
    facts = ArchiveFacts(
        services_by_count=by_count,
        limits=tuple(Limit(LimitKind.REPLACED_FILES, f"{t:03}") for t in file_limit),
        begun=Begun(until=None if until is None else f"{until:03}"),
    )
    found = plan(*instants, options=options, facts=facts)
    chosen = {i.requested_time for i in found.instants if i.action in COMMIT_ACTIONS}

    commits = [i.requested_time for i in instants if i.completed and i.action in COMMIT_ACTIONS]
    pending = [i.requested_time for i in instants if not i.completed]

    def may_go(time: str) -> bool:
        behind_pending = [c for c in commits if pending and c < min(pending)]
        return (
            all(time < p for p in pending)
            and (not pending or (bool(behind_pending) and time < behind_pending[-1]))
            and (beyond or all(time < s for s in saved))
            and time not in saved
            and all(time < f"{t:03}" for t in file_limit)
        )

    due = len(commits) > sum(keep)
    model = [
        c
        for n, c in enumerate(commits)
        if may_go(c)
        and ((due and n < len(commits) - keep[0]) or (until is not None and c <= f"{until:03}"))
        and n < len(commits) - 1
    ]
    if pending and not [c for c in commits if c < min(pending)]:
        model = []
    assert sorted(chosen) == model

    for instant in found.instants:
        assert instant.completed
        assert all(instant.requested_time < p for p in pending)
    # No hole: what stays and is older than something archived is savepointed.
    stays = [c for c in commits if c not in chosen]
    assert all(c in saved for c in stays if chosen and c < max(chosen))
    assert not commits or stays
    cleans = [i for i in instants if i.completed and i.action == "clean"]
    assert not cleans or cleans[-1] not in found.instants
    assert list(found.instants) == sorted(found.instants, key=lambda i: i.requested_time)
