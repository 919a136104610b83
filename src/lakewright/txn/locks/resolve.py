"""From options to a lock: Hudi's own `hoodie.write.lock.*` keys, or a short form of ours.

Short forms: `file`, `storage`, `process`, `sqlite:///folder/file` (an absolute path has four
slashes), `postgresql://host/database`, `zookeeper://host:port,host:port/base/path/key`,
`dynamodb://region/table/key`. A short form may also stand where Hudi has a class name. Whoever
shares a table with Hudi must name the provider that Hudi's writers use, with the same settings; the
same mapping of options serves both. Clients of services are imported only when they are named.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlsplit

from lakewright.errors import ConfigError, OptionError
from lakewright.format.properties import load_properties
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.runtime.events import EventHook, ignore_events
from lakewright.runtime.process import Processes, SystemProcesses
from lakewright.runtime.random import Random, SystemRandom
from lakewright.runtime.spawn import Spawner, ThreadSpawner
from lakewright.storage.base import Storage
from lakewright.storage.resolve import open_storage
from lakewright.storage.uri import parse_uri
from lakewright.txn.locks.database import DatabaseLock, LockDatabase
from lakewright.txn.locks.dynamodb import DynamodbLock, DynamodbTable
from lakewright.txn.locks.file_system import FileSystemLock
from lakewright.txn.locks.implicit_key import implicit_lock_key
from lakewright.txn.locks.in_process import InProcessLock
from lakewright.txn.locks.postgresql import PostgresqlDatabase
from lakewright.txn.locks.protocol import LockProvider
from lakewright.txn.locks.sqlite import SqliteDatabase
from lakewright.txn.locks.storage_lock import StorageLock
from lakewright.txn.locks.zookeeper import ZookeeperLock

__all__ = ["lock_from", "lock_wait_s"]

PREFIX: Final = "hoodie.write.lock."
PROVIDER: Final = f"{PREFIX}provider"
_META_FOLDER: Final = ".hoodie"
_FILE_NAME: Final = "lock"
_PACKAGES: Final = (
    "org.apache.hudi.client.transaction.lock.",
    "org.apache.hudi.core.transaction.lock.",
    "org.apache.hudi.aws.transaction.lock.",
    "org.apache.hudi.hive.transaction.lock.",
)
_CREDENTIALS: Final = {
    "aws_access_key_id": "hoodie.aws.access.key",
    "aws_secret_access_key": "hoodie.aws.secret.key",
    "aws_session_token": "hoodie.aws.session.token",
}


@dataclass(frozen=True, slots=True)
class _Request:
    """What a lock is made from."""

    storage: Storage
    options: Mapping[str, str]
    url: str
    """The short form; empty where a class was named."""
    clock: Clock
    random: Random
    spawner: Spawner
    processes: Processes
    on_event: EventHook

    def text(self, name: str, *others: str) -> str | None:
        """A lock option, under its name or an older one; None if it is not there."""
        for key in (name, *others):
            value = str(self.options.get(PREFIX + key, "")).strip()
            if value:
                return value
        return None

    def number(self, default: float, name: str, *others: str) -> float:
        """A lock option that is a number and not negative."""
        return _number(self.text(name, *others), default, PREFIX + name)

    def needed(self, name: str) -> str:
        """A lock option that must be there."""
        value = self.text(name)
        if value is None:
            raise OptionError(
                f"The lock needs the option {PREFIX}{name}.",
                hint="Set it to what Hudi's writers of this table have.",
                context={"option": PREFIX + name},
            )
        return value

    def table_name(self) -> str:
        """The table's name, which some locks are called by."""
        named = str(self.options.get("hoodie.table.name", "")).strip()
        return named or load_properties(self.storage, clock=self.clock).name

    def base_path(self) -> str:
        """The table's place as Hudi's writers spell it."""
        return str(self.options.get("hoodie.base.path", "")).strip() or self.storage.uri


def lock_from(
    options: Mapping[str, str] | LockProvider | str | None,
    storage: Storage,
    *,
    clock: Clock | None = None,
    random: Random | None = None,
    spawner: Spawner | None = None,
    processes: Processes | None = None,
    on_event: EventHook = ignore_events,
) -> LockProvider | None:
    """The lock that options name for the table in `storage`; None if they name none.

    A `LockProvider` is returned as it is. Raises `ConfigError` for a lock that is not known or
    cannot work here, with what to do.
    """
    if options is None:
        return None
    if isinstance(options, str):
        named, options = options, {PROVIDER: options}
    elif isinstance(options, Mapping):
        named = str(options.get(PROVIDER, ""))
    else:
        return options
    named = named.strip()
    if not named:
        return None
    short = named.partition(":")[0] if "://" in named else named
    for package in _PACKAGES:
        short = short.removeprefix(package)
    maker = _MAKERS.get(short)
    if maker is None:
        raise _unknown(short)
    return maker(
        _Request(
            storage,
            options,
            named if "://" in named else "",
            clock or SystemClock(),
            random or SystemRandom(),
            spawner or ThreadSpawner(),
            processes or SystemProcesses(),
            on_event,
        )
    )


def lock_wait_s(options: Mapping[str, str], default: float = 60.0) -> float:
    """How long Hudi's options let a writer wait for the lock; `default` if they say nothing.

    Hudi tries for `wait_time_ms`, then again `client.num_retries` times after pauses; a provider
    that does not wait itself therefore gives up after about the sum of the pauses.
    """
    keys = ("wait_time_ms", "client.num_retries", "client.wait_time_ms_between_retry")
    given = [options.get(PREFIX + key) for key in keys]
    if not any(given):
        return default
    wait_ms, retries, pause_ms = (
        _number(value, usual, PREFIX + key)
        for value, usual, key in zip(given, (60_000.0, 50.0, 5_000.0), keys, strict=True)
    )
    return (wait_ms + retries * pause_ms) / 1000


def _number(text: str | None, default: float, name: str) -> float:
    if text is None:
        return default
    try:
        value = float(text)
        if not 0 <= value < float("inf"):
            raise ValueError
    except ValueError:
        raise OptionError(
            f"The option {name} cannot be {text!r}.",
            hint="Give a number that is not negative.",
            context={"option": name},
        ) from None
    return value


def _unknown(short: str) -> ConfigError:
    if short == "HiveMetastoreBasedLockProvider":
        return ConfigError(
            "Locks in the Hive metastore are not supported.",
            hint="Let all writers of the table use another provider, Hudi's too: "
            "FileSystemBasedLockProvider on HDFS or a local disk, StorageBasedLockProvider on an "
            "object store, or ZookeeperBasedLockProvider.",
            context={"provider": short},
        )
    if short == "NoopLockProvider":
        return ConfigError(
            "The provider NoopLockProvider locks nothing.",
            hint='Leave the lock out if one writer is alone with the table, or use "process".',
            context={"provider": short},
        )
    return OptionError(
        f"There is no lock called {short!r}.",
        hint=f"Use one of {', '.join(sorted(_MAKERS))}.",
        context={"provider": short},
    )


def _file(request: _Request) -> LockProvider:
    storage, folder = request.storage, request.text("filesystem.path")
    path = f"{_META_FOLDER}/{_FILE_NAME}"
    if folder is not None:
        storage, path = _placed(storage, folder.rstrip("/"))
    return FileSystemLock(
        storage,
        path=path,
        expire_s=request.number(0, "filesystem.expire") * 60,
        clock=request.clock,
        random=request.random,
        spawner=request.spawner,
        processes=request.processes,
        on_event=request.on_event,
    )


def _placed(storage: Storage, folder: str) -> tuple[Storage, str]:
    """Where the lock file of a configured folder is: in the table's storage if it can be."""
    if "/" not in folder[:1] and ":" not in folder:
        return storage, f"{folder}/{_FILE_NAME}"
    root, place = storage.uri.rstrip("/"), str(parse_uri(folder))
    if place == root:
        return storage, _FILE_NAME
    if place.startswith(f"{root}/"):
        return storage, f"{place[len(root) + 1 :]}/{_FILE_NAME}"
    return open_storage(folder), _FILE_NAME


def _storage(request: _Request) -> LockProvider:
    renew = ("storage.renew.interval.secs", "storage.heartbeat.poll.secs")
    return StorageLock(
        request.storage,
        validity_s=request.number(300, "storage.validity.timeout.secs"),
        renew_s=request.number(30, *renew),
        clock=request.clock,
        random=request.random,
        spawner=request.spawner,
    )


def _process(request: _Request) -> LockProvider:
    return InProcessLock(request.storage.uri, clock=request.clock)


def _database(request: _Request, database: LockDatabase) -> LockProvider:
    return DatabaseLock(
        database,
        request.storage.uri,
        clock=request.clock,
        random=request.random,
        spawner=request.spawner,
    )


def _sqlite(request: _Request) -> LockProvider:
    path = request.url.removeprefix("sqlite://").removeprefix("/")
    if not path:
        raise OptionError(
            "A lock in SQLite needs a file.", hint="Write sqlite:////folder/locks.db."
        )
    return _database(request, SqliteDatabase(path, clock=request.clock))


def _postgresql(request: _Request) -> LockProvider:
    return _database(request, PostgresqlDatabase(request.url))


def _zookeeper(request: _Request) -> LockProvider:
    if request.url:
        hosts, _, path = request.url.removeprefix("zookeeper://").partition("/")
        if not hosts or not path.strip("/"):
            raise OptionError(
                "A lock in ZooKeeper needs servers and a node.",
                hint="Write zookeeper://host:2181/base/path/key.",
            )
        return _zookeeper_at(request, hosts, path)
    base = request.needed("zookeeper.base_path")
    key = request.text("zookeeper.lock_key") or request.table_name()
    return _zookeeper_at(request, _zookeeper_hosts(request), f"{base}/{key}")


def _zookeeper_implicit(request: _Request) -> LockProvider:
    path = f"/tmp/{implicit_lock_key(request.base_path())}/lock_key"  # noqa: S108 - Hudi's node
    return _zookeeper_at(request, _zookeeper_hosts(request), path)


def _zookeeper_hosts(request: _Request) -> str:
    url, port = request.needed("zookeeper.url"), request.text("zookeeper.port")
    return f"{url}:{port}" if port and ":" not in url else url


def _zookeeper_at(request: _Request, hosts: str, path: str) -> LockProvider:
    return ZookeeperLock(
        hosts,
        path,
        session_timeout_s=request.number(60_000, "zookeeper.session_timeout_ms") / 1000,
        connection_timeout_s=request.number(15_000, "zookeeper.connection_timeout_ms") / 1000,
        clock=request.clock,
        random=request.random,
    )


def _dynamodb(request: _Request) -> LockProvider:
    if request.url:
        parts = urlsplit(request.url)
        table, _, key = parts.path.strip("/").partition("/")
        if not parts.netloc or not table or not key:
            raise OptionError(
                "A lock in DynamoDB needs a region, a table and a key.",
                hint="Write dynamodb://us-east-1/hudi_locks/key.",
            )
        endpoint = parse_qs(parts.query).get("endpoint", [None])[0]
        return _dynamodb_at(request, table, key, parts.netloc, endpoint)
    key = request.text("dynamodb.partition_key") or request.table_name()
    return _dynamodb_configured(request, key)


def _dynamodb_implicit(request: _Request) -> LockProvider:
    return _dynamodb_configured(request, implicit_lock_key(request.base_path()))


def _dynamodb_configured(request: _Request, key: str) -> LockProvider:
    endpoint = request.text("dynamodb.endpoint_url")
    if endpoint is not None and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    table = request.text("dynamodb.table") or "hudi_locks"
    region = request.text("dynamodb.region") or os.environ.get("AWS_REGION") or "us-east-1"
    return _dynamodb_at(request, table, key, region, endpoint)


def _dynamodb_at(
    request: _Request, table: str, key: str, region: str, endpoint: str | None
) -> LockProvider:
    given = {name: request.options.get(option) for name, option in _CREDENTIALS.items()}
    client = DynamodbTable(
        table,
        region=region,
        endpoint=endpoint,
        credentials={name: value for name, value in given.items() if value},
        create_wait_s=request.number(120_000, "dynamodb.table_creation_timeout") / 1000,
        clock=request.clock,
    )
    return DynamodbLock(
        client,
        key,
        lease_s=request.number(60_000, "wait_time_ms") / 1000,
        clock=request.clock,
        random=request.random,
        spawner=request.spawner,
    )


_MAKERS: Final[Mapping[str, Callable[[_Request], LockProvider]]] = {
    "file": _file,
    "FileSystemBasedLockProvider": _file,
    "storage": _storage,
    "StorageBasedLockProvider": _storage,
    "process": _process,
    "InProcessLockProvider": _process,
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "zookeeper": _zookeeper,
    "ZookeeperBasedLockProvider": _zookeeper,
    "ZookeeperBasedImplicitBasePathLockProvider": _zookeeper_implicit,
    "dynamodb": _dynamodb,
    "DynamoDBBasedLockProvider": _dynamodb,
    "DynamoDBBasedImplicitPartitionKeyLockProvider": _dynamodb_implicit,
}
