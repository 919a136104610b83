"""The versions of log rows as numbers, and the rows behind them when they are wanted.

An `Entries` is what is known of versions without looking at their rows. A `LogRows` turns numbers
into rows: those of data blocks from a pool, deletes without a row from their key and ordering
values, with null everywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakewright.merge.columns import Bools, Int64s, nested_column, path_type, top_level
from lakewright.merge.pool import Hold, RowPool
from lakewright.merge.protocol import MergeContext
from lakewright.merge.reduction import Int32s

Int16s = npt.NDArray[np.int16]

FULL: Final = 0
"""The number of the column set that means every column."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Versions, one per place in every vector."""

    numbers: Int64s
    """The row in the pool; negative for a delete without a row."""
    deleted: Bools
    empty: Bools
    """Deletes without a row."""
    default_ordering: Bools
    column_sets: Int16s
    """Which columns the row really has."""

    def at(self, places: npt.NDArray[np.integer]) -> Entries:
        """The versions at these places."""
        return Entries(
            self.numbers[places],
            self.deleted[places],
            self.empty[places],
            self.default_ordering[places],
            self.column_sets[places],
        )

    def put(self, places: npt.NDArray[np.integer], entries: Entries) -> None:
        """Overwrite the versions at these places."""
        self.numbers[places] = entries.numbers
        self.deleted[places] = entries.deleted
        self.empty[places] = entries.empty
        self.default_ordering[places] = entries.default_ordering
        self.column_sets[places] = entries.column_sets

    @property
    def unordered(self) -> Bools:
        """Commit-time deletes."""
        return self.deleted & self.default_ordering


class LogRows:
    """Rows by number under one merge context."""

    def __init__(self, ctx: MergeContext, hold: Hold) -> None:
        self.ctx = ctx
        self.pool = RowPool(ctx.schema, hold)
        self.column_sets: list[frozenset[str] | None] = [None]
        self._ordering_types = [path_type(ctx.schema, path) for path in ctx.ordering_columns]
        names = [str(k) for k in range(len(self._ordering_types))]
        self._delete_schema = pa.schema(zip(names, self._ordering_types, strict=True))
        self._deletes = RowPool(self._delete_schema)

    def column_set(self, columns: frozenset[str] | None) -> int:
        """The number of a column set; a set of all columns is the full one."""
        if columns is None or columns.issuperset(self.ctx.schema.names):
            return FULL
        if columns not in self.column_sets:
            self.column_sets.append(columns)
        return self.column_sets.index(columns)

    def add_deletes(self, ordering: Sequence[pa.Array], size: int) -> Int64s:
        """Remember deletes without a row; the answer is their (negative) numbers."""
        if not self._ordering_types:
            return np.full(size, -1, dtype=np.int64)
        columns = [
            column.cast(kind) for column, kind in zip(ordering, self._ordering_types, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._delete_schema)
        first = self._deletes.append(rows)
        return -1 - np.arange(first, first + size, dtype=np.int64)

    def batch(
        self,
        keys: pa.Array,
        codes: Int32s,
        numbers: Int64s,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatch:
        """The rows with these numbers and keys, in the context's schema or some columns of it."""
        rows = self.pool.gather(np.maximum(numbers, -1), columns)
        gone = np.flatnonzero(numbers < 0)
        if not len(gone):
            return rows
        known = {self.ctx.key_column: keys.take(pa.array(codes[gone]))} | self._ordering(
            -1 - numbers[gone]
        )
        index = np.arange(len(numbers), dtype=np.int64)
        index[gone] = np.arange(len(numbers), len(numbers) + len(gone))
        gather = pa.array(index)
        merged = [
            pa.concat_arrays([column, known[field.name].cast(field.type)]).take(gather)
            if field.name in known
            else column
            for field, column in zip(rows.schema, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(merged, schema=rows.schema)

    def _ordering(self, deletes: Int64s) -> dict[str, pa.Array]:
        """Top-level columns that hold nothing but the ordering values of deletes."""
        if not self._ordering_types:
            return {}
        values = self._deletes.gather(deletes)
        columns: dict[str, pa.Array] = {}
        for k, path in enumerate(self.ctx.ordering_columns):
            name = top_level(path, self.ctx.schema)
            index = self.ctx.schema.get_field_index(name)
            if index >= 0:
                rest = "" if path == name else path[len(name) + 1 :]
                field = self.ctx.schema.field(index)
                columns[name] = nested_column(field, rest, values.column(k))
        return columns
