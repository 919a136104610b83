"""COMMIT_TIME_ORDERING: the newer version wins, whatever it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakewright.merge.deletes import DeleteRule
from lakewright.merge.names import COMMIT_TIME_ID
from lakewright.merge.partial import Placeholders, Takes, join_columns
from lakewright.merge.protocol import All, MergeContext, Merged, RecordType, Take
from lakewright.merge.reduction import LogOrder


@dataclass(frozen=True, slots=True)
class CommitTimeMerger:
    """The built-in merger of commit-time tables."""

    deletes: DeleteRule = field(default_factory=DeleteRule)
    placeholders: Placeholders | None = None
    """The table's partial update mode, if it has one."""

    @property
    def strategy(self) -> UUID:
        """The strategy id of the mode."""
        return COMMIT_TIME_ID

    @property
    def record_type(self) -> RecordType:
        """Arrow."""
        return RecordType.ARROW

    @property
    def builds(self) -> bool:
        """Whether full rows can merge into a row that is neither of both."""
        return self.placeholders is not None

    def log_order(self, _ctx: MergeContext) -> LogOrder | None:
        """Versions of a key reduce to the latest, unless losers fill winners."""
        return None if self.builds else LogOrder.LATEST

    def columns(self, ctx: MergeContext) -> frozenset[str] | All:
        """What tells deletes."""
        return self.deletes.columns(ctx.schema)

    def merge(self, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext) -> Merged:
        """Let the newer version win."""
        take = _newer(newer.num_rows)
        if self.placeholders is None:
            return Merged(pa.array(take))
        return self.placeholders.fill(older, newer, take, ctx)

    def merge_partial(
        self, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext
    ) -> Merged:
        """As `merge`, and the older version completes the newer one's columns."""
        return join_columns(older, newer, _newer(newer.num_rows), ctx)

    def spark(self, ctx: MergeContext) -> None:
        """None: not expressed in Spark columns."""


def _newer(size: int) -> Takes:
    return np.full(size, Take.NEWER, dtype=np.uint8)
