"""Plans of cleans: what Hudi planned on its own tables, and what every plan must leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import OptionError
from lakewright.format.archived_timeline import archived_instants
from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import COMMIT_ACTIONS, Instant, State
from lakewright.format.instant_times import format_time
from lakewright.format.partitions import ListedFile
from lakewright.format.records import CleanerPlan, CleanMetadata, load_cleaner_plan
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.format.version import TableVersion
from lakewright.runtime import ManualClock
from lakewright.services.clean import run_clean
from lakewright.services.clean_plan import (
    CleanBasis,
    CleanOptions,
    CleanPolicy,
    PreviousClean,
    instant_to_retain,
    is_due,
    plan_clean,
)
from lakewright.services.clean_selection import Protection
from lakewright.storage.local import LocalStorage
from lakewright.txn.access import Access
from tests.corpus import committed_tables
from tests.fixtures import SHARED, SHARED_ABSENT, shared_tables, unpack
from tests.services.clean_histories import PARTITIONS, START_MS, STEP_MS, History, deleted
from tests.txn.tables import new_access

BY_COMMITS = CleanPolicy.KEEP_LATEST_COMMITS
BY_HOURS = CleanPolicy.KEEP_LATEST_BY_HOURS
BY_VERSIONS = CleanPolicy.KEEP_LATEST_FILE_VERSIONS

# ---- plans of real Hudi ------------------------------------------------------------------------


@dataclass(frozen=True)
class RealClean:
    """A table of Hudi that has a completed clean."""

    id: str
    place: Any

    def unpack(self, into: Path) -> Path:
        """The table's folder."""
        if hasattr(self.place, "unpack"):
            return Path(self.place.unpack(into))
        return unpack(self.place, into)


COMMITTED = [
    RealClean(t.name, t)
    for t in committed_tables()
    if t.name in ("v6_cow_archived_simple", "v8_mor_archived_simple")
]
SHARED_CLEANS = [
    RealClean(t.id, t)
    for t in shared_tables()
    if t.table in ("hudi-v6-table-mor", "hudi-v8-table-maintenance", "hudi-v8-table-mor")
    and "services" in t.zip
]


def _reproduces_the_last_clean(root: Path) -> None:
    """Put back what Hudi's last clean deleted, take it off the timeline, and plan it again."""
    access = new_access(LocalStorage(root), ManualClock(START_MS))
    properties = access.properties()
    timeline = access.timeline(properties)
    clean = timeline.last_clean()
    assert clean is not None
    real = load_cleaner_plan(access.storage, properties, clean)
    for partition, names in deleted(real).items():
        for name in names:
            (root / partition / name).write_bytes(b"x")
    for file in (root / properties.timeline_folder).iterdir():
        if file.name[:17].isdigit() and file.name[:17] >= clean.requested_time:
            file.unlink()
    _take_out_of_the_archive(access, properties)
    kept = real.earliest_instant_to_retain
    assert kept is not None and real.policy == BY_COMMITS.value
    before = access.timeline(properties).commits().completed()
    retained = sum(i.requested_time >= kept.timestamp for i in before)
    plan = run_clean(access, CleanOptions(commits_retained=retained), dry_run=True).plan
    assert plan is not None
    assert deleted(plan) == deleted(real)
    assert plan.earliest_instant_to_retain == kept
    assert plan.last_completed_commit_timestamp == real.last_completed_commit_timestamp
    assert plan.partitions_to_be_deleted == real.partitions_to_be_deleted
    assert plan.extra_metadata == (real.extra_metadata or {})


def _take_out_of_the_archive(access: Access, properties: TableProperties) -> None:
    """What was archived after the clean: replacements that the clean knew."""
    files = access.files(properties)
    for found in archived_instants(access.storage, properties):
        if found.action in COMMIT_ACTIONS and found.metadata is not None:
            content = found.metadata.write(properties.version)
            files.complete(found.requested_time, found.action, content, found.completion_time)


@pytest.mark.parametrize("real", COMMITTED, ids=lambda r: r.id)
def test_the_last_clean_of_a_committed_table_is_planned_as_hudi_planned_it(
    real: RealClean, tmp_path: Path
) -> None:
    _reproduces_the_last_clean(real.unpack(tmp_path))


@pytest.mark.skipif(not SHARED.exists(), reason=SHARED_ABSENT)
@pytest.mark.parametrize("real", SHARED_CLEANS, ids=lambda r: r.id)
def test_the_last_clean_of_a_shared_table_is_planned_as_hudi_planned_it(
    real: RealClean, tmp_path: Path
) -> None:
    _reproduces_the_last_clean(real.unpack(tmp_path))


# ---- the retained moment -----------------------------------------------------------------------


def _time(n: int) -> str:
    return format_time(START_MS + n * STEP_MS, zone=UTC)


def _instant(n: int, action: str = "commit", *, pending: bool = False) -> Instant:
    state = State.INFLIGHT if pending else State.COMPLETED
    return Instant(_time(n), action, state, None if pending else _time(n), f"{_time(n)}.{action}")


def _basis(*instants: Instant, now: int = 100, version: int = 8, **more: Any) -> CleanBasis:
    timeline = Timeline.of(instants)
    return CleanBasis(
        timeline=timeline,
        version=TableVersion.of(version),
        zone=UTC,
        now_ms=START_MS + now * STEP_MS,
        completion_time_of=timeline.completion_time_of,
        **more,
    )


def _retained(basis: CleanBasis, **options: Any) -> str | None:
    found = instant_to_retain(basis, CleanOptions(**options))
    return None if found is None else found.requested_time


def _previous(retained: str, last: str = "") -> PreviousClean:
    metadata = CleanMetadata(
        start_clean_time=_time(50),
        time_taken_in_millis=0,
        total_files_deleted=1,
        earliest_commit_to_retain=retained,
        last_completed_commit_timestamp=last,
        partition_metadata={},
    )
    return PreviousClean(metadata)


def test_the_moment_of_a_pending_clean_is_not_gone_behind() -> None:
    fifteen = [_instant(n) for n in range(15)]
    assert _retained(_basis(*fifteen, promised=_time(5))) == _time(5)
    assert _retained(_basis(*fifteen[:12], promised=_time(5))) is None


def test_by_commits_the_last_ones_are_retained_and_nothing_if_there_are_no_more() -> None:
    fifteen = [_instant(n) for n in range(15)]
    assert _retained(_basis(*fifteen)) == _time(5)
    assert _retained(_basis(*fifteen[:10])) is None
    assert _retained(_basis(*fifteen[:11])) == _time(1)


def test_by_commits_a_pending_write_retains_the_commit_before_it() -> None:
    instants = [_instant(n) for n in range(15) if n != 3]
    assert _retained(_basis(*instants, _instant(3, pending=True))) == _time(2)
    assert _retained(_basis(*instants, _instant(3, "compaction", pending=True))) == _time(2)
    assert _retained(_basis(*instants, _instant(20, pending=True))) == _time(5)
    assert _retained(_basis(*instants, _instant(3, "logcompaction", pending=True))) == _time(5)
    others = [_instant(n) for n in range(1, 15)]
    assert _retained(_basis(*others, _instant(0, pending=True))) is None


def test_by_hours_the_first_commit_inside_the_hours_is_retained_whatever_is_pending() -> None:
    instants = [_instant(n) for n in range(10)]
    by_hours = {"policy": BY_HOURS, "hours_retained": 1}
    assert _retained(_basis(*instants, now=9), **by_hours) == _time(6)
    assert _retained(_basis(*instants, _instant(1, pending=True), now=9), **by_hours) == _time(6)
    assert _retained(_basis(*instants, now=99), **by_hours) is None


def test_one_clean_goes_no_further_than_it_may_and_never_back() -> None:
    instants = [_instant(n) for n in range(15)]
    basis = _basis(*instants, previous=_previous(_time(2)))
    assert _retained(basis, max_commits_to_clean=1) == _time(3)
    assert _retained(basis, max_commits_to_clean=3) == _time(5)
    assert _retained(basis, max_commits_to_clean=99) == _time(5)
    assert _retained(_basis(*instants), max_commits_to_clean=2) == _time(2)
    assert _retained(basis, commits_retained=14) is None
    assert _retained(basis, policy=BY_VERSIONS) is None


def test_a_clean_is_due_after_enough_commits_or_if_something_was_left() -> None:
    instants = [_instant(n) for n in range(5)]
    basis = _basis(*instants, previous=_previous("", last=_time(2)))
    assert is_due(basis, CleanOptions(trigger_commits=2))
    assert not is_due(basis, CleanOptions(trigger_commits=3))
    left = _basis(*instants, previous=_previous("", last=_time(4)), full_scans=frozenset("1"))
    assert is_due(left, CleanOptions())


# ---- protections, one by one -------------------------------------------------------------------

GROUP = FileGroupId("a", "g-0")


def _bases(*times: int) -> list[ListedFile]:
    return [ListedFile(f"g-0_0-0-0_{_time(n)}.parquet", 1) for n in times]


def _goes(basis: CleanBasis, files: list[ListedFile], **options: Any) -> set[int]:
    """Which base files go, by the number of their time."""
    planned = plan_clean(basis, CleanOptions(**options), [("a", files)], base_path="mem://t")
    names = deleted(planned.plan).get("a", set())
    return {n for n in range(100) if any(_time(n) in name for name in names)}


def test_by_commits_the_newest_slice_before_the_retained_moment_stays() -> None:
    basis = _basis(*(_instant(n) for n in range(6)))
    assert _goes(basis, _bases(0, 1, 2, 3, 4, 5), commits_retained=2) == {0, 1, 2}
    assert _goes(basis, _bases(0, 1), commits_retained=1) == {0}
    assert _goes(basis, _bases(0), commits_retained=1) == set()


def test_by_versions_a_group_keeps_its_last_slices_and_a_replaced_one_keeps_none() -> None:
    basis = _basis(*(_instant(n) for n in range(6)))
    by_versions = {"policy": BY_VERSIONS, "file_versions_retained": 2}
    assert _goes(basis, _bases(0, 1, 2, 3), **by_versions) == {0, 1}
    replaced = _basis(*(_instant(n) for n in range(6)), replaced={GROUP: _time(4)})
    assert _goes(replaced, _bases(0, 1, 2, 3), **by_versions) == {0, 1, 2, 3}


def test_a_replaced_group_stays_until_its_replacement_is_older_than_the_retained_moment() -> None:
    instants = [_instant(n) for n in range(6)]
    old = _basis(*instants, replaced={GROUP: _time(3)})
    young = _basis(*instants, replaced={GROUP: _time(4)})
    assert _goes(old, _bases(0, 1), commits_retained=2) == {0, 1}
    assert _goes(young, _bases(0, 1), commits_retained=2) == set()


def test_the_partition_goes_with_its_last_file_only() -> None:
    basis = _basis(*(_instant(n) for n in range(6)), replaced={GROUP: _time(3)})
    options = CleanOptions(commits_retained=2)
    strange = [*_bases(0), ListedFile(f"h-0_0-0-0_{_time(90)}.parquet", 1)]
    for files, gone in ((_bases(0, 1), ["a"]), (strange, [])):
        plan = plan_clean(basis, options, [("a", files)], base_path="mem://t").plan
        assert plan.partitions_to_be_deleted == gone


@pytest.mark.parametrize("policy", [BY_COMMITS, BY_VERSIONS])
def test_files_of_savepoints_and_pending_plans_stay(policy: CleanPolicy) -> None:
    instants = [_instant(n) for n in range(6)]
    options = {"policy": policy, "commits_retained": 1, "file_versions_retained": 2}
    name = frozenset({_bases(1)[0].name})
    for protection in (Protection(savepointed={"a": name}), Protection(planned={"a": name})):
        basis = _basis(*instants, protection=protection)
        assert _goes(basis, _bases(0, 1, 2, 3, 4, 5), **options) == {0, 2, 3}


def test_a_pending_compaction_keeps_its_slice_and_counts_as_one_version() -> None:
    instants = [*(_instant(n) for n in range(6)), _instant(7, "compaction", pending=True)]
    basis = _basis(
        *instants,
        protection=Protection(compacting={GROUP: _time(5)}),
        pending_compactions={GROUP: _time(7)},
    )
    by_versions = {"policy": BY_VERSIONS, "file_versions_retained": 1}
    assert _goes(basis, _bases(3, 4, 5), **by_versions) == {3, 4}
    assert _goes(basis, _bases(3, 4, 5), policy=BY_VERSIONS, file_versions_retained=2) == {3}


def test_the_slice_that_a_living_write_began_with_stays() -> None:
    instants = [_instant(n) for n in range(6)]
    basis = _basis(*instants, protection=Protection(live=frozenset({_time(2)})))
    by_versions = {"policy": BY_VERSIONS, "file_versions_retained": 1}
    assert _goes(basis, _bases(0, 1, 3, 4, 5), **by_versions) == {0, 3, 4}
    replaced = _basis(
        *instants, protection=Protection(live=frozenset({_time(2)})), replaced={GROUP: _time(3)}
    )
    assert _goes(replaced, _bases(0, 1), **by_versions) == {0}


def test_every_living_write_keeps_what_it_began_with_not_only_the_first() -> None:
    live = Protection(live=frozenset({_time(1), _time(3)}))
    basis = _basis(*(_instant(n) for n in range(6)), protection=live)
    options = {"policy": BY_VERSIONS, "file_versions_retained": 1}
    assert _goes(basis, _bases(0, 2, 4, 5), **options) == {4}


def test_a_log_that_completed_late_belongs_to_the_newer_slice_and_stays_with_it() -> None:
    late = Instant(_time(1), "deltacommit", State.COMPLETED, _time(9), f"{_time(1)}.deltacommit")
    instants = [_instant(0), late, *(_instant(n) for n in range(2, 9))]
    log = ListedFile(f".g-0_{_time(1)}.log.1_0-0-0", 1)
    files = [*_bases(0, 2, 5), log]
    assert _goes(_basis(*instants), files, commits_retained=1) == {0, 2}
    assert _goes(_basis(*instants), [*_bases(0, 2), log], commits_retained=1) == {0}


def test_options_are_read_by_hudis_names_old_and_new() -> None:
    old = {"hoodie.cleaner.policy": "KEEP_LATEST_BY_HOURS", "hoodie.cleaner.hours.retained": "5"}
    assert CleanOptions.of(old) == CleanOptions(policy=BY_HOURS, hours_retained=5)
    new = {
        "hoodie.clean.commits.retained": "7",
        "hoodie.clean.incremental.enabled": "false",
        "hoodie.clean.max.commits.to.clean": str((1 << 63) - 1),
        "hoodie.clean.trigger.max.commits": "4",
        "hoodie.datasource.write.operation": "upsert",
    }
    expected = CleanOptions(commits_retained=7, incremental=False, trigger_commits=4)
    assert CleanOptions.of(new) == expected
    for name, value in (
        ("hoodie.clean.policy", "KEEP_ALL"),
        ("hoodie.clean.commits.retained", "0"),
        ("hoodie.clean.commits.retained", "many"),
        ("hoodie.clean.incremental.enabled", "perhaps"),
    ):
        with pytest.raises(OptionError):
            CleanOptions.of({name: value})


# ---- every plan, against a model ---------------------------------------------------------------

picks = st.integers(0, 5)
options = st.builds(
    CleanOptions,
    policy=st.sampled_from(CleanPolicy),
    commits_retained=st.integers(1, 4),
    hours_retained=st.integers(1, 3),
    file_versions_retained=st.integers(1, 2),
    max_commits_to_clean=st.sampled_from([None, None, 1, 3]),
    incremental=st.booleans(),
)
VERBS: dict[str, Callable[[History, int], None]] = {
    "insert": lambda h, n: h.insert(PARTITIONS[n % 2]),
    "update": lambda h, n: h.update(n),
    "log": lambda h, n: h.log(n, late=False),
    "late log": lambda h, n: h.log(n, late=True),
    "late base": lambda h, n: h.late_base(n),
    "finish": lambda h, n: h.finish_late(n),
    "die": lambda h, n: h.die(n),
    "schedule": lambda h, n: h.schedule(n),
    "compact": lambda h, n: h.compact(n),
    "replace": lambda h, n: h.replace(n),
    "keep": lambda h, n: h.keep(n),
    "let go": lambda h, n: h.let_go(),
}
WEIGHTED = [*VERBS, "update", "update", "update", "log", "insert", "compact"]
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(WEIGHTED), picks),
        st.tuples(st.sampled_from(WEIGHTED), picks),
        st.tuples(st.sampled_from(WEIGHTED), picks),
        options,
    ),
    min_size=5,
    max_size=40,
)


def _check_clean(history: History, chosen: CleanOptions) -> None:
    """Clean, and see that everything that must be readable reads the same files as before."""
    planned = history.plan(chosen)
    everywhere = history.plan(chosen, everywhere=True)
    assert deleted(planned.plan) == deleted(everywhere.plan)
    kept = planned.plan.earliest_instant_to_retain
    retained = max(
        kept.timestamp if kept else "",
        history.previous.retained if history.previous else "",
    )
    moments: list[str | None] = [None]
    if not chosen.by_versions and kept is not None:
        moments += [w.time for w in history.committed() if w.time >= retained]
    before = {moment: history.needed(moment) for moment in moments}
    alive = {time: history.needed_at(time) for time in history.live}
    whole = {p: set(names) for p, names in history.files.items()}
    history.clean(planned)
    for moment, needed in before.items():
        assert history.needed(moment) == needed, moment
    for time, needed in alive.items():
        missing = {p: n & (whole[p] - history.files[p]) for p, n in needed.items()}
        assert not any(missing.values()), (time, missing)
    for kept_files in history.savepoints.values():
        for partition, names in kept_files.items():
            assert names <= history.files[partition]
    for plan in history.plans.values():
        assert plan.names <= history.files[plan.group.partition]


@pytest.mark.parametrize("version", [6, 8])
@settings(max_examples=120, deadline=None)
@given(history_steps=steps, last=options)
def test_whatever_happened_a_clean_leaves_every_retained_state_readable(
    version: int, history_steps: list[Any], last: CleanOptions
) -> None:
    history = History(version)
    history.insert("a")
    for step in [*history_steps, last]:
        if isinstance(step, CleanOptions):
            _check_clean(history, step)
        else:
            verb, pick = step
            VERBS[verb](history, pick)


def test_the_empty_plan_of_a_table_without_commits_says_so() -> None:
    plan = plan_clean(_basis(), CleanOptions(), [("a", [])], base_path="mem://t").plan
    assert plan == CleanerPlan(policy=BY_COMMITS.value)
