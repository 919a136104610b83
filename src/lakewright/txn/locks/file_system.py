"""Hudi's file-system lock: a file that only one can create, `<table>/.hoodie/lock`.

Hudi processes with `FileSystemBasedLockProvider` and ours exclude each other by its presence. Ours
carries a random token: a lock is released only if the file still has it, and `check` reads it
again. The file's modification time is renewed while the lock is held, so that neither side takes it
for expired. A lock is taken over by a conditional replacement of exactly the version that was
judged, so that one of several waiters wins: at once if its process is known to be dead (same
machine and boot) or if this process itself left it in doubt, after a minute if its writer never
finished the file, and after `expire_s` if that is set. We rely on three quarters of that time;
clocks may differ by the rest.

A lock is given back by deleting the file, or, where conditional replacements hold for everybody (an
object store, on which Hudi refuses this lock), by replacing it with one that says so.

Hudi's own provider is weaker, and on a local disk three things remain possible. Its exclusive
create looks first and creates second, so it may overwrite a lock file that was created in between.
Its release deletes twice, so the second delete may hit a lock obtained after the first. It deletes
what it judged expired without looking again, so it may hit the lock of whoever took over meanwhile.
All three happen within moments of each other: after obtaining the lock there we wait `settle_s` and
read the token again, and give way if it is gone. What no waiting can exclude is a Hudi process that
stood still for longer than that in the middle of one of these; `check` right before publishing
shows it, unless it wakes up between that check and the end of the publication.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from lakewright.errors import (
    AlreadyExistsError,
    LakewrightError,
    NotFoundError,
    OptionError,
    PreconditionFailedError,
)
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.runtime.events import Event, EventHook, ignore_events
from lakewright.runtime.process import Processes, SystemProcesses
from lakewright.runtime.random import Random, SystemRandom
from lakewright.runtime.spawn import Spawner, ThreadSpawner
from lakewright.storage.base import Storage
from lakewright.txn.locks.lock_file import LockFile
from lakewright.txn.locks.protocol import LockHolder
from lakewright.txn.locks.renewed import Pace, RenewedLease

__all__ = ["FileSystemLock"]

DEFAULT_PATH: Final = ".hoodie/lock"
SETTLE_S: Final = 0.05
UNFINISHED_S: Final = 60.0
"""After that time a file that its writer did not finish is nobody's: writing one takes moments."""
_RENEW_S_MAX: Final = 15.0
"""Hudi's shortest expiry is a minute, and its processes may have one where ours have none."""
_VALID_SHARE: Final = 0.75
"""What part of the expiry we rely on."""


@dataclass(frozen=True, slots=True)
class _Found:
    """One version of the lock file."""

    file: LockFile
    etag: str
    modified_ms: int


class FileSystemLock:
    """The lock file at `path` in `storage`; `expire_s` zero means that locks never expire."""

    def __init__(
        self,
        storage: Storage,
        *,
        path: str = DEFAULT_PATH,
        expire_s: float = 0.0,
        settle_s: float = SETTLE_S,
        clock: Clock | None = None,
        random: Random | None = None,
        spawner: Spawner | None = None,
        processes: Processes | None = None,
        on_event: EventHook = ignore_events,
    ) -> None:
        if expire_s < 0:
            raise OptionError(
                f"A lock cannot expire after {expire_s} s.",
                hint="Give hoodie.write.lock.filesystem.expire in minutes, 0 for never.",
            )
        self._storage = storage
        self._path = path
        self._expire_s = expire_s
        # Elsewhere files appear whole and only once, whoever writes them.
        self._settle_s = 0.0 if storage.guarantees.whole_objects_only else settle_s
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._spawner = spawner or ThreadSpawner()
        self._processes = processes or SystemProcesses()
        self._on_event = on_event
        self._doubtful: set[str] = set()
        """Tokens of locks that this provider may have obtained or failed to give back."""

    @property
    def place(self) -> str:
        """What the lock is and where."""
        return f"lock file {self._storage.uri}/{self._path}"

    @property
    def shared(self) -> bool:
        """Other processes are excluded."""
        return True

    def try_acquire(self, who: str) -> RenewedLease | LockHolder:
        """The lock, or who is in the way."""
        begun_s = self._clock.monotonic_s()
        token = self._random.token_hex()
        mine = LockFile(who, self._clock.now_ms(), token, self._processes.own)
        try:
            busy = self._put(mine) or self._settled(token)
        except LakewrightError:
            self._doubtful.add(token)
            raise
        if busy is not None:
            return busy
        limited = self._expire_s > 0
        pace = Pace(
            valid_s=self._expire_s * _VALID_SHARE if limited else None,
            renew_s=min(_RENEW_S_MAX, self._expire_s / 4) if limited else _RENEW_S_MAX,
        )
        return RenewedLease.start(
            LockHolder(who, mine.since_ms, self.place),
            _HeldFile(self, mine),
            pace,
            begun_s=begun_s,
            clock=self._clock,
            spawner=self._spawner,
        )

    def held_by(self) -> LockHolder | None:
        """Who holds the lock now; one that the next would take over is held by nobody."""
        found = self.look()
        return None if found is None or self._forfeited(found) else self._holder(found)

    def look(self) -> _Found | None:
        """The lock file as it is now; None if there is none.

        The version is read before the content, so that replacing that version can only succeed if
        the content was its.
        """
        try:
            info = self._storage.stat(self._path)
            content = self._storage.read(self._path)
        except NotFoundError:
            return None
        file = LockFile.decode(content, modified_ms=info.modified_ms)
        return _Found(file, info.etag or "", info.modified_ms)

    def holds(self, token: str | None) -> bool:
        """Whether the lock file has a token and was not given back."""
        found = self.look()
        return found is not None and found.file.token == token and not found.file.released

    def extend(self, file: LockFile) -> bool:
        """Renew the modification time if the lock file has the token."""
        found = self.look()
        if found is None or found.file != file:
            return False
        if not self._storage.guarantees.atomic_replace:
            # Other programs may act between the look and this: then their file is dated anew,
            # which costs nobody a lock, while replacing it would.
            self._storage.set_modified(self._path, self._clock.now_ms())
            return True
        try:
            self._storage.replace_if_match(self._path, file.encode(), found.etag)
        except PreconditionFailedError:
            return self.holds(file.token)
        return True

    def give_back(self, file: LockFile, *, in_time: Callable[[], bool]) -> None:
        """Free the lock if its file has the token and cannot have been granted to others."""
        try:
            if self._storage.guarantees.atomic_replace:
                self._mark_released(file)
            elif self.holds(file.token) and (not self._expire_s or in_time()):
                # Asked after the look: a process that stood still there would delete the lock of
                # whoever took it over meanwhile.
                self._storage.delete(self._path)
            # Otherwise it is left to expire: a waiter may be taking it over right now.
        except LakewrightError:
            self._doubtful.add(file.token or "")
            raise

    def _mark_released(self, file: LockFile) -> None:
        content = replace(file, released=True).encode()
        found = self.look()
        while found is not None and found.file == file:
            try:
                self._storage.replace_if_match(self._path, content, found.etag)
            except PreconditionFailedError:
                found = self.look()  # our own renewal came in between, or somebody took it over
            else:
                return

    def _put(self, mine: LockFile) -> LockHolder | None:
        """Put our lock file in place; None: it is ours."""
        try:
            self._storage.create_if_absent(self._path, mine.encode(), token=mine.token)
        except AlreadyExistsError:
            return self._take_over(mine)
        except LakewrightError:
            if not self.holds(mine.token):
                raise
        return None

    def _take_over(self, mine: LockFile) -> LockHolder | None:
        """Replace the lock file that is there, if its holder has no right to it any more."""
        found = self.look()
        reason = "" if found is None else self._forfeited(found)
        if found is None or not reason:
            return self._holder(found)
        try:
            self._storage.replace_if_match(self._path, mine.encode(), found.etag)
        except PreconditionFailedError:
            found = self.look()
            return None if found is not None and found.file == mine else self._holder(found)
        except LakewrightError:
            if not self.holds(mine.token):
                raise
        self._doubtful.discard(found.file.token or "")
        if reason != "released":
            told = f"{self.place}: {found.file.who}"
            self._on_event(Event(f"lock.takeover.{reason}", 1, path=told))
        return None

    def _settled(self, token: str) -> LockHolder | None:
        """Wait until other programs cannot harm a new lock any more; None: it is still ours."""
        if not self._settle_s:
            return None
        self._clock.sleep(self._settle_s)
        found = self.look()
        if found is not None and found.file.token == token:
            return None
        return self._holder(found)

    def _forfeited(self, found: _Found) -> str:
        """Why a lock may be taken over; empty: it may not."""
        file = found.file
        if file.released:
            return "released"
        if file.token is not None and file.token in self._doubtful:
            return "own"
        if file.process is not None and self._processes.is_dead(file.process):
            return "dead"
        age_ms = self._clock.now_ms() - found.modified_ms
        if file.unfinished and age_ms > UNFINISHED_S * 1000:
            return "unfinished"
        return "expired" if 0 < self._expire_s * 1000 < age_ms else ""

    def _holder(self, found: _Found | None) -> LockHolder:
        if found is None:
            return LockHolder("a process that has just released it", None, self.place)
        file = found.file
        process = "" if file.process is None else str(file.process)
        expires_ms = found.modified_ms + int(self._expire_s * 1000) if self._expire_s else None
        later = "wait until it expires, or " if self._expire_s else ""
        return LockHolder(
            file.who if not process or process in file.who else f"{file.who}, {process}",
            file.since_ms,
            self.place,
            expires_ms,
            if_dead=f"{later}make sure that the process is gone and delete the file. Locks of dead "
            "lakewright processes are taken over at once on the machine where they ran.",
        )


class _HeldFile:
    """Our lock file."""

    def __init__(self, lock: FileSystemLock, file: LockFile) -> None:
        self._lock = lock
        self._file = file

    def extend(self) -> bool:
        """Renew its modification time."""
        return self._lock.extend(self._file)

    def confirm(self) -> bool:
        """Whether the file still has our token."""
        return self._lock.holds(self._file.token)

    def free(self, *, in_time: Callable[[], bool]) -> None:
        """Give it back if it still has our token."""
        self._lock.give_back(self._file, in_time=in_time)
