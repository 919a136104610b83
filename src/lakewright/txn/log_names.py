"""Names of new logs in a slice that others may append to at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.partitions import list_files
from lakewright.storage.base import Storage

__all__ = ["command_log_names"]

_COMMAND_TOKEN: Final = "1-0-1"  # noqa: S105 - a write token, as Hudi's rollbacks have


def command_log_names(
    storage: Storage, partition: str, file_id: str, base_instant: str
) -> Iterator[str]:
    """Names for a log with a command block, behind all logs that the slice has; the first that
    nobody else takes is the one."""
    names = (parse_data_file(file.name) for file in list_files(storage, partition))
    logs = (n for n in names if isinstance(n, LogFileName))
    taken = [n.version for n in logs if (n.file_id, n.instant) == (file_id, base_instant)]
    version = max(taken, default=0)
    while True:
        version += 1
        yield LogFileName(file_id, base_instant, version, _COMMAND_TOKEN).text
