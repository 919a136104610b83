"""One attempt at a write task: what it gives back or raises, and when it publishes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakewright as lw
from lakewright.engine.coexistence import open_access
from lakewright.engine.operations import BULK_INSERT
from lakewright.engine.sorting import Arrangement
from lakewright.engine.write_job import BegunWrite, WriteJob
from lakewright.errors import FencedError, InputError, StorageError, StorageUnavailableError
from lakewright.spark import write_tasks
from lakewright.spark.tasks import pack
from lakewright.spark.write_tasks import (
    Attempt,
    NewGroups,
    Places,
    WriteWork,
    attempt_packed,
    outcome_of,
)
from lakewright.storage.base import Storage
from lakewright.storage.resolve import StorageRef

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string())])
NOT_SORTED = NewGroups(Arrangement((), False), partitioned=True)


def rows(*ids: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(ids), "city": ["sf"] * len(ids)}, SCHEMA)


class Failing:
    """A storage that fails whenever a file would be published."""

    def __init__(self, storage: Storage, error: Exception) -> None:
        self._storage = storage
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def create_from(self, path: str, write: Any) -> Any:
        raise self._error


@dataclass(frozen=True)
class FailingRef:
    """A reference to such a storage."""

    uri: str
    error: Exception

    def open(self) -> Any:
        return Failing(StorageRef(self.uri).open(), self.error)


@pytest.fixture
def job(tmp_path: Path) -> WriteJob:
    """A bulk insert into a new table."""
    lw.Table.create(tmp_path / "t", schema=SCHEMA, key=["id"], partition=["city"])
    options = lw.WriteOptions()
    access = open_access(StorageRef(str(tmp_path / "t")).open(), options)
    return WriteJob.prepare(access, options, BULK_INSERT, SCHEMA)


def work(job: WriteJob, begun: BegunWrite, plan: NewGroups | Places = NOT_SORTED) -> WriteWork:
    ref = StorageRef(job.access.storage.uri)
    return WriteWork(ref, begun.context, job.schema.rows, job.keys, plan)


def attempt(number: int = 0, *, task: int = 0, is_last: bool = False) -> Attempt:
    return Attempt(task, 1, number, is_last)


def files(job: WriteJob) -> list[str]:
    return [info.path for info in job.access.storage.walk("sf") if ".hoodie" not in info.path]


def test_every_attempt_has_names_of_its_own_and_the_commit_keeps_one(job: WriteJob) -> None:
    read = job.access.storage.read
    with job.begun() as begun:
        begun.start()
        packed = pack(work(job, begun))
        lost = outcome_of(attempt_packed(packed, [rows("a", "b")], attempt(7)), read)
        kept = outcome_of(attempt_packed(packed, [rows("a", "b")], attempt(8)), read)
        assert len(files(job)) == 2
        assert (lost.stats[0].path or "").split("_")[1] == "0-1-7"
        result = begun.commit(kept.stats)
    assert files(job) == [kept.stats[0].path]
    assert (result.inserted, result.files) == (2, 1)


@pytest.mark.parametrize("collects", [True, False], ids=["before_its_file", "within_its_file"])
def test_an_attempt_that_wakes_up_after_the_commit_publishes_nothing(
    job: WriteJob, collects: bool
) -> None:
    read = job.access.storage.read
    done: list[BegunWrite] = []

    with job.begun() as begun:
        begun.start()
        packed = pack(work(job, begun, replace(NOT_SORTED, partitioned=collects)))

        def slow() -> Iterator[pa.RecordBatch]:
            yield rows("a")
            # By now the attempt has its rows; the write is committed before it goes on.
            kept = outcome_of(attempt_packed(packed, [rows("a")], attempt(2)), read)
            begun.commit(kept.stats)
            done.append(begun)

        late = outcome_of(attempt_packed(packed, slow(), attempt(1)), read)
        assert done and isinstance(late.error, FencedError) and not late.stats
    assert len(files(job)) == 1


def test_an_error_of_the_rows_is_given_back_and_stops_the_other_tasks(job: WriteJob) -> None:
    read = job.access.storage.read
    with job.begun() as begun:
        begun.start()
        packed = pack(work(job, begun))
        bad = outcome_of(attempt_packed(packed, [rows("a", None)], attempt(1)), read)
        assert isinstance(bad.error, InputError) and bad.error.context["rows"] == 1
        other = outcome_of(attempt_packed(packed, [rows("b")], attempt(2, task=1)), read)
        assert isinstance(other.error, FencedError)
        begun.abandon()
    assert not files(job)


@pytest.mark.parametrize(
    "error",
    [
        StorageUnavailableError("gone", hint="wait", retryable=True),
        StorageError("full", hint="make room"),
    ],
)
def test_a_passing_error_is_raised_until_the_last_attempt(
    job: WriteJob, error: StorageError
) -> None:
    with job.begun() as begun:
        begun.start()
        failing: Any = FailingRef(job.access.storage.uri, error)
        packed = pack(replace(work(job, begun), storage=failing))
        with pytest.raises(type(error)):
            attempt_packed(packed, [rows("a")], attempt(1))
        last = attempt_packed(packed, [rows("a")], attempt(2, is_last=True))
        told = outcome_of(last, job.access.storage.read).error
        assert type(told) is type(error) and str(told) == str(error)
        begun.abandon()


def test_a_large_outcome_goes_through_a_file_that_the_commit_removes(
    job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_tasks, "OUTCOME_BYTES", 10)
    storage = job.access.storage
    with job.begun() as begun:
        begun.start()
        told = attempt_packed(pack(work(job, begun)), [rows("a")], attempt(1))
        assert told.decode().endswith("/0-1-1") and storage.exists(told.decode())
        begun.commit(outcome_of(told, storage.read).stats)
    assert not storage.exists(told.decode())


def test_rows_of_an_unknown_partition_are_refused(job: WriteJob) -> None:
    with job.begun() as begun:
        begun.start()
        packed = pack(work(job, begun, Places(({"la": None, "ny": None},))))
        told = attempt_packed(packed, [rows("a")], attempt(1))
        assert "'sf'" in str(outcome_of(told, job.access.storage.read).error)
        begun.abandon()


def test_a_place_without_rows_writes_nothing(job: WriteJob) -> None:
    with job.begun() as begun:
        begun.start()
        packed = pack(work(job, begun, Places(({"sf": None},))))
        told = attempt_packed(packed, [rows().slice(0, 0)], attempt(1))
        assert outcome_of(told, job.access.storage.read).stats == ()
        begun.commit([])
