"""State files of instants: the only code that creates or removes one.

Every creation is exclusive; a name that is taken means that somebody else did the same, and is a
`ConflictError`, never success. A creation whose answer was lost is resolved by a token of its own.
Removing what is gone already is no error. Nothing here decides anything: callers hold the lock and
have looked at the timeline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakewright.errors import AlreadyExistsError, ConflictError
from lakewright.format.instant import Instant, State, format_instant_name
from lakewright.format.records.instants import instant_path
from lakewright.format.table_properties import TableProperties
from lakewright.runtime.random import Random
from lakewright.storage.base import Storage

__all__ = ["InstantFiles"]


@dataclass(frozen=True, slots=True)
class InstantFiles:
    """The state files on the timeline of one table."""

    storage: Storage
    properties: TableProperties
    random: Random

    def path(
        self, instant: str, action: str, state: State, *, completion_time: str | None = None
    ) -> str:
        """Where the state file of an instant lies."""
        name = format_instant_name(
            instant,
            action,
            state,
            layout=self.properties.version.layout_version,
            completion_time=completion_time,
        )
        return instant_path(self.properties, name)

    def request(self, instant: str, action: str, content: bytes = b"") -> None:
        """Put an instant on the timeline."""
        self._create(self.path(instant, action, State.REQUESTED), content, instant)

    def start(self, instant: str, action: str, content: bytes = b"") -> None:
        """Let a requested instant become inflight."""
        self._create(self.path(instant, action, State.INFLIGHT), content, instant)

    def complete(self, instant: str, action: str, content: bytes, completion_time: str) -> str:
        """Commit an inflight instant; the path of its completed file."""
        named = self.properties.version.completion_time_in_name
        path = self.path(
            instant,
            action,
            State.COMPLETED,
            completion_time=completion_time if named else None,
        )
        self._create(path, content, instant)
        return path

    def remove(self, instant: str, action: str) -> None:
        """Take a pending instant off the timeline, the higher state first."""
        self.storage.delete(self.path(instant, action, State.INFLIGHT))
        self.storage.delete(self.path(instant, action, State.REQUESTED))

    def withdraw(self, instant: str, action: str) -> None:
        """Let an inflight plan be only requested again."""
        self.storage.delete(self.path(instant, action, State.INFLIGHT))

    def drop(self, file: Instant) -> bool:
        """Remove one state file, as a listing showed it; whether it was there."""
        return self.storage.delete(instant_path(self.properties, file.file_name))

    def unpublish(
        self, completed: Instant, action: str, inflight: bytes, check: Callable[[], None]
    ) -> None:
        """Let a completed instant be inflight again, at the one moment its completed file goes.

        `action` is the one that it has while it is pending; `inflight` is what its inflight file
        says, if it has none any more. `check` is the last look at the lock before each change.
        """
        for state, content in ((State.REQUESTED, b""), (State.INFLIGHT, inflight)):
            path = self.path(completed.requested_time, action, state)
            if not self.storage.exists(path):
                check()
                self._create(path, content, completed.requested_time)
        check()
        self.drop(completed)

    def _create(self, path: str, content: bytes, instant: str) -> None:
        try:
            self.storage.create_if_absent(path, content, token=self.random.token_hex())
        except AlreadyExistsError as error:
            raise ConflictError(
                f"Another process has already created {path.rpartition('/')[2]}.",
                hint="Two processes work on the same instant; look at the timeline and run the "
                "operation again.",
                context={"instant": instant, "path": path, "table": self.storage.uri},
                retryable=True,
            ) from error
