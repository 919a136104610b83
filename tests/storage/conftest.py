"""Storages to test: a local folder, a bucket in memory, and S3 by moto on loopback."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakewright.runtime import RetryBudget
from lakewright.storage import (
    Credentials,
    LocalStorage,
    MemoryStorage,
    Storage,
    StorageOptions,
    open_storage,
    register_credential_provider,
)

BUCKET = "lakewright-tests"
KEY_ID, SECRET = "test-key-id", "test-secret-access-key"


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The URL of an S3 server with an empty bucket."""
    server_module = pytest.importorskip("moto.server")
    pytest.importorskip("obstore")
    boto3 = pytest.importorskip("boto3")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    _make_conditional_puts_atomic()
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    register_credential_provider(
        "test", lambda uri: Credentials(access_key_id=KEY_ID, secret_access_key=SECRET)
    )
    s3_client(boto3, endpoint).create_bucket(Bucket=BUCKET)
    yield endpoint
    server.stop()


def _make_conditional_puts_atomic() -> None:
    """Moto checks a condition and then puts; S3 does both in one step, so a lock makes it one."""
    from moto.s3.responses import S3Response

    put, lock = S3Response.put_object, threading.Lock()

    def put_object(self: Any) -> Any:
        with lock:
            return put(self)

    S3Response.put_object = put_object


def s3_client(boto3: Any, endpoint: str) -> Any:
    """A client of another make, to look at the bucket from outside."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
    )


def s3_options(endpoint: str, **more: Any) -> StorageOptions:
    """Options for the test server."""
    settings: dict[str, Any] = {
        "provider": "test",
        "region": "us-east-1",
        "endpoint": endpoint,
        "allow_http": True,
        "retry": RetryBudget(attempts=2, seconds=5, delay_s_first=0.01, delay_s_max=0.01),
    }
    return StorageOptions(**{**settings, **more})


@pytest.fixture(params=["local", "memory", "s3"])
def make_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Storage]:
    """Opens the same empty storage, as another process would each time."""
    if request.param == "local":
        return lambda: LocalStorage(tmp_path / "root")
    if request.param == "memory":
        bucket = MemoryStorage().bucket
        return lambda: MemoryStorage(bucket, root="some/root")
    endpoint = request.getfixturevalue("s3_endpoint")
    uri = f"s3a://{BUCKET}/{uuid.uuid4().hex}/root"
    return lambda: open_storage(uri, s3_options(endpoint))


@pytest.fixture
def storage(make_storage: Callable[[], Storage]) -> Storage:
    """An empty storage of each kind."""
    return make_storage()
