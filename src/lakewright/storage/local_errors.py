"""Operating system errors as storage errors: what failed, what it means, what to do.

Guarantees: every `OSError` becomes a `StorageError` that names the operation, the path and the
root; passing failures are retryable, a full or read-only disk is not.
"""

from __future__ import annotations

import errno

from lakewright.errors import (
    NotFoundError,
    StorageDeniedError,
    StorageError,
    StorageUnavailableError,
)

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PASSING = {errno.EIO, errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE}
_NO_LINKS = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


def local_error(error: OSError, operation: str, path: str, root: str) -> StorageError:
    """The storage error that `error` means for `operation` on `path` below `root`."""
    kind, hint, retryable = _meaning(error.errno, operation)
    reason = error.strerror or str(error)
    return kind(
        f"Cannot {operation} {path!r}: {reason}.",
        hint=hint,
        context={"path": path, "root": root},
        retryable=retryable,
    )


def _meaning(code: int | None, operation: str) -> tuple[type[StorageError], str, bool]:
    """Kind, hint and whether a retry may help."""
    if code in _ABSENT and operation in {"read", "open", "list", "stat", "set time"}:
        return NotFoundError, "Check the path; another process may have deleted it.", False
    if code in _ABSENT or code == errno.EEXIST:
        return StorageError, "A file stands where a folder is needed, or the reverse.", False
    if code == errno.EROFS:
        return StorageDeniedError, "The file system is mounted read-only; write elsewhere.", False
    if code in _DENIED:
        return StorageDeniedError, "Check owner and permissions of the file and its folder.", False
    if code in _FULL:
        return StorageError, "Free space or raise the quota, then run it again.", False
    if code in _NO_LINKS:
        hint = "This file system has no hard links; keep tables on one that has, or on an object"
        return StorageError, f"{hint} store.", False
    if code == errno.ENAMETOOLONG:
        return StorageError, "Use shorter partition values or a shorter table path.", False
    if code in _PASSING:
        return StorageUnavailableError, "Check the disk or network mount, then try again.", True
    return StorageError, "Check the disk and the path.", False
