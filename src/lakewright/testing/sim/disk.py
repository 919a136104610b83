"""The disk of a simulated world: one bucket or folder that all processes see.

Every storage operation of a process takes simulated time, may meet a fault, and is where the
scheduler switches; its effect is atomic. Two kinds of disk: an object store (no directories, lost
answers, possibly old listings), and a folder (real directories, answers are never lost). The disk
remembers who made each change, which is what checkers ask about, and calls its observers right
after every change, before anybody else runs.
"""

from __future__ import annotations

import builtins
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn

from lakewright.runtime.cancel import NEVER_CANCELLED
from lakewright.runtime.clock import Clock
from lakewright.storage.base import MODIFIED_UNKNOWN, Guarantees, ObjectInfo
from lakewright.storage.faults import Operation, SimulatedCrash
from lakewright.storage.memory import MemoryBucket, MemoryClient, MemoryStorage
from lakewright.storage.paths import checked, checked_object, joined
from lakewright.testing.sim.trace import Trace

__all__ = ["Change", "Disk", "SimStorage"]

_FOLDER = Guarantees(
    real_directories=True,
    atomic_replace=False,
    modified_times_settable=True,
    whole_objects_only=False,
)
_BUCKET = Guarantees(
    real_directories=False,
    atomic_replace=True,
    modified_times_settable=False,
    creation_tokens=True,
)

_MAKES_FOLDERS = frozenset({"create_if_absent", "create_from", "replace"})


class Change(NamedTuple):
    """One change of the disk."""

    number: int
    """How many changes there were, this one included."""
    time_s: float
    who: str
    operation: str
    path: str


Observer = Callable[[Change], None]


class Disk:
    """What all processes of a world share."""

    def __init__(self, clock: Clock, *, folders: bool) -> None:
        self.bucket = MemoryBucket(clock=clock, history=512)
        self.has_folders = folders
        self.folders: dict[str, dict[str, None]] = {"": {}}
        """Directories, also empty ones, each with those in it; used where directories are real."""
        self.folder_changes = 0
        self.listings: dict[tuple[str, str], tuple[int, int, list[ObjectInfo]]] = {}
        """What was listed where and after which changes, to be said again."""
        self.observers: list[Observer] = []
        self.makers: dict[str, str] = {}
        """Who wrote each object last."""
        self.digest = 0
        """Equal for equal histories of changes."""
        self.seen = 0
        """The newest change that observers know."""
        self._times: deque[tuple[float, int]] = deque(maxlen=512)

    def begin_as(self, other: Disk) -> None:
        """Begin with everything that another disk has."""
        self.bucket.begin_as(other.bucket)
        self.folders = {path: dict(inside) for path, inside in other.folders.items()}
        self.makers = dict(other.makers)
        self.seen = self.bucket.changes

    def settle(self, operation: Operation, who: str, time_s: float) -> None:
        """Tell the observers if the operation just changed something."""
        number = self.bucket.changes
        if number == self.seen:
            return
        self.seen = number
        self._times.append((time_s, number))
        path = operation.path
        if operation.name == "delete":
            self.makers.pop(path, None)
        else:
            self.makers[path] = who
        history = f"{time_s!r} {who} {operation.name} {path}"
        self.digest = zlib.crc32(history.encode(), self.digest)
        change = Change(number, time_s, who, operation.name, path)
        for observer in self.observers:
            observer(change)

    def change_at(self, time_s: float) -> int:
        """The newest change at a moment."""
        newest = self.bucket.changes
        for at, number in reversed(self._times):
            if at <= time_s:
                return number
            newest = number - 1
        return newest


class SimStorage(MemoryStorage):
    """One process' view of the disk."""

    def __init__(
        self, disk: Disk, trace: Trace, *, root: str, client: MemoryClient, place: Callable[[], Any]
    ) -> None:
        super().__init__(root=root, client=client)
        self._disk = disk
        self._trace = trace
        self._place = place
        """Time and name of whoever runs now."""
        self._keys: dict[str, str] = {}

    def _key(self, path: str) -> str:
        key = self._keys.get(path)
        if key is None:
            key = self._keys[path] = super()._key(path)
        return key

    @property
    def guarantees(self) -> Guarantees:
        """Those of a folder or of an object store."""
        return _FOLDER if self._disk.has_folders else _BUCKET

    def child(self, path: str) -> SimStorage:
        """The same process' storage rooted at `path` below this root."""
        return SimStorage(
            self._disk,
            self._trace,
            root=self._key(path),
            client=self._client,
            place=self._place,
        )

    def list(self, path: str = "") -> builtins.list[ObjectInfo]:
        """Direct children, sorted by path, empty directories included where they are real."""
        return self._listed(path).copy()

    def names(self, path: str = "") -> builtins.list[str]:
        """Names of direct children, files and folders."""
        start = len(path) + 1 if path else 0
        return [info.path[start:] for info in self._listed(path)]

    def _listed(self, path: str) -> builtins.list[ObjectInfo]:
        operation = self._begin("list", path)
        bucket, disk = self.bucket, self._disk
        seen = self._client.faults.view(operation, bucket.changes)
        if seen >= bucket.changes:
            files, below, changed = bucket.entries(operation.path)
            known = disk.listings.get((path, operation.path))
            if known is None or known[0] != changed or known[1] != disk.folder_changes:
                found = self._infos(path, operation.path, files, set(below))
                known = (changed, disk.folder_changes, found)
                disk.listings[path, operation.path] = known
            listed = known[2]
        else:
            listed = self._infos(
                path, operation.path, *_entries_of(bucket.seen_at(seen), operation.path)
            )
        self._end(operation)
        if disk.has_folders:
            self._demand_folder(path)
        return listed

    def _infos(
        self, path: str, key: str, files: Mapping[str, Any], folders: set[str]
    ) -> builtins.list[ObjectInfo]:
        prefix = f"{path}/" if path else ""
        found = [
            ObjectInfo(prefix + name, len(s.content), s.modified_ms, etag=s.etag)
            for name, s in files.items()
        ]
        if self._disk.has_folders:
            folders |= self._disk.folders.get(key, {}).keys()
        found += [ObjectInfo(prefix + n, 0, MODIFIED_UNKNOWN, is_dir=True) for n in folders]
        return sorted(found, key=_by_path)

    def exists(self, path: str) -> bool:
        """Whether an object or directory is there."""
        return super().exists(path) or self._key(path) in self._disk.folders

    def make_dir(self, path: str) -> None:
        """Make an empty directory where directories are real."""
        operation = self._begin("make_dir", path)
        if self._disk.has_folders:
            self._add_folder(self._key(path))
        self._end(operation)

    def delete_tree(self, path: str, *, check: Callable[[], None] = NEVER_CANCELLED.check) -> int:
        """Delete everything below `path`, one operation each, then its directories."""
        count = super().delete_tree(path, check=check)
        if self._disk.has_folders and path:
            operation = self._begin("remove_dirs", path)
            self._disk.folder_changes += 1
            self._remove_folders(self._key(path))
            self._end(operation)
        return count

    def _found(self, name: str, path: str) -> Any:
        """Objects are never behind, unlike listings."""
        operation = self._begin(name, path or checked_object(path))
        stored = self._disk.bucket.get(operation.path)
        self._end(operation)
        if stored is None:
            self._absent(path)
        return stored

    def _begin(self, name: str, path: str) -> Operation:
        client = self._client
        if client.killed:
            raise SimulatedCrash("this client was killed before")
        key = self._keys.get(path)
        operation = Operation(name, self._key(path) if key is None else key, client.operations)
        client.operations += 1
        client.faults.before(operation)
        return operation

    def _end(self, operation: Operation) -> None:
        if self._disk.has_folders and operation.name in _MAKES_FOLDERS:
            self._add_folder(operation.path.rpartition("/")[0])
        self._client.faults.after(operation)

    def _add_folder(self, folder: str) -> None:
        folders = self._disk.folders
        if folder not in folders:
            self._disk.folder_changes += 1
            folders[folder] = {}
            above, _, name = folder.rpartition("/")
            self._add_folder(above)
            folders[above][name] = None

    def _remove_folders(self, top: str) -> None:
        folders = self._disk.folders
        for name in folders.pop(top, {}):
            self._remove_folders(f"{top}/{name}")
        above, _, name = top.rpartition("/")
        folders.get(above, {}).pop(name, None)

    def _demand_folder(self, path: str) -> None:
        key = self._key(path)
        if key and key not in self._disk.folders:
            self._absent(path)

    def _taken(self, path: str) -> NoReturn:
        time_s, who = self._place()
        self._trace.add(time_s, who, "· exists", joined(self._root, checked(path)))
        super()._taken(path)

    def _absent(self, path: str) -> NoReturn:
        time_s, who = self._place()
        self._trace.add(time_s, who, "· not found", joined(self._root, checked(path)))
        super()._absent(path)


def _entries_of(
    objects: Mapping[str, Any], path: str
) -> tuple[Mapping[str, Any], builtins.set[str]]:
    """Objects directly in a folder, and folders, of all objects of some moment."""
    inside = f"{path}/" if path else ""
    below = {key[len(inside) :]: s for key, s in objects.items() if key.startswith(inside)}
    files = {name: stored for name, stored in below.items() if "/" not in name}
    return files, {name.partition("/")[0] for name in below if "/" in name}


_by_path = attrgetter("path", "is_dir")
