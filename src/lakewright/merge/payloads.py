"""The payload bridge: Hudi's payload classes as mergers.

A table that names a payload class merges by it in CUSTOM mode, and always under the rules of Hudi
0.x. `PayloadMerger` says which of the class's two questions (see `payload_rules`) belongs to which
phase. In 0.x incoming rows and log versions are pre-combined and only the stored row is combined;
in 1.x log versions are combined too, and pairs with a commit-time delete or without an older row
are settled before the payload is asked. Classes that are not Hudi's own are found by the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakewright.errors import MergeError
from lakewright.merge import names
from lakewright.merge import payload_rules as rules
from lakewright.merge.columns import Bools
from lakewright.merge.config import MergeConfig
from lakewright.merge.deletes import DeleteRule
from lakewright.merge.names import Semantics, short_name
from lakewright.merge.partial import fill_holes
from lakewright.merge.payload_rules import Decision, Pairs, Rule
from lakewright.merge.protocol import All, MergeContext, Merged, Phase, RecordType, Take
from lakewright.merge.reduction import LogOrder

_NO_MARKS: Final = DeleteRule(flag=False, operation=False)
_FLAG: Final = DeleteRule(operation=False)


@dataclass(frozen=True, slots=True)
class Payload:
    """One payload class in one release line."""

    pre_combine: Rule
    combine: Rule
    builds: bool = False
    reads: frozenset[str] = frozenset()
    marks: DeleteRule = _FLAG
    """What the class itself takes for a delete."""
    custom_marker: bool = False
    """A configured marker replaces the class's own marks (0.x)."""
    update_on_tie: bool | None = None
    """Who wins a tie where the class does not leave it to the table."""


_DMS_MARKS = DeleteRule(operation=False, field="Op", marker="D", ignore_case=True)
_DEBEZIUM_MARKS = DeleteRule(
    operation=False, field=names.DEBEZIUM_OPERATION, marker="d", ignore_case=True
)
_SEQUENCE = frozenset({rules.MYSQL_SEQUENCE})
_LSN = frozenset({rules.POSTGRES_LSN})

_COMMON: Final = {
    names.AVRO_PAYLOAD: Payload(rules.newer, rules.newer, marks=_NO_MARKS),
    names.JSON_PAYLOAD: Payload(rules.newer, rules.newer, marks=_NO_MARKS),
    names.REWRITE_PAYLOAD: Payload(rules.refuse, rules.newer, marks=_NO_MARKS),
    names.EMPTY_PAYLOAD: Payload(rules.older, rules.delete, marks=_NO_MARKS),
    names.REVERSE_ORDER: Payload(rules.smaller, rules.combine_reverse, custom_marker=True),
}

_ZERO: Final[Mapping[str, Payload]] = MappingProxyType(
    _COMMON
    | {
        names.OVERWRITE_WITH_LATEST: Payload(rules.greater, rules.newer),
        names.DEFAULT_PAYLOAD: Payload(
            rules.greater,
            rules.combine_ordered,
            custom_marker=True,
            update_on_tie=True,
        ),
        names.EVENT_TIME_PAYLOAD: Payload(
            rules.greater, rules.combine_deletes_first, update_on_tie=True
        ),
        names.FIRST_VALUE: Payload(
            rules.first_greatest, rules.combine_first_value, custom_marker=True
        ),
        names.OVERWRITE_NON_DEFAULTS: Payload(
            rules.greater, rules.combine_non_defaults, builds=True
        ),
        names.PARTIAL_UPDATE: Payload(
            rules.pre_combine_partial, rules.combine_partial, builds=True
        ),
        names.AWS_DMS: Payload(rules.greater, rules.newer, marks=_DMS_MARKS),
        names.MYSQL_DEBEZIUM: Payload(
            rules.greater,
            rules.combine_mysql,
            reads=_SEQUENCE,
            marks=_DEBEZIUM_MARKS,
            update_on_tie=False,
        ),
        names.POSTGRES_DEBEZIUM: Payload(
            rules.greater,
            rules.combine_postgres,
            builds=True,
            reads=_LSN,
            marks=_DEBEZIUM_MARKS,
        ),
    }
)

_ONE: Final[Mapping[str, Payload]] = MappingProxyType(
    _COMMON
    | {
        names.OVERWRITE_WITH_LATEST: Payload(rules.newer, rules.newer),
        names.DEFAULT_PAYLOAD: Payload(rules.greater, rules.combine_ordered),
        names.EVENT_TIME_PAYLOAD: Payload(rules.greater, rules.combine_ordered),
        names.FIRST_VALUE: Payload(rules.first_greatest, rules.combine_first_value),
        names.OVERWRITE_NON_DEFAULTS: Payload(
            rules.greater_unless_empty, rules.combine_non_defaults, builds=True
        ),
        names.PARTIAL_UPDATE: Payload(
            rules.pre_combine_partial, rules.combine_partial, builds=True
        ),
        names.AWS_DMS: Payload(rules.greater, rules.newer, marks=_DMS_MARKS),
        names.MYSQL_DEBEZIUM: Payload(
            rules.pre_combine_mysql,
            rules.combine_mysql,
            reads=_SEQUENCE,
            marks=_DEBEZIUM_MARKS,
            update_on_tie=True,
        ),
        names.POSTGRES_DEBEZIUM: Payload(
            rules.greater, rules.combine_postgres, builds=True, reads=_LSN, marks=_DEBEZIUM_MARKS
        ),
    }
)

_ORDERS: Final[Mapping[Rule, LogOrder]] = {
    rules.newer: LogOrder.LATEST,
    rules.greater: LogOrder.PAYLOAD_GREATEST,
}
"""Rules whose fold is known without folding."""

PAYLOADS: Final[Mapping[Semantics, Mapping[str, Payload]]] = MappingProxyType(
    {Semantics.ZERO: _ZERO, Semantics.ONE: _ONE}
)
"""Every payload class of Hudi that merges, by release line and class name."""


@dataclass(frozen=True, slots=True)
class PayloadMerger:
    """One of Hudi's payload classes as a merger."""

    payload_class: str
    semantics: Semantics
    payload: Payload
    deletes: DeleteRule = field(default_factory=DeleteRule)
    update_on_tie: bool = True

    @classmethod
    def of(cls, config: MergeConfig) -> PayloadMerger | None:
        """The merger of the table's payload class; None if the class is not Hudi's own."""
        payload = PAYLOADS[config.semantics].get(config.payload_class)
        if payload is None:
            return None
        tie = payload.update_on_tie
        return cls(
            config.payload_class,
            config.semantics,
            payload,
            _delete_rule(payload, config),
            config.update_on_same_ordering if tie is None else tie,
        )

    @property
    def strategy(self) -> UUID:
        """The strategy id of every payload class."""
        return names.PAYLOAD_ID

    @property
    def record_type(self) -> RecordType:
        """Avro: that is what payload classes are written for. The work is done on columns."""
        return RecordType.AVRO

    @property
    def not_inserted(self) -> DeleteRule:
        """What the class takes for a delete when there is no row to combine with."""
        return self.payload.marks if self.payload.marks.field is not None else self.deletes

    @property
    def builds(self) -> bool:
        """Whether two rows can merge into one that is neither of both."""
        return self.payload.builds

    def log_order(self, ctx: MergeContext) -> LogOrder | None:
        """How versions reduce without folding, if they do."""
        return _ORDERS.get(self._rule(ctx.phase))

    def columns(self, ctx: MergeContext) -> frozenset[str] | All:
        """What tells deletes, and the columns that the class looks at by name."""
        return self.deletes.columns(ctx.schema) | self.payload.reads.intersection(ctx.schema.names)

    def merge(self, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext) -> Merged:
        """Ask the payload class's question for the phase."""
        one = self.semantics is Semantics.ONE
        pairs = Pairs(older, newer, ctx, update_on_tie=self.update_on_tie, compares_empties=one)
        rule = self._rule(ctx.phase)
        decision = rule(pairs)
        if not one or rule is not self.payload.combine:
            return _answer(pairs, decision, pairs.older_empty, pairs.all(True))
        own = self.payload.marks.mask(newer)
        if own is not None:
            gone = pairs.all(False) if decision.deleted is None else decision.deleted
            decision = replace(decision, deleted=gone | (own & decision.newer_wins))
        settled = pairs.older_empty | pairs.older_unordered | pairs.newer_unordered
        # Of two deletes without a row the log keeps the first.
        first = pairs.older_empty & pairs.newer_empty & pairs.in_log
        return _answer(pairs, decision, settled, ~first)

    def _rule(self, phase: Phase) -> Rule:
        stored = phase is Phase.BASE or (phase is Phase.LOG and self.semantics is Semantics.ONE)
        return self.payload.combine if stored else self.payload.pre_combine

    def merge_partial(
        self, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext
    ) -> Merged:
        """Refused: payload classes know only whole rows."""
        raise MergeError(
            f"Payload class {short_name(self.payload_class)} cannot merge partial rows.",
            hint="Hudi refuses this too. Write full rows to tables with a payload class.",
            context={
                "payload_class": self.payload_class,
                "phase": ctx.phase.value,
                "pairs": min(older.num_rows, newer.num_rows),
            },
        )

    def spark(self, ctx: MergeContext) -> None:
        """None: not expressed in Spark columns."""


def _delete_rule(payload: Payload, config: MergeConfig) -> DeleteRule:
    own = payload.marks
    if config.semantics is Semantics.ZERO:
        if payload.custom_marker and config.delete_field is not None:
            return DeleteRule(
                flag=False,
                operation=False,
                field=config.delete_field,
                marker=config.delete_marker,
            )
        return own
    if own.field is not None:
        return DeleteRule(field=own.field, marker=own.marker)
    return DeleteRule(field=config.delete_field, marker=config.delete_marker)


def _answer(pairs: Pairs, decision: Decision, settled: Bools, settled_newer: Bools) -> Merged:
    """The decision as a merger's answer; `settled` pairs go to the newer version or not, unasked.

    A pair that becomes a delete stays one of its versions if that one is a delete already.
    """
    newer_wins = np.where(settled, settled_newer, decision.newer_wins)
    gone = pairs.all(False) if decision.deleted is None else decision.deleted & ~settled
    newer_wins = np.where(gone, pairs.newer_deleted | ~pairs.older_deleted, newer_wins)
    if decision.holes is None:
        take = np.where(newer_wins, Take.NEWER, Take.OLDER).astype(np.uint8)
        merged = Merged(pa.array(take))
    else:
        alive = np.where(newer_wins, ~pairs.newer_deleted, ~pairs.older_deleted)
        if decision.fills_deleted is not None:
            alive |= decision.fills_deleted
        rows = alive & ~settled & ~pairs.newer_empty & ~gone
        merged = fill_holes(pairs.older, pairs.newer, newer_wins, decision.holes, rows)
    new_delete = gone & ~pairs.older_deleted & ~pairs.newer_deleted
    if new_delete.any():
        take = np.where(new_delete, Take.DELETE, merged.take.to_numpy()).astype(np.uint8)
        merged = Merged(pa.array(take), merged.built)
    return merged
