"""Every checker: a table that it must complain about, and one that it must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakewright.format.file_slices import FileGroupId
from lakewright.format.history_writing import append_history, history_row, history_table
from lakewright.format.instant import State, format_instant_name
from lakewright.format.log_block import rollback_block
from lakewright.format.records import (
    ActionInstant,
    CleanerPlan,
    CleanFileInfo,
    CleanMetadata,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    InstantInfo,
    RestorePlan,
    RollbackMetadata,
    RollbackPlan,
    SavepointMetadata,
    SavepointPartitionMetadata,
    WriteStat,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.version import TableVersion
from lakewright.runtime.clock import ManualClock
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.checkers import ALL_CHECKERS, When, relaxed, rolled_back_when_dead
from lakewright.testing.sim.locks import SimLock
from lakewright.testing.sim.model import Effect, TableModel, differences
from lakewright.testing.sim.stub_rows import base_content, log_content, read_rows
from lakewright.testing.sim.table_state import Stored, TableState
from lakewright.testing.sim.tables import ROOT, SimTable, table_properties
from lakewright.testing.sim.world import World
from lakewright.txn.locks.protocol import LockHolder

T1, T2, T3, T4, T5 = (f"2025010100000{n}000" for n in range(1, 6))


class _Table:
    """A table that is put together by hand."""

    def __init__(self, version: int = 8, *, merge_on_read: bool = True) -> None:
        values = table_properties(version, merge_on_read=merge_on_read)
        self.state = TableState(TableProperties(values))
        self._order = 0

    def file(self, path: str, content: bytes = b"", who: str = "a") -> _Table:
        self._order += 1
        self.state.put(path, Stored(content, self._order * 1000, who, self._order, 0.0))
        return self

    def instant(
        self, time: str, action: str, state: State, content: bytes = b"", *, at: str | None = None
    ) -> _Table:
        version = self.state.version
        named = state is State.COMPLETED and version.completion_time_in_name
        completion_time = (at or str(int(time) + 500)) if named else None
        name = format_instant_name(
            time, action, state, layout=version.layout_version, completion_time=completion_time
        )
        return self.file(f"{self.state.properties.timeline_folder}/{name}", content)

    def gone(self, time: str, action: str, state: State) -> _Table:
        """A state file goes."""
        files = self.state.states_of(time)
        file = next(f for f in files if (f.action, f.state) == (action, state))
        self.state.remove(f"{self.state.properties.timeline_folder}/{file.name}")
        return self

    def archived(self, time: str, action: str = "commit") -> _Table:
        """A completed instant is in the archive, and off the timeline."""
        storage, properties = MemoryStorage(), self.state.properties
        file = next(f for f in self.state.states_of(time) if f.state is State.COMPLETED)
        row = history_row(file.instant, {file.name: file.instant}, lambda _: file.stored.content)
        append_history(storage, properties, history_table([row]), check=lambda: None)
        for path, content in storage.bucket.objects().items():
            self.file(path, content)
        return self.gone(time, action, State.COMPLETED)

    def clean(self, time: str, *paths: str, retained: str = "", done: bool = False) -> _Table:
        """A clean of some files."""
        kept = ActionInstant(timestamp=retained, action="commit", state="COMPLETED")
        plan = CleanerPlan(
            policy="KEEP_LATEST_COMMITS",
            earliest_instant_to_retain=kept if retained else None,
            file_paths_to_be_deleted_per_partition={
                "p": [CleanFileInfo(file_path=f"memory:/table/{path}") for path in paths]
            },
        )
        content = plan.write(self.state.version)
        self.instant(time, "clean", State.REQUESTED, content)
        self.instant(time, "clean", State.INFLIGHT, content)
        if done:
            metadata = CleanMetadata(
                start_clean_time=time,
                time_taken_in_millis=1,
                total_files_deleted=len(paths),
                earliest_commit_to_retain=retained,
                partition_metadata={},
            )
            self.instant(time, "clean", State.COMPLETED, metadata.write(self.state.version))
        return self

    def savepoint(self, time: str, *paths: str) -> _Table:
        """A savepoint that keeps some files."""
        names = [path.rpartition("/")[2] for path in paths]
        kept = SavepointPartitionMetadata(partition_path="p", savepoint_data_file=names)
        metadata = SavepointMetadata(
            savepointed_by="a", savepointed_at=0, comments="", partition_metadata={"p": kept}
        )
        content = metadata.write(self.state.version)
        return self.instant(time, "savepoint", State.COMPLETED, content, at=T5)

    def pending(self, time: str, action: str = "commit", plan: bytes = b"") -> _Table:
        self.instant(time, action, State.REQUESTED, plan)
        return self.instant(time, action, State.INFLIGHT)

    def done(
        self,
        time: str,
        action: str = "commit",
        *paths: str,
        at: str | None = None,
        operation: str = "INSERT",
        replaced: dict[str, list[str]] | None = None,
    ) -> _Table:
        stats = [
            WriteStat(
                path=path,
                partition_path="p",
                file_id=path.rpartition("/")[2].lstrip(".").partition("_")[0],
            )
            for path in paths
        ]
        metadata = CommitMetadata(
            partition_to_write_stats={"p": stats} if stats else {},
            operation_type=operation,
            partition_to_replace_file_ids=replaced,
        )
        content = metadata.write(self.state.version)
        return self.pending(time, action).instant(time, action, State.COMPLETED, content, at=at)

    def rollback(
        self, time: str, target: str, action: str = "commit", done: bool = False
    ) -> _Table:
        info = InstantInfo(commit_time=target, action=action)
        plan = RollbackPlan(instant_to_rollback=info, rollback_requests=[])
        self.pending(time, "rollback", plan.write(self.state.version))
        if done:
            metadata = RollbackMetadata(
                start_rollback_time=time,
                time_taken_in_millis=1,
                total_files_deleted=0,
                commits_rollback=[target],
                partition_metadata={},
                instants_rollback=[info],
            )
            content = metadata.write(self.state.version)
            self.instant(time, "rollback", State.COMPLETED, content)
        return self


def _base(time: str, file_id: str = "f-0", token: str = "0-1-1") -> str:
    return f"p/{file_id}_{token}_{time}.parquet"


def _log(instant: str, file_id: str = "f-0", version: int = 1) -> str:
    return f"p/.{file_id}_{instant}.log.{version}_0-1-1"


def _behind(table: _Table) -> _Table:
    """With a committed log behind an instant."""
    return table.file(_log(T2), log_content(T1, {"a": "1"}))


def _late_commit() -> _Table:
    table = _Table().done(T1, at=T4)
    return table.done(T2, at=T3)


def _replaced(*, later: bool) -> _Table:
    table = _Table().file(_base(T1)).done(T1, "commit", _base(T1))
    table.file(_base(T3))
    first, second = (T2, T3) if later else (T3, T2)
    for time in (first, second):
        if time == T2:
            table.done(T2, "replacecommit", replaced={"p": ["f-0"]}, at=f"{time[:-3]}600")
        else:
            table.done(T3, "commit", _base(T3))
    return table


def _blocks(*, cancelled: bool) -> _Table:
    table = _Table(6).file(_base(T1)).done(T1, "deltacommit", _base(T1))
    table.file(_log(T1), log_content(T2, {"k": "v"})).rollback(T3, T2, "deltacommit", done=True)
    if cancelled:
        table.file(_log(T1, version=2), rollback_block(instant=T3, target=T2))
    return table


def _plan(
    table: _Table, time: str, *logs: str, base: str | None = None, file_id: str = "f-0"
) -> _Table:
    """A requested compaction of one slice."""
    operation = CompactionOperation(
        base_instant_time=T1,
        delta_file_paths=[log.rpartition("/")[2] for log in logs],
        data_file_path=base.rpartition("/")[2] if base else None,
        file_id=file_id,
        partition_path="p",
    )
    content = CompactionPlan(operations=[operation]).write(table.state.version)
    return table.instant(time, "compaction", State.REQUESTED, content)


def _sliced() -> _Table:
    """A base file of T1 and a log of T2, both committed."""
    table = _Table().file(_base(T1)).done(T1, "deltacommit", _base(T1))
    return table.file(_log(T2)).done(T2, "deltacommit", _log(T2))


def _compacted(file_id: str, who: str = "a") -> _Table:
    table = _plan(_sliced(), T3, _log(T2), base=_base(T1))
    table.instant(T3, "compaction", State.INFLIGHT)
    table.file(f".hoodie/.heartbeat/{T3}", who=who)
    made = _base(T3, file_id)
    stat = WriteStat(path=made, partition_path="p", file_id=file_id)
    metadata = CommitMetadata(
        partition_to_write_stats={"p": [stat]}, operation_type="COMPACT", compacted=True
    )
    content = metadata.write(table.state.version)
    return table.file(made).instant(T3, "commit", State.COMPLETED, content)


def _two_versions() -> _Table:
    """Two committed base files of one group."""
    table = _Table().file(_base(T1)).done(T1, "commit", _base(T1))
    return table.file(_base(T2)).done(T2, "commit", _base(T2))


def _restoring(table: _Table) -> _Table:
    return table.pending(T2, "restore", RestorePlan().write(table.state.version))


def _replacement_archived(*, cleaned: bool) -> _Table:
    table = _Table().file(_base(T1)).done(T1, "commit", _base(T1))
    table.done(T2, "replacecommit", replaced={"p": ["f-0"]}).done(T3)
    if cleaned:
        table.clean(T4, _base(T1)).state.remove(_base(T1))
    return table.archived(T2, "replacecommit")


Make = Callable[[], _Table]

CASES: dict[str, tuple[Make, Make]] = {
    "14.1": (
        lambda: _Table().pending(T1).pending(T1, "clean"),
        lambda: _Table().pending(T1, "compaction").done(T1).pending(T2, "clean"),
    ),
    "14.2": (
        lambda: _Table().done(T1, at=T2).instant(T1, "commit", State.COMPLETED, at=T3),
        lambda: _Table().done(T1, at=T2).done(T3),
    ),
    "14.3a": (
        lambda: _Table().instant(T1, "commit", State.INFLIGHT),
        lambda: _Table().pending(T1).instant(T2, "savepoint", State.INFLIGHT),
    ),
    "14.3b": (
        lambda: _Table().instant(T1, "commit", State.COMPLETED),
        lambda: _Table().done(T1).instant(T1, "savepoint", State.COMPLETED),
    ),
    "14.4": (
        lambda: _Table().done(T2, at=T1),
        lambda: _Table().done(T1).done(T2, at=T4).done(T3, at=T5),
    ),
    "14.5": (_late_commit, lambda: _Table().done(T2, at=T3).done(T1, at=T4)),
    "14.6": (
        lambda: _Table().pending(T1).instant(T1, "commit", State.COMPLETED, b"Obj\x01 no"),
        lambda: _Table().done(T1).rollback(T2, T1).pending(T3, "replacecommit"),
    ),
    "14.9": (
        lambda: _Table().done(T1, "commit", _base(T1)),
        lambda: _Table().file(_base(T1)).done(T1, "commit", _base(T1)),
    ),
    "14.10": (
        lambda: _Table().file(_base(T1)).done(T2),
        lambda: _Table().file(_base(T1)).pending(T1).file(_base(T2)).rollback(T3, T2),
    ),
    "14.11": (
        lambda: (
            _Table().file(_base(T1)).file(_base(T1, token="0-1-0")).done(T1, "commit", _base(T1))
        ),
        lambda: _Table().file(_base(T1)).file(_base(T2)).done(T1, "commit", _base(T1)).pending(T2),
    ),
    "14.12": (
        lambda: _Table().file(_base(T1)).file(_base(T1, token="0-1-0")).done(T1),
        lambda: _Table().file(_base(T1)).file(_base(T1, "g-0")).file(_base(T2)).done(T1).done(T2),
    ),
    "14.13": (
        lambda: _Table().file(_log(T1)).done(T1, "commit", _log(T1), operation="COMPACT"),
        lambda: _Table().file(_base(T1)).done(T1, "commit", _base(T1), operation="COMPACT"),
    ),
    "14.14": (
        lambda: _Table().pending(T1, "clean").file(_log(T1)),
        lambda: _Table().file(_log(T1)).done(T1, "deltacommit", _log(T1)),
    ),
    "14.15": (lambda: _replaced(later=True), lambda: _replaced(later=False)),
    "14.17": (
        lambda: _plan(_plan(_sliced(), T3, _log(T2)), T4, _log(T2)),
        lambda: _plan(_plan(_sliced(), T3, _log(T2)), T4, file_id="g-0"),
    ),
    "14.18": (
        lambda: _plan(_sliced(), T3, _log(T2), _log(T2, version=2)),
        lambda: _plan(_sliced(), T3, _log(T2), base=_base(T1)),
    ),
    "14.19": (
        lambda: _plan(_sliced(), T3),
        lambda: _plan(_sliced(), T3, _log(T2)),
    ),
    "14.20": (lambda: _compacted("g-0"), lambda: _compacted("f-0")),
    "14.22": (
        lambda: _behind(_Table(6).file(_base(T1)).done(T1, "deltacommit")),
        lambda: _behind(_plan(_Table(6).done(T1, "deltacommit"), T2)),
    ),
    "14.30": (lambda: _compacted("f-0", who="b"), lambda: _compacted("f-0")),
    "14.23": (
        lambda: _Table().pending(T1).rollback(T2, T1).rollback(T3, T1),
        lambda: _Table().pending(T1).rollback(T2, T1, done=True).rollback(T3, T1),
    ),
    "14.24": (
        lambda: _Table().done(T1).rollback(T2, T1),
        lambda: _Table().pending(T1).rollback(T2, T1).done(T3),
    ),
    "14.25a": (
        lambda: _Table().pending(T1).rollback(T2, T1, done=True),
        lambda: (
            _Table()
            .instant(T1, "compaction", State.REQUESTED)
            .rollback(T2, T1, "compaction", done=True)
        ),
    ),
    "14.25b": (
        lambda: _Table().file(_base(T1)).rollback(T2, T1, done=True),
        lambda: _Table().file(_base(T1)).pending(T1).rollback(T2, T1),
    ),
    "14.25c": (lambda: _blocks(cancelled=False), lambda: _blocks(cancelled=True)),
    "14.27": (
        lambda: _Table().done(T1).rollback(T2, T1, done=True),
        lambda: _Table().done(T1).rollback(T3, T2, done=True),
    ),
    "14.7": (
        lambda: _restoring(_Table().done(T1)).pending(T3),
        lambda: _restoring(_Table().pending(T1)).rollback(T3, T1),
    ),
    "14.8": (
        lambda: _Table().pending(T1).done(T2).archived(T2),
        lambda: _Table().done(T1).pending(T2).archived(T1),
    ),
    "14.32": (
        lambda: _two_versions().clean(T3, _base(T2), retained=T2),
        lambda: _two_versions().clean(T3, _base(T1)),
    ),
    "14.33": (
        lambda: _Table().clean(T3, retained=T2, done=True).clean(T4, retained=T1, done=True),
        lambda: _Table().clean(T3, retained=T1, done=True).clean(T4, retained=T2, done=True),
    ),
    "14.34": (
        lambda: _Table().done(T1).savepoint(T1, _base(T1)),
        lambda: _Table().file(_base(T1)).done(T1).savepoint(T1, _base(T1)),
    ),
    "14.37": (
        lambda: _replacement_archived(cleaned=False),
        lambda: _replacement_archived(cleaned=True),
    ),
    "14.29a": (
        lambda: _beats("aabbaa"),
        lambda: _beats("aaabbb"),
    ),
    "14.29c": (lambda: _beats("aab"), lambda: _beats("aaa")),
    "14.29b": (
        lambda: _Table().done(T1).file(f".hoodie/.heartbeat/{T1}"),
        lambda: _Table().pending(T1).file(f".hoodie/.heartbeat/{T1}"),
    ),
}


def _beats(who: str) -> _Table:
    table = _Table().pending(T1)
    for name in who:
        table.file(f".hoodie/.heartbeat/{T1}", who=name)
    return table


@pytest.mark.parametrize("rule", [checker.rule for checker in ALL_CHECKERS])
def test_a_checker_sees_what_is_wrong_and_nothing_else(rule: str) -> None:
    checker = next(c for c in ALL_CHECKERS if c.rule == rule)
    broken, sound = CASES[rule]
    found = list(checker.check(broken().state))
    assert found and all(isinstance(text, str) for text in found)
    assert list(checker.check(sound().state)) == []


@pytest.mark.parametrize("rule", [c.rule for c in ALL_CHECKERS if c.when is not When.AT_REST])
def test_who_looks_after_every_change_needs_only_the_news(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = next(c for c in ALL_CHECKERS if c.rule == rule)
    seen: list[str] = []

    def look(state: TableState) -> None:
        state.whole = False
        seen.extend(checker.check(state))
        state.looked()

    for name in ("put", "remove"):
        real = getattr(TableState, name)

        def then_look(state: TableState, *change: Any, real: Any = real) -> str:
            kind: str = real(state, *change)
            if kind in checker.kinds:
                look(state)
            return kind

        monkeypatch.setattr(TableState, name, then_look)
    broken, sound = CASES[rule]
    broken()
    assert seen
    seen.clear()
    sound()
    assert seen == []


@pytest.mark.parametrize(
    "needed",
    [
        lambda: _two_versions().savepoint(T1, _base(T1)).clean(T3, _base(T1)),
        lambda: _two_versions().clean(T4, _base(T1), retained=T2),
        lambda: _plan(_sliced(), T3, _log(T2), base=_base(T1)).clean(T4, _log(T2)),
        lambda: _sliced().clean(T4, _log(T2)),
    ],
    ids=["savepoint", "newest before the retained moment", "plan", "log of the newest slice"],
)
def test_a_clean_may_not_take_what_somebody_needs(needed: Make) -> None:
    checker = next(c for c in ALL_CHECKERS if c.rule == "14.32")
    assert list(checker.check(needed().state))


def test_who_takes_a_silent_process_over_may_be_taken_over_again() -> None:
    checker = next(c for c in ALL_CHECKERS if c.rule == "14.29a")
    table = _Table().pending(T1)
    for at_s, name in ((0, "a"), (2, "a"), (40, "b"), (42, "b"), (80, "a"), (82, "a")):
        table.state.put(
            f".hoodie/.heartbeat/{T1}", Stored(b"", at_s * 1000, name, 100 + at_s, float(at_s))
        )
    assert list(checker.check(table.state)) == []


def test_a_late_beat_that_was_on_its_way_is_forgiven() -> None:
    checker = next(c for c in ALL_CHECKERS if c.rule == "14.29a")
    assert list(checker.check(_beats("aabba").state)) == []


def test_a_log_that_cannot_be_committed_may_come_behind_what_is_not_there() -> None:
    checker = next(c for c in ALL_CHECKERS if c.rule == "14.22")
    table = _Table(6).done(T1, "deltacommit").file(_log(T2), log_content(T3, {"a": "1"}))
    assert list(checker.check(table.state)) == []
    assert list(checker.check(table.done(T3, "deltacommit").state))


def test_the_heartbeat_of_a_dead_process_may_be_left() -> None:
    checker = next(c for c in ALL_CHECKERS if c.rule == "14.29b")
    table = _Table().done(T1).file(f".hoodie/.heartbeat/{T1}", who="dead")
    table.state.dead = {"dead"}
    assert list(checker.check(table.state)) == []


@pytest.mark.parametrize("one_machine", [False, True])
@pytest.mark.parametrize("beat_ms", [500, 60_000])
def test_a_rollback_of_another_process_waits_until_it_is_silent_long_enough(
    beat_ms: int, one_machine: bool
) -> None:
    checker = rolled_back_when_dead(20_000, skew_ms=1_000, one_machine=one_machine)
    table = _Table().pending(T1)
    table.state.put(f".hoodie/.heartbeat/{T1}", Stored(b"", -beat_ms, "b", 3, 0.0))
    found = list(checker.check(table.rollback(T2, T1).state))
    assert bool(found) == (beat_ms < 20_000)
    table.state.ended = {"b"}  # which nobody knows on other machines
    assert bool(list(checker.check(table.state))) == (beat_ms < 20_000 and not one_machine)


def test_rules_can_be_put_off_until_everything_rests() -> None:
    put_off = {c.rule for c in relaxed(ALL_CHECKERS, {"14.3a"}) if c.when is When.AT_REST}
    before = {c.rule for c in ALL_CHECKERS if c.when is When.AT_REST}
    assert put_off == before | {"14.3a"}


def test_the_state_of_any_storage_can_be_checked() -> None:
    storage = MemoryStorage(MemoryBucket(clock=ManualClock(now_ms=1_735_689_600_000)))
    properties = TableProperties(table_properties(6, merge_on_read=False))
    storage.create_if_absent(f".hoodie/{T1}.inflight", b"")
    storage.create_if_absent(_base(T2), b"")
    state = TableState.of_storage(storage, properties)
    rules = {c.rule for c in ALL_CHECKERS if list(c.check(state))}
    assert rules == {"14.3a", "14.10"}


# ---- the model ---------------------------------------------------------------------------------

G, H = FileGroupId("p", "g"), FileGroupId("p", "h")


def _model(version: int, table: _Table) -> dict[FileGroupId, object]:
    model = TableModel(TableVersion.of(version))
    model.intend(T1, Effect({G: {"a": "1"}}))
    model.intend(T2, Effect({}, overwrites=frozenset({"p"})))
    model.intend(T3, Effect({H: {"b": "2"}}))
    return dict(model.content(table.state.timeline))


def test_an_overwrite_takes_what_completed_before_it() -> None:
    assert _model(8, _Table().done(T1, at=T3).done(T2, at=T4).done(T3, at=T5)) == {H: {"b": "2"}}
    assert _model(8, _Table().done(T3, at=T4).done(T2, at=T5)) == {}
    assert _model(8, _Table().done(T2, at=T3).done(T1, at=T4)) == {G: {"a": "1"}}


def test_where_requests_give_the_order_an_overwrite_spares_later_ones() -> None:
    assert _model(6, _Table(6).done(T1).done(T3).done(T2)) == {H: {"b": "2"}}


def test_pending_instants_have_no_effect_and_unknown_ones_are_told() -> None:
    model = TableModel(TableVersion.of(8))
    timeline = _Table().pending(T1).done(T2).state.timeline
    model.intend(T1, Effect({G: {"a": "1"}}))
    assert model.content(timeline) == {} and model.unknown(timeline) == [T2]
    model.acknowledge(T1, 5.0)
    assert model.lost(timeline, before_s=6.0) == [T1] and model.lost(timeline, before_s=5.0) == []


def test_what_was_to_be_undone_is_lost_unless_its_undoing_was_planned() -> None:
    model = TableModel(TableVersion.of(8))
    timeline = _Table().done(T1).state.timeline
    for instant in (T2, T3):
        model.acknowledge(instant, 5.0)
    model.take_back(T2)
    assert model.lost(timeline, before_s=6.0) == [T2, T3]
    undone = _Table().pending(T2).rollback(T4, T2).state.undone
    assert model.lost(timeline, before_s=6.0, undone=undone) == [T3]
    model.restore(T1, 4.0)
    assert model.lost(timeline, before_s=6.0, undone={T2, T3}) == []
    assert model.lost(timeline, before_s=6.0) == [T2, T3]


def test_differences_name_group_and_rows() -> None:
    assert differences({G: {"a": "1"}}, {G: {"a": "1"}}) == []
    [line] = differences({G: {"a": "1"}}, {G: {"a": "2"}})
    assert "p/g" in line and "('a', '2')" in line and "('a', '1')" in line


@pytest.mark.parametrize("version", [6, 8])
def test_stub_rows_are_read_through_real_slices_and_blocks(version: int) -> None:
    world = World(0)
    SimTable.make(world, version=version, merge_on_read=True, partitions=["p"])
    storage = world.setup.storage.child(ROOT)
    made = (
        _Table(version).done(T1, "deltacommit").done(T2, "deltacommit").pending(T3, "deltacommit")
    )
    folder = made.state.properties.timeline_folder
    for name, file in made.state.state_files.items():
        storage.create_if_absent(f"{folder}/{name}", file.stored.content)
    storage.create_if_absent(_base(T1), base_content({"a": "1", "b": "1"}))
    by_delta = made.state.version.log_name_has_delta_instant
    for number, time in enumerate((T2, T3), 1):
        name = _log(time) if by_delta else _log(T1, version=number)
        storage.create_if_absent(name, log_content(time, {"b": time}))
    _, rows = read_rows(storage, world.setup.clock)
    assert rows == {FileGroupId("p", "f-0"): {"a": "1", "b": T2}}


# ---- locks -------------------------------------------------------------------------------------


def test_what_is_published_without_the_lock_is_seen() -> None:
    world = World(1)
    table = SimTable.make(world, version=8, merge_on_read=False)

    def write(actor: Actor, *, hold: bool) -> None:
        lock = SimLock(table.ledger, actor, lease_s=5.0)
        lease = lock.try_acquire(actor.name)
        assert not isinstance(lease, LockHolder)
        if not hold:
            lease.release()
        name = f"2025010100000{len(actor.name)}000.commit.requested"
        actor.storage.child(ROOT).create_if_absent(f".hoodie/timeline/{name}", b"")
        lease.release()

    world.add("good", lambda a: write(a, hold=True))
    world.add("careless", lambda a: write(a, hold=False), delay_s=10)
    outcome = world.run()
    assert [v.rule for v in outcome.violations] == ["14.28"]
    assert "careless created 20250101000008000.commit.requested" in outcome.violations[0].text


def test_a_lock_is_lost_by_death_and_by_standing_still_but_not_before_the_lease_ends() -> None:
    world = World(2)
    table = SimTable.make(world, version=8, merge_on_read=False)
    taken: dict[str, float] = {}
    checks: list[bool] = []

    def hold(actor: Actor) -> None:
        lease = SimLock(table.ledger, actor, lease_s=20.0).try_acquire(actor.name)
        assert not isinstance(lease, LockHolder)
        lease.check()
        actor.storage.exists("x")
        try:
            lease.check()
            checks.append(True)
        except Exception:
            checks.append(False)

    def want(actor: Actor) -> None:
        lock = SimLock(table.ledger, actor, lease_s=20.0)
        while isinstance(lock.try_acquire(actor.name), LockHolder):
            actor.clock.sleep(0.5)
        taken[actor.name] = world.now
        table.ledger.free(actor)

    world.add("stalled", hold).stall_at(0, 60.0)
    world.add("waiter", want, delay_s=1)
    world.add("dying", hold, delay_s=100).crash_at(0, effect=False)
    world.add("heir", want, delay_s=101)
    assert world.run().ok
    assert 20 < taken["waiter"] < 22 and 120 < taken["heir"] < 122
    assert checks == [False]
