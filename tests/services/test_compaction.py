"""Compaction: the same rows in new base files, whoever tries and dies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from lakewright.engine.coexistence import open_access
from lakewright.engine.keyed.writer import KeyedWriter
from lakewright.engine.operations import UPSERT
from lakewright.engine.row_source import RowSource
from lakewright.engine.write_job import WriteJob
from lakewright.engine.write_options import WriteOptions
from lakewright.errors import (
    CorruptFileError,
    FencedError,
    PlanBusyError,
    PlanStateError,
    UnsupportedTableError,
    WriteConflictError,
)
from lakewright.format.instant import State
from lakewright.format.records import load_compaction_plan
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime import SeededRandom
from lakewright.runtime.process import ProcessIdentity
from lakewright.services.compaction import Compaction
from lakewright.services.compaction_plan import CompactionOptions, CompactionTrigger
from lakewright.storage.faults import FaultPlan, SimulatedCrash, crash
from lakewright.storage.memory import MemoryStorage
from lakewright.txn.access import Access
from lakewright.txn.execution import Execution
from lakewright.txn.rollback import schedule_rollback
from tests.engine.keyed.tables import QuickTable, Shape, new_table, rows
from tests.engine.keyed.test_against_model import HISTORY, shapes
from tests.engine.test_crash_everywhere import (
    BEFORE,
    BUCKETS,
    DYING,
    OPTIONS,
    World,
    orphans,
    upsert,
)
from tests.engine.test_crash_everywhere import rows as crash_rows
from tests.quickly import a_few_quickly
from tests.txn.tables import KnownProcesses, NeverRuns

ALWAYS = CompactionOptions(trigger=CompactionTrigger.ALWAYS)
MOR = pytest.mark.parametrize("version", [6, 8])


def compaction(table: QuickTable, **more: Any) -> Compaction:
    return Compaction(table.access(), ALWAYS, **more)


def content(table: QuickTable) -> list[dict[str, Any]]:
    written = ["_hoodie_commit_time"] if table.properties.populate_meta_fields else []
    found = table.scan(columns=["id", "p", "ts", "v", *written]).to_arrow()
    return sorted(found.to_pylist(), key=lambda r: (r["p"] or "", r["id"]))


def changed(version: int, **more: Any) -> tuple[Shape, QuickTable]:
    """A table with two file groups that have logs and one that has not."""
    shape = Shape(type="mor", version=version, small_files=False, **more)
    table = new_table(shape)
    first = [(f"k{i}", "abc"[i % 3], 1, i) for i in range(12)]
    table.upsert(rows(shape, first), options=shape.options)
    table.upsert(rows(shape, [("k0", "a", 2, 100), ("k3", "a", 0, 103)]), options=shape.options)
    table.delete(rows(shape, [("k1", "b", 3, 0)]), options=shape.options)
    return shape, table


@MOR
def test_rows_stay_as_they_are_and_logs_are_gone_from_slices(version: int) -> None:
    _, table = changed(version)
    before = content(table)
    [done] = compaction(table).run()
    assert (done.slices, done.log_files) == (2, 2)
    assert content(table) == before
    snapshot = table.snapshot()
    listing = snapshot.opened.listing
    slices = snapshot.view(listing.files(listing.partitions())).latest_slices()
    assert [bool(s.logs) for s in slices] == [False] * 3
    assert {s.base_instant == done.instant for s in slices if s.group.partition != "c"} == {True}
    metadata = table.metadata(done.instant)
    assert metadata.operation_type == "COMPACT" and metadata.compacted
    assert sum(stat.num_deletes or 0 for stat in metadata.write_stats) == 1
    assert compaction(table).run() == []
    assert not table.timeline.pending().instants


@MOR
def test_writes_behind_a_plan_survive_its_compaction(version: int) -> None:
    shape, table = changed(version)
    service = compaction(table)
    instant = service.schedule()
    assert instant is not None
    table.upsert(rows(shape, [("k0", "a", 5, 500), ("k4", "b", 5, 504)]), options=shape.options)
    before = content(table)
    assert service.schedule() is None  # both groups are taken
    done = service.execute(instant)
    assert done.log_files == 2 and content(table) == before
    table.upsert(rows(shape, [("k0", "a", 6, 600)]), options=shape.options)
    before = content(table)
    assert [d.log_files for d in compaction(table).run()] == [3]
    assert content(table) == before


@MOR
def test_a_write_that_was_planned_before_a_compaction_loses_no_row(version: int) -> None:
    shape, table = changed(version)
    late = rows(shape, [("k0", "a", 9, 900)])
    access = table.access()
    job = WriteJob.prepare(access, WriteOptions.from_hudi(shape.options), UPSERT, late.schema)
    [done] = compaction(table).run()
    table.clock.advance(1)
    writer = KeyedWriter(job, MergerRegistry())
    if version == 6:  # its log would lie before the compaction
        with pytest.raises(WriteConflictError, match=done.instant):
            writer.upsert(RowSource(late))
        table.upsert(late, options=shape.options)
    else:
        writer.upsert(RowSource(late))
    assert {r["id"]: r["v"] for r in content(table)}["k0"] == 900


def test_a_dry_run_changes_nothing() -> None:
    _, table = changed(8)
    files = table.files()
    plan = compaction(table).plan()
    assert plan is not None and len(plan.operations or ()) == 2
    assert table.files() == files


def test_plans_that_cannot_be_executed_are_refused() -> None:
    _, table = changed(8)
    service = compaction(table)
    with pytest.raises(PlanStateError, match="no plan"):
        service.execute("20200101000000000")
    done = service.run()[0]
    with pytest.raises(PlanStateError, match="completed"):
        service.execute(done.instant)
    write = table.timeline.instants[0].requested_time
    with pytest.raises(PlanStateError):
        service.execute(write)
    cow = new_table(Shape(type="cow"))
    with pytest.raises(UnsupportedTableError, match="MERGE_ON_READ"):
        compaction(cow).schedule()


@MOR
def test_a_plan_of_another_service_is_refused_before_it_is_begun(version: int) -> None:
    _, table = changed(version)
    service = compaction(table)
    plan = service.plan()
    assert plan is not None
    files = table.access().files(table.properties)
    other = "20990101000000000"
    files.request(other, "logcompaction", plan.write(table.properties.version))
    before = table.files().keys()
    with pytest.raises(PlanStateError, match="is a log compaction, not a compaction"):
        service.execute(other)
    assert table.files().keys() == before


def test_a_plan_whose_files_are_gone_is_told_and_kept() -> None:
    _, table = changed(8)
    service = compaction(table)
    instant = service.schedule()
    assert instant is not None
    plan = load_compaction_plan(
        table.storage,
        table.properties,
        table.timeline.get(instant),  # type: ignore[arg-type]
    )
    operation = (plan.operations or ())[0]
    table.storage.delete(f"{operation.partition_path}/{(operation.delta_file_paths or [''])[0]}")
    with pytest.raises(CorruptFileError, match="is not there"):
        service.execute(instant)
    found = table.timeline.get(instant)
    assert found is not None and not found.completed


def test_who_stood_still_until_its_files_were_cleaned_is_told_that_it_is_over() -> None:
    _, table = changed(8)
    access = table.access()

    def cleaned(access: Access, work: Any) -> Any:
        access.clock.sleep(3600)
        return [access.storage.read(f"{work.slices[0].group.partition}/gone")]

    service = Compaction(access, ALWAYS, compactor=cleaned)
    instant = service.schedule()
    assert instant is not None
    with pytest.raises(FencedError, match="sign of life"):
        service.execute(instant)


@MOR
def test_an_attempt_that_is_rolled_back_while_it_begins_writes_nothing(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, table = changed(version)
    service = compaction(table)
    instant = service.schedule()
    assert instant is not None

    def rolled_back_meanwhile(execution: Execution) -> None:
        access = table.access()
        with access.locked("by a process with another clock") as lease:
            timeline = access.timeline(table.properties)
            found = timeline.get(instant)
            assert found is not None
            schedule_rollback(access, lease, table.properties, timeline, found)

    monkeypatch.setattr(Execution, "_roll_back_earlier", rolled_back_meanwhile)
    before = {path for path in table.files() if path.endswith(".parquet")}
    with pytest.raises(FencedError, match="is being rolled back while it was begun"):
        service.execute(instant)
    assert {path for path in table.files() if path.endswith(".parquet")} == before
    assert table.timeline.get(instant).state is State.REQUESTED  # type: ignore[union-attr]


@settings(max_examples=20)
@given(shapes(), HISTORY)
def test_histories_with_compactions_agree_with_the_model(
    shape: Shape, steps: list[tuple[str, Any]]
) -> None:
    shape = Shape(
        type="mor",
        version=shape.version,
        index=shape.index,
        partitioned=shape.partitioned,
        merging=shape.merging,
        ordering=shape.ordering,
        meta=shape.meta,
        small_files=shape.small_files,
        moves=shape.moves,
        parquet_logs=shape.parquet_logs,
    )
    table = new_table(shape)
    for number, (verb, given_) in enumerate(steps):
        if verb == "upsert":
            batch = [
                (key, p, ts, 10 * number + n, gone) for n, (key, p, ts, gone) in enumerate(given_)
            ]
            table.upsert(rows(shape, batch), options=shape.options)
        elif verb == "delete":
            batch = [(key, p, 3, 0, None) for p, key in given_]
            table.delete(rows(shape, batch), options=shape.options)
        before = content(table)
        compaction(table).run()
        assert content(table) == before
        assert compaction(table).run() == []
        table.clock.advance(1)


# ---- processes that die ------------------------------------------------------------------------


def access_of(world: World, storage: MemoryStorage, own: ProcessIdentity) -> Access:
    return open_access(
        storage,
        OPTIONS,
        clock=world.clock,
        random=SeededRandom(world.bucket.changes),
        spawner=NeverRuns(),
        processes=KnownProcesses(own=own, dead=world.processes.dead),
    )


def run(world: World, storage: MemoryStorage | None = None, own: ProcessIdentity = DYING) -> int:
    access = access_of(world, storage or world.storage, own)
    return len(Compaction(access, ALWAYS).run())


def crashes(version: int, buckets: bool, effect: bool, stride: int) -> Iterator[tuple[int, World]]:
    index = 0
    while True:
        world = World.new(version, "mor", buckets)
        dying = MemoryStorage(world.bucket, faults=FaultPlan({index: crash(effect=effect)}))
        try:
            run(world, dying)
        except SimulatedCrash:
            world.processes.dead.add(DYING)
            yield index, world
        else:
            return
        index += stride


def check(version: int, effect: bool, *, buckets: bool = False, stride: int = 1) -> None:
    """Another process finishes what a dead one left, and a writer goes on beside it."""
    survivor = ProcessIdentity("here", "boot", 7, "2")
    following = upsert(crash_rows("z1"), BUCKETS if buckets else OPTIONS)
    count = 0
    for index, world in crashes(version, buckets, effect, stride):
        count += 1
        assert world.rows() == BEFORE, index
        if index % 2:
            world.write(following)
        wanted = world.rows()
        run(world, own=survivor)
        assert world.rows() == wanted, index
        world.write(upsert(crash_rows("y1"), BUCKETS if buckets else OPTIONS))
        assert world.rows() == wanted | {"y1": 1}, index
        assert orphans(world) == [], index
        table = QuickTable(world.storage, world.clock)
        compacted = [i for i in table.timeline.completed() if i.action == "commit"]
        # What was written into buckets after the dead process had committed is compacted too.
        again = int(buckets and index % 2)
        assert 1 <= len(compacted) <= 1 + again and table.timeline.duplicates == (), index
    assert count > 40 / stride


@pytest.mark.parametrize(("version", "effect"), a_few_quickly([(6, True), (8, False)], 1))
def test_a_crash_at_any_operation_is_finished_by_the_next(version: int, effect: bool) -> None:
    check(version, effect, stride=5)


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize("buckets", [False, True])
def test_every_crash_is_finished_by_the_next(version: int, effect: bool, buckets: bool) -> None:
    check(version, effect, buckets=buckets)


def test_a_plan_that_somebody_works_on_is_left_alone() -> None:
    _, table = changed(8)
    service = compaction(table)
    instant = service.schedule()
    assert instant is not None
    tried: list[str] = []

    def compactor(access: Access, work: Any) -> Any:
        with pytest.raises(PlanBusyError) as busy:
            compaction(table).execute(instant)
        tried.append(busy.value.code)
        return [work.compact(access.storage, n, access, alone=False) for n in range(2)]

    before = content(table)
    Compaction(table.access(), ALWAYS, compactor=compactor).execute(instant)
    assert tried == ["service.plan_busy"] and content(table) == before
