"""Verification of a metadata table: every record of every index, held against the table's files.

The listing comes from the folders, statistics and bloom filters from footers and from the rows of
log files, keys and values from the rows of the merged slices. Nothing is believed that the metadata
table says, not even that it is up to date. Differences come one by one as they are found; after
each index `Compared` tells how much was looked at. Memory is bounded by one file group of an index
and by `statistics_verification.AT_ONCE`; keys beyond the budget of merging go to scratch files.

What Hudi itself leaves and is no difference: `docs/metadata-reading.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from lakewright.engine.file_verification import verify_bloom_filters, verify_listing
from lakewright.engine.options import ReadOptions
from lakewright.engine.row_verification import RowVerification
from lakewright.engine.snapshot import Snapshot
from lakewright.engine.statistics_verification import (
    verify_column_statistics,
    verify_partition_statistics,
)
from lakewright.errors import FormatError, NotFoundError, OptionError, UnsupportedTableError
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata import file_groups as indexes
from lakewright.metadata.table import MetadataTable
from lakewright.metadata.validity import missing_changes
from lakewright.metadata.verification import Compared, Difference, DifferenceKind, Finding
from lakewright.runtime.events import Event, EventHook, ignore_events

__all__ = ["verify_metadata"]

UNREADABLE: Final = (FormatError, NotFoundError, UnsupportedTableError)
VERIFIED: Final = "metadata_table.verified"


def verify_metadata(
    snapshot: Snapshot,
    *,
    only: Sequence[str] = (),
    options: ReadOptions,
    registry: MergerRegistry,
    on_event: EventHook = ignore_events,
) -> Iterator[Finding]:
    """Every difference, index by index; nothing at all for a table without a metadata table.

    `snapshot` must list folders (`use_metadata_table=False`). `only` names the indexes to look at.
    """
    assert snapshot.opened.metadata is None
    storage, properties, timeline = snapshot.storage, snapshot.properties, snapshot.timeline
    unknown = [name for name in only if name not in properties.metadata_partitions]
    if unknown:
        raise OptionError(
            f"The metadata table has no index {unknown[0]}.",
            hint=f"It has: {', '.join(properties.metadata_partitions) or 'none'}.",
            context={"table": storage.uri},
        )
    try:
        metadata = MetadataTable.open(storage, properties, timeline, check=False)
    except UNREADABLE as error:
        yield _unreadable(indexes.FILES, error)
        return
    if metadata is None:
        return
    for instant in missing_changes(storage, properties, timeline, metadata.timeline):
        told = {"action": instant.action, "completion_time": instant.completion_time}
        yield Difference(indexes.FILES, DifferenceKind.STALE, instant.requested_time, told)
    rows = RowVerification(snapshot, metadata, options, registry)
    for index in only or metadata.indexes:
        for finding in _checked(index, _check_of(index, snapshot, metadata, rows)):
            if isinstance(finding, Compared):
                on_event(Event(VERIFIED, done=finding.records, unit="records", path=index))
            yield finding


def _checked(index: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The differences of one index, then how much was compared."""
    records = differences = 0
    note = ""
    try:
        for finding in check():
            if isinstance(finding, Compared):
                records, note = records + finding.records, finding.note
            else:
                differences += 1
                yield finding
    except UNREADABLE as error:
        differences += 1
        yield _unreadable(index, error)
    yield Compared(index, records, differences, note)


def _check_of(
    index: str, snapshot: Snapshot, metadata: MetadataTable, rows: RowVerification
) -> Callable[[], Iterator[Finding]]:
    of_files = {
        indexes.FILES: verify_listing,
        indexes.COLUMN_STATS: verify_column_statistics,
        indexes.PARTITION_STATS: verify_partition_statistics,
        indexes.BLOOM_FILTERS: verify_bloom_filters,
    }
    if index in of_files:
        return partial(of_files[index], snapshot, metadata)
    if index == indexes.RECORD_INDEX:
        return rows.record_index
    if index.startswith(indexes.SECONDARY_PREFIX):
        return partial(rows.secondary_index, index)
    return lambda: iter([Compared(index, 0, 0, note="indexes of this kind are not compared")])


def _unreadable(
    index: str, error: FormatError | NotFoundError | UnsupportedTableError
) -> Difference:
    where = str(error.context.get("path", ""))
    return Difference(
        index,
        DifferenceKind.UNREADABLE,
        where,
        found={"problem": error.message, "offset": error.context.get("offset")},
    )
