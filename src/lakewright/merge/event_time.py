"""EVENT_TIME_ORDERING: the greater ordering value wins, a tie goes to the newer version.

A commit-time delete, one without an ordering value, wins over everything before it and loses to
every row after it; in the log it also outlives later entries of delete blocks. Deletes with an
ordering value compete like rows. Associative as long as no commit-time delete stands between two
versions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakewright.merge.columns import as_bools
from lakewright.merge.deletes import DeleteRule
from lakewright.merge.names import EVENT_TIME_ID
from lakewright.merge.ordering import compare, ordering_values
from lakewright.merge.partial import Placeholders, Takes, join_columns
from lakewright.merge.protocol import All, MergeContext, Merged, Phase, RecordType, Take
from lakewright.merge.reduction import LogOrder


@dataclass(frozen=True, slots=True)
class EventTimeMerger:
    """The built-in merger of event-time tables."""

    deletes: DeleteRule = field(default_factory=DeleteRule)
    placeholders: Placeholders | None = None
    """The table's partial update mode, if it has one."""

    @property
    def strategy(self) -> UUID:
        """The strategy id of the mode."""
        return EVENT_TIME_ID

    @property
    def record_type(self) -> RecordType:
        """Arrow."""
        return RecordType.ARROW

    @property
    def builds(self) -> bool:
        """Whether full rows can merge into a row that is neither of both."""
        return self.placeholders is not None

    def log_order(self, _ctx: MergeContext) -> LogOrder | None:
        """Versions of a key reduce to the greatest, unless losers fill winners."""
        return None if self.builds else LogOrder.GREATEST

    def columns(self, ctx: MergeContext) -> frozenset[str] | All:
        """What tells deletes."""
        return self.deletes.columns(ctx.schema)

    def merge(self, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext) -> Merged:
        """Let the greater ordering value win."""
        take = self._decide(older, newer, ctx)
        if self.placeholders is None:
            return Merged(pa.array(take))
        return self.placeholders.fill(older, newer, take, ctx)

    def merge_partial(
        self, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext
    ) -> Merged:
        """As `merge`, and the loser completes the winner's columns."""
        return join_columns(older, newer, self._decide(older, newer, ctx), ctx)

    def spark(self, ctx: MergeContext) -> None:
        """None: not expressed in Spark columns."""

    def _decide(self, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext) -> Takes:
        size = newer.num_rows
        order = compare(
            ordering_values(older, ctx.ordering_columns),
            ordering_values(newer, ctx.ordering_columns),
            size,
        )
        older_unordered = as_bools(ctx.older_unordered, size)
        newer_wins = (order <= 0) | older_unordered | as_bools(ctx.newer_unordered, size)
        if ctx.phase is Phase.LOG:
            newer_wins &= ~(older_unordered & as_bools(ctx.newer_empty, size))
        return np.where(newer_wins, Take.NEWER, Take.OLDER).astype(np.uint8)
