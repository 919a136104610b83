"""Streams into a table: every batch is one commit, and is committed once.

The commit of a batch carries the stream's name and the batch's number, as Hudi's own sink writes
them. A batch that Spark runs again, because it was stopped between the commit and its own note of
it, is found on the timeline (or in the archive) and left out. It is looked for before the batch,
and again under the lock, where nobody else can commit it.

What can go wrong: a checkpoint that is new for a stream that the table knows is a `ConfigError`,
because Spark would count batches from 0 again, and they would be left out as known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lakewright.engine.operations import (
    APPEND,
    BULK_INSERT,
    OVERWRITE_PARTITIONS,
    OVERWRITE_TABLE,
    Operation,
)
from lakewright.errors import ConfigError, ConflictError, InputError, OptionError
from lakewright.format.timeline import Timeline
from lakewright.runtime.events import Event
from lakewright.spark.write_run import refuse_speculation
from lakewright.spark.write_verbs import FrameWrites, SparkWriter, Verb
from lakewright.table import WriteArguments
from lakewright.txn.carried import committed_batch, sink_checkpoint

__all__ = ["STREAM_OPERATIONS", "StreamOperation", "StreamSink", "start_stream"]

StreamOperation = Literal["append", "bulk_insert", "overwrite", "overwrite_table"]
STREAM_OPERATIONS: Final[Mapping[str, tuple[Operation, Verb]]] = {
    "append": (APPEND, SparkWriter.append),
    "bulk_insert": (BULK_INSERT, SparkWriter.bulk_insert),
    "overwrite": (OVERWRITE_PARTITIONS, SparkWriter.overwrite_partitions),
    "overwrite_table": (OVERWRITE_TABLE, SparkWriter.overwrite_table),
}


@dataclass(frozen=True)
class StreamSink:
    """Writes the batches of one stream."""

    writes: FrameWrites
    identifier: str
    operation: StreamOperation
    how: WriteArguments

    def write(self, rows: DataFrame, batch: int) -> None:
        """Commit a batch, unless it is committed."""
        if self._has(self.writes.table.timeline, batch):
            self._skip(batch)
            return
        operation, verb = STREAM_OPERATIONS[self.operation]
        known: list[int] = []

        def guard(timeline: Timeline) -> None:
            if self._has(timeline, batch):
                known.append(batch)
                raise self._known_error(batch)

        extra = sink_checkpoint(self.identifier, batch)
        try:
            self.writes.write(
                operation, verb, rows, self.how, extra=extra, guard=guard, stream=True
            )
        except ConflictError:
            if not known:
                raise
            self._skip(batch)

    def last_batch(self, timeline: Timeline) -> int | None:
        """The last committed batch of the stream."""
        properties = self.writes.table.properties
        return committed_batch(self.writes.ref.open(), properties, timeline, self.identifier)

    def _has(self, timeline: Timeline, batch: int) -> bool:
        last = self.last_batch(timeline)
        return last is not None and batch <= last

    def _known_error(self, batch: int) -> ConflictError:
        return ConflictError(
            f"Batch {batch} of stream {self.identifier!r} was committed meanwhile.",
            hint="Nothing is to be done: its rows are in the table.",
            context={"batch": batch, "identifier": self.identifier},
        )

    def _skip(self, batch: int) -> None:
        self.writes.on_event(Event("stream.batch_known", batch, unit="batch"))


def start_stream(
    spark: SparkSession,
    sink: StreamSink,
    rows: DataFrame,
    *,
    checkpoint: str,
    trigger: Mapping[str, Any] | None,
    query_name: str | None,
) -> StreamingQuery:
    """Start a query that writes `rows` to the sink."""
    if not rows.isStreaming:
        raise InputError(
            "write_stream takes a stream.",
            hint="Make it with spark.readStream, or write a finite DataFrame with append.",
        )
    if sink.operation not in STREAM_OPERATIONS:
        raise OptionError(
            f"A stream cannot be written by {sink.operation!r}.",
            hint=f"Use one of: {', '.join(STREAM_OPERATIONS)}.",
            context={"operation": sink.operation},
        )
    refuse_speculation(spark)
    sink.writes.table.write_options(sink.how)  # a wrong option is told now, not by the first batch
    _refuse_foreign_checkpoint(spark, sink, checkpoint)
    writer = rows.writeStream.option("checkpointLocation", checkpoint).foreachBatch(sink.write)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    if query_name is not None:
        writer = writer.queryName(query_name)
    return writer.start()


def _refuse_foreign_checkpoint(spark: SparkSession, sink: StreamSink, checkpoint: str) -> None:
    last = sink.last_batch(sink.writes.table.timeline)
    if last is None or _has_batches(spark, checkpoint):
        return
    raise ConfigError(
        f"The table has batches of stream {sink.identifier!r} up to {last}, but the checkpoint is "
        "new: its first batches would be taken for those.",
        hint="Give this stream another identifier=, or go on with the checkpoint it began with.",
        context={"identifier": sink.identifier, "checkpoint": checkpoint, "last_batch": last},
    )


def _has_batches(spark: SparkSession, checkpoint: str) -> bool:
    """Whether a query has begun a batch at this checkpoint."""
    context = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 - Spark offers no other way to ask for a file system
    assert jvm is not None
    offsets = jvm.org.apache.hadoop.fs.Path(checkpoint, "offsets")
    files = offsets.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
    return bool(files.exists(offsets)) and len(files.listStatus(offsets)) > 0
