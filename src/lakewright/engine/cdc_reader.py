"""Reading change data: one row per change, with the images before and after it.

Images come from change logs where the table wrote them, otherwise from the files the plan names. As
text they are printed as Hudi prints them (see `format.cdc_text`), each as Hudi prints it at that
place; as structs they are the table's own columns, without meta columns.

Memory is O(changes of one file + a batch): base files stream past, only rows of changed keys stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.codec.avro.arrow_types import arrow_schema
from lakewright.codec.avro.columns import decode_records
from lakewright.codec.avro.schema import parse_schema
from lakewright.codec.avro.types import Record
from lakewright.engine.cdc_plan import FileChanges, GroupChanges, gone
from lakewright.engine.scan_plan import ScanTask
from lakewright.engine.slice_reader import KEY, SliceReader
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import SchemaError
from lakewright.expr import Expr, evaluate
from lakewright.format.cdc import ChangeCase, LoggingMode, Operation, change_log_schema
from lakewright.format.cdc_text import record_texts, row_texts
from lakewright.format.evolution import conversion
from lakewright.format.file_slices import FileSlice
from lakewright.format.keys import KeySpec, record_keys
from lakewright.format.log_block import BlockType, LogBlock, read_blocks
from lakewright.format.log_content import avro_frames_of, block_runs
from lakewright.format.table_schema import without_meta_columns

Images = Literal["json", "struct"]
IMAGES: tuple[Images, ...] = ("json", "struct")
ROWS_MAX = 16_384
"""Changes of a batch at the most: images as text are several times as large as rows."""


def cdc_schema(snapshot: Snapshot, images: Images) -> pa.Schema:
    """The columns of change data."""
    image = pa.string() if images == "json" else _image_type(snapshot)
    return pa.schema(
        [("op", pa.string()), ("ts_ms", pa.string()), ("before", image), ("after", image)]
    )


def _image_type(snapshot: Snapshot) -> pa.StructType:
    hidden = snapshot.schema.meta_columns
    return pa.struct([f for f in snapshot.schema.arrow if f.name not in hidden])


class _Printer(Enum):
    """How Hudi holds an image when it prints it."""

    LOGGED = "as the change log has it"
    STORED = "as a row"
    COMPARED = "as a row or as an Avro record, by version"


class _Side(NamedTuple):
    rows: pa.StructArray
    printer: _Printer


class _Logged(NamedTuple):
    """Records of a change log; images that it lacks are None."""

    ops: pa.Array
    keys: pa.Array | None
    before: pa.StructArray | None
    after: pa.StructArray | None


@dataclass(frozen=True, slots=True)
class CdcReader:
    """Reads the changes of file groups."""

    snapshot: Snapshot
    output: tuple[str, ...]
    where: Expr | None
    images: Images
    slices: SliceReader
    """Reads whole rows: all columns, no filter."""

    def read(self, task: GroupChanges) -> Iterator[pa.RecordBatch]:
        """The group's changes that pass the filter, in the output columns."""
        for change in task.changes:
            for batch in self._changes(change):
                kept = batch if self.where is None else batch.filter(evaluate(self.where, batch))
                if kept.num_rows:
                    yield kept.select(self.output)

    def _changes(self, change: FileChanges) -> Iterator[pa.RecordBatch]:
        if change.case is ChangeCase.CHANGE_LOG:
            yield from self._from_change_log(change)
        elif change.case is ChangeCase.LOG_FILE:
            yield from self._from_log_file(change)
        elif change.case is ChangeCase.NEW_FILE:
            for rows in self._rows(change.after):
                yield self._batch(change, Operation.INSERT, None, _stored(rows))
        else:
            for rows in self._rows(change.before):
                yield self._batch(change, Operation.DELETE, _stored(rows), None)

    def _rows(self, slice_: FileSlice | None) -> Iterator[pa.RecordBatch]:
        if slice_ is None:
            return
        for batch in self.slices.read(ScanTask(slice_)):
            for first in range(0, batch.num_rows, ROWS_MAX):
                yield batch.slice(first, ROWS_MAX)

    # ---- change logs ---------------------------------------------------------------------------

    def _from_change_log(self, change: FileChanges) -> Iterator[pa.RecordBatch]:
        for logged in self._logged(change):
            before = after = None
            if logged.before is not None:
                before = _Side(logged.before, _Printer.LOGGED)
            elif logged.keys is not None:
                existed = pc.not_equal(logged.ops, Operation.INSERT.value)
                images = self._images(change.instant, change.before, logged.keys, existed)
                before = _Side(images, _Printer.COMPARED)
            if logged.after is not None:
                after = _Side(logged.after, _Printer.LOGGED)
            elif logged.keys is not None:
                exists = pc.not_equal(logged.ops, Operation.DELETE.value)
                images = self._images(change.instant, change.after, logged.keys, exists)
                after = _Side(images, _Printer.STORED)
            yield self._batch(change, logged.ops, before, after)

    def _logged(self, change: FileChanges) -> Iterator[_Logged]:
        for log in change.change_logs:
            blocks = read_blocks(self.snapshot.storage.read(log.path), path=log.path)
            for run in block_runs([b for b in blocks if b.type is BlockType.CDC_DATA]):
                rows = self._decoded(run, change.instant)
                for first in range(0, rows.num_rows, ROWS_MAX):
                    yield _logged_of(rows.slice(first, ROWS_MAX))

    def _decoded(self, run: list[LogBlock], instant: str) -> pa.RecordBatch:
        """The records of a run of blocks, their images in the table's columns."""
        first = run[0]
        record = parse_schema(first.schema)
        if not isinstance(record, Record):
            raise SchemaError(
                "The schema of a change block is not a record.",
                hint="The file is damaged or was not written by Hudi.",
                context={"path": first.path, "offset": first.offset},
            )
        source = arrow_schema(record)
        target = change_log_schema(_mode_of(source.names), _image_type(self.snapshot))
        renames = self.snapshot.renames(instant)
        made = conversion(
            source,
            target,
            renames={
                f"{s}.{new}": old for s in ("before", "after") for new, old in renames.items()
            },
            path=first.path,
        )
        payload, starts, ends = avro_frames_of(run)
        rows = decode_records(
            payload, starts, ends, record, columns=made.source_columns, path=first.path
        )
        return made.apply(rows)

    def _images(
        self, instant: str, slice_: FileSlice | None, keys: pa.Array, wanted: pa.Array
    ) -> pa.StructArray:
        """Rows of a base file by key; null where none is wanted or there."""
        needed = keys.filter(wanted)
        if slice_ is None and len(needed):
            raise gone(instant, "a base file with images that the change log lacks")
        whole = self.snapshot.schema.arrow
        found = [
            rows.filter(pc.is_in(self._keys(rows), value_set=needed))
            for rows in (self._rows(slice_) if len(needed) else ())
        ]
        table = pa.Table.from_batches(found, schema=whole).combine_chunks()
        batch = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], whole)
        place = pc.index_in(keys, value_set=self._keys(batch))
        nowhere = pa.scalar(None, pa.int32())
        return batch.to_struct_array().take(pc.if_else(wanted, place, nowhere))

    def _keys(self, rows: pa.RecordBatch) -> pa.Array:
        properties = self.snapshot.properties
        if properties.populate_meta_fields:
            return rows.column(KEY)
        return record_keys(rows, KeySpec.from_properties(properties))

    # ---- log files -----------------------------------------------------------------------------

    def _from_log_file(self, change: FileChanges) -> Iterator[pa.RecordBatch]:
        """What the log's versions do to the rows that were there, then the rows that were not."""
        assert change.after is not None
        names = self.snapshot.schema.arrow.names
        reader = replace(self.slices, span=frozenset({change.instant}))
        with reader.log_state(change.after) as state:
            for rows in self._rows(change.before):
                keyed = self._keyed(rows)
                codes = state.locate(keyed.column(KEY))
                hits = np.flatnonzero(codes >= 0)
                if len(hits):
                    older = keyed.take(pa.array(hits))
                    newer = state.apply(older, codes[hits])
                    yield from self._updates(change, older, newer)
            for rows in state.remaining(ROWS_MAX):
                after = _Side(rows.select(names).to_struct_array(), _Printer.COMPARED)
                yield self._batch(change, Operation.INSERT, None, after)

    def _keyed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if KEY in rows.schema.names:
            return rows
        return rows.append_column(KEY, self._keys(rows))

    def _updates(
        self, change: FileChanges, older: pa.RecordBatch, newer: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        """The rows that a merge changed or deleted; `newer` lacks the deleted ones."""
        names = self.snapshot.schema.arrow.names
        place = pc.index_in(older.column(KEY), value_set=newer.column(KEY))
        before = older.select(names).to_struct_array()
        after = newer.select(names).to_struct_array().take(place)
        changed = pa.array(_differ(before, after))
        before, after = before.filter(changed), after.filter(changed)
        if len(before):
            ops = pc.if_else(after.is_valid(), Operation.UPDATE.value, Operation.DELETE.value)
            yield self._batch(
                change, ops, _Side(before, _Printer.COMPARED), _Side(after, _Printer.COMPARED)
            )

    # ---- rows of the result --------------------------------------------------------------------

    def _batch(
        self,
        change: FileChanges,
        ops: pa.Array | Operation,
        before: _Side | None,
        after: _Side | None,
    ) -> pa.RecordBatch:
        size = next(len(side.rows) for side in (before, after) if side is not None)
        if isinstance(ops, Operation):
            ops = pa.repeat(pa.scalar(ops.value, pa.string()), size)
        times = pa.repeat(pa.scalar(change.instant, pa.string()), size)
        schema = cdc_schema(self.snapshot, self.images)
        images = [
            pa.nulls(size, schema.field(name).type) if side is None else self._image(side)
            for name, side in (("before", before), ("after", after))
        ]
        return pa.RecordBatch.from_arrays([ops, times, *images], schema=schema)

    def _image(self, side: _Side) -> pa.Array:
        if self.images == "struct":
            return _selected(side.rows, _image_type(self.snapshot))
        by_row = self.snapshot.properties.version.change_images_by_row
        avro = self.snapshot.schema.avro
        if side.printer is _Printer.LOGGED:
            # A missing image is the word here, not null: so Hudi prints it.
            return record_texts(side.rows, without_meta_columns(avro)).fill_null("null")
        if side.printer is _Printer.COMPARED and not by_row:
            return record_texts(side.rows, avro)
        return row_texts(side.rows, hash_order=not by_row)


def _stored(rows: pa.RecordBatch) -> _Side:
    return _Side(rows.to_struct_array(), _Printer.STORED)


def _mode_of(names: list[str]) -> LoggingMode:
    """The mode that a change log was written in, whatever the table says now."""
    if "after" in names:
        return LoggingMode.DATA_BEFORE_AFTER
    return LoggingMode.DATA_BEFORE if "before" in names else LoggingMode.OP_KEY_ONLY


def _logged_of(rows: pa.RecordBatch) -> _Logged:
    def column(name: str) -> pa.Array | None:
        return rows.column(name) if name in rows.schema.names else None

    return _Logged(rows.column("op"), column("record_key"), column("before"), column("after"))


def _selected(rows: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    """The fields of a struct type, with the nulls of the whole."""
    if rows.type == kind:
        return rows
    members = [rows.field(f.name) for f in kind]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=rows.is_null())


def _differ(before: pa.StructArray, after: pa.StructArray) -> np.ndarray:
    """Which rows differ in any column; `before` has no null rows."""
    found = np.asarray(after.is_null())
    for field in before.type:
        left, right = before.field(field.name), after.field(field.name)
        if pt.is_nested(field.type):
            # Arrow cannot compare these; one Python value per changed row.
            found |= np.array([a != b for a, b in zip(left, right, strict=True)], dtype=bool)
        else:
            differs = pc.fill_null(pc.not_equal(left, right), True)
            both_null = pc.and_(left.is_null(), right.is_null())
            found |= np.asarray(pc.and_not(differs, both_null))
    return found
