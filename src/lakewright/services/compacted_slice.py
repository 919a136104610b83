"""Compacting one file slice: its base file and exactly the logs of the plan as a new base file.

The unit of work of a compaction, here and in tasks elsewhere: a value that pickles, and a function.
Rows keep their meta columns, only the name of the file is new. Key columns decide which rows meet a
version in the logs; payload columns stream past, and row groups that no log touches are taken over
as they are. Memory is the decoded logs (above `merge_memory` they wait in scratch files) and a few
row groups.

What rows become is the table's own rule of merging, whoever starts the compaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakewright.engine.base_file import Filled, NewVersion
from lakewright.engine.base_overlay import BaseOverlay
from lakewright.engine.base_reader import BaseReader
from lakewright.engine.log_reader import LogReader
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
from lakewright.runtime.memory import give_memory_back
from lakewright.runtime.spawn import Spawner
from lakewright.storage.base import Storage
from lakewright.storage.scratch import Scratch
from lakewright.txn.markers import MarkerType

__all__ = ["SliceCompactor"]


@dataclass(frozen=True, slots=True)
class SliceCompactor:
    """Compacts the slices of one plan."""

    snapshot: Snapshot
    context: WriteContext
    registry: MergerRegistry
    merge_memory: int
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
            give_memory_back()  # of raw logs, and of what decoding them took
            overlay = BaseOverlay(file, state, self._key_spec(), every=False)

            def fill(sink: Any) -> Filled:
                return overlay.fill(sink, self._older(storage, slice_))

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

    def _older(self, storage: Storage, slice_: FileSlice) -> BaseReader | None:
        base = slice_.base
        if base is None:
            return None
        renames = self.snapshot.renames(base.instant)
        schema = self.context.merged_schema
        return BaseReader.open(storage, base, schema=schema, renames=renames)

    def _key_spec(self) -> KeySpec:
        return KeySpec.from_properties(self.snapshot.properties)

    def _with_key(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of logs with their keys, where the table does not store them."""
        if self.context.populate_meta:
            return rows
        at = rows.schema.get_field_index(RECORD_KEY)
        return rows.set_column(at, rows.schema.field(at), record_keys(rows, self._key_spec()))

    def _state(
        self, storage: Storage, slice_: FileSlice, scratch: Scratch
    ) -> tuple[LogState, BlockSelection]:
        """The logs, reduced to one version per key."""
        snapshot, schema = self.snapshot, self.context.merged_schema
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
