"""A local folder as `Storage`.

Guarantees: an object appears under its name whole and durable (temporary file on the same disk,
`fsync`, then a hard link that fails if the name is taken, or a rename that replaces); readers see
the old or the new version, never a mixture. Exactly one creator wins, also between processes.
Hadoop's checksum side file `.<name>.crc` is removed before `<name>` changes, so that a JVM never
checks new bytes against an old sum. Symbolic links are followed; paths cannot leave the root by
`..`. Listings hide only this module's own temporary files, which a crash may leave behind until
`sweep` removes them.

`replace_if_match` compares and swaps under a `flock` on the folder: safe among lakewright processes
of one machine, not against programs that do not take that lock, nor against a plain `replace` of
the same object that has waited a second for a stopped process; `guarantees.atomic_replace` is False
for this reason. File systems without hard links are refused instead of losing exclusiveness.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import stat as stat_bits
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from lakewright.errors import (
    AlreadyExistsError,
    NotFoundError,
    OutcomeUnknownError,
    PreconditionFailedError,
)
from lakewright.runtime.cancel import NEVER_CANCELLED
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.runtime.random import Random, SystemRandom
from lakewright.storage.base import Bytes, Guarantees, ObjectInfo
from lakewright.storage.local_errors import local_error
from lakewright.storage.local_files import (
    TEMPORARY_PREFIX,
    file_info,
    folder_lock,
    link_new,
    list_folder,
    make_newer,
    read_at,
    remove_checksum,
    remove_tree,
    sweep_folder,
    sync_file,
    sync_folder,
    unfinished,
    write_file,
)
from lakewright.storage.paths import checked, checked_object, checked_range

_GUARANTEES = Guarantees(
    real_directories=True,
    atomic_replace=False,
    modified_times_settable=True,
    whole_objects_only=False,
)


class LocalStorage:
    """Storage in a folder of this machine; the folder itself is made by the first create."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        unfinished: str | None = None,
    ) -> None:
        """`unfinished` is a folder below the root, on the same disk, for files that are being
        written; None is the folder that they go to."""
        self._root = os.path.abspath(os.fspath(root))  # noqa: PTH100 - keeps symbolic links
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._unfinished = f"{self._root}/{checked(unfinished)}" if unfinished else None

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    @property
    def uri(self) -> str:
        """The root as an absolute path."""
        return self._root

    @property
    def guarantees(self) -> Guarantees:
        """Real directories and settable times; see the module for replacing."""
        return _GUARANTEES

    def child(self, path: str) -> LocalStorage:
        """The same storage rooted at `path` below this root."""
        child = LocalStorage(self._at(path), clock=self._clock, random=self._random)
        child._unfinished = self._unfinished
        return child

    def read(self, path: str) -> bytes:
        """The whole object. Raises `NotFoundError`."""
        checked_object(path)
        try:
            return read_at(self._at(path), 0, None)
        except OSError as error:
            raise local_error(error, "read", path, self._root) from error

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`, fewer (or none) only at the end of the object."""
        checked_object(path)
        checked_range(path, offset, length)
        try:
            return read_at(self._at(path), offset, length)
        except OSError as error:
            raise local_error(error, "read", path, self._root) from error

    def open_input(self, path: str) -> Any:
        """A random-access `pyarrow.OSFile`; not mapped, so that a truncation cannot kill us."""
        file_path = self._at(checked_object(path))
        try:
            if stat_bits.S_ISDIR(os.stat(file_path).st_mode):  # noqa: PTH116
                raise IsADirectoryError(errno.EISDIR, "Is a directory")
            return pa.OSFile(file_path, mode="r")
        except OSError as error:
            raise local_error(error, "open", path, self._root) from error

    def create_if_absent(self, path: str, data: Bytes, *, token: str | None = None) -> ObjectInfo:  # noqa: ARG002
        """Publish a new object atomically; `AlreadyExistsError` if the name is taken.

        Outcomes are always known here, so `token` is not needed.
        """
        return self._create(path, lambda temporary: write_file(temporary, data))

    def create_from(self, path: str, write: Callable[[Any], None]) -> ObjectInfo:
        """Publish a new large object atomically from what `write(sink)` writes."""

        def fill(temporary: str) -> None:
            with pa.OSFile(temporary, mode="w") as sink:
                write(sink)
            sync_file(temporary)

        return self._create(path, fill)

    def replace(self, path: str, data: Bytes) -> ObjectInfo:
        """Publish an object atomically, whatever was there."""
        return self._replace(path, data, None)

    def replace_if_match(self, path: str, data: Bytes, etag: str) -> ObjectInfo:
        """Publish over exactly the version `etag`; `PreconditionFailedError` otherwise."""
        return self._replace(path, data, etag)

    def list(self, path: str = "") -> list[ObjectInfo]:
        """Direct children, sorted by path. Raises `NotFoundError`."""
        try:
            return list_folder(self._at(path), path)
        except OSError as error:
            raise local_error(error, "list", path, self._root) from error

    def names(self, path: str = "") -> builtins.list[str]:
        """Names of direct children, without looking at any. Raises `NotFoundError`."""
        try:
            found = os.listdir(self._at(path))  # noqa: PTH208
        except OSError as error:
            raise local_error(error, "list", path, self._root) from error
        return [name for name in found if not name.startswith(TEMPORARY_PREFIX)]

    def walk(self, path: str = "") -> Iterator[ObjectInfo]:
        """All objects below `path`, directories not included; none if the folder is missing."""
        return self._walk(checked(path), frozenset())

    def stat(self, path: str) -> ObjectInfo:
        """Size, time and version of one object. Raises `NotFoundError`."""
        try:
            return file_info(path, os.stat(self._at(path)))  # noqa: PTH116
        except OSError as error:
            raise local_error(error, "stat", path, self._root) from error

    def exists(self, path: str) -> bool:
        """Whether an object or directory is there."""
        try:
            self.stat(path)
        except NotFoundError:
            return False
        return True

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents; nothing if it is there."""
        try:
            Path(self._at(path)).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise local_error(error, "make directory", path, self._root) from error

    def delete(self, path: str) -> bool:
        """Delete one object, never a directory; whether it was there."""
        file_path = self._at(checked_object(path))
        try:
            remove_checksum(file_path)
            Path(file_path).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if Path(file_path).is_dir():
                return False
            raise local_error(error, "delete", path, self._root) from error
        return True

    def delete_tree(self, path: str, *, check: Callable[[], None] = NEVER_CANCELLED.check) -> int:
        """Delete everything below `path` and the folder itself (the root stays); how many went."""
        try:
            return remove_tree(self._at(path), keep_top=not path, check=check)
        except OSError as error:
            raise local_error(error, "delete", path, self._root) from error

    def sweep(self, path: str = "") -> int:
        """Remove temporary files directly in a folder whose writers are dead; how many."""
        try:
            return sweep_folder(self._at(path))
        except OSError as error:
            raise local_error(error, "sweep", path, self._root) from error

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the modification time."""
        stamp_ns = modified_ms * 1_000_000
        try:
            os.utime(self._at(path), ns=(stamp_ns, stamp_ns))
        except OSError as error:
            raise local_error(error, "set time", path, self._root) from error

    def _at(self, path: str) -> str:
        return f"{self._root}/{checked(path)}" if path else self._root

    def _temporary(self, folder: str) -> str:
        """Where a file of a folder is written before it gets its name; its folder is made.

        A folder that is a link to another disk keeps its own, because names do not cross disks.
        """
        waits = self._unfinished or folder
        Path(waits).mkdir(parents=True, exist_ok=True)
        if os.stat(waits).st_dev != os.stat(folder).st_dev:  # noqa: PTH116
            waits = folder
        return f"{waits}/{TEMPORARY_PREFIX}{self._random.token_hex(8)}"

    def _create(self, path: str, fill: Callable[[str], None]) -> ObjectInfo:
        """Fill a temporary file, then link it to its name, which fails if the name is taken."""
        file_path = self._at(checked_object(path))
        folder = file_path.rpartition("/")[0]
        try:
            if os.path.lexists(file_path):
                self._taken(path)
            Path(folder).mkdir(parents=True, exist_ok=True)
            with unfinished(self._temporary(folder)) as temporary:
                fill(temporary)
                if os.path.lexists(file_path):
                    self._taken(path)  # and its checksum is not ours to remove
                remove_checksum(file_path)
                # Looked at now: once it has its name, others may remove it at once.
                info = file_info(path, os.stat(temporary))  # noqa: PTH116
                if not link_new(temporary, file_path):
                    self._taken(path)
        except OSError as error:
            raise local_error(error, "create", path, self._root) from error
        self._make_durable(path, folder)
        return info

    def _replace(self, path: str, data: Bytes, etag: str | None) -> ObjectInfo:
        file_path = self._at(checked_object(path))
        folder = file_path.rpartition("/")[0]
        try:
            if etag is None:
                Path(folder).mkdir(parents=True, exist_ok=True)
            elif self._etag(file_path) != etag:
                self._mismatch(path, etag)
            with unfinished(self._temporary(folder)) as temporary:
                write_file(temporary, data)
                with folder_lock(folder, self._clock, required=etag is not None):
                    if etag is not None and self._etag(file_path) != etag:
                        self._mismatch(path, etag)
                    make_newer(temporary, file_path)
                    remove_checksum(file_path)
                    info = file_info(path, os.stat(temporary))  # noqa: PTH116
                    Path(temporary).replace(file_path)
        except OSError as error:
            raise local_error(error, "replace", path, self._root) from error
        self._make_durable(path, folder)
        return info

    def _make_durable(self, path: str, folder: str) -> None:
        """Sync the folder of an object that has got its name; not if others have removed both."""
        try:
            with contextlib.suppress(FileNotFoundError):
                sync_folder(folder)
        except OSError as error:
            raise OutcomeUnknownError(
                f"{path!r} was published, but the folder could not be made durable: {error}.",
                hint="Check the disk, then look whether the object is there before going on.",
                context={"path": path, "root": self._root},
            ) from error

    def _etag(self, file_path: str) -> str | None:
        try:
            return file_info("", os.stat(file_path)).etag  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _taken(self, path: str) -> NoReturn:
        raise AlreadyExistsError(
            f"{path!r} already exists.",
            hint="Another writer created it first; reload and decide again.",
            context={"path": path, "root": self._root},
        )

    def _mismatch(self, path: str, etag: str) -> NoReturn:
        raise PreconditionFailedError(
            f"{path!r} is not the version {etag!r} any more.",
            hint="Another writer changed it; read it again and decide again.",
            context={"path": path, "root": self._root},
        )

    def _walk(self, path: str, above: frozenset[tuple[int, int]]) -> Iterator[ObjectInfo]:
        """Depth first; `above` holds the folders entered so far, so that link loops end."""
        try:
            here = os.stat(self._at(path))  # noqa: PTH116
            if (here.st_dev, here.st_ino) in above:
                return
            children = list_folder(self._at(path), path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise local_error(error, "list", path, self._root) from error
        entered = above | {(here.st_dev, here.st_ino)}
        for child in children:
            if child.is_dir:
                yield from self._walk(child.path, entered)
            else:
                yield child
