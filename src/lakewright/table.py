"""The public facade of a table: create it, open it, read it, write it, look at it.

A `Table` is a live handle without state of its own: every scan pins one snapshot of the table as it
is on storage at that moment, and everything the handle answers is read from storage when asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

import pyarrow as pa

from lakewright.engine.arrow_write import (
    MEMORY_BYTES,
    ArrowWriter,
    with_retries,
    write_with_retries,
)
from lakewright.engine.cdc_reader import Images
from lakewright.engine.change_offset import ChangeOffset, Moment
from lakewright.engine.changes import ChangeMode, Changes, make_changes
from lakewright.engine.coexistence import LockChoice, open_access, open_watch
from lakewright.engine.keyed.deletes import delete_where, key_batches
from lakewright.engine.keyed.partial import partial_schema
from lakewright.engine.keyed.writer import KeyedWriter
from lakewright.engine.listing import NOT_USED
from lakewright.engine.new_table import NewTable
from lakewright.engine.operations import (
    APPEND,
    BULK_INSERT,
    DELETE,
    DELETE_PARTITION,
    OVERWRITE_PARTITIONS,
    OVERWRITE_TABLE,
    UPSERT,
    Operation,
)
from lakewright.engine.options import ReadOptions
from lakewright.engine.proposal import Validator
from lakewright.engine.row_source import RowSource
from lakewright.engine.scan import Mode, Scan, make_scan
from lakewright.engine.snapshot import Snapshot, load_snapshot
from lakewright.engine.table_choices import without_merging
from lakewright.engine.table_creation import create_table
from lakewright.engine.write_job import WriteJob
from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.errors import InputError
from lakewright.expr import Expr
from lakewright.format.own_files import storage_of_table
from lakewright.format.properties import TableProperties, load_properties
from lakewright.format.timeline import Timeline, load_timeline
from lakewright.inspect import Inspector
from lakewright.merge.protocol import RecordMerger
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.table import METADATA_FOLDER
from lakewright.runtime.cancel import NEVER_CANCELLED, CancelToken
from lakewright.runtime.clock import Clock, SystemClock
from lakewright.runtime.events import Event, EventHook, ignore_events
from lakewright.runtime.random import SystemRandom
from lakewright.services.after_commit import WriteServices
from lakewright.services.compaction import Compactor
from lakewright.services.health import Health
from lakewright.services.metadata import MetadataService
from lakewright.services.table_services import TableServices
from lakewright.services.watching import look_at_health
from lakewright.storage.base import Storage
from lakewright.storage.options import StorageOptions
from lakewright.storage.resolve import open_storage
from lakewright.txn.access import Access


class WriteArguments(TypedDict, total=False):
    """What every write takes."""

    options: WriteOptions | Mapping[str, str] | None
    """Options of ours, or pairs as Hudi's writers take them."""
    validators: Sequence[Validator]
    """Called with the files of the write before anybody sees them; raising stops the write."""
    retries: int
    """How often the whole write is done again after a conflict."""
    cancel: CancelToken


class Table:
    """A Hudi table on storage."""

    def __init__(
        self,
        storage: Storage,
        *,
        options: ReadOptions | None = None,
        registry: MergerRegistry | None = None,
        clock: Clock | None = None,
        on_event: EventHook | None = None,
        lock: LockChoice = None,
        sole_writer: bool = False,
    ) -> None:
        self._storage = storage
        self._lock = lock
        self._sole_writer = sole_writer
        self._options = options or ReadOptions()
        self._registry = registry or MergerRegistry()
        self._clock = clock or SystemClock()
        self._on_event = on_event or ignore_events

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        storage: StorageOptions | None = None,
        options: ReadOptions | None = None,
        mergers: Sequence[RecordMerger] = (),
        on_event: EventHook | None = None,
        lock: LockChoice = None,
        sole_writer: bool = False,
    ) -> Table:
        """Open the table at `uri` (a path, `file:`, `s3:`, `s3a:`, `gs:` or `abfs:` URI).

        Writing a table that others write needs their `lock`: a lock, Hudi's `hoodie.write.lock.*`
        options or a short name such as `file`; or the word that nobody else writes it.

        Raises `TableNotFoundError` where there is no table and `UnsupportedTableError`, naming the
        reason, where reading it would mean guessing.

        >>> table = Table.open("demo/trips")                                # doctest: +SKIP
        >>> table.scan(where="city = 'sf'").to_arrow()                      # doctest: +SKIP
        """
        registry = MergerRegistry(mergers)
        table = cls(
            open_storage(uri, storage_of_table(storage)),
            options=options,
            registry=registry,
            on_event=on_event,
            lock=lock,
            sole_writer=sole_writer,
        )
        load_properties(table._storage, clock=table._clock)
        return table

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        *,
        schema: pa.Schema,
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
    ) -> Table:
        """Create an empty table; `choices` are further fields of `NewTable`.

        Raises `TableError` where something is already, `ConfigError` or `SchemaError` for choices
        that cannot work; nothing is written then.

        >>> Table.create("trips", schema=schema, key=["id"], partition=["city"])  # doctest: +SKIP
        """
        place = open_storage(uri, storage_of_table(storage))
        spec = NewTable(
            name=name or place.uri.rstrip("/").rpartition("/")[2],
            schema=schema,
            type=type,
            version=version,
            key_fields=tuple(key),
            partition_fields=tuple(partition),
            ordering_fields=tuple(ordering),
            **choices,
        )
        create_table(place, spec, clock=SystemClock(), random=SystemRandom())
        return cls(place, on_event=on_event, lock=lock)

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._storage.uri

    @property
    def properties(self) -> TableProperties:
        """The table's properties, as they are now."""
        return load_properties(self._storage, clock=self._clock)

    @property
    def timeline(self) -> Timeline:
        """The active timeline, as it is now."""
        return load_timeline(self._storage, self.properties)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the latest snapshot, meta columns included."""
        return self.snapshot().schema.arrow

    @property
    def inspect(self) -> Inspector:
        """Every on-disk structure as an Arrow table."""
        return Inspector(self._storage, clock=self._clock)

    @property
    def metadata(self) -> MetadataService:
        """The metadata table: what it is, and whether it is right."""
        return MetadataService(
            self._storage,
            self._clock,
            self._options,
            self._registry,
            lambda: self.opened(None)[0],
            self._on_event,
        )

    def snapshot(
        self, as_of: str | datetime | None = None, *, options: ReadOptions | None = None
    ) -> Snapshot:
        """Pin the state now, or as of an instant, a date-time or a savepoint.

        A metadata table that cannot be trusted is told of by an event; the reason is in the log
        `lakewright.metadata_table` and among the warnings of what is planned.
        """
        pinned = load_snapshot(
            self._storage,
            clock=self._clock,
            as_of=as_of,
            use_metadata_table=(options or self._options).use_metadata_table,
        )
        if pinned.opened.warnings.told:
            told = len(pinned.opened.warnings.told)
            self._on_event(Event(NOT_USED, told, path=METADATA_FOLDER))
        return pinned

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | Expr | None = None,
        as_of: str | datetime | None = None,
        mode: Mode = "snapshot",
        meta: bool = True,
        limit: int | None = None,
        options: ReadOptions | None = None,
    ) -> Scan:
        """Pin a snapshot and describe what to read from it.

        `columns` are names in the wanted order (default: all, meta columns first unless `meta` is
        false). `where` is text or a `col` expression. `as_of` is an instant, a date-time or
        `savepoint:<instant>`. `mode="read_optimized"` reads base files only.
        """
        return make_scan(
            self.snapshot(as_of, options=options),
            columns=columns,
            where=where,
            mode=mode,
            meta=meta,
            limit=limit,
            options=options or self._options,
            registry=self._registry,
            on_event=self._on_event,
        )

    def changes(
        self,
        since: Moment | ChangeOffset | None = None,
        until: Moment | ChangeOffset | None = None,
        mode: ChangeMode = "rows",
        *,
        columns: Sequence[str] | None = None,
        where: str | Expr | None = None,
        images: Images = "json",
        options: ReadOptions | None = None,
    ) -> Changes:
        """What changed after `since` (default: the beginning) up to `until` (default: now).

        Both are an instant, a date-time, `earliest`, or an offset; `Changes.end` is the offset from
        which to go on. Times are requested times at table version 6 and completion times later.
        `mode="rows"` gives the changed rows, `mode="cdc"` one row per change with its images, as
        JSON text or, with `images="struct"`, as structs.

        >>> changed = table.changes(since="2025-01-31 12:00:00")            # doctest: +SKIP
        >>> changed.to_arrow(), str(changed.end)                            # doctest: +SKIP
        """
        return make_changes(
            self.snapshot(options=options),
            since=since,
            until=until,
            mode=mode,
            columns=columns,
            where=where,
            images=images,
            options=options or self._options,
            registry=self._registry,
            on_event=self._on_event,
        )

    # ---- writing -------------------------------------------------------------------------------

    def append(self, rows: Any, **how: Unpack[WriteArguments]) -> WriteResult:
        """Add rows from anything that offers an Arrow stream; small files are filled first.

        Keys are not looked up: a row whose key is there already is a second row.

        >>> table.append(pa.table({"id": [1], "city": ["sf"]}))             # doctest: +SKIP
        """
        return self._write(APPEND, ArrowWriter.append, rows, how)

    def bulk_insert(self, rows: Any, **how: Unpack[WriteArguments]) -> WriteResult:
        """Add many rows as new files, sorted as the options ask for."""
        return self._write(BULK_INSERT, ArrowWriter.bulk_insert, rows, how)

    def overwrite(
        self, rows: Any, *, whole_table: bool = False, **how: Unpack[WriteArguments]
    ) -> WriteResult:
        """Replace the partitions that the rows are in, or the whole table."""
        if whole_table:
            return self._write(OVERWRITE_TABLE, ArrowWriter.overwrite_table, rows, how)
        return self._write(OVERWRITE_PARTITIONS, ArrowWriter.overwrite_partitions, rows, how)

    def delete_partition(self, *partitions: str, **how: Unpack[WriteArguments]) -> WriteResult:
        """Delete all rows of partitions, named by their paths or by patterns with `*`."""
        chosen = partitions or self.write_options(how).delete_partitions
        return self._write(
            DELETE_PARTITION, lambda writer, _: writer.delete_partitions(chosen), None, how
        )

    def upsert(
        self, rows: Any, *, columns: Sequence[str] | None = None, **how: Unpack[WriteArguments]
    ) -> WriteResult:
        """Update the rows whose keys are in the table and insert the others.

        Rows of one key, in the write and in the table, meet by the table's own rule of merging.
        Rows that are marked as deleted (`_hoodie_is_deleted`) delete. With `columns` only these
        are changed, and rows need no others besides those of the key, the partition and the order.

        >>> table.upsert(pa.table({"id": [1], "city": ["sf"], "ts": [7]}))  # doctest: +SKIP
        """

        def verb(access: Access, options: WriteOptions, source: RowSource) -> WriteResult:
            validators = how.get("validators", ())
            schema = source.schema
            if columns is not None:
                schema = partial_schema(schema, columns, self.properties)
            job = WriteJob.prepare(
                access,
                options,
                UPSERT,
                schema,
                validators=validators,
                partial=columns is not None,
                registry=self._registry,
            )
            chosen = None if columns is None else frozenset(job.schema.rows.source.names)
            return replace(self.keyed_writer(job), columns=chosen).upsert(source)

        return self._retried(verb, rows, how)

    def delete(
        self,
        keys: Any = None,
        *,
        where: str | Expr | None = None,
        **how: Unpack[WriteArguments],
    ) -> WriteResult:
        """Delete rows by their keys, or those that pass a filter.

        `keys` has the key columns and the partition columns, or `_hoodie_record_key` and
        `_hoodie_partition_path`; other columns are not looked at. Keys that are not in the table
        are counted as ignored.

        >>> table.delete(pa.table({"id": [1], "city": ["sf"]}))             # doctest: +SKIP
        >>> table.delete(where="city = 'sf' and ts < 5")                    # doctest: +SKIP
        """
        if (keys is None) == (where is None):
            raise InputError(
                "A delete takes either keys or a filter.",
                hint="Give rows with the key columns, or where=.",
            )

        def verb(access: Access, options: WriteOptions, source: RowSource) -> WriteResult:
            job = WriteJob.prepare(
                access,
                options,
                DELETE,
                None,
                validators=how.get("validators", ()),
                registry=self._registry,
            )
            if where is not None:
                return delete_where(job, where, self.keyed_writer, self._options, self._registry)
            return self.keyed_writer(job).delete(key_batches(source, job))

        return self._retried(verb, keys, how)

    @property
    def read_options(self) -> ReadOptions:
        """How the table is read where nothing else is said."""
        return self._options

    @property
    def registry(self) -> MergerRegistry:
        """The mergers that this table was opened with, besides those that are built in."""
        return self._registry

    def keyed_writer(self, job: WriteJob) -> KeyedWriter:
        """What writes the rows of a job by their keys, in this process."""
        return KeyedWriter(job, self._registry, self._options.thread_count)

    @property
    def services(self) -> TableServices:
        """The table's services, run in this process."""
        return TableServices(self.opened, self._registry, self._options.thread_count)

    def health(self, options: WriteOptions | Mapping[str, str] | None = None) -> Health:
        """What is pending, overdue, expired or blocked, why, and which command resolves it.

        Only looks: no lock is taken, nothing is written, no data file is read. `options` are those
        of the table's writers and services, which say what counts as overdue.

        >>> print(table.health())                                           # doctest: +SKIP
        """
        if isinstance(options, Mapping):
            options = without_merging(options)
        chosen = self.write_options({"options": options})
        return look_at_health(self._watch(chosen), chosen)

    def _watch(self, options: WriteOptions) -> Access:
        return open_watch(
            self._storage, options, lock=self._lock, clock=self._clock, on_event=self._on_event
        )

    def opened(
        self, options: WriteOptions | Mapping[str, str] | None
    ) -> tuple[Access, WriteOptions]:
        """The means to change the table with these options, and the options of its files.

        It is for services, so options that say how rows are merged are left out: the table does.
        """
        if isinstance(options, Mapping):
            options = without_merging(options)
        how: WriteArguments = {"options": options}
        chosen = self.write_options(how)
        return self._access(chosen, how), chosen

    def write_services(
        self,
        access: Access,
        options: WriteOptions,
        compactor: Compactor | None = None,
        *,
        stream: bool = False,
    ) -> WriteServices:
        """The services that run with a write; `compactor`: who compacts, if not this process."""
        threads = self._options.thread_count
        return WriteServices(access, options, self._registry, threads, compactor, stream)

    def _retried(
        self,
        verb: Callable[[Access, WriteOptions, RowSource], WriteResult],
        rows: Any,
        how: WriteArguments,
    ) -> WriteResult:
        options = self.write_options(how)
        retries = how.get("retries", options.conflict_retries)
        access = self._access(options, how)
        source = RowSource(rows, keep_bytes=MEMORY_BYTES if retries else None)
        try:
            return self.write_services(access, options).around(
                lambda: with_retries(access, lambda: verb(access, options, source), retries=retries)
            )
        finally:
            source.close()

    def _access(self, options: WriteOptions, how: WriteArguments) -> Access:
        return open_access(
            self._storage,
            options,
            lock=self._lock,
            sole_writer=self._sole_writer,
            clock=self._clock,
            cancel=how.get("cancel", NEVER_CANCELLED),
            on_event=self._on_event,
        )

    def _write(
        self,
        operation: Operation,
        verb: Callable[[ArrowWriter, RowSource], WriteResult],
        rows: Any,
        how: WriteArguments,
    ) -> WriteResult:
        options = self.write_options(how)
        retries = how.get("retries", options.conflict_retries)
        access = self._access(options, how)
        source = RowSource(rows, keep_bytes=MEMORY_BYTES if retries else None)
        try:
            return self.write_services(access, options).around(
                lambda: write_with_retries(
                    access,
                    options,
                    operation,
                    source,
                    verb,
                    retries=retries,
                    threads=self._options.thread_count,
                    registry=self._registry,
                    validators=how.get("validators", ()),
                )
            )
        finally:
            source.close()

    def write_options(self, how: WriteArguments) -> WriteOptions:
        """The options of a write, over what the table says."""
        given = how.get("options")
        if isinstance(given, WriteOptions):
            return given
        return WriteOptions.from_hudi(given or {}, table=self.properties)

    def __repr__(self) -> str:
        return f"Table({self.uri!r})"
