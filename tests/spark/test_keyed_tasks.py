"""The tasks of keyed writes without Spark: rows by every road, attempts that fail or come late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakewright as lw
from lakewright.engine.coexistence import open_access
from lakewright.engine.operations import UPSERT
from lakewright.engine.write_job import WriteJob
from lakewright.engine.write_result import WriteResult
from lakewright.errors import FencedError, InputError
from lakewright.merge.registry import MergerRegistry
from lakewright.spark import keyed_writer
from lakewright.spark.keyed_chunks import Keying, Route, encoded, mark_of, other_rows, split
from lakewright.spark.keyed_rows import Chunk, Routes, _row
from lakewright.spark.keyed_tasks import KeyedWork
from lakewright.spark.keyed_writer import SparkKeyedWriter
from lakewright.spark.tasks import pack
from lakewright.spark.write_tasks import Attempt, attempt_packed, outcome_of
from lakewright.storage.resolve import StorageRef
from lakewright.txn.access import Access
from tests.rows import canonical, table_rows

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))


def batch(seed: int, count: int, keys: int, *, deletes: float = 0.2) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, keys, count)
    return pa.RecordBatch.from_pydict(
        {
            "id": [f"k{i}" for i in ids],
            "city": [f"c{i % 3}" for i in ids],
            "ts": rng.integers(0, 9, count),
            "n": rng.integers(0, 10**6, count),
            "_hoodie_is_deleted": rng.random(count) < deletes,
        },
        SCHEMA,
    )


@dataclass
class Moved:
    """Rows on their way to tasks."""

    parts: list[pa.RecordBatch]

    def batches(self, task: int) -> list[pa.RecordBatch]:
        return [part for part in self.parts if part["task"][0].as_py() == task]


@dataclass
class Elsewhere:
    """Rows that wait, each chunk in a task of its own."""

    keying: Keying
    given: Sequence[pa.RecordBatch]

    def chunks(self, access: Access) -> list[Chunk]:
        return [self._chunk(k, self.keying.keyed(rows)) for k, rows in enumerate(self.given)]

    def _chunk(self, number: int, rows: pa.RecordBatch) -> Chunk:
        packed = encoded(rows)
        brief = rows.select(self.keying.brief_schema.names)
        return Chunk(number, 0, rows.num_rows, len(packed), mark_of(packed), brief, packed)

    def split(self, routes: Routes) -> Any:
        parts = []
        for number, rows in enumerate(self.given):
            _, packed = routes.by_chunk[number, 0]
            for task, own in split(self.keying.keyed(rows), Route.unpacked(packed), routes.task_of):
                parts.append(_row(task, number, 0, own))
        return Moved(parts[::-1])


Run = Callable[[Access, KeyedWork, int, Sequence[Any]], Sequence[Any]]


def attempt(work: KeyedWork, batches: Sequence[Any], access: Access, task: int, number: int) -> Any:
    packed = attempt_packed(pack(work), batches, Attempt(task, 1, number, True))
    return outcome_of(packed, access.storage.read)


def once(access: Access, work: KeyedWork, task: int, batches: Sequence[Any]) -> Sequence[Any]:
    told = attempt(work, batches, access, task, task)
    if told.error is not None:
        raise told.error
    return told.stats


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Lets tasks run here, in the given way."""

    def use(run: Run) -> None:
        def run_tasks(
            access: Access, frame: Any, work: KeyedWork, *, batch_rows: Any = None, sent: Any = None
        ) -> list[Any]:
            count = len({group.task for group in work.groups})
            each = [sent[t : t + 1] if sent else frame.batches(t) for t in range(count)]
            return [s for t, own in enumerate(each) for s in run(access, work, t, own)]

        monkeypatch.setattr(keyed_writer, "run_tasks", run_tasks)
        monkeypatch.setattr(keyed_writer, "LIGHT_BYTES", -1)
        SPARK.range = lambda *_: None

    use(once)
    return use


def writer(path: Path, schema: pa.Schema = SCHEMA, **options: str) -> SparkKeyedWriter:
    table = lw.Table.open(path)
    chosen = lw.WriteOptions.from_hudi(options, table=table.properties)
    access = open_access(StorageRef(str(path)).open(), chosen)
    job = WriteJob.prepare(access, chosen, UPSERT, schema)
    return SparkKeyedWriter(job, MergerRegistry(), spark=SPARK, ref=StorageRef(str(path)))


def upsert(path: Path, given: Sequence[pa.RecordBatch], road: str, **options: str) -> WriteResult:
    own = writer(path, **options)
    keying = own.keying()
    if road == "sent":
        return own.upsert_keyed(map(keying.keyed, given))
    waiting = Elsewhere(keying, given)
    return own.upsert_waiting(waiting, keying, waiting.chunks(own.job.access))


def content(table: lw.Table) -> list[str]:
    columns = ["_hoodie_record_key", "_hoodie_partition_path", *SCHEMA.names]
    return canonical(table_rows(table.scan(columns=columns).to_arrow()))


def create(path: Path, **choices: Any) -> lw.Table:
    chosen: dict[str, Any] = {"key": ["id"], "partition": ["city"], "ordering": ["ts"], **choices}
    return lw.Table.create(path, schema=SCHEMA, name="t", **chosen)


PAYLOAD = "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"


@pytest.mark.parametrize("road", ["sent", "waiting"])
@pytest.mark.parametrize(
    "choices",
    [
        {"type": "mor", "version": 8},
        pytest.param({"type": "cow", "version": 6}, marks=pytest.mark.slow),
        {"type": "mor", "version": 6, "payload_class": PAYLOAD},
    ],
    ids=["mor", "cow", "payload"],
)
def test_tasks_write_what_the_engine_writes(
    tmp_path: Path, tasks: Any, road: str, choices: dict[str, Any]
) -> None:
    plain, ours = create(tmp_path / "plain", **choices), create(tmp_path / "ours", **choices)
    for seed in range(3):
        given = [batch(10 * seed + k, 30, 60) for k in range(3)]
        theirs = plain.upsert(pa.Table.from_batches(given))
        done = upsert(tmp_path / "ours", given, road)
        assert content(ours) == content(plain)
        assert (done.inserted, done.updated, done.deleted, done.ignored, done.files) == (
            theirs.inserted,
            theirs.updated,
            theirs.deleted,
            theirs.ignored,
            theirs.files,
        )


@pytest.mark.parametrize("road", ["sent", "waiting"])
@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_attempts_that_fail_leave_one_file_per_group(
    tmp_path: Path, tasks: Any, road: str, type_: str
) -> None:
    def twice(access: Access, work: KeyedWork, task: int, own: Sequence[Any]) -> Sequence[Any]:
        assert not attempt(work, own, access, task, 100 + task).error  # published, and lost
        return once(access, work, task, own)

    path = tmp_path / "t"
    table = create(path, type=type_)
    table.upsert(pa.Table.from_batches([batch(1, 60, 60, deletes=0)]))
    before = {f for f in path.rglob("*") if f.is_file() and ".hoodie" not in f.parts}
    tasks(twice)
    done = upsert(path, [batch(2, 60, 90, deletes=0)], road)
    after = {f for f in path.rglob("*") if f.is_file() and ".hoodie" not in f.parts}
    own = [f.name for f in after - before if not f.name.startswith(".hoodie")]
    assert len(own) == done.files == 3 and not any("-1-10" in name for name in own)
    assert not table.timeline.pending().instants


def test_an_attempt_after_the_commit_publishes_nothing(tmp_path: Path, tasks: Any) -> None:
    late: list[Callable[[], Any]] = []

    def remember(access: Access, work: KeyedWork, task: int, own: Sequence[Any]) -> Sequence[Any]:
        late.append(lambda: attempt(work, own, access, task, 100 + task))
        return once(access, work, task, own)

    path = tmp_path / "t"
    create(path, type="mor")
    tasks(remember)
    upsert(path, [batch(1, 60, 60)], "waiting")
    before = sorted(path.rglob("*.parquet"))
    told = [again() for again in late]
    assert told and all(isinstance(outcome.error, FencedError) for outcome in told)
    assert sorted(path.rglob("*.parquet")) == before


def test_rows_that_do_not_arrive_are_missed(tmp_path: Path, tasks: Any) -> None:
    def less(access: Access, work: KeyedWork, task: int, own: Sequence[Any]) -> Sequence[Any]:
        return once(access, work, task, own[1:])

    path = tmp_path / "t"
    table = create(path)
    tasks(less)
    with pytest.raises(InputError, match="other rows"):
        upsert(path, [batch(1, 60, 60), batch(2, 60, 60)], "waiting")
    assert not table.timeline.pending().instants and not content(table)


def test_an_error_of_another_task_is_raised_by_the_first_that_hears_of_it(
    tmp_path: Path, tasks: Any
) -> None:
    import pickle

    def told(access: Access, work: KeyedWork, task: int, own: Sequence[Any]) -> Sequence[Any]:
        error = _row(task, -1, 0, pickle.dumps(other_rows()))
        return once(access, work, task, [*own, error])

    path = tmp_path / "t"
    create(path)
    tasks(told)
    with pytest.raises(InputError, match="other rows"):
        upsert(path, [batch(1, 20, 20)], "waiting")


def test_rows_of_some_columns_are_completed_in_tasks(tmp_path: Path, tasks: Any) -> None:
    choices: dict[str, Any] = {"type": "mor", "version": 6}
    plain, path = create(tmp_path / "plain", **choices), tmp_path / "ours"
    ours = create(path, **choices)
    first = pa.Table.from_batches([batch(1, 60, 60, deletes=0)])
    plain.upsert(first)
    ours.upsert(first)
    some = batch(2, 40, 80, deletes=0).select(["id", "city", "ts", "n"])
    plain.upsert(pa.Table.from_batches([some]), columns=["n"])
    table = lw.Table.open(path)
    options = lw.WriteOptions.from_hudi({}, table=table.properties)
    access = open_access(StorageRef(str(path)).open(), options)
    job = WriteJob.prepare(access, options, UPSERT, some.schema, partial=True)
    own = replace(
        SparkKeyedWriter(job, MergerRegistry(), spark=SPARK, ref=StorageRef(str(path))),
        columns=frozenset(some.schema.names),
    )
    keying = own.keying()
    waiting = Elsewhere(keying, [some.slice(0, 25), some.slice(25)])
    own.upsert_waiting(waiting, keying, waiting.chunks(access))
    assert content(ours) == content(plain)


def test_keys_are_formed_from_few_columns_as_from_all(tmp_path: Path) -> None:
    create(tmp_path / "t")
    keying = writer(tmp_path / "t").keying()
    brief = keying.in_brief()
    assert set(brief.rows.source.names) == {"id", "city", "ts", "_hoodie_is_deleted"}
    rows = batch(1, 20, 20)
    names = keying.brief_schema.names
    short = brief.keyed(rows.select(brief.rows.source.names))
    assert short.select(names).equals(keying.keyed(rows).select(names))
