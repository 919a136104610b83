"""The disk of a simulated world: one bucket or folder that all processes see.

Every storage operation of a process takes simulated time, may meet a fault, and is where the
scheduler switches; its effect is atomic. Two kinds of disk: an object store (no directories, lost
answers, possibly old listings), and a folder (real directories, answers are never lost). The disk
remembers who made each change, which is what checkers ask about, and calls its observers right
after every change, before anybody else runs.
"""

from __future__ import annotations

import builtins
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from lakewright.runtime.clock import Clock
from lakewright.storage.base import MODIFIED_UNKNOWN, Guarantees, ObjectInfo
from lakewright.storage.faults import Operation
from lakewright.storage.memory import MemoryBucket, MemoryClient, MemoryStorage
from lakewright.storage.paths import checked, joined
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


@dataclass(frozen=True, slots=True)
class Change:
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
        self.folders: set[str] = set()
        """Directories, also empty ones; used where directories are real."""
        self.observers: list[Observer] = []
        self.makers: dict[str, str] = {}
        """Who wrote each object last."""
        self._seen = 0
        self._times: deque[tuple[float, int]] = deque(maxlen=512)

    def settle(self, operation: Operation, who: str, time_s: float) -> None:
        """Tell the observers if the operation just changed something."""
        number = self.bucket.changes
        if number == self._seen:
            return
        self._seen = number
        self._times.append((time_s, number))
        path = operation.path
        if operation.name == "delete":
            self.makers.pop(path, None)
        else:
            self.makers[path] = who
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
        operation = self._begin("list", path)
        inside = f"{operation.path}/" if operation.path else ""
        start, prefix = len(inside), f"{path}/" if path else ""
        found: builtins.list[ObjectInfo] = []
        folders: set[str] = set()
        for key, stored in self._view(operation).items():
            if not key.startswith(inside):
                continue
            slash = key.find("/", start)
            if slash >= 0:
                folders.add(key[start:slash])
                continue
            child = f"{prefix}{key[start:]}"
            size = len(stored.content)
            found.append(ObjectInfo(child, size, stored.modified_ms, etag=stored.etag))
        self._end(operation)
        if self._disk.has_folders:
            self._demand_folder(path)
            below = (f[start:] for f in self._disk.folders if f.startswith(inside))
            folders |= {name for name in below if "/" not in name}
        found += [ObjectInfo(f"{prefix}{n}", 0, MODIFIED_UNKNOWN, is_dir=True) for n in folders]
        return sorted(found, key=_by_path)

    def exists(self, path: str) -> bool:
        """Whether an object or directory is there."""
        return super().exists(path) or self._key(path) in self._disk.folders

    def names(self, path: str = "") -> builtins.list[str]:
        """Names of direct children, files and folders."""
        return [info.path.rpartition("/")[2] for info in self.list(path)]

    def make_dir(self, path: str) -> None:
        """Make an empty directory where directories are real."""
        operation = self._begin("make_dir", path)
        if self._disk.has_folders:
            self._add_folders(f"{self._key(path)}/")
        self._end(operation)

    def delete_tree(self, path: str) -> int:
        """Delete everything below `path`, one operation each, then its directories."""
        count = super().delete_tree(path)
        if self._disk.has_folders and path:
            operation = self._begin("remove_dirs", path)
            top = self._key(path)
            gone = {f for f in self._disk.folders if f == top or f.startswith(f"{top}/")}
            self._disk.folders -= gone
            self._end(operation)
        return count

    def _end(self, operation: Operation) -> None:
        if self._disk.has_folders and operation.name in _MAKES_FOLDERS:
            self._add_folders(operation.path)
        super()._end(operation)

    def _add_folders(self, path: str) -> None:
        folders = self._disk.folders
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]

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


def _by_path(info: ObjectInfo) -> tuple[str, bool]:
    return info.path, info.is_dir
