"""The order in which a bulk insert writes its rows: sort modes, in bounded memory.

Rows are taken in chunks that are sorted and held in scratch space. If there was one chunk, it is
the answer. Otherwise the sorted chunks are cut at common rows into ranges that fit into memory, and
one range after the other is put together, sorted and given out. Rows that are equal in the sort
columns keep no particular order. Nulls come last; text compares by its UTF-8 bytes.

`PARTITION_SORT` promises order only within what one task sees, so chunks are sorted one by one and
never spilled. What can go wrong: a sort column that the rows lack, or of a type without an order,
is an `OptionError` before any row is taken.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.engine.file_options import SortMode
from lakewright.engine.row_store import READ_ROWS, in_chunks
from lakewright.engine.write_context import PARTITION_PATH, RECORD_KEY
from lakewright.errors import OptionError
from lakewright.storage.scratch import Scratch

__all__ = ["Arrangement", "arrangement", "sorted_batches"]

CHUNKS_IN_MEMORY = 6
SAMPLES_PER_CHUNK = 64
"""Rows of each sorted chunk, at least, that may become borders of ranges."""

Order = tuple[Any, ...]
"""A row's values in the sort columns, as Python values that compare in sort order."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What a bulk insert does with the order of its rows."""

    columns: tuple[str, ...]
    """Sort columns, dotted where nested; none leaves rows as they come."""
    whole: bool
    """Whether all rows are in order, or only those of each chunk."""

    @property
    def groups_partitions(self) -> bool:
        """Whether the rows of a partition come one after the other."""
        return self.whole and self.columns[:1] == (PARTITION_PATH,)


def arrangement(
    mode: SortMode,
    *,
    sort_columns: Sequence[str] = (),
    record_key_last: bool = False,
    key_columns: Sequence[str] = (RECORD_KEY,),
) -> Arrangement:
    """The arrangement of a sort mode; `sort_columns` take its place, as in Hudi.

    Rows are always sorted by partition first. `key_columns` stand for the record key where the
    table does not store it.
    """
    if sort_columns:
        last = tuple(key_columns) if record_key_last else ()
        return Arrangement((PARTITION_PATH, *sort_columns, *last), True)
    match mode:
        case SortMode.NONE:
            return Arrangement((), False)
        case SortMode.GLOBAL_SORT:
            return Arrangement((PARTITION_PATH, *key_columns), True)
        case SortMode.PARTITION_SORT:
            return Arrangement((PARTITION_PATH, *key_columns), False)
        case SortMode.PARTITION_PATH_REPARTITION | SortMode.PARTITION_PATH_REPARTITION_AND_SORT:
            return Arrangement((PARTITION_PATH,), True)


def sorted_batches(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    arranged: Arrangement,
    *,
    memory_bytes: int,
    folder: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of batches of `schema` in order. Columns are checked before the first is taken."""
    for name in arranged.columns:
        _check_column(schema, name)
    if not arranged.columns:
        return iter(batches)
    chunks = in_chunks(batches, memory_bytes // CHUNKS_IN_MEMORY)
    if not arranged.whole:
        return (part for chunk in chunks for part in _parts(_sorted(chunk, arranged.columns)))
    return _merged(chunks, arranged.columns, memory_bytes, folder)


def _merged(
    chunks: Iterator[pa.RecordBatch], columns: Sequence[str], memory_bytes: int, folder: str | None
) -> Iterator[pa.RecordBatch]:
    with Scratch(memory_bytes // 2, folder=folder) as scratch:
        runs = [_Run.of(scratch.hold(_sorted(chunk, columns)), columns) for chunk in chunks]
        if len(runs) == 1:
            yield from _parts(runs[0].rows)
            return
        starts = [0] * len(runs)
        for border in _borders(runs):
            below = [run.first_not_below(border, s) for run, s in zip(runs, starts, strict=True)]
            yield from _range(runs, starts, below, columns)
            equal = [run.first_above(border, s) for run, s in zip(runs, below, strict=True)]
            for run, start, stop in zip(runs, below, equal, strict=True):
                yield from _parts(run.rows.slice(start, stop - start))
            starts = equal
        yield from _range(runs, starts, [len(run) for run in runs], columns)


def _range(
    runs: Sequence[_Run], starts: Sequence[int], stops: Sequence[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows between two borders, of all runs together."""
    pieces = [
        run.rows.slice(start, stop - start)
        for run, start, stop in zip(runs, starts, stops, strict=True)
        if stop > start
    ]
    if pieces:
        yield from _parts(_sorted(pa.concat_batches(pieces), columns))


def _borders(runs: Sequence[_Run]) -> list[Order]:
    """Rows that cut all runs into ranges of at most one and a half chunks, mostly of half a one.

    Each run adds to a range one stretch without a sample of its own, and each sample another.
    """
    each = max(SAMPLES_PER_CHUNK, len(runs))
    samples = sorted(
        run.order(at) for run in runs for at in range(0, len(run), -(-len(run) // each))
    )
    taken = samples[each // 2 :: each // 2]
    return [b for i, b in enumerate(taken) if i == 0 or b != taken[i - 1]]


@dataclass(frozen=True, slots=True)
class _Run:
    """A sorted chunk and its sort columns."""

    rows: pa.RecordBatch
    keys: tuple[pa.Array, ...]

    @classmethod
    def of(cls, rows: pa.RecordBatch, columns: Sequence[str]) -> _Run:
        return cls(rows, tuple(_column(rows, name) for name in columns))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def order(self, row: int) -> Order:
        """The row's place in the order."""
        return tuple(_comparable(key[row].as_py()) for key in self.keys)

    def first_not_below(self, border: Order, start: int) -> int:
        """The first row from `start` on that is not before the border."""
        return self._first(start, lambda order: order >= border)

    def first_above(self, border: Order, start: int) -> int:
        """The first row from `start` on that is behind the border."""
        return self._first(start, lambda order: order > border)

    def _first(self, low: int, reached: Any) -> int:
        high = len(self)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if reached(self.order(middle)) else (middle + 1, high)
        return low


def _comparable(value: Any) -> tuple[Any, ...]:
    """Values, then what is not a number, then nulls, as Arrow sorts them."""
    if value is None:
        return (2,)
    if isinstance(value, float) and math.isnan(value):
        return (1,)
    return (0, value)


def _sorted(chunk: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    names = [str(i) for i in range(len(columns))]
    keys = pa.table([_column(chunk, name) for name in columns], names=names)
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in names])
    return chunk.take(order)


def _column(batch: pa.RecordBatch, dotted: str) -> pa.Array:
    """A column, or a field inside of structs; null where a struct above it is."""
    if dotted in batch.schema.names:
        return batch.column(dotted)
    first, *rest = dotted.split(".")
    array = batch.column(first)
    return pc.struct_field(array, rest) if rest else array


def _check_column(schema: pa.Schema, dotted: str) -> None:
    kind: pa.DataType | None = None
    if dotted in schema.names:
        kind = schema.field(dotted).type
    else:
        kind = pa.struct(list(schema))
        for name in dotted.split("."):
            index = kind.get_field_index(name) if pt.is_struct(kind) else -1
            if index < 0:
                raise _unknown(schema, dotted)
            kind = kind.field(index).type
    if pt.is_nested(kind):
        raise OptionError(
            f"Rows cannot be sorted by {dotted}: {kind} has no order.",
            hint="Sort by one of the fields inside of it, as column.field.",
            context={"column": dotted},
        )


def _unknown(schema: pa.Schema, dotted: str) -> OptionError:
    near = difflib.get_close_matches(dotted, schema.names, n=1, cutoff=0.5)
    return OptionError(
        f"Rows cannot be sorted by {dotted}: there is no such column.",
        hint=f"Did you mean {near[0]!r}?" if near else "Check the sort columns.",
        context={"column": dotted},
    )


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, READ_ROWS):
        yield batch.slice(start, READ_ROWS)
