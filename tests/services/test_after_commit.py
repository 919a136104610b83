"""Services with a write: after its commit, beside it, or not at all; and never against it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakewright as lw
from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.errors import ConfigError, OptionError, ServiceError, StorageUnavailableError
from lakewright.runtime import ManualClock
from lakewright.runtime.cancel import CancelToken
from lakewright.runtime.events import Event
from lakewright.runtime.spawn import Task
from lakewright.services import automatic
from lakewright.services.after_commit import WriteServices
from lakewright.services.automatic import ServiceOutcome, ServiceRun
from lakewright.services.background import BackgroundServices, Pace
from lakewright.services.switches import Compacting, ServiceSwitches
from lakewright.txn.access import Access
from tests.engine.keyed.tables import QuickTable, Shape, new_table, rows
from tests.services.test_compaction import changed, content
from tests.txn.tables import NeverRuns

COW = Shape(type="cow", partitioned=False)
FEW = {
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
}
EVERY_SECOND = {"hoodie.compact.inline.max.delta.commits": "2"}


class Listening:
    """An event hook that remembers kinds."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.then: Callable[[Event], None] = lambda event: None

    def __call__(self, event: Event) -> None:
        self.kinds.append(event.kind)
        self.then(event)


def listening(table: QuickTable) -> Listening:
    hook = Listening()
    table._on_event = hook
    return hook


def upserted(table: QuickTable, shape: Shape, times: int, **options: str) -> list[WriteResult]:
    """The same key written again and again."""
    results = []
    for number in range(times):
        table.clock.advance(1)
        batch = rows(shape, [("k", "a", number, number)])
        results.append(table.upsert(batch, options={**shape.options, **FEW, **options}))
    return results


def commits(table: QuickTable) -> int:
    return len(table.timeline.commits().completed())


def base_files(table: QuickTable) -> list[str]:
    return [path for path in table.files() if path.endswith(".parquet") and ".hoodie" not in path]


# ---- by default --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, 8])
def test_old_files_and_old_instants_go_by_themselves(version: int) -> None:
    shape = replace(COW, version=version)
    table = new_table(shape)
    results = upserted(table, shape, 9)
    assert not any(result.warnings for result in results)
    assert len(base_files(table)) <= 4 and commits(table) <= 6
    assert any(did.startswith("clean") for did in results[-1].services)
    assert any(did.startswith("archive") for r in results for did in r.services)
    assert table.scan(columns=["v"]).to_arrow()["v"].to_pylist() == [8]
    assert table.health(FEW).healthy


def test_services_that_are_switched_off_do_not_run() -> None:
    off = [
        {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"},
        {"hoodie.table.services.enabled": "false"},
    ]
    for options in off:
        table = new_table(COW)
        results = upserted(table, COW, 7, **options)
        assert all(result.services == () for result in results)
        assert commits(table) == 7 and len(base_files(table)) == 7


def test_a_table_that_only_grows_is_not_looked_through() -> None:
    table = new_table(COW)
    hook = listening(table)
    for number in range(5):
        table.append(rows(COW, [(f"k{number}", "a", 1, 1)]), options={**FEW, **SMALL_FILES_OFF})
    assert "clean.plan" not in hook.kinds


SMALL_FILES_OFF = {"hoodie.parquet.small.file.limit": "0"}


def test_what_the_table_stores_counts_where_the_write_says_nothing() -> None:
    table = new_table(COW)
    stored = replace(COW.spec(), extra={"hoodie.clean.commits.retained": "3"})
    assert stored.properties()["hoodie.clean.commits.retained"] == "3"
    options = WriteOptions.from_hudi({}, table=_properties(table, **stored.extra))
    switches = ServiceSwitches.after(options)
    assert switches.clean is not None and switches.clean.commits_retained == 3
    nearer = WriteOptions.from_hudi(
        {"hoodie.clean.commits.retained": "4"}, table=_properties(table, **stored.extra)
    )
    told = ServiceSwitches.after(nearer).clean
    assert told is not None and told.commits_retained == 4


def _properties(table: QuickTable, **more: str) -> Any:
    properties = table.properties
    return type(properties)({**properties.values, **more})


# ---- compaction --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, 8])
def test_logs_are_compacted_after_the_commit_that_makes_it_due(version: int) -> None:
    shape, table = changed(version)
    before = content(table)
    batch = rows(shape, [("k0", "a", 0, 0)])  # older than what is there: nothing changes
    inline = {**shape.options, **EVERY_SECOND, "hoodie.compact.inline": "true"}
    result = table.upsert(batch, options=inline)
    assert [did.split()[0] for did in result.services] == ["compaction"]
    assert result.warnings == () and content(table) == before
    assert table.scan(mode="read_optimized").to_arrow().num_rows == len(before)


def test_a_compaction_may_only_be_planned_and_is_not_planned_twice() -> None:
    shape, table = changed(8)
    options = {**shape.options, **EVERY_SECOND, "hoodie.compact.schedule.inline": "true"}
    first = table.upsert(rows(shape, [("k0", "a", 9, 9)]), options=options)
    assert [did.endswith("planned") for did in first.services] == [True]
    again = table.upsert(rows(shape, [("k2", "c", 9, 9)]), options=options)
    assert again.services == ()
    assert len(table.timeline.pending_compactions()) == 1
    before = content(table)
    assert len(table.services.compaction.run(EVERY_SECOND)) == 1 and content(table) == before


def test_copy_on_write_tables_have_nothing_to_compact() -> None:
    table = new_table(COW)
    results = upserted(table, COW, 2, **{"hoodie.compact.inline": "true"})
    assert all(result.warnings == () for result in results)


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize(
    "options",
    [
        {"hoodie.datasource.write.precombine.field": "v"},
        {"hoodie.table.ordering.fields": "v", "hoodie.payload.ordering.field": "v"},
        {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"},
        {
            "hoodie.datasource.write.payload.class": (
                "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
            )
        },
        {"hoodie.payload.event.time.field": "v"},
    ],
)
def test_the_table_decides_how_rows_are_merged_whatever_a_compaction_is_told(
    version: int, options: dict[str, str]
) -> None:
    _, table = changed(version)  # k3 has a late row that must lose
    before = content(table)
    trigger = {"hoodie.compact.inline.trigger.strategy": "ALWAYS"}
    [done] = table.services.compaction.run({**trigger, **options})
    assert done.slices == 2 and content(table) == before


# ---- what goes wrong ---------------------------------------------------------------------------


@pytest.fixture(params=[StorageUnavailableError("No.", hint="Wait."), RuntimeError("a bug")])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Exception:
    """Cleaning that fails."""
    error: Exception = request.param

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(automatic, "run_clean", fail)
    return error


def test_a_service_that_fails_is_a_warning_and_an_event(broken: Exception) -> None:
    table = new_table(COW)
    hook = listening(table)
    results = upserted(table, COW, 8)
    assert results[-1].inserted + results[-1].updated == 1
    assert any(str(broken) in warning for warning in results[-1].warnings)
    assert "service.failed.clean" in hook.kinds
    assert commits(table) <= 6  # the others ran all the same
    assert not table.timeline.pending().instants


def test_who_wants_an_error_gets_one_that_says_that_the_write_is_committed(
    broken: Exception,
) -> None:
    table = new_table(COW)
    upserted(table, COW, 2)
    strict = {"hoodie.write.can.ignore.post.commit.failures": "false"}
    with pytest.raises(ServiceError, match="is committed") as caught:
        upserted(table, COW, 1, **strict)
    assert caught.value.__cause__ is broken
    assert commits(table) == 3


def test_a_compaction_that_fails_leaves_the_write_and_its_plan() -> None:
    def failing(access: Access, work: object) -> list[Any]:
        raise RuntimeError("no workers")

    shape, table = changed(8)
    options = WriteOptions.from_hudi(
        {**shape.options, **EVERY_SECOND, "hoodie.compact.inline": "true"}, table=table.properties
    )
    access = table.access(options)
    services = WriteServices(access, options, compactor=failing)
    result = services.around(lambda: table.upsert(rows(shape, [("k0", "a", 5, 5)])))
    assert any("no workers" in warning for warning in result.warnings)
    [finding] = table.health().of_code("plan.")
    assert finding.code == "plan.dead"
    strict = replace(services, write=options.model_copy(update={"fail_on_inline_services": True}))
    with pytest.raises(ServiceError, match="compaction failed"):
        strict.around(lambda: table.upsert(rows(shape, [("k0", "a", 6, 6)])))
    before = content(table)
    assert len(table.services.compaction.run()) >= 1 and content(table) == before


@pytest.mark.parametrize(
    "options",
    [
        {"hoodie.clean.policy": "KEEP_EVERYTHING"},
        {"hoodie.clean.commits.retained": "none"},
        {"hoodie.keep.min.commits": "30", "hoodie.keep.max.commits": "30"},
        {"hoodie.compact.inline": "true", "hoodie.compact.schedule.inline": "true"},
        {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "-1"},
        {"table_service_rollback_delay": "5", "hoodie.table.services.rollback.delay.mins": "6"},
        {"table_service_rollback_delay": "-5"},
    ],
)
def test_options_that_cannot_be_are_told_before_the_write(options: dict[str, str]) -> None:
    table = new_table(Shape(type="mor"))
    before = table.files()
    with pytest.raises(OptionError):
        table.append(rows(Shape(), [("k", "a", 1, 1)]), options=options)
    assert table.files() == before


def test_options_of_services_that_are_off_are_not_looked_at() -> None:
    table = new_table(COW)
    off = {"hoodie.archive.automatic": "false", "hoodie.keep.min.commits": "99"}
    assert table.append(rows(COW, [("k", "a", 1, 1)]), options=off).warnings == ()


def test_services_that_are_not_run_here_are_named() -> None:
    table = new_table(COW)
    asked = {"hoodie.clustering.inline": "true"}
    [warning] = table.append(rows(COW, [("k", "a", 1, 1)]), options=asked).warnings
    assert "hoodie.clustering.inline" in warning


def test_whether_plans_are_removable_is_the_tables_own_business() -> None:
    table = new_table(COW)
    with pytest.raises(ConfigError, match=r"contradicts the table"):
        WriteOptions.from_hudi({"hoodie.clustering.plan.removable": "true"}, table=table.properties)
    WriteOptions.from_hudi({"hoodie.log.compaction.plan.removable": "true"}, table=table.properties)
    made = lw.NewTable.from_hudi({"hoodie.clustering.plan.removable": "true"}, COW.schema)
    assert made.extra == {"hoodie.clustering.plan.removable": "true"}


def test_the_delay_of_removable_plans_has_both_names() -> None:
    table = new_table(COW)
    for name in ("table_service_rollback_delay", "hoodie.table.services.rollback.delay.mins"):
        access, _ = table.opened({name: "7"})
        assert access.rollback_delay_ms == 7 * 60_000
    assert table.opened(None)[0].rollback_delay_ms == 60 * 60_000


# ---- beside a write ----------------------------------------------------------------------------


class Done:
    """A task that has ended."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.name, self.done, self.error = "", True, None

    def join(self, timeout_s: float | None = None) -> bool:
        return True

    def result(self) -> Any:
        return self._value


class OnlyServices(NeverRuns):
    """Runs services at once, and heartbeats not at all."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def spawn(self, fn: Any, name: str) -> Task[Any]:
        if not name.startswith("services-"):
            return super().spawn(fn, name)
        self.names.append(name)
        return Done(fn())


def test_asynchronous_services_run_beside_the_write_and_are_waited_for() -> None:
    table = new_table(COW)
    upserted(table, COW, 6, **{"hoodie.table.services.enabled": "false"})
    beside = {"hoodie.clean.async": "true", "hoodie.archive.async": "true"}
    options = WriteOptions.from_hudi({**FEW, **beside}, table=table.properties)
    spawner = OnlyServices()
    access = replace(table.access(options), spawner=spawner)
    done: list[int] = []

    def write() -> WriteResult:
        done.append(commits(table))
        return table.append(
            rows(COW, [("new", "a", 1, 1)]), options={"hoodie.table.services.enabled": "false"}
        )

    result = WriteServices(access, options).around(write)
    assert len(spawner.names) == 1 and result.warnings == ()
    assert [did.split()[0].rstrip(":") for did in result.services] == ["clean", "archive"]


def test_a_stream_is_compacted_beside_its_batches() -> None:
    shape, table = changed(8)
    options = WriteOptions.from_hudi({**shape.options, **EVERY_SECOND}, table=table.properties)
    spawner = OnlyServices()
    access = replace(table.access(options), spawner=spawner)
    services = WriteServices(access, options, stream=True)
    before = content(table)
    services.around(lambda: table.upsert(rows(shape, [("k0", "a", 0, 0)])))
    assert not any(s.logs for s in _slices(table)) and content(table) == before
    told = services.around(lambda: table.upsert(rows(shape, [("k0", "a", 0, 0)])))
    assert [did.split()[0] for did in told.services] == ["compaction"]  # by the batch before
    batch = WriteServices(access, options)
    table.upsert(rows(shape, [("k0", "a", 0, 0)]))
    assert batch.around(lambda: table.upsert(rows(shape, [("k0", "a", 0, 0)]))).services == ()


def _slices(table: QuickTable) -> list[Any]:
    snapshot = table.snapshot()
    listing = snapshot.opened.listing
    return list(snapshot.view(listing.files(listing.partitions())).latest_slices())


def test_in_one_process_the_services_of_a_table_run_once_at_a_time() -> None:
    table = new_table(COW)
    upserted(table, COW, 6, **{"hoodie.table.services.enabled": "false"})
    hook = listening(table)
    inner: list[list[ServiceOutcome]] = []

    def at_the_plan(event: Event) -> None:
        if event.kind == "clean.planned":
            inner.append(table.services.run(FEW))

    hook.then = at_the_plan
    outer = table.services.run(FEW)
    assert inner == [[]] and "service.left_to_other_run" in hook.kinds
    assert [o.service for o in outer if o.did] == ["clean", "archive"]
    assert [o.did for o in table.services.run(FEW)] == [(), (), (), ()]


# ---- in the background -------------------------------------------------------------------------


class Kept:
    """A spawner that keeps what it was given, for the test to run."""

    def __init__(self) -> None:
        self.fn: Any = None

    def spawn(self, fn: Any, name: str) -> Task[Any]:
        self.fn = fn
        return Done(None)


def background(run: Any, clock: ManualClock, every_s: float = 60) -> tuple[BackgroundServices, Any]:
    spawner = Kept()
    made = BackgroundServices.start(run, Pace(every_s), clock=clock, spawner=spawner, name="s")
    return made, spawner.fn


def test_rounds_come_at_their_pace_until_they_are_stopped() -> None:
    clock, began = ManualClock(), []

    def run(token: CancelToken) -> list[ServiceOutcome]:
        began.append(clock.monotonic_s())
        if len(began) == 2:
            services.wake()  # the next one does not wait
        if len(began) == 4:
            services.stop()
            assert token.cancelled
        return [ServiceOutcome("clean", ("something",)), ServiceOutcome("archive")]

    services, loop = background(run, clock)
    loop()
    assert [round(s) for s in began] == [0, 60, 60, 120]
    assert services.rounds == 4 and not services.running
    assert [o.service for o in services.outcomes] == ["clean"] * 4


def test_rounds_that_fail_are_kept_and_followed_by_the_next() -> None:
    clock = ManualClock()

    def run(token: CancelToken) -> list[ServiceOutcome]:
        if services.rounds == 1:
            raise StorageUnavailableError("Gone.", hint="Wait.")
        if services.rounds == 2:
            return [ServiceOutcome("clean", error=RuntimeError("a bug"))]
        services.stop()
        return []

    services, loop = background(run, clock)
    loop()
    assert [o.service for o in services.failures] == ["opening", "clean"]


def test_a_pace_must_be_one() -> None:
    with pytest.raises(OptionError):
        Pace(0)


def test_background_services_of_a_real_table_start_and_stop_cleanly(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("ts", pa.int64())])
    lw.Table.create(tmp_path / "t", schema=schema, type="mor", key=["id"], ordering=["ts"])
    ended = threading.Event()

    def hear(event: Event) -> None:
        if event.kind == "commit.done" and compacting:
            ended.set()

    compacting: list[bool] = []
    table = lw.Table.open(tmp_path / "t", on_event=hear)
    for ts in range(3):
        table.upsert(pa.table({"id": ["a", "b"], "ts": [ts, ts]}, schema=schema))
    compacting.append(True)
    with table.services.start(EVERY_SECOND, every_s=3600) as services:
        assert ended.wait(60)
    assert services.failures == () and not services.running
    assert not table.timeline.pending().instants
    assert [t for t in threading.enumerate() if t.name.startswith("services-")] == []
    with pytest.raises(OptionError):
        table.services.start({"hoodie.clean.policy": "x"})


def test_switches_are_read_from_options() -> None:
    options = WriteOptions.from_hudi(
        {"hoodie.compact.schedule.inline": "true", "hoodie.clean.async": "true"}
    )
    after, beside = ServiceSwitches.after(options), ServiceSwitches.beside(options)
    assert after.clean is None and beside.clean is not None
    assert after.archive is not None and beside.archive is None
    assert after.compacting is Compacting.SCHEDULED and after.compaction is not None
    assert not ServiceSwitches.beside_stream(options).anything
    assert ServiceSwitches.beside_stream(WriteOptions()).compaction is not None
    assert ServiceRun(None, options, ServiceSwitches()).run() == []  # type: ignore[arg-type]
