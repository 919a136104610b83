"""What every commit carries on from the commits before it: checkpoints of streams.

Hudi's streamer and streaming sinks keep their progress in commit metadata and look for it in the
newest commits. A commit without it would make them look further and further back, until archiving
takes it away; so each commit of ours repeats what the newest one before it said. A sink's
checkpoints are one map of the last batch by writer, which grows by the writer that commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from lakewright.errors import FormatError
from lakewright.format.archived_timeline import archived_instants
from lakewright.format.records import CommitMetadata, load_commit_metadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage
from lakewright.txn.mark import WRITER_KEY

__all__ = ["SINK_KEY", "STREAMER_KEYS", "carried_forward", "committed_batch", "sink_checkpoint"]

SINK_KEY: Final = "_hudi_streaming_sink_checkpoint"
STREAMER_KEYS: Final = (
    "deltastreamer.checkpoint.key",
    "deltastreamer.checkpoint.reset_key",
    "deltastreamer.checkpoint.ignore_key",
    "streamer.checkpoint.key.v2",
    "streamer.checkpoint.reset.key.v2",
)


def sink_checkpoint(identifier: str, batch: int) -> dict[str, str]:
    """Extra metadata of the commit that holds a stream's batch."""
    return {SINK_KEY: json.dumps({identifier: str(batch)}, separators=(",", ":"))}


def carried_forward(
    storage: Storage,
    properties: TableProperties,
    timeline: Timeline,
    extra: Mapping[str, str],
) -> dict[str, str]:
    """Extra metadata with the checkpoints of the commits before; what it says itself wins."""
    before = _newest_checkpoints(storage, properties, timeline)
    carried = {**before, **extra}
    sinks = {**_batches(before.get(SINK_KEY)), **_batches(extra.get(SINK_KEY))}
    if sinks:
        carried[SINK_KEY] = json.dumps(sinks, separators=(",", ":"))
    return carried


def _newest_checkpoints(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> dict[str, str]:
    for metadata in _newest_first(storage, properties, timeline):
        found = {
            key: metadata.extra_metadata[key]
            for key in (*STREAMER_KEYS, SINK_KEY)
            if metadata.extra_metadata.get(key)
        }
        if found or WRITER_KEY in metadata.extra_metadata:
            return found  # a commit of ours has looked back already
    return {}


def _newest_first(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> Iterator[CommitMetadata]:
    completed = timeline.commits().completed().instants
    for instant in sorted(completed, key=lambda i: i.completion_time or "", reverse=True):
        try:
            yield load_commit_metadata(storage, properties, instant)
        except FormatError:
            continue


def committed_batch(
    storage: Storage, properties: TableProperties, timeline: Timeline, identifier: str
) -> int | None:
    """The last batch of a stream that is committed, looked for in the archive too."""
    for metadata in _newest_first(storage, properties, timeline):
        found = _batches(metadata.extra_metadata.get(SINK_KEY)).get(identifier)
        if found is not None:
            return int(found)
    archived = [
        int(found)
        for instant in archived_instants(storage, properties)
        if isinstance(instant.metadata, CommitMetadata)
        and (found := _batches(instant.metadata.extra_metadata.get(SINK_KEY)).get(identifier))
    ]
    return max(archived, default=None)


def _batches(text: str | None) -> dict[str, str]:
    """Last batch by writer; none where the text is not such a map."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(k): str(v) for k, v in found.items() if str(v).lstrip("-").isdigit()}
