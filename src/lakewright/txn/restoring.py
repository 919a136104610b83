"""A restore on the timeline keeps everybody else out until it is completed.

While one is pending nothing new begins, neither a write nor a service, and nobody rolls back what
looks like a failed write: it may be one that the restore is taking back. Only the restore itself
goes on, by whichever process runs it again.
"""

from __future__ import annotations

from lakewright.errors import TableError
from lakewright.format.instant import Instant
from lakewright.format.timeline import Timeline

__all__ = ["RESTORE", "pending_restore", "refuse_restore"]

RESTORE = "restore"


def pending_restore(timeline: Timeline) -> Instant | None:
    """The restore that is not completed."""
    return timeline.filter_actions(RESTORE).pending().last()


def refuse_restore(timeline: Timeline, what: str) -> None:
    """Raise `TableError` while a restore is pending; `what` must not happen meanwhile."""
    restore = pending_restore(timeline)
    if restore is None:
        return
    raise TableError(
        f"The table is being restored ({restore.requested_time}); nothing may be {what}.",
        hint="Let the restore finish, or run it again if its process is dead: lakewright restore "
        "run.",
        context={"instant": restore.requested_time},
        retryable=True,
    )
