"""Combining versions of rows: RFC-46's merger contract in columns.

The table's properties become a `MergeConfig`, a `MergerRegistry` finds the `RecordMerger` for it,
`LogVersions` reduces the log of a file slice with it to a `LogState`, and that meets the base file.
This room never reads a file: rows come in and go out as Arrow batches.
"""

from __future__ import annotations

from lakewright.merge.config import MergeConfig
from lakewright.merge.fold import LogVersions
from lakewright.merge.names import MergeMode, PartialUpdateMode, Semantics
from lakewright.merge.projection import required_columns
from lakewright.merge.protocol import (
    ALL,
    All,
    MergeContext,
    Merged,
    Phase,
    RecordMerger,
    RecordType,
    Take,
)
from lakewright.merge.registry import MergerRegistry
from lakewright.merge.state import LogState
from lakewright.merge.user import MergerRef, merger, record_merger

__all__ = [
    "ALL",
    "All",
    "LogState",
    "LogVersions",
    "MergeConfig",
    "MergeContext",
    "MergeMode",
    "Merged",
    "MergerRef",
    "MergerRegistry",
    "PartialUpdateMode",
    "Phase",
    "RecordMerger",
    "RecordType",
    "Semantics",
    "Take",
    "merger",
    "record_merger",
    "required_columns",
]
