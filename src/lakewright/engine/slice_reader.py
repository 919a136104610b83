"""Reading one file slice: the base file row group by row group, log winners laid over it.

Memory is O(log + a batch), never O(base): the versions in the logs are reduced first; then, per row
group, the key column alone decides which rows meet a log version, and the payload columns stream
past in batches. A slice without logs streams its base file. Filters go below the merge only where
they cannot change its outcome: any filter without logs, filters on the record key with logs. A span
of instants is another matter: versions that other instants wrote are as if they were not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakewright.engine.base_reader import BaseReader
from lakewright.engine.log_reader import LogReader
from lakewright.engine.options import ReadOptions
from lakewright.engine.scan_plan import ScanTask
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import UnsupportedTableError
from lakewright.expr import Expr, bind, col, columns, conjuncts_over, evaluate
from lakewright.format.file_slices import BaseFile, FileSlice
from lakewright.format.keys import KeySpec, partition_path_values, record_keys
from lakewright.format.log_block import LogBlock
from lakewright.format.view_inputs import block_visibility
from lakewright.merge.config import RECORD_KEY_COLUMN
from lakewright.merge.fold import LogVersions
from lakewright.merge.projection import required_columns
from lakewright.merge.protocol import MergeContext, Phase
from lakewright.merge.registry import MergerRegistry
from lakewright.merge.state import LogState
from lakewright.runtime.events import Event, EventHook, ignore_events
from lakewright.storage.scratch import Scratch

COMMIT_TIME = "_hoodie_commit_time"
KEY = RECORD_KEY_COLUMN
CORRUPT_BLOCK = "scan.corrupt_block"
KEY_COLUMNS = frozenset({KEY, "_hoodie_partition_path"})


@dataclass(frozen=True, slots=True)
class SliceReader:
    """Reads the slices of one scan."""

    snapshot: Snapshot
    output: tuple[str, ...]
    where: Expr | None
    options: ReadOptions
    registry: MergerRegistry
    span: frozenset[str] | None = None
    """Instants whose versions of rows meet each other; None is all."""
    on_event: EventHook = ignore_events
    """Told of every corrupt region of a log, which the format says to skip."""

    def read(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        """The slice's rows that pass the filter, in the output columns."""
        for batch in self._rows(task):
            kept = batch if self.where is None else batch.filter(evaluate(self.where, batch))
            if kept.num_rows:
                yield kept.select(self.output)

    def _rows(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        slice_ = task.slice_
        if slice_.logs:
            return self._merged(slice_, task.whole)
        if slice_.base is None:
            return iter(())
        return self._plain(slice_.base)

    def _requested(self) -> list[str]:
        wanted = set(self.output) | (columns(self.where) if self.where is not None else set())
        if self.span is not None:
            wanted.add(COMMIT_TIME)
        return [n for n in self.snapshot.schema.arrow.names if n in wanted]

    def _schema_of(self, names: Sequence[str]) -> pa.Schema:
        table = self.snapshot.schema.arrow
        return pa.schema([table.field(n) for n in table.names if n in set(names)])

    def _plain(self, base: BaseFile) -> Iterator[pa.RecordBatch]:
        schema = self._schema_of(self._requested())
        reader = self._open(base, schema, self.where)
        for group in reader.row_groups():
            yield from reader.batches(group, self.options.batch_rows)

    def _open(self, base: BaseFile, schema: pa.Schema, below: Expr | None) -> BaseReader:
        return BaseReader.open(
            self.snapshot.storage,
            base,
            schema=schema,
            below=below,
            renames=self.snapshot.renames(base.instant),
            constants=self._constants(base.partition),
            keep=self._in_span(),
        )

    def _in_span(self) -> Expr | None:
        if self.span is None:
            return None
        return bind(col(COMMIT_TIME).isin(sorted(self.span)), self.snapshot.schema.arrow)

    def _constants(self, partition: str) -> Mapping[str, Any]:
        """Partition columns that are not stored in the files, from the partition path."""
        if not self.snapshot.properties.drop_partition_columns:
            return {}
        spec = KeySpec.from_properties(self.snapshot.properties)
        values = partition_path_values(partition, spec, self.snapshot.schema.arrow)
        if values is None:
            raise UnsupportedTableError(
                f"The partition columns of {partition!r} are not stored in the files, and their "
                "values cannot be told from the path.",
                hint="Read columns other than the partition columns, or rewrite the table with "
                "hoodie.datasource.write.drop.partition.columns=false.",
                context={"partition": partition},
            )
        return values

    def _merged(self, slice_: FileSlice, whole: FileSlice | None) -> Iterator[pa.RecordBatch]:
        with self.log_state(slice_) as state:
            if whole is None or not state.has_partial_rows:
                if slice_.base is not None:
                    yield from self._overlaid(slice_.base, self._stored(), state)
                yield from state.remaining(self.options.batch_rows)
                return
        everything = replace(self, span=None)
        yield from everything._merged(whole, None)  # noqa: SLF001 - of its own class

    @contextmanager
    def log_state(self, slice_: FileSlice) -> Iterator[LogState]:
        """The slice's log, reduced to one version per key; it holds memory or scratch files."""
        stored = self._stored()
        with Scratch(self.options.merge_memory, folder=self.options.scratch_folder) as scratch:
            merger = self.registry.resolve(self.snapshot.merge)
            versions = LogVersions(self._context(stored), merger, hold=scratch.hold)
            chosen = self._log_reader(stored, slice_).read_into(versions, slice_.logs)
            self._tell_corrupt(chosen.corrupt)
            yield versions.finish()

    def _tell_corrupt(self, blocks: Sequence[LogBlock]) -> None:
        for b in blocks:
            told = Event(CORRUPT_BLOCK, done=b.length, unit="bytes", path=b.path, offset=b.offset)
            self.on_event(told)

    def _stored(self) -> pa.Schema:
        """The columns that merging needs, and those that were asked for."""
        return self._schema_of(
            required_columns(
                self.snapshot.merge,
                self.registry.resolve(self.snapshot.merge),
                self.snapshot.schema.arrow,
                self._requested(),
                key_columns=self._key_fields(),
            )
        )

    def _overlaid(
        self, base: BaseFile, stored: pa.Schema, state: LogState
    ) -> Iterator[pa.RecordBatch]:
        below = conjuncts_over(self.where, KEY_COLUMNS) if self.where is not None else None
        reader = self._open(base, stored, below)
        for group in reader.row_groups():
            keys = self._base_keys(reader, group)
            known = {KEY: keys} if KEY in stored.names else None
            codes = state.locate(keys)
            start = 0
            for batch in reader.batches(group, self.options.batch_rows, known):
                stop = start + batch.num_rows
                yield state.apply(self._with_key(batch), codes[start:stop])
                start = stop

    def _key_fields(self) -> tuple[str, ...]:
        properties = self.snapshot.properties
        return (KEY,) if properties.populate_meta_fields else properties.record_key_fields

    def _base_keys(self, reader: BaseReader, group: int) -> pa.Array:
        if self.snapshot.properties.populate_meta_fields:
            return reader.column(group, KEY)
        batch = reader.columns(group, self._key_fields())
        return record_keys(batch, KeySpec.from_properties(self.snapshot.properties))

    def _with_key(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the record key where it is not stored but made from columns."""
        if self.snapshot.properties.populate_meta_fields:
            return batch
        keys = record_keys(batch, KeySpec.from_properties(self.snapshot.properties))
        return batch.append_column(KEY, keys)

    def _context(self, stored: pa.Schema) -> MergeContext:
        schema = stored if KEY in stored.names else stored.append(pa.field(KEY, pa.string()))
        return self.snapshot.merge.context(
            schema,
            Phase.LOG,
            key_column=KEY,
            defaults=self.snapshot.schema.defaults(),
        )

    def _log_reader(self, stored: pa.Schema, slice_: FileSlice) -> LogReader:
        snapshot = self.snapshot
        return LogReader(
            storage=snapshot.storage,
            schema=stored,
            ordering_columns=tuple(snapshot.merge.ordering_fields),
            is_visible=block_visibility(snapshot.properties, snapshot.timeline),
            latest=snapshot.bound,
            resident_bytes=self.options.merge_memory,
            with_key=self._with_key,
            constants=self._constants(slice_.group.partition),
            renames=None if snapshot.internal_schemas is None else snapshot.renames,
            instants=self.span,
            keeps_lone=self.span is None or not snapshot.properties.version.ranges_skip_lone_logs,
        )
