"""Keyed writes from Arrow streams, in this process: upsert, delete by key.

Rows are keyed, reduced to one version per key, looked up, and placed; only then does the write
begin on the timeline, so that nothing is pending while base files are searched. Each file group's
share is written by one unit of work. At commit, under the lock, the keys that were inserted are
looked for in what others have committed meanwhile.

Memory is the keys of the write, and its rows up to `memory_bytes`; what does not fit waits in
scratch files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakewright.engine.keyed.base_merge import MergeRules
from lakewright.engine.keyed.completion import Completion
from lakewright.engine.keyed.group_work import GroupRows, write_group
from lakewright.engine.keyed.incoming import (
    KEYED,
    IncomingRows,
    collect_deletes,
    collect_incoming,
)
from lakewright.engine.keyed.index_type import IndexType, index_type
from lakewright.engine.keyed.insert_guard import all_of
from lakewright.engine.keyed.placing import GroupShare
from lakewright.engine.keyed.planning import GroupWork, KeyedPlan, KeyedPlanner
from lakewright.engine.row_source import RowSource
from lakewright.engine.runner import Runner, ThreadRunner
from lakewright.engine.write_context import WriteToken
from lakewright.engine.write_job import NON_BLOCKING, BegunWrite, WriteJob, holds_buckets
from lakewright.engine.write_result import WriteResult
from lakewright.errors import ConfigError, InputError
from lakewright.format.records import WriteStat
from lakewright.format.row_keys import RowKeys
from lakewright.format.table_schema import META_COLUMNS
from lakewright.merge.columns import Bools, Int64s
from lakewright.merge.commit_time import CommitTimeMerger
from lakewright.merge.deletes import DELETED_COLUMN, DeleteRule
from lakewright.merge.event_time import EventTimeMerger
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.events import Event
from lakewright.storage.scratch import Scratch

__all__ = ["MEMORY_BYTES", "KeyedWriter", "gone_rows", "refuse_generated_keys", "rows_of"]

MEMORY_BYTES = 512 << 20
STAGES = 1 << 30
"""Stages are drawn at random, so that no two writes give a log file the same name."""


@dataclass(frozen=True, slots=True)
class KeyedWriter:
    """Writes the rows of one job to where their keys are."""

    job: WriteJob
    registry: MergerRegistry
    threads: int = 1
    """Files read or written at once."""
    memory_bytes: int = MEMORY_BYTES
    columns: frozenset[str] | None = None
    """What a partial upsert changes, besides inserting new keys; None is every column."""

    def upsert(self, source: RowSource) -> WriteResult:
        """Update the rows whose keys are there, insert the others."""
        refuse_generated_keys(self.job)
        return self.upsert_keyed(self._keyed(source))

    def upsert_keyed(self, rows: Iterable[pa.RecordBatch]) -> WriteResult:
        """The same with rows that have their keys: batches of `schema`."""
        job, index, rules = self.job, self.index(), self.rules()
        with Scratch(self.memory_bytes) as scratch:
            incoming = collect_incoming(
                rows,
                self.schema,
                rules.config,
                rules.merger,
                within_partition=not index.is_global,
                combine=job.options.combine_before_upsert,
                columns=self._partial_columns(rules, index),
                hold=scratch.hold,
            )
            return self._write(incoming, rules, index)

    def delete(self, keys: Iterable[pa.RecordBatch]) -> WriteResult:
        """Delete rows by batches of record keys and partition paths."""
        rules, index = self.rules(), self.index()
        incoming = collect_deletes(
            keys,
            rules.config,
            rules.merger,
            self.schema,
            within_partition=not index.is_global,
        )
        return self._write(incoming, rules, index)

    # ---- the table's rules ---------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """Record key, partition path and the table's columns."""
        keyed = [pa.field(name, pa.string(), nullable=False) for name in KEYED]
        return pa.schema([*keyed, *self.job.schema.rows.schema])

    def rules(self) -> MergeRules:
        """How rows of the table meet."""
        snapshot = self.job.snapshot
        merger = self.registry.resolve(snapshot.merge)
        return MergeRules(snapshot.merge, merger, self.job.keys, snapshot.schema.defaults())

    def index(self) -> IndexType:
        """The index; `OptionError` for one that cannot be used here."""
        job = self.job
        chosen = index_type(job.options.index_type, buckets=holds_buckets(job.snapshot))
        if job.options.concurrency_mode == NON_BLOCKING:
            self._refuse_blocking(chosen)
        return chosen

    def _refuse_blocking(self, index: IndexType) -> None:
        """Writers that do not block each other need files that only grow, found by a hash."""
        properties = self.job.snapshot.properties
        merge_on_read = properties.table_type == "MERGE_ON_READ"
        ordered = properties.version.slices_by_completion_time
        if not (merge_on_read and ordered and index is IndexType.BUCKET):
            raise ConfigError(
                f"{NON_BLOCKING} needs a MERGE_ON_READ table of version 8 with a bucket index.",
                hint="Use OPTIMISTIC_CONCURRENCY_CONTROL and retries.",
                context={"option": "hoodie.write.concurrency.mode", "index": index.value},
            )

    def _partial_columns(self, rules: MergeRules, index: IndexType) -> frozenset[str] | None:
        """Columns of rows that are stored as partial ones; None for whole rows.

        A bucket index cannot tell rows that are there from others, so their rows are completed. So
        are all that Hudi 1.0 cannot join: rows of tables that mark deleted ones, rows in logs of
        tables ordered by commit time, and rows that global indexes look for.
        """
        logs = self.job.snapshot.properties.table_type == "MERGE_ON_READ"
        known = EventTimeMerger if logs else EventTimeMerger | CommitTimeMerger
        joins = isinstance(rules.merger, known) and DELETED_COLUMN not in self.schema.names
        in_place = index is not IndexType.BUCKET and not (logs and index.is_global)
        return self.columns if joins and in_place else None

    # ---- the way of every keyed write ----------------------------------------------------------

    def _write(self, incoming: IncomingRows, rules: MergeRules, index: IndexType) -> WriteResult:
        job = self.job
        if not len(incoming) and not job.options.allow_empty_commit:
            return WriteResult(job.operation.name, None)
        gone = self._gone(incoming, rules)
        plan = self._planner(rules, index).plan(incoming, gone, self._runner())
        if self.columns is not None:
            self._refuse_hollow_inserts(plan)
        guarded = replace(job, guard=all_of([job.guard, plan.guard]))
        profile = job.profile(plan.plans, [_announced(work.share) for work in plan.work])
        with guarded.begun(profile) as begun:
            stats = self._written(begun, rules, incoming, gone, plan)
            result = begun.commit(stats)
        changed = result.inserted + result.updated + result.deleted
        return replace(result, ignored=max(0, len(incoming) + _repeated(plan) - changed))

    def _gone(self, incoming: IncomingRows, rules: MergeRules) -> Bools:
        """Which rows are deletes, as far as is known before they meet others."""
        return gone_rows(incoming, rules)

    def _planner(self, rules: MergeRules, index: IndexType) -> KeyedPlanner:
        """What decides; another engine puts its own in this place."""
        job = self.job
        return KeyedPlanner(job, rules, index, self.registry, self.schema, job.in_clustering())

    def _written(
        self,
        begun: BegunWrite,
        rules: MergeRules,
        incoming: IncomingRows,
        gone: Bools,
        plan: KeyedPlan,
    ) -> list[WriteStat]:
        access, total = self.job.access, len(plan.work)
        stage = access.random.below(STAGES)
        context = begun.context if plan.rolls else replace(begun.context, max_file_bytes=None)
        share_of = self._shares(rules, incoming, gone)
        merges = sum(not work.target.as_log for work in plan.work)
        idle = access.spawner if merges < self.threads else None

        def write(number: int) -> list[WriteStat]:
            access.cancel.check()
            work = plan.work[number]
            stats = write_group(
                access.storage,
                context,
                rules,
                work.target,
                share_of(work),
                token=WriteToken(number, stage, number),
                clock=access.clock,
                spawner=idle,
            )
            access.on_event(Event("write.groups", number + 1, total, "groups", begun.instant))
            return stats

        stats = list(self._runner().stream(range(total), write))
        return sorted(stats, key=lambda stat: (stat.partition_path or "", stat.file_id or ""))

    def _shares(
        self, rules: MergeRules, incoming: IncomingRows, gone: Bools
    ) -> Callable[[GroupWork], GroupRows]:
        """How the rows of each share come about."""
        if self.columns is None:
            return lambda work: rows_of(work.share, incoming, gone)
        partial = self._partial_columns(rules, self.index())
        completion = Completion(self.job.snapshot, self.registry, self.columns)

        def rows(work: GroupWork) -> GroupRows:
            made = rows_of(work.share, incoming, gone)
            if partial is not None and len(work.share.updates):
                return replace(made, columns=partial)
            if partial is None and work.target.merged is not None and made.rows.num_rows:
                return replace(made, rows=completion.complete(made.rows, work.target.merged))
            return made

        return rows

    def _refuse_hollow_inserts(self, plan: KeyedPlan) -> None:
        """New keys get null in the columns that were not given, which some columns do not allow."""
        absent = self.job.schema.rows.absent
        hollow = [
            f.name for f in self.job.schema.rows.schema if f.name in absent and not f.nullable
        ]
        new = sum(len(work.share.inserts) for work in plan.work)
        if hollow and new:
            raise InputError(
                f"{new} rows are new, and the table does not allow {hollow[0]} to be null.",
                hint="Give this column as well, or leave rows out that are not in the table.",
                context={"columns": hollow, "rows": new},
            )

    def _keyed(self, source: RowSource) -> Iterator[pa.RecordBatch]:
        """The rows in the table's columns, keys and paths in front."""
        job = self.job
        keys = RowKeys(job.keys, instant="")
        names = self.schema.names
        for batch in source.batches():
            job.access.cancel.check()
            own = [name for name in batch.schema.names if name not in META_COLUMNS]
            yield keys.add_to(job.schema.rows.apply(batch.select(own))).select(names)

    def _runner(self) -> Runner:
        return ThreadRunner(self.threads, spawner=self.job.access.spawner)


def refuse_generated_keys(job: WriteJob) -> None:
    """Raise `ConfigError` for tables whose rows have no keys of their own."""
    if not job.keys.record_key_fields:
        raise ConfigError(
            "The table has no key fields: its keys are generated, and rows cannot be found by "
            "their columns.",
            hint="Use append, or delete rows by a filter or by their stored keys.",
            context={"table": job.access.storage.uri},
        )


def gone_rows(incoming: IncomingRows, rules: MergeRules) -> Bools:
    """Which rows are deletes where there is nothing to merge them with."""
    rule = getattr(rules.merger, "not_inserted", None)
    if not isinstance(rule, DeleteRule):
        return incoming.deleted
    numbers, _ = incoming.state.chosen()
    codes = np.flatnonzero(numbers >= 0)
    marked = rule.mask(incoming.rows(codes)) if len(codes) else None
    if marked is None:
        return incoming.deleted
    gone = incoming.deleted.copy()
    gone[codes] |= marked
    return gone


def rows_of(share: GroupShare, incoming: IncomingRows, gone: Bools) -> GroupRows:
    """The rows of a share, updates first; keys of deletes without a row apart."""
    codes = np.concatenate([share.updates, share.inserts])
    positions = share.positions
    numbers, _ = incoming.state.chosen()
    bare = numbers[codes] < 0
    removed: Int64s = np.concatenate([codes[bare], share.removals])
    if bare.any():
        positions = None if positions is None else positions[~bare[: len(positions)]]
        codes = codes[~bare]
    return GroupRows(
        rows=incoming.rows(codes),
        gone=gone[codes],
        inserts=len(share.inserts),
        positions=positions if positions is not None and len(positions) == len(codes) else None,
        deleted_keys=incoming.keys.take(pa.array(removed)) if len(removed) else None,
    )


def _repeated(plan: KeyedPlan) -> int:
    """How often keys are in more than one place: rows that move, rows that were there twice."""
    shares = [work.share for work in plan.work]
    placed = [codes for s in shares for codes in (s.updates, s.inserts, s.removals)]
    codes = np.concatenate(placed) if placed else np.zeros(0, np.int64)
    return len(codes) - int(np.count_nonzero(np.bincount(codes)))


def _announced(share: GroupShare) -> WriteStat:
    """What the inflight instant says about a share."""
    slice_ = share.slice_
    if slice_ is None:
        return WriteStat(
            file_id="", prev_commit="null", partition_path=share.partition, num_inserts=share.size
        )
    return WriteStat(
        file_id=slice_.group.file_id,
        prev_commit=slice_.base_instant,
        partition_path=share.partition,
        num_inserts=len(share.inserts),
        num_update_writes=len(share.updates) + len(share.removals),
    )
