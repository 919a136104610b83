"""The fence of an instant: whether its tasks may still publish files.

Every task attempt asks twice, before it leaves a marker and just before a file gets its name; the
committing process closes the fence before it reconciles markers, and a rollback before it deletes.
An attempt that wakes up late therefore finds the fence closed, the instant's inflight file gone, or
both, and publishes nothing. Between the last check and the publishing itself there is a moment that
no storage can close; files that slip through it have a marker, and are looked for again after the
commit.

The fence is a file of our own below `.hoodie/.lakewright`, which Hudi never lists; it also tells
which process is behind the instant and, of a plan that may be executed again, by which attempt: the
tasks of an earlier one stay fenced. A `Fence` is a plain value and travels to tasks in other
processes.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakewright.errors import FencedError, NotFoundError
from lakewright.format.own_files import FENCE_FOLDER
from lakewright.runtime.process import ProcessIdentity
from lakewright.storage.base import Storage

__all__ = ["Fence", "claim_fence", "close_fence", "open_fence", "owner_of", "remove_fence"]

OPEN = b"open\n"
CLOSED = b"closed\n"


@dataclass(frozen=True, slots=True)
class Fence:
    """The fence of one attempt at an instant."""

    instant: str
    pending_path: str
    """The state file that is there for as long as the instant is pending: the inflight one, or the
    requested one of an instant that has no inflight file yet."""
    attempt: str = ""
    """Which attempt at the instant; empty where there is only one."""
    own: bool = False
    """Whether it is asked by the process that will commit, which then knows why it is closed: only
    a rollback does that while it still publishes. This does not travel."""

    def __reduce__(self) -> tuple[type[Fence], tuple[str, str, str]]:
        return Fence, (self.instant, self.pending_path, self.attempt)

    def check(self, storage: Storage) -> None:
        """Raise `FencedError` if the instant's files must not be published any more."""
        found = _read(storage, self.instant)
        ours = found.startswith(OPEN) and _attempt(found) == self.attempt
        if ours and storage.exists(self.pending_path):
            return
        raise FencedError(
            f"The write {self.instant} is over: this attempt must not publish anything.",
            hint="A late task attempt ended here, as it should; if the write itself failed with "
            "this, another process rolled it back, and it can be run again.",
            context={"instant": self.instant, "table": storage.uri},
            retryable=True,
        )


def open_fence(storage: Storage, instant: str, owner: ProcessIdentity, attempt: str = "") -> None:
    """Let the tasks of an attempt at an instant publish, and say which process is behind it."""
    lines = [owner.to_json(), *([attempt] if attempt else [])]
    storage.replace(_path(instant), OPEN + "\n".join(lines).encode())


def claim_fence(storage: Storage, instant: str, owner: ProcessIdentity) -> None:
    """Say which process is behind an instant from now on; nothing may be published yet."""
    storage.replace(_path(instant), CLOSED + owner.to_json().encode())


def close_fence(storage: Storage, instant: str) -> None:
    """Let no task of an instant publish any more; again is harmless."""
    found = _read(storage, instant)
    if found.startswith(OPEN):
        storage.replace(_path(instant), CLOSED + found.removeprefix(OPEN))


def remove_fence(storage: Storage, instant: str) -> None:
    """Forget an instant that is over: its fence is closed for ever."""
    storage.delete(_path(instant))


def owner_of(storage: Storage, instant: str) -> ProcessIdentity | None:
    """The process behind an instant; None if it is over, or not ours."""
    return ProcessIdentity.from_json(b"".join(_read(storage, instant).split(b"\n")[1:2]))


def _attempt(content: bytes) -> str:
    return b"".join(content.split(b"\n")[2:3]).decode(errors="replace")


def _read(storage: Storage, instant: str) -> bytes:
    try:
        return storage.read(_path(instant))
    except NotFoundError:
        return b""


def _path(instant: str) -> str:
    return f"{FENCE_FOLDER}/{instant}"
