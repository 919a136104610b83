"""Compaction: merging the logs of file slices into new base files.

`schedule` writes a plan under the lock, with the view of the table computed there. `execute` runs
one by `txn/execution`: any number of processes may try, one works. `run` finishes every plan that
is pending, schedules one if it is due, and executes it. Plans of Hudi are executed too, and Hudi
executes ours.

The table's own properties decide how rows are merged. A plan stays until it is executed: nothing
here removes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lakewright.codec.avro.schema import to_json
from lakewright.engine.file_policies import bloom_policy, parquet_policy
from lakewright.engine.index_records import indexing_of, looking_here
from lakewright.engine.runner import InlineRunner, Runner, ThreadRunner
from lakewright.engine.snapshot import Snapshot, load_snapshot
from lakewright.engine.write_context import WriteContext, WriteToken
from lakewright.engine.write_options import WriteOptions
from lakewright.errors import PlanBusyError, PlanStateError, UnsupportedTableError
from lakewright.format.file_slices import FileGroupId, FileSlice
from lakewright.format.instant import State
from lakewright.format.instant_times import format_time
from lakewright.format.records import (
    CommitMetadata,
    CompactionPlan,
    WriteStat,
    load_commit_metadata,
    load_compaction_plan,
)
from lakewright.format.table_properties import TableProperties
from lakewright.format.table_schema import without_meta_columns
from lakewright.format.timeline import Timeline
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.events import Event
from lakewright.services.compacted_slice import SliceCompactor
from lakewright.services.compaction_plan import CompactionOptions, plan_compaction
from lakewright.services.due import compaction_is_due
from lakewright.services.planned_slices import planned_slices
from lakewright.storage.base import Storage
from lakewright.txn.access import Access
from lakewright.txn.conflict import groups_in_clustering, groups_of_commit
from lakewright.txn.execution import Execution, executing
from lakewright.txn.metadata_gate import pass_metadata_gate
from lakewright.txn.plan_kinds import COMPACTION
from lakewright.txn.restoring import refuse_restore
from lakewright.txn.times import next_time
from lakewright.txn.transaction import SCHEMA_KEY, Prepared

__all__ = ["Compacted", "Compaction", "Compactor", "SliceWork"]

ACTION = "compaction"
STAGES = 1 << 30
"""Stages are drawn at random, so that no two attempts give a file the same name."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    instant: str
    slices: int
    rows: int
    bytes: int
    """Bytes of the new base files."""
    log_files: int
    lock_held_ms: int = 0
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """As plain values."""
        return {
            "instant": self.instant,
            "slices": self.slices,
            "rows": self.rows,
            "bytes": self.bytes,
            "log_files": self.log_files,
            "lock_held_ms": self.lock_held_ms,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class SliceWork:
    """What one attempt at a plan has to do; travels to tasks."""

    compactor: SliceCompactor
    slices: tuple[FileSlice, ...]
    stage: int

    def compact(self, storage: Storage, number: int, access: Access, *, alone: bool) -> WriteStat:
        """Compact one slice; `alone`: nothing else is compacted beside it."""
        return self.compactor.compact(
            storage,
            self.slices[number],
            token=WriteToken(number, self.stage, number),
            clock=access.clock,
            spawner=access.spawner if alone else None,
        )

    def by_threads(self, access: Access, threads: int) -> list[WriteStat]:
        """Compact all slices in this process, so many of them at once."""
        total = len(self.slices)
        alone = total < threads
        runner: Runner = InlineRunner()
        if threads > 1:
            runner = ThreadRunner(threads, spawner=access.spawner)
        done: list[WriteStat] = []

        def compact(number: int) -> Iterable[WriteStat]:
            access.cancel.check()
            return [self.compact(access.storage, number, access, alone=alone)]

        for stat in runner.stream(range(total), compact):
            done.append(stat)
            instant = self.compactor.context.instant
            access.on_event(Event("compaction.slices", len(done), total, "slices", instant))
        return done


Compactor = Callable[[Access, SliceWork], Sequence[WriteStat]]
"""How the slices of a plan are compacted: here, or by tasks elsewhere."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """Compaction of one table."""

    access: Access
    options: CompactionOptions = field(default_factory=CompactionOptions)
    write: WriteOptions = field(default_factory=WriteOptions)
    registry: MergerRegistry = field(default_factory=MergerRegistry)
    threads: int = 1
    compactor: Compactor | None = None
    """Who compacts; None: threads of this process."""

    # ---- planning ------------------------------------------------------------------------------

    def plan(self) -> CompactionPlan | None:
        """What would be scheduled now; None if nothing would."""
        return self._planned(*self._look())

    def schedule(self) -> str | None:
        """Put a plan on the timeline, if a compaction is due; its time."""
        access = self.access
        pass_metadata_gate(access, drop=self.write.metadata_table == "drop")
        with access.locked("scheduling of a compaction") as lease:
            properties, timeline = self._look()
            refuse_restore(timeline, "scheduled")
            plan = self._planned(properties, timeline)
            if plan is None:
                return None
            instant = next_time(timeline, properties, access.clock)
            lease.check()
            content = plan.write(properties.version)
            access.files(properties).request(instant, ACTION, content)
            access.clock.sleep(access.skew_s())
        operations = len(plan.operations or ())
        access.on_event(Event("compaction.scheduled", operations, unit="slices", instant=instant))
        return instant

    def _look(self) -> tuple[TableProperties, Timeline]:
        properties = self.access.properties()
        if properties.table_type != "MERGE_ON_READ":
            raise UnsupportedTableError(
                "Only MERGE_ON_READ tables have logs to compact.",
                hint="Nothing has to be done for this table.",
                context={"table": self.access.storage.uri, "type": properties.table_type},
            )
        return properties, self.access.timeline(properties)

    def _planned(self, properties: TableProperties, timeline: Timeline) -> CompactionPlan | None:
        clock, zone = self.access.clock, properties.timeline_zone
        if not compaction_is_due(properties, timeline, self.options, now_ms=clock.now_ms()):
            return None
        snapshot = load_snapshot(self.access.storage, clock=clock, use_metadata_table=False)
        listing = snapshot.opened.listing
        view = snapshot.view(listing.files(listing.partitions()))
        taken = groups_in_clustering(self.access.storage, properties, timeline)
        if properties.version.rollback_by_log_block:
            taken |= self._being_written(properties, timeline)
        today = format_time(clock.now_ms(), zone=zone)
        day = f"{today[:4]}-{today[4:6]}-{today[6:8]}"
        return plan_compaction(view, self.options, taken=taken, today=day)

    def _being_written(
        self, properties: TableProperties, timeline: Timeline
    ) -> frozenset[FileGroupId]:
        """Version 6: groups whose logs a pending write is adding to; its blocks would be lost."""
        found: set[FileGroupId] = set()
        for instant in timeline.filter_actions("deltacommit").pending():
            if instant.state is State.INFLIGHT:
                profile = load_commit_metadata(self.access.storage, properties, instant)
                found |= groups_of_commit(profile)
        return frozenset(found)

    # ---- executing -----------------------------------------------------------------------------

    def execute(self, instant: str) -> Compacted:
        """Execute a plan; see `txn/execution` for what stands against it."""
        access = self.access
        pass_metadata_gate(access, drop=self.write.metadata_table == "drop")
        with executing(access, instant, COMPACTION) as execution:
            snapshot = load_snapshot(access.storage, clock=access.clock, use_metadata_table=False)
            work = self._work(execution, snapshot)
            if self.compactor is None:
                stats: Sequence[WriteStat] = work.by_threads(access, self.threads)
            else:
                stats = self.compactor(access, work)
            return self._committed(execution, snapshot, work, stats)

    def pending(self) -> list[str]:
        """Plans that are not completed, oldest first."""
        properties = self.access.properties()
        plans = self.access.timeline(properties).pending_compactions()
        return [instant.requested_time for instant in plans]

    def run(self) -> list[Compacted]:
        """Execute what is pending, schedule what is due, and execute that."""
        done: list[Compacted] = []
        for instant in self.pending():
            done += self._tried(instant)
        scheduled = self.schedule()
        if scheduled is not None:
            done += self._tried(scheduled)
        return done

    def _tried(self, instant: str) -> list[Compacted]:
        try:
            return [self.execute(instant)]
        except (PlanBusyError, PlanStateError) as error:
            kind = f"compaction.left: {error.code}"
            self.access.on_event(Event(kind, 1, unit="plans", instant=instant))
            return []

    def _work(self, execution: Execution, snapshot: Snapshot) -> SliceWork:
        access, properties = self.access, snapshot.properties
        instant = execution.plan_on(snapshot.timeline)
        plan = load_compaction_plan(access.storage, properties, instant)
        populate = properties.populate_meta_fields
        context = WriteContext.of(
            without_meta_columns(snapshot.schema.avro),
            instant=execution.instant,
            version=properties.version,
            fence=execution.fence,
            populate_meta=populate,
            not_stored=properties.partition_fields if properties.drop_partition_columns else (),
            parquet=parquet_policy(self.write),
            bloom=bloom_policy(self.write) if populate else None,
            max_file_bytes=None,
            partition_metafile="parquet" if properties.partition_metafile_base_format else "text",
        )
        slices = planned_slices(access.storage, plan)
        stage = access.random.below(STAGES)
        memory = self.options.merge_memory
        return SliceWork(SliceCompactor(snapshot, context, self.registry, memory), slices, stage)

    def _committed(
        self,
        execution: Execution,
        snapshot: Snapshot,
        work: SliceWork,
        stats: Sequence[WriteStat],
    ) -> Compacted:
        by_partition: dict[str, list[WriteStat]] = {}
        for stat in sorted(stats, key=lambda s: (s.partition_path or "", s.file_id or "")):
            by_partition.setdefault(stat.partition_path or "", []).append(stat)
        metadata = CommitMetadata(
            partition_to_write_stats=by_partition,
            compacted=True,
            extra_metadata={SCHEMA_KEY: to_json(without_meta_columns(snapshot.schema.avro))},
            operation_type=COMPACTION.operation,
        )
        schema = work.compactor.context.schema
        spawner = self.access.spawner
        looking = looking_here(self.registry, spawner)
        indexing = indexing_of(snapshot, execution.instant, metadata, schema, looking, spawner)
        prepared = Prepared(metadata, snapshot.timeline, rewrites=True)
        committed = execution.commit(prepared, indexing)
        return Compacted(
            execution.instant,
            slices=len(work.slices),
            rows=sum(stat.num_writes or 0 for stat in stats),
            bytes=sum(stat.file_size_in_bytes or 0 for stat in stats),
            log_files=sum(len(slice_.logs) for slice_ in work.slices),
            lock_held_ms=committed.lock_held_ms,
            warnings=committed.warnings,
        )
