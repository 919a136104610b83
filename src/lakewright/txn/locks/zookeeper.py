"""A lock in ZooKeeper, in the way of Curator's mutex, which is what Hudi uses; needs kazoo.

Each contender creates an ephemeral sequential node `_c_<uuid>-lock-<number>` below the lock's node;
the lowest number holds the lock. ZooKeeper removes a node when its session ends, so a dead holder's
lock is freed after the session timeout. We never queue: a node that did not become the first is
removed again. A create whose answer was lost is found again by its uuid.

Sessions are kept alive by kazoo's own threads, one session for each lease; a provider keeps one
idle session for the next. `check` asks the server, after a `sync`, whether our node is still there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from lakewright.errors import (
    LakewrightError,
    LockLostError,
    MissingDependencyError,
    StorageUnavailableError,
)
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.runtime.random import Random, SystemRandom
from lakewright.txn.locks.protocol import LockHolder

__all__ = ["ZookeeperLock"]

_NAME: Final = "lock-"
T = TypeVar("T")


def sequence(node: str) -> str:
    """The part of a node's name that orders it, as Curator does."""
    return node.rpartition(_NAME)[2]


class ZookeeperLock:
    """The lock at the node `path` of the servers `hosts` (`host:port,host:port`)."""

    def __init__(
        self,
        hosts: str,
        path: str,
        *,
        session_timeout_s: float = 60.0,
        connection_timeout_s: float = 15.0,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        try:
            import kazoo.client
            import kazoo.exceptions
            import kazoo.handlers.threading
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "Locks in ZooKeeper need the package kazoo, which is not installed.",
                hint='Run: pip install "lakewright[zookeeper]"',
            ) from error
        self._kazoo = kazoo
        self._hosts = hosts
        self._path = "/" + "/".join(part for part in path.split("/") if part)
        self._session_timeout_s = session_timeout_s
        self._connection_timeout_s = connection_timeout_s
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._idle: list[Any] = []

    @property
    def place(self) -> str:
        """What the lock is and where."""
        return f"ZooKeeper lock {self._path} at {self._hosts}"

    @property
    def shared(self) -> bool:
        """Other processes are excluded."""
        return True

    def try_acquire(self, who: str) -> ZookeeperLease | LockHolder:
        """The lock, or who is in the way."""
        client = self._session()
        try:
            nodes = self._asked(lambda: self._nodes(client))
            if nodes:
                holder = self._holder(client, nodes[0])
                self.give_back(client)
                return holder
            node = self._create(client, f"_c_{self._random.uuid()}-{_NAME}", who)
            nodes = self._asked(lambda: self._nodes(client))
        except LakewrightError:
            _end(client)  # with the session goes the node, wherever it got to
            raise
        holder = LockHolder(who, self._clock.now_ms(), self.place)
        lease = ZookeeperLease(self, client, node, holder)
        if nodes[:1] == [node]:
            return lease
        lease.release()
        return LockHolder("a process that came first", None, self.place)

    def give_back(self, client: Any) -> None:
        """Keep a session that holds nothing for the next attempt."""
        if self._idle:
            _end(client)
        else:
            self._idle.append(client)

    def close(self) -> None:
        """End the idle session."""
        while self._idle:
            _end(self._idle.pop())

    def exists(self, client: Any, node: str) -> bool:
        """Whether a node is there, by the server's newest state."""

        def ask() -> bool:
            client.sync_async(self._path).get(timeout=self._connection_timeout_s)
            answer = client.exists_async(f"{self._path}/{node}")
            return answer.get(timeout=self._connection_timeout_s) is not None

        return self._asked(ask)

    def remove(self, client: Any, node: str) -> None:
        """Delete a node; one that is gone is fine."""

        def ask() -> None:
            with contextlib.suppress(self._kazoo.exceptions.NoNodeError):
                answer = client.delete_async(f"{self._path}/{node}")
                answer.get(timeout=self._connection_timeout_s)

        self._asked(ask)

    def _session(self) -> Any:
        """A client with a session, for the caller alone."""
        try:
            return self._idle.pop()
        except IndexError:
            pass
        client = self._kazoo.client.KazooClient(hosts=self._hosts, timeout=self._session_timeout_s)
        try:
            self._asked(lambda: client.start(timeout=self._connection_timeout_s))
        except LakewrightError:
            _end(client)
            raise
        return client

    def _nodes(self, client: Any) -> list[str]:
        """The contenders' nodes, the holder's first."""
        answer = client.get_children_async(self._path)
        try:
            found = answer.get(timeout=self._connection_timeout_s)
        except self._kazoo.exceptions.NoNodeError:
            return []  # Curator makes nodes that go when they are empty
        return sorted((node for node in found if _NAME in node), key=sequence)

    def _create(self, client: Any, name: str, who: str) -> str:
        """Create our node and return its name with the number."""

        def ask() -> str:
            data = f"application_id={who}".encode()
            try:
                answer = client.create_async(
                    f"{self._path}/{name}", data, ephemeral=True, sequence=True, makepath=True
                )
                created: str = answer.get(timeout=self._connection_timeout_s)
            except self._kazoo.exceptions.ConnectionLoss:
                mine = [node for node in self._nodes(client) if node.startswith(name)]
                if not mine:
                    raise
                return mine[0]
            return created.rpartition("/")[2]

        return self._asked(ask)

    def _holder(self, client: Any, node: str) -> LockHolder:
        def ask() -> tuple[bytes, Any] | None:
            try:
                answer = client.get_async(f"{self._path}/{node}")
                found: tuple[bytes, Any] = answer.get(timeout=self._connection_timeout_s)
            except self._kazoo.exceptions.NoNodeError:
                return None
            return found

        found = self._asked(ask)
        if found is None:
            return LockHolder("a process that has just released it", None, self.place)
        data, stat = found
        who = data.decode(errors="replace").removeprefix("application_id=")
        return LockHolder(
            who or f"the holder of node {node}",
            int(stat.ctime),
            self.place,
            if_dead="ZooKeeper frees it when the session timeout of its holder is over.",
        )

    def _asked(self, ask: Callable[[], T]) -> T:
        """What `ask` returns, with the client's errors as ours."""
        exceptions = self._kazoo.exceptions
        timed_out = self._kazoo.handlers.threading.KazooTimeoutError
        try:
            return ask()
        except (exceptions.KazooException, timed_out) as error:
            raise StorageUnavailableError(
                f"ZooKeeper did not do its part ({type(error).__name__}).",
                hint="Check that the servers run, can be reached and allow this path.",
                context={"lock": self.place},
                retryable=not isinstance(
                    error, (exceptions.NoAuthError, exceptions.AuthFailedError)
                ),
            ) from error


class ZookeeperLease:
    """Our node, for as long as its session lives."""

    def __init__(self, lock: ZookeeperLock, client: Any, node: str, holder: LockHolder) -> None:
        self._lock = lock
        self._client = client
        self._node = node
        self._holder = holder
        self._released = False

    @property
    def holder(self) -> LockHolder:
        """What others are told about us."""
        return self._holder

    def check(self) -> None:
        """Raise `LockLostError` unless our node is surely there."""
        cause: LakewrightError | None = None
        reason = "it was given back before"
        if not self._released:
            reason = "its session ended, and the lock with it"
            try:
                if self._lock.exists(self._client, self._node):
                    return
            except LakewrightError as error:
                cause, reason = error, "the server cannot be asked"
        raise LockLostError(
            f"The lock must not be relied upon: {reason}.",
            hint="Nothing was published; run it again.",
            context={"lock": self._holder.place, "holder": self._holder.who},
            retryable=True,
        ) from cause

    def release(self) -> None:
        """Remove our node; again, or after the session ended, does nothing."""
        if self._released:
            return
        self._released = True
        try:
            self._lock.remove(self._client, self._node)
        except LakewrightError:
            _end(self._client)  # the node goes with the session, at its timeout at the latest
            raise
        self._lock.give_back(self._client)


def _end(client: Any) -> None:
    """End a session, and with it whatever node it has."""
    client.stop()
    client.close()
