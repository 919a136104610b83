"""Never two holders: every lock that needs no server, on threads and over chosen interleavings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.runtime import ManualClock
from lakewright.storage import LocalStorage, MemoryBucket, MemoryStorage
from lakewright.txn.locks.database import DatabaseLock
from lakewright.txn.locks.file_system import FileSystemLock
from lakewright.txn.locks.in_process import InProcessLock, Registry
from lakewright.txn.locks.protocol import LockProvider
from lakewright.txn.locks.sqlite import SqliteDatabase
from lakewright.txn.locks.storage_lock import StorageLock
from tests.txn.locks.contention import (
    Critical,
    HastyClock,
    IdleSpawner,
    Interleaver,
    Machine,
    chance,
    contend,
)

Maker = Callable[[Path], Callable[[int], LockProvider]]


def _in_process(_: Path) -> Callable[[int], LockProvider]:
    registry = Registry()
    return lambda _: InProcessLock("memory:/table", registry=registry)


def _file_in_folder(folder: Path) -> Callable[[int], LockProvider]:
    return lambda _: FileSystemLock(LocalStorage(folder), clock=HastyClock(), expire_s=60)


def _file_in_bucket(_: Path) -> Callable[[int], LockProvider]:
    bucket = MemoryBucket()
    return lambda _: FileSystemLock(MemoryStorage(bucket), clock=HastyClock())


def _storage(_: Path) -> Callable[[int], LockProvider]:
    bucket = MemoryBucket()
    return lambda _: StorageLock(MemoryStorage(bucket), clock=HastyClock())


def _sqlite(folder: Path) -> Callable[[int], LockProvider]:
    return lambda _: DatabaseLock(SqliteDatabase(str(folder / "locks.db")), "table")


@pytest.mark.parametrize("contenders", [2, 8])
@pytest.mark.parametrize(
    "maker",
    [_in_process, _file_in_folder, _file_in_bucket, _storage, _sqlite],
    ids=lambda maker: maker.__name__.strip("_"),
)
def test_contenders_take_turns(maker: Maker, contenders: int, tmp_path: Path) -> None:
    contend(maker(tmp_path), contenders, 24 // contenders)


def test_threads_that_share_one_provider_take_turns(tmp_path: Path) -> None:
    provider = FileSystemLock(LocalStorage(tmp_path), clock=HastyClock())
    contend(lambda _: provider, 4, 5)


def _provider(
    kind: str, storage: MemoryStorage, clock: ManualClock, machine: Machine, pid: int
) -> LockProvider:
    random, spawner = chance(pid), IdleSpawner()
    if kind == "storage":
        return StorageLock(
            storage, validity_s=60, renew_s=5, clock=clock, random=random, spawner=spawner
        )
    return FileSystemLock(
        storage,
        expire_s=60,
        clock=clock,
        random=random,
        spawner=spawner,
        processes=machine.process(pid),
    )


@pytest.mark.parametrize("kind", ["file", "storage"])
@given(
    turns=st.lists(st.integers(0, 2), min_size=1, max_size=60),
    abandoned=st.booleans(),
)
@settings(max_examples=60)
def test_no_interleaving_of_storage_operations_lets_two_in(
    kind: str, turns: list[int], abandoned: bool
) -> None:
    clock = ManualClock()
    bucket = MemoryBucket(clock=clock)
    machine = Machine()
    if abandoned:
        _provider(kind, MemoryStorage(bucket), clock, machine, 99).try_acquire("gone")
        clock.advance(61)
    world = Interleaver(turns)
    section = Critical()

    def actor(pid: int) -> Callable[[], None]:
        storage = MemoryStorage(bucket, faults=world)
        provider = _provider(kind, storage, clock, machine, pid)

        def run() -> None:
            for _ in range(3):
                section.visit(provider, f"actor {pid}", hold=lambda: storage.exists("somewhere"))

        return run

    world.run([actor(pid) for pid in range(3)])
    assert section.collisions == []
    assert section.entries, "somebody always gets in"


@pytest.mark.parametrize("kind", ["file", "storage"])
@given(turns=st.lists(st.integers(0, 7), min_size=1, max_size=80))
@settings(max_examples=40)
def test_an_expired_lock_goes_to_exactly_one_of_eight_waiters(kind: str, turns: list[int]) -> None:
    clock = ManualClock()
    bucket = MemoryBucket(clock=clock)
    machine = Machine()
    _provider(kind, MemoryStorage(bucket), clock, machine, 99).try_acquire("gone")
    clock.advance(61)
    world = Interleaver(turns)
    won: list[int] = []

    def actor(pid: int) -> Callable[[], None]:
        storage = MemoryStorage(bucket, faults=world)
        provider = _provider(kind, storage, clock, machine, pid)

        def run() -> None:
            answer = provider.try_acquire(f"waiter {pid}")
            if hasattr(answer, "check"):
                won.append(pid)

        return run

    world.run([actor(pid) for pid in range(8)])
    assert len(won) == 1
