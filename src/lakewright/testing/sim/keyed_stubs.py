"""Keyed writes without data work: planner, guards and writer are real, their files are stubs.

While `stubbed_files` is open, base files of keyed writes are the stub files of `stub_rows`, log
files have one real block of such lines, and keys are looked up in them. A deleted row of a log is a
line with no value. The value of a row is its versions one behind the other, oldest first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakewright.engine.base_file import Filled, NewVersion
from lakewright.engine.keyed import group_work, insert_guard, log_writer, planning, tagging
from lakewright.engine.keyed.base_merge import Changes, MergeRules
from lakewright.engine.keyed.log_writer import LogEntries
from lakewright.engine.keyed.lookup import Hits
from lakewright.engine.scan import Scan
from lakewright.engine.scan_plan import partition_may_match
from lakewright.engine.snapshot import Snapshot
from lakewright.engine.write_context import RECORD_KEY, WriteContext, WriteToken
from lakewright.format.file_names import BaseFileName
from lakewright.format.file_slices import BaseFile, FileSlice
from lakewright.format.log_block import LogBlock, read_blocks
from lakewright.format.log_scan import select_blocks
from lakewright.format.partitions import list_table
from lakewright.format.records import WriteStat
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.format.view_inputs import block_visibility, load_view
from lakewright.merge.columns import Int64s
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.clock import Clock
from lakewright.storage.base import Storage
from lakewright.testing.sim.keyed_model import BETWEEN, Place, passes
from lakewright.testing.sim.stub_rows import base_content, log_content, rows_of_base
from lakewright.txn.markers import MarkerType

__all__ = ["VALUE", "filtered_keys", "keyed_rows", "stubbed_files"]

VALUE = "value"
"""The column that is kept, besides the key."""


@contextmanager
def stubbed_files() -> Iterator[None]:
    """Keyed writes read and write stub files."""
    places: tuple[tuple[Any, str, Any], ...] = (
        (tagging, "KeyLookup", _Lookup),
        (insert_guard, "KeyLookup", _Lookup),
        (planning, "LogLookup", _LogLookup),
        (group_work, "merge_into_base_file", _merge),
        (group_work, "write_base_files", _create),
        (log_writer, "_stamped", _unstamped),
        (log_writer, "_blocks", _blocks),
    )
    before = [getattr(module, name) for module, name, _ in places]
    for module, name, stub in places:
        setattr(module, name, stub)
    try:
        yield
    finally:
        for (module, name, _), real in zip(places, before, strict=True):
            setattr(module, name, real)


# ---- reading -----------------------------------------------------------------------------------


def keyed_rows(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> list[tuple[Place, str]]:
    """Every row that a reader who pinned `timeline` sees; a key may be there several times."""
    view = load_view(storage, properties, timeline, listing=list_table(storage))
    found: list[tuple[Place, str]] = []
    for slice_ in view.latest_merged_slices():
        rows = _slice_rows(storage, properties, timeline, slice_)
        found += [((slice_.group.partition, key), value) for key, value in rows.items()]
    return found


def _slice_rows(
    storage: Storage, properties: TableProperties, timeline: Timeline, slice_: FileSlice
) -> dict[str, str]:
    rows: dict[str, str] = {}
    if slice_.base is not None:
        rows.update(rows_of_base(storage.read(slice_.base.path)))
    blocks: list[LogBlock] = []
    for log in slice_.logs:
        blocks += read_blocks(storage.read(log.path), path=log.path)
    visible = block_visibility(properties, timeline)
    for block in select_blocks(blocks, is_visible=visible, latest=None).blocks:
        for line in bytes(block.content).splitlines():
            _put(rows, *json.loads(line))
    return rows


def _put(rows: dict[str, str], key: str, value: str | None) -> None:
    """A newer version of a row."""
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = f"{rows[key]}{BETWEEN}{value}" if key in rows else value


class _Lookup:
    """Distinct keys, to be looked for in stub files."""

    def __init__(self, storage: Storage, keys: pa.Array, **_: object) -> None:
        self._storage = storage
        self._codes = {key: code for code, key in enumerate(keys.to_pylist())}

    def __len__(self) -> int:
        return len(self._codes)

    def in_file(self, number: int, base: BaseFile) -> Iterator[Hits]:
        """Places of the keys in one file."""
        there = rows_of_base(self._storage.read(base.path))
        found = [(self._codes[k], at) for at, k in enumerate(there) if k in self._codes]
        if found:
            codes, positions = zip(*found, strict=True)
            yield Hits(
                np.array(codes, np.int32),
                np.full(len(found), number, np.int32),
                np.array(positions, np.int64),
            )


@dataclass(frozen=True, slots=True)
class _LogLookup:
    """Looks for keys in the logs of stub slices."""

    snapshot: Snapshot
    registry: MergerRegistry

    def living(self, keys: pa.Array, slice_: FileSlice) -> Int64s:
        """Which of the keys live in the logs."""
        return self.answer(keys, slice_, whole=False)

    def answer(self, keys: pa.Array, slice_: FileSlice, *, whole: bool) -> Int64s:
        """Which of the keys live in the slice, or in its logs."""
        snapshot, asked = self.snapshot, slice_ if whole else replace(slice_, base=None)
        there = _slice_rows(snapshot.storage, snapshot.properties, snapshot.timeline, asked)
        found = [code for code, key in enumerate(keys.to_pylist()) if key in there]
        return np.array(found, np.int64)


def filtered_keys(scan: Scan) -> Iterator[pa.RecordBatch]:
    """Key and partition columns of the rows that pass the filter of deletes."""
    snapshot = scan.snapshot
    found = keyed_rows(snapshot.storage, snapshot.properties, snapshot.timeline)
    chosen = [
        place
        for place, value in found
        if passes(value) and partition_may_match(place[0], snapshot, scan.where)
    ]
    keys, paths = ([place[n] for place in chosen] for n in (1, 0))
    arrays = [pa.array(keys, pa.string()), pa.array(paths, pa.string())]
    yield pa.RecordBatch.from_arrays(arrays, names=list(scan.columns))


# ---- writing -----------------------------------------------------------------------------------


def _values(rows: pa.RecordBatch) -> dict[str, str]:
    keys, values = rows.column(RECORD_KEY).to_pylist(), rows.column(VALUE).to_pylist()
    return dict(zip(keys, values, strict=True))


def _publish(
    storage: Storage,
    context: WriteContext,
    file_id: str,
    partition: str,
    token: WriteToken,
    clock: Clock,
    previous: BaseFile | None,
    change: Mapping[str, str | None],
) -> WriteStat:
    file = NewVersion(
        context, partition, BaseFileName(file_id, str(token), context.instant), token.task, None
    )

    def fill(sink: Any) -> Filled:
        old = {} if previous is None else rows_of_base(storage.read(previous.path))
        rows = dict(old)
        for key, value in change.items():
            _put(rows, key, value)
        sink.write(base_content(rows))
        updated = [k for k in rows if k in old and change.get(k) is not None]
        return Filled(len(rows), len(rows.keys() - old), len(updated), len(old.keys() - rows))

    kind = MarkerType.CREATE if previous is None else MarkerType.MERGE
    return file.publish(storage, fill, kind, clock, previous=previous)


def _merge(
    storage: Storage,
    context: WriteContext,
    _rules: MergeRules,
    *,
    partition: str,
    base: BaseFile,
    changes: Changes,
    token: WriteToken,
    clock: Clock,
    **_: object,
) -> WriteStat:
    gone = [] if changes.deleted_keys is None else changes.deleted_keys.to_pylist()
    change = {**_values(changes.rows), **dict.fromkeys(gone)}
    return _publish(storage, context, base.file_id, partition, token, clock, base, change)


def _create(
    storage: Storage,
    context: WriteContext,
    *,
    partition: str,
    file_id_prefix: str,
    token: WriteToken,
    batches: Iterable[pa.RecordBatch],
    clock: Clock,
    **_: object,
) -> list[WriteStat]:
    change: dict[str, str | None] = {}
    for batch in batches:
        keys, values = batch.column("id").to_pylist(), batch.column(VALUE).to_pylist()
        change.update(zip(keys, values, strict=True))
    if not change:
        return []
    file_id = f"{file_id_prefix}-0"
    return [_publish(storage, context, file_id, partition, token, clock, None, change)]


def _unstamped(*_: object) -> None:
    """Rows of stubs have no meta columns."""


def _blocks(
    context: WriteContext, _partition: str, entries: LogEntries, *_: object
) -> Iterator[bytes]:
    keys, values = (entries.rows.column(name).to_pylist() for name in ("id", VALUE))
    gone = [] if entries.deleted_keys is None else entries.deleted_keys.to_pylist()
    lines = {**dict(zip(keys, values, strict=True)), **dict.fromkeys(gone)}
    yield log_content(context.instant, lines)
