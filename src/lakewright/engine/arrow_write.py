"""Writes from Arrow streams, in this process: append, bulk insert, overwrite, delete partitions.

Rows are converted and keyed as they pass. An append collects them by partition first, because the
number of rows decides where they go; a bulk insert streams. Memory is bounded by `memory_bytes`;
what does not fit waits in scratch files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import pyarrow as pa

from lakewright.engine.operations import Operation
from lakewright.engine.partitioned_writer import (
    write_grouped,
    write_inserts,
    write_partitioned,
    write_side_by_side,
)
from lakewright.engine.proposal import Validator
from lakewright.engine.row_source import RowSource
from lakewright.engine.row_store import collect_rows
from lakewright.engine.runner import Runner, ThreadRunner
from lakewright.engine.sorting import arrangement, sorted_batches
from lakewright.engine.write_context import RECORD_KEY, WriteToken
from lakewright.engine.write_job import BegunWrite, WriteJob
from lakewright.engine.write_options import WriteOptions
from lakewright.engine.write_result import WriteResult
from lakewright.errors import ConflictError, FencedError, InputError, WriteConflictError
from lakewright.format.file_slices import FileGroupId
from lakewright.format.records import WriteStat
from lakewright.format.row_keys import RowKeys
from lakewright.format.table_schema import META_COLUMNS
from lakewright.format.view_inputs import (
    load_pending_compactions,
    load_pending_log_compactions,
)
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.events import Event
from lakewright.txn.access import Access

__all__ = ["MEMORY_BYTES", "ArrowWriter", "with_retries", "write_with_retries"]

MEMORY_BYTES = 512 << 20
FIRST_TOKEN = WriteToken(0, 0, 0)


@dataclass(frozen=True, slots=True)
class ArrowWriter:
    """Writes the rows of one job."""

    job: WriteJob
    threads: int = 1
    """Files written at once."""
    memory_bytes: int = MEMORY_BYTES

    def append(self, source: RowSource) -> WriteResult:
        """Add rows, filling small files first."""
        job = self.job
        # Generated keys hold the instant, so the write begins before its rows are counted.
        with job.begun() as begun:
            rows = self._keyed(begun, source)
            with collect_rows(rows, memory_bytes=self.memory_bytes) as store:
                if not store.counts and not job.options.allow_empty_commit:
                    return begun.abandon()
                plans = job.plan_inserts(store.counts)
                begun.start(plans)
                stats = write_inserts(
                    job.access.storage,
                    begun.context,
                    plans,
                    store,
                    token=FIRST_TOKEN,
                    random=job.access.random,
                    clock=job.access.clock,
                    runner=self._runner(),
                )
            return begun.commit(stats)

    def bulk_insert(self, source: RowSource) -> WriteResult:
        """Add rows as new file groups, in the order that the options ask for."""
        with self.job.begun() as begun:
            stats = self.new_groups(begun, source)
            if not stats and not self.job.options.allow_empty_commit:
                return begun.abandon()
            return begun.commit(stats)

    def overwrite_partitions(self, source: RowSource) -> WriteResult:
        """Replace the partitions that the rows are in, and those that the options name."""
        job = self.job
        with job.begun() as begun:
            stats = self.new_groups(begun, source)
            touched = {stat.partition_path or "" for stat in stats}
            touched.update(job.options.overwrite_partitions)
            return begun.commit(
                stats,
                replaced=job.file_groups(sorted(touched)),
                overwritten=frozenset(touched),
            )

    def overwrite_table(self, source: RowSource) -> WriteResult:
        """Replace everything."""
        job = self.job
        with job.begun() as begun:
            stats = self.new_groups(begun, source)
            return begun.commit(stats, replaced=job.file_groups(None), whole_table=True)

    def delete_partitions(self, partitions: Sequence[str]) -> WriteResult:
        """Delete all rows of some partitions, named by their paths or by patterns with `*`."""
        job = self.job
        replaced = job.file_groups(None)
        chosen = _chosen(partitions, [*replaced])
        _refuse_plans(job, frozenset(chosen))
        with job.begun() as begun:
            begun.start()
            return begun.commit(
                [],
                replaced={p: replaced.get(p, []) for p in chosen},
                overwritten=frozenset(chosen),
            )

    def new_groups(self, begun: BegunWrite, source: RowSource) -> list[WriteStat]:
        """Rows as new file groups; another engine puts its own way in this place."""
        begun.start()
        job, options = self.job, self.job.options
        access = job.access
        schema = begun.context.incoming_schema
        order = arrangement(
            options.sort_mode,
            sort_columns=options.sort_columns,
            record_key_last=options.sort_by_record_key_last,
            key_columns=(
                (RECORD_KEY,) if begun.context.populate_meta else job.keys.record_key_fields
            ),
        )
        rows = sorted_batches(
            self._keyed(begun, source), schema, order, memory_bytes=self.memory_bytes
        )
        if order.groups_partitions:
            return write_grouped(
                access.storage,
                begun.context,
                token=FIRST_TOKEN,
                batches=rows,
                random=access.random,
                clock=access.clock,
                spawner=access.spawner,
            )
        if not job.keys.partition_fields and not order.columns:
            return write_side_by_side(
                access.storage,
                begun.context,
                partition="",
                tokens=[WriteToken(task, 0, task) for task in range(self.threads)],
                batches=rows,
                random=access.random,
                clock=access.clock,
                runner=self._runner(),
            )
        return write_partitioned(
            access.storage,
            begun.context,
            token=FIRST_TOKEN,
            batches=rows,
            random=access.random,
            clock=access.clock,
            runner=self._runner(),
            memory_bytes=self.memory_bytes,
        )

    def _keyed(self, begun: BegunWrite, source: RowSource) -> Iterator[pa.RecordBatch]:
        """The rows in the form of the files, keys and paths in front."""
        job, context = self.job, begun.context
        keys = RowKeys(job.keys, instant=begun.instant, populate_meta=context.populate_meta)
        wanted = context.incoming_schema.names
        for batch in source.batches():
            job.access.cancel.check()
            rows = keys.add_to(job.schema.rows.apply(_without_meta(batch)))
            yield rows if rows.schema.names == wanted else rows.select(wanted)

    def _runner(self) -> Runner:
        return ThreadRunner(self.threads, spawner=self.job.access.spawner)


def write_with_retries(
    access: Access,
    options: WriteOptions,
    operation: Operation,
    source: RowSource,
    verb: Callable[[ArrowWriter, RowSource], WriteResult],
    *,
    retries: int = 0,
    threads: int = 1,
    validators: Sequence[Validator] = (),
    registry: MergerRegistry | None = None,
) -> WriteResult:
    """Do a write, and do it again on the new state of the table if another one was quicker."""

    def attempt() -> WriteResult:
        job = WriteJob.prepare(
            access, options, operation, source.schema, validators=validators, registry=registry
        )
        return verb(ArrowWriter(job, threads), source)

    return with_retries(access, attempt, retries=retries)


def with_retries(
    access: Access, attempt: Callable[[], WriteResult], *, retries: int
) -> WriteResult:
    """Do something that begins with the state of the table, again if another write was quicker."""
    tried = 0
    while True:
        tried += 1
        try:
            return replace(attempt(), attempts=tried)
        except (WriteConflictError, FencedError):
            if tried > retries:
                raise
        access.on_event(Event("write.retry", tried, retries, "attempts"))


def _without_meta(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name not in META_COLUMNS])


def _chosen(partitions: Sequence[str], there: Sequence[str]) -> list[str]:
    """The partitions that are meant; `InputError` for a name or pattern that means none."""
    chosen: set[str] = set()
    for said in partitions:
        found = {p for p in there if p == said or ("*" in said and fnmatchcase(p, said))}
        if not found:
            raise InputError(
                f"The table has no partition {said!r}.",
                hint="Name partitions by their paths as folders, or by patterns with *.",
                context={"partition": said, "partitions": len(there)},
            )
        chosen |= found
    return sorted(chosen)


def _refuse_plans(job: WriteJob, partitions: frozenset[str]) -> None:
    """Partitions with pending plans must not go: the plans would bring rows back."""
    storage, properties = job.access.storage, job.snapshot.properties
    timeline = job.snapshot.timeline
    planned: dict[FileGroupId, str] = {
        **load_pending_compactions(storage, properties, timeline),
        **load_pending_log_compactions(storage, properties, timeline),
        **dict.fromkeys(job.in_clustering(), "clustering"),
    }
    for group, plan in planned.items():
        if group.partition in partitions:
            raise ConflictError(
                f"Partition {group.partition!r} has a pending table service ({plan}).",
                hint="Let it finish, then delete the partition.",
                context={"partition": group.partition, "plan": plan},
                retryable=True,
            )
