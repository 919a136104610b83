"""The key columns of rows to be written, formed batch after batch within one task.

Rows without a key are an `InputError` with their count and a sample. Where the table has no key
fields, keys are generated from the instant, the task and the number of the row in the task; the
same rows in the same order get the same keys again.
"""

from __future__ import annotations

import pyarrow as pa

from lakewright.errors import ConfigError
from lakewright.format.key_spec import KeySpec
from lakewright.format.keys import generated_keys, record_keys, rows_without_key
from lakewright.format.partition_paths import partition_paths

__all__ = ["PARTITION_PATH", "RECORD_KEY", "RowKeys", "refuse_rows_without_key"]

RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"


class RowKeys:
    """Forms the keys of the rows of one task."""

    def __init__(
        self, spec: KeySpec, *, instant: str, task: int = 0, populate_meta: bool = True
    ) -> None:
        if not spec.record_key_fields and not populate_meta:
            raise ConfigError(
                "A table without key fields must store the keys that are generated.",
                hint="Keep the meta columns of the table, or give it key fields.",
                context={"property": "hoodie.populate.meta.fields"},
            )
        self._spec = spec
        self._instant = instant
        self._task = task
        self._populate_meta = populate_meta
        self._rows = 0

    def add_to(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with its key and path columns in front; the path alone where rows do not store
        their keys."""
        keys = self._keys(batch)
        paths = partition_paths(batch, self._spec)
        columns, names = [keys, paths], [RECORD_KEY, PARTITION_PATH]
        if not self._populate_meta:
            columns, names = columns[1:], names[1:]
        fields = [pa.field(name, pa.string(), nullable=False) for name in names]
        schema = pa.schema([*fields, *batch.schema])
        return pa.RecordBatch.from_arrays([*columns, *batch.columns], schema=schema)

    def _keys(self, batch: pa.RecordBatch) -> pa.Array:
        if self._spec.record_key_fields:
            return record_keys(batch, self._spec, given=True)
        first, self._rows = self._rows, self._rows + batch.num_rows
        return generated_keys(self._instant, self._task, first, batch.num_rows)


def refuse_rows_without_key(batch: pa.RecordBatch, spec: KeySpec) -> None:
    """Raise `InputError` if keys that another engine formed are null somewhere."""
    keys = batch.column(RECORD_KEY)
    if keys.null_count:
        rows = batch.drop_columns([RECORD_KEY, PARTITION_PATH])
        raise rows_without_key(rows, keys.is_null(), spec)
