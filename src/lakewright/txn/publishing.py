"""Publishing a data file of an instant: the one order of steps for every kind of file.

The fence is asked, a marker is left, the file is written under a name that nobody lists, the fence
is asked again, the file gets its name, and the fence is asked once more: a process that stood still
between the second look and the publishing takes its own file back. A file whose answer was lost is
looked for; its name belongs to this attempt alone, so what is there is it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakewright.errors import FencedError, NotFoundError, OutcomeUnknownError
from lakewright.storage.base import ObjectInfo, Storage
from lakewright.txn.fence import Fence
from lakewright.txn.markers import Marker, create_marker
from lakewright.txn.taking_back import take_back

__all__ = ["publish_file"]


def publish_file(
    storage: Storage,
    fence: Fence,
    marker: Marker,
    write: Callable[[Any], None],
    *,
    prepare: Callable[[], None] | None = None,
) -> ObjectInfo:
    """Publish what `write(sink)` writes as the file that `marker` announces.

    `prepare` runs after the marker is there: what else the file's folder needs. Raises
    `FencedError` if the instant is over; nothing is published then.
    """
    fence.check(storage)
    create_marker(storage, fence.instant, marker)
    if prepare is not None:
        prepare()

    def fenced(sink: Any) -> None:
        write(sink)
        fence.check(storage)

    info = _created(storage, marker.data_path, fenced)
    try:
        fence.check(storage)
    except FencedError:
        take_back(storage, fence, marker)
        raise
    return info


def _created(storage: Storage, path: str, write: Callable[[Any], None]) -> ObjectInfo:
    try:
        return storage.create_from(path, write)
    except OutcomeUnknownError as error:
        try:
            return storage.stat(path)
        except NotFoundError:
            raise error from None
