"""The storage-based lock: Hudi's object, conditional writes, lost answers, the audit trail."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakewright.errors import (
    ConfigError,
    CorruptFileError,
    LockLostError,
    OptionError,
)
from lakewright.runtime import ManualClock
from lakewright.storage import (
    Credentials,
    LocalStorage,
    MemoryBucket,
    MemoryStorage,
    Storage,
    StorageOptions,
    open_storage,
    register_credential_provider,
)
from lakewright.storage.faults import FaultPlan, unavailable, unknown_outcome
from lakewright.txn.locks import LockProvider, lock_from
from lakewright.txn.locks.storage_lock import LOCK_PATH, StorageLock
from tests.txn.locks.contention import IdleSpawner, busy, chance, eventually, obtained

NOW = 1_700_000_000_000


class World:
    """A bucket and the locks of its clients."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.bucket = MemoryBucket(clock=self.clock)
        self.made = 0

    def lock(self, faults: FaultPlan | None = None) -> StorageLock:
        """A client's lock."""
        self.made += 1
        storage = MemoryStorage(self.bucket, faults=faults or FaultPlan())
        return StorageLock(
            storage, clock=self.clock, random=chance(self.made), spawner=IdleSpawner()
        )

    def object(self) -> dict[str, object]:
        """What the lock object says."""
        return dict(json.loads(self.bucket.objects()[LOCK_PATH]))

    def put(self, **values: object) -> None:
        """Write the object as Hudi would."""
        MemoryStorage(self.bucket).replace(LOCK_PATH, json.dumps(values).encode())


@pytest.fixture
def world() -> World:
    return World()


def test_the_object_says_what_hudi_expects(world: World) -> None:
    lease = obtained(world.lock().try_acquire("commit"))
    content = world.bucket.objects()[LOCK_PATH]
    assert content.startswith(b'{"expired":false,"validUntil":1700000300000,"owner":"')
    owner = world.object()["owner"]
    world.clock.advance(30)
    assert lease.renew()
    assert world.object()["validUntil"] == NOW + 330_000
    lease.release()
    said = world.object()
    assert (said["expired"], said["validUntil"], said["owner"]) == (True, NOW + 330_000, owner)


def test_a_lock_of_hudi_is_respected_until_half_a_second_after_its_time(world: World) -> None:
    world.put(expired=False, validUntil=NOW + 10_000, owner="a-b-c", later="ignored")
    holder = busy(world.lock().try_acquire("me"))
    assert holder.who == "the Hudi process a-b-c" and holder.expires_ms == NOW + 10_000
    world.clock.advance(10.5)
    busy(world.lock().try_acquire("me"))
    world.clock.advance(0.001)
    obtained(world.lock().try_acquire("me")).check()


def test_a_lock_that_hudi_gave_back_is_free(world: World) -> None:
    world.put(expired=True, validUntil=NOW + 10_000, owner="a-b-c")
    obtained(world.lock().try_acquire("me")).check()


def test_a_lock_that_was_taken_is_noticed_and_neither_renewed_nor_freed(world: World) -> None:
    lease = obtained(world.lock().try_acquire("me"))
    world.put(expired=False, validUntil=NOW + 999_000, owner="hudi")
    before = world.bucket.objects()
    with pytest.raises(LockLostError):
        lease.check()
    assert not lease.renew()
    lease.release()
    assert world.bucket.objects() == before


def test_a_lock_that_was_not_renewed_is_lost_before_others_may_have_it(world: World) -> None:
    lease = obtained(world.lock().try_acquire("me"))
    world.clock.advance(299.5)
    with pytest.raises(LockLostError, match="not renewed in time"):
        lease.check()
    busy(world.lock().try_acquire("other"))
    world.clock.advance(1.5)
    other = obtained(world.lock().try_acquire("other"))
    lease.release()
    other.check()


def test_a_renewal_on_its_way_does_not_bring_a_released_lock_back(world: World) -> None:
    lease = obtained(world.lock().try_acquire("me"))
    late = lease.tenure
    world.clock.advance(30)
    lease.release()
    assert not late.extend()
    assert world.object()["expired"] is True


def test_releasing_after_a_renewal_whose_answer_was_lost_still_frees(world: World) -> None:
    # stat, then create and the look at the audit switch; the renewal is the next write.
    lease = obtained(world.lock(FaultPlan({3: unknown_outcome(effect=True)})).try_acquire("me"))
    world.clock.advance(30)
    assert lease.renew()
    lease.check()
    lease.release()
    obtained(world.lock().try_acquire("other"))


@pytest.mark.parametrize("effect", [True, False])
@pytest.mark.parametrize("at", range(9))
@pytest.mark.parametrize("make", [unknown_outcome, unavailable])
@pytest.mark.parametrize("used", [False, True])
def test_lost_answers_never_block_the_lock_for_its_own_process(
    world: World, make, at: int, effect: bool, used: bool
) -> None:
    if used:
        obtained(world.lock().try_acquire("before")).release()
    mine, other = world.lock(FaultPlan({at: make(effect=effect)})), world.lock()
    held = obtained(eventually(lambda: mine.try_acquire("me")))
    busy(other.try_acquire("other"))
    eventually(held.release)
    obtained(other.try_acquire("other")).check()


def test_storage_without_conditional_writes_is_refused_with_what_to_use(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="file-system lock"):
        StorageLock(LocalStorage(tmp_path))


@pytest.mark.parametrize(("validity_s", "renew_s"), [(9, 0.9), (300, 31), (10, 0.5)])
def test_times_that_hudi_refuses_are_refused(validity_s: float, renew_s: float) -> None:
    with pytest.raises(OptionError):
        StorageLock(MemoryStorage(), validity_s=validity_s, renew_s=renew_s)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[1]", b'{"expired":null,"validUntil":1,"owner":"x"}', b"\xff"],
)
def test_an_object_that_is_no_lock_is_an_error_and_stays(world: World, content: bytes) -> None:
    MemoryStorage(world.bucket).replace(LOCK_PATH, content)
    with pytest.raises(CorruptFileError):
        world.lock().try_acquire("me")
    assert world.bucket.objects()[LOCK_PATH] == content


def test_the_audit_trail_is_kept_where_the_table_asks_for_it(world: World) -> None:
    switch = {"STORAGE_LOCK_AUDIT_SERVICE_ENABLED": True}
    path = ".hoodie/.locks/audit_enabled.json"
    MemoryStorage(world.bucket).replace(path, json.dumps(switch).encode())
    lease = obtained(world.lock().try_acquire("me"))
    world.clock.advance(30)
    lease.renew()
    lease.release()
    owner = world.object()["owner"]
    trail = world.bucket.objects()[f".hoodie/.locks/audit/{NOW}_{owner}.jsonl"]
    lines = [json.loads(line) for line in trail.splitlines()]
    assert [(line["state"], line["lockHeld"]) for line in lines] == [
        ("START", True),
        ("RENEW", True),
        ("END", False),
    ]
    assert lines[1] == {
        "ownerId": owner,
        "transactionStartTime": NOW,
        "timestamp": NOW + 30_000,
        "state": "RENEW",
        "lockExpiration": NOW + 330_000,
        "lockHeld": True,
    }


def test_an_audit_trail_that_cannot_be_written_does_not_touch_the_lock(world: World) -> None:
    switch = b'{"STORAGE_LOCK_AUDIT_SERVICE_ENABLED": true}'
    MemoryStorage(world.bucket).replace(".hoodie/.locks/audit_enabled.json", switch)
    lease = obtained(world.lock(FaultPlan({3: unavailable()})).try_acquire("me"))
    lease.check()
    lease.release()


@pytest.fixture(scope="module")
def s3() -> Iterator[Storage]:
    """A table's place on an S3 server."""
    server_module = pytest.importorskip("moto.server")
    pytest.importorskip("obstore")
    boto3 = pytest.importorskip("boto3")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "test-key-id", "aws_secret_access_key": "test-secret"}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
    client.create_bucket(Bucket="locks")
    register_credential_provider(
        "lock-test",
        lambda uri: Credentials(access_key_id="test-key-id", secret_access_key="test-secret"),
    )
    options = StorageOptions(
        provider="lock-test", region="us-east-1", endpoint=endpoint, allow_http=True
    )
    yield open_storage("s3://locks/table", options)
    server.stop()


@pytest.mark.parametrize("name", ["storage", "file"])
def test_on_s3_a_lock_is_granted_renewed_lost_and_freed(s3: Storage, name: str) -> None:
    def lock() -> LockProvider:
        made = lock_from(name, s3, spawner=IdleSpawner())
        assert made is not None
        return made

    first = obtained(lock().try_acquire("first"))
    assert busy(lock().try_acquire("second")).who.startswith("first")
    assert first.renew()
    first.check()
    first.release()
    second = obtained(lock().try_acquire("second"))
    first.release()
    assert not first.tenure.extend()
    second.check()
    s3.replace(LOCK_PATH if name == "storage" else ".hoodie/lock", LEFT[name])
    with pytest.raises(LockLostError):
        second.check()
    second.release()
    busy(lock().try_acquire("third"))


LEFT = {
    "storage": b'{"expired":false,"validUntil":9999999999999,"owner":"hudi"}',
    "file": b'{"lockThreadName":"main"}',
}
