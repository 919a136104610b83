"""Watching a lock file and a timeline: who commits inside whose critical section.

`Watcher` looks at both again and again, without code of the product. Where two looks in a row find
one and the same lock file before and after listing the timeline, its holder had the lock from the
first to the last of these moments, and every commit that came in between was made inside its
critical section. `WatchedLock` is our lock with an eye on it: what was committed while we held it,
and whether it was still ours at the end.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from interop.instants import completed_writes
from lakewright.errors import LockLostError
from lakewright.runtime import Event
from lakewright.txn.locks import Lease, LockHolder, LockProvider

PAUSE_S = 0.002
ABANDONED = "times lock.takeover.unfinished"
"""Lock files that a JVM began and left empty; told also if there were none."""


@dataclass
class Findings:
    """What happened, and what should not have."""

    counts: Counter[str] = field(default_factory=lambda: Counter({ABANDONED: 0}))
    problems: list[str] = field(default_factory=list)

    def heard(self, event: Event) -> None:
        """Count what the lock tells: locks that nobody owned were taken over."""
        self.counts[f"times {event.kind}"] += 1

    def told(self, title: str) -> bool:
        """Print it; whether all was right."""
        print(title)
        for label, count in sorted(self.counts.items()):
            print(f"  {count} {label}")
        for problem, count in Counter(self.problems).most_common(10):
            print(f"  FAILED {count} times: {problem}")
        return not self.problems


def completed(table: Path) -> frozenset[str]:
    """Requested times of the completed writes of a table."""
    return frozenset(instant.requested for instant in completed_writes(table))


# -- from outside -------------------------------------------------------------------------------


@dataclass(frozen=True)
class LockSeen:
    """One lock file: equal only if nobody touched it."""

    inode: int
    modified_ns: int
    content: bytes

    @property
    def ours(self) -> bool:
        """Whether lakewright wrote it."""
        try:
            return "lakewright" in json.loads(self.content)
        except ValueError:
            return False


def look_at_lock(path: Path) -> LockSeen | None:
    """The lock file as it is now; None if there is none."""
    try:
        found = path.stat()
        return LockSeen(found.st_ino, found.st_mtime_ns, path.read_bytes())
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class Inside:
    """A write that was committed while somebody held the lock."""

    instant: str
    lock_is_ours: bool


class Watcher:
    """Looks until it is told to stop."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.inside: list[Inside] = []
        self.looks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        lock = self.table / ".hoodie" / "lock"
        seen, known = look_at_lock(lock), completed(self.table)
        held = look_at_lock(lock) if seen is not None else None
        while not self._stop.is_set():
            time.sleep(PAUSE_S)
            before = look_at_lock(lock)
            now = completed(self.table)
            after = look_at_lock(lock)
            if after is not None and seen == held == before == after:
                self.inside += [Inside(instant, after.ours) for instant in now - known]
            seen, held, known = before, after, now
            self.looks += 1


# -- from inside --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """One time that we held the lock."""

    committed: frozenset[str]
    """What was committed meanwhile, by anybody."""
    lost: bool
    """Whether the lock was not ours any more at the end."""


class WatchedLock:
    """A lock that keeps what was committed while it was held; each hold lasts a little longer."""

    def __init__(self, lock: LockProvider, table: Path, linger_s: Callable[[], float]) -> None:
        self._lock = lock
        self._table = table
        self._linger_s = linger_s
        self.held: list[Held] = []

    @property
    def place(self) -> str:
        """That of the lock."""
        return self._lock.place

    @property
    def shared(self) -> bool:
        """As the lock."""
        return self._lock.shared

    def try_acquire(self, who: str) -> Lease | LockHolder:
        """The lock, or who is in the way."""
        lease = self._lock.try_acquire(who)
        if isinstance(lease, LockHolder):
            return lease
        return _WatchedLease(self, lease, completed(self._table))

    def over(self, lease: Lease, before: frozenset[str]) -> None:
        """The end of a hold, just before it is given back."""
        time.sleep(self._linger_s())
        meanwhile = completed(self._table) - before
        try:
            lease.check()
            self.held.append(Held(meanwhile, lost=False))
        except LockLostError:
            self.held.append(Held(meanwhile, lost=True))


class _WatchedLease:
    def __init__(self, lock: WatchedLock, lease: Lease, before: frozenset[str]) -> None:
        self._lock = lock
        self._lease = lease
        self._before = before
        self._over = False

    @property
    def holder(self) -> LockHolder:
        """Us."""
        return self._lease.holder

    def check(self) -> None:
        """Whether it is surely still ours."""
        self._lease.check()

    def release(self) -> None:
        """Give it back, once what happened meanwhile is kept."""
        if not self._over:
            self._over = True
            self._lock.over(self._lease, self._before)
        self._lease.release()
