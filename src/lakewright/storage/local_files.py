"""The system calls below `LocalStorage`, one function each. Errors are plain `OSError`s.

Guarantees: files are read through one descriptor, so that one version is seen; nothing allocates
more than the file holds, whatever length was asked for; new files are synced before they return.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from lakewright.runtime.cancel import NEVER_CANCELLED
from lakewright.runtime.clock import Clock
from lakewright.storage.base import Bytes, ObjectInfo
from lakewright.storage.paths import joined

TEMPORARY_PREFIX = ".lakewright-tmp-"

LOCK_WAIT_S = 10.0
UNCONDITIONAL_WAIT_S = 1.0

_LOCK_POLL_S = 0.002
_READ_CHUNK = 1 << 30
_FLOCK_ABSENT = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
_DIRECTORY_MODE = 0o040000
_TYPE_MASK = 0o170000


def file_info(path: str, found: os.stat_result) -> ObjectInfo:
    """What `stat` found, as an object of the storage."""
    is_dir = found.st_mode & _TYPE_MASK == _DIRECTORY_MODE
    return ObjectInfo(
        path=path,
        size=0 if is_dir else found.st_size,
        modified_ms=found.st_mtime_ns // 1_000_000,
        is_dir=is_dir,
        etag=None if is_dir else f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}",
    )


def list_folder(folder: str, path: str) -> list[ObjectInfo]:
    """Children of `folder`, sorted; names that vanish while being listed are left out."""
    found: list[ObjectInfo] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY_PREFIX):
                continue
            try:
                child = entry.stat()
            except FileNotFoundError:
                try:
                    child = entry.stat(follow_symlinks=False)  # a link to nowhere is still a name
                except FileNotFoundError:
                    continue
            found.append(file_info(joined(path, entry.name), child))
    found.sort(key=lambda info: info.path)
    return found


def read_at(file_path: str, offset: int, length: int | None) -> bytes:
    """`length` bytes from `offset`, or up to the end; never more than the file holds."""
    descriptor = os.open(file_path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        left = max(0, os.fstat(descriptor).st_size - offset)
        wanted = left if length is None else min(length, left)
        data = os.pread(descriptor, min(wanted, _READ_CHUNK), offset)
        if len(data) == wanted:
            return data
        pieces = [data]
        got = len(data)
        while got < wanted and pieces[-1]:
            pieces.append(os.pread(descriptor, min(wanted - got, _READ_CHUNK), offset + got))
            got += len(pieces[-1])
        return b"".join(pieces)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def unfinished(temporary: str) -> Iterator[str]:
    """A new empty file that nobody sweeps away while this lasts; its name is gone afterwards."""
    descriptor = _new_locked(temporary)
    try:
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        os.close(descriptor)


def _new_locked(temporary: str) -> int:
    """A descriptor of a new file that holds its lock; a sweeper may be quicker than the lock."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _FLOCK_ABSENT:
                os.close(descriptor)
                raise
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


def sweep_folder(folder: str) -> int:
    """Remove temporary files in a folder whose process is gone; how many.

    A living writer holds the lock of its file. Where files cannot be locked, nothing is removed.
    """
    removed = 0
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(folder):  # noqa: PTH208
            if name.startswith(TEMPORARY_PREFIX):
                removed += _sweep_file(f"{folder}/{name}")
    return removed


def _sweep_file(temporary: str) -> bool:
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        Path(temporary).unlink()
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _FLOCK_ABSENT or isinstance(error, FileNotFoundError):
            return False
        raise
    finally:
        os.close(descriptor)
    return True


def write_file(file_path: str, data: Bytes) -> None:
    """Fill a file with `data` and make it durable."""
    descriptor = os.open(file_path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        left = memoryview(data).cast("B")
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(file_path: str) -> None:
    """Make a written file durable."""
    _sync(file_path, os.O_RDONLY)


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot sync this kind says so
            raise
    finally:
        os.close(descriptor)


def link_new(temporary: str, file_path: str) -> bool:
    """Give a file its final name; False if the name is taken by another file."""
    try:
        try:
            Path(file_path).hardlink_to(temporary)
        except FileNotFoundError:  # others have removed the folder since it was made
            Path(file_path).parent.mkdir(parents=True, exist_ok=True)
            Path(file_path).hardlink_to(temporary)
    except FileExistsError:
        # A network file system may repeat a link whose answer was lost: two names mean it is ours.
        return os.stat(temporary).st_nlink == 2  # noqa: PTH116
    return True


def make_newer(temporary: str, file_path: str) -> None:
    """Date `temporary` after the version it is going to replace.

    Kernels stamp times in ticks of milliseconds and reuse inode numbers, so that without this two
    versions could share one etag.
    """
    with contextlib.suppress(FileNotFoundError):
        old_ns = os.stat(file_path).st_mtime_ns  # noqa: PTH116
        if os.stat(temporary).st_mtime_ns <= old_ns:  # noqa: PTH116
            os.utime(temporary, ns=(old_ns + 1, old_ns + 1))


def remove_checksum(file_path: str) -> None:
    """Remove the checksum side file that Hadoop's local file system keeps for `file_path`."""
    folder, _, name = file_path.rpartition("/")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        Path(f"{folder}/.{name}.crc").unlink()


def remove_tree(
    top: str, *, keep_top: bool, check: Callable[[], None] = NEVER_CANCELLED.check
) -> int:
    """Remove everything below `top`, links themselves and not what they point to; files removed.
    `check` is asked before each."""
    if Path(top).is_symlink() or not Path(top).is_dir():
        return 0
    removed = 0
    for folder, folders, files in os.walk(top, topdown=False):
        for name in files:
            check()
            removed += _gone(f"{folder}/{name}") and not name.startswith(TEMPORARY_PREFIX)
        for name in folders:
            inner = Path(folder, name)
            if inner.is_symlink():
                removed += _gone(str(inner))
            else:
                _remove_empty(inner)
    if not keep_top:
        _remove_empty(Path(top))
    return removed


def _gone(file_path: str) -> bool:
    try:
        Path(file_path).unlink()
    except FileNotFoundError:
        return False
    return True


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:  # somebody creates in it: let it be
            raise


@contextlib.contextmanager
def folder_lock(folder: str, clock: Clock, *, required: bool) -> Iterator[None]:
    """Keep other holders of the folder's lock out; released by the kernel if the process dies.

    A holder that was stopped is waited for a while only, and some network file systems cannot lock
    a folder: an error if `required`, no lock otherwise. Without that, a process that stands still
    while it gives a sign of life would silence all others.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            _lock(descriptor, clock, LOCK_WAIT_S if required else UNCONDITIONAL_WAIT_S)
        except OSError as error:
            if required or error.errno not in _FLOCK_ABSENT | {errno.ETIMEDOUT}:
                raise
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, clock: Clock, wait_s: float) -> None:
    deadline_s = clock.monotonic_s() + wait_s
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock.monotonic_s() >= deadline_s:
                raise TimeoutError(
                    errno.ETIMEDOUT, f"another process held the folder for {wait_s} s"
                ) from None
            clock.sleep(_LOCK_POLL_S)
