"""Where inserted rows go: into small base files first, then into new file groups of the right size.

Pure: commits, a view of the files and row counts in, plans out. The size of a row is learnt from
the newest commits that wrote enough to tell; small files are chosen as Hudi chooses them, so that
either engine goes on filling the files of the other, unless far more would be written than there
are new rows. Every row of a partition is in exactly one
place of its plan, and every place has at least one row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from lakewright.format.file_names import parse_log_file
from lakewright.format.file_slices import BaseFile, FileGroupId, FileSystemView
from lakewright.format.records.commit import CommitMetadata

__all__ = [
    "Append",
    "InsertPlan",
    "SizingPolicy",
    "average_record_bytes",
    "plan_inserts",
    "small_files",
]


TINY_BYTES = 8 << 20
"""Files that are filled however few the new rows are."""


@dataclass(frozen=True, slots=True)
class SizingPolicy:
    """Sizes that decide; the defaults are Hudi's."""

    max_file_bytes: int = 125_829_120
    small_file_limit: int = 104_857_600
    """Files below get rows; 0 or less switches that off."""
    record_size_estimate: int = 1024
    """Bytes of a row before any commit tells."""
    record_size_threshold: float = 1.0
    """Commits tell if they wrote more than this many times `small_file_limit`."""
    record_size_commits: int = 5
    """How many of the newest commits are asked."""
    record_size_metadata: int = 0
    """Bytes of a file that are not rows."""
    insert_auto_split: bool = True
    insert_split_size: int = 500_000
    """Rows of a new file group where `insert_auto_split` is off."""
    small_file_candidates: int = 1
    """Small files of a partition that one write into a MERGE_ON_READ table fills."""
    small_file_factor: int = 64
    """Such a write fills files of at most so many times the bytes of its rows; 0: all."""


@dataclass(frozen=True, slots=True)
class Append:
    """Rows that go into a new version of an existing base file."""

    base: BaseFile
    rows: int


@dataclass(frozen=True, slots=True)
class InsertPlan:
    """Where the rows of one partition go, in this order."""

    partition: str
    appends: tuple[Append, ...]
    new_groups: tuple[int, ...]
    """Rows of each new file group."""

    @property
    def rows(self) -> int:
        """All rows of the partition."""
        return sum(a.rows for a in self.appends) + sum(self.new_groups)


def average_record_bytes(newest_first: Iterable[CommitMetadata], policy: SizingPolicy) -> int:
    """Bytes of a row on storage.

    `newest_first` are the completed commits and delta commits (not replacements), read lazily: it
    is left as soon as one tells.
    """
    enough = policy.record_size_threshold * policy.small_file_limit
    for metadata in islice(newest_first, policy.record_size_commits):
        size = rows = 0
        for stat in metadata.write_stats:
            name = (stat.path or "").rpartition("/")[2]
            if parse_log_file(name) is None:
                size += (stat.total_write_bytes or 0) - policy.record_size_metadata
                rows += stat.num_writes or 0
        if rows > 0 and size > enough:
            return -(-size // rows)
    return policy.record_size_estimate


def small_files(
    view: FileSystemView,
    *,
    merge_on_read: bool,
    in_clustering: Collection[FileGroupId],
    policy: SizingPolicy,
) -> dict[str, list[BaseFile]]:
    """Base files that new rows may join, by partition, smallest first.

    Groups that a pending clustering is going to replace are left alone. In a MERGE_ON_READ table so
    are groups with logs or with a pending compaction, and only a few files are filled at once. Not
    for tables whose index finds rows in logs, nor for tables with change data: their inserts go
    to new files or to logs.
    """
    found: dict[str, list[BaseFile]] = {}
    for slice_ in view.latest_slices():
        base, group = slice_.base, view.groups[slice_.group]
        if base is None or base.size >= policy.small_file_limit or slice_.group in in_clustering:
            continue
        if merge_on_read and (slice_.logs or group.pending_compaction is not None):
            continue
        found.setdefault(base.partition, []).append(base)
    most = policy.small_file_candidates if merge_on_read else None
    return {
        partition: sorted(bases, key=lambda b: (b.size, b.file_id))[:most]
        for partition, bases in found.items()
    }


def plan_inserts(
    counts: Mapping[str, int],
    small: Mapping[str, Sequence[BaseFile]],
    *,
    record_bytes: int,
    policy: SizingPolicy,
    merge_on_read: bool = False,
) -> list[InsertPlan]:
    """Places for so many new rows of each partition, in the order of `counts`.

    A few new rows of a MERGE_ON_READ table begin a file group of their own, which later ones join,
    rather than that a file is written anew that is many times larger: updates there are appended.
    """

    def worth(rows: int, base: BaseFile) -> bool:
        factor = policy.small_file_factor if merge_on_read else 0
        return not factor or base.size <= max(TINY_BYTES, factor * rows * record_bytes)

    plans = (
        _plan(
            partition,
            rows,
            [base for base in small.get(partition, ()) if worth(rows, base)],
            record_bytes,
            policy,
        )
        for partition, rows in counts.items()
    )
    return [plan for plan in plans if plan.rows]


def _plan(
    partition: str, rows: int, small: Sequence[BaseFile], record_bytes: int, policy: SizingPolicy
) -> InsertPlan:
    appends: list[Append] = []
    left = rows
    for base in small:
        fits = min((policy.max_file_bytes - base.size) // record_bytes, left)
        if fits > 0:
            appends.append(Append(base, fits))
            left -= fits
    each = policy.insert_split_size
    if policy.insert_auto_split:
        each = max(1, -(-policy.max_file_bytes // record_bytes))
    whole, rest = divmod(left, each)
    new_groups = (each,) * whole + ((rest,) if rest else ())
    return InsertPlan(partition, tuple(appends), new_groups)
