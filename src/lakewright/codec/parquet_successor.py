"""Writing the next version of a Parquet file: row groups that stay are taken over as they are.

`SuccessorSink` is a `ParquetSink` that can also take row groups of the older file, with other
values in some columns, or some of their rows. Rows that are written meanwhile are encoded in
memory, a row group at a time, and follow in their order. Memory is one row group of Arrow rows and
its encoded columns, as for every sink; of columns that take the place of others one at a time is
encoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lakewright.codec.parquet import ParquetFile, open_parquet
from lakewright.codec.parquet_rows import SomeRows, some_rows
from lakewright.codec.parquet_splice import Splice
from lakewright.codec.parquet_writer import (
    ParquetPolicy,
    ParquetSink,
    parquet_writer,
    rows_refused,
)

__all__ = ["SuccessorSink"]

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

    def is_compressed_alike(self, group: int) -> bool:
        """Whether all columns of a row group of the older file have the codec of this one."""
        wanted = _CODEC_NAMES.get(self._policy.compression[0], self._policy.compression[0].upper())
        metadata = self._older.metadata.row_group(group)
        return all(metadata.column(n).compression == wanted for n in range(metadata.num_columns))

    def take_over(self, group: int, changed: pa.Table) -> None:
        """Take a row group of the older file, but `changed` columns, which have all its rows."""
        self.flush()
        with rows_refused():
            replaced = _Columns(changed, self._policy, self._dictionary(changed))
            self._splice.take(self._older, group, path=self._path, replaced=replaced)
        self.rows_written += changed.num_rows

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
        self.flush()
        table = rows.table
        if not table.num_rows:
            return
        with rows_refused():
            made = _Columns(table, self._policy, self._dictionary(table))
            self._splice.take(self._older, group, path=self._path, replaced=made, twins=rows.twins)
        self.rows_written += table.num_rows

    def close(self, values: Mapping[str, str]) -> None:
        """Write what is left and the footer with these key/value pairs."""
        self.flush()
        self._splice.close(values)

    def _write_group(self, table: pa.Table) -> None:
        if self._chosen is None:
            self._chosen = self._dictionary(table)
        self._splice.take(_encoded(table, self._policy, self._chosen), 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """Columns of a table, encoded one by one."""

    table: pa.Table
    policy: ParquetPolicy
    dictionary: Sequence[str]

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def __contains__(self, name: str) -> bool:
        return name in self.table.column_names

    def encoded(self, name: str) -> ParquetFile:
        chosen = [path for path in self.dictionary if path.partition(".")[0] == name]
        return _encoded(self.table.select([name]), self.policy, chosen)


def _encoded(table: pa.Table, policy: ParquetPolicy, dictionary: Sequence[str]) -> ParquetFile:
    out = pa.BufferOutputStream()
    with parquet_writer(out, table.schema, policy, dictionary) as writer:
        if table.num_rows:
            writer.write_table(table, row_group_size=table.num_rows)
    return open_parquet(out.getvalue(), path="")
