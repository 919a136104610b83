"""One attempt at one write, whatever moves its rows: everything before and after the data files.

`WriteJob.prepare` looks at the table and at the schema of the rows and refuses what cannot be
written, before anything has happened. `begun` puts the write on the timeline and gives a
`BegunWrite`: the context for the tasks, and `commit`. Leaving it with an error rolls the write
back.

Rows are the business of `arrow_write` and of the Spark room; both give write stats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakewright.codec.avro.arrow_types import arrow_schema
from lakewright.engine.commit_callback import tell_commit
from lakewright.engine.file_policies import bloom_policy, log_policy, parquet_policy, sizing_policy
from lakewright.engine.index_building import bring_back, build_indexes
from lakewright.engine.index_records import (
    Looking,
    indexing_of,
    looking_here,
    secondary_definitions,
)
from lakewright.engine.key_detection import detect_keys
from lakewright.engine.operations import Operation
from lakewright.engine.proposal import Proposal, Validator
from lakewright.engine.sizing import InsertPlan, average_record_bytes, plan_inserts, small_files
from lakewright.engine.snapshot import Snapshot, load_snapshot
from lakewright.engine.write_context import WriteContext
from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.errors import (
    FormatError,
    NotFoundError,
    UnsupportedTableError,
    WriteConflictError,
)
from lakewright.format.cdc import LoggingMode
from lakewright.format.file_slices import FileGroupId, FileSystemView
from lakewright.format.key_spec import KeySpec
from lakewright.format.partitions import list_files
from lakewright.format.records import CommitMetadata, WriteStat, load_commit_metadata
from lakewright.format.table_schema import without_meta_columns
from lakewright.format.timeline import Timeline
from lakewright.format.write_schema import WriteSchema, reconcile
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.batch import indexes_of
from lakewright.metadata.index_changes import Indexing
from lakewright.runtime.events import Event
from lakewright.txn.access import Access
from lakewright.txn.conflict import groups_in_clustering
from lakewright.txn.metadata_gate import pass_metadata_gate
from lakewright.txn.transaction import Prepared, Transaction, begin

__all__ = ["NON_BLOCKING", "BegunWrite", "Guard", "WriteJob", "holds_buckets"]

SCHEMA_KEY = "schema"
NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"
Guard = Callable[[Timeline], None]
"""A last look at the timeline, under the lock; raises if the write must not be committed."""
_BUCKET = re.compile(r"0000\d{4}-")
"""How file ids of buckets begin; one in 65 536 others does too, but not all of a commit's."""


@dataclass(frozen=True)
class WriteJob:
    """A write that may begin."""

    access: Access
    options: WriteOptions
    operation: Operation
    snapshot: Snapshot
    schema: WriteSchema
    keys: KeySpec
    validators: Sequence[Validator] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    """Pairs that the commit keeps besides those of the options."""
    guard: Guard | None = None
    registry: MergerRegistry = field(default_factory=MergerRegistry)
    """By which versions of rows meet, where an index has to know what is left of them."""
    looking: Looking | None = None
    """What looks at file groups for indexes of records; None: this process."""

    @classmethod
    def prepare(
        cls,
        access: Access,
        options: WriteOptions,
        operation: Operation,
        incoming: pa.Schema | None,
        *,
        validators: Sequence[Validator] = (),
        extra: Mapping[str, str] | None = None,
        guard: Guard | None = None,
        partial: bool = False,
        registry: MergerRegistry | None = None,
    ) -> WriteJob:
        """Look at the table and at the columns of the rows; None is a write without rows.

        `partial` rows may lack any column.

        Raises `SchemaError` that names the column, or whatever else stands against the write.
        """
        chosen = options.metadata_table
        pass_metadata_gate(access, drop=chosen == "drop", trim=chosen == "trim")
        snapshot = load_snapshot(access.storage, clock=access.clock, use_metadata_table=False)
        mergers = registry or MergerRegistry()
        built = chosen == "build" and build_indexes(
            access,
            snapshot,
            options.indexes,
            mergers,
            columns=options.statistics_columns,
            per_partition=options.records_per_partition,
        )
        if not built and chosen != "drop" and not indexes_of(snapshot.properties):
            built = bring_back(access, mergers)
        if built:
            snapshot = load_snapshot(access.storage, clock=access.clock, use_metadata_table=False)
        secondary_definitions(snapshot)
        if incoming is not None and not operation.keyed:
            _refuse_buckets(snapshot, options)
        record = without_meta_columns(snapshot.schema.avro)
        columns = arrow_schema(record) if incoming is None else incoming
        schema = reconcile(record, columns, history=snapshot.internal_schemas, partial=partial)
        return cls(
            access,
            options,
            operation,
            snapshot,
            schema,
            detect_keys(snapshot, options),
            validators,
            dict(extra or {}),
            guard,
            mergers,
        )

    def with_rows(self, incoming: pa.Schema) -> WriteJob:
        """The same write, of rows with these columns, which depend on what the table has."""
        record = without_meta_columns(self.snapshot.schema.avro)
        schema = reconcile(record, incoming, history=self.snapshot.internal_schemas)
        return replace(self, schema=schema)

    @property
    def is_non_blocking(self) -> bool:
        """Whether others may append to the same file groups meanwhile."""
        return self.options.concurrency_mode == NON_BLOCKING and self.operation.keyed

    @contextmanager
    def begun(self, profile: CommitMetadata | None = None) -> Iterator[BegunWrite]:
        """Put the write on the timeline; an error inside rolls it back.

        With a `profile` it is inflight at once, else after `BegunWrite.start`.
        """
        properties = self.snapshot.properties
        transaction = begin(
            self.access,
            action=self.operation.action(properties),
            requested=self.operation.requested(properties),
            profile=profile,
            basis=None if self.is_non_blocking else self.snapshot.timeline,
        )
        try:
            yield BegunWrite(self, transaction)
        except BaseException as error:
            error.add_note(transaction.abort())
            raise

    def profile(
        self, plans: Sequence[InsertPlan] = (), updates: Sequence[WriteStat] = ()
    ) -> CommitMetadata:
        """What goes where, as far as it is known before any file is written."""
        stats: dict[str, list[WriteStat]] = {}
        for update in updates:
            stats.setdefault(update.partition_path or "", []).append(update)
        for plan in plans:
            inserted = WriteStat(file_id="", prev_commit="null", num_inserts=plan.rows)
            stats.setdefault(plan.partition, []).append(inserted)
        return CommitMetadata(partition_to_write_stats=stats, operation_type=self.operation.hudi)

    # ---- what the table has --------------------------------------------------------------------

    def view(self, partitions: Iterable[str] | None = None) -> FileSystemView:
        """The files of some partitions, which need not be there, or of all."""
        if partitions is None:
            listing = self.snapshot.opened.listing
            return self.snapshot.view(listing.files(listing.partitions()))
        storage = self.access.storage
        return self.snapshot.view({path: list_files(storage, path) for path in partitions})

    def file_groups(self, partitions: Sequence[str] | None) -> dict[str, list[str]]:
        """Live file groups by partition, of some partitions or of all."""
        found: dict[str, list[str]] = {}
        for slice_ in self.view().latest_slices():
            group = slice_.group
            if partitions is None or group.partition in partitions:
                found.setdefault(group.partition, []).append(group.file_id)
        return {partition: sorted(ids) for partition, ids in sorted(found.items())}

    def plan_inserts(
        self, counts: Mapping[str, int], view: FileSystemView | None = None
    ) -> list[InsertPlan]:
        """Where new rows of each partition go: small files first; `view` has their files."""
        policy = sizing_policy(self.options)
        merge_on_read = self.snapshot.properties.table_type == "MERGE_ON_READ"
        fills = not self.snapshot.properties.cdc_enabled and policy.small_file_limit > 0
        small = (
            small_files(
                view or self.view(counts),
                merge_on_read=merge_on_read,
                in_clustering=self.in_clustering(),
                policy=policy,
            )
            if fills
            else {}
        )
        record_bytes = average_record_bytes(self._newest_commits(), policy)
        return plan_inserts(
            counts, small, record_bytes=record_bytes, policy=policy, merge_on_read=merge_on_read
        )

    def in_clustering(self) -> frozenset[FileGroupId]:
        """File groups that pending clusterings take."""
        snapshot = self.snapshot
        return groups_in_clustering(self.access.storage, snapshot.properties, snapshot.timeline)

    def _newest_commits(self) -> Iterator[CommitMetadata]:
        completed = self.snapshot.timeline.filter_actions("commit", "deltacommit").completed()
        for instant in reversed(completed.instants):
            try:
                yield load_commit_metadata(self.access.storage, self.snapshot.properties, instant)
            except (FormatError, NotFoundError):
                continue  # damaged, or archived meanwhile: it tells nothing about the size of rows


def holds_buckets(snapshot: Snapshot) -> bool:
    """Whether the file groups of the table are buckets of a bucket index, as its commits tell."""
    storage, properties = snapshot.storage, snapshot.properties
    gone = ""
    for instant in reversed(snapshot.timeline.commits().completed().instants):
        try:
            stats = load_commit_metadata(storage, properties, instant).write_stats
        except NotFoundError:  # archived or taken back meanwhile; the others tell the same
            gone = instant.requested_time
            continue
        ids = [stat.file_id or "" for stat in stats]
        if ids:
            return all(_BUCKET.match(file_id) for file_id in ids)
    if gone:
        raise WriteConflictError(
            f"The commit {gone} was archived or taken back while the write began.",
            hint="Nothing was written. Run the write again.",
            context={"table": storage.uri, "instant": gone},
            retryable=True,
        )
    return False


def _refuse_buckets(snapshot: Snapshot, options: WriteOptions) -> None:
    """Tables of a bucket index have file groups by number; others would break their writers."""
    if options.index_type == "BUCKET" or holds_buckets(snapshot):
        raise UnsupportedTableError(
            "The table's file groups are buckets of a bucket index, and these rows have no bucket.",
            hint="Use upsert, which finds the bucket of every row.",
            context={"table": snapshot.storage.uri},
        )


class BegunWrite:
    """A write on the timeline."""

    def __init__(self, job: WriteJob, transaction: Transaction) -> None:
        self._job = job
        self._transaction = transaction
        self._begun_s = job.access.clock.monotonic_s()
        properties, options = job.snapshot.properties, job.options
        populate = properties.populate_meta_fields
        self.context = WriteContext.of(
            job.schema.record,
            instant=transaction.instant,
            version=properties.version,
            fence=transaction.fence,
            populate_meta=populate,
            not_stored=properties.partition_fields if properties.drop_partition_columns else (),
            parquet=parquet_policy(options),
            bloom=bloom_policy(options) if populate else None,
            max_file_bytes=options.max_file_size,
            partition_metafile="parquet" if properties.partition_metafile_base_format else "text",
            log=log_policy(options, properties),
            changes=LoggingMode.of(properties.cdc_mode) if properties.cdc_enabled else None,
        )

    @property
    def instant(self) -> str:
        """The time of the write."""
        return self._transaction.instant

    def start(self, plans: Sequence[InsertPlan] = ()) -> None:
        """Become inflight, before any file is written; `plans` tell how much, where it is known."""
        self._transaction.start(self._job.profile(plans))

    def commit(
        self,
        stats: Sequence[WriteStat],
        *,
        replaced: Mapping[str, Sequence[str]] | None = None,
        overwritten: frozenset[str] | None = None,
        whole_table: bool = False,
    ) -> WriteResult:
        """Let the validators look, then publish."""
        job, clock = self._job, self._job.access.clock
        written_s = clock.monotonic_s()
        by_partition: dict[str, list[WriteStat]] = {}
        for stat in stats:
            by_partition.setdefault(stat.partition_path or "", []).append(stat)
        metadata = CommitMetadata(
            partition_to_write_stats=by_partition,
            compacted=False,
            extra_metadata={
                **job.options.commit_metadata,
                **job.extra,
                SCHEMA_KEY: job.schema.text,
            },
            operation_type=job.operation.hudi,
            partition_to_replace_file_ids=replaced if job.operation.replaces else None,
        )
        job.access.on_event(Event("write.files", len(stats), unit="files", instant=self.instant))
        for validate in job.validators:
            validate(Proposal(job.access.storage, self.instant, metadata, self.context.schema))
        ready = Prepared(
            metadata,
            job.snapshot.timeline,
            overwritten=overwritten,
            whole_table=whole_table,
            non_blocking=job.is_non_blocking,
        )
        if job.guard is not None:
            ready = replace(ready, guard=job.guard)
        committed = self._transaction.commit(ready, self._indexing(metadata))
        untold = tell_commit(
            job.options,
            job.snapshot.properties,
            job.access.storage.uri,
            self._transaction.action,
            committed,
        )
        if untold is not None:
            committed = replace(committed, warnings=(*committed.warnings, untold))
        phases = {
            "write": written_s - self._begun_s,
            "commit": clock.monotonic_s() - written_s,
        }
        return WriteResult.of(job.operation.name, committed, phases=phases)

    def _indexing(self, metadata: CommitMetadata) -> Indexing:
        job = self._job
        return indexing_of(
            job.snapshot,
            self.instant,
            metadata,
            self.context.schema,
            job.looking or looking_here(job.registry, job.access.spawner),
            job.access.spawner,
            columns=job.options.statistics_columns,
        )

    def abandon(self) -> WriteResult:
        """Give up a write that turned out to have nothing to commit."""
        self._transaction.abort()
        return WriteResult(self._job.operation.name, None)
