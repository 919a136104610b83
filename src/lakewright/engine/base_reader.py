"""Reading a base file: chosen row groups and columns, brought to the read schema, in batches.

Row groups whose statistics exclude the given filters are left out; whatever is read is converted
from the file's own schema to the asked one (added, dropped, promoted and reordered columns).
Columns that the table does not store (dropped partition columns) are filled with constants. Of two
filters `below` only saves reading, while rows that fail `keep` are as if they were not in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakewright.codec.parquet import open_parquet, read_row_group, row_group_range
from lakewright.errors import NotFoundError
from lakewright.expr import Expr, can_match, columns, evaluate
from lakewright.expr.prune import ColumnRange
from lakewright.format.evolution import Conversion, conversion
from lakewright.format.file_slices import BaseFile
from lakewright.storage.base import Storage


@dataclass(frozen=True, slots=True)
class BaseReader:
    """An open base file and the schema its rows are brought to."""

    path: str
    file: pq.ParquetFile
    schema: pa.Schema
    converted: Conversion
    below: Expr | None
    constants: Mapping[str, Any]
    renames: Mapping[str, str]
    keep: Expr | None = None

    @classmethod
    def open(
        cls,
        storage: Storage,
        base: BaseFile,
        *,
        schema: pa.Schema,
        below: Expr | None = None,
        renames: Mapping[str, str] | None = None,
        constants: Mapping[str, Any] | None = None,
        keep: Expr | None = None,
    ) -> BaseReader:
        """Read the footer and prepare the conversion to `schema`, with the columns of `keep`."""
        try:
            file = open_parquet(storage.open_input(base.path), path=base.path)
        except NotFoundError as error:
            raise NotFoundError(
                "A base file of the snapshot is gone; it was probably cleaned during the read.",
                hint="Read again: a new scan pins a new snapshot. If it happens often, let the "
                "cleaner retain more commits than the longest read takes.",
                context={"path": base.path},
                retryable=True,
            ) from error
        source = file.schema_arrow.remove_metadata()
        made = conversion(source, schema, renames=renames or {}, path=base.path)
        return cls(base.path, file, schema, made, below, constants or {}, renames or {}, keep)

    def row_groups(self) -> list[int]:
        """Row groups that may hold a row passing both filters, in file order."""
        groups = list(range(self.file.metadata.num_row_groups))
        for test in (self.below, self.keep):
            if test is not None:
                groups = [g for g in groups if can_match(test, partial(self._range, g))]
        return groups

    def _range(self, group: int, column: str) -> ColumnRange | None:
        stored = self.converted.stored_as(column)
        if stored is None:
            return None
        found = row_group_range(self.file, group, stored)
        return ColumnRange(found.minimum, found.maximum, found.null_count, found.row_count)

    def batches(
        self, group: int, rows: int, known: Mapping[str, pa.Array] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The row group in the read schema, at most `rows` rows at a time.

        Columns that are `known` from `columns` before are not read again.
        """
        if not known:
            yield from self._read(group, self.converted, rows)
            return
        rest = pa.schema([field for field in self.schema if field.name not in known])
        source = self.file.schema_arrow.remove_metadata()
        made = conversion(source, rest, renames=self.renames, path=self.path)
        start = 0
        for batch in self._read(group, made, rows):
            taken = {name: values.slice(start, batch.num_rows) for name, values in known.items()}
            read = dict(zip(rest.names, batch.columns, strict=True)) | taken
            arrays = [read[name] for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            start += batch.num_rows

    def columns(self, group: int, names: Sequence[str]) -> pa.RecordBatch:
        """Some columns of the whole row group."""
        also = columns(self.keep) - set(names) if self.keep is not None else frozenset()
        read = pa.schema([self.schema.field(n) for n in (*names, *also)])
        made = conversion(self.file.schema_arrow.remove_metadata(), read, path=self.path)
        batches = list(self._read(group, made, self.file.metadata.row_group(group).num_rows))
        table = pa.Table.from_batches(batches, schema=read).combine_chunks().select(names)
        target = table.schema
        return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], target)

    def bundles(self, group: int, bytes_: int) -> Iterator[list[str]]:
        """The names of the file's columns in their order, as many together as have so many bytes
        before they are decoded; those of one column are not divided."""
        metadata = self.file.metadata.row_group(group)
        sizes = dict.fromkeys(self.file.schema_arrow.names, 0)
        for n in range(metadata.num_columns):
            leaf = metadata.column(n)
            sizes[leaf.path_in_schema.partition(".")[0]] += leaf.total_uncompressed_size
        names: list[str] = []
        for name in sizes:
            names.append(name)
            if sum(sizes[n] for n in names) >= bytes_:
                yield names
                names = []
        if names:
            yield names

    def column(self, group: int, name: str) -> pa.Array:
        """One column of the whole row group."""
        return self.columns(group, [name]).column(0)

    def _read(self, group: int, made: Conversion, rows: int) -> Iterator[pa.RecordBatch]:
        for batch in read_row_group(
            self.file, group, path=self.path, columns=made.source_columns, batch_rows=rows
        ):
            full = made.apply(batch, self.constants)
            yield full if self.keep is None else full.filter(evaluate(self.keep, full))
