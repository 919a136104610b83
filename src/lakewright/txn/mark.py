"""The mark of our writes, and whether a table is written by nobody else.

Every commit and every inflight file of ours says who wrote it. A commit also says whether, when it
was made, all writes on the timeline were ours; so it is enough to look at what came after the
newest commit that says so. A lock is writer configuration and leaves no trace on a table: this mark
is all there is to tell whether somebody else may be writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakewright.errors import FormatError, NotFoundError
from lakewright.format.instant import COMMIT_ACTIONS, Instant, State
from lakewright.format.records.instants import load_commit_metadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage
from lakewright.txn.fence import owner_of

__all__ = ["ALONE_KEY", "WRITER_KEY", "is_alone", "marked"]

WRITER_KEY: Final = "lakewright.writer"
ALONE_KEY: Final = "lakewright.alone"
_WRITER: Final = "1"


def marked(extra: Mapping[str, str], *, alone: bool) -> dict[str, str]:
    """Extra metadata with our mark."""
    return {**extra, WRITER_KEY: _WRITER, ALONE_KEY: "true" if alone else "false"}


def is_alone(storage: Storage, properties: TableProperties, timeline: Timeline) -> bool:
    """Whether every write on the active timeline is ours."""
    for instant in reversed(timeline.filter(lambda i: i.action in COMMIT_ACTIONS).instants):
        extra = _extra(storage, properties, instant)
        if extra is None:
            continue
        if WRITER_KEY not in extra:
            return False
        if instant.completed and extra.get(ALONE_KEY) == "true":
            return True
    return True


def _extra(
    storage: Storage, properties: TableProperties, instant: Instant
) -> Mapping[str, str] | None:
    """Extra metadata of a write; None if it is gone, and so says nothing any more."""
    if instant.state is State.REQUESTED:
        ours = owner_of(storage, instant.requested_time) is not None
        return {WRITER_KEY: _WRITER} if ours else {}
    try:
        return load_commit_metadata(storage, properties, instant).extra_metadata
    except NotFoundError:
        return None
    except FormatError:
        return {}
