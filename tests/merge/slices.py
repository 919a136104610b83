"""Small file slices for tests: rows as dicts in, merged rows as dicts out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from lakewright.merge.deletes import delete_rule
from lakewright.merge.fold import LogVersions
from lakewright.merge.ordering import is_default, ordering_values
from lakewright.merge.pool import Hold, in_memory
from lakewright.merge.protocol import MergeContext, Phase, RecordMerger, Take
from lakewright.merge.reduction import Int32s
from lakewright.merge.state import LogState

KEY = "_hoodie_record_key"


@dataclass(frozen=True)
class Row:
    """A data row; `columns` names what a partial row really has."""

    values: Mapping[str, Any]
    columns: frozenset[str] | None = None

    @property
    def key(self) -> str:
        return str(self.values[KEY])


@dataclass(frozen=True)
class Gone:
    """An entry of a delete block; no ordering values: a commit-time delete."""

    key: str
    ordering: tuple[Any, ...] | None = None


Version = Row | Gone


def batch_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a batch; absent columns are null."""
    return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema)


def add(versions: LogVersions, version: Sequence[Version], ctx: MergeContext) -> None:
    """Add versions of one kind (and one column set) as one block."""
    first = version[0]
    if isinstance(first, Row):
        rows = [v.values for v in version if isinstance(v, Row)]
        versions.add_rows(batch_of(rows, ctx.schema), columns=first.columns)
        return
    gone = [v for v in version if isinstance(v, Gone)]
    width = len(ctx.ordering_columns)
    ordering = [
        pa.array(
            [None if v.ordering is None else v.ordering[k] for v in gone],
            ctx.schema.field(name).type,
        )
        for k, name in enumerate(ctx.ordering_columns)
    ]
    assert len(ordering) == width
    versions.add_deletes(
        pa.array([v.key for v in gone]), ordering, np.array([v.ordering is None for v in gone])
    )


def read_slice(
    merger: RecordMerger,
    ctx: MergeContext,
    base: Sequence[Mapping[str, Any]],
    blocks: Iterable[Sequence[Version]],
    *,
    hold: Hold = in_memory,
    base_batches: int = 1,
) -> list[dict[str, Any]]:
    """Merge a whole slice through the engine's classes: base rows first, then log-only rows."""
    versions = LogVersions(ctx, merger, hold=hold)
    for block in blocks:
        if block:
            add(versions, block, ctx)
    state = versions.finish()
    result: list[dict[str, Any]] = []
    bounds = np.linspace(0, len(base), base_batches + 1).astype(int)
    for start, end in pairwise(bounds.tolist()):
        batch = batch_of(base[start:end], ctx.schema)
        codes = state.locate(batch.column(KEY))
        result += _applied(state, batch, codes).to_pylist()
    for batch in state.remaining(7):
        result += batch.to_pylist()
    return result


def _applied(state: LogState, batch: pa.RecordBatch, codes: Int32s) -> pa.RecordBatch:
    """What becomes of base rows; column by column it is the same, where that is possible."""
    deciding, before = state.deciding_columns(codes), (state.replaced, state.removed)
    choice = None if deciding is None else state.choose(batch.select(deciding), codes)
    rows = state.apply(batch, codes)
    if choice is not None:
        columns = [choice.column(n, c) for n, c in zip(batch.schema.names, batch, strict=True)]
        made = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        assert repr(made.to_pylist()) == repr(rows.to_pylist()), "NaN counts as equal to itself"
        placing = choice.placing
        told = before[0] + placing.replaced, before[1] + placing.removed
        assert told == (state.replaced, state.removed)
        assert placing.rows == rows.num_rows
        assert not placing.changes_nothing or rows is batch
        assert not state.only_removes(codes) or not placing.replaced
    return rows


@dataclass(frozen=True)
class Outcome:
    """What a merger made of one pair."""

    take: Take
    row: dict[str, Any] | None
    """None: deleted."""


def merge_pair(merger: RecordMerger, ctx: MergeContext, older: Version, newer: Version) -> Outcome:
    """Merge two versions through the public merger."""
    left, right = _one(older, ctx), _one(newer, ctx)
    gone_left, gone_right = _deleted(merger, ctx, older, left), _deleted(merger, ctx, newer, right)
    if ctx.phase is Phase.BASE:
        gone_left = False
    pair = replace(
        ctx,
        older_deleted=pa.array([gone_left]),
        newer_deleted=pa.array([gone_right]),
        older_unordered=pa.array([gone_left and _unordered(ctx, older, left)]),
        newer_unordered=pa.array([gone_right and _unordered(ctx, newer, right)]),
        older_empty=pa.array([isinstance(older, Gone)]),
        newer_empty=pa.array([isinstance(newer, Gone)]),
        older_columns=older.columns if isinstance(older, Row) else None,
        newer_columns=newer.columns if isinstance(newer, Row) else None,
    )
    full = pair.older_columns is None and pair.newer_columns is None
    merged = (merger.merge if full else merger.merge_partial)(left, right, pair)
    take = Take(merged.take[0].as_py())
    if take is Take.BUILT:
        assert merged.built is not None
        (row,) = merged.built.to_pylist()
        return Outcome(take, row)
    if take is Take.DELETE:
        return Outcome(take, None)
    picked, gone = (right, gone_right) if take is Take.NEWER else (left, gone_left)
    return Outcome(take, None if gone else picked.to_pylist()[0])


def _one(version: Version, ctx: MergeContext) -> pa.RecordBatch:
    if isinstance(version, Row):
        return batch_of([version.values], ctx.schema)
    values = dict(zip(ctx.ordering_columns, version.ordering or (), strict=False))
    return batch_of([{KEY: version.key, **values}], ctx.schema)


def _deleted(
    merger: RecordMerger, ctx: MergeContext, version: Version, rows: pa.RecordBatch
) -> bool:
    if isinstance(version, Gone):
        return True
    mask = delete_rule(merger, ctx).mask(rows)
    return mask is not None and bool(mask[0])


def _unordered(ctx: MergeContext, version: Version, rows: pa.RecordBatch) -> bool:
    if isinstance(version, Gone):
        return version.ordering is None
    return bool(is_default(ordering_values(rows, ctx.ordering_columns), 1)[0])
