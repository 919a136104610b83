"""A pool of rows addressed by number, kept in batches that may live outside of memory.

Rows are numbered in the order of arrival and never change. Batches go through `hold` once, which
may put them into memory-mapped files and must give back equal batches. Small ones are joined first,
so that a gather touches few batches however finely the rows arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from lakewright.merge.columns import Int64s

Hold = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Keeps a batch and answers with one that is equal to it."""

_JOINED_ROWS: Final = 4096
"""Batches below this are joined before they are held."""


def in_memory(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The `Hold` that keeps batches as they are."""
    return rows


class RowPool:
    """Rows of one schema, by number."""

    def __init__(self, schema: pa.Schema, hold: Hold = in_memory) -> None:
        self.schema = schema
        self._hold = hold
        self._held: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        self._small: list[pa.RecordBatch] = []
        self._small_rows = 0
        self._held_rows = 0

    @property
    def num_rows(self) -> int:
        """Rows so far; the number of the next one."""
        return self._held_rows + self._small_rows

    def append(self, rows: pa.RecordBatch) -> int:
        """Add rows; the answer is the number of the first."""
        first = self.num_rows
        if rows.num_rows >= _JOINED_ROWS:
            self._join_small()
            self._keep(rows)
        elif rows.num_rows:
            self._small.append(rows)
            self._small_rows += rows.num_rows
            if self._small_rows >= _JOINED_ROWS:
                self._join_small()
        return first

    def gather(self, numbers: Int64s, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows with these numbers, in this order; a negative number is a row of nulls."""
        present = numbers >= 0
        if not present.all():
            rows = self.gather(numbers[present], columns)
            index = np.full(len(numbers), -1, dtype=np.int64)
            index[present] = np.arange(rows.num_rows)
            return rows.take(pa.array(index, mask=~present))
        rows, order = self.gather_any_order(numbers, columns)
        if order is None:
            return rows
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return rows.take(pa.array(back))

    def gather_any_order(
        self, numbers: Int64s, columns: Sequence[str] | None = None
    ) -> tuple[pa.RecordBatch, Int64s | None]:
        """The rows in the order that is cheapest, and for each its place in `numbers`.

        No places: the order is that of `numbers`.
        """
        picked = self.pick(numbers)
        return picked.rows(columns), picked.order

    def pick(self, numbers: Int64s) -> Picked:
        """The rows with these numbers, none of them negative, to be gathered column by column."""
        self._join_small()
        order = None
        if len(numbers) > 1 and (np.diff(numbers) < 0).any():
            order = np.argsort(numbers, kind="stable")
            numbers = numbers[order]
        starts = np.array(self._starts, dtype=np.int64)
        batches = np.searchsorted(starts, numbers, side="right") - 1
        cuts = [*np.flatnonzero(np.diff(batches, prepend=-1)).tolist(), len(numbers)]
        pieces = []
        for first, end in pairwise(cuts):
            batch = int(batches[first])
            pieces.append((self._held[batch], numbers[first:end] - self._starts[batch]))
        return Picked(self.schema, order, pieces)

    def _keep(self, rows: pa.RecordBatch) -> None:
        self._starts.append(self._held_rows)
        self._held_rows += rows.num_rows
        self._held.append(self._hold(rows))

    def _join_small(self) -> None:
        if not self._small:
            return
        rows = pa.concat_batches(self._small) if len(self._small) > 1 else self._small[0]
        self._small, self._small_rows = [], 0
        self._keep(rows)


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """Some rows of a pool, in the order that is cheapest."""

    schema: pa.Schema
    order: Int64s | None
    """For each row its place in what was asked for; None if the order is that."""
    pieces: list[tuple[pa.RecordBatch, Int64s]]

    def rows(self, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows, or some columns of them."""
        pieces = [
            _take(rows if columns is None else rows.select(columns), index)
            for rows, index in self.pieces
        ]
        if len(pieces) == 1:
            return pieces[0]
        if pieces:
            return pa.concat_batches(pieces)
        names = self.schema.names if columns is None else columns
        return pa.RecordBatch.from_pylist([], pa.schema([self.schema.field(n) for n in names]))


def _take(rows: pa.RecordBatch, index: Int64s) -> pa.RecordBatch:
    """Ascending rows of a batch; a run without gaps is not copied."""
    first, size = int(index[0]), len(index)
    if int(index[-1]) - first + 1 == size and (size < 3 or (np.diff(index) == 1).all()):
        return rows.slice(first, size)
    return rows.take(pa.array(index))
