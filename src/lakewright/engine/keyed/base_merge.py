"""Merging changed rows into a base file: a new version of the file, row group by row group.

For every row group the key column alone decides which rows meet a change; payload columns stream
past, and a row group in which nothing changes is taken over as it is, undecoded. Rows that change
get the meta columns of the write, rows that stay keep theirs but the file name. Rows that the file
did not have come at its end. Memory is the changed rows and one row group. The footer goes on from
that of the older version: only new keys are added to its bloom filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakewright.engine.base_file import Filled, NewVersion, OpenFile
from lakewright.engine.base_reader import BaseReader
from lakewright.engine.keyed.change_log import ChangeLog
from lakewright.engine.meta_columns import Stamp, plain
from lakewright.engine.runner import ahead
from lakewright.engine.write_context import RECORD_KEY, WriteContext, WriteToken
from lakewright.format.file_names import BaseFileName
from lakewright.format.file_slices import BaseFile
from lakewright.format.key_spec import KeySpec
from lakewright.format.keys import record_keys
from lakewright.format.records.commit import WriteStat
from lakewright.format.table_schema import META_COLUMNS
from lakewright.merge.columns import path_type
from lakewright.merge.config import MergeConfig
from lakewright.merge.fold import LogVersions
from lakewright.merge.protocol import MergeContext, Phase, RecordMerger
from lakewright.merge.state import LogState
from lakewright.runtime.clock import Clock
from lakewright.runtime.spawn import Spawner
from lakewright.storage.base import Storage
from lakewright.txn.markers import MarkerType

__all__ = ["Changes", "MergeRules", "merge_into_base_file"]

BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How rows of one table meet; travels to tasks."""

    config: MergeConfig
    merger: RecordMerger
    keys: KeySpec
    """How keys are formed, where the table does not store them."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Defaults of the table's columns that are not null."""

    def context(self, schema: pa.Schema, phase: Phase, *, key_column: str) -> MergeContext:
        """The context of merges of rows in `schema`."""
        return self.config.context(schema, phase, key_column=key_column, defaults=self.defaults)


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """What changes in one file group, one version per key."""

    rows: pa.RecordBatch
    """Record key, partition path and the table's columns; rows marked as deleted among them."""
    deleted_keys: pa.Array | None = None
    """Keys that go, whatever is stored."""
    columns: frozenset[str] | None = None
    """Columns that the rows bring along, where they are partial."""


def merge_into_base_file(
    storage: Storage,
    context: WriteContext,
    rules: MergeRules,
    *,
    partition: str,
    base: BaseFile,
    changes: Changes,
    token: WriteToken,
    clock: Clock,
    spawner: Spawner | None = None,
    first_row: int = 0,
) -> WriteStat:
    """Write a new version of a file group: the rows of its base file merged with the changes.

    With a `spawner` rows are read and merged beside the encoding.
    """
    name = BaseFileName(base.file_id, str(token), context.instant)
    file = NewVersion(context, partition, name, token.task, spawner)
    stamp = Stamp(context, partition=partition, file_name=name.text, task=token.task)
    state = _state(context, rules, changes, stamp, first_row)
    log = None if context.changes is None else ChangeLog(context, context.changes)
    state.on_change = None if log is None else log.replaced

    def fill(sink: Any) -> Filled:
        reader = BaseReader.open(storage, base, schema=context.schema)
        out = OpenFile.successor(file, sink, reader)
        for merged in ahead(lambda: _merged(reader, context, rules, state, out), spawner):
            if isinstance(merged, _Untouched):
                out.take_over(merged.group, merged.keys)
            else:
                out.add_copied(merged)
        old = out.rows
        for rows in state.remaining(BATCH_ROWS):
            if log is not None:
                log.inserted(rows)
            out.add_copied(_stored(rows, context), inserted=True)
        inserts = out.rows - old
        return Filled(out.close(), inserts, state.replaced, state.removed)

    stat = file.publish(storage, fill, MarkerType.MERGE, clock, previous=base)
    if log is None:
        return stat
    return replace(stat, cdc_stats=log.publish(storage, partition, base.file_id, token))


def _state(
    context: WriteContext, rules: MergeRules, changes: Changes, stamp: Stamp, first_row: int
) -> LogState:
    merging = rules.context(context.schema, Phase.LOG, key_column=RECORD_KEY)
    versions = LogVersions(merging, rules.merger)
    if changes.rows.num_rows:
        incoming = changes.rows.select(context.incoming_schema.names)
        stamped = plain(stamp.new(incoming, first_row), context.schema)
        at = stamped.schema.get_field_index(RECORD_KEY)
        keys = changes.rows.column(RECORD_KEY)
        columns = changes.columns and changes.columns | set(META_COLUMNS)
        versions.add_rows(stamped.set_column(at, stamped.schema.field(at), keys), columns=columns)
    if changes.deleted_keys is not None and len(changes.deleted_keys):
        gone = changes.deleted_keys
        none = [
            pa.nulls(len(gone), path_type(context.schema, path))
            for path in rules.config.ordering_fields
        ]
        versions.add_deletes(gone, none, np.ones(len(gone), dtype=np.bool_))
    return versions.finish()


@dataclass(frozen=True, slots=True, eq=False)
class _Untouched:
    """A row group in which nothing changes."""

    group: int
    keys: pa.Array


def _merged(
    reader: BaseReader, context: WriteContext, rules: MergeRules, state: LogState, out: OpenFile
) -> Iterator[pa.RecordBatch | _Untouched]:
    keys_of = _stored_keys if context.populate_meta else _formed_keys(rules.keys)
    for group in reader.row_groups():
        keys = keys_of(reader, group)
        codes = state.locate(keys, every=True)
        if out.takes_over(group) and not (codes >= 0).any():
            yield _Untouched(group, keys)
            continue
        start = 0
        for batch in reader.batches(group, BATCH_ROWS, {RECORD_KEY: keys}):
            stop = start + batch.num_rows
            yield _stored(state.apply(batch, codes[start:stop]), context)
            start = stop


def _stored_keys(reader: BaseReader, group: int) -> pa.Array:
    return reader.column(group, RECORD_KEY)


def _formed_keys(spec: KeySpec) -> Callable[[BaseReader, int], pa.Array]:
    def form(reader: BaseReader, group: int) -> pa.Array:
        tops = dict.fromkeys(name.partition(".")[0] for name in spec.record_key_fields)
        return record_keys(reader.columns(group, list(tops)), spec)

    return form


def _stored(rows: pa.RecordBatch, context: WriteContext) -> pa.RecordBatch:
    """Rows as files hold them: without keys where the table does not store any."""
    if context.populate_meta:
        return rows
    at = rows.schema.get_field_index(RECORD_KEY)
    return rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, pa.string()))
