"""Writing the next version of a Parquet file: row groups that stay are taken over as they are.

`SuccessorSink` is a `ParquetSink` that can also take row groups of the older file, with other
values in some columns, or some of their rows. Rows that are written meanwhile are encoded in
memory, a row group at a time, and follow in their order. Memory is one row group of Arrow rows and
its encoded columns, as for every sink; of columns that take the place of others one at a time is
encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lakewright.codec.parquet import ParquetFile, open_parquet
from lakewright.codec.parquet_rows import SomeRows, some_rows
from lakewright.codec.parquet_splice import Splice, Written
from lakewright.codec.parquet_writer import (
    ParquetPolicy,
    ParquetSink,
    parquet_writer,
    rows_refused,
)

__all__ = ["ColumnSource", "SuccessorSink"]

ColumnSource = Callable[[str], pa.Table | None]
"""Gives a column alone; None for one that stays as it is in the older file."""

_CODEC_NAMES: Final = {"none": "UNCOMPRESSED"}
"""Arrow's names of codecs in footers, where they are not those it is told them by."""


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
        like = open_parquet(_encoded(schema.empty_table(), policy, []), path="")
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

    def is_compressed_alike(self, group: int) -> bool:
        """Whether all columns of a row group of the older file have the codec of this one."""
        wanted = _CODEC_NAMES.get(self._policy.compression[0], self._policy.compression[0].upper())
        metadata = self._older.metadata.row_group(group)
        return all(metadata.column(n).compression == wanted for n in range(metadata.num_columns))

    def take_over(self, group: int, changed: pa.Table) -> None:
        """Take a row group of the older file, but `changed` columns, which have all its rows."""
        self.take_columns(group, changed.num_rows, _columns_of(changed))

    def take_columns(
        self,
        group: int,
        rows: int,
        source: ColumnSource,
        twins: Mapping[str, str] | None = None,
    ) -> None:
        """Take a row group of the older file, but the columns that a source has; of other `rows`
        it must have all, or their `twins`, which get the same pages."""
        self.flush()
        made = _Encoding(rows, source, self._policy, self._dictionary)
        with rows_refused():
            self._splice.take(self._older, group, path=self._path, replaced=made, twins=twins)
        self.rows_written += rows

    def some_rows(
        self,
        group: int,
        keep: pa.BooleanArray,
        known: Mapping[str, pa.Array],
        without: frozenset[str],
    ) -> SomeRows:
        """The rows of a row group of the older file that are kept; see `take_rows`."""
        return some_rows(self._older, group, keep, path=self._path, known=known, without=without)

    def take_rows(self, group: int, rows: SomeRows) -> None:
        """Take these rows of a row group of the older file, which have all its columns."""
        if rows.table.num_rows:
            self.take_columns(group, rows.table.num_rows, _columns_of(rows.table), rows.twins)

    def close(self, values: Mapping[str, str]) -> None:
        """Write what is left and the footer with these key/value pairs."""
        self.flush()
        self._splice.close(values)

    def _write_group(self, table: pa.Table) -> None:
        if self._chosen is None:
            self._chosen = self._dictionary(table)
        self._splice.take(Written(_encoded(table, self._policy, self._chosen)), 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Encoding:
    """Columns that are encoded when they are asked for."""

    rows: int
    source: ColumnSource
    policy: ParquetPolicy
    dictionary: Callable[[pa.Table], list[str]]

    def encoded(self, name: str) -> Written | None:
        table = self.source(name)
        if table is None:
            return None
        return Written(_encoded(table, self.policy, self.dictionary(table)))


def _columns_of(table: pa.Table) -> ColumnSource:
    return lambda name: table.select([name]) if name in table.column_names else None


def _encoded(table: pa.Table, policy: ParquetPolicy, dictionary: Sequence[str]) -> pa.Buffer:
    """A file with these rows as one row group."""
    out = pa.BufferOutputStream()
    with parquet_writer(out, table.schema, policy, dictionary) as writer:
        if table.num_rows:
            writer.write_table(table, row_group_size=table.num_rows)
    return out.getvalue()
