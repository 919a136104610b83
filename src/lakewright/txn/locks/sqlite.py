"""SQLite as a database of locks, for the processes of one machine.

SQLite has no clock of its own; the machine's is taken. The file must be on a local disk, because
SQLite's own locking does not hold on network file systems. A connection is opened for each
statement, so that threads and forked processes cannot disturb each other.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any, Final

from lakewright.errors import StorageError, StorageUnavailableError
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.txn.locks.database import CREATE, Values

__all__ = ["SqliteDatabase"]

_BUSY_S: Final = 10.0


class SqliteDatabase:
    """The database file at `path`."""

    def __init__(self, path: str, *, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._created = False

    @property
    def place(self) -> str:
        """Which database."""
        return f"SQLite database {self._path}"

    def run(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        """Run one statement in a transaction of its own and return its rows."""
        text = statement.format(now=":now_ms")
        known = {**values, "now_ms": self._clock.now_ms()}
        try:
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            with contextlib.closing(connection):
                if not self._created:
                    connection.execute(CREATE)
                    self._created = True
                return connection.execute(text, known).fetchall()
        except sqlite3.OperationalError as error:
            self._created = False
            raise StorageUnavailableError(
                f"The lock database did not do its part: {error}.",
                hint="Check that the file's folder exists and is writable, and that no process "
                "keeps the database locked.",
                context={"database": self._path},
                retryable="locked" in str(error) or "busy" in str(error),
            ) from error
        except sqlite3.Error as error:
            raise StorageError(
                f"The lock database cannot be used: {error}.",
                hint="Is it an SQLite file? Name another one, or remove it while nobody writes.",
                context={"database": self._path},
            ) from error
