"""Storage: the only door to bytes. See `base` for the protocol and `resolve` for opening one."""

from __future__ import annotations

from lakewright.storage.base import MODIFIED_UNKNOWN, Bytes, Guarantees, ObjectInfo, Storage
from lakewright.storage.credentials import (
    CredentialProvider,
    Credentials,
    register_credential_provider,
)
from lakewright.storage.local import LocalStorage
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.storage.options import StorageOptions
from lakewright.storage.resolve import StorageRef, open_storage
from lakewright.storage.retrying import RetryingStorage
from lakewright.storage.uri import StorageUri, parse_uri

__all__ = [
    "MODIFIED_UNKNOWN",
    "Bytes",
    "CredentialProvider",
    "Credentials",
    "Guarantees",
    "LocalStorage",
    "MemoryBucket",
    "MemoryStorage",
    "ObjectInfo",
    "RetryingStorage",
    "Storage",
    "StorageOptions",
    "StorageRef",
    "StorageUri",
    "open_storage",
    "parse_uri",
    "register_credential_provider",
]
