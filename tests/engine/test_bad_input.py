"""What cannot be written is refused with a clear error, and the table is as it was.

`unchanged` compares every file of the table with its content, byte for byte. A write that had begun
shows on the timeline as a rollback that is complete; nothing else of it may be left.
"""

from __future__ import annotations

import errno
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakewright as lw
from lakewright.engine.new_table import NewTable
from lakewright.engine.table_creation import create_table
from lakewright.errors import (
    ConfigError,
    InputError,
    LakewrightError,
    LockHeldError,
    LockLostError,
    LockRequiredError,
    SchemaError,
    StorageDeniedError,
    StorageError,
)
from lakewright.runtime import ManualClock, SeededRandom, SystemClock
from lakewright.storage.faults import Operation
from lakewright.storage.local import LocalStorage
from lakewright.storage.local_errors import local_error
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.txn.locks.in_process import InProcessLock
from lakewright.txn.locks.protocol import Lease, LockHolder
from tests.quickly import a_few_quickly

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("city", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("must", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)
EACH = pytest.mark.parametrize(
    ("version", "type_"), [(6, "cow"), (6, "mor"), (8, "cow"), (8, "mor")]
)
ONE_QUICKLY = pytest.mark.parametrize(
    ("version", "type_"),
    [
        (8, "cow"),
        pytest.param(6, "mor", marks=pytest.mark.slow),
        pytest.param(6, "cow", marks=pytest.mark.slow),
        pytest.param(8, "mor", marks=pytest.mark.slow),
    ],
)
VERBS: dict[str, Callable[[lw.Table, pa.Table], Any]] = {
    "append": lw.Table.append,
    "bulk_insert": lw.Table.bulk_insert,
    "overwrite": lw.Table.overwrite,
    "overwrite_table": lambda table, rows: table.overwrite(rows, whole_table=True),
}
ROLLBACK = re.compile(r"\.hoodie/(timeline/)?\d{17}(_\d{17})?\.rollback(\.requested|\.inflight)?")
COMPLETED = re.compile(r"\.hoodie/(?:timeline/)?(\d{17})(?:_\d{17})?\.(?:delta|replace)?commit")
STRIDE = 7
"""How many changes lie between two failing ones; tests of transactions try each."""
PLACES = re.compile(r"partition_metadata|/\.lakewright$")
"""Files that a write leaves for good although it came to nothing: folders made known."""


def rows(first: int, last: int, **columns: pa.Array) -> pa.Table:
    numbers = range(first, last)
    values = {
        "id": pa.array([f"k{i}" for i in numbers]),
        "city": pa.array(["sf" if i % 2 else "köln" for i in numbers]),
        "n": pa.array([*numbers], pa.int32()),
        "must": pa.array([*numbers], pa.int64()),
        **columns,
    }
    return pa.table(values)


@dataclass
class Case:
    """A table with two commits."""

    table: lw.Table
    files: Callable[[], dict[str, bytes]]

    @contextmanager
    def unchanged(self, kind: type[LakewrightError], told: str) -> Iterator[None]:
        """Expect an error, and the same bytes afterwards."""
        before, seen = self.files(), keys(self.table)
        with pytest.raises(kind, match=told) as caught:
            yield
        assert caught.value.hint
        after = self.files()
        new = {path for path in after if not ROLLBACK.fullmatch(path)} - before.keys()
        assert [path for path in new if not PLACES.search(path)] == []
        assert {path: after.get(path) for path in before} == before
        rollbacks = [path for path in after if ROLLBACK.fullmatch(path)]
        assert len(rollbacks) % 3 == 0
        assert keys(self.table) == seen


def keys(table: lw.Table) -> list[str]:
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def on_disk(path: Path) -> dict[str, bytes]:
    files = (f for f in path.rglob("*") if f.is_file())
    return {str(f.relative_to(path)): f.read_bytes() for f in files}


def local_case(path: Path, version: int = 8, type_: str = "cow") -> Case:
    for name, content in _files_of_a_table(version, type_).items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return Case(lw.Table.open(path), lambda: on_disk(path))


@cache
def _files_of_a_table(version: int, type_: str) -> dict[str, bytes]:
    """Made once and copied."""
    bucket = MemoryBucket()
    spec = NewTable(
        name="t",
        schema=SCHEMA,
        type=type_,  # type: ignore[arg-type]
        version=version,
        key_fields=("id",),
        partition_fields=("city",),
        ordering_fields=("n",),
    )
    create_table(MemoryStorage(bucket), spec, clock=ManualClock(0), random=SeededRandom(1))
    table = lw.Table(MemoryStorage(bucket))
    table.append(rows(0, 6))
    table.append(rows(6, 10))
    return bucket.objects()


@pytest.fixture(params=[(6, "cow"), (8, "mor")], ids=["v6_cow", "v8_mor"])
def case(tmp_path: Path, request: pytest.FixtureRequest) -> Case:
    return local_case(tmp_path / "t", *request.param)


# ---- rows that do not fit ----------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_null_keys_are_refused_with_their_number_and_a_sample(case: Case, verb: str) -> None:
    bad = rows(20, 24, id=pa.array(["a", None, "", "b"]))
    with case.unchanged(InputError, r"null or empty in 2 of 4 rows"):
        VERBS[verb](case.table, bad)


@pytest.mark.parametrize("verb", ["append", "overwrite"])
@pytest.mark.parametrize(
    ("column", "array", "told"),
    [
        ("n", pa.array(["x"] * 4), "Column n is int"),
        ("n", pa.array([True] * 4), "Column n is int"),
        ("must", pa.array([b"x"] * 4), "Column must is int64"),
        ("id", pa.array([[1]] * 4), "Column id is string"),
        ("city", pa.array([{"a": 1}] * 4), "Column city is string"),
    ],
)
def test_wrong_types_are_refused_before_anything_happens(
    case: Case, verb: str, column: str, array: pa.Array, told: str
) -> None:
    before = case.files()
    with case.unchanged(SchemaError, told):
        VERBS[verb](case.table, rows(20, 24, **{column: array}))
    assert case.files() == before


def test_values_that_lose_something_in_the_column_are_refused(case: Case) -> None:
    finer = pa.array([1000, 1001], pa.timestamp("ns", "UTC"))
    with case.unchanged(InputError, "A value of column at"):
        case.table.append(rows(20, 22, at=finer))


def test_nulls_in_a_column_that_must_have_values_are_refused(case: Case) -> None:
    with case.unchanged(InputError, "Column must has 1 nulls"):
        case.table.append(rows(20, 22, must=pa.array([1, None], pa.int64())))


def test_a_missing_column_that_must_have_values_is_refused(case: Case) -> None:
    with case.unchanged(SchemaError, "lack column must"):
        case.table.append(rows(20, 22).drop_columns(["must"]))


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (("9lives", pa.array([1, 2])), "not a name in Avro"),
        (("CITY", pa.array(["a", "b"])), "cannot be told apart"),
        (("empty", pa.nulls(2)), "only nulls"),
        (("u", pa.array([1, 2], pa.uint64())), "u"),
        (("span", pa.array([1, 2], pa.duration("us"))), "span"),
    ],
)
def test_new_columns_that_no_table_can_have_are_refused(
    case: Case, new: tuple[str, pa.Array], told: str
) -> None:
    with case.unchanged(SchemaError, told):
        case.table.append(rows(20, 22).append_column(*new))


def test_two_columns_of_one_name_are_refused(case: Case) -> None:
    with case.unchanged(LakewrightError, "n"):
        case.table.append(rows(20, 22).append_column("n", pa.array([1, 2])))


def test_a_batch_that_changes_its_columns_midway_is_refused(case: Case) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(20, 22).to_batches()[0]
        raise InputError("The source broke.", hint="Look at the source.")

    reader = pa.RecordBatchReader.from_batches(rows(20, 22).schema, batches())
    with case.unchanged(Exception, "The source broke"):  # type: ignore[arg-type]
        case.table.append(reader)


def test_something_that_is_no_rows_is_refused(case: Case) -> None:
    before = case.files()
    with case.unchanged(InputError, "Rows cannot be read from dict"):
        case.table.append({"id": ["a"]})
    assert case.files() == before


# ---- storage that fails ------------------------------------------------------------------------


CHANGING = frozenset({"create_if_absent", "replace", "replace_if_match", "create_from", "delete"})


class Failing:
    """Fails changes of a memory bucket: one of them, or all from it on."""

    def __init__(self, error: Callable[[Operation], Exception], at: int, *, lasting: bool) -> None:
        self.error, self.at, self.lasting = error, at, lasting
        self.changes = 0

    def before(self, operation: Operation) -> None:
        if operation.name not in CHANGING:
            return
        number, self.changes = self.changes, self.changes + 1
        if number == self.at or (self.lasting and number > self.at):
            raise self.error(operation)

    def after(self, operation: Operation) -> None:
        """Nothing fails afterwards."""

    def view(self, operation: Operation, newest: int) -> int:
        return newest


def full(operation: Operation) -> Exception:
    cause = OSError(errno.ENOSPC, "No space left on device")
    return local_error(cause, "write", operation.path, "memory:/")


def read_only(operation: Operation) -> Exception:
    cause = OSError(errno.EROFS, "Read-only file system")
    return local_error(cause, "write", operation.path, "memory:/")


class FaultyTable(lw.Table):
    """Another process's handle on the same table, whose storage fails."""

    hook: Failing


def faulty(bucket: MemoryBucket, hook: Failing) -> FaultyTable:
    storage = MemoryStorage(bucket, faults=hook)
    table = FaultyTable(storage, lock=InProcessLock(bucket_name(bucket)))
    table.hook = hook
    return table


def bucket_name(bucket: MemoryBucket) -> str:
    return f"bucket {id(bucket)}"


def memory_case(version: int, type_: str) -> tuple[MemoryBucket, Case]:
    bucket = MemoryBucket()
    storage = MemoryStorage(bucket)
    for name, content in _files_of_a_table(version, type_).items():
        storage.replace(name, content)
    table = lw.Table(storage, lock=InProcessLock(bucket_name(bucket)))
    return bucket, Case(table, bucket.objects)


@ONE_QUICKLY
@pytest.mark.parametrize("verb", a_few_quickly([*VERBS], 1))
def test_a_change_that_a_full_disk_refuses_once_is_told_and_taken_back(
    version: int, type_: str, verb: str
) -> None:
    outcomes = []
    for at in count(0, STRIDE):
        bucket, case = memory_case(version, type_)
        before, seen = case.files(), keys(case.table)
        error = failure(verb, table := faulty(bucket, Failing(full, at, lasting=False)))
        outcomes.append(error is not None)
        if error is None:
            assert keys(case.table) != seen
            if table.hook.changes <= at:
                break
        else:
            assert error.hint
            assert keys(case.table) == seen
            # What could not be taken back then, the next write takes back.
            case.table.append(rows(30, 31))
            assert_nothing_is_left(case, before)
    assert {*outcomes} == {True, False}


@ONE_QUICKLY
@pytest.mark.parametrize("verb", a_few_quickly([*VERBS], 1))
def test_a_storage_that_becomes_read_only_midway_loses_nothing(
    version: int, type_: str, verb: str
) -> None:
    for at in count(0, STRIDE):
        bucket, case = memory_case(version, type_)
        before, seen = case.files(), keys(case.table)
        error = failure(verb, table := faulty(bucket, Failing(read_only, at, lasting=True)))
        if error is None:
            assert keys(case.table) != seen
            if table.hook.changes <= at:
                return
        else:
            assert error.hint
            assert keys(case.table) == seen
            after = case.files()
            assert {path: after.get(path) for path in before} == before


def failure(verb: str, table: FaultyTable) -> StorageError | None:
    """The error that a verb ends with."""
    try:
        VERBS[verb](table, rows(20, 24))
    except StorageError as error:
        return error
    return None


def assert_nothing_is_left(case: Case, before: dict[str, bytes]) -> None:
    """Nothing is left of a write that came to nothing."""
    after = case.files()
    assert {p: after.get(p) for p in before} == before
    times = {m[1] for p in after if (m := re.search(r"_(\d{17})\.parquet$", p))}
    completed = {m[1] for p in after if (m := COMPLETED.fullmatch(p))}
    assert times <= completed
    assert [p for p in after if re.search(r"\.heartbeat/|/fence/|\.marker\.", p)] == []


def test_a_disk_that_is_really_full_is_told_by_name(tmp_path: Path) -> None:
    case = local_case(tmp_path / "t")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    big = rows(100, 60_000)
    with case.unchanged(StorageError, "File too large|No space"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            case.table.append(big)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    case.table.append(big)
    assert len(keys(case.table)) == 10 + big.num_rows


def test_a_storage_that_cannot_be_written_at_all_is_told_before_anything_happens() -> None:
    bucket, case = memory_case(8, "cow")
    before = case.files()
    with case.unchanged(StorageDeniedError, "Read-only file system"):
        faulty(bucket, Failing(read_only, 0, lasting=True)).append(rows(20, 24))
    assert case.files() == before


# ---- locks and clocks --------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_a_table_that_others_write_is_not_written_without_their_lock(
    tmp_path: Path, verb: str
) -> None:
    case = local_case(tmp_path / "t", 6)
    newest = max((tmp_path / "t" / ".hoodie").glob("*.commit"))
    newest.write_bytes(newest.read_bytes().replace(b"lakewright.", b"somebody.e."))
    before = case.files()
    with case.unchanged(LockRequiredError, "Somebody else writes this table"):
        VERBS[verb](case.table, rows(20, 24))
    assert case.files() == before


class LosingLock:
    """A lock that is lost when the commit is at hand."""

    def __init__(self, purpose: str) -> None:
        self._inner = InProcessLock(f"losing {id(self)}")
        self._purpose = purpose
        self.place, self.shared = "a lock in this test", True

    def try_acquire(self, who: str) -> Lease | LockHolder:
        got = self._inner.try_acquire(who)
        if isinstance(got, LockHolder) or self._purpose not in who:
            return got
        return _Lost(got)


@dataclass
class _Lost:
    inner: Lease

    @property
    def holder(self) -> LockHolder:
        return self.inner.holder

    def check(self) -> None:
        raise LockLostError("The lock is lost.", hint="Run the write again.", context={})

    def release(self) -> None:
        self.inner.release()


@ONE_QUICKLY
@pytest.mark.parametrize("verb", ["append", "overwrite_table"])
@pytest.mark.parametrize("purpose", ["begin of", "commit of"])
def test_a_lock_that_is_lost_stops_the_write(
    tmp_path: Path, version: int, type_: str, verb: str, purpose: str
) -> None:
    case = local_case(tmp_path / "t", version, type_)
    losing = lw.Table(LocalStorage(tmp_path / "t"), lock=LosingLock(purpose))
    with case.unchanged(LockLostError, "The lock is lost"):
        VERBS[verb](losing, rows(20, 24))
    case.table.append(rows(30, 32))


def test_a_lock_that_somebody_holds_is_told_with_the_holder(tmp_path: Path) -> None:
    case = local_case(tmp_path / "t")
    lock = InProcessLock(f"held {tmp_path}")
    held = lock.try_acquire("a writer that takes long")
    impatient = lw.Table(LocalStorage(tmp_path / "t"), lock=lock)
    options = {
        "hoodie.write.lock.wait_time_ms": "0",
        "hoodie.write.lock.client.num_retries": "0",
    }
    before = case.files()
    with case.unchanged(LockHeldError, "a writer that takes long"):
        impatient.append(rows(20, 24), options=options)
    assert case.files() == before
    assert not isinstance(held, LockHolder)
    held.release()


class LateClock(SystemClock):
    """A clock that stands behind by some minutes."""

    def __init__(self, minutes: int) -> None:
        self._behind_ms = minutes * 60_000

    def now_ms(self) -> int:
        return super().now_ms() - self._behind_ms


@EACH
def test_a_clock_that_went_back_by_hours_is_refused(
    tmp_path: Path, version: int, type_: str
) -> None:
    case = local_case(tmp_path / "t", version, type_)
    late = lw.Table(LocalStorage(tmp_path / "t"), clock=LateClock(minutes=180))
    before = case.files()
    for verb in VERBS.values():
        with case.unchanged(ConfigError, "The clock says"):
            verb(late, rows(20, 24))
    assert case.files() == before


@EACH
def test_a_clock_that_went_back_by_minutes_costs_no_order(
    tmp_path: Path, version: int, type_: str
) -> None:
    case = local_case(tmp_path / "t", version, type_)
    late = lw.Table(LocalStorage(tmp_path / "t"), clock=LateClock(minutes=10))
    newest = max(i.requested_time for i in case.table.timeline)
    late.append(rows(20, 24))
    assert max(i.requested_time for i in case.table.timeline) > newest
    assert len(keys(case.table)) == 14
