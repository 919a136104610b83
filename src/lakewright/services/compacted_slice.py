"""Compacting one file slice: its base file and exactly the logs of the plan as a new base file.

The unit of work of a compaction, here and in tasks elsewhere: a value that pickles, and a function.
Rows keep their meta columns, only the name of the file is new. Key columns decide which rows meet a
version in the logs; payload columns stream past, and row groups that no log touches are taken over
as they are. Memory is the decoded logs (above `merge_memory` they wait in scratch files) and a few
row groups.

What rows become is the table's own rule of merging, whoever starts the compaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakewright.engine.base_file import Filled, NewVersion, OpenFile
from lakewright.engine.base_reader import BaseReader
from lakewright.engine.log_reader import LogReader
from lakewright.engine.runner import ahead
from lakewright.engine.snapshot import Snapshot
from lakewright.engine.write_context import RECORD_KEY, WriteContext, WriteToken
from lakewright.format.file_names import BaseFileName
from lakewright.format.file_slices import FileSlice
from lakewright.format.key_spec import KeySpec
from lakewright.format.keys import record_keys
from lakewright.format.log_scan import BlockSelection
from lakewright.format.records import WriteStat
from lakewright.format.view_inputs import block_visibility
from lakewright.merge.fold import LogVersions
from lakewright.merge.protocol import Phase
from lakewright.merge.registry import MergerRegistry
from lakewright.merge.state import LogState
from lakewright.runtime.clock import Clock
from lakewright.runtime.spawn import Spawner
from lakewright.storage.base import Storage
from lakewright.storage.scratch import Scratch
from lakewright.txn.markers import MarkerType

__all__ = ["BATCH_ROWS", "MERGE_MEMORY", "SliceCompactor"]

BATCH_ROWS = 65_536
MERGE_MEMORY = 1 << 30


@dataclass(frozen=True, slots=True)
class _Untouched:
    """A row group that no log touches."""

    group: int
    keys: pa.Array


@dataclass(frozen=True, slots=True)
class SliceCompactor:
    """Compacts the slices of one plan."""

    snapshot: Snapshot
    context: WriteContext
    registry: MergerRegistry
    merge_memory: int = MERGE_MEMORY
    scratch_folder: str | None = None

    def compact(
        self,
        storage: Storage,
        slice_: FileSlice,
        *,
        token: WriteToken,
        clock: Clock,
        spawner: Spawner | None = None,
    ) -> WriteStat:
        """Write the new base file of a slice; what the commit says about it.

        With a `spawner` rows are read and merged beside the encoding.
        """
        name = BaseFileName(slice_.group.file_id, str(token), self.context.instant)
        file = NewVersion(self.context, slice_.group.partition, name, token.task, spawner)
        begun_s = clock.monotonic_s()
        with Scratch(self.merge_memory, folder=self.scratch_folder) as scratch:
            state, selection = self._state(storage, slice_, scratch)
            read_ms = int((clock.monotonic_s() - begun_s) * 1000)

            def fill(sink: Any) -> Filled:
                return self._fill(storage, file, sink, slice_, state, spawner)

            stat = file.publish(storage, fill, MarkerType.MERGE, clock, previous=slice_.base)
        return replace(
            stat,
            prev_commit=slice_.base_instant if slice_.base is not None else stat.prev_commit,
            num_inserts=0,
            total_log_records=state.size,
            total_log_files_compacted=len(slice_.logs),
            total_log_size_compacted=sum(log.size for log in slice_.logs),
            total_log_blocks=len(selection.blocks),
            total_corrupt_log_block=len(selection.corrupt),
            total_log_read_time_ms=read_ms,
            total_updated_records_compacted=state.replaced + state.removed,
        )

    def _fill(
        self,
        storage: Storage,
        file: NewVersion,
        sink: Any,
        slice_: FileSlice,
        state: LogState,
        spawner: Spawner | None,
    ) -> Filled:
        if slice_.base is None:
            out = OpenFile(file, sink)
        else:
            renames = self.snapshot.renames(slice_.base.instant)
            reader = BaseReader.open(
                storage, slice_.base, schema=self.context.schema, renames=renames
            )
            out = OpenFile.successor(file, sink, reader)
            for part in ahead(lambda: self._merged(reader, state, out), spawner):
                if isinstance(part, _Untouched):
                    out.take_over(part.group, part.keys)
                else:
                    out.add_copied(part)
        old = out.rows
        for rows in state.remaining(BATCH_ROWS):
            out.add_copied(self._stored(rows), inserted=True)
        inserts = out.rows - old
        return Filled(out.close(), inserts, state.replaced, state.removed)

    def _merged(
        self, reader: BaseReader, state: LogState, out: OpenFile
    ) -> Iterator[pa.RecordBatch | _Untouched]:
        for group in reader.row_groups():
            keys = self._keys(reader, group)
            codes = state.locate(keys)
            if out.takes_over(group) and not (codes >= 0).any():
                yield _Untouched(group, keys)
                continue
            start = 0
            for batch in reader.batches(group, BATCH_ROWS, {RECORD_KEY: keys}):
                stop = start + batch.num_rows
                yield self._stored(state.apply(batch, codes[start:stop]))
                start = stop

    def _keys(self, reader: BaseReader, group: int) -> pa.Array:
        if self.context.populate_meta:
            return reader.column(group, RECORD_KEY)
        spec = self._key_spec()
        tops = dict.fromkeys(name.partition(".")[0] for name in spec.record_key_fields)
        return record_keys(reader.columns(group, list(tops)), spec)

    def _key_spec(self) -> KeySpec:
        return KeySpec.from_properties(self.snapshot.properties)

    def _with_key(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of logs with their keys, where the table does not store them."""
        if self.context.populate_meta:
            return rows
        at = rows.schema.get_field_index(RECORD_KEY)
        return rows.set_column(at, rows.schema.field(at), record_keys(rows, self._key_spec()))

    def _stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as files hold them: without keys where the table does not store any."""
        if self.context.populate_meta:
            return rows
        at = rows.schema.get_field_index(RECORD_KEY)
        return rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, pa.string()))

    def _state(
        self, storage: Storage, slice_: FileSlice, scratch: Scratch
    ) -> tuple[LogState, BlockSelection]:
        """The logs, reduced to one version per key."""
        snapshot, schema = self.snapshot, self.context.schema
        merger = self.registry.resolve(snapshot.merge)
        merging = snapshot.merge.context(
            schema, Phase.LOG, key_column=RECORD_KEY, defaults=snapshot.schema.defaults()
        )
        versions = LogVersions(merging, merger, hold=scratch.hold)
        reader = LogReader(
            storage=storage,
            schema=schema,
            ordering_columns=tuple(snapshot.merge.ordering_fields),
            is_visible=block_visibility(snapshot.properties, snapshot.timeline),
            # Version 6: what a write adds to a log behind the plan does not belong to it.
            latest=self.context.instant,
            resident_bytes=self.merge_memory,
            with_key=self._with_key,
            constants={},
            renames=None if snapshot.internal_schemas is None else snapshot.renames,
        )
        selection = reader.read_into(versions, slice_.logs)
        return versions.finish(), selection
