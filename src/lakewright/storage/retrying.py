"""A storage that tries again: passing failures and lost answers of the storage below.

Guarantees: only retryable errors are tried again, within one budget per operation. A create whose
answer was lost is repeated with the same token, so that it recognises its own object; a conditional
replace whose answer was lost has succeeded if the object now holds exactly its content. What stays
unknown when the budget is spent is an `OutcomeUnknownError`. `create_from` is not repeated, since
its writer may not be able to write twice; backends repeat the parts of a large upload themselves.
A `delete` that was tried more than once answers True: its first try may have found the object.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from lakewright.errors import (
    AlreadyExistsError,
    LakewrightError,
    NotFoundError,
    OutcomeUnknownError,
    PreconditionFailedError,
    StorageError,
)
from lakewright.runtime.cancel import NEVER_CANCELLED
from lakewright.runtime.clock import Clock
from lakewright.runtime.random import Random
from lakewright.runtime.retry import RetryBudget, retry
from lakewright.storage.base import Bytes, Guarantees, ObjectInfo, Storage

T = TypeVar("T")


class RetryingStorage:
    """`inner`, with every operation tried within `budget`."""

    def __init__(
        self, inner: Storage, *, budget: RetryBudget, clock: Clock, random: Random
    ) -> None:
        self._inner = inner
        self._budget = budget
        self._clock = clock
        self._random = random

    def __repr__(self) -> str:
        return f"RetryingStorage({self._inner!r})"

    @property
    def inner(self) -> Storage:
        """The storage below."""
        return self._inner

    @property
    def uri(self) -> str:
        """The root of the storage below."""
        return self._inner.uri

    @property
    def guarantees(self) -> Guarantees:
        """What the storage below promises."""
        return self._inner.guarantees

    def child(self, path: str) -> RetryingStorage:
        """The same storage rooted at `path` below this root."""
        return RetryingStorage(
            self._inner.child(path), budget=self._budget, clock=self._clock, random=self._random
        )

    def read(self, path: str) -> bytes:
        """The whole object. Raises `NotFoundError`."""
        return self._try(lambda: self._inner.read(path))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`, fewer (or none) only at the end of the object."""
        return self._try(lambda: self._inner.read_range(path, offset, length))

    def open_input(self, path: str) -> Any:
        """A random-access `pyarrow.NativeFile`; only its opening is tried again."""
        return self._try(lambda: self._inner.open_input(path))

    def create_if_absent(self, path: str, data: Bytes, *, token: str | None = None) -> ObjectInfo:
        """Publish a new object atomically; `AlreadyExistsError` if the name is taken."""
        mine = token or self._random.token_hex()
        in_doubt: list[LakewrightError] = []
        try:
            return self._try(
                lambda: self._inner.create_if_absent(path, data, token=mine), in_doubt.append
            )
        except AlreadyExistsError:
            if not in_doubt or self.guarantees.creation_tokens:
                raise
            self._own_or_other(path, data)
        except StorageError as error:
            raise _honest(error, in_doubt, path) from error

    def create_from(self, path: str, write: Callable[[Any], None]) -> ObjectInfo:
        """Publish a new large object atomically; tried once."""
        return self._inner.create_from(path, write)

    def replace(self, path: str, data: Bytes) -> ObjectInfo:
        """Publish an object atomically, whatever was there."""
        return self._try(lambda: self._inner.replace(path, data))

    def replace_if_match(self, path: str, data: Bytes, etag: str) -> ObjectInfo:
        """Publish over exactly the version `etag`; `PreconditionFailedError` otherwise."""
        in_doubt: list[LakewrightError] = []
        try:
            return self._try(
                lambda: self._inner.replace_if_match(path, data, etag), in_doubt.append
            )
        except PreconditionFailedError:
            if in_doubt and self._holds(path, data):
                return self.stat(path)
            raise
        except StorageError as error:
            raise _honest(error, in_doubt, path) from error

    def list(self, path: str = "") -> list[ObjectInfo]:
        """Direct children, sorted by path."""
        return self._try(lambda: self._inner.list(path))

    def names(self, path: str = "") -> builtins.list[str]:
        """Names of direct children, files and folders, in no order: the cheapest listing."""
        return self._try(lambda: self._inner.names(path))

    def walk(self, path: str = "") -> Iterator[ObjectInfo]:
        """All objects below `path`; collected before the first is given, to be repeatable."""
        return iter(self._try(lambda: [*self._inner.walk(path)]))

    def stat(self, path: str) -> ObjectInfo:
        """Size, time and version of one object. Raises `NotFoundError`."""
        return self._try(lambda: self._inner.stat(path))

    def exists(self, path: str) -> bool:
        """Whether an object or directory is there."""
        return self._try(lambda: self._inner.exists(path))

    def make_dir(self, path: str) -> None:
        """Make an empty directory where directories are real; nothing elsewhere."""
        self._try(lambda: self._inner.make_dir(path))

    def delete(self, path: str) -> bool:
        """Delete one object; whether it was there, or may have been before the first try."""
        in_doubt: list[LakewrightError] = []
        found = self._try(lambda: self._inner.delete(path), in_doubt.append)
        return found or bool(in_doubt)

    def delete_tree(self, path: str, *, check: Callable[[], None] = NEVER_CANCELLED.check) -> int:
        """Delete everything below `path`; how many objects went, as far as is known."""
        return self._try(lambda: self._inner.delete_tree(path, check=check))

    def sweep(self, path: str = "") -> int:
        """Remove what dead writers left unfinished in a folder; how many, as far as is known."""
        return self._try(lambda: self._inner.sweep(path))

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the modification time, where `guarantees.modified_times_settable`."""
        self._try(lambda: self._inner.set_modified(path, modified_ms))

    def _try(
        self,
        operation: Callable[[], T],
        on_retry: Callable[[LakewrightError], None] | None = None,
    ) -> T:
        return retry(
            operation,
            budget=self._budget,
            clock=self._clock,
            random=self._random,
            on_retry=on_retry,
        )

    def _holds(self, path: str, data: Bytes) -> bool:
        try:
            return self.read(path) == bytes(data)
        except NotFoundError:
            return False

    def _own_or_other(self, path: str, data: Bytes) -> NoReturn:
        """Whose object it is, without tokens: other content is another's, equal content unknown."""
        context = {"path": path, "root": self.uri}
        if not self._holds(path, data):
            raise AlreadyExistsError(
                f"{path!r} already exists.",
                hint="Another writer created it first; reload and decide again.",
                context=context,
            )
        raise OutcomeUnknownError(
            f"{path!r} holds what was to be created, but who created it cannot be told.",
            hint="Give the content a token of its own, or use a storage that keeps tokens.",
            context=context,
        )


def _honest(error: StorageError, before: list[LakewrightError], path: str) -> StorageError:
    """The last error of several tries, unless an earlier one left the outcome open."""
    if not any(isinstance(doubt, OutcomeUnknownError) for doubt in before):
        return error
    return OutcomeUnknownError(
        f"Whether {path!r} was written cannot be told: an answer was lost, and then {error}",
        hint="Look whether the object is there before going on.",
        context=error.context,
        retryable=error.retryable,
    )
