"""Errors of the object store client as storage errors.

Guarantees: the client's text is cut to its first line and freed of query strings and documents,
because signed URLs and access keys appear there; the original error is not chained for the same
reason. Client errors (4xx) are final, everything else that is not understood may pass.
"""

from __future__ import annotations

import re

from obstore import exceptions as client

from lakewright.errors import (
    AlreadyExistsError,
    NotFoundError,
    OutcomeUnknownError,
    PreconditionFailedError,
    StorageDeniedError,
    StorageError,
    StorageUnavailableError,
)

_STATUS = re.compile(r"status code: (\d{3})")
_QUERY = re.compile(r"\?[^\s\"')]*")
_PASSING_STATUS = {"408", "409", "425", "429"}
_DENIED_STATUS = {"401", "403"}
_REASON_CHARS_MAX = 300

CLIENT_ERRORS: tuple[type[Exception], ...] = (client.BaseError, FileNotFoundError)
"""What the client may raise (its not-found error is a builtin one)."""


def object_error(
    error: Exception, operation: str, path: str, root: str, *, unknown_if_lost: bool = False
) -> StorageError:
    """The storage error that `error` means for `operation` on `path` below `root`.

    `unknown_if_lost`: a failure that may pass leaves the outcome of this operation unknown.
    """
    kind, hint, retryable = _meaning(error, unknown_if_lost)
    return kind(
        f"Cannot {operation} {path!r}: {_reason(error)}",
        hint=hint,
        context={"path": path, "root": root},
        retryable=retryable,
    )


def _meaning(error: Exception, unknown_if_lost: bool) -> tuple[type[StorageError], str, bool]:
    """Kind, hint and whether a retry may help."""
    status = _STATUS.search(str(error))
    code = status[1] if status else ""
    if isinstance(error, FileNotFoundError | client.NotFoundError) or code == "404":
        return NotFoundError, "Check the bucket and the path.", False
    if isinstance(error, client.AlreadyExistsError):
        return AlreadyExistsError, "Another writer created it first; decide again.", False
    if isinstance(error, client.PreconditionError):
        return PreconditionFailedError, "Another writer changed it; read it again.", False
    if (
        isinstance(error, client.PermissionDeniedError | client.UnauthenticatedError)
        or code in _DENIED_STATUS
    ):
        return StorageDeniedError, "Check the credential provider and the bucket's policy.", False
    final = code.startswith("4") and code not in _PASSING_STATUS
    if final or not isinstance(error, client.GenericError | client.JoinError):
        return StorageError, "Check endpoint, region and options of the storage.", False
    if unknown_if_lost:
        return OutcomeUnknownError, "Repeat it with the same token to learn the outcome.", True
    return StorageUnavailableError, "Check the network and the store, then try again.", True


def _reason(error: Exception) -> str:
    first_line = str(error).partition("\n")[0].partition("<")[0]
    return _QUERY.sub("?...", first_line)[:_REASON_CHARS_MAX].rstrip(": ") + "."
