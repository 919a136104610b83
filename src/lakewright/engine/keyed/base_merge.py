"""Merging changed rows into a base file: a new version of the file, row group by row group.

Rows that change get the meta columns of the write, rows that stay keep theirs but the file name.
How the rows of file and changes meet is `engine/base_overlay`'s. The footer goes on from that of
the older version: only new keys are added to its bloom filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakewright.engine.base_file import Filled, NewVersion
from lakewright.engine.base_overlay import BaseOverlay
from lakewright.engine.base_reader import BaseReader
from lakewright.engine.keyed.change_log import ChangeLog
from lakewright.engine.meta_columns import Stamp, plain
from lakewright.engine.write_context import RECORD_KEY, WriteContext, WriteToken
from lakewright.format.file_names import BaseFileName
from lakewright.format.file_slices import BaseFile
from lakewright.format.key_spec import KeySpec
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

    on_insert = None if log is None else log.inserted
    overlay = BaseOverlay(file, state, rules.keys, every=True, on_insert=on_insert)

    def fill(sink: Any) -> Filled:
        return overlay.fill(sink, BaseReader.open(storage, base, schema=context.merged_schema))

    stat = file.publish(storage, fill, MarkerType.MERGE, clock, previous=base)
    if log is None:
        return stat
    return replace(stat, cdc_stats=log.publish(storage, partition, base.file_id, token))


def _state(
    context: WriteContext, rules: MergeRules, changes: Changes, stamp: Stamp, first_row: int
) -> LogState:
    schema = context.merged_schema
    merging = rules.context(schema, Phase.LOG, key_column=RECORD_KEY)
    versions = LogVersions(merging, rules.merger)
    if changes.rows.num_rows:
        incoming = changes.rows.select(context.incoming_schema.names)
        stamped = plain(stamp.new(incoming, first_row), context.schema).select(schema.names)
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
