"""One version per key of a file slice's log, and how it meets the base file.

`locate` finds the log version of each base row, `apply` merges a batch of base rows with theirs,
`remaining` gives the rows that no base row met. Memory is that of the log: nothing grows with the
base file, and batches without a hit pass unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakewright.errors import MergeError
from lakewright.merge.answers import ask, distinct_sets, needed_columns, pair_context
from lakewright.merge.columns import Bools, Int64s, path_type
from lakewright.merge.deletes import DeleteRule
from lakewright.merge.key_index import KeyIndex
from lakewright.merge.log_rows import FULL, Entries, LogRows
from lakewright.merge.overlay import Placing, overlay
from lakewright.merge.partial import Takes
from lakewright.merge.pool import Picked
from lakewright.merge.protocol import MergeContext, Phase, RecordMerger, Take
from lakewright.merge.reduction import Int32s

OnChange = Callable[[pa.RecordBatch, Int64s, pa.RecordBatch, Int64s], None]
"""Base rows; positions that are replaced; by which rows; positions that go."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Base rows of which some are replaced whole and some go, column by column."""

    placing: Placing
    newer: Picked
    """The rows that replace others."""

    def column(self, name: str, old: pa.Array) -> pa.Array:
        """A column of the rows then; `old` itself if nothing changes in it."""
        return self.placing.column(old, self.newer.rows([name]).column(0))


class LogState:
    """The log of one file slice, reduced; stateful in which keys base rows have met."""

    def __init__(
        self,
        ctx: MergeContext,
        merger: RecordMerger,
        rows: LogRows,
        keys: pa.Array,
        entries: Entries,
    ) -> None:
        """Made by `LogVersions.finish`."""
        self._ctx = replace(ctx, phase=Phase.BASE)
        self._merger = merger
        self._rows = rows
        self._keys = keys
        self._index = KeyIndex(keys)
        self._entries = entries
        self._met = np.zeros(len(keys), dtype=np.bool_)
        self._needed = needed_columns(merger, ctx)
        self._narrow: pa.RecordBatch | None = None
        self.replaced = 0
        """Base rows that `apply` has given another version so far."""
        self.removed = 0
        """Base rows that `apply` has left out so far."""
        self.on_change: OnChange | None = None
        """Told by `apply` of every row that does not stay as it is."""

    @property
    def size(self) -> int:
        """Number of keys, deletes included."""
        return len(self._keys)

    @property
    def keys(self) -> pa.Array:
        """The distinct keys in the order of their first appearance."""
        return self._keys

    @property
    def has_partial_rows(self) -> bool:
        """Whether some version lacks columns, which an older one would have to give."""
        return bool(self._entries.column_sets.any())

    def locate(self, base_keys: pa.Array, *, every: bool = False) -> Int32s:
        """For each base row the code of its log version, -1 for none.

        Base rows come in file order, over one call or several. Of base rows with the same key only
        the first meets the log and the others stay as they are, unless `every` one shall.
        """
        if base_keys.type != self._keys.type:
            base_keys = base_keys.cast(self._keys.type)
        codes = self._index.locate(base_keys)
        hits = np.flatnonzero(codes >= 0)
        met = codes[hits]
        if every:
            self._met[met] = True
            return codes
        firsts = np.full(self.size, -1, dtype=np.int64)
        firsts[met[::-1]] = hits[::-1]
        again = self._met[met] | (firsts[met] != hits)
        self._met[met] = True
        if again.any():
            codes = codes.copy()
            codes[hits[again]] = -1
        return codes

    def apply(self, base: pa.RecordBatch, codes: Int32s) -> pa.RecordBatch:
        """The base rows, in `ctx.schema` and merged with the versions `codes`, deletes left out."""
        hits = np.flatnonzero(codes >= 0)
        if not len(hits):
            return base
        met = codes[hits]
        entries = self._entries.at(met)
        take, built = self._meet(base, hits, met, entries)
        gone = (take == Take.DELETE) | ((take == Take.NEWER) & entries.deleted)
        keep = _without(hits[gone], base.num_rows)
        taken = np.flatnonzero((take == Take.NEWER) & ~entries.deleted)
        self.removed += int(gone.sum())
        self.replaced += len(taken) + sum(len(places) for places, _ in built)
        rows, order = self._rows.pool.gather_any_order(entries.numbers[taken])
        taken = taken if order is None else taken[order]
        positions = np.concatenate([hits[taken], *(hits[places] for places, _ in built)])
        pieces = [rows, *(batch for _, batch in built)]
        pieces = [piece for piece in pieces if piece.num_rows] or pieces[:1]
        replacements = pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
        if self.on_change is not None:
            self.on_change(base, positions, replacements, hits[gone])
        return overlay(base, positions, replacements, keep)

    def deciding_columns(self, codes: Int32s) -> list[str] | None:
        """The columns of base rows that decide what becomes of them; None if their versions
        `codes` may do more than replace them whole or let them go, or if somebody is told."""
        if self.on_change is not None or self._needed is None:
            return None
        sets = self._entries.column_sets[codes[codes >= 0]]
        return self._needed if (sets == FULL).all() else None

    def only_removes(self, codes: Int32s) -> bool:
        """Whether all of these versions are deletes."""
        return bool(self._entries.deleted[codes[codes >= 0]].all())

    def choose(self, base: pa.RecordBatch, codes: Int32s) -> Choice | None:
        """What becomes of base rows, told in `deciding_columns`, beside the versions `codes`; it
        counts once it is accepted.

        None if a merger builds rows, against its word.
        """
        hits = np.flatnonzero(codes >= 0)
        met = codes[hits]
        entries = self._entries.at(met)
        take, built = self._meet(base, hits, met, entries)
        if built:
            return None
        gone = (take == Take.DELETE) | ((take == Take.NEWER) & entries.deleted)
        keep = _without(hits[gone], base.num_rows)
        taken = np.flatnonzero((take == Take.NEWER) & ~entries.deleted)
        picked = self._rows.pool.pick(entries.numbers[taken])
        taken = taken if picked.order is None else taken[picked.order]
        return Choice(Placing(base.num_rows, hits[taken], keep), picked)

    def accept(self, choice: Choice) -> None:
        """Count what a choice does."""
        self.removed += choice.placing.removed
        self.replaced += choice.placing.replaced

    def remaining(self, max_rows: int) -> Iterator[pa.RecordBatch]:
        """Rows of keys that no base row met, deletes left out, at most `max_rows` per batch.

        They come in the order in which their keys first appeared in the log.
        """
        numbers = self._entries.numbers[~self._met & ~self._entries.deleted]
        rule = getattr(self._merger, "not_inserted", None)
        for first in range(0, len(numbers), max_rows):
            rows = self._rows.pool.gather(numbers[first : first + max_rows])
            gone = rule.mask(rows) if isinstance(rule, DeleteRule) else None
            yield rows if gone is None or not gone.any() else rows.filter(pa.array(~gone))

    def loses_against(self, base: pa.RecordBatch, codes: Int32s) -> Bools:
        """Of the base rows that have a version here: which of them would stay as they are.

        `MergeError` if a row would be built of both.
        """
        hits = np.flatnonzero(codes >= 0)
        met = codes[hits]
        take, built = self._meet(base, hits, met, self._entries.at(met))
        if built:
            raise MergeError(
                "Two versions of a row become a third one here, which cannot be placed.",
                hint="Let rows be updated in the partition they are in.",
            )
        lost = np.zeros(base.num_rows, dtype=np.bool_)
        lost[hits] = take == Take.OLDER
        return lost

    def chosen(self) -> tuple[Int64s, Bools]:
        """For every key the number of its row in the pool, and whether it is a delete."""
        return self._entries.numbers, self._entries.deleted

    def as_deletes(self, codes: Int64s) -> None:
        """Turn the versions of these keys into deletes without a row, which win over everything."""
        kinds = [path_type(self._ctx.schema, path) for path in self._ctx.ordering_columns]
        size = len(codes)
        numbers = self._rows.add_deletes([pa.nulls(size, kind) for kind in kinds], size)
        every = np.ones(size, dtype=np.bool_)
        full = np.full(size, FULL, dtype=np.int16)
        self._entries.put(codes, Entries(numbers, every, every, every, full))

    def rows(
        self, codes: npt.NDArray[np.integer], columns: list[str] | None = None
    ) -> pa.RecordBatch:
        """The versions of these keys; of deletes without a row only key and ordering are known."""
        return self._rows.batch(
            self._keys, codes.astype(np.int32), self._entries.numbers[codes], columns
        )

    def _meet(
        self, base: pa.RecordBatch, hits: Int64s, met: Int32s, entries: Entries
    ) -> tuple[Takes, list[tuple[Int64s, pa.RecordBatch]]]:
        """What becomes of each hit, and the built rows with their places among the hits."""
        take = np.empty(len(hits), dtype=np.uint8)
        built = []
        for _, column_set, places in distinct_sets(None, entries):
            newer = entries.at(places)
            ctx = pair_context(self._ctx, None, newer, None, self._rows.column_sets[column_set])
            if column_set == FULL and self._needed is not None:
                older_rows = base.select(self._needed).take(pa.array(hits[places]))
                newer_rows = self._narrow_rows().take(pa.array(met[places]))
            else:
                older_rows = base.take(pa.array(hits[places]))
                newer_rows = self._rows.batch(self._keys, met[places], newer.numbers)
            answer = ask(self._merger, older_rows, newer_rows, ctx)
            take[places] = answer.take
            if answer.built is not None:
                built.append((places[answer.take == Take.BUILT], answer.built))
        return take, built

    def _narrow_rows(self) -> pa.RecordBatch:
        """The few columns that decide, of every key, gathered once."""
        if self._narrow is None:
            codes = np.arange(self.size, dtype=np.int32)
            self._narrow = self._rows.batch(self._keys, codes, self._entries.numbers, self._needed)
        return self._narrow


def _without(gone: Int64s, size: int) -> Bools | None:
    """Which of so many rows are left; None if all are."""
    if not len(gone):
        return None
    keep = np.ones(size, dtype=np.bool_)
    keep[gone] = False
    return keep
