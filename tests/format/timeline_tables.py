"""The `.hoodie` folders of every shared table, data tables and metadata tables alike."""

from __future__ import annotations

import os
import tempfile
import time
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lakewright.format.instant import Instant
from lakewright.format.properties import TableProperties, load_properties
from lakewright.format.timeline import instant_files
from lakewright.runtime.clock import ManualClock
from lakewright.storage.base import Storage
from lakewright.storage.local import LocalStorage
from tests.fixtures import SHARED, shared_tables

_FOLDER = tempfile.TemporaryDirectory(prefix="timelines-")


@dataclass(frozen=True)
class OpenTable:
    """A real table with its properties."""

    name: str
    storage: Storage
    properties: TableProperties

    def files(self) -> list[Instant]:
        """Its instant files."""
        return instant_files(self.storage, self.properties)

    def path(self, instant: Instant) -> str:
        """Where an instant file lies."""
        return f"{self.properties.timeline_folder}/{instant.file_name}"


@cache
def table_folders() -> tuple[Path, ...]:
    """Folders of all shared tables and of their metadata tables, refused ones too.

    Only what lies in `.hoodie` is unpacked, without data files, with its modification times.
    """
    found = []
    for shared in shared_tables():
        into = Path(_FOLDER.name) / Path(shared.zip).stem
        if not into.exists():
            _unzip_meta(SHARED / shared.zip, into)
        table = into / shared.table
        found += [t for t in (table, table / ".hoodie" / "metadata") if (t / ".hoodie").is_dir()]
    return tuple(found)


def _unzip_meta(archive: Path, into: Path) -> None:
    with zipfile.ZipFile(archive) as z:
        for info in z.infolist():
            parts = info.filename.split("/")
            if ".hoodie" not in parts or ".hfile" in parts[-1] or ".log." in parts[-1]:
                continue
            target = Path(z.extract(info, into))
            stamp = time.mktime((*info.date_time, 0, 0, -1))
            os.utime(target, (stamp, stamp))


@cache
def readable_tables() -> tuple[OpenTable, ...]:
    """The tables that are not refused."""
    found = []
    for folder in table_folders():
        if "_refuse" in str(folder):
            continue
        storage = LocalStorage(folder)
        metadata_table = folder.parts[-2:] == (".hoodie", "metadata")
        properties = load_properties(storage, clock=ManualClock(), metadata_table=metadata_table)
        name = str(folder.relative_to(_FOLDER.name))
        found.append(OpenTable(name, storage, properties))
    return tuple(found)
