"""Streams over a table: every committed change once, in the order in which it was settled.

    spark.readStream.format("lakewright").option("since", "earliest").load(uri)

An offset is the text of a `ChangeOffset`, so a checkpoint says by which scheme it counts: requested
times at version 6, where a stream stops before the first pending write, completion times later. A
batch is the range between two offsets and nothing else, so a restarted query reads the same again.
After a migration between versions the checkpoint's offsets are refused, because they would skip or
repeat changes.

`since` is where a new query begins (`earliest`, the default; `latest`; an instant, a date-time or
an offset). `max_instants_per_batch` and `max_bytes_per_batch` (bytes written by the instants) limit
a batch, which holds one instant at least. A batch has the latest version inside its range of every
row that was changed in it; with one instant per batch that is every committed version.

The first batch from `earliest` takes what is no longer to be had instant by instant, because it was
archived or cleaned, from the latest snapshot. A query that falls so far behind later fails, unless
`missing_history` is `latest`: it then goes on in the same way and skips versions that were replaced
meanwhile.

A listing of a timeline is no snapshot of it: while it runs, one write may be missed and a later one
be found. So a batch ends at an instant that one listing saw, and holds what a later listing has up
to there; whatever settled before that instant is in the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakewright.engine.change_offset import EARLIEST, ChangeOffset, resolve_offset
from lakewright.engine.change_range import ChangeRange, scheme_of, select_range
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import InstantNotFoundError, OptionError
from lakewright.format.instant import Instant
from lakewright.format.records.instants import load_commit_metadata
from lakewright.format.timeline import earliest_commit_to_retain
from lakewright.spark.request import ReadRequest
from lakewright.spark.schema import check_types
from lakewright.spark.tasks import change_work, pack, read_packed
from lakewright.table import Table

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before Spark 4.2

        class SupportsTriggerAvailableNow:
            """Spark bounds the run by itself."""


__all__ = ["LakewrightStreamReader"]

OFFSET = "offset"
LATEST = "latest"
WITHOUT_LIMIT = "ReadAllAvailable"


@dataclass(frozen=True, slots=True)
class _Settled:
    """What can be read after an offset, and the listing that said so."""

    listed: tuple[Instant, ...]
    range: ChangeRange
    snapshot: Snapshot


class LakewrightStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in one process of its own, and reads their tasks in workers."""

    def __init__(self, request: ReadRequest, schema: StructType) -> None:
        if request.as_of is not None or request.until is not None:
            raise OptionError(
                "A stream has no end and reads no snapshot.",
                hint="Leave `as_of` and `until` out, or use spark.read.",
            )
        self._request = request
        self._schema = schema
        self._table: Table | None = None
        self._seen: ChangeOffset | None = None
        self._target: ChangeOffset | None = None
        self._settled: _Settled | None = None

    # ---- planning, in the driver's process for this stream -------------------------------------

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        if (self._request.since or "").lower() == LATEST:
            self._seen = self._settled_after(self._earliest()).range.end
        else:
            properties = self._opened().properties
            scheme, zone = scheme_of(properties), properties.timeline_zone
            self._seen = resolve_offset(self._request.since or EARLIEST, scheme, zone=zone)
        assert self._seen is not None
        return _written(self._seen)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, str] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, str]:
        """Where the next batch ends.

        Spark before 4.2 does not say where it begins; the first batch after a restart is without
        limits there.
        """
        begin = _read(start) if start else self._seen
        settled = self._settled_after(begin or self._earliest())
        if begin is None or type(limit).__name__ == WITHOUT_LIMIT:
            return _written(self._bounded(settled.range.end))
        return _written(self._bounded(self._limited(settled)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Tells Spark whether batches are limited; the options say how."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

        if self._request.max_bytes is not None:
            return ReadMaxBytes(self._request.max_bytes)
        if self._request.max_instants is not None:
            return ReadMaxFiles(self._request.max_instants)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, str] | None:  # noqa: N802 - Spark's name
        """How far the table was when it was last looked at, for the query's progress."""
        return None if self._settled is None else _written(self._settled.range.end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take what is settled now for the end of the run."""
        self._target = self._settled_after(self._earliest()).range.end

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """One partition per file slice that changed, or per file group with change data."""
        begin, last = _read(start), _read(end)
        self._seen = last
        if begin.scheme == last.scheme and last.time <= begin.time:
            return []  # the table was restored to an earlier state, if they differ
        names = self._schema.names
        changes = self._request.changes_of(self._opened(), names, begin, last)
        check_types(self._schema, changes.schema)
        context, tasks = change_work(changes, self._request.storage)
        if context.from_latest and begin.time and self._request.missing_history == "fail":
            raise InstantNotFoundError(
                f"The changes from {begin} to {last} are no longer there: their instants were "
                "archived or their files cleaned before the stream read them.",
                hint="Keep more history (hoodie.cleaner.commits.retained, hoodie.keep.min.commits) "
                "or trigger the query more often. To go on from the latest versions of the rows, "
                "without those replaced meanwhile, set the option missing_history to latest.",
                context={"since": str(begin), "until": str(last)},
            )
        shared = pack(context)
        return [InputPartition((shared, pack(task))) for task in tasks]

    def _opened(self) -> Table:
        if self._table is None:
            self._table = self._request.table()
        return self._table

    def _earliest(self) -> ChangeOffset:
        return ChangeOffset.earliest(scheme_of(self._opened().properties))

    def _settled_after(self, begin: ChangeOffset) -> _Settled:
        """The range from `begin` on; the same answer while the timeline stays the same."""
        listed = self._opened().timeline
        known = self._settled
        if known is None or known.listed != listed.instants or known.range.begin != begin:
            snapshot = self._opened().snapshot()
            found = select_range(snapshot, since=begin, until=None)
            seen = {instant.requested_time for instant in listed.completed()}
            known = _Settled(listed.instants, _confirmed(found, seen), snapshot)
            self._settled = known
        return known

    def _bounded(self, end: ChangeOffset) -> ChangeOffset:
        target = self._target
        return end if target is None or end.time <= target.time else target

    def _limited(self, settled: _Settled) -> ChangeOffset:
        """The end of a batch that keeps the limits, at an instant of the active timeline."""
        most, budget = self._request.max_instants, self._request.max_bytes
        range_ = settled.range
        if (most is None and budget is None) or not range_.instants:
            return range_.end
        scheme = range_.end.scheme
        order = sorted(range_.instants, key=lambda instant: _time(instant, scheme))
        least = max(1, 0 if range_.begin.time else _without_files(order, settled.snapshot))
        spent = 0
        for position, instant in enumerate(order):
            if budget is not None:
                spent += _bytes_written(settled.snapshot, instant)
            over = (most is not None and position >= most) or (
                budget is not None and spent > budget
            )
            if over and position >= least:
                return ChangeOffset(scheme, _time(order[position - 1], scheme))
        return range_.end

    # ---- reading, in workers -------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        context, task = partition.value
        return read_packed(context, task)

    def __getstate__(self) -> dict[str, Any]:
        fresh = {"_table": None, "_seen": None, "_target": None, "_settled": None}
        return {"_request": self._request, "_schema": self._schema, **fresh}


def _confirmed(found: ChangeRange, seen: set[str]) -> ChangeRange:
    """The range up to the last instant that an earlier listing saw completed."""
    times = [_time(i, found.end.scheme) for i in found.instants if i.requested_time in seen]
    if len(times) == len(found.instants):
        return found
    end = max(times, default=found.begin.time)
    instants = tuple(i for i in found.instants if _time(i, found.end.scheme) <= end)
    return replace(found, end=ChangeOffset(found.end.scheme, end), instants=instants)


def _without_files(order: Sequence[Instant], snapshot: Snapshot) -> int:
    """How many of the instants must be read at once, because files of some were cleaned."""
    retained = earliest_commit_to_retain(snapshot.storage, snapshot.properties, snapshot.timeline)
    if retained is None:
        return 0
    cleaned = (n for n, i in enumerate(order, 1) if i.requested_time < retained)
    return max(cleaned, default=0)


def _written(offset: ChangeOffset) -> dict[str, str]:
    return {OFFSET: str(offset)}


def _read(offset: dict[str, str]) -> ChangeOffset:
    return ChangeOffset.parse(offset[OFFSET])


def _time(instant: Instant, scheme: str) -> str:
    if scheme == "requested":
        return instant.requested_time
    return instant.completion_time or instant.requested_time


def _bytes_written(snapshot: Snapshot, instant: Instant) -> int:
    metadata = load_commit_metadata(snapshot.storage, snapshot.properties, instant)
    return sum(stat.total_write_bytes or 0 for stat in metadata.write_stats)
