"""URIs of storages: the forms people and Hadoop write, and the one form that is kept.

Guarantees: `s3`, `s3a` and `s3n` are one URI, `file:/x`, `file:///x` and `/x` one path; local paths
are made absolute; nothing is percent-decoded, as Hadoop does not either (partition folders contain
literal `%`). A URI that carries a secret (user info, signed query) is refused without repeating it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from lakewright.errors import ConfigError

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(.*)$", re.DOTALL)
_ALIASES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfss",
    "abfss": "abfss",
    "az": "az",
}


@dataclass(frozen=True, slots=True)
class StorageUri:
    """Where a storage is rooted."""

    scheme: str
    """`file`, `s3`, `gs`, `abfss` or `az`."""
    bucket: str
    """Bucket or container; empty for local folders."""
    path: str
    """Path in the bucket without slashes at its ends, or the absolute local path."""
    host: str = ""
    """Account host of `abfss` URIs, such as `account.dfs.core.windows.net`."""

    def __str__(self) -> str:
        if self.scheme == "file":
            return self.path
        authority = f"{self.bucket}@{self.host}" if self.host else self.bucket
        return f"{self.scheme}://{authority}/{self.path}".rstrip("/")


def parse_uri(text: str | os.PathLike[str]) -> StorageUri:
    """The storage that a URI or a path names; `ConfigError` if it cannot be used."""
    raw = os.fspath(text)
    if not raw or "\0" in raw:
        raise ConfigError(
            "An empty text is not the place of a table.", hint="Give a path or a URI."
        )
    matched = _SCHEME.match(raw)
    if matched is None or isinstance(text, os.PathLike):
        return _local(raw)
    scheme, rest = matched[1].lower(), matched[2]
    if scheme == "file":
        return _local(_file_path(rest))
    if scheme not in _ALIASES:
        raise ConfigError(
            f"Storage of kind {scheme!r} is not supported.",
            hint="Use a local path, file:, s3:, s3a:, gs:, abfs:, abfss: or az:.",
            context={"scheme": scheme},
        )
    return _remote(_ALIASES[scheme], rest)


def _local(path: str) -> StorageUri:
    return StorageUri("file", "", os.path.abspath(path))  # noqa: PTH100 - keeps symbolic links


def _file_path(rest: str) -> str:
    """The path of a `file:` URI: `/x`, `///x` or `//localhost/x`."""
    if not rest.startswith("//"):
        path = rest
    else:
        host, slash, path = rest[2:].partition("/")
        path = slash + path
        if host not in ("", "localhost"):
            raise ConfigError(
                f"A file: URI cannot name the host {host!r}.",
                hint="Write file:///path or the plain path.",
            )
    if not path.startswith("/"):
        raise ConfigError("A file: URI needs an absolute path.", hint="Write file:///path.")
    return path


def _remote(scheme: str, rest: str) -> StorageUri:
    if not rest.startswith("//"):
        raise ConfigError(
            f"A {scheme}: URI needs a bucket or container.", hint=f"Write {scheme}://bucket/path."
        )
    authority, _, path = rest[2:].partition("/")
    container, at, host = authority.partition("@")
    if ":" in authority or (at and scheme != "abfss"):
        raise ConfigError(
            f"A {scheme}: URI must not carry credentials.",
            hint="Register a credential provider and name it in StorageOptions(provider=...).",
        )
    if re.search(r"\?(.*&)?(sig|x-amz-signature|x-goog-signature|se)=", rest, re.IGNORECASE):
        raise ConfigError(
            f"A {scheme}: URI must not be a signed one.",
            hint="Register a credential provider and name it in StorageOptions(provider=...).",
        )
    if not container or (scheme == "abfss" and not host):
        form = "container@account.dfs.core.windows.net" if scheme == "abfss" else "bucket"
        raise ConfigError(
            f"A {scheme}: URI needs a bucket or container.", hint=f"Write {scheme}://{form}/path."
        )
    segments = [segment for segment in path.split("/") if segment]
    if any(segment in (".", "..") for segment in segments):
        raise ConfigError(
            "The path of a URI cannot contain '.' or '..'.", hint="Write the path out."
        )
    return StorageUri(scheme, container, "/".join(segments), host)
