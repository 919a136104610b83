"""The DynamoDB lock against moto: the AWS lock client's items, heartbeats and staleness."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lakewright.errors import LockLostError, StorageUnavailableError
from lakewright.runtime import ManualClock
from lakewright.txn.locks.dynamodb import DynamodbLock, DynamodbTable
from tests.txn.locks.contention import IdleSpawner, busy, chance, contend, obtained

KEYS = {"aws_access_key_id": "test-key-id", "aws_secret_access_key": "test-secret"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The URL of a DynamoDB server."""
    server_module = pytest.importorskip("moto.server")
    pytest.importorskip("boto3")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def table(endpoint: str, request: pytest.FixtureRequest) -> DynamodbTable:
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    return DynamodbTable(name, endpoint=endpoint, credentials=KEYS, clock=ManualClock())


def _lock(table: DynamodbTable, seed: int, clock: ManualClock | None = None) -> DynamodbLock:
    return DynamodbLock(
        table,
        "orders",
        clock=clock or ManualClock(),
        random=chance(seed),
        spawner=IdleSpawner(),
    )


def _item(table: DynamodbTable) -> dict[str, Any]:
    found = table.get("orders")
    assert found is not None
    return found


def test_the_item_is_one_of_the_aws_lock_client(table: DynamodbTable) -> None:
    lease = obtained(_lock(table, 1).try_acquire("commit"))
    item = _item(table)
    assert item["key"] == {"S": "orders"}
    assert item["leaseDuration"] == {"S": "60000"}
    assert item["ownerName"]["S"].startswith("commit ")
    version = item["recordVersionNumber"]["S"]
    assert lease.renew()
    assert _item(table)["recordVersionNumber"]["S"] != version
    assert busy(_lock(table, 2).try_acquire("me")).who == item["ownerName"]["S"]
    lease.check()
    lease.release()
    assert table.get("orders") is None


def _java_item(version: str, **more: str) -> dict[str, Any]:
    values = {
        "key": "orders",
        "ownerName": "host-uuid",
        "leaseDuration": "30000",
        "recordVersionNumber": version,
        **more,
    }
    return {name: {"S": value} for name, value in values.items()}


def test_a_lock_is_stale_only_after_its_version_stood_still_while_we_watched(
    table: DynamodbTable,
) -> None:
    clock = ManualClock()
    lock = _lock(table, 1, clock)
    table.get("orders")
    table.write("put_item", Item=_java_item("v1"))
    busy(lock.try_acquire("me"))
    clock.advance(29)
    table.write("put_item", Item=_java_item("v2"))
    busy(lock.try_acquire("me"))
    clock.advance(30)
    busy(lock.try_acquire("me"))
    clock.advance(0.1)
    obtained(lock.try_acquire("me")).check()


def test_a_released_item_that_was_kept_is_free(table: DynamodbTable) -> None:
    table.get("orders")
    table.write("put_item", Item=_java_item("v1", isReleased="1"))
    obtained(_lock(table, 1).try_acquire("me")).check()
    assert "isReleased" not in _item(table)


def test_a_stale_lock_goes_to_one_and_its_old_holder_frees_nothing(table: DynamodbTable) -> None:
    clocks = [ManualClock() for _ in range(8)]
    locks = [_lock(table, 10 + n, clock) for n, clock in enumerate(clocks)]
    dead = obtained(_lock(table, 1).try_acquire("dead"))
    for lock in locks:
        busy(lock.try_acquire("waiting"))
    for clock in clocks:
        clock.advance(61)
    won = [a for a in (lock.try_acquire("waiting") for lock in locks) if hasattr(a, "check")]
    assert len(won) == 1
    with pytest.raises(LockLostError):
        dead.check()
    assert not dead.renew()
    dead.release()
    won[0].check()


def test_a_renewal_on_its_way_does_not_keep_a_released_lock(table: DynamodbTable) -> None:
    lease = obtained(_lock(table, 1).try_acquire("me"))
    late = lease.tenure
    lease.release()
    assert not late.extend()
    assert table.get("orders") is None


def test_a_lost_answer_is_resolved_by_looking_again(table: DynamodbTable) -> None:
    class Silent(DynamodbTable):
        """Does what it is asked and does not say so."""

        def write(self, operation: str, **request: Any) -> None:
            """Write, then fail."""
            super().write(operation, **request)
            raise StorageUnavailableError("no answer", hint="again", retryable=True)

    silent = object.__new__(Silent)
    silent.__dict__.update(table.__dict__)
    obtained(_lock(silent, 1).try_acquire("me"))
    busy(_lock(table, 2).try_acquire("other"))


@pytest.mark.parametrize("contenders", [2, 8])
def test_contenders_take_turns(table: DynamodbTable, contenders: int) -> None:
    # Moto checks a condition and then writes, without a lock of its own around both.
    write, turn = table.write, threading.Lock()

    def one_at_a_time(operation: str, **request: Any) -> None:
        with turn:
            write(operation, **request)

    table.write = one_at_a_time  # type: ignore[method-assign]
    contend(lambda n: DynamodbLock(table, "orders"), contenders, 8 // contenders)


def test_a_server_that_does_not_answer_is_a_passing_failure() -> None:
    pytest.importorskip("boto3")
    table = DynamodbTable("x", endpoint="http://127.0.0.1:1", credentials=KEYS)
    with pytest.raises(StorageUnavailableError) as caught:
        _lock(table, 1).try_acquire("me")
    assert caught.value.retryable
