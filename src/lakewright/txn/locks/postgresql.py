"""PostgreSQL as a database of locks; needs the package psycopg.

Time is the server's, and one moment for a whole statement: a lease lasts exactly as long as was
asked for, and no longer where the statement had to wait for another one. A connection is opened for
each statement, so that a lock survives a server's restart or a dropped connection as long as its
lease does. Passwords may be in the URL, in the usual environment variables or in a password file;
messages never repeat them.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Final
from urllib.parse import urlsplit

from lakewright.errors import MissingDependencyError, StorageUnavailableError
from lakewright.txn.locks.database import CREATE, Values

__all__ = ["PostgresqlDatabase"]

_NOW: Final = "cast(extract(epoch from statement_timestamp()) * 1000 as bigint)"
_PARAMETER: Final = re.compile(r":(\w+)")
_CONNECT_S: Final = 10


class PostgresqlDatabase:
    """The database at a `postgresql://` URL."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "Locks in PostgreSQL need the package psycopg, which is not installed.",
                hint='Run: pip install "lakewright[postgresql]"',
            ) from error
        self._client = psycopg
        self._url = url
        parts = urlsplit(url)
        server = parts.hostname or "the default server"
        port = f":{parts.port}" if parts.port else ""
        self._place = f"PostgreSQL database {server}{port}{parts.path}"
        self._created = False

    @property
    def place(self) -> str:
        """Which database, without user and password."""
        return self._place

    def run(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        """Run one statement in a transaction of its own and return its rows."""
        client = self._client
        text = _PARAMETER.sub(r"%(\1)s", statement.format(now=_NOW))
        try:
            with client.connect(
                self._url, autocommit=True, connect_timeout=_CONNECT_S
            ) as connection:
                if not self._created:
                    # Another process may be creating it at this moment.
                    with contextlib.suppress(
                        client.errors.UniqueViolation, client.errors.DuplicateTable
                    ):
                        connection.execute(CREATE.encode())
                    self._created = True
                return list(connection.execute(text.encode(), values).fetchall())
        except client.Error as error:
            self._created = False
            # The client's text may repeat the connection string.
            raise StorageUnavailableError(
                f"The lock database did not answer ({type(error).__name__}).",
                hint="Check that the server runs and that user, password and rights are in order.",
                context={"database": self._place},
                retryable=isinstance(error, client.OperationalError),
            ) from None
