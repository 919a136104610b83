"""URIs, options and references: one form, no secrets."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from lakewright.errors import ConfigError, OptionError
from lakewright.runtime import RetryBudget
from lakewright.storage import (
    Credentials,
    LocalStorage,
    StorageOptions,
    StorageRef,
    open_storage,
    parse_uri,
    register_credential_provider,
)
from lakewright.storage.credentials import credential_provider

FORMS = [
    ("/a/b", "/a/b"),
    ("/a//b/", "/a/b"),
    ("file:/a/b", "/a/b"),
    ("file:///a/b", "/a/b"),
    ("file://localhost/a/b", "/a/b"),
    ("file:/a/city=x%2Fy", "/a/city=x%2Fy"),
    ("FILE:/a", "/a"),
    ("s3://b/p", "s3://b/p"),
    ("s3a://b/p/", "s3://b/p"),
    ("s3n://b//p//q", "s3://b/p/q"),
    ("s3://b", "s3://b"),
    ("gs://b/p", "gs://b/p"),
    ("gcs://b/p", "gs://b/p"),
    ("abfs://c@a.dfs.core.windows.net/p", "abfss://c@a.dfs.core.windows.net/p"),
    ("az://c/p", "az://c/p"),
]


@pytest.mark.parametrize(("written", "kept"), FORMS)
def test_all_spellings_of_a_place_are_one(written: str, kept: str) -> None:
    assert str(parse_uri(written)) == kept
    assert str(parse_uri(kept)) == kept
    assert StorageRef(written).uri == kept


WRONG = [
    "",
    "hdfs://n/p",
    "s3:/b/p",
    "s3://",
    "s3:///p",
    "file://host/p",
    "file:p",
    "abfss://c/p",
    "s3://b/../p",
    "a\0b",
]


@pytest.mark.parametrize("written", WRONG)
def test_places_that_cannot_be_used_are_refused(written: str) -> None:
    with pytest.raises(ConfigError):
        parse_uri(written)


@pytest.mark.parametrize(
    "written",
    [
        "s3://KEY:SECRET@bucket/p",
        "s3a://SECRET@bucket/p",
        "gs://user:SECRET@bucket/p",
        "az://c/p?sv=1&sig=SECRET",
        "s3://b/p?X-Amz-Signature=SECRET",
    ],
)
def test_secrets_in_a_uri_are_refused_and_not_repeated(written: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StorageRef(written)
    assert "SECRET" not in str(caught.value) + repr(caught.value)


def test_local_paths_open_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in (tmp_path, str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        storage = open_storage(form)
        assert isinstance(storage, LocalStorage) and storage.uri == str(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert open_storage("t").uri == str(tmp_path / "t")


def test_a_path_object_is_never_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_uri(Path("s3:x")).path == str(tmp_path / "s3:x")


def test_a_reference_travels_without_secrets_and_opens_where_it_arrives(tmp_path: Path) -> None:
    register_credential_provider(
        "vault", lambda uri: Credentials(access_key_id="ID", secret_access_key="VERYSECRET")
    )
    ref = StorageRef(
        "s3a://bucket/t", "vault", StorageOptions(region="eu-west-1", retry=RetryBudget(3))
    )
    shipped = pickle.dumps(ref)
    assert b"VERYSECRET" not in shipped
    assert pickle.loads(shipped) == ref
    assert "VERYSECRET" not in repr(ref) + repr(ref.options)
    pytest.importorskip("obstore")
    storage = pickle.loads(shipped).open()
    assert storage.uri == "s3://bucket/t"
    assert "VERYSECRET" not in repr(storage)
    assert StorageRef(str(tmp_path)).open().uri == str(tmp_path)


def test_credentials_are_neither_shown_nor_shipped() -> None:
    credentials = Credentials(access_key_id="ID", secret_access_key="VERYSECRET")
    assert "SECRET" not in repr(credentials) + str(credentials)
    assert credentials.reveal()["secret_access_key"] == "VERYSECRET"
    for ship in (pickle.dumps, copy.deepcopy):
        with pytest.raises(ConfigError, match="never pickled"):
            ship(credentials)


def importable(uri: str) -> Credentials:
    """A provider that is found by its import path."""
    return Credentials(token=uri)


def wrong(uri: str) -> str:
    """A provider that returns something else."""
    return uri


def test_providers_are_found_by_registered_or_importable_name() -> None:
    register_credential_provider("mine", importable)
    assert credential_provider("mine")("s3://b").reveal() == {"token": "s3://b"}
    found = credential_provider("tests.storage.test_resolve:importable")
    assert found("s3://b").reveal() == {"token": "s3://b"}
    for name in ("nobody", "no.such.module:f", "tests.storage.test_resolve:nothing"):
        with pytest.raises(ConfigError) as caught:
            credential_provider(name)
        assert caught.value.context["provider"] == name
    with pytest.raises(ConfigError, match="returned str"):
        credential_provider("tests.storage.test_resolve:wrong")("s3://b")
    with pytest.raises(ConfigError):
        register_credential_provider("a:b", importable)


def test_options_are_checked_when_they_are_made() -> None:
    good = StorageOptions(endpoint="https://minio.example:9000")
    for change in (
        {"timeout_s": 0},
        {"endpoint": "http://minio"},
        {"endpoint": "minio:9000"},
        {"endpoint": "https://user:SECRET@minio"},
        {"endpoint": "https://minio?sig=SECRET"},
        {"anonymous": True, "provider": "x"},
    ):
        with pytest.raises(OptionError) as caught:
            replace(good, **change)
        assert "SECRET" not in str(caught.value)
    assert replace(good, endpoint="http://minio", allow_http=True).allow_http
