"""Clients of object stores, made from a URI and options.

Guarantees: credentials come from the named provider at the moment they are needed and are renewed
when they expire, for the client of conditional requests as well as for Arrow's file system that
reads large objects in parallel; without a provider both ask the environment. Needs the `cloud`
extra. Requests are repeated a little below us (parts of uploads cannot be repeated above); the
budget of `StorageOptions.retry` is applied on top by `RetryingStorage`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from obstore import store as clients
from pyarrow import fs

from lakewright.errors import ConfigError
from lakewright.runtime.clock import Clock
from lakewright.runtime.random import Random
from lakewright.storage.credentials import CredentialProvider, Credentials, credential_provider
from lakewright.storage.object_store import ObjectStorage
from lakewright.storage.options import StorageOptions
from lakewright.storage.uri import StorageUri

_CLIENT_RETRIES = 2
_RENEW_EARLY_MS = 60_000


def object_storage(
    uri: StorageUri, options: StorageOptions, *, clock: Clock, random: Random
) -> ObjectStorage:
    """An `ObjectStorage` at `uri`."""
    provider = credential_provider(options.provider) if options.provider else None
    settings: dict[str, Any] = {
        "client_options": {
            "timeout": timedelta(seconds=options.timeout_s),
            "allow_http": options.allow_http,
        },
        "retry_config": {
            "max_retries": _CLIENT_RETRIES,
            "retry_timeout": timedelta(seconds=options.timeout_s),
        },
    }
    if provider is not None:
        settings["credential_provider"] = _client_provider(provider, str(uri))
    if options.anonymous:
        settings["skip_signature"] = True
    if uri.scheme == "s3":
        bulk = _S3Files(uri, options, provider, clock)
        return ObjectStorage(_s3(uri, options, settings), uri=uri, random=random, bulk=bulk)
    client = _gcs(uri, options, settings) if uri.scheme == "gs" else _azure(uri, options, settings)
    return ObjectStorage(client, uri=uri, random=random)


def _s3(uri: StorageUri, options: StorageOptions, settings: dict[str, Any]) -> Any:
    if options.region is not None:
        settings["region"] = options.region
    if options.endpoint is not None:
        settings["endpoint"] = options.endpoint
    return clients.S3Store(
        uri.bucket, virtual_hosted_style_request=options.virtual_hosted, **settings
    )


def _gcs(uri: StorageUri, options: StorageOptions, settings: dict[str, Any]) -> Any:
    if options.endpoint is not None:
        settings["base_url"] = options.endpoint
    return clients.GCSStore(uri.bucket, **settings)


def _azure(uri: StorageUri, options: StorageOptions, settings: dict[str, Any]) -> Any:
    account = uri.host.partition(".")[0] or options.account
    if not account:
        raise ConfigError(
            f"The storage account of {str(uri)!r} is not known.",
            hint="Set StorageOptions(account=...), or use abfss://container@account.../path.",
        )
    if options.endpoint is not None:
        settings["endpoint"] = options.endpoint
    return clients.AzureStore(uri.bucket, account_name=account, **settings)


def _client_provider(provider: CredentialProvider, uri: str) -> Callable[[], dict[str, Any]]:
    def current() -> dict[str, Any]:
        credentials = provider(uri)
        expires_ms = credentials.expires_ms
        moment = None if expires_ms is None else datetime.fromtimestamp(expires_ms / 1000, UTC)
        return {**credentials.reveal(), "expires_at": moment}

    return current


class _S3Files:
    """Arrow's S3 file system, made anew when the provider's credentials run out."""

    def __init__(
        self,
        uri: StorageUri,
        options: StorageOptions,
        provider: CredentialProvider | None,
        clock: Clock,
    ) -> None:
        self._uri = str(uri)
        self._options = options
        self._provider = provider
        self._clock = clock
        self._lock = threading.Lock()
        self._made: fs.S3FileSystem | None = None
        self._renew_ms: int | None = None

    def __call__(self) -> fs.S3FileSystem:
        """The file system with credentials that are valid now."""
        with self._lock:
            due = self._renew_ms is not None and self._clock.now_ms() >= self._renew_ms
            if self._made is None or due:
                credentials = None if self._provider is None else self._provider(self._uri)
                expires_ms = credentials.expires_ms if credentials else None
                self._renew_ms = None if expires_ms is None else expires_ms - _RENEW_EARLY_MS
                self._made = self._make(credentials)
            return self._made

    def _make(self, credentials: Credentials | None) -> fs.S3FileSystem:
        options = self._options
        secret = credentials.reveal() if credentials is not None else {}
        endpoint = urlsplit(options.endpoint) if options.endpoint is not None else None
        return fs.S3FileSystem(
            access_key=secret.get("access_key_id"),
            secret_key=secret.get("secret_access_key"),
            session_token=secret.get("token"),
            anonymous=options.anonymous,
            region=options.region,
            connect_timeout=options.timeout_s,
            request_timeout=options.timeout_s,
            scheme=endpoint.scheme if endpoint else "https",
            endpoint_override=f"{endpoint.netloc}{endpoint.path}" if endpoint else None,
            force_virtual_addressing=options.virtual_hosted,
        )
