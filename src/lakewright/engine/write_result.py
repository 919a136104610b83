"""What a write did, as a value for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakewright.format.records.commit import CommitMetadata
from lakewright.txn.transaction import Committed

__all__ = ["WriteResult"]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """One committed write."""

    operation: str
    instant: str | None
    """Requested time of the commit; None if there was nothing to commit."""
    completion_time: str | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0
    files: int = 0
    bytes: int = 0
    replaced_file_groups: int = 0
    attempts: int = 1
    lock_held_ms: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase."""
    warnings: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    """What services did beside the write and after its commit, in words."""

    @classmethod
    def of(
        cls, operation: str, committed: Committed, *, phases: Mapping[str, float]
    ) -> WriteResult:
        """The result of a commit."""
        metadata = committed.metadata
        stats = [*metadata.write_stats]
        return cls(
            operation=operation,
            instant=committed.instant,
            completion_time=committed.completion_time,
            inserted=sum(s.num_inserts or 0 for s in stats),
            updated=sum(s.num_update_writes or 0 for s in stats),
            deleted=sum(s.num_deletes or 0 for s in stats),
            files=len(stats),
            bytes=sum(s.file_size_in_bytes or 0 for s in stats),
            replaced_file_groups=_replaced(metadata),
            lock_held_ms=committed.lock_held_ms,
            phases=dict(phases),
            warnings=committed.warnings,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for programs."""
        return asdict(self)


def _replaced(metadata: CommitMetadata) -> int:
    return sum(map(len, (metadata.partition_to_replace_file_ids or {}).values()))
