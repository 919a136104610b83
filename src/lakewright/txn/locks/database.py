"""A lock as a row of a database: SQLite between the processes of one machine, PostgreSQL between
any.

The row is granted for `lease_s` at a time by the database's own clock, and renewed while it is
held; each grant has a random token, without which nothing is renewed or freed, and a number that
only grows (`fence`). Every step is one statement, so that the database decides between contenders.
Hudi's own writers do not know this lock: use it only where lakewright alone writes the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from lakewright.errors import LakewrightError, OptionError
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.runtime.random import Random, SystemRandom
from lakewright.runtime.spawn import Spawner, ThreadSpawner
from lakewright.txn.locks.protocol import LockHolder
from lakewright.txn.locks.renewed import Pace, RenewedLease

__all__ = ["CREATE", "DatabaseLock", "LockDatabase"]

_CAUTION_SHARE: Final = 0.9
"""What part of a lease we rely on: the clocks of two machines need not run at one pace."""

CREATE: Final = """
create table if not exists lakewright_locks (
  name text primary key, token text, fence bigint not null, who text not null,
  since_ms bigint not null, expires_ms bigint not null)
"""
_ACQUIRE: Final = """
insert into lakewright_locks (name, token, fence, who, since_ms, expires_ms)
values (:name, :token, 1, :who, {now}, {now} + :lease_ms)
on conflict (name) do update set token = excluded.token, fence = lakewright_locks.fence + 1,
  who = excluded.who, since_ms = excluded.since_ms, expires_ms = excluded.expires_ms
where lakewright_locks.token is null or lakewright_locks.token = :doubtful
  or lakewright_locks.expires_ms < {now}
returning fence, since_ms
"""
_EXTEND: Final = """
update lakewright_locks set expires_ms = {now} + :lease_ms
where name = :name and token = :token and expires_ms >= {now} returning 1
"""
_CONFIRM: Final = """
select 1 from lakewright_locks where name = :name and token = :token and expires_ms >= {now}
"""
_FREE: Final = """
update lakewright_locks set token = null where name = :name and token = :token returning 1
"""
_HOLDER: Final = """
select who, since_ms, expires_ms from lakewright_locks where name = :name and token is not null
"""
_HELD: Final = """
select 1 from lakewright_locks
where name = :name and token is not null and expires_ms >= {now}
"""

Values = Mapping[str, Any]


class LockDatabase(Protocol):
    """A database that keeps locks."""

    @property
    def place(self) -> str:
        """Which database, free of secrets."""
        ...

    def run(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        """Run one statement in a transaction of its own and return its rows.

        `:name` stands for a value and `{now}` for the database's time in milliseconds; the table of
        locks is created when it is missing.
        """
        ...


class DatabaseLock:
    """The lock of `table`, a URI, in a database."""

    def __init__(
        self,
        database: LockDatabase,
        table: str,
        *,
        lease_s: float = 60.0,
        clock: Clock | None = None,
        random: Random | None = None,
        spawner: Spawner | None = None,
    ) -> None:
        if lease_s < 1:
            raise OptionError(
                f"A lease of {lease_s:g} s is too short to be renewed.",
                hint="Use a lease of at least one second, better a minute.",
            )
        self._database = database
        self._table = table.rstrip("/")
        self._lease_ms = int(lease_s * 1000)
        self._pace = Pace(valid_s=lease_s * _CAUTION_SHARE, renew_s=lease_s / 4)
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._spawner = spawner or ThreadSpawner()
        self._doubtful = ""
        """Token of a lock that may have been obtained or not been given back."""

    @property
    def place(self) -> str:
        """What the lock is and where."""
        return f"lock of {self._table} in {self._database.place}"

    @property
    def shared(self) -> bool:
        """Other processes are excluded."""
        return True

    def try_acquire(self, who: str) -> RenewedLease | LockHolder:
        """The lock, or who is in the way."""
        begun_s = self._clock.monotonic_s()
        token = self._random.token_hex()
        try:
            rows = self.run(_ACQUIRE, token, who=who, doubtful=self._doubtful)
        except LakewrightError:
            self._doubtful = token
            raise
        if not rows:
            return self._holder()
        fence, since_ms = (int(value) for value in rows[0])
        return RenewedLease.start(
            LockHolder(who, since_ms, self.place),
            HeldRow(self, token, fence),
            self._pace,
            begun_s=begun_s,
            clock=self._clock,
            spawner=self._spawner,
        )

    def held_by(self) -> LockHolder | None:
        """Who holds the lock now."""
        return self._holder() if self.run(_HELD, "") else None

    def run(self, statement: str, token: str, **values: str) -> list[tuple[Any, ...]]:
        """Run a statement about this lock."""
        known = {"name": self._table, "token": token, "lease_ms": self._lease_ms}
        return self._database.run(statement, {**known, **values})

    def doubt(self, token: str) -> None:
        """Remember a lock that may not have been given back."""
        self._doubtful = token

    def _holder(self) -> LockHolder:
        rows = self.run(_HOLDER, "")
        if not rows:
            return LockHolder("a process that has just released it", None, self.place)
        who, since_ms, expires_ms = rows[0]
        return LockHolder(
            str(who),
            int(since_ms),
            self.place,
            int(expires_ms),
            if_dead="it is freed by itself when its time is over.",
        )


class HeldRow:
    """Our row."""

    def __init__(self, lock: DatabaseLock, token: str, fence: int) -> None:
        self._lock = lock
        self._token = token
        self.fence = fence
        """A number greater than that of every earlier holder."""

    def extend(self) -> bool:
        """Prolong the lease."""
        return bool(self._lock.run(_EXTEND, self._token))

    def confirm(self) -> bool:
        """Whether the row is still ours."""
        return bool(self._lock.run(_CONFIRM, self._token))

    def free(self, *, in_time: Callable[[], bool]) -> None:  # noqa: ARG002 - the statement is conditional
        """Clear the row if it is still ours."""
        try:
            self._lock.run(_FREE, self._token)
        except LakewrightError:
            self._lock.doubt(self._token)
            raise
