"""Names of data files: what a listed name says about its file group, and the names we give.

A name is parsed strictly: what every Java reader would take for a data file of a table with Parquet
or HFile base files is recognised, everything else is `None` (checksum side files, markers, metadata
files). Externally registered files are refused, because skipping them would hide rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from lakewright.errors import UnsupportedTableError

CDC_SUFFIX: Final = ".cdc"
BASE_EXTENSIONS: Final = frozenset({".parquet", ".hfile", ".orc", ".lance", ".vortex"})

_BASE = re.compile(r"([^._/][^_/]*)_([A-Za-z0-9-]+)_([0-9]+)(\.[A-Za-z0-9]+)")
_LOG = re.compile(
    r"\.([^_/]+)_([^._/]*)\.(log|archive)\.([0-9]+)(?:_([0-9]+-[0-9]+-[0-9]+)(\.cdc)?)?"
)
_EXTERNAL_ENDING = "_hudiext"


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """`<fileId>_<writeToken>_<instant><extension>`."""

    file_id: str
    write_token: str
    instant: str
    extension: str = ".parquet"

    @property
    def text(self) -> str:
        """The name as on storage."""
        return f"{self.file_id}_{self.write_token}_{self.instant}{self.extension}"


@dataclass(frozen=True, slots=True)
class LogFileName:
    """`.<fileId>_<instant>.log.<version>_<writeToken>[.cdc]`.

    `instant` is the base instant of the slice at table version 6 and the requested time of the
    writing delta commit from version 8 on. Archived-timeline logs share the shape, with an empty
    instant and the extension `.archive`.
    """

    file_id: str
    instant: str
    version: int
    write_token: str | None
    suffix: str = ""
    extension: str = ".log"

    @property
    def text(self) -> str:
        """The name as on storage."""
        token = "" if self.write_token is None else f"_{self.write_token}"
        return f".{self.file_id}_{self.instant}{self.extension}.{self.version}{token}{self.suffix}"

    @property
    def is_cdc(self) -> bool:
        """Whether the file holds change rows, which only change queries read."""
        return self.suffix == CDC_SUFFIX


def parse_data_file(name: str) -> BaseFileName | LogFileName | None:
    """What the name of a listed file says, or None if it is not a data file.

    Raises `UnsupportedTableError` for a file that was registered from outside Hudi.
    """
    if name.startswith("."):
        log = parse_log_file(name)
        return log if log is not None and log.extension == ".log" else None
    match = _BASE.fullmatch(name)
    if match is not None:
        file_id, write_token, instant, extension = match.groups()
        if extension in BASE_EXTENSIONS:
            return BaseFileName(file_id, write_token, instant, extension)
    if name.endswith(_EXTERNAL_ENDING):
        raise UnsupportedTableError(
            f"The file {name} was registered from outside Hudi.",
            hint="Rewrite the table with Hudi so that it owns all its files, then read it.",
            context={"file": name},
        )
    return None


def parse_log_file(name: str) -> LogFileName | None:
    """The name of a data log or of an archived-timeline log, or None if it is neither."""
    match = _LOG.fullmatch(name)
    if match is None:
        return None
    file_id, instant, kind, version, write_token, suffix = match.groups()
    return LogFileName(file_id, instant, int(version), write_token, suffix or "", f".{kind}")


class LogPosition(Protocol):
    """What decides the place of a log file among the others of its slice."""

    @property
    def instant(self) -> str:
        """The instant in its name."""
        ...

    @property
    def version(self) -> int:
        """Its version in the slice."""
        ...

    @property
    def write_token(self) -> str | None:
        """The task attempt that wrote it."""
        ...

    @property
    def suffix(self) -> str:
        """`.cdc` or nothing."""
        ...


def log_order_key(log: LogPosition) -> tuple[str, int, str, str]:
    """Sorts the logs of a slice into merge order, oldest first.

    Write tokens compare as plain strings, a missing one first; completion time takes no part.
    """
    return (log.instant, log.version, log.write_token or "", log.suffix)
