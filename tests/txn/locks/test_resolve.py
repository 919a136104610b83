"""Options to locks: Hudi's class names and keys, our short forms, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakewright.errors import ConfigError, OptionError
from lakewright.runtime import ManualClock
from lakewright.storage import LocalStorage, MemoryStorage
from lakewright.txn.locks import lock_from, lock_wait_s
from lakewright.txn.locks.database import DatabaseLock
from lakewright.txn.locks.dynamodb import DynamodbLock
from lakewright.txn.locks.file_system import FileSystemLock
from lakewright.txn.locks.implicit_key import implicit_lock_key
from lakewright.txn.locks.in_process import InProcessLock
from lakewright.txn.locks.storage_lock import StorageLock
from lakewright.txn.locks.zookeeper import ZookeeperLock
from tests.txn.locks.contention import busy

CLIENT = "org.apache.hudi.client.transaction.lock."
AWS = "org.apache.hudi.aws.transaction.lock."
LOCK = "hoodie.write.lock."


def _with(provider: str, **more: str) -> dict[str, str]:
    return {
        f"{LOCK}provider": provider,
        "hoodie.table.name": "orders",
        **{LOCK + key.replace("__", "."): value for key, value in more.items()},
    }


def test_nothing_is_named_nothing_is_locked() -> None:
    assert lock_from(None, MemoryStorage()) is None
    assert lock_from({}, MemoryStorage()) is None
    assert lock_from({"hoodie.write.lock.provider": " "}, MemoryStorage()) is None


def test_a_provider_is_taken_as_it_is() -> None:
    lock = InProcessLock("t")
    assert lock_from(lock, MemoryStorage()) is lock


@pytest.mark.parametrize(
    "name", ["file", f"{CLIENT}FileSystemBasedLockProvider", "FileSystemBasedLockProvider"]
)
def test_the_file_lock_is_where_hudi_has_it(name: str, tmp_path: Path) -> None:
    lock = lock_from(name, LocalStorage(tmp_path))
    assert isinstance(lock, FileSystemLock) and lock.shared
    assert lock.place == f"lock file {tmp_path}/.hoodie/lock"


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_the_file_lock_may_be_elsewhere(scheme: str, tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "table")
    for folder in (tmp_path / "table" / ".hoodie" / ".aux", tmp_path / "locks"):
        lock = lock_from(_with("file", filesystem__path=f"{scheme}{folder}/"), storage)
        assert lock is not None and lock.place == f"lock file {folder}/lock"
        lock.try_acquire("me")
        assert (folder / "lock").exists()
    beside = lock_from(_with("file", filesystem__path="locks"), storage)
    assert beside is not None and beside.place == f"lock file {tmp_path}/table/locks/lock"


def test_the_expiry_is_in_minutes(tmp_path: Path) -> None:
    clock = ManualClock()
    storage = LocalStorage(tmp_path)
    options = _with(f"{CLIENT}FileSystemBasedLockProvider", filesystem__expire="3")
    storage.create_if_absent(".hoodie/lock", b"{}")
    storage.set_modified(".hoodie/lock", clock.now_ms() - 60_000)
    lock = lock_from(options, storage, clock=clock)
    assert lock is not None
    assert busy(lock.try_acquire("me")).expires_ms == clock.now_ms() + 120_000


def test_the_storage_lock_takes_hudis_times() -> None:
    name = f"{CLIENT}StorageBasedLockProvider"
    assert isinstance(lock_from("storage", MemoryStorage()), StorageLock)
    assert isinstance(lock_from(_with(name), MemoryStorage()), StorageLock)
    for key in ("storage__renew__interval__secs", "storage__heartbeat__poll__secs"):
        with pytest.raises(OptionError):
            lock_from(_with(name, **{key: "31"}), MemoryStorage())
    with pytest.raises(ConfigError, match='"file"'):
        lock_from(name, LocalStorage("/nowhere"))


@pytest.mark.parametrize(
    "name",
    [
        "process",
        f"{CLIENT}InProcessLockProvider",
        "org.apache.hudi.core.transaction.lock.InProcessLockProvider",
    ],
)
def test_the_in_process_lock_is_not_shared(name: str) -> None:
    lock = lock_from(name, MemoryStorage())
    assert isinstance(lock, InProcessLock) and not lock.shared


def test_databases_are_named_by_url_without_secrets(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    lock = lock_from(f"sqlite:///{tmp_path}/locks.db", MemoryStorage(root="t"))
    assert isinstance(lock, DatabaseLock)
    assert lock.place == f"lock of memory:/t in SQLite database {tmp_path}/locks.db"
    url = "postgresql://me:secret@db.example:5433/locks"
    lock = lock_from(_with(url), MemoryStorage(root="t"))
    assert isinstance(lock, DatabaseLock)
    assert lock.place == "lock of memory:/t in PostgreSQL database db.example:5433/locks"
    with pytest.raises(OptionError):
        lock_from("sqlite://", MemoryStorage())


def test_zookeeper_is_named_by_url_or_by_hudis_options() -> None:
    pytest.importorskip("kazoo")
    short = lock_from("zookeeper://a:2181,b:2181/hudi/locks/orders", MemoryStorage())
    assert isinstance(short, ZookeeperLock)
    assert short.place == "ZooKeeper lock /hudi/locks/orders at a:2181,b:2181"
    named = {"zookeeper__url": "a", "zookeeper__port": "2181", "zookeeper__base_path": "/hudi/"}
    options = _with(f"{CLIENT}ZookeeperBasedLockProvider", **named)
    lock = lock_from(options, MemoryStorage())
    assert lock is not None and lock.place == "ZooKeeper lock /hudi/orders at a:2181"
    options[f"{LOCK}zookeeper.lock_key"] = "k"
    lock = lock_from(options, MemoryStorage())
    assert lock is not None and lock.place == "ZooKeeper lock /hudi/k at a:2181"
    del options[f"{LOCK}zookeeper.url"]
    with pytest.raises(OptionError, match=r"zookeeper\.url"):
        lock_from(options, MemoryStorage())
    with pytest.raises(OptionError):
        lock_from("zookeeper://a:2181", MemoryStorage())


def test_the_implicit_places_are_those_that_hudi_derives() -> None:
    """Expected values were printed by the provider classes of Hudi 1.0.2 and 1.2.0."""
    assert implicit_lock_key("s3a://bucket/table") == "4DCF035CB614089C"
    assert implicit_lock_key("s3://bucket/table") == "4DCF035CB614089C"
    assert implicit_lock_key("/tmp/table") == "DFF2E410578BD3CA"
    assert implicit_lock_key("file:///tmp/x/y") == "4DBCF2F9960607C7"
    for text in ("", "/", "s3://b/t/", " /tmp/table"):
        with pytest.raises(ConfigError):
            implicit_lock_key(text)


def test_the_implicit_place_follows_hudis_spelling_of_the_base_path() -> None:
    pytest.importorskip("kazoo")
    options = _with(f"{CLIENT}ZookeeperBasedImplicitBasePathLockProvider", zookeeper__url="a:2181")
    storage = LocalStorage("/tmp/table")
    lock = lock_from(options, storage)
    assert lock is not None
    assert lock.place == "ZooKeeper lock /tmp/DFF2E410578BD3CA/lock_key at a:2181"
    lock = lock_from({**options, "hoodie.base.path": "file:///tmp/x/y"}, storage)
    assert lock is not None and "/tmp/4DBCF2F9960607C7/" in lock.place


def test_dynamodb_is_named_by_url_or_by_hudis_options() -> None:
    pytest.importorskip("boto3")
    keys = {"hoodie.aws.access.key": "a", "hoodie.aws.secret.key": "secret"}
    options = {**_with(f"{AWS}DynamoDBBasedLockProvider", dynamodb__region="eu-west-1"), **keys}
    lock = lock_from(options, MemoryStorage())
    assert isinstance(lock, DynamodbLock)
    assert lock.place == "lock orders in DynamoDB table hudi_locks in eu-west-1"
    more = {f"{LOCK}dynamodb.partition_key": "k", f"{LOCK}dynamodb.table": "t"}
    lock = lock_from({**options, **more}, MemoryStorage())
    assert lock is not None and lock.place == "lock k in DynamoDB table t in eu-west-1"
    implicit = {
        **_with(f"{AWS}DynamoDBBasedImplicitPartitionKeyLockProvider"),
        "hoodie.base.path": "s3a://bucket/table",
        f"{LOCK}dynamodb.endpoint_url": "localhost:1",
    }
    lock = lock_from(implicit, MemoryStorage())
    assert lock is not None
    assert lock.place == "lock 4DCF035CB614089C in DynamoDB table hudi_locks in https://localhost:1"
    short = lock_from("dynamodb://us-east-2/locks/a/b", MemoryStorage())
    assert short is not None and short.place == "lock a/b in DynamoDB table locks in us-east-2"
    with pytest.raises(OptionError):
        lock_from("dynamodb://us-east-2/locks", MemoryStorage())


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
            "another provider",
        ),
        (f"{CLIENT}NoopLockProvider", "locks nothing"),
        ("com.example.MyLock", "Use one of"),
        ("redis://host", "Use one of"),
    ],
)
def test_what_is_not_supported_is_refused_with_what_to_do(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        lock_from(name, MemoryStorage())


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    for value in ("soon", "-1", "inf", "nan"):
        with pytest.raises(OptionError, match=r"filesystem\.expire"):
            lock_from(_with("file", filesystem__expire=value), LocalStorage(tmp_path))


def test_the_waiting_time_is_the_sum_of_hudis_attempts() -> None:
    assert lock_wait_s({}) == 60
    assert lock_wait_s({}, 5) == 5
    assert lock_wait_s({f"{LOCK}wait_time_ms": "1000", f"{LOCK}client.num_retries": "0"}) == 1
    assert lock_wait_s({f"{LOCK}client.wait_time_ms_between_retry": "100"}) == 65
