"""From a URI to a storage, in this process or in another one.

Guarantees: `open_storage` gives a local folder or an object store behind the retry budget of its
options; `StorageRef` is the same thing to be shipped: a URI, the name of a credential provider and
options, without any secret, resolved where it is opened. The object store clients are imported only
when they are needed, and their absence says what to install.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from lakewright.errors import MissingDependencyError
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.runtime.random import Random, SystemRandom
from lakewright.storage.base import Storage
from lakewright.storage.local import LocalStorage
from lakewright.storage.options import StorageOptions
from lakewright.storage.retrying import RetryingStorage
from lakewright.storage.uri import parse_uri

__all__ = ["StorageOptions", "StorageRef", "open_storage"]


def open_storage(
    uri: str | os.PathLike[str],
    options: StorageOptions | None = None,
    *,
    clock: Clock | None = None,
    random: Random | None = None,
) -> Storage:
    """The storage rooted at `uri`: a path, `file:`, `s3:`, `s3a:`, `gs:`, `abfs(s):` or `az:`."""
    place = parse_uri(uri)
    chosen = options or StorageOptions()
    clock = clock or SystemClock()
    random = random or SystemRandom()
    if place.scheme == "file":
        return LocalStorage(place.path, clock=clock, random=random, unfinished=chosen.unfinished)
    try:
        from lakewright.storage.cloud import object_storage
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "obstore":
            raise
        raise MissingDependencyError(
            f"Tables on {place.scheme}: need the package obstore, which is not installed.",
            hint='Run: pip install "lakewright[cloud]"',
            context={"scheme": place.scheme},
        ) from error
    inner = object_storage(place, chosen, clock=clock, random=random)
    return RetryingStorage(inner, budget=chosen.retry, clock=clock, random=random)


@dataclass(frozen=True, slots=True)
class StorageRef:
    """A storage as a value that may be printed, pickled and sent to another process."""

    uri: str
    provider: str | None = None
    """Name of a credential provider; overrides the one in `options`."""
    options: StorageOptions = field(default_factory=StorageOptions)

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", str(parse_uri(self.uri)))

    def open(self, *, clock: Clock | None = None, random: Random | None = None) -> Storage:
        """The storage, with credentials found where this is called."""
        options = self.options
        if self.provider is not None:
            options = replace(options, provider=self.provider)
        return open_storage(self.uri, options, clock=clock, random=random)
