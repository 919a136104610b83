"""What is particular about object stores."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakewright.errors import (
    AlreadyExistsError,
    LakewrightError,
    MissingDependencyError,
    NotFoundError,
    OutcomeUnknownError,
    PreconditionFailedError,
    StorageDeniedError,
    StorageError,
    StorageUnavailableError,
)
from lakewright.runtime import NO_RETRY, ManualClock, SeededRandom, SystemClock
from lakewright.storage import (
    Credentials,
    RetryingStorage,
    Storage,
    open_storage,
    register_credential_provider,
)
from tests.storage.conftest import BUCKET, KEY_ID, SECRET, s3_client, s3_options

obstore = pytest.importorskip("obstore")
boto3 = pytest.importorskip("boto3")

from lakewright.storage import object_store  # noqa: E402
from lakewright.storage.cloud import object_storage  # noqa: E402
from lakewright.storage.object_errors import object_error  # noqa: E402
from lakewright.storage.object_store import ObjectStorage  # noqa: E402
from lakewright.storage.uri import StorageUri, parse_uri  # noqa: E402


@pytest.fixture
def prefix() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def storage(s3_endpoint: str, prefix: str) -> Storage:
    return open_storage(f"s3://{BUCKET}/{prefix}", s3_options(s3_endpoint))


def test_folder_markers_of_other_tools_are_no_objects(
    s3_endpoint: str, prefix: str, storage: Storage
) -> None:
    client = s3_client(boto3, s3_endpoint)
    for key in ("", "d/", "d/x", "d/e/", "d/e/y", "d-1"):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{key}", Body=b"" if key != "d-1" else b"1")
    assert [(i.path, i.is_dir) for i in storage.list()] == [("d", True), ("d-1", False)]
    assert [(i.path, i.is_dir) for i in storage.list("d")] == [("d/e", True), ("d/x", False)]
    assert sorted(i.path for i in storage.walk()) == ["d-1", "d/e/y", "d/x"]
    assert sorted(i.path for i in storage.walk("d")) == ["d/e/y", "d/x"]


def test_large_objects_are_sent_in_parts_and_only_when_whole(
    monkeypatch: pytest.MonkeyPatch, s3_endpoint: str, storage: Storage
) -> None:
    monkeypatch.setattr(object_store, "SINGLE_PUT_BYTES", 1 << 20)
    monkeypatch.setattr(object_store, "_PART_BYTES", 5 << 20)
    piece = bytes(range(256)) * 4096

    def write(sink: Any) -> None:
        for _ in range(12):
            sink.write(piece)
        assert not storage.exists("big")

    info = storage.create_from("big", write)
    assert info.size == 12 * len(piece) and info.modified_ms > 0
    assert storage.read("big") == piece * 12
    with pytest.raises(AlreadyExistsError):
        storage.create_from("big", write)

    def fail(sink: Any) -> None:
        write_ = [sink.write(piece) for _ in range(7)]
        raise RuntimeError(len(write_))

    with pytest.raises(RuntimeError):
        storage.create_from("broken", fail)
    assert not storage.exists("broken")
    unfinished = s3_client(boto3, s3_endpoint).list_multipart_uploads(Bucket=BUCKET)
    assert unfinished.get("Uploads", []) == []


def test_the_client_library_alone_can_read_in_bulk_too(s3_endpoint: str, prefix: str) -> None:
    uri = StorageUri("s3", BUCKET, prefix)
    made = object_storage(uri, s3_options(s3_endpoint), clock=SystemClock(), random=SeededRandom(1))
    slow = ObjectStorage(made._store, uri=uri)
    table = pa.table({"n": pa.array(range(10_000)), "s": ["x"] * 10_000})
    slow.create_from("t.parquet", lambda sink: pq.write_table(table, sink, row_group_size=1000))
    source = slow.open_input("t.parquet")
    assert pq.read_table(source).equals(table)
    assert source.size() == slow.stat("t.parquet").size
    slow.replace("t.parquet", b"another version")
    with pytest.raises(PreconditionFailedError):
        source.read_at(4, 0)
    slow.delete("t.parquet")
    slow.create_from("t.parquet", lambda sink: pq.write_table(table, sink))
    assert pq.read_table(made.open_input("t.parquet"), columns=["s"]).num_columns == 1


class _LosesAnswers:
    """The client library, with the answer of chosen puts lost."""

    def __init__(self, real: Any, lost: int) -> None:
        self._real = real
        self._lost = lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def put(self, *args: Any, **kwargs: Any) -> Any:
        result = self._real.put(*args, **kwargs)
        if self._lost:
            self._lost -= 1
            raise obstore.exceptions.GenericError("Generic S3 error: operation timed out")
        return result


def test_a_lost_answer_is_resolved_by_the_token_in_the_metadata(
    monkeypatch: pytest.MonkeyPatch, storage: Storage
) -> None:
    for content in (b"", b"content"):
        monkeypatch.setattr(object_store, "obstore", _LosesAnswers(obstore, 1))
        path = f"x{len(content)}"
        assert storage.create_if_absent(path, content).size == len(content)
        assert storage.read(path) == content
        with pytest.raises(AlreadyExistsError):
            storage.create_if_absent(path, content)
    monkeypatch.setattr(object_store, "obstore", _LosesAnswers(obstore, 99))
    with pytest.raises(OutcomeUnknownError):
        open_raw(storage).create_if_absent("y", b"1")
    etag = storage.stat("x7").etag or ""
    monkeypatch.setattr(object_store, "obstore", _LosesAnswers(obstore, 1))
    storage.replace_if_match("x7", b"new", etag)
    assert storage.read("x7") == b"new"


def open_raw(storage: Storage) -> Storage:
    """The storage below the retries."""
    assert isinstance(storage, RetryingStorage)
    return storage.inner


def test_a_store_that_does_not_answer_is_unavailable_after_the_budget() -> None:
    register_credential_provider(
        "test", lambda uri: Credentials(access_key_id=KEY_ID, secret_access_key=SECRET)
    )
    clock = ManualClock()
    nobody = s3_options("http://127.0.0.1:9", timeout_s=2.0)
    storage = open_storage("s3://bucket/t", nobody, clock=clock, random=SeededRandom(1))
    with pytest.raises(StorageUnavailableError) as caught:
        storage.read("x")
    assert caught.value.context["attempts"] == 2 and len(clock.slept_s) == 1
    with pytest.raises(OutcomeUnknownError):
        open_raw(storage).create_if_absent("x", b"")


def test_a_missing_bucket_is_not_retried(s3_endpoint: str) -> None:
    clock = ManualClock()
    storage = open_storage("s3://no-such-bucket", s3_options(s3_endpoint), clock=clock)
    for ask in (lambda: storage.list(), lambda: storage.read("x"), lambda: [*storage.walk()]):
        with pytest.raises(NotFoundError):
            ask()
    with pytest.raises(StorageError):
        storage.create_if_absent("x", b"")
    assert clock.slept_s == []


def test_errors_carry_no_secrets_from_the_client_library() -> None:
    texts = [
        "Generic MicrosoftAzure error: Error performing PUT https://a.blob/x?sv=1&sig=SECRETSIG in"
        " 1s - Server returned non-2xx status code: 503 Busy: <?xml?><Key>SECRETSIG</Key>",
        "Server returned non-2xx status code: 403 Forbidden: <Error><AWSAccessKeyId>SECRETSIG",
        "first line\nDebug source: SECRETSIG",
    ]
    for text in texts:
        error = object_error(obstore.exceptions.GenericError(text), "read", "x", "az://c")
        assert "SECRETSIG" not in str(error) + repr(error) + str(error.to_dict())
        assert error.__cause__ is None
    denied = object_error(obstore.exceptions.GenericError(texts[1]), "read", "x", "az://c")
    assert isinstance(denied, StorageDeniedError) and not denied.retryable


def test_expiring_credentials_are_asked_for_again(s3_endpoint: str, prefix: str) -> None:
    clock = ManualClock(now_ms=4_000_000_000_000)
    asked: list[str] = []

    def short_lived(uri: str) -> Credentials:
        asked.append(uri)
        return Credentials(
            access_key_id=KEY_ID,
            secret_access_key=SECRET,
            expires_ms=clock.now_ms() + 600_000,
        )

    register_credential_provider("short-lived", short_lived)
    options = s3_options(s3_endpoint, provider="short-lived", retry=NO_RETRY)
    storage = open_storage(f"s3a://{BUCKET}/{prefix}", options, clock=clock)
    storage.create_if_absent("x", b"1")
    before = len(asked)
    storage.open_input("x").close()
    storage.open_input("x").close()
    assert len(asked) == before + 1
    clock.advance(550)
    storage.open_input("x").close()
    assert len(asked) == before + 2
    assert set(asked) == {f"s3://{BUCKET}/{prefix}"}


def test_google_and_azure_clients_are_made_from_their_uris() -> None:
    register_credential_provider("sas", lambda uri: Credentials(sas_token="sv=1&sig=SECRETSIG"))
    register_credential_provider("google", lambda uri: Credentials(token="SECRETSIG"))
    for uri, provider in (
        ("abfss://files@account.dfs.core.windows.net/t", "sas"),
        ("gs://bucket/t", "google"),
    ):
        options = s3_options("https://example.invalid", provider=provider)
        storage = open_storage(uri, options)
        assert storage.uri == uri
        assert "SECRETSIG" not in repr(storage)
    with pytest.raises(LakewrightError, match="account"):
        open_storage("az://files/t", s3_options("https://example.invalid", provider="sas"))
    assert str(parse_uri("az://files/t")) == "az://files/t"


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins
    import sys

    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "obstore":
            raise ModuleNotFoundError("No module named 'obstore'", name="obstore")
        return real(name, *args, **kwargs)

    for module in ("cloud", "object_store", "object_files", "object_errors"):
        monkeypatch.delitem(sys.modules, f"lakewright.storage.{module}")
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingDependencyError) as caught:
        open_storage("s3://bucket/t")
    assert 'pip install "lakewright[cloud]"' in caught.value.hint
