"""A bucket in memory as `Storage`, with faults on demand.

Guarantees: behaves as an object store does at its best (atomic create, replace and delete, strong
listings, no directories) unless a fault hook says otherwise; fully deterministic: versions, times
and order depend only on the operations and the given clock. Many clients may share one
`MemoryBucket`; each has its own hook, counts its own operations, and can be killed on its own.
Hooks are called without the bucket's lock held, so that a simulator may switch actors inside them.
"""

from __future__ import annotations

import builtins
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, cast

import pyarrow as pa

from lakewright.errors import (
    AlreadyExistsError,
    NotFoundError,
    PreconditionFailedError,
)
from lakewright.runtime.cancel import NEVER_CANCELLED
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.storage.base import MODIFIED_UNKNOWN, Bytes, Guarantees, ObjectInfo
from lakewright.storage.faults import NO_FAULTS, FaultHook, Operation, SimulatedCrash
from lakewright.storage.paths import checked, checked_object, checked_range, joined

_GUARANTEES = Guarantees(
    real_directories=False,
    atomic_replace=True,
    modified_times_settable=True,
    creation_tokens=True,
)


Listing = list[ObjectInfo]


@dataclass(frozen=True, slots=True)
class _Stored:
    """One version of an object."""

    content: bytes
    modified_ms: int
    etag: str
    token: str | None


@dataclass(slots=True)
class _Folder:
    """What lies directly in a folder."""

    files: dict[str, _Stored] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)
    """How many objects are below each of them."""
    changed: int = 0
    """The newest change of what lies in it."""


_Decision = Callable[[_Stored | None, str, int], _Stored | None]
"""Current version, next etag and time in; the version to store, or None to remove, out."""


class MemoryBucket:
    """Objects shared by any number of clients.

    The last `history` changes can be looked back over, which is what stale listings and delayed
    visibility are made of.
    """

    def __init__(self, *, clock: Clock | None = None, history: int = 256) -> None:
        self.clock = clock or SystemClock()
        self.changes = 0
        """How many changes were made; the name of the newest state."""
        self._objects: dict[str, _Stored] = {}
        self._folders: dict[str, _Folder] = {}
        """Folders that have anything below them, so that a listing looks at nothing else."""
        self._undo: deque[tuple[int, str, _Stored | None]] = deque(maxlen=history)
        self._lock = threading.Lock()

    def begin_as(self, other: MemoryBucket) -> None:
        """Begin with everything that another bucket has; what each does from then on is its own."""
        self.changes = other.changes
        self._objects = dict(other._objects)
        self._folders = {
            path: _Folder(dict(folder.files), dict(folder.folders), folder.changed)
            for path, folder in other._folders.items()
        }

    def objects(self) -> dict[str, bytes]:
        """Everything stored, by full path: what a checker looks at."""
        with self._lock:
            return {path: stored.content for path, stored in sorted(self._objects.items())}

    def seen_at(self, change: int) -> dict[str, _Stored]:
        """The state after `change` changes, as far back as the history reaches."""
        with self._lock:
            if change >= self.changes:
                return dict(self._objects)
            state = dict(self._objects)
            for number, path, before in reversed(self._undo):
                if number <= change:
                    break
                if before is None:
                    state.pop(path, None)
                else:
                    state[path] = before
            return state

    def get(self, path: str) -> _Stored | None:
        """The newest version of one object."""
        return self._objects.get(path)

    def entries(self, path: str) -> tuple[Mapping[str, _Stored], Iterable[str], int]:
        """What lies directly in a folder now: objects by name, names of folders, newest change."""
        folder = self._folders.get(path)
        if folder is None:
            return {}, (), 0
        return folder.files, folder.folders, folder.changed

    def below(self, path: str) -> dict[str, _Stored]:
        """Everything below a folder now, in the order of the paths."""
        with self._lock:
            found: dict[str, _Stored] = {}
            self._gather(path, found)
            return {key: found[key] for key in sorted(found)}

    def has(self, path: str) -> bool:
        """Whether there is an object, or anything below it."""
        return path in self._objects or path in self._folders

    def _gather(self, path: str, found: dict[str, _Stored]) -> None:
        folder = self._folders.get(path)
        if folder is None:
            return
        inside = f"{path}/" if path else ""
        for name, stored in folder.files.items():
            found[inside + name] = stored
        for name in folder.folders:
            self._gather(inside + name, found)

    def change(self, path: str, decide: _Decision) -> _Stored | None:
        """Atomically store what `decide` returns; returning the current version changes nothing."""
        with self._lock:
            before = self._objects.get(path)
            after = decide(before, f"v{self.changes + 1}", self.clock.now_ms())
            if after is before:
                return after
            self.changes += 1
            self._undo.append((self.changes, path, before))
            if after is None:
                del self._objects[path]
                self._forget(path)
            else:
                self._objects[path] = after
                self._place(path, after, new=before is None)
            return after

    def _place(self, path: str, stored: _Stored, *, new: bool) -> None:
        above, _, name = path.rpartition("/")
        folder = self._folders.setdefault(above, _Folder())
        folder.files[name] = stored
        folder.changed = self.changes
        while new and above:
            above, _, name = above.rpartition("/")
            folder = self._folders.setdefault(above, _Folder())
            folder.folders[name] = folder.folders.get(name, 0) + 1
            if folder.folders[name] == 1:
                folder.changed = self.changes

    def _forget(self, path: str) -> None:
        above, _, name = path.rpartition("/")
        folder = self._folders[above]
        del folder.files[name]
        folder.changed = self.changes
        while True:
            if not folder.files and not folder.folders:
                del self._folders[above]
            if not above:
                return
            above, _, name = above.rpartition("/")
            folder = self._folders[above]
            folder.folders[name] -= 1
            if not folder.folders[name]:
                del folder.folders[name]
                folder.changed = self.changes


class MemoryClient:
    """What all storages of one client share: hook, count, and whether it was killed."""

    def __init__(self, bucket: MemoryBucket, faults: FaultHook) -> None:
        self.bucket = bucket
        self.faults = faults
        self.operations = 0
        self.killed = False


class MemoryStorage:
    """One client's storage at `root` inside a bucket."""

    def __init__(
        self,
        bucket: MemoryBucket | None = None,
        *,
        root: str = "",
        faults: FaultHook = NO_FAULTS,
        client: MemoryClient | None = None,
    ) -> None:
        self._root = checked(root)
        self._client = client or MemoryClient(bucket or MemoryBucket(), faults)

    def __repr__(self) -> str:
        return f"MemoryStorage({self._root!r})"

    @property
    def uri(self) -> str:
        """The root, as `memory:` and the path in the bucket."""
        return f"memory:/{self._root}"

    @property
    def guarantees(self) -> Guarantees:
        """Those of a good object store, and settable times."""
        return _GUARANTEES

    @property
    def bucket(self) -> MemoryBucket:
        """The bucket below."""
        return self._client.bucket

    @property
    def operations(self) -> int:
        """How many operations this client, its children included, has begun."""
        return self._client.operations

    def child(self, path: str) -> MemoryStorage:
        """The same client's storage rooted at `path` below this root."""
        return MemoryStorage(root=self._key(path), client=self._client)

    def read(self, path: str) -> bytes:
        """The whole object. Raises `NotFoundError`."""
        return self._found("read", path).content

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`, fewer (or none) only at the end of the object."""
        checked_range(path, offset, length)
        return self._found("read_range", path).content[offset : offset + length]

    def open_input(self, path: str) -> Any:
        """A random-access `pyarrow.BufferReader` over one version."""
        return pa.BufferReader(self._found("open_input", path).content)

    def create_if_absent(self, path: str, data: Bytes, *, token: str | None = None) -> ObjectInfo:
        """Publish a new object atomically; `AlreadyExistsError` if the name is taken."""
        content = bytes(data)

        def decide(before: _Stored | None, etag: str, now_ms: int) -> _Stored:
            if before is None:
                return _Stored(content, now_ms, etag, token)
            if token is None or before.token != token:
                self._taken(path)
            return before

        return self._put("create_if_absent", path, decide)

    def create_from(self, path: str, write: Callable[[Any], None]) -> ObjectInfo:
        """Publish a new large object atomically from what `write(sink)` writes."""
        sink = pa.BufferOutputStream()
        write(sink)
        content = sink.getvalue().to_pybytes()

        def decide(before: _Stored | None, etag: str, now_ms: int) -> _Stored:
            if before is not None:
                self._taken(path)
            return _Stored(content, now_ms, etag, None)

        return self._put("create_from", path, decide)

    def replace(self, path: str, data: Bytes) -> ObjectInfo:
        """Publish an object atomically, whatever was there."""
        content = bytes(data)
        return self._put(
            "replace", path, lambda _, etag, now_ms: _Stored(content, now_ms, etag, None)
        )

    def replace_if_match(self, path: str, data: Bytes, etag: str) -> ObjectInfo:
        """Publish over exactly the version `etag`; `PreconditionFailedError` otherwise."""
        content = bytes(data)

        def decide(before: _Stored | None, next_etag: str, now_ms: int) -> _Stored:
            if before is None or before.etag != etag:
                raise PreconditionFailedError(
                    f"{path!r} is not the version {etag!r} any more.",
                    hint="Another writer changed it; read it again and decide again.",
                    context={"path": path, "root": self.uri},
                )
            return _Stored(content, now_ms, next_etag, None)

        return self._put("replace_if_match", path, decide)

    def list(self, path: str = "") -> list[ObjectInfo]:
        """Direct children, sorted by path; a missing folder has none."""
        found: dict[str, ObjectInfo] = {}
        for info in self._below("list", path):
            name = info.path[len(path) + 1 :] if path else info.path
            first, _, deeper = name.partition("/")
            child = joined(path, first)
            found[child + "/" * bool(deeper)] = (
                ObjectInfo(child, 0, MODIFIED_UNKNOWN, is_dir=True) if deeper else info
            )
        return sorted(found.values(), key=lambda info: (info.path, info.is_dir))

    def names(self, path: str = "") -> builtins.list[str]:
        """Names of direct children, files and folders, in no order: the cheapest listing."""
        return [info.name for info in self.list(path)]

    def walk(self, path: str = "") -> Iterator[ObjectInfo]:
        """All objects below `path`, as one moment saw them."""
        return iter(self._below("walk", path))

    def stat(self, path: str) -> ObjectInfo:
        """Size, time and version of one object. Raises `NotFoundError`."""
        return _info(path, self._found("stat", path))

    def exists(self, path: str) -> bool:
        """Whether an object is there, or objects below it."""
        operation = self._begin("exists", path)
        seen = self._client.faults.view(operation, self.bucket.changes)
        if seen >= self.bucket.changes:
            answer = self.bucket.has(operation.path)
        else:
            state = self.bucket.seen_at(seen)
            inside = f"{operation.path}/"
            answer = operation.path in state or any(key.startswith(inside) for key in state)
        self._end(operation)
        return answer

    def make_dir(self, path: str) -> None:
        """Nothing: there are no directories."""
        checked(path)

    def delete(self, path: str) -> bool:
        """Delete one object; whether it was there."""
        was_there = False

        def decide(before: _Stored | None, etag: str, now_ms: int) -> None:  # noqa: ARG001
            nonlocal was_there
            was_there = before is not None

        self._change("delete", path, decide)
        return was_there

    def delete_tree(self, path: str, *, check: Callable[[], None] = NEVER_CANCELLED.check) -> int:
        """Delete everything below `path`, one operation each; how many objects went."""
        removed = 0
        for info in self.walk(path):
            check()
            removed += self.delete(info.path)
        return removed

    def sweep(self, path: str = "") -> int:  # noqa: ARG002
        """Nothing: unfinished objects are never in a folder."""
        return 0

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the modification time."""

        def decide(before: _Stored | None, etag: str, now_ms: int) -> _Stored:  # noqa: ARG001
            if before is None:
                self._absent(path)
            return replace(before, modified_ms=modified_ms)

        self._change("set_modified", path, decide)

    def _key(self, path: str) -> str:
        return joined(self._root, checked(path))

    def _begin(self, name: str, path: str) -> Operation:
        """Count the operation and ask the hook; a killed client stays dead."""
        client = self._client
        if client.killed:
            raise SimulatedCrash("this client was killed before")
        operation = Operation(name, self._key(path), client.operations)
        client.operations += 1
        self._ask(client.faults.before, operation)
        return operation

    def _end(self, operation: Operation) -> None:
        self._ask(self._client.faults.after, operation)

    def _ask(self, hook: Callable[[Operation], None], operation: Operation) -> None:
        try:
            hook(operation)
        except SimulatedCrash:
            self._client.killed = True
            raise

    def _view(self, operation: Operation) -> Mapping[str, _Stored]:
        """What is below the operation's path, as it sees it, in the order of the paths."""
        bucket, path = self.bucket, operation.path
        seen = self._client.faults.view(operation, bucket.changes)
        if seen >= bucket.changes:
            return bucket.below(path)
        inside = f"{path}/" if path else ""
        state = bucket.seen_at(seen)
        return {key: state[key] for key in sorted(state) if key.startswith(inside)}

    def _found(self, name: str, path: str) -> _Stored:
        operation = self._begin(name, checked_object(path))
        newest = self.bucket.changes
        seen = self._client.faults.view(operation, newest)
        if seen < newest:
            stored = self.bucket.seen_at(seen).get(operation.path)
        else:
            stored = self.bucket.get(operation.path)
        self._end(operation)
        if stored is None:
            self._absent(path)
        return stored

    def _below(self, name: str, path: str) -> Listing:
        operation = self._begin(name, path)
        skipped = len(self._root) + 1 if self._root else 0
        found = [_info(key[skipped:], stored) for key, stored in self._view(operation).items()]
        self._end(operation)
        return found

    def _change(self, name: str, path: str, decide: _Decision) -> _Stored | None:
        operation = self._begin(name, checked_object(path))
        stored = self.bucket.change(operation.path, decide)
        self._end(operation)
        return stored

    def _put(self, name: str, path: str, decide: Callable[..., _Stored]) -> ObjectInfo:
        stored = self._change(name, path, decide)
        return _info(path, cast("_Stored", stored))

    def _taken(self, path: str) -> NoReturn:
        raise AlreadyExistsError(
            f"{path!r} already exists.",
            hint="Another writer created it first; reload and decide again.",
            context={"path": path, "root": self.uri},
        )

    def _absent(self, path: str) -> NoReturn:
        raise NotFoundError(
            f"There is no {path!r}.",
            hint="Check the path; another process may have deleted it.",
            context={"path": path, "root": self.uri},
        )


def _info(path: str, stored: _Stored) -> ObjectInfo:
    return ObjectInfo(path, len(stored.content), stored.modified_ms, etag=stored.etag)
