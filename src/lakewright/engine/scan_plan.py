"""Planning a scan: which file slices must be read, and why the others need not be.

Pure once the snapshot is pinned: partitions, file slices and statistics in, a printable `ScanPlan`
out. Skipping is always safe: what cannot be decided is kept, and the filter is applied again to
every row that was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from lakewright.engine.key_skipping import slices_by_keys
from lakewright.engine.snapshot import Snapshot
from lakewright.engine.statistics_skipping import partitions_by_statistics, slices_by_statistics
from lakewright.expr import ColumnRange, Expr, can_match, to_sql_text
from lakewright.format.file_slices import FileSlice
from lakewright.format.keys import KeySpec, partition_path_values


@dataclass(frozen=True, slots=True)
class ScanTask:
    """One file slice to read; `slice_.logs` are to be merged onto `slice_.base`."""

    slice_: FileSlice
    whole: FileSlice | None = None
    """What to read instead if rows of the logs lack columns: the same, with all older files."""

    @property
    def needs_merge(self) -> bool:
        """Whether log files must be merged; otherwise the base file is read as it is."""
        return bool(self.slice_.logs)

    @property
    def bytes(self) -> int:
        """Bytes of all files of the slice."""
        base = self.slice_.base.size if self.slice_.base else 0
        return base + sum(log.size for log in self.slice_.logs)

    def to_dict(self) -> dict[str, object]:
        """The task as plain values."""
        return {
            "partition": self.slice_.group.partition,
            "file_id": self.slice_.group.file_id,
            "base_instant": self.slice_.base_instant,
            "base": self.slice_.base.name if self.slice_.base else None,
            "logs": [log.name for log in self.slice_.logs],
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What a scan will read, and what it could skip by which means."""

    table: str
    mode: str
    as_of: str | None
    columns: tuple[str, ...]
    where: str | None
    tasks: tuple[ScanTask, ...]
    partitions_total: int
    partitions_kept: int
    slices_total: int
    """Of the partitions that are kept."""
    skipped_by_statistics: int
    listing: str
    skipped_by_keys: int = 0
    """Slices that hold none of the keys that the filter names, by the indexes of records."""
    partitions_skipped_by_statistics: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of the files of all tasks (whole files, before column pruning)."""
        return sum(t.bytes for t in self.tasks)

    @property
    def files(self) -> int:
        """Files of all tasks."""
        return sum((t.slice_.base is not None) + len(t.slice_.logs) for t in self.tasks)

    def to_dict(self) -> dict[str, object]:
        """The plan as plain values."""
        return {
            "table": self.table,
            "mode": self.mode,
            "as_of": self.as_of,
            "columns": list(self.columns),
            "where": self.where,
            "listing": self.listing,
            "partitions": {
                "total": self.partitions_total,
                "skipped_by_statistics": self.partitions_skipped_by_statistics,
                "kept": self.partitions_kept,
            },
            "slices": {
                "total": self.slices_total,
                "skipped_by_statistics": self.skipped_by_statistics,
                "skipped_by_keys": self.skipped_by_keys,
                "read": len(self.tasks),
                "merged": sum(t.needs_merge for t in self.tasks),
            },
            "files": self.files,
            "bytes": self.bytes,
            "tasks": [t.to_dict() for t in self.tasks],
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        merged = sum(t.needs_merge for t in self.tasks)
        lines = [
            f"{self.mode} scan of {self.table}"
            + (f" as of {self.as_of}" if self.as_of else "")
            + f", {len(self.columns)} columns",
            f"  filter      {self.where or 'none'}",
            f"  partitions  {self.partitions_kept} of {self.partitions_total}, by {self.listing}",
            f"  slices      {len(self.tasks)} of {self.slices_total} "
            f"({self.skipped_by_statistics} skipped by statistics, {self.skipped_by_keys} by keys, "
            f"{merged} merged with logs)",
            f"  files       {self.files}, {self.bytes:,} bytes",
        ]
        lines += [f"  warning     {w}" for w in self.warnings]
        return "\n".join(lines)


def plan_scan(
    snapshot: Snapshot,
    *,
    mode: str,
    output: Sequence[str],
    where: Expr | None,
    keys_are_unique: bool = False,
) -> ScanPlan:
    """Choose the slices of a scan. `where` is bound to the table's schema."""
    opened = snapshot.opened
    every = opened.listing.partitions()
    spec = KeySpec.from_properties(snapshot.properties)
    named = [p for p in every if partition_may_match(p, snapshot, where, spec)]
    kept = list(compress(named, partitions_by_statistics(named, snapshot, where)))
    view = snapshot.view(opened.listing.files(kept))
    if mode == "read_optimized":
        slices = view.latest_base_slices(snapshot.bound)
    else:
        slices = view.latest_merged_slices(snapshot.bound)
    slices = [s for s in slices if s.base is not None or s.logs]
    slices.sort(key=lambda s: (s.group.partition, s.group.file_id))
    keep = slices_by_statistics(slices, snapshot, where, kept)
    left = list(compress(slices, keep))
    if mode == "snapshot":
        all_known = slices if len(kept) == len(every) else None
        holds = slices_by_keys(
            left, snapshot, where, keys_are_unique=keys_are_unique, every=all_known
        )
        left = list(compress(left, holds))
    return ScanPlan(
        table=snapshot.properties.name,
        mode=mode,
        as_of=snapshot.bound,
        columns=tuple(output),
        where=to_sql_text(where) if where is not None else None,
        tasks=tuple(ScanTask(s) for s in left),
        partitions_total=len(every),
        partitions_kept=len(kept),
        slices_total=len(slices),
        skipped_by_statistics=int(len(slices) - keep.sum()),
        listing=opened.listing.source,
        skipped_by_keys=int(keep.sum()) - len(left),
        partitions_skipped_by_statistics=len(named) - len(kept),
        warnings=tuple(opened.warnings.told),
    )


def partition_may_match(
    partition: str, snapshot: Snapshot, where: Expr | None, spec: KeySpec | None = None
) -> bool:
    """Whether a row of the partition may pass the filter, by the values in its path."""
    if where is None or not partition:
        return True
    spec = KeySpec.from_properties(snapshot.properties) if spec is None else spec
    values = partition_path_values(partition, spec, snapshot.schema.arrow)
    ranges: dict[str, ColumnRange] = {
        "_hoodie_partition_path": ColumnRange(partition, partition, 0, 1)
    }
    for name, value in (values or {}).items():
        null = value is None
        ranges[name] = ColumnRange(value, value, int(null), 1)
    return can_match(where, ranges.get)
