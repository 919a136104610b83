"""The meta columns of rows that are written: commit time, sequence number, key, path, file name.

New rows are stamped, rows that are copied from an older file keep everything but the name of the
file they are in. Columns that hold one value for many rows are dictionary-encoded, so that neither
memory nor the encoder pays for the repetition. Columns in, columns out; no loop over rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.engine.write_context import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    PARTITION_PATH,
    RECORD_KEY,
    WriteContext,
)
from lakewright.errors import SchemaError
from lakewright.format.table_schema import OPERATION_COLUMN

__all__ = ["REPEATED", "UNIQUE", "Stamp", "encoded_schema", "plain", "sequence_numbers"]

REPEATED = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
"""Meta columns with few values in a file."""
UNIQUE = (COMMIT_SEQNO, RECORD_KEY)
"""Meta columns with as many values as rows."""

_ENCODED = pa.dictionary(pa.int32(), pa.string())


def encoded_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of stamped batches: that of the files, repeated columns dictionary-encoded."""
    return pa.schema([f.with_type(_ENCODED) if f.name in REPEATED else f for f in schema])


class Stamp:
    """Gives rows the meta columns of one file."""

    def __init__(self, context: WriteContext, *, partition: str, file_name: str, task: int) -> None:
        self._populate = context.populate_meta
        self._schema = encoded_schema(context.schema)
        self._incoming = context.incoming_schema
        self._instant = context.instant
        self._partition = partition
        self._file_name = file_name
        self._task = task

    def new(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Rows of this write; `first_row` is the counter of the first."""
        if batch.schema.names != self._incoming.names:
            raise SchemaError(
                "A batch to be written does not have the columns of the table's files.",
                hint="Bring rows to the write's `incoming_schema` first.",
                context={"got": batch.schema.names, "wanted": self._incoming.names},
            )
        rows = batch.num_rows
        made = {FILE_NAME: _constant(self._file_name, rows)}
        if self._populate:
            made[COMMIT_TIME] = _constant(self._instant, rows)
            made[PARTITION_PATH] = _constant(self._partition, rows)
            prefix = f"{self._instant}_{self._task}_"
            made[COMMIT_SEQNO] = sequence_numbers(prefix, first_row, rows)
            made[RECORD_KEY] = batch.column(RECORD_KEY)
        arrays = [self._column(field, batch, made) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def named(self, rows: int) -> pa.Table:
        """The one column that rows have even where they stay as they are."""
        field = self._schema.field(FILE_NAME)
        return pa.table([_constant(self._file_name, rows)], schema=pa.schema([field]))

    def copied(
        self, batch: pa.RecordBatch, columns: frozenset[str] | None = None
    ) -> pa.RecordBatch:
        """Rows of an older file of the group, in the files' schema or some columns of it."""
        chosen = [f for f in self._schema if columns is None or f.name in columns]
        arrays = [self._copied(field.name, batch) for field in chosen]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(chosen))

    def _copied(self, name: str, batch: pa.RecordBatch) -> pa.Array:
        if name == FILE_NAME:
            return _constant(self._file_name, batch.num_rows)
        column = batch.column(name)
        return column.dictionary_encode().cast(_ENCODED) if name in REPEATED else column

    def _column(
        self, field: pa.Field, batch: pa.RecordBatch, made: dict[str, pa.Array]
    ) -> pa.Array:
        if field.name in made:
            return made[field.name]
        if field.name in UNIQUE or field.name in REPEATED or field.name == OPERATION_COLUMN:
            return pa.nulls(batch.num_rows, field.type)
        return batch.column(field.name)


def plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Stamped rows in the files' schema, for merging and for logs."""
    arrays = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def sequence_numbers(prefix: str, first: int, count: int) -> pa.Array:
    """`<prefix><number>` for `count` numbers from `first` on."""
    numbers = pa.array(np.arange(first, first + count)).cast(pa.string())
    return pc.binary_join_element_wise(pa.scalar(prefix), numbers, "")


def _constant(value: str, rows: int) -> pa.Array:
    indices = pa.array(np.zeros(rows, np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array([value], pa.string()))
