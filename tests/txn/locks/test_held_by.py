"""Who holds a lock, told to somebody who only looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakewright.runtime import ManualClock
from lakewright.runtime.process import ProcessIdentity
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.txn.locks.database import DatabaseLock
from lakewright.txn.locks.file_system import FileSystemLock
from lakewright.txn.locks.in_process import InProcessLock, Registry
from lakewright.txn.locks.protocol import LockHolder, LockProvider, WatchedLock
from lakewright.txn.locks.sqlite import SqliteDatabase
from lakewright.txn.locks.storage_lock import StorageLock
from tests.txn.tables import KnownProcesses, NeverRuns

Made = Callable[[ManualClock, Path], LockProvider]


def _storage(clock: ManualClock) -> MemoryStorage:
    return MemoryStorage(MemoryBucket(clock=clock))


PROVIDERS: dict[str, Made] = {
    "file": lambda clock, _: FileSystemLock(_storage(clock), clock=clock, spawner=NeverRuns()),
    "storage": lambda clock, _: StorageLock(_storage(clock), clock=clock, spawner=NeverRuns()),
    "process": lambda clock, _: InProcessLock("t", clock=clock, registry=Registry()),
    "sqlite": lambda clock, folder: DatabaseLock(
        SqliteDatabase(folder / "locks.db"), "t", clock=clock, spawner=NeverRuns()
    ),
}


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_lock_tells_who_holds_it_and_nobody_before_and_after(name: str, tmp_path: Path) -> None:
    lock = PROVIDERS[name](ManualClock(), tmp_path)
    assert isinstance(lock, WatchedLock) and lock.held_by() is None
    lease = lock.try_acquire("a writer")
    assert not isinstance(lease, LockHolder)
    holder = lock.held_by()
    assert holder is not None and "a writer" in holder.who and holder.since_ms is not None
    lease.check()  # looking did not cost the lock
    lease.release()
    assert lock.held_by() is None


def test_the_lock_of_a_dead_process_is_nobodys() -> None:
    clock, mine = ManualClock(), ProcessIdentity("here", "boot", 5, "1")
    storage, processes = _storage(clock), KnownProcesses(own=mine)
    lock = FileSystemLock(storage, clock=clock, spawner=NeverRuns(), processes=processes)
    lock.try_acquire("a writer")
    assert lock.held_by() is not None
    processes.dead.add(mine)
    assert lock.held_by() is None


def test_a_lock_object_whose_time_is_over_is_nobodys() -> None:
    clock = ManualClock()
    lock = StorageLock(_storage(clock), clock=clock, spawner=NeverRuns())
    lock.try_acquire("a writer")
    clock.advance(301)
    assert lock.held_by() is None
