"""Writing the next version of a Parquet file: row groups that stay are taken over as they are.

`SuccessorSink` is a `ParquetSink` that can also take row groups of the older file, with columns of
one value put in the place of others. Rows that are written meanwhile are encoded in memory, a row
group at a time, and follow in their order. Memory is one row group of Arrow rows and its encoded
columns, as for every sink.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakewright.codec.parquet import ParquetFile, open_parquet
from lakewright.codec.parquet_splice import Splice
from lakewright.codec.parquet_writer import ParquetPolicy, ParquetSink, parquet_writer

__all__ = ["SuccessorSink"]


class SuccessorSink(ParquetSink):
    """One file being written, beside its older version."""

    def __init__(
        self,
        sink: Any,
        schema: pa.Schema,
        policy: ParquetPolicy,
        *,
        older: ParquetFile,
        path: str,
        splice: Splice,
        unique: Sequence[str] = (),
        repeated: Sequence[str] = (),
    ) -> None:
        super().__init__(sink, schema, policy, unique=unique, repeated=repeated)
        self._older, self._path = older, path
        self._splice = splice
        self._chosen: list[str] | None = None

    @classmethod
    def of(
        cls,
        sink: Any,
        schema: pa.Schema,
        policy: ParquetPolicy,
        *,
        older: ParquetFile,
        path: str,
        unique: Sequence[str] = (),
        repeated: Sequence[str] = (),
    ) -> SuccessorSink | None:
        """The successor of the file at `path`; None if rows of both cannot lie in one file.

        Nothing was written to the sink then.
        """
        like = _encoded(schema.empty_table(), policy, [])
        splice = Splice.like(sink, older, like)
        if splice is None:
            return None
        return cls(
            sink,
            schema,
            policy,
            older=older,
            path=path,
            splice=splice,
            unique=unique,
            repeated=repeated,
        )

    def take_over(self, group: int, constants: Mapping[str, str]) -> None:
        """Take a row group of the older file; some text columns have the same value everywhere."""
        self.flush()
        rows = self._older.metadata.row_group(group).num_rows
        replaced = {
            name: _encoded(_constant(self._schema.field(name), value, rows), self._policy, [name])
            for name, value in constants.items()
        }
        self._splice.take(self._older, group, path=self._path, replaced=replaced)
        self.rows_written += rows

    def close(self, values: Mapping[str, str]) -> None:
        """Write what is left and the footer with these key/value pairs."""
        self.flush()
        self._splice.close(values)

    def _write_group(self, table: pa.Table) -> None:
        if self._chosen is None:
            self._chosen = self._dictionary(table)
        self._splice.take(_encoded(table, self._policy, self._chosen), 0)


def _encoded(table: pa.Table, policy: ParquetPolicy, dictionary: Sequence[str]) -> ParquetFile:
    out = pa.BufferOutputStream()
    with parquet_writer(out, table.schema, policy, dictionary) as writer:
        if table.num_rows:
            writer.write_table(table, row_group_size=table.num_rows)
    return open_parquet(out.getvalue(), path="")


def _constant(field: pa.Field, value: str, rows: int) -> pa.Table:
    indices = pa.array(np.zeros(rows, np.int32))
    column = pa.DictionaryArray.from_arrays(indices, pa.array([value], pa.string()))
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.table([column], schema=pa.schema([pa.field(field.name, kind, field.nullable)]))
