"""RFC-46's merger contract in columns: what a merger sees and what it answers.

A merger is pure, stateless and associative; `older` and `newer` are aligned by key and ordered by
commit, never by ordering value. It answers with one `Take` per pair, so that a row which wins
unchanged is never rebuilt and keeps its own meta columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

import pyarrow as pa


class Take(IntEnum):
    """The fate of one aligned pair."""

    OLDER = 0
    NEWER = 1
    """OLDER or NEWER of a row that is a delete keeps that delete, with its own ordering."""
    BUILT = 2
    DELETE = 3
    """A delete that is neither of both."""
    IGNORE = 4
    """Keep what is stored: the older row if there is one, else no row."""


class RecordType(Enum):
    """Which representation a merger works on; several may share one strategy id."""

    ARROW = "arrow"
    SPARK = "spark"
    AVRO = "avro"


class Phase(Enum):
    """Which two versions meet. Payload classes of Hudi 0.x treat them differently."""

    DEDUPE = "dedupe"
    LOG = "log"
    BASE = "base"


class All:
    """The answer of a merger that must see every column."""


ALL: Final = All()


@dataclass(frozen=True, slots=True)
class MergeContext:
    """Everything a merger may depend on besides the rows."""

    schema: pa.Schema
    key_column: str
    ordering_columns: tuple[str, ...]
    phase: Phase
    properties: Mapping[str, str] = field(default_factory=dict)
    older_deleted: pa.Array | None = None
    newer_deleted: pa.Array | None = None
    """Boolean masks; None means no row of that side is a delete."""
    older_unordered: pa.Array | None = None
    newer_unordered: pa.Array | None = None
    """Boolean masks of commit-time deletes: deletes whose ordering value is absent or int 0."""
    older_columns: frozenset[str] | None = None
    newer_columns: frozenset[str] | None = None
    """Columns that a partial row really carries; None means a full row."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Schema defaults of top-level columns that are not null (for IGNORE_DEFAULTS and OND)."""
    older_empty: pa.Array | None = None
    newer_empty: pa.Array | None = None
    """Boolean masks of deletes without a row: all but key and ordering is null (delete blocks)."""


class Merged(NamedTuple):
    """A merger's answer for n aligned pairs."""

    take: pa.Array
    """uint8[n] of `Take` values."""
    built: pa.RecordBatch | None = None
    """Exactly the BUILT rows, in order, in `ctx.schema`."""
    delete_ordering: pa.Array | None = None
    """Ordering of DELETE rows, aligned with the pairs; None: the greater of both.

    With several ordering columns a struct array with one field per column.
    """


class RecordMerger(Protocol):
    """Combines two versions of rows."""

    @property
    def strategy(self) -> UUID:
        """The merge strategy this merger implements."""
        ...

    @property
    def record_type(self) -> RecordType:
        """The representation it works on."""
        ...

    def columns(self, ctx: MergeContext) -> frozenset[str] | All:
        """Columns it must see besides key and ordering, so that projections stay cheap."""
        ...

    def merge(self, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext) -> Merged:
        """Combine aligned full rows."""
        ...

    def merge_partial(
        self, older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext
    ) -> Merged:
        """Combine aligned rows of which one side or both lack columns."""
        ...

    def spark(self, ctx: MergeContext) -> Any | None:
        """The same rule as Spark column expressions, or None if it cannot stay in the JVM."""
        ...
