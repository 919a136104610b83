"""The archived timeline of versions 8 and 9: Parquet files, one row per instant, with manifests.

A snapshot of the history is what one manifest lists; other files in the folder are left-overs.
`_version_` names the manifest; while a writer replaces it, the highest manifest counts. Files that
a compaction of the history removes under a reader make it start again from the newest manifest.
Rows come as columns: `requested_time`, `completion_time`, `action`, `metadata`, `plan`, the last
two being whole instant files. They are sorted by requested time; of an instant that occurs twice
the first occurrence counts. Only the asked columns are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakewright.codec.parquet import open_parquet
from lakewright.errors import CorruptFileError, NotFoundError
from lakewright.format.records.definitions import schema_json
from lakewright.format.records.json_text import format_json, parse_json
from lakewright.format.table_properties import TableProperties
from lakewright.storage.base import Storage

__all__ = [
    "HISTORY_SCHEMA",
    "HistoryFile",
    "HistorySnapshot",
    "current_history",
    "encode_history_file",
    "format_manifest",
    "history_files",
    "manifest_numbers",
    "manifest_path",
    "read_history",
    "read_manifest",
    "stored_columns",
    "version_path",
    "write_history_file",
]

HISTORY_SCHEMA: Final = pa.schema(
    [
        ("requested_time", pa.string()),
        ("completion_time", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
    ]
)
"""Columns of the history."""

TRIES: Final = 3
"""How often a reader starts again because files went away under it."""
WHOLE_FILE_BYTES_MAX: Final = 1 << 20
"""Files up to this size are read with one request."""
FILES_AT_A_TIME: Final = 8
"""Files that are read side by side: they wait for storage more than they work."""
THREADED_ROWS_MIN: Final = 1 << 16
"""Below this, starting threads costs more than they save."""

_STORED: Final = {
    "requested_time": "instantTime",
    "completion_time": "completionTime",
    "action": "action",
    "metadata": "metadata",
    "plan": "plan",
}
_VERSION_FILE = "_version_"
_MANIFEST = re.compile(r"manifest_([0-9]{1,18})")
_DATA_FILE = re.compile(r"([0-9]+)_([0-9]+)_([0-9])\.parquet")


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """One data file of the history; its name says the range of its requested times."""

    name: str
    size: int
    first: str
    last: str
    level: int

    @classmethod
    def of(cls, name: str, size: int, *, path: str = "") -> HistoryFile:
        """What a name says; `CorruptFileError` if it is no name of a data file."""
        match = _DATA_FILE.fullmatch(name)
        if match is None:
            raise _corrupt(f"names a data file {name!r} that is none", path)
        first, last, level = match.groups()
        return cls(name, size, first, last, int(level))

    def overlaps(self, begin: str | None, end: str | None) -> bool:
        """Whether instants in the closed range may be inside."""
        return (begin is None or self.last >= begin) and (end is None or self.first <= end)


# ---- manifests ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistorySnapshot:
    """The history as one manifest tells it."""

    version: int
    """The number of the manifest; 0 if there is none."""
    files: tuple[HistoryFile, ...]
    """The data files, in manifest order."""


def manifest_path(properties: TableProperties, number: int) -> str:
    """Where a manifest lies."""
    return f"{properties.history_folder}/manifest_{number}"


def version_path(properties: TableProperties) -> str:
    """Where the number of the current manifest lies."""
    return f"{properties.history_folder}/{_VERSION_FILE}"


def history_files(storage: Storage, properties: TableProperties) -> tuple[HistoryFile, ...]:
    """The data files of the newest snapshot, in manifest order; none if nothing was archived."""
    return current_history(storage, properties).files


def current_history(storage: Storage, properties: TableProperties) -> HistorySnapshot:
    """The newest snapshot; an empty one if nothing was archived."""
    version = _current_version(storage, version_path(properties))
    if version is not None:
        try:
            return HistorySnapshot(version, read_manifest(storage, properties, version))
        except NotFoundError:
            # Replaced and cleaned since `_version_` was read, or `_version_` is a left-over.
            pass
    for number in manifest_numbers(storage, properties):
        try:
            return HistorySnapshot(number, read_manifest(storage, properties, number))
        except NotFoundError:
            continue
    return HistorySnapshot(0, ())


def _current_version(storage: Storage, path: str) -> int | None:
    try:
        text = storage.read(path).strip()
    except NotFoundError:
        return None
    return int(text) if text.isdigit() and len(text) < 19 else None


def manifest_numbers(storage: Storage, properties: TableProperties) -> list[int]:
    """Numbers of the manifests that are there, the newest first."""
    try:
        listed = storage.list(properties.history_folder)
    except NotFoundError:
        return []
    matches = (_MANIFEST.fullmatch(file.name) for file in listed)
    return sorted((int(m[1]) for m in matches if m), reverse=True)


def read_manifest(
    storage: Storage, properties: TableProperties, number: int
) -> tuple[HistoryFile, ...]:
    """The data files that a manifest names, in its order. Raises `NotFoundError`."""
    path = manifest_path(properties, number)
    data = storage.read(path)
    entries = parse_json(data, path=path).get("files", []) if data else []
    if not isinstance(entries, list):
        raise _corrupt("has no list of files", path)
    return tuple(_entry(entry, path) for entry in entries)


def _entry(entry: Any, path: str) -> HistoryFile:
    name = entry.get("fileName") if isinstance(entry, Mapping) else None
    size = entry.get("fileLen", 0) if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or not isinstance(size, int):
        raise _corrupt("has an entry without file name or length", path)
    return HistoryFile.of(name, size, path=path)


def format_manifest(files: Sequence[HistoryFile]) -> bytes:
    """The text of a manifest."""
    return format_json({"files": [{"fileName": f.name, "fileLen": f.size} for f in files]})


def _corrupt(what: str, path: str) -> CorruptFileError:
    return CorruptFileError(
        f"A manifest of the archived timeline {what}.",
        hint="Restore the folder of the archived timeline from another copy of the table.",
        context={"path": path, "offset": 0},
    )


# ---- data files --------------------------------------------------------------------------------


def read_history(
    storage: Storage,
    properties: TableProperties,
    *,
    columns: Sequence[str] = ("requested_time", "completion_time", "action"),
    begin: str | None = None,
    end: str | None = None,
) -> pa.Table:
    """Archived instants requested in the closed range, with the asked columns of the history."""
    read = pa.schema([HISTORY_SCHEMA.field(n) for n in dict.fromkeys(("requested_time", *columns))])
    for attempt in range(1, TRIES + 1):
        files = [f for f in history_files(storage, properties) if f.overlaps(begin, end)]
        try:
            tables = _read_files(storage, properties.history_folder, files, read)
            break
        except NotFoundError as error:
            if attempt == TRIES:
                raise CorruptFileError(
                    "A file of the archived timeline is missing.",
                    hint="The newest manifest lists it; restore it from another copy of the table.",
                    context=error.context,
                ) from error
    whole = pa.concat_tables([read.empty_table(), *tables])
    if "completion_time" in read.names:
        whole = _with_completion_times(whole)
    return _in_range(_ordered(whole), begin, end).select(list(columns))


def _read_files(
    storage: Storage, folder: str, files: Sequence[HistoryFile], schema: pa.Schema
) -> list[pa.Table]:
    if len(files) < 2 or sum(file.size for file in files) <= WHOLE_FILE_BYTES_MAX:
        return [_read_file(storage, folder, file, schema) for file in files]
    with ThreadPoolExecutor(min(FILES_AT_A_TIME, len(files))) as pool:
        return list(pool.map(lambda file: _read_file(storage, folder, file, schema), files))


def _read_file(storage: Storage, folder: str, file: HistoryFile, schema: pa.Schema) -> pa.Table:
    path = f"{folder}/{file.name}"
    small = 0 < file.size <= WHOLE_FILE_BYTES_MAX
    source = storage.read(path) if small else storage.open_input(path)
    parquet = open_parquet(source, path=path, pre_buffer=not small)
    stored = [_STORED[name] for name in schema.names]
    if parquet.damage is not None:
        raise _unreadable(f"cannot be read: {parquet.damage}", path, parquet.footer_offset)
    try:
        threads = parquet.metadata.num_rows >= THREADED_ROWS_MIN
        table = parquet.read(columns=stored, use_threads=threads)
        if missing := set(stored).difference(table.column_names):
            raise _unreadable(f"has no column {', '.join(sorted(missing))}", path)
        table = table.select(stored).rename_columns(schema.names)
        if not table.schema.equals(schema):
            table = table.cast(schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(f"cannot be read: {error}", path, parquet.offset_of(0)) from error
    if table.num_rows != parquet.metadata.num_rows:
        told = parquet.metadata.num_rows
        raise _unreadable(f"has {table.num_rows} rows where its footer tells {told}", path)
    if table.column("requested_time").null_count:
        raise _unreadable("has a row without instant time", path)
    return table


def _with_completion_times(table: pa.Table) -> pa.Table:
    """Rows of old writers that have no completion time get their requested time."""
    completion_times = table.column("completion_time")
    if not completion_times.null_count:
        return table
    filled = pc.coalesce(completion_times, table.column("requested_time"))
    index = table.column_names.index("completion_time")
    return table.set_column(index, "completion_time", filled)


def _unreadable(what: str, path: str, offset: int = 0) -> CorruptFileError:
    return CorruptFileError(
        f"A file of the archived timeline {what}.",
        hint="Restore it from another copy of the table.",
        context={"path": path, "offset": offset},
    )


def _ordered(table: pa.Table) -> pa.Table:
    """Rows by requested time; of equal times the first one. Free if the files are in order."""
    times = table.column("requested_time")
    if len(times) < 2 or pc.all(pc.less(times[:-1], times[1:])).as_py():
        return table
    order = pc.sort_indices(
        pa.table({"time": times, "row": pa.array(range(len(times)), pa.int64())}),
        sort_keys=[("time", "ascending"), ("row", "ascending")],
    )
    table = table.take(order)
    times = table.column("requested_time")
    is_new = pa.chunked_array([[True], *pc.not_equal(times[1:], times[:-1]).chunks])
    return table.filter(is_new)


def _in_range(table: pa.Table, begin: str | None, end: str | None) -> pa.Table:
    times = table.column("requested_time")
    if begin is not None:
        table = table.filter(pc.greater_equal(times, begin))
        times = table.column("requested_time")
    return table if end is None else table.filter(pc.less_equal(times, end))


def encode_history_file(rows: pa.Table) -> bytes:
    """A data file as Hudi writes it, from rows of `HISTORY_SCHEMA` sorted by requested time."""
    sink = pa.BufferOutputStream()
    write_history_file(sink, [rows])
    return bytes(sink.getvalue())


def stored_columns() -> dict[str, str]:
    """Columns of `HISTORY_SCHEMA` by the names they have in data files."""
    return {stored: name for name, stored in _STORED.items()}


def write_history_file(sink: Any, parts: Iterable[pa.Table]) -> None:
    """Write a data file as Hudi does, from rows of `HISTORY_SCHEMA`; each part is a row group."""
    stored = pa.schema(
        [
            *(pa.field(_STORED[f.name], f.type) for f in HISTORY_SCHEMA),
            pa.field("version", pa.int32(), nullable=False),
        ]
    )
    with pq.ParquetWriter(
        sink,
        stored,
        compression="gzip",
        store_schema=False,
        version="1.0",
        data_page_version="1.0",
    ) as writer:
        for rows in parts:
            versions = pa.array([1] * rows.num_rows, pa.int32())
            table = pa.table([*rows.select(HISTORY_SCHEMA.names).columns, versions], schema=stored)
            writer.write_table(table, row_group_size=max(1, rows.num_rows))
        writer.add_key_value_metadata(
            {
                "parquet.avro.schema": schema_json("HoodieLSMTimelineInstant"),
                "writer.model.name": "avro",
            }
        )
