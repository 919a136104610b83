"""The `Storage` protocol: the only door to bytes, rooted at one folder or prefix.

Paths are relative to the root, `/`-separated, without a leading slash; `""` is the root itself.
Guarantees every backend gives: `read` and `open_input` see one whole version of an object;
`create_if_absent` lets exactly one caller win; a listing never invents names; parents of a new
object need not exist. What differs between backends is declared in `Guarantees`, and asked there
instead of testing for a backend's type. Nothing here knows Hudi.

A write can fail without saying whether it happened (`OutcomeUnknownError`, retryable). A create is
resolved by its `token`: the backend keeps it beside the object, and the same create with the same
token finds its own object and succeeds instead of taking itself for a competitor.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from lakewright.runtime.cancel import NEVER_CANCELLED

Bytes = bytes | bytearray | memoryview

MODIFIED_UNKNOWN = -1
"""`ObjectInfo.modified_ms` of a write whose answer did not tell the time (`stat` tells it), and of
folders where directories are not real."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed or stat'ed object. `path` is relative to the storage's root."""

    path: str
    size: int
    modified_ms: int
    is_dir: bool = False
    etag: str | None = None

    @property
    def name(self) -> str:
        """Last segment of the path."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What a backend promises beyond the protocol's minimum."""

    real_directories: bool
    """Empty directories exist and can be listed (a local disk; not an object store)."""
    atomic_replace: bool
    """`replace_if_match` never overwrites another version than `etag`, whoever else writes; where
    False, only lakewright processes on the same machine keep out of each other's way."""
    modified_times_settable: bool
    """`set_modified` works."""
    whole_objects_only: bool = True
    """Objects appear whole, whoever wrote them; where False, other programs' files can be seen
    while they are being written."""
    creation_tokens: bool = False
    """A repeated create with the same token recognises its own object. Not needed where the outcome
    of a create is always known."""
    exclusive_large_creates: bool = True
    """`create_from` lets exactly one caller win; where False, only up to the backend's limit for a
    single upload, so that large objects need names of their own."""


@runtime_checkable
class Storage(Protocol):
    """Synchronous storage below one root."""

    @property
    def uri(self) -> str:
        """The root, as a URI or a local path, free of secrets."""
        ...

    @property
    def guarantees(self) -> Guarantees:
        """What this backend promises."""
        ...

    def child(self, path: str) -> Storage:
        """The same storage rooted at `path` below this root."""
        ...

    def read(self, path: str) -> bytes:
        """The whole object. Raises `NotFoundError`."""
        ...

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`, fewer (or none) only at the end of the object."""
        ...

    def open_input(self, path: str) -> Any:
        """A random-access `pyarrow.NativeFile` for bulk reading (Parquet)."""
        ...

    def create_if_absent(self, path: str, data: Bytes, *, token: str | None = None) -> ObjectInfo:
        """Publish a new object atomically; `AlreadyExistsError` if the name is taken.

        The same `token` again means the same create: see `Guarantees.creation_tokens`.
        """
        ...

    def replace(self, path: str, data: Bytes) -> ObjectInfo:
        """Publish an object atomically, whatever was there."""
        ...

    def replace_if_match(self, path: str, data: Bytes, etag: str) -> ObjectInfo:
        """Publish over exactly the version `etag`; `PreconditionFailedError` if it is another one
        or gone."""
        ...

    def create_from(self, path: str, write: Callable[[Any], None]) -> ObjectInfo:
        """Publish a new large object atomically from what `write(sink)` writes to a binary sink.

        The sink is a writable `pyarrow.NativeFile`. If `write` raises, nothing is published.
        """
        ...

    def list(self, path: str = "") -> list[ObjectInfo]:
        """Direct children, sorted by path; a missing folder is a `NotFoundError` where directories
        are real and empty elsewhere."""
        ...

    def names(self, path: str = "") -> builtins.list[str]:
        """Names of direct children, files and folders, in no order: the cheapest listing.

        Raises `NotFoundError` where `list` does.
        """
        ...

    def walk(self, path: str = "") -> Iterator[ObjectInfo]:
        """All objects below `path`, directories not included, in the backend's own stable order;
        a missing folder has none."""
        ...

    def stat(self, path: str) -> ObjectInfo:
        """Size, time and version of one object. Raises `NotFoundError`."""
        ...

    def exists(self, path: str) -> bool:
        """Whether an object or directory is there."""
        ...

    def make_dir(self, path: str) -> None:
        """Make an empty directory where directories are real; nothing elsewhere."""
        ...

    def delete(self, path: str) -> bool:
        """Delete one object, never a directory; whether it was there."""
        ...

    def delete_tree(self, path: str, *, check: Callable[[], None] = NEVER_CANCELLED.check) -> int:
        """Delete everything below `path`, and `path` itself where directories are real (the root
        stays); how many objects went. `check` is asked before each object or batch of objects, and
        raises if no more may go."""
        ...

    def sweep(self, path: str = "") -> int:
        """Remove what dead writers left unfinished directly in a folder, which listings hide; how
        many. Nothing where a backend leaves nothing, or cannot tell."""
        ...

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the modification time, where `guarantees.modified_times_settable`."""
        ...
