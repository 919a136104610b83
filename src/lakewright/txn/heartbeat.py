"""Heartbeats: the sign that the process behind an instant still works on it.

A heartbeat is an empty file `.hoodie/.heartbeat/<instant>` whose modification time is the only
signal, as in Hudi. The owner beats in the background and judges itself by its own last beat: once
that is older than the tolerance it never beats again and must not publish, because others may have
begun to roll it back. Others are judged by the file's age, with the larger of the own tolerance and
that of the newest Hudi, so that nobody is declared dead by a stricter rule than its own.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from lakewright.errors import (
    ConflictError,
    FencedError,
    LakewrightError,
    NotFoundError,
    OptionError,
)
from lakewright.format.table_properties import META_FOLDER
from lakewright.runtime.clock import Clock
from lakewright.runtime.spawn import Spawner
from lakewright.storage.base import Storage

__all__ = [
    "HEARTBEAT_FOLDER",
    "Heartbeat",
    "HeartbeatOptions",
    "heartbeat_alive",
    "last_beat_ms",
    "stop_heartbeat",
]

HEARTBEAT_FOLDER: Final = f"{META_FOLDER}/.heartbeat"
_MISSES_OF_OTHERS: Final = 10
"""What the newest Hudi tolerates; older releases tolerate less."""
_LOOKS_PER_BEAT: Final = 10
_INTERVAL_MS_MIN: Final = 1000


@dataclass(frozen=True, slots=True)
class HeartbeatOptions:
    """How often to beat, and how many beats may be missed."""

    interval_ms: int = 60_000
    misses: int = 10

    def __post_init__(self) -> None:
        if self.interval_ms < _INTERVAL_MS_MIN or self.misses < 1:
            raise OptionError(
                f"A heartbeat every {self.interval_ms} ms with {self.misses} misses is not safe.",
                hint="Use at least 1000 ms and at least one tolerated miss.",
                context={"interval_ms": self.interval_ms, "misses": self.misses},
            )

    @property
    def tolerance_ms(self) -> int:
        """How old the own last beat may be."""
        return self.interval_ms * self.misses

    @property
    def tolerance_of_others_ms(self) -> int:
        """How old the last beat of another process may be."""
        return self.interval_ms * max(self.misses, _MISSES_OF_OTHERS)


class Heartbeat:
    """The heartbeat of an instant that this process works on."""

    def __init__(
        self, storage: Storage, instant: str, options: HeartbeatOptions, clock: Clock
    ) -> None:
        self._storage = storage
        self._instant = instant
        self._options = options
        self._clock = clock
        self._stopped = threading.Event()
        self._beat_s = 0.0

    @classmethod
    def start(
        cls,
        storage: Storage,
        instant: str,
        options: HeartbeatOptions,
        *,
        clock: Clock,
        spawner: Spawner,
    ) -> Heartbeat:
        """Beat once, then in the background until it is stopped."""
        heartbeat = cls(storage, instant, options, clock)
        heartbeat._beat()
        spawner.spawn(heartbeat._keep_beating, name=f"heartbeat-{instant}")
        return heartbeat

    def check(self) -> None:
        """Raise `FencedError` if others may take this process for dead."""
        if not self._expired() and not self._stopped.is_set():
            return
        self._stopped.set()
        raise FencedError(
            f"The write {self._instant} did not give a sign of life for too long.",
            hint="Another process may have rolled it back; nothing was published, run it again. "
            "If the process was only slow, raise hoodie.client.heartbeat.tolerable.misses.",
            context={"instant": self._instant, "tolerance_ms": self._options.tolerance_ms},
            retryable=True,
        )

    def stop(self) -> None:
        """Stop beating and remove the file."""
        self._stopped.set()
        stop_heartbeat(self._storage, self._instant)

    def is_ours(self) -> bool:
        """Whether others take this process for alive, and leave the instant to it."""
        return not self._expired() and not self._stopped.is_set()

    def leave(self) -> bool:
        """Stop beating; whether the instant was still ours, so that the file could be removed."""
        mine = self.is_ours()
        self._stopped.set()
        if mine:
            stop_heartbeat(self._storage, self._instant)
        return mine

    def after_failure(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """How what a process began to work on ends if that fails: it gives no more signs of life.

        The file stays if another process was quicker, since it may be that one's.
        """
        if isinstance(error, ConflictError):
            self._stopped.set()
        elif isinstance(error, LakewrightError):
            with suppress(LakewrightError):
                self.leave()

    def _expired(self) -> bool:
        return (self._clock.monotonic_s() - self._beat_s) * 1000 > self._options.tolerance_ms

    def _beat(self) -> None:
        begun_s = self._clock.monotonic_s()
        self._storage.replace(_path(self._instant), b"")
        self._beat_s = begun_s

    def _keep_beating(self) -> None:
        pause_s = self._options.interval_ms / 1000 / _LOOKS_PER_BEAT
        while not self._stopped.is_set():
            self._clock.sleep(pause_s)
            due_s = self._beat_s + self._options.interval_ms / 1000
            if self._stopped.is_set() or self._clock.monotonic_s() < due_s:
                continue
            if self._expired():
                self._stopped.set()
                return
            try:
                self._beat()
            except LakewrightError:
                continue  # a missed beat; the tolerance decides how many may be
            if self._stopped.is_set() and not self._expired():
                # It was stopped while the beat was on its way: leave nothing behind, unless it was
                # on its way for so long that another process beats here now.
                stop_heartbeat(self._storage, self._instant)


def heartbeat_alive(
    storage: Storage, instant: str, options: HeartbeatOptions, clock: Clock
) -> bool:
    """Whether the process behind an instant gave a sign of life lately."""
    beaten_ms = last_beat_ms(storage, instant)
    if beaten_ms is None:
        return False
    return clock.now_ms() - beaten_ms <= options.tolerance_of_others_ms


def last_beat_ms(storage: Storage, instant: str) -> int | None:
    """When the process behind an instant gave its last sign of life; None if there is none."""
    try:
        return storage.stat(_path(instant)).modified_ms
    except NotFoundError:
        return None


def stop_heartbeat(storage: Storage, instant: str) -> None:
    """Remove the file of a heartbeat whose instant is over."""
    storage.delete(_path(instant))


def _path(instant: str) -> str:
    return f"{HEARTBEAT_FOLDER}/{instant}"
