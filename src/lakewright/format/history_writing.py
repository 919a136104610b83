"""Writing the archived timeline of version 8: files are added, joined by levels, and tidied.

Every change is a new manifest, published in two steps: `manifest_<n+1>`, then `_version_`. Until
the second step readers use the old manifest, whose files all stay. A step replaces only the version
of an object that was seen when the change began, so a process that slept through the loss of its
lock cannot undo what another one has published: it gets a `PreconditionFailedError` or an
`AlreadyExistsError`. What a crash leaves (a data file or a manifest that nothing names) is written
over by the next change, or removed by `clean_history`.

Instants are kept in files of levels, as Hudi does: a run of archiving makes a file of level 0; ten
files of a level become one of the next. Rows are copied row group by row group, never a whole file
at a time. Whoever calls holds the table's lock and gives `check`, which is asked before each step
that others can see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lakewright.codec.parquet import iter_row_groups, open_parquet
from lakewright.errors import NotFoundError
from lakewright.format.history import (
    HISTORY_SCHEMA,
    HistoryFile,
    HistorySnapshot,
    current_history,
    encode_history_file,
    format_manifest,
    manifest_numbers,
    manifest_path,
    read_manifest,
    stored_columns,
    version_path,
    write_history_file,
)
from lakewright.format.instant import Instant, State
from lakewright.format.table_properties import TableProperties
from lakewright.storage.base import Bytes, Storage

__all__ = [
    "HistoryPolicy",
    "append_history",
    "clean_history",
    "compact_history",
    "files_to_join",
    "history_row",
    "history_table",
]

LEVEL_MAX: Final = 9
"""The level is one digit of a file's name."""
_DATA_FILE = re.compile(r"[0-9]+_[0-9]+_[0-9]\.parquet")
_PLANNED: Final = {
    "compaction": (State.REQUESTED,),
    "logcompaction": (State.REQUESTED,),
    "clean": (State.REQUESTED, State.INFLIGHT),
    "replacecommit": (State.INFLIGHT, State.REQUESTED),
    "clustering": (State.INFLIGHT, State.REQUESTED),
}
"""Which state files hold the plan of an action; the first that is not empty counts."""
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class HistoryPolicy:
    """When files are joined, and how many manifests stay for slow readers."""

    join_files: int = 10
    """So many files of a level become one of the next."""
    join_bytes: int = 1000 << 20
    """A join takes no further file once it has more than this."""
    manifests_kept: int = 3


# ---- rows --------------------------------------------------------------------------------------


def history_row(
    instant: Instant, states: Mapping[str, Instant], read: Callable[[str], bytes]
) -> dict[str, Any]:
    """The row of a completed instant.

    `states` are the state files of the instant that are there and not empty, by name; `read` gives
    their bytes, which are kept as they are.
    """
    plan = next(
        (
            name
            for action, wanted in _PLANNED.items()
            for state in wanted
            for name, file in states.items()
            if (file.action, file.state) == (action, state)
        ),
        None,
    )
    return {
        "requested_time": instant.requested_time,
        "completion_time": instant.completion_time,
        "action": instant.completed_action,
        "metadata": read(instant.file_name) if instant.file_name in states else None,
        "plan": None if plan is None else read(plan),
    }


def history_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as columns, sorted by requested time."""
    ordered = sorted(rows, key=lambda row: (row["requested_time"], row["action"]))
    return pa.Table.from_pylist(ordered, schema=HISTORY_SCHEMA)


# ---- publishing --------------------------------------------------------------------------------


def append_history(
    storage: Storage, properties: TableProperties, rows: pa.Table, *, check: Check
) -> HistoryFile:
    """Add rows, sorted by requested time and at least one, as a file of level 0."""
    step = _Step.begin(storage, properties)
    times = rows.column("requested_time")
    name = step.free_name(times[0].as_py(), times[-1].as_py(), 0)
    data = encode_history_file(rows)
    path = f"{properties.history_folder}/{name}"
    seen = _etag(storage, path)
    check()
    _put(storage, path, data, seen)
    file = HistoryFile.of(name, len(data))
    step.publish((*step.current.files, file), check)
    return file


@dataclass(frozen=True, slots=True)
class _Step:
    """One change of the history, from what was seen when it began."""

    storage: Storage
    properties: TableProperties
    current: HistorySnapshot
    number: int
    version_etag: str | None
    manifest_etag: str | None

    @classmethod
    def begin(cls, storage: Storage, properties: TableProperties) -> _Step:
        version_etag = _etag(storage, version_path(properties))
        current = current_history(storage, properties)
        number = current.version + 1
        leftover = _etag(storage, manifest_path(properties, number))
        return cls(storage, properties, current, number, version_etag, leftover)

    def free_name(self, first: str, last: str, level: int) -> str:
        """A name that the current manifest does not have, of the lowest level from `level` on."""
        taken = {file.name for file in self.current.files}
        names = (f"{first}_{last}_{n}.parquet" for n in range(level, LEVEL_MAX + 1))
        return next(name for name in names if name not in taken)

    def publish(self, files: Sequence[HistoryFile], check: Check) -> None:
        manifest = manifest_path(self.properties, self.number)
        check()
        _put(self.storage, manifest, format_manifest(files), self.manifest_etag)
        check()
        version = str(self.number).encode()
        _put(self.storage, version_path(self.properties), version, self.version_etag)


def _etag(storage: Storage, path: str) -> str | None:
    try:
        return storage.stat(path).etag
    except NotFoundError:
        return None


def _put(storage: Storage, path: str, data: Bytes, seen: str | None) -> None:
    """Publish an object over the version that was seen, or where none was."""
    if seen is None:
        storage.create_if_absent(path, data)
    else:
        storage.replace_if_match(path, data, seen)


# ---- levels ------------------------------------------------------------------------------------


def files_to_join(
    files: Sequence[HistoryFile], level: int, policy: HistoryPolicy
) -> tuple[HistoryFile, ...]:
    """The files of a level that become one of the next, by name; none if it is not time yet."""
    of_level = sorted((f for f in files if f.level == level), key=lambda f: f.name)
    if len(of_level) < policy.join_files or level >= LEVEL_MAX:
        return ()
    taken: list[HistoryFile] = []
    size = 0
    for file in of_level:
        taken.append(file)
        size += file.size
        if len(taken) >= policy.join_files:
            break
        if size > policy.join_bytes:
            if len(taken) > 1:
                break
            # A file that is large enough by itself stays as it is.
            taken, size = [], 0
    return tuple(taken) if len(taken) > 1 else ()


def compact_history(
    storage: Storage, properties: TableProperties, policy: HistoryPolicy, *, check: Check
) -> int:
    """Join the files of each level that has enough, from level 0 up; how many levels had."""
    for level in range(LEVEL_MAX + 1):
        step = _Step.begin(storage, properties)
        taken = files_to_join(step.current.files, level, policy)
        if not taken:
            return level
        _join(step, taken, level + 1, check)
    return LEVEL_MAX


def _join(step: _Step, taken: Sequence[HistoryFile], level: int, check: Check) -> None:
    storage, folder = step.storage, step.properties.history_folder
    name = step.free_name(min(f.first for f in taken), max(f.last for f in taken), level)
    path = f"{folder}/{name}"
    # In manifest order, because of an instant that occurs twice the first occurrence counts.
    ordered = [file for file in step.current.files if file in taken]

    def write(sink: Any) -> None:
        parts = (rows for file in ordered for rows in _row_groups(storage, folder, file))
        write_history_file(sink, parts)
        check()

    if storage.exists(path):  # What a crash left; nothing names it.
        check()
        storage.delete(path)
    made = HistoryFile.of(name, storage.create_from(path, write).size)
    files = [made if file == ordered[0] else file for file in step.current.files]
    step.publish([file for file in files if file not in taken], check)


def _row_groups(storage: Storage, folder: str, file: HistoryFile) -> Iterator[pa.Table]:
    path = f"{folder}/{file.name}"
    parquet = open_parquet(storage.open_input(path), path=path)
    names = stored_columns()
    for _, batches in iter_row_groups(parquet, path=path, columns=list(names)):
        if found := list(batches):
            rows = pa.Table.from_batches(found).select(list(names))
            yield rows.rename_columns(list(names.values())).cast(HISTORY_SCHEMA)


def clean_history(storage: Storage, properties: TableProperties, *, kept: int, check: Check) -> int:
    """Remove all but the newest `kept` manifests, and data files that none of them names.

    How many objects went. Manifests go first: a reader that held an old one begins again with the
    newest as soon as a file is missing.
    """
    current = current_history(storage, properties).version
    numbers = [n for n in manifest_numbers(storage, properties) if n <= current]
    old = sorted(numbers[kept:])
    if not old:
        return 0
    named = {f.name for n in numbers[:kept] for f in read_manifest(storage, properties, n)}
    folder = properties.history_folder
    unnamed = [
        info.path
        for info in storage.list(folder)
        if _DATA_FILE.fullmatch(info.name) and info.name not in named
    ]
    check()
    return sum(
        storage.delete(path) for path in (*(manifest_path(properties, n) for n in old), *unnamed)
    )
