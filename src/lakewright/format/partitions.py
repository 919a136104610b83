"""Partitions by listing: which folders are partitions, which files in them are data files.

A folder is a partition if it holds a partition metadata file; without one it is invisible to every
Hudi reader that lists, and to us. Where folders are real they are walked breadth first; in object
stores one flat listing per top-level folder is cheaper than one request per folder, and gives the
same answer. A folder that vanishes while it is listed counts as empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from lakewright.codec.parquet import open_parquet
from lakewright.errors import CorruptFileError, FormatError, NotFoundError, UnsupportedTableError
from lakewright.format.file_names import BASE_EXTENSIONS
from lakewright.format.property_text import (
    date_comment,
    format_properties,
    parse_properties,
    property_offset,
)
from lakewright.storage.base import ObjectInfo, Storage

PARTITION_METADATA_FILE: Final = ".hoodie_partition_metadata"
_METADATA_FILES = tuple(PARTITION_METADATA_FILE + ending for ending in ("", ".parquet", ".orc"))
_HOODIE_FOLDER = ".hoodie"
_COMMIT_TIME = "commitTime"
_DEPTH = "partitionDepth"
_DEPTH_TEXT = re.compile(r"[0-9]{1,9}")


class ListedFile(NamedTuple):
    """A data file as a listing shows it."""

    name: str
    size: int
    modified_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """What a partition metadata file says."""

    commit_time: str | None
    """The instant that created the partition."""
    depth: int | None
    """Path segments of the partition; 0 in a table without partitions."""


def list_partitions(storage: Storage) -> list[str]:
    """Every partition path below the table's base path, sorted; `""` without partitions."""
    return sorted(list_table(storage))


def list_table(storage: Storage) -> dict[str, list[ListedFile]]:
    """Every partition with its data files, each folder listed once."""
    if storage.guarantees.real_directories:
        folders = dict(_folders_by_level(storage))
    else:
        folders = _folders_of_objects(storage)
    return {path: data_files(found) for path, found in sorted(folders.items())}


def list_files(storage: Storage, partition: str) -> list[ListedFile]:
    """The data files of one partition, sorted by name; none if the folder is missing."""
    return data_files(_children(storage, partition))


def data_files(entries: Iterable[ObjectInfo]) -> list[ListedFile]:
    """The entries of a partition folder that are data files, sorted by name.

    Checksum side files, resource forks, markers and metadata files are dropped. A kept name need
    not parse: what looks like a data file and is none is for the file-system view to report.
    """
    return sorted(
        ListedFile(e.name, e.size, e.modified_ms)
        for e in entries
        if not e.is_dir and _is_data_file(e.name)
    )


def read_partition_metadata(storage: Storage, partition: str) -> PartitionMetadata | None:
    """The metadata of a partition, or None if the folder is not a partition.

    Raises `CorruptFileError` for a file that cannot be read, `UnsupportedTableError` for ORC.
    """
    for name in _METADATA_FILES:
        path = f"{partition}/{name}" if partition else name
        try:
            data = storage.read(path)
        except NotFoundError:
            continue
        return _parse_metadata_file(data, path)
    return None


def format_partition_metadata(commit_time: str, depth: int, *, now_ms: int) -> bytes:
    """The text variant, as the JVM writes it."""
    pairs = {_COMMIT_TIME: commit_time, _DEPTH: str(depth)}
    return format_properties(pairs, ("partition metadata", date_comment(now_ms)))


def partition_depth(partition: str) -> int:
    """Path segments of a partition path."""
    return partition.count("/") + 1 if partition else 0


def _is_data_file(name: str) -> bool:
    if name.endswith(".crc") or name.startswith(("._", PARTITION_METADATA_FILE)):
        return False
    if ".log" in name:
        return True
    return "." in name and name[name.rindex(".") :] in BASE_EXTENSIONS


def _children(storage: Storage, path: str) -> list[ObjectInfo]:
    try:
        return storage.list(path)
    except NotFoundError:
        return []


def _marks_partition(name: str) -> bool:
    """Temporary metadata files count too, when their folder is listed."""
    return name.startswith(PARTITION_METADATA_FILE)


def _folders_by_level(storage: Storage) -> Iterator[tuple[str, list[ObjectInfo]]]:
    """Partition folders with their entries. Bounded by the number of folders."""
    level = [""]
    while level:
        below: list[str] = []
        for folder in level:
            entries = _children(storage, folder)
            names = {e.name for e in entries if not e.is_dir}
            if any(map(_marks_partition, names)):
                yield folder, entries
            if folder and not names.isdisjoint(_METADATA_FILES):
                continue
            below += (e.path for e in entries if e.is_dir and e.name != _HOODIE_FOLDER)
        level = below


def _folders_of_objects(storage: Storage) -> dict[str, list[ObjectInfo]]:
    top = _children(storage, "")
    folders: dict[str, list[ObjectInfo]] = {"": [e for e in top if not e.is_dir]}
    for child in top:
        if not child.is_dir or child.name == _HOODIE_FOLDER:
            continue
        for entry in storage.walk(child.path):
            folder = entry.path.rpartition("/")[0]
            folders.setdefault(folder, []).append(entry)
    closed = {
        path
        for path, entries in folders.items()
        if path and any(e.name in _METADATA_FILES for e in entries)
    }
    return {
        path: entries
        for path, entries in folders.items()
        if any(_marks_partition(e.name) for e in entries) and _is_reachable(path, closed)
    }


def _is_reachable(path: str, closed: set[str]) -> bool:
    """Whether no folder above is a partition itself, and none is a metadata folder."""
    segments = path.split("/")
    if _HOODIE_FOLDER in segments:
        return False
    return not any("/".join(segments[:depth]) in closed for depth in range(1, len(segments)))


def _parse_metadata_file(data: bytes, path: str) -> PartitionMetadata:
    if path.endswith(".orc"):
        raise UnsupportedTableError(
            "The partition metadata is an ORC file.",
            hint="Tables with ORC files are not supported; rewrite the table with Parquet files.",
            context={"path": path},
        )
    if path.endswith(".parquet"):
        pairs, at = _parquet_footer_pairs(data, path)
    else:
        pairs, at = parse_properties(data, path=path), property_offset(data, _DEPTH)
    depth = pairs.get(_DEPTH)
    if depth is not None and not _DEPTH_TEXT.fullmatch(depth):
        raise FormatError(
            f"The partition depth {depth!r} is not a number.",
            hint=f"Set {_DEPTH} to the number of folders between the table and the partition.",
            context={"path": path, "offset": at},
        )
    return PartitionMetadata(pairs.get(_COMMIT_TIME), None if depth is None else int(depth))


def _parquet_footer_pairs(data: bytes, path: str) -> tuple[dict[str, str], int]:
    """The pairs of a Parquet footer, and where it begins."""
    file = open_parquet(data, path=path)
    try:
        stored = file.metadata.metadata or {}
        pairs = {k.decode(): v.decode() for k, v in stored.items() if k != b"ARROW:schema"}
    except UnicodeDecodeError as problem:
        raise CorruptFileError(
            f"The partition metadata cannot be read: {problem}.",
            hint="The file is damaged; delete it and write the text variant in its place.",
            context={"path": path, "offset": file.footer_offset},
        ) from problem
    return pairs, file.footer_offset
