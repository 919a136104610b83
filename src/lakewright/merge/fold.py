"""Merging the log versions of a file slice with each other.

`LogVersions` takes rows and deletes in merge order, oldest first, and reduces them to at most one
version per key. Keys, ordering values, delete masks and row numbers stay in memory; rows go to the
pool and through `hold`. The result is that of merging the versions of a key one after the other,
whatever the batches they came in; rules that only choose are reduced without doing so
(`reduction`), all others in rounds: the second version of every key at once, then the third.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakewright.errors import MergeError
from lakewright.merge.answers import ask, distinct_sets, needed_columns, pair_context
from lakewright.merge.columns import Bools, Int64s
from lakewright.merge.deletes import delete_rule
from lakewright.merge.log_rows import FULL, Entries, LogRows
from lakewright.merge.ordering import is_default, order_keys, ordering_values
from lakewright.merge.partial import joined_columns
from lakewright.merge.pool import Hold, in_memory
from lakewright.merge.protocol import MergeContext, RecordMerger, Take
from lakewright.merge.reduction import (
    Int32s,
    LogOrder,
    Versions,
    greatest,
    keys_to_fold,
    latest,
)
from lakewright.merge.state import LogState

_OFFSET_LIMIT = 2**31 - 1
_BYTES_PER_VERSION = 24
"""Number, masks, column set, key code and one ordering value."""


class LogVersions:
    """Collects the versions of one file slice's log, oldest first."""

    def __init__(self, ctx: MergeContext, merger: RecordMerger, *, hold: Hold = in_memory) -> None:
        """`ctx` of phase LOG; `hold` keeps row batches, in memory unless told otherwise."""
        self._ctx = ctx
        self._merger = merger
        self._rule = delete_rule(merger, ctx)
        self._rows = LogRows(ctx, hold)
        self._key_type = ctx.schema.field(ctx.key_column).type
        self._keys: list[pa.Array] = []
        self._ordering: list[list[pa.Array]] = []
        self._entries: list[Entries] = []
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """Memory for keys, ordering values and row numbers, without the rows."""
        return self._nbytes

    def add_rows(self, batch: pa.RecordBatch, *, columns: frozenset[str] | None = None) -> None:
        """Add rows of a data block in `ctx.schema`.

        Rows of a partial block have nulls in the columns they lack, and `columns` names those they
        really have.
        """
        size = batch.num_rows
        if not size:
            return
        self._add_keys(batch.column(self._ctx.key_column))
        ordering = ordering_values(batch, self._ctx.ordering_columns)
        self._ordering.append(ordering)
        first = self._rows.pool.append(batch)
        deleted = self._rule.mask(batch)
        self._entries.append(
            Entries(
                np.arange(first, first + size, dtype=np.int64),
                np.zeros(size, dtype=np.bool_) if deleted is None else deleted,
                np.zeros(size, dtype=np.bool_),
                is_default(ordering, size),
                np.full(size, self._rows.column_set(columns), dtype=np.int16),
            )
        )

    def add_deletes(self, keys: pa.Array, ordering: Sequence[pa.Array], unordered: Bools) -> None:
        """Add the entries of a delete block.

        `ordering` has one array per ordering column, in the column's type; `unordered` marks the
        entries without an ordering value, which win over everything before them.
        """
        size = len(keys)
        if not size:
            return
        self._add_keys(keys)
        self._ordering.append(list(ordering))
        self._entries.append(
            Entries(
                self._rows.add_deletes(ordering, size),
                np.ones(size, dtype=np.bool_),
                np.ones(size, dtype=np.bool_),
                np.asarray(unordered, dtype=np.bool_),
                np.full(size, FULL, dtype=np.int16),
            )
        )

    def finish(self) -> LogState:
        """Reduce everything to one version per key. Nothing can be added afterwards."""
        keys, codes = _encoded(self._keys, self._key_type)
        entries = _joined(self._entries)
        self._keys, self._entries = [], []
        versions = Versions(
            codes, entries.deleted, entries.empty, entries.default_ordering, len(keys)
        )
        promise = getattr(self._merger, "log_order", None)
        order: LogOrder | None = promise(self._ctx) if callable(promise) else None
        folded = keys_to_fold(versions, order, entries.column_sets != FULL)
        chosen = latest(versions)
        if order in (LogOrder.GREATEST, LogOrder.PAYLOAD_GREATEST):
            self._choose_greatest(versions, order, folded, chosen)
        self._ordering = []
        state = entries.at(chosen)
        if folded.any():
            rounds = _Rounds(self._merger, self._rows, keys)
            rounds.fold(codes, entries, folded, state)
        return LogState(self._ctx, self._merger, self._rows, keys, state)

    def _choose_greatest(
        self, versions: Versions, order: LogOrder, folded: Bools, chosen: Int64s
    ) -> None:
        """Where keys have several versions, choose by ordering value instead of the latest."""
        counts = np.bincount(versions.codes, minlength=versions.key_count)
        contested = (counts > 1) & ~folded
        rows = np.flatnonzero(contested[versions.codes])
        if not len(rows):
            return
        index = pa.array(rows)
        columns = [
            pa.chunked_array(chunks).take(index).combine_chunks()
            for chunks in zip(*_aligned(self._ordering), strict=True)
        ]
        found = greatest(versions, order, order_keys(columns, len(rows)), rows)
        chosen[contested] = found[contested]

    def _add_keys(self, keys: pa.Array) -> None:
        if keys.null_count:
            raise MergeError(
                f"{keys.null_count} log records have no record key.",
                hint="Every row of a table with logs needs a key; repair the writer of the log.",
                context={"column": self._ctx.key_column},
            )
        self._keys.append(keys if keys.type == self._key_type else keys.cast(self._key_type))
        self._nbytes += keys.nbytes + len(keys) * _BYTES_PER_VERSION


class _Rounds:
    """Merges the r-th version of every key with the result so far, for r = 1, 2, ..."""

    def __init__(self, merger: RecordMerger, rows: LogRows, keys: pa.Array) -> None:
        self._merger = merger
        self._rows = rows
        self._ctx = rows.ctx
        self._keys = keys
        self._rule = delete_rule(merger, rows.ctx)
        self._needed = needed_columns(merger, rows.ctx)

    def fold(self, codes: Int32s, entries: Entries, folded: Bools, state: Entries) -> None:
        """Put the result for the keys `folded` into `state`, which is by key."""
        places = np.flatnonzero(folded[codes])
        places = places[np.argsort(codes[places], kind="stable")]
        by_key = codes[places]
        first = np.flatnonzero(np.diff(by_key, prepend=-1))
        counts = np.diff(first, append=len(places))
        # Keys with most versions first, so that each round works on a prefix.
        most = np.argsort(-counts, kind="stable")
        first, counts = first[most], counts[most]
        active_codes = by_key[first]
        result = entries.at(places[first])
        for r in range(1, int(counts[0])):
            active = int(np.searchsorted(-counts, -r, side="left"))
            newer = entries.at(places[first[:active] + r])
            front = np.arange(active)
            result.put(front, self._merge(active_codes[:active], result.at(front), newer))
        state.put(active_codes, result)

    def _merge(self, codes: Int32s, older: Entries, newer: Entries) -> Entries:
        result = older.at(np.arange(len(codes)))
        for older_set, newer_set, places in distinct_sets(older, newer):
            left, right, keys = older.at(places), newer.at(places), codes[places]
            sets = self._rows.column_sets
            ctx = pair_context(self._ctx, left, right, sets[older_set], sets[newer_set])
            full = older_set == FULL and newer_set == FULL
            columns = self._needed if full else None
            answer = ask(
                self._merger,
                self._rows.batch(self._keys, keys, left.numbers, columns),
                self._rows.batch(self._keys, keys, right.numbers, columns),
                ctx,
            )
            taken = np.flatnonzero(answer.take == Take.NEWER)
            result.put(places[taken], right.at(taken))
            if answer.built is not None:
                built = np.flatnonzero(answer.take == Take.BUILT)
                result.put(places[built], self._built(answer.built, ctx))
            gone = np.flatnonzero(answer.take == Take.DELETE)
            if len(gone):
                result.put(places[gone], self._gone(answer.delete_ordering, len(gone)))
        return result

    def _built(self, rows: pa.RecordBatch, ctx: MergeContext) -> Entries:
        size = rows.num_rows
        first = self._rows.pool.append(rows)
        deleted = self._rule.mask(rows)
        columns = joined_columns(ctx.older_columns, ctx.newer_columns, ctx.schema)
        return Entries(
            np.arange(first, first + size, dtype=np.int64),
            np.zeros(size, dtype=np.bool_) if deleted is None else deleted,
            np.zeros(size, dtype=np.bool_),
            is_default(ordering_values(rows, ctx.ordering_columns), size),
            np.full(size, self._rows.column_set(columns), dtype=np.int16),
        )

    def _gone(self, ordering: list[pa.Array], size: int) -> Entries:
        return Entries(
            self._rows.add_deletes(ordering, size),
            np.ones(size, dtype=np.bool_),
            np.ones(size, dtype=np.bool_),
            is_default(ordering, size),
            np.full(size, FULL, dtype=np.int16),
        )


def _encoded(chunks: list[pa.Array], kind: pa.DataType) -> tuple[pa.Array, Int32s]:
    """The distinct keys by first appearance, and for every version the index of its key."""
    if not chunks:
        return pa.array([], kind), np.zeros(0, dtype=np.int32)
    if sum(chunk.nbytes for chunk in chunks) > _OFFSET_LIMIT and pa.types.is_string(kind):
        chunks = [chunk.cast(pa.large_string()) for chunk in chunks]
    encoded = pa.chunked_array(chunks).dictionary_encode()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    return encoded.chunk(encoded.num_chunks - 1).dictionary, codes


def _joined(chunks: list[Entries]) -> Entries:
    if not chunks:
        nothing = np.zeros(0, dtype=np.bool_)
        return Entries(
            np.zeros(0, np.int64), nothing, nothing, nothing, np.zeros(0, dtype=np.int16)
        )
    return Entries(
        np.concatenate([chunk.numbers for chunk in chunks]),
        np.concatenate([chunk.deleted for chunk in chunks]),
        np.concatenate([chunk.empty for chunk in chunks]),
        np.concatenate([chunk.default_ordering for chunk in chunks]),
        np.concatenate([chunk.column_sets for chunk in chunks]),
    )


def _aligned(batches: list[list[pa.Array]]) -> list[list[pa.Array]]:
    """Ordering columns of all batches in the types of the first."""
    kinds = [column.type for column in batches[0]]
    return [
        [c if c.type == kind else c.cast(kind) for c, kind in zip(batch, kinds, strict=True)]
        for batch in batches
    ]
