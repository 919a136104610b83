"""Markers: which data files an instant may have created, told before any of them exists.

No data file without a marker. Ours are empty files, one per data file, as Hudi's DIRECT markers;
those of Hudi's timeline server (`MARKERS0` and so on) are read too. What can go wrong: a marker
folder that cannot be listed is an error, never "no markers", because files would be left behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from lakewright.errors import AlreadyExistsError, FormatError, NotFoundError
from lakewright.format.table_properties import META_FOLDER
from lakewright.storage.base import Storage

__all__ = [
    "MARKER_FOLDER",
    "Marker",
    "MarkerType",
    "create_marker",
    "create_missing",
    "delete_markers",
    "marker_folder",
    "read_markers",
]

MARKER_FOLDER = f"{META_FOLDER}/.temp"
TYPE_FILE = "MARKERS.type"
SERVED_PREFIX = "MARKERS"
_INFIX = ".marker."
_CHECKSUM = ".crc"
"""Hadoop keeps a sum of every file beside it on local disks."""
_JOINED = re.compile(r"(?<=\.marker\.CREATE),|(?<=\.marker\.MERGE),|(?<=\.marker\.APPEND),")


class MarkerType(Enum):
    """What was going to happen to the data file."""

    CREATE = "CREATE"
    MERGE = "MERGE"
    APPEND = "APPEND"


@dataclass(frozen=True, slots=True, order=True)
class Marker:
    """One data file that an instant may have created."""

    partition: str
    file_name: str
    type: MarkerType

    @property
    def data_path(self) -> str:
        """The data file, below the base path."""
        return f"{self.partition}/{self.file_name}" if self.partition else self.file_name

    @property
    def text(self) -> str:
        """The marker's own name below the marker folder of its instant."""
        return f"{self.data_path}{_INFIX}{self.type.value}"

    @classmethod
    def parse(cls, text: str, *, path: str = "") -> Marker:
        """The marker of a name below the marker folder."""
        data_path, infix, kind = text.rpartition(_INFIX)
        if not infix or kind not in MarkerType.__members__:
            raise FormatError(
                f"{text!r} is not the name of a marker.",
                hint="Look into the marker folder; do not remove it before the instant is rolled "
                "back.",
                context={"path": path},
            )
        partition, _, name = data_path.rpartition("/")
        return cls(partition, name, MarkerType[kind])


def marker_folder(instant: str) -> str:
    """Where the markers of an instant are, below the base path."""
    return f"{MARKER_FOLDER}/{instant}"


def create_marker(storage: Storage, instant: str, marker: Marker) -> None:
    """Leave a marker; a repeated one is the same one."""
    try:
        storage.create_if_absent(f"{marker_folder(instant)}/{marker.text}", b"")
    except AlreadyExistsError:
        return


def create_missing(storage: Storage, instant: str, markers: Iterable[Marker]) -> None:
    """Leave those of many markers that are not there yet."""
    known = set(read_markers(storage, instant) or ())
    for marker in markers:
        if marker not in known:
            create_marker(storage, instant, marker)


def read_markers(storage: Storage, instant: str) -> list[Marker] | None:
    """All markers of an instant, sorted; None if it has no marker folder."""
    folder = marker_folder(instant)
    if storage.guarantees.real_directories and not storage.exists(folder):
        return None
    paths = [info.path for info in storage.walk(folder)]
    if not paths and not storage.guarantees.real_directories:
        return None
    found: set[Marker] = set()
    for path in paths:
        name = path.removeprefix(f"{folder}/")
        if name.endswith(_CHECKSUM):
            continue
        if _INFIX in name:
            found.add(Marker.parse(name, path=folder))
        elif name.startswith(SERVED_PREFIX) and name != TYPE_FILE:
            found.update(_served_markers(storage, path))
    return sorted(found, key=lambda m: m.text)


def _served_markers(storage: Storage, path: str) -> list[Marker]:
    """Markers that Hudi's timeline server keeps in one file, a line each.

    After a restart the server joins old lines by commas.
    """
    try:
        text = storage.read(path).decode()
    except NotFoundError:
        return []
    return [
        Marker.parse(name, path=path)
        for line in text.splitlines()
        for name in _JOINED.split(line.strip())
        if name
    ]


def delete_markers(storage: Storage, instant: str) -> None:
    """Remove the marker folder of an instant."""
    storage.delete_tree(marker_folder(instant))
