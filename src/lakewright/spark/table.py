"""A table on Spark: the verbs of `lakewright.Table` with DataFrames.

Reading: planning is the engine's own, on the driver. Slices that Spark reads just as well (see
`routing`) become one Parquet scan in the JVM; every other slice becomes one task in a Python
worker, which reads and merges it in columns and hands Arrow batches over. Base rows of merged
slices are never sent through the JVM to Python.

Every DataFrame is pinned to the snapshot of the moment it was made: using it twice gives the same
rows, also when the table moves on, until the cleaner removes files of that snapshot.

Writing: rows leave the JVM once, as Arrow, or are read by the Python workers if they are nothing
but Parquet files (`parquet_source`), and become files there; everything else is the engine's own,
on the driver (see `write_verbs`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from lakewright.engine.cdc_reader import Images
from lakewright.engine.change_offset import ChangeOffset, Moment
from lakewright.engine.changes import ChangeMode
from lakewright.engine.coexistence import LockChoice
from lakewright.engine.operations import (
    APPEND,
    BULK_INSERT,
    OVERWRITE_PARTITIONS,
    OVERWRITE_TABLE,
)
from lakewright.engine.options import ReadOptions
from lakewright.engine.scan import Mode, Scan
from lakewright.engine.scan_plan import ScanPlan
from lakewright.engine.write_result import WriteResult
from lakewright.errors import ConfigError, InputError
from lakewright.expr import Expr
from lakewright.format.own_files import storage_of_table
from lakewright.merge.protocol import RecordMerger
from lakewright.runtime.events import EventHook, ignore_events
from lakewright.services.health import Health
from lakewright.services.table_services import TableServices
from lakewright.spark.compaction_tasks import SparkCompactor
from lakewright.spark.filters import column_of, spark_filter
from lakewright.spark.keyed_merge import Clause, Expression
from lakewright.spark.keyed_verbs import KeyedWrites
from lakewright.spark.location import jvm_root, literal_path
from lakewright.spark.routing import Routing, requested_schema, route
from lakewright.spark.schema import spark_schema
from lakewright.spark.sink import StreamOperation, StreamSink, start_stream
from lakewright.spark.tasks import ReadContext, change_work, pack, read_packed, scan_context
from lakewright.spark.write_frame import sent_schema
from lakewright.spark.write_verbs import FrameWrites, SparkWriter
from lakewright.storage.options import StorageOptions
from lakewright.storage.resolve import StorageRef
from lakewright.storage.uri import parse_uri
from lakewright.table import Table, WriteArguments

__all__ = ["SparkReadPlan", "SparkTable"]

OUT_OF_REACH = "the JVM cannot open the table's storage"
NOT_WANTED = "the JVM was asked not to read"

PARQUET_OPTIONS = {
    "mergeSchema": "false",
    "recursiveFileLookup": "true",  # no columns from partition paths
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}
"""What Spark must do whatever its session says: rows that are there are never left out."""


@dataclass(frozen=True, slots=True)
class SparkReadPlan:
    """What a read will do: the scan, and who reads which part of it."""

    scan: ScanPlan
    routing: Routing

    def to_dict(self) -> dict[str, object]:
        """The plan as plain values."""
        return {
            **self.scan.to_dict(),
            "spark": {
                "jvm": {"slices": len(self.routing.jvm), "bytes": self._bytes("jvm")},
                "workers": {"slices": len(self.routing.workers), "bytes": self._bytes("workers")},
                "reasons": dict(self.routing.reasons),
            },
        }

    def __str__(self) -> str:
        lines = [
            str(self.scan),
            f"  in the JVM  {len(self.routing.jvm)} slices, {self._bytes('jvm'):,} bytes",
            f"  in workers  {len(self.routing.workers)} slices, {self._bytes('workers'):,} bytes",
        ]
        lines += [f"    {count} for {reason}" for reason, count in self.routing.reasons.items()]
        return "\n".join(lines)

    def _bytes(self, part: str) -> int:
        tasks = self.routing.jvm if part == "jvm" else self.routing.workers
        return sum(task.bytes for task in tasks)


class SparkTable:
    """A Hudi table on storage, read and written with Spark."""

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        storage: StorageRef,
        *,
        jvm_scan: bool = True,
        lock: LockChoice = None,
        sole_writer: bool = False,
        on_event: EventHook | None = None,
    ) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise ConfigError(
                "SparkTable needs a session in the driver's own process, not Spark Connect.",
                hint='On Spark Connect use spark.read.format("lakewright").load(uri).',
            )
        self.spark = spark
        self.table = table
        self._ref = storage
        self._jvm_scan = jvm_scan
        self._writes = FrameWrites(table, storage, lock, sole_writer, on_event or ignore_events)
        self._keyed = KeyedWrites(spark, self._writes)

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        uri: str | os.PathLike[str],
        *,
        storage: StorageOptions | None = None,
        options: ReadOptions | None = None,
        mergers: Sequence[RecordMerger] = (),
        jvm_scan: bool = True,
        on_event: EventHook | None = None,
        lock: LockChoice = None,
        sole_writer: bool = False,
    ) -> SparkTable:
        """Open the table at `uri`; see `lakewright.Table.open`.

        Workers open the storage themselves: name a credential provider that they can import.
        `jvm_scan=False` reads every slice in Python workers, for storage that only they reach.

        >>> trips = SparkTable.open(session(), "demo/trips")                # doctest: +SKIP
        >>> trips.read(columns=["id", "fare"], where="city = 'sf'").show()  # doctest: +SKIP
        """
        ref = StorageRef(str(parse_uri(uri)), options=storage_of_table(storage))
        table = Table.open(
            uri,
            storage=storage,
            options=options,
            mergers=mergers,
            on_event=on_event,
            lock=lock,
            sole_writer=sole_writer,
        )
        return cls(
            spark,
            table,
            ref,
            jvm_scan=jvm_scan,
            lock=lock,
            sole_writer=sole_writer,
            on_event=on_event,
        )

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        uri: str | os.PathLike[str],
        *,
        schema: StructType | pa.Schema,
        name: str | None = None,
        type: Literal["cow", "mor"] = "cow",  # noqa: A002 - the word that users know
        version: int = 8,
        key: Sequence[str] = (),
        partition: Sequence[str] = (),
        ordering: Sequence[str] = (),
        storage: StorageOptions | None = None,
        on_event: EventHook | None = None,
        lock: LockChoice = None,
        **choices: Any,
    ) -> SparkTable:
        """Create an empty table; see `lakewright.Table.create`.

        >>> st = SparkTable.create(spark, "trips", schema=df.schema, key=["id"])  # doctest: +SKIP
        >>> st.bulk_insert(df)                                                    # doctest: +SKIP
        """
        table = Table.create(
            uri,
            schema=sent_schema(schema) if isinstance(schema, StructType) else schema,
            name=name,
            type=type,
            version=version,
            key=key,
            partition=partition,
            ordering=ordering,
            storage=storage,
            on_event=on_event,
            lock=lock,
            **choices,
        )
        ref = StorageRef(str(parse_uri(uri)), options=storage_of_table(storage))
        return cls(spark, table, ref, lock=lock, on_event=on_event)

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self.table.uri

    @property
    def schema(self) -> StructType:
        """The columns of the latest snapshot as Spark reads them, meta columns included."""
        return spark_schema(self.table.schema)

    def read(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | Expr | None = None,
        as_of: str | datetime | None = None,
        mode: Mode = "snapshot",
        meta: bool = True,
    ) -> DataFrame:
        """The rows of one pinned snapshot; the arguments are those of `Table.scan`.

        Name the columns and the filter here where you can: they reach the files of every slice,
        while Spark's own `select` and `filter` reach only those that the JVM scans.
        """
        return self._frame(
            self.table.scan(columns=columns, where=where, as_of=as_of, mode=mode, meta=meta)
        )

    def plan(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | Expr | None = None,
        as_of: str | datetime | None = None,
        mode: Mode = "snapshot",
        meta: bool = True,
    ) -> SparkReadPlan:
        """What `read` with the same arguments would do now, as a printable value."""
        scan = self.table.scan(columns=columns, where=where, as_of=as_of, mode=mode, meta=meta)
        return SparkReadPlan(scan.plan(), self._routed(scan)[1])

    def create_view(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | Expr | None = None,
        as_of: str | datetime | None = None,
        mode: Mode = "snapshot",
        meta: bool = True,
    ) -> DataFrame:
        """Make a read known to SQL under `name`, replacing a view of that name.

        The view shows the snapshot of this moment; create it again to see later commits.
        """
        frame = self.read(columns=columns, where=where, as_of=as_of, mode=mode, meta=meta)
        frame.createOrReplaceTempView(name)
        return frame

    def changes(
        self,
        since: Moment | ChangeOffset | None = None,
        until: Moment | ChangeOffset | None = None,
        mode: ChangeMode = "rows",
        *,
        columns: Sequence[str] | None = None,
        where: str | Expr | None = None,
        images: Images = "json",
    ) -> DataFrame:
        """What changed in a range; the arguments are those of `Table.changes`.

        Fix the end of the range where reads follow each other: `st.table.changes(since).end` says
        where the next one begins.
        """
        found = self.table.changes(since, until, mode, columns=columns, where=where, images=images)
        context, tasks = change_work(found, self._ref)
        return self._in_workers(context, tasks) if tasks else self._nothing(found.schema)

    # ---- writing -------------------------------------------------------------------------------

    def append(self, rows: DataFrame, **how: Unpack[WriteArguments]) -> WriteResult:
        """Add the rows of a DataFrame; small files are filled first.

        Keys are not looked up: a row whose key is there already is a second row.

        >>> st.append(df)                                                   # doctest: +SKIP
        """
        return self._writes.write(APPEND, SparkWriter.append, rows, how)

    def bulk_insert(self, rows: DataFrame, **how: Unpack[WriteArguments]) -> WriteResult:
        """Add many rows as new files, sorted as the options ask for."""
        return self._writes.write(BULK_INSERT, SparkWriter.bulk_insert, rows, how)

    def overwrite(
        self, rows: DataFrame, *, whole_table: bool = False, **how: Unpack[WriteArguments]
    ) -> WriteResult:
        """Replace the partitions that the rows are in, or the whole table."""
        if whole_table:
            return self._writes.write(OVERWRITE_TABLE, SparkWriter.overwrite_table, rows, how)
        return self._writes.write(OVERWRITE_PARTITIONS, SparkWriter.overwrite_partitions, rows, how)

    def upsert(
        self,
        rows: DataFrame,
        *,
        columns: Sequence[str] | None = None,
        **how: Unpack[WriteArguments],
    ) -> WriteResult:
        """Update the rows whose keys are in the table and insert the others.

        Rows of one key, in the write and in the table, meet by the table's own rule of merging.
        Rows that are marked as deleted (`_hoodie_is_deleted`) delete. With `columns` only these
        are changed, and rows need no others besides those of the key, the partition and the order.

        >>> st.upsert(df)                                                   # doctest: +SKIP
        """
        return self._keyed.upsert(rows, columns, how)

    @property
    def services(self) -> TableServices:
        """The table's services; what is heavy is done by tasks of the session."""
        local = self.table.services
        compactor = SparkCompactor(self.spark, self._ref)
        return TableServices(local.opened, local.registry, local.threads, compactor)

    def health(self, options: Mapping[str, str] | None = None) -> Health:
        """What is pending, overdue, expired or blocked; see `lakewright.Table.health`."""
        return self.table.health(options)

    def delete(
        self,
        keys: DataFrame | None = None,
        *,
        where: str | Expr | None = None,
        **how: Unpack[WriteArguments],
    ) -> WriteResult:
        """Delete rows by their keys, or those that pass a filter.

        `keys` has the key columns and the partition columns, or `_hoodie_record_key` and
        `_hoodie_partition_path`; other columns are not looked at. Keys that are not in the table
        are counted as ignored.

        >>> st.delete(old.select("id", "city"))                             # doctest: +SKIP
        >>> st.delete(where="city = 'sf' and ts < 5")                       # doctest: +SKIP
        """
        if (keys is None) == (where is None):
            raise InputError(
                "A delete takes either keys or a filter.",
                hint="Give a DataFrame with the key columns, or where=.",
            )
        if where is not None:
            return self._keyed.delete_where(where, self._frame, how)
        return self._keyed.delete(keys, how)

    def merge(
        self,
        source: DataFrame,
        *clauses: Clause,
        on: Sequence[str] | Expression | None = None,
        **how: Unpack[WriteArguments],
    ) -> WriteResult:
        """Do with rows of the table, and with those of a DataFrame, what clauses say; one commit.

        Rows meet by their keys, or as `on` says: names of columns, or a condition over `source` and
        `target`. The first clause that fits acts. Each row of the source meets at most one of the
        table, and each of the table at most one of the source; anything else is an `InputError`.

        >>> st.merge(                                                       # doctest: +SKIP
        ...     changes,
        ...     when_matched_delete(where="source.op = 'D'"),
        ...     when_matched_update({"n": "target.n + source.n"}),
        ...     when_not_matched_insert(),
        ... )
        """
        return self._keyed.merge(source, on, clauses, self._frame, how)

    def delete_partition(self, *partitions: str, **how: Unpack[WriteArguments]) -> WriteResult:
        """Delete all rows of partitions, named by their paths or by patterns with `*`."""
        return self.table.delete_partition(*partitions, **how)

    def write_stream(
        self,
        rows: DataFrame,
        *,
        checkpoint: str | os.PathLike[str],
        identifier: str = "default",
        operation: StreamOperation = "append",
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
        **how: Unpack[WriteArguments],
    ) -> StreamingQuery:
        """Start a query that commits every batch of a stream once, also across restarts.

        `identifier` tells streams into one table apart, `trigger` is what Spark's own `trigger`
        takes. The table's commits remember the last batch of every identifier.

        >>> st.write_stream(events, checkpoint="/data/checkpoints/trips",
        ...                 trigger={"processingTime": "1 minute"})         # doctest: +SKIP
        """
        return start_stream(
            self.spark,
            StreamSink(self._writes, identifier, operation, how),
            rows,
            checkpoint=os.fspath(checkpoint),
            trigger=trigger,
            query_name=query_name,
        )

    def _frame(self, scan: Scan) -> DataFrame:
        root, routing = self._routed(scan)
        frames = []
        if routing.jvm:
            paths = [
                literal_path(f"{root}/{task.slice_.base.path}")
                for task in routing.jvm
                if task.slice_.base is not None
            ]
            frames.append(self._parquet(scan, paths))
        if routing.workers:
            frames.append(self._in_workers(scan_context(scan, self._ref), routing.workers))
        if not frames:
            return self._nothing(scan.schema)
        return frames[0] if len(frames) == 1 else frames[0].union(frames[1])

    def _nothing(self, schema: pa.Schema) -> DataFrame:
        return self.spark.createDataFrame([], spark_schema(schema))

    def _routed(self, scan: Scan) -> tuple[str | None, Routing]:
        tasks = scan.plan().tasks
        root, obstacle = None, None
        if not self._jvm_scan:
            obstacle = NOT_WANTED
        elif not all(task.needs_merge for task in tasks):
            root = jvm_root(self.spark, parse_uri(self._ref.uri))
            obstacle = None if root else OUT_OF_REACH
        return root, route(scan, tasks, unreachable=obstacle)

    def _parquet(self, scan: Scan, paths: list[str]) -> DataFrame:
        asked = requested_schema(scan)
        reader = self.spark.read.schema(spark_schema(asked)).options(**PARQUET_OPTIONS)
        frame = reader.format("parquet").load(paths)
        if scan.where is not None:
            frame = frame.filter(spark_filter(scan.where))
        if tuple(asked.names) == scan.columns:
            return frame
        return frame.select(*map(column_of, scan.columns))

    def _in_workers(self, context: ReadContext, tasks: Sequence[object]) -> DataFrame:
        shared, each = pack(context), [pack(task) for task in tasks]

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for index in batch.column(0).to_pylist():  # one: there is a partition per task
                    yield from read_packed(shared, each[index])

        count = len(each)
        return self.spark.range(0, count, 1, count).mapInArrow(read, spark_schema(context.schema))

    def __repr__(self) -> str:
        return f"SparkTable({self.uri!r})"
