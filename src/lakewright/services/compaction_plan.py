"""Planning a compaction: whether it is due, and which file slices it takes. Pure.

Slices are those of the view that the scheduling lock protects, so no log of a write that is
committed later can be among them, and none that was committed before can be missing. Left out are
groups that another compaction or a clustering has taken, replaced groups, and slices without logs.
The strategies are Hudi's, by their names; what they order and bound is a list of operations with
the same figures that Hudi writes into its plans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum
from typing import Final

from lakewright.format.file_slices import FileGroupId, FileSlice, FileSystemView
from lakewright.format.instant import Instant
from lakewright.format.records import CompactionOperation, CompactionPlan
from lakewright.format.timeline import Timeline

__all__ = [
    "CompactionOptions",
    "CompactionStrategy",
    "CompactionTrigger",
    "is_due",
    "plan_compaction",
    "writes_since_compaction",
]

MB: Final = 1 << 20
_DATED: Final = re.compile(r"\d{4}[/-]\d{2}[/-]\d{2}")


class CompactionTrigger(Enum):
    """When a compaction is due."""

    NUM_COMMITS = "NUM_COMMITS"
    NUM_COMMITS_AFTER_LAST_REQUEST = "NUM_COMMITS_AFTER_LAST_REQUEST"
    TIME_ELAPSED = "TIME_ELAPSED"
    NUM_OR_TIME = "NUM_OR_TIME"
    NUM_AND_TIME = "NUM_AND_TIME"
    ALWAYS = "ALWAYS"
    """Whenever there is a log."""


class CompactionStrategy(Enum):
    """Which slices a compaction takes first, and how many."""

    LOG_FILE_SIZE = "LogFileSizeBasedCompactionStrategy"
    LOG_FILE_NUMBER = "LogFileNumBasedCompactionStrategy"
    BOUNDED_IO = "BoundedIOCompactionStrategy"
    UNBOUNDED = "UnBoundedCompactionStrategy"
    DAY_BASED = "DayBasedCompactionStrategy"
    BOUNDED_PARTITIONS = "BoundedPartitionAwareCompactionStrategy"
    UNBOUNDED_PARTITIONS = "UnBoundedPartitionAwareCompactionStrategy"


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """What is planned; the defaults are Hudi's."""

    trigger: CompactionTrigger = CompactionTrigger.NUM_COMMITS
    commits: int = 5
    seconds: int = 3600
    strategy: CompactionStrategy = CompactionStrategy.LOG_FILE_SIZE
    target_io_mb: int = 512_000
    log_bytes: int = 0
    """Slices with fewer bytes of logs are left out by the strategy of log sizes."""
    log_files: int = 0
    """Slices with fewer logs are left out by the strategy of log numbers."""
    partitions: int = 10
    """How many dated partitions, or days, the strategies of partitions go back."""
    parquet_max_bytes: int = 125_829_120
    """What a new base file is taken to weigh."""
    merge_memory: int = 1 << 30
    """Bytes of decoded log rows that a task keeps in memory; the others wait in local files."""


# ---- whether --------------------------------------------------------------------------------


def is_due(
    timeline: Timeline,
    options: CompactionOptions,
    *,
    by_completion: bool,
    now_ms: int,
    ms_of: Callable[[str], int],
) -> bool:
    """Whether the trigger says so.

    `by_completion`: whether the table version orders writes by their completion; `ms_of` tells the
    moment of an instant.
    """
    deltas = timeline.filter_actions("deltacommit").completed().instants
    if not deltas:
        return False
    done = _compactions(timeline.completed())
    since = writes_since_compaction(timeline, by_completion=by_completion)
    if options.trigger is CompactionTrigger.ALWAYS:
        return bool(since)
    if options.trigger is CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST:
        asked = sorted([*done, *timeline.pending_compactions()], key=lambda i: i.requested_time)
        after = asked[-1].requested_time if asked else ""
        return sum(i.requested_time > after for i in deltas) >= options.commits
    enough = len(since) >= options.commits
    last = done[-1] if done else deltas[0]
    late = bool(since) and now_ms - ms_of(last.requested_time) >= options.seconds * 1000
    return {
        CompactionTrigger.NUM_COMMITS: enough,
        CompactionTrigger.TIME_ELAPSED: late,
        CompactionTrigger.NUM_OR_TIME: enough or late,
        CompactionTrigger.NUM_AND_TIME: enough and late,
    }[options.trigger]


def writes_since_compaction(timeline: Timeline, *, by_completion: bool) -> list[Instant]:
    """Completed writes of a merge-on-read table that no completed compaction took."""
    deltas = timeline.filter_actions("deltacommit").completed().instants
    done = _compactions(timeline.completed())
    return _after(deltas, done[-1] if done else None, by_completion=by_completion)


def _compactions(timeline: Timeline) -> list[Instant]:
    """Completed compactions: the commits of a merge-on-read table."""
    return [i for i in timeline if i.action == "commit"]


def _after(
    deltas: Sequence[Instant], last: Instant | None, *, by_completion: bool
) -> list[Instant]:
    """Writes that a compaction did not take."""
    if last is None:
        return list(deltas)
    times = ((i, i.completion_time if by_completion else None) for i in deltas)
    return [i for i, done in times if (done or i.requested_time) > last.requested_time]


# ---- what -----------------------------------------------------------------------------------


def plan_compaction(
    view: FileSystemView,
    options: CompactionOptions,
    *,
    taken: Collection[FileGroupId],
    today: str,
) -> CompactionPlan | None:
    """The plan; None if there is nothing to compact.

    `taken` are file groups of other plans; `today` is a date such as 2024-05-17, for strategies by
    the date of partitions.
    """
    slices = [
        slice_
        for slice_ in view.latest_slices()
        if slice_.logs
        and slice_.group not in taken
        and view.groups[slice_.group].pending_compaction is None
    ]
    chosen = _chosen([(s, _figures(s, options)) for s in slices], options, today)
    operations = [_operation(slice_, figures) for slice_, figures in chosen]
    return CompactionPlan(operations=operations) if operations else None


Weighed = tuple[FileSlice, Mapping[str, float]]


def _figures(slice_: FileSlice, options: CompactionOptions) -> dict[str, float]:
    """What Hudi's plans say of a slice; megabytes are whole ones."""
    logs = sum(log.size for log in slice_.logs)
    base = slice_.base.size if slice_.base is not None else 0
    read = (logs + base) // MB
    write = (base or options.parquet_max_bytes) // MB
    return {
        "TOTAL_LOG_FILES": float(len(slice_.logs)),
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_LOG_FILES_SIZE": float(logs),
        "TOTAL_IO_WRITE_MB": float(write),
        "TOTAL_IO_MB": float(read + write),
    }


def _chosen(found: list[Weighed], options: CompactionOptions, today: str) -> list[Weighed]:
    kind = options.strategy
    if kind is CompactionStrategy.UNBOUNDED:
        return found
    if kind is CompactionStrategy.BOUNDED_IO:
        return _bounded(found, options)
    if kind is CompactionStrategy.LOG_FILE_SIZE:
        size = "TOTAL_LOG_FILES_SIZE"
        enough = [w for w in found if w[1][size] >= options.log_bytes]
        return _bounded(sorted(enough, key=lambda w: -w[1][size]), options)
    if kind is CompactionStrategy.LOG_FILE_NUMBER:
        number = "TOTAL_LOG_FILES"
        enough = [w for w in found if w[1][number] >= options.log_files]
        return _bounded(sorted(enough, key=lambda w: -w[1][number]), options)
    if kind is CompactionStrategy.DAY_BASED:
        newest = sorted({w[0].group.partition for w in found}, reverse=True)
        days = newest[: options.partitions]
        return _bounded([w for day in days for w in found if w[0].group.partition == day], options)
    first = _days_before(today, options.partitions)
    recent = kind is CompactionStrategy.BOUNDED_PARTITIONS
    dated = [w for w in found if (_day(w[0].group.partition) >= first) == recent]
    return sorted(dated, key=lambda w: w[0].group.partition, reverse=recent)


def _bounded(found: Iterable[Weighed], options: CompactionOptions) -> list[Weighed]:
    """Operations until their reading and writing is too much; the one that crosses is in."""
    left = float(options.target_io_mb)
    taken: list[Weighed] = []
    for weighed in found:
        if left <= 0:
            break
        taken.append(weighed)
        left -= weighed[1]["TOTAL_IO_MB"]
    return taken


def _day(partition: str) -> str:
    """The date in a partition path; nothing sorts before every date."""
    dated = _DATED.search(partition)
    return dated.group().replace("/", "-") if dated else ""


def _days_before(today: str, days: int) -> str:
    return (date.fromisoformat(today) - timedelta(days=days)).isoformat()


def _operation(slice_: FileSlice, figures: Mapping[str, float]) -> CompactionOperation:
    return CompactionOperation(
        base_instant_time=slice_.base_instant,
        delta_file_paths=[log.name for log in slice_.logs],
        data_file_path=slice_.base.name if slice_.base is not None else None,
        file_id=slice_.group.file_id,
        partition_path=slice_.group.partition,
        metrics=dict(figures),
    )
