"""Asking a merger, and not trusting its answer blindly.

A merger may be a user's. What it answers is checked once per batch: one take per pair, exactly the
built rows, in the schema of the context. Anything else is a `MergeError` that names the merger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakewright.errors import MergeError
from lakewright.merge.columns import META_COLUMNS, Int64s, as_mask
from lakewright.merge.log_rows import FULL, Entries
from lakewright.merge.ordering import compare, ordering_values
from lakewright.merge.partial import Takes
from lakewright.merge.protocol import ALL, MergeContext, Merged, RecordMerger, Take


@dataclass(frozen=True, slots=True)
class Answer:
    """A merger's answer, checked."""

    take: Takes
    """OLDER, NEWER, BUILT or DELETE."""
    built: pa.RecordBatch | None
    delete_ordering: list[pa.Array]
    """Ordering columns of the pairs that are a DELETE, in their order."""


def needed_columns(merger: RecordMerger, ctx: MergeContext) -> list[str] | None:
    """The columns in which full rows must be shown to the merger; None: all of them."""
    wanted = merger.columns(ctx)
    if getattr(merger, "builds", True) or wanted is ALL or not isinstance(wanted, frozenset):
        return None
    tops = {path.split(".", 1)[0] for path in ctx.ordering_columns}
    names = wanted | tops | set(ctx.ordering_columns) | {ctx.key_column}
    return [name for name in ctx.schema.names if name in names]


def pair_context(
    ctx: MergeContext,
    older: Entries | None,
    newer: Entries,
    older_columns: frozenset[str] | None,
    newer_columns: frozenset[str] | None,
) -> MergeContext:
    """The context of aligned pairs; no `older` means rows of a base file, which are alive."""
    return replace(
        ctx,
        older_deleted=None if older is None else as_mask(older.deleted),
        newer_deleted=as_mask(newer.deleted),
        older_unordered=None if older is None else as_mask(older.unordered),
        newer_unordered=as_mask(newer.unordered),
        older_empty=None if older is None else as_mask(older.empty),
        newer_empty=as_mask(newer.empty),
        older_columns=older_columns,
        newer_columns=newer_columns,
    )


def ask(
    merger: RecordMerger, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext
) -> Answer:
    """Merge aligned pairs; partial rows on either side go through `merge_partial`."""
    full = ctx.older_columns is None and ctx.newer_columns is None
    merged = (merger.merge if full else merger.merge_partial)(older, newer, ctx)
    take = _checked_take(merger, merged, newer.num_rows)
    built_pairs = np.flatnonzero(take == Take.BUILT)
    built = _checked_built(merger, merged, built_pairs, newer, ctx)
    deletes = np.flatnonzero(take == Take.DELETE)
    ordering = _delete_ordering(merged, deletes, older, newer, ctx) if len(deletes) else []
    return Answer(take, built, ordering)


def _checked_take(merger: RecordMerger, merged: Merged, size: int) -> Takes:
    take = merged.take
    if not isinstance(take, pa.Array) or len(take) != size or take.null_count:
        raise _wrong(merger, f"answered with other than {size} takes")
    vector: Takes = take.cast(pa.uint8()).to_numpy(zero_copy_only=False).copy()
    if size and vector.max() > Take.IGNORE:
        raise _wrong(merger, f"answered with an unknown take ({int(vector.max())})")
    vector[vector == Take.IGNORE] = Take.OLDER
    return vector


def _checked_built(
    merger: RecordMerger,
    merged: Merged,
    pairs: Int64s,
    newer: pa.RecordBatch,
    ctx: MergeContext,
) -> pa.RecordBatch | None:
    built = merged.built
    rows = 0 if built is None else built.num_rows
    if rows != len(pairs):
        raise _wrong(merger, f"built {rows} rows for {len(pairs)} pairs that it marks as BUILT")
    if built is None or not rows:
        return None
    columns = []
    for field in ctx.schema:
        index = built.schema.get_field_index(field.name)
        if index >= 0:
            column = built.column(index)
        elif field.name in META_COLUMNS:
            column = newer.column(field.name).take(pa.array(pairs))
        else:
            raise _wrong(merger, f"built rows without the column {field.name}")
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
            raise _wrong(
                merger, f"built {field.name} as {column.type}, not {field.type}"
            ) from cause
    return pa.RecordBatch.from_arrays(columns, schema=ctx.schema)


def _delete_ordering(
    merged: Merged,
    pairs: Int64s,
    older: pa.RecordBatch,
    newer: pa.RecordBatch,
    ctx: MergeContext,
) -> list[pa.Array]:
    index = pa.array(pairs)
    given = merged.delete_ordering
    if given is not None:
        values = given.take(index)
        if pa.types.is_struct(values.type) and len(ctx.ordering_columns) > 1:
            return list(values.flatten())
        return [values]
    left = [column.take(index) for column in ordering_values(older, ctx.ordering_columns)]
    right = [column.take(index) for column in ordering_values(newer, ctx.ordering_columns)]
    greater = compare(left, right, len(pairs)) > 0
    places = np.arange(len(pairs))
    choice = pa.array(np.where(greater, places, places + len(pairs)))
    return [pa.concat_arrays([a, b]).take(choice) for a, b in zip(left, right, strict=True)]


def _wrong(merger: RecordMerger, what: str) -> MergeError:
    return MergeError(
        f"Merger {type(merger).__name__} of strategy {merger.strategy} {what}.",
        hint="Answer with one take per pair, and with exactly the BUILT rows in ctx.schema.",
        context={"strategy": str(merger.strategy)},
    )


def distinct_sets(older: Entries | None, newer: Entries) -> list[tuple[int, int, Int64s]]:
    """Pairs grouped by the column sets of both sides, each group with its places."""
    left = np.full(len(newer.numbers), FULL) if older is None else older.column_sets
    if not left.any() and not newer.column_sets.any():
        return [(FULL, FULL, np.arange(len(newer.numbers)))]
    both = left.astype(np.int64) << 32 | newer.column_sets
    found, inverse = np.unique(both, return_inverse=True)
    return [
        (int(value) >> 32, int(value) & 0xFFFFFFFF, np.flatnonzero(inverse == k))
        for k, value in enumerate(found.tolist())
    ]
