"""The verbs of keyed writes on Spark: upsert, delete by key, delete by filter, merge.

How rows come: those of small Parquet files are read by the driver, and those of a DataFrame that
Spark knows to be small are collected, in one job or in none. All others wait in the workers
(`keyed_rows`) and send only what decides; if it turns out that there are few, they follow. Keys to
delete always come to the driver, which is all that they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it

from lakewright.engine.arrow_write import with_retries
from lakewright.engine.keyed.deletes import delete_where, key_batches, key_columns
from lakewright.engine.keyed.incoming import KEYED
from lakewright.engine.keyed.insert_guard import ReadGuard
from lakewright.engine.keyed.partial import partial_schema
from lakewright.engine.keyed.writer import refuse_generated_keys
from lakewright.engine.operations import DELETE, MERGE, UPSERT, Operation
from lakewright.engine.row_source import RowSource
from lakewright.engine.scan import Scan, make_scan
from lakewright.engine.write_job import WriteJob
from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.expr import Expr
from lakewright.runtime.events import Event
from lakewright.spark.filters import column_of
from lakewright.spark.index_tasks import looking_on_spark
from lakewright.spark.keyed_chunks import Keying
from lakewright.spark.keyed_merge import Clause, Expression, merged
from lakewright.spark.keyed_rows import Chunk, FileRows, KeptRows, arrow_rows
from lakewright.spark.keyed_writer import DELETES, SOURCE, SparkKeyedWriter
from lakewright.spark.parquet_source import ParquetSource, parquet_source
from lakewright.spark.tasks import pack
from lakewright.spark.write_frame import as_sent, finite_frame, incoming_frame, sent_schema
from lakewright.spark.write_run import refuse_speculation, watched
from lakewright.spark.write_verbs import READ, THROUGH_SPARK, FrameWrites
from lakewright.storage.resolve import StorageRef
from lakewright.table import WriteArguments
from lakewright.txn.access import Access

__all__ = ["KeyedWrites"]

HERE_ROWS = 100_000
HERE_BYTES = 64 << 20
"""Writes of so many rows and packed bytes, or from files of so many bytes, come to the driver."""
COLLECTED_BYTES = 16 << 20
"""Frames for which Spark expects no more are collected at once."""
KEY_FILE_BYTES = 1 << 30
"""The driver reads the keys to delete from files of so many bytes."""


class KeyedInput:
    """The rows of one keyed write; what is kept of them is given back when it is closed."""

    def __init__(self, rows: object) -> None:
        self.rows = incoming_frame(rows)
        self.schema = sent_schema(self.rows.schema)
        """The columns in Arrow."""
        self._kept: tuple[bytes, KeptRows] | None = None

    def kept(self, keying: Keying) -> KeptRows:
        """The rows with their keys, kept for as long as this is open, or until their keys are
        formed in another way."""
        form = pack(keying)
        if self._kept is None or self._kept[0] != form:
            self.close()
            self._kept = (form, KeptRows.of(self.rows, keying))
        return self._kept[1]

    def expected_bytes(self) -> int:
        """What Spark expects of the rows, before it has seen them; often far too much."""
        plan = self.rows._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - not told otherwise
        return int(str(plan.stats().sizeInBytes()))

    def close(self) -> None:
        """Let kept rows go."""
        if self._kept is not None:
            self._kept[1].close()
            self._kept = None


@dataclass(frozen=True)
class KeyedWrites:
    """Writes DataFrames to one table, by their keys."""

    spark: SparkSession
    writes: FrameWrites

    def upsert(
        self, rows: object, columns: Sequence[str] | None, how: WriteArguments
    ) -> WriteResult:
        """Update and insert rows; with `columns` only these are changed."""
        with closing(KeyedInput(rows)) as given:
            refuse_speculation(self.spark)

            def verb(access: Access, options: WriteOptions) -> WriteResult:
                schema = given.schema
                if columns is not None:
                    schema = partial_schema(schema, columns, self.writes.table.properties)
                job = self._job(access, options, UPSERT, schema, how, partial=columns is not None)
                chosen = None if columns is None else frozenset(job.schema.rows.source.names)
                return _upserted(replace(self._writer(job), columns=chosen), given)

            return self._retried(verb, how)

    def delete(self, keys: object, how: WriteArguments) -> WriteResult:
        """Delete rows by their keys."""
        frame = finite_frame(keys)
        refuse_speculation(frame.sparkSession)

        def verb(access: Access, options: WriteOptions) -> WriteResult:
            job = self._job(access, options, DELETE, None, how)
            wanted = (*KEYED, *key_columns(job))
            own = [column_of(name) for name in frame.columns if name in wanted]
            source = _key_source(frame.select(*own), self.writes.ref, access)
            return self._writer(job).delete(key_batches(source, job))

        return self._retried(verb, how)

    def delete_where(
        self, where: str | Expr, read: Callable[[Scan], DataFrame], how: WriteArguments
    ) -> WriteResult:
        """Delete the rows that pass a filter; `read` makes a frame of a scan."""
        refuse_speculation(self.spark)
        table = self.writes.table

        def verb(access: Access, options: WriteOptions) -> WriteResult:
            job = self._job(access, options, DELETE, None, how)
            return delete_where(
                job,
                where,
                self._writer,
                table.read_options,
                table.keyed_writer(job).registry,
                lambda scan: _collected(read(scan), access),
            )

        return self._retried(verb, how)

    def merge(
        self,
        rows: object,
        on: Sequence[str] | Expression | None,
        clauses: Sequence[Clause],
        read: Callable[[Scan], DataFrame],
        how: WriteArguments,
    ) -> WriteResult:
        """Do what clauses say with the rows of a frame and those of the table."""
        refuse_speculation(self.spark)
        numbered = finite_frame(rows).withColumn(SOURCE, F.monotonically_increasing_id())
        source = numbered.persist()
        try:
            return self._retried(partial(self._merged, source, on, clauses, read, how), how)
        finally:
            source.unpersist()

    def _merged(
        self,
        source: DataFrame,
        on: Sequence[str] | Expression | None,
        clauses: Sequence[Clause],
        read: Callable[[Scan], DataFrame],
        how: WriteArguments,
        access: Access,
        options: WriteOptions,
    ) -> WriteResult:
        job = self._job(access, options, MERGE, None, how)
        refuse_generated_keys(job)
        count = watched(access, self.spark.sparkContext, source.count)
        target = read(self._everything(job))
        made = merged(job, target, source, on, clauses, source_rows=count)
        snapshot = job.snapshot
        guard = ReadGuard(snapshot.storage, snapshot.properties, snapshot.timeline, lambda _: True)
        columns = sent_schema(made.drop(DELETES, SOURCE).schema)
        writer = self._writer(replace(job.with_rows(columns), guard=guard))
        keying = replace(writer.keying(), marks=(DELETES, SOURCE))
        with closing(KeptRows.of(made, keying)) as kept:
            chunks = kept.chunks(access)
            if not writer.decides_in_brief() or _is_small(chunks):
                return writer.upsert_marked(kept.whole(access, chunks))
            return writer.upsert_waiting(kept, keying, chunks)

    def _everything(self, job: WriteJob) -> Scan:
        """All rows of the table, as the write sees them."""
        table = self.writes.table
        return make_scan(
            job.snapshot,
            columns=None,
            where=None,
            mode="snapshot",
            meta=False,
            limit=None,
            options=table.read_options,
            registry=table.keyed_writer(job).registry,
            on_event=job.access.on_event,
        )

    def _job(
        self,
        access: Access,
        options: WriteOptions,
        operation: Operation,
        schema: pa.Schema | None,
        how: WriteArguments,
        *,
        partial: bool = False,
    ) -> WriteJob:
        validators = how.get("validators", ())
        registry = self.writes.table.registry
        job = WriteJob.prepare(
            access,
            options,
            operation,
            schema,
            validators=validators,
            partial=partial,
            registry=registry,
        )
        looking = looking_on_spark(self.spark, access, self.writes.ref, registry)
        return replace(job, looking=looking)

    def _writer(self, job: WriteJob) -> SparkKeyedWriter:
        plain = self.writes.table.keyed_writer(job)
        return SparkKeyedWriter(
            job, plain.registry, plain.threads, spark=self.spark, ref=self.writes.ref
        )

    def _retried(
        self, verb: Callable[[Access, WriteOptions], WriteResult], how: WriteArguments
    ) -> WriteResult:
        options = self.writes.table.write_options(how)
        access = self.writes.access(options, how)
        retries = how.get("retries", options.conflict_retries)
        services = self.writes.services(self.spark, access, options)
        return services.around(
            lambda: with_retries(access, lambda: verb(access, options), retries=retries)
        )


def _upserted(writer: SparkKeyedWriter, given: KeyedInput) -> WriteResult:
    """Bring the rows to where they are needed, and write them."""
    job = writer.job
    refuse_generated_keys(job)
    files = parquet_source(given.rows, job.schema.rows.source, writer.ref)
    _tell(job, files)
    brief = writer.decides_in_brief()
    if isinstance(files, ParquetSource):
        if not brief or _file_bytes(files) <= HERE_BYTES:
            return writer.upsert(_file_source(files, job.schema.rows.source))
        waiting = FileRows(writer.spark, files, writer.keying())
        return writer.upsert_waiting(waiting, waiting.keying, waiting.chunks(job.access))
    if given.expected_bytes() <= COLLECTED_BYTES:
        names = map(column_of, job.schema.rows.source.names)
        rows = _collected(given.rows.select(*names), job.access)
        return writer.upsert(_source(rows, job.schema.rows.source))
    keying = writer.keying()
    kept = given.kept(keying)
    chunks = kept.chunks(job.access)
    if not brief or _is_small(chunks):
        return writer.upsert_keyed(kept.whole(job.access, chunks))
    return writer.upsert_waiting(kept, keying, chunks)


def _is_small(chunks: Sequence[Chunk]) -> bool:
    rows, size = sum(c.rows for c in chunks), sum(c.size for c in chunks)
    return rows <= HERE_ROWS and size <= HERE_BYTES


def _tell(job: WriteJob, files: ParquetSource | str) -> None:
    kind, count = (THROUGH_SPARK + files, 0) if isinstance(files, str) else (READ, files.files)
    job.access.on_event(Event(kind, count, unit="files"))


def _key_source(frame: DataFrame, ref: StorageRef, access: Access) -> RowSource:
    """Keys that somebody wants to delete, here."""
    schema = sent_schema(frame.schema)
    files = parquet_source(frame, schema, ref)
    if isinstance(files, ParquetSource) and _file_bytes(files) <= KEY_FILE_BYTES:
        return _file_source(files, schema)
    return _source(_collected(frame, access), schema)


def _file_bytes(files: ParquetSource) -> int:
    return sum(file.size for file in {piece.file for task in files.tasks for piece in task})


def _file_source(files: ParquetSource, schema: pa.Schema) -> RowSource:
    batches = (batch for task in range(len(files.tasks)) for batch in files.batches(task))
    return _source(batches, schema)


def _source(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> RowSource:
    sent = (as_sent(batch, schema) for batch in batches)
    return RowSource(pa.RecordBatchReader.from_batches(schema, sent))


def _collected(frame: DataFrame, access: Access) -> Iterator[pa.RecordBatch]:
    schema = sent_schema(frame.schema)
    for batch in arrow_rows(access, frame):
        yield as_sent(batch, schema)
