"""Hudi's storage-based lock: one small object, changed only by conditional writes.

`.hoodie/.locks/table_lock.json` says who owns the lock until when, or that it was given back; it is
never deleted. Hudi's `StorageBasedLockProvider` and ours exclude each other on every store whose
conditional writes hold for everybody; on others this lock refuses to work. Times are wall clocks,
as Hudi's are: a lock counts as free half a second after its time, and the holder itself stops a
second before. Every acquisition has an owner name of its own.

A conditional write may be refused although an earlier try of it succeeded, or its answer may be
lost: the object is read again, and if it has our owner name the write has happened. Where even that
cannot be told, the name is remembered, and a later attempt of this provider takes the lock over.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lakewright.errors import (
    AlreadyExistsError,
    ConfigError,
    CorruptFileError,
    LakewrightError,
    NotFoundError,
    OptionError,
    PreconditionFailedError,
)
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.runtime.random import Random, SystemRandom
from lakewright.runtime.spawn import Spawner, ThreadSpawner
from lakewright.storage.base import Storage
from lakewright.txn.locks.lock_audit import LockAudit
from lakewright.txn.locks.protocol import LockHolder
from lakewright.txn.locks.renewed import Pace, RenewedLease

__all__ = ["LOCK_PATH", "StorageLock"]

LOCK_PATH: Final = ".hoodie/.locks/table_lock.json"
_DRIFT_MS: Final = 500
_CAUTION_S: Final = 1.0
_VALIDITY_S_MIN: Final = 10.0
_RENEWALS_MIN: Final = 10


@dataclass(frozen=True, slots=True)
class _Record:
    """What the object says."""

    expired: bool
    valid_until_ms: int
    owner: str
    who: str = ""
    since_ms: int | None = None

    def encode(self) -> bytes:
        """The object's content; Hudi ignores what it does not know."""
        values: dict[str, Any] = {
            "expired": self.expired,
            "validUntil": self.valid_until_ms,
            "owner": self.owner,
            "lakewright": {"who": self.who, "sinceMs": self.since_ms},
        }
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, content: bytes, *, path: str) -> _Record:
        """The record in an object."""
        try:
            values = json.loads(content)
            expired, until, owner = values["expired"], values["validUntil"], values["owner"]
        except (ValueError, TypeError, KeyError):
            expired = until = owner = None
        if type(expired) is not bool or type(until) is not int or not isinstance(owner, str):
            raise CorruptFileError(
                "The lock object is not one that Hudi or lakewright wrote.",
                hint="Make sure that nobody writes the table, then delete the object.",
                context={"path": path},
            )
        ours = values.get("lakewright")
        ours = ours if isinstance(ours, dict) else {}
        since = ours.get("sinceMs")
        return cls(
            expired, until, owner, str(ours.get("who", "")), since if type(since) is int else None
        )


@dataclass(frozen=True, slots=True)
class _Found:
    record: _Record
    etag: str


class StorageLock:
    """The lock object of the table in `storage`."""

    def __init__(
        self,
        storage: Storage,
        *,
        validity_s: float = 300.0,
        renew_s: float = 30.0,
        clock: Clock | None = None,
        random: Random | None = None,
        spawner: Spawner | None = None,
    ) -> None:
        if not storage.guarantees.atomic_replace:
            raise ConfigError(
                f"The storage-based lock does not work in {storage.uri}: conditional writes there "
                "do not hold against other programs.",
                hint='Use the file-system lock ("file"), which Hudi has for such storage too.',
                context={"table": storage.uri},
            )
        if validity_s < _VALIDITY_S_MIN or renew_s < 1 or validity_s < _RENEWALS_MIN * renew_s:
            raise OptionError(
                f"A lock that is valid for {validity_s:g} s cannot be renewed every {renew_s:g} s.",
                hint="The validity must be at least 10 s and 10 times the renewal interval, which "
                "must be at least 1 s.",
                context={"validity_s": validity_s, "renew_s": renew_s},
            )
        self._storage = storage
        self._validity_ms = int(validity_s * 1000)
        self._pace = Pace(valid_s=validity_s - _CAUTION_S, renew_s=renew_s)
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._spawner = spawner or ThreadSpawner()
        self._doubtful: set[str] = set()
        """Owner names of locks that this provider may have obtained or failed to give back."""

    @property
    def place(self) -> str:
        """What the lock is and where."""
        return f"lock object {self._storage.uri}/{LOCK_PATH}"

    @property
    def shared(self) -> bool:
        """Other processes are excluded."""
        return True

    def try_acquire(self, who: str) -> RenewedLease | LockHolder:
        """The lock, or who is in the way."""
        begun_s = self._clock.monotonic_s()
        found = self.look()
        if found is not None and self._in_force(found.record):
            return self._holder(found.record)
        now_ms = self._clock.now_ms()
        owner = str(self._random.uuid())
        mine = _Record(False, now_ms + self._validity_ms, owner, who, now_ms)
        try:
            obtained = self.put(mine, found)
        except LakewrightError:
            self._doubtful.add(owner)
            raise
        if obtained is None:
            newer = self.look()
            return self._holder(None if newer is None else newer.record)
        if found is not None:
            self._doubtful.discard(found.record.owner)
        audit = LockAudit.opened(self._storage, owner, now_ms, self._validity_ms)
        return RenewedLease.start(
            LockHolder(who, now_ms, self.place),
            _HeldObject(self, obtained, audit),
            self._pace,
            begun_s=begun_s,
            clock=self._clock,
            spawner=self._spawner,
        )

    def held_by(self) -> LockHolder | None:
        """Who holds the lock now."""
        found = self.look()
        held = found is not None and self._in_force(found.record)
        return self._holder(found.record) if found is not None and held else None

    @property
    def clock(self) -> Clock:
        """The clock that dates the lock."""
        return self._clock

    @property
    def validity_ms(self) -> int:
        """For how long the lock is granted at a time."""
        return self._validity_ms

    def look(self) -> _Found | None:
        """The lock object as it is now; None if there is none.

        The version is read before the content, so that a write conditional on that version can only
        succeed if the content was its.
        """
        try:
            info = self._storage.stat(LOCK_PATH)
            content = self._storage.read(LOCK_PATH)
        except NotFoundError:
            return None
        return _Found(_Record.decode(content, path=LOCK_PATH), info.etag or "")

    def put(self, record: _Record, over: _Found | None) -> _Found | None:
        """Write over exactly what was found; what is there then, or None if it is not ours."""
        try:
            if over is None:
                done = self._storage.create_if_absent(
                    LOCK_PATH, record.encode(), token=record.owner
                )
            else:
                done = self._storage.replace_if_match(LOCK_PATH, record.encode(), over.etag)
        except (AlreadyExistsError, PreconditionFailedError):
            return self._ours(record)
        except LakewrightError:
            ours = self._ours(record)
            if ours is None:
                raise
            return ours
        return _Found(record, done.etag) if done.etag else self._ours(record)

    def doubt(self, owner: str) -> None:
        """Remember a lock that may not have been given back."""
        self._doubtful.add(owner)

    def _ours(self, record: _Record) -> _Found | None:
        found = self.look()
        return found if found is not None and found.record == record else None

    def _in_force(self, record: _Record) -> bool:
        if record.expired or record.owner in self._doubtful:
            return False
        return self._clock.now_ms() <= record.valid_until_ms + _DRIFT_MS

    def _holder(self, record: _Record | None) -> LockHolder:
        if record is None or record.expired:
            return LockHolder("a process that has just released it", None, self.place)
        return LockHolder(
            record.who or f"the Hudi process {record.owner}",
            record.since_ms,
            self.place,
            record.valid_until_ms,
            if_dead="it is freed by itself when its time is over; nothing needs to be deleted.",
        )


class _HeldObject:
    """Our lock object."""

    def __init__(self, lock: StorageLock, found: _Found, audit: LockAudit | None) -> None:
        self._lock = lock
        self._found = found
        self._audit = audit
        self._record("START")

    def extend(self) -> bool:
        """Grant ourselves more time."""
        until_ms = self._lock.clock.now_ms() + self._lock.validity_ms
        done = self._write(False, until_ms)
        if done:
            self._record("RENEW")
        return done

    def confirm(self) -> bool:
        """Whether the object is still ours."""
        return self._current() is not None

    def free(self, *, in_time: Callable[[], bool]) -> None:  # noqa: ARG002 - the write is conditional
        """Say that it is given back, if it is still ours."""
        try:
            if self._write(True, None):
                self._record("END")
        except LakewrightError:
            self._lock.doubt(self._found.record.owner)
            raise

    def _current(self) -> _Found | None:
        found = self._lock.look()
        mine = self._found.record.owner
        ours = found is not None and found.record.owner == mine and not found.record.expired
        return found if ours else None

    def _write(self, expired: bool, valid_until_ms: int | None) -> bool:
        """Write over our own last version, whichever that is; False: it is not ours any more."""
        found: _Found | None = self._found
        while found is not None and not found.record.expired:
            old = found.record
            until_ms = old.valid_until_ms if valid_until_ms is None else valid_until_ms
            new = _Record(expired, until_ms, old.owner, old.who, old.since_ms)
            done = self._lock.put(new, found)
            if done is not None:
                self._found = done
                return True
            found = self._current()  # another write of ours may have come in between
        return False

    def _record(self, state: str) -> None:
        if self._audit is not None:
            self._audit.record(state, self._lock.clock.now_ms(), held=state != "END")
