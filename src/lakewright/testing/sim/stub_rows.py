"""Data files without data work: tiny files with legal names that name their rows.

A stub base file is one JSON line `[key, value]` per row under the name of a base file. A stub log
file is one real data block, with the header of its instant, whose content is such lines; command
blocks of rollbacks are real. `read_rows` reads them through the real timeline, file-slice and
block-selection code, so that what is stubbed is Parquet and Avro only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from lakewright.format.cleaned_files import with_cleaned_later
from lakewright.format.file_slices import FileGroupId, FileSlice
from lakewright.format.log_block import BlockType, HeaderKey, LogBlock, encode_block, read_blocks
from lakewright.format.log_scan import select_blocks
from lakewright.format.partitions import list_table
from lakewright.format.properties import TableProperties, load_properties
from lakewright.format.timeline import Timeline, load_timeline
from lakewright.format.view_inputs import block_visibility, load_view
from lakewright.runtime.clock import Clock
from lakewright.storage.base import Storage

__all__ = [
    "Rows",
    "base_content",
    "log_content",
    "read_rows",
    "rows_at",
    "rows_of_base",
    "rows_of_slices",
    "slice_rows",
    "slices_at",
]

Rows = Mapping[str, str]
"""Values by key."""


def base_content(rows: Rows) -> bytes:
    """The content of a stub base file."""
    return "".join(f"{json.dumps(pair)}\n" for pair in rows.items()).encode()


def log_content(instant: str, rows: Rows) -> bytes:
    """The content of a stub log file that one instant wrote."""
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: '"null"'}
    return encode_block(BlockType.AVRO_DATA, headers, base_content(rows))


def rows_of_base(content: bytes | memoryview) -> dict[str, str]:
    """The rows of a stub base file, or of a block of a stub log file."""
    return dict(json.loads(line) for line in bytes(content).splitlines())


def read_rows(storage: Storage, clock: Clock) -> tuple[Timeline, dict[FileGroupId, Rows]]:
    """The timeline that a reader pinned, and what it sees in each file group."""
    properties = load_properties(storage, clock=clock)
    timeline = load_timeline(storage, properties)
    return timeline, rows_at(storage, properties, timeline)


def rows_at(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> dict[FileGroupId, Rows]:
    """What a reader that pinned `timeline` sees in each file group that has rows."""
    slices = slices_at(storage, properties, timeline)
    return rows_of_slices(storage, properties, timeline, slices)


def slices_at(storage: Storage, properties: TableProperties, timeline: Timeline) -> list[FileSlice]:
    """What a reader that pinned `timeline` is going to read."""
    listing = with_cleaned_later(storage, properties, timeline, list_table(storage))
    view = load_view(storage, properties, timeline, listing=listing)
    return list(view.latest_merged_slices())


def rows_of_slices(
    storage: Storage,
    properties: TableProperties,
    timeline: Timeline,
    slices: Iterable[FileSlice],
) -> dict[FileGroupId, Rows]:
    """What each file group that has rows holds."""
    found = {s.group: slice_rows(storage, properties, timeline, s) for s in slices}
    return {group: rows for group, rows in found.items() if rows}


def slice_rows(
    storage: Storage,
    properties: TableProperties,
    timeline: Timeline,
    slice_: FileSlice,
    *,
    latest: str | None = None,
) -> dict[str, str]:
    """The rows of one slice, up to blocks of the instant `latest`."""
    rows: dict[str, str] = {}
    if slice_.base is not None:
        rows.update(rows_of_base(storage.read(slice_.base.path)))
    blocks: list[LogBlock] = []
    for log in slice_.logs:
        blocks += read_blocks(storage.read(log.path), path=log.path)
    visible = block_visibility(properties, timeline)
    for block in select_blocks(blocks, is_visible=visible, latest=latest).blocks:
        rows.update(rows_of_base(block.content))
    return rows
