"""Object stores (S3, Google, Azure) as `Storage`.

Guarantees: creating is one conditional put, so that exactly one creator wins; every create carries
a token in the object's metadata, and a create that finds its own token has won, whatever became of
the first answer. Replacing is conditional on the version. Reads see one whole version. Directories
do not exist: a folder is a common prefix, and folder markers that other tools leave are not listed
as objects (in a `walk`, the marker of an *empty* folder cannot be told from an empty object).

Large objects from `create_from` are sent in parts as they are written; up to `SINGLE_PUT_BYTES`
they are created exclusively, above that the name is only checked first (`exclusive_large_creates`).
A writer that fails leaves nothing visible; the store's lifecycle rule removes unfinished parts.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from dataclasses import replace as replace_fields
from functools import partial
from typing import Any

import obstore
import pyarrow as pa

from lakewright.errors import (
    AlreadyExistsError,
    NotFoundError,
    PreconditionFailedError,
    StorageDeniedError,
    StorageError,
    StorageUnavailableError,
)
from lakewright.runtime.cancel import NEVER_CANCELLED
from lakewright.runtime.random import Random, SystemRandom
from lakewright.storage.base import MODIFIED_UNKNOWN, Bytes, Guarantees, ObjectInfo
from lakewright.storage.object_errors import CLIENT_ERRORS, object_error
from lakewright.storage.object_files import RangeReader, Upload
from lakewright.storage.paths import checked, checked_object, checked_range, joined
from lakewright.storage.uri import StorageUri

SINGLE_PUT_BYTES = 16 << 20
_PART_BYTES = 8 << 20
_LIST_CHUNK = 1000
_TOKEN_KEY = "lakewrighttoken"  # noqa: S105 - the name of a metadata entry

_GUARANTEES = Guarantees(
    real_directories=False,
    atomic_replace=True,
    modified_times_settable=False,
    creation_tokens=True,
    exclusive_large_creates=False,
)

BulkFileSystem = Callable[[], Any]
"""Gives a `pyarrow.fs.FileSystem` with valid credentials, for parallel reads of large objects."""


class ObjectStorage:
    """Storage at `uri` through an obstore client of its bucket."""

    def __init__(
        self,
        store: Any,
        *,
        uri: StorageUri,
        random: Random | None = None,
        bulk: BulkFileSystem | None = None,
    ) -> None:
        self._store = store
        self._uri = uri
        self._random = random or SystemRandom()
        self._bulk = bulk

    def __repr__(self) -> str:
        return f"ObjectStorage({self.uri!r})"

    @property
    def uri(self) -> str:
        """The root, with `s3` for all spellings of S3."""
        return str(self._uri)

    @property
    def guarantees(self) -> Guarantees:
        """Conditional writes and creation tokens, no directories, no settable times."""
        return _GUARANTEES

    def child(self, path: str) -> ObjectStorage:
        """The same storage rooted at `path` below this root."""
        uri = replace_fields(self._uri, path=self._key(path))
        return ObjectStorage(self._store, uri=uri, random=self._random, bulk=self._bulk)

    def read(self, path: str) -> bytes:
        """The whole object. Raises `NotFoundError`."""
        key = self._key(checked_object(path))
        try:
            return bytes(obstore.get(self._store, key).bytes())
        except CLIENT_ERRORS as error:
            raise self._error(error, "read", path) from None

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`, fewer (or none) only at the end of the object."""
        key = self._key(checked_object(path))
        checked_range(path, offset, length)
        if length == 0:
            self.stat(path)
            return b""
        try:
            found = obstore.get(self._store, key, options={"range": (offset, offset + length)})
            return bytes(found.bytes())
        except CLIENT_ERRORS as error:
            failure = self._error(error, "read", path)
            # Stores answer a range behind the end with an error that has no type of its own.
            if type(failure) is StorageError and offset >= self.stat(path).size:
                return b""
            raise failure from None

    def open_input(self, path: str) -> Any:
        """A random-access `pyarrow.NativeFile`; later read errors are plain `OSError`s."""
        key = self._key(checked_object(path))
        try:
            if self._bulk is not None:
                return self._bulk().open_input_file(f"{self._uri.bucket}/{key}")
            meta = obstore.head(self._store, key)
            fetch = partial(self._fetch, path, key, meta["e_tag"])
            return pa.PythonFile(RangeReader(fetch, meta["size"]), mode="r")
        except CLIENT_ERRORS as error:
            raise self._error(error, "open", path) from None
        except OSError as error:
            raise self._bulk_error(error, path) from None

    def create_if_absent(self, path: str, data: Bytes, *, token: str | None = None) -> ObjectInfo:
        """Publish a new object atomically; `AlreadyExistsError` if the name is taken."""
        key = self._key(checked_object(path))
        mine = token or self._random.token_hex()
        try:
            done = self._put(key, data, mode="create", attributes={_TOKEN_KEY: mine})
        except CLIENT_ERRORS as error:
            failure = self._error(error, "create", path, unknown_if_lost=True)
            # The client repeats requests by itself, so that it may meet its own first attempt.
            if isinstance(failure, AlreadyExistsError) and self._created_with(key, path, mine):
                return self.stat(path)
            raise failure from None
        return self._written(path, len(data), done)

    def replace(self, path: str, data: Bytes) -> ObjectInfo:
        """Publish an object atomically, whatever was there."""
        key = self._key(checked_object(path))
        try:
            done = self._put(key, data, mode="overwrite")
        except CLIENT_ERRORS as error:
            raise self._error(error, "replace", path) from None
        return self._written(path, len(data), done)

    def replace_if_match(self, path: str, data: Bytes, etag: str) -> ObjectInfo:
        """Publish over exactly the version `etag`; `PreconditionFailedError` otherwise."""
        key = self._key(checked_object(path))
        mode = {"version": etag} if self._versioned else {"e_tag": etag}
        try:
            done = self._put(key, data, mode=mode)
        except CLIENT_ERRORS as error:
            failure = self._error(error, "replace", path, unknown_if_lost=True)
            if isinstance(failure, NotFoundError):
                raise PreconditionFailedError(
                    f"{path!r} is gone.",
                    hint="Another writer deleted it; decide again.",
                    context=failure.context,
                ) from None
            raise failure from None
        return self._written(path, len(data), done)

    def create_from(self, path: str, write: Callable[[Any], None]) -> ObjectInfo:
        """Publish a new large object atomically from what `write(sink)` writes."""
        upload = Upload(
            SINGLE_PUT_BYTES,
            open_parts=lambda: self._open_parts(path),
            failure=lambda error: self._error(error, "create", path, unknown_if_lost=True),
        )
        try:
            with pa.PythonFile(upload, mode="w") as sink:
                write(sink)
            upload.publish()
        except BaseException:
            upload.abandon()
            raise
        if upload.in_parts:
            return self.stat(path)
        return self.create_if_absent(path, upload.collected())

    def list(self, path: str = "") -> list[ObjectInfo]:
        """Direct children, sorted by path; a missing folder has none."""
        key = self._key(path)
        try:
            found = obstore.list_with_delimiter(self._store, key or None)
        except CLIENT_ERRORS as error:
            raise self._error(error, "list", path) from None
        listed = [self._info(meta) for meta in found["objects"] if meta["path"] != key]
        listed += [
            ObjectInfo(self._relative(prefix), 0, MODIFIED_UNKNOWN, is_dir=True)
            for prefix in found["common_prefixes"]
        ]
        listed.sort(key=lambda info: (info.path, info.is_dir))
        return listed

    def names(self, path: str = "") -> builtins.list[str]:
        """Names of direct children, files and folders, in no order: the cheapest listing."""
        return [info.name for info in self.list(path)]

    def walk(self, path: str = "") -> Iterator[ObjectInfo]:
        """All objects below `path`, page by page; a missing folder has none."""
        key = self._key(path)
        held: Any = None
        try:
            for page in obstore.list(self._store, key or None, chunk_size=_LIST_CHUNK):
                for meta in page:
                    if held is not None and not _is_marker(held, meta["path"], key):
                        yield self._info(held)
                    held = meta
        except CLIENT_ERRORS as error:
            raise self._error(error, "list", path) from None
        if held is not None and not _is_marker(held, "", key):
            yield self._info(held)

    def stat(self, path: str) -> ObjectInfo:
        """Size, time and version of one object. Raises `NotFoundError`."""
        key = self._key(checked_object(path))
        try:
            return self._info(obstore.head(self._store, key))
        except CLIENT_ERRORS as error:
            raise self._error(error, "stat", path) from None

    def exists(self, path: str) -> bool:
        """Whether an object is there, or objects below it."""
        try:
            if path:
                self.stat(path)
                return True
        except NotFoundError:
            pass
        return next(self.walk(path), None) is not None

    def make_dir(self, path: str) -> None:
        """Nothing: there are no directories."""
        checked(path)

    def delete(self, path: str) -> bool:
        """Delete one object; whether it was there a moment before."""
        try:
            self.stat(path)
            obstore.delete(self._store, self._key(path))
        except NotFoundError:
            return False
        except CLIENT_ERRORS as error:
            raise self._error(error, "delete", path) from None
        return True

    def delete_tree(self, path: str, *, check: Callable[[], None] = NEVER_CANCELLED.check) -> int:
        """Delete everything below `path` in batches; how many objects went."""
        keys = [self._key(info.path) for info in self.walk(path)]
        try:
            for start in range(0, len(keys), _LIST_CHUNK):
                check()
                obstore.delete(self._store, keys[start : start + _LIST_CHUNK])
        except CLIENT_ERRORS as error:
            raise self._error(error, "delete", path) from None
        return len(keys)

    def sweep(self, path: str = "") -> int:  # noqa: ARG002
        """Nothing: unfinished objects are never in a folder."""
        return 0

    def set_modified(self, path: str, modified_ms: int) -> None:  # noqa: ARG002
        """Refuse: object stores set times themselves."""
        raise StorageError(
            f"The modification time of {path!r} cannot be set in an object store.",
            hint="Ask guarantees.modified_times_settable first.",
            context={"path": path, "root": self.uri},
        )

    @property
    def _versioned(self) -> bool:
        """Google compares generations where the others compare etags."""
        return self._uri.scheme == "gs"

    def _key(self, path: str) -> str:
        return joined(self._uri.path, checked(path))

    def _relative(self, key: str) -> str:
        return key[len(self._uri.path) + 1 :] if self._uri.path else key

    def _put(self, key: str, data: Bytes, **how: Any) -> Any:
        content = memoryview(data).cast("B") if len(data) else b""
        return obstore.put(self._store, key, content, use_multipart=False, **how)

    def _fetch(self, path: str, key: str, etag: str | None, start: int, end: int) -> bytes:
        """A range of exactly the version `etag`."""
        options: Any = {"range": (start, end), "if_match": etag}
        try:
            return bytes(obstore.get(self._store, key, options=options).bytes())
        except CLIENT_ERRORS as error:
            raise self._error(error, "read", path) from None

    def _open_parts(self, path: str) -> Any:
        if self.exists(path):
            raise AlreadyExistsError(
                f"{path!r} already exists.",
                hint="Another writer created it first; reload and decide again.",
                context={"path": path, "root": self.uri},
            )
        return obstore.open_writer(self._store, self._key(path), buffer_size=_PART_BYTES)

    def _created_with(self, key: str, path: str, token: str) -> bool:
        """Whether the object under `key` was created with `token`."""
        try:
            found = obstore.get(self._store, key, options={"head": True})
        except CLIENT_ERRORS as error:
            failure = self._error(error, "create", path, unknown_if_lost=True)
            if isinstance(failure, NotFoundError):
                return False
            raise failure from None
        return bool(found.attributes.get(_TOKEN_KEY) == token)

    def _written(self, path: str, size: int, done: Any) -> ObjectInfo:
        etag = done["version" if self._versioned else "e_tag"]
        return ObjectInfo(path, size, MODIFIED_UNKNOWN, etag=etag)

    def _info(self, meta: Any) -> ObjectInfo:
        return ObjectInfo(
            path=self._relative(meta["path"]),
            size=meta["size"],
            modified_ms=int(meta["last_modified"].timestamp() * 1000),
            etag=meta["version" if self._versioned else "e_tag"],
        )

    def _error(
        self, error: Exception, operation: str, path: str, *, unknown_if_lost: bool = False
    ) -> StorageError:
        return object_error(error, operation, path, self.uri, unknown_if_lost=unknown_if_lost)

    def _bulk_error(self, error: OSError, path: str) -> StorageError:
        denied = isinstance(error, PermissionError)
        kind = StorageDeniedError if denied else StorageUnavailableError
        return kind(
            f"Cannot open {path!r} for reading.",
            hint="Check credentials, endpoint and region of the storage.",
            context={"path": path, "root": self.uri},
            retryable=not denied,
        )


def _is_marker(meta: Any, next_path: str, folder: str) -> bool:
    """Whether an empty object is only the marker of a folder; its content follows it in order."""
    path = meta["path"]
    return meta["size"] == 0 and (path == folder or next_path.startswith(f"{path}/"))
