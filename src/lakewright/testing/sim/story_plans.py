"""Plans in stories: scheduled and executed through the real state machine, with stub files.

Compaction is the product's own, with files that are stubs. Of log compaction and clustering only
the plan and what its tasks would write are stubs: claiming, rolling back, fencing and committing is
`txn/execution`, which knows plans and no services.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lakewright.format.file_names import BaseFileName, LogFileName
from lakewright.format.file_slices import FileGroupId, FileSlice
from lakewright.format.log_block import (
    BlockType,
    HeaderKey,
    LogBlock,
    encode_block,
    read_blocks,
)
from lakewright.format.log_scan import select_blocks
from lakewright.format.partitions import list_table
from lakewright.format.records import (
    ClusteringGroup,
    ClusteringPlan,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    RequestedReplaceMetadata,
    SliceInfo,
    WriteStat,
)
from lakewright.format.view_inputs import block_visibility, load_view
from lakewright.runtime.random import SeededRandom
from lakewright.services.compaction import Compaction, SliceWork
from lakewright.services.compaction_plan import CompactionOptions, CompactionTrigger
from lakewright.testing.sim.model import Effect
from lakewright.testing.sim.story_writes import next_log_version, publish
from lakewright.testing.sim.stub_rows import Rows, base_content, rows_of_base, slice_rows
from lakewright.testing.sim.tables import SimTable
from lakewright.txn.access import Access
from lakewright.txn.execution import Execution, executing
from lakewright.txn.markers import Marker, MarkerType
from lakewright.txn.plan_kinds import (
    CLUSTERING,
    COMPACTION,
    LOG_COMPACTION,
    REMOVABLE_KEY,
    PlanKind,
    plan_kind,
)
from lakewright.txn.times import next_time
from lakewright.txn.transaction import Prepared

__all__ = ["Plans"]

ALWAYS: Final = CompactionOptions(trigger=CompactionTrigger.ALWAYS)
STAGES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Plans:
    """Scheduling and executing plans of one kind."""

    table: SimTable
    kind: PlanKind = COMPACTION
    removable: bool | None = None
    """What is written into the plans; None: nothing."""

    # ---- scheduling ----------------------------------------------------------------------------

    def schedule(self, access: Access) -> str | None:
        """Put a plan for every slice with logs on the timeline; its time."""
        if self.kind is COMPACTION:
            return Compaction(access, ALWAYS).schedule()
        properties = self.table.properties
        with access.locked(f"scheduling of a {self.kind.service}") as lease:
            timeline = access.timeline(properties)
            seen = [self._seen(access, slice_) for slice_ in self._slices(access)]
            slices = [slice_ for slice_ in seen if slice_.logs]
            if not slices or self.pending(access):
                return None
            instant = next_time(timeline, properties, access.clock)
            lease.check()
            action, content = self._plan(slices)
            access.files(properties).request(instant, action, content)
        return instant

    def _plan(self, slices: Sequence[FileSlice]) -> tuple[str, bytes]:
        version = self.table.properties.version
        said = {} if self.removable is None else {REMOVABLE_KEY: str(self.removable).lower()}
        if self.kind is LOG_COMPACTION:
            operations = [
                CompactionOperation(
                    base_instant_time=s.base_instant,
                    delta_file_paths=[log.name for log in s.logs],
                    data_file_path=s.base.name if s.base else None,
                    file_id=s.group.file_id,
                    partition_path=s.group.partition,
                )
                for s in slices
            ]
            plan = CompactionPlan(operations=operations, extra_metadata=said)
            return "logcompaction", plan.write(version)
        pieces = [
            SliceInfo(
                data_file_path=s.base.name if s.base else "",
                delta_file_paths=[log.name for log in s.logs],
                file_id=s.group.file_id,
                partition_path=s.group.partition,
            )
            for s in slices
        ]
        clustering = ClusteringPlan(
            input_groups=[ClusteringGroup(slices=[piece]) for piece in pieces],
            extra_metadata=said,
        )
        request = RequestedReplaceMetadata(operation_type="cluster", clustering_plan=clustering)
        return version.pending_clustering_action, request.write(version)

    def _slices(self, access: Access) -> list[FileSlice]:
        properties = self.table.properties
        timeline = access.timeline(properties)
        listing = list_table(access.storage)
        view = load_view(access.storage, properties, timeline, listing=listing)
        return sorted(view.latest_merged_slices(), key=lambda s: s.group)

    # ---- executing -----------------------------------------------------------------------------

    def execute(self, access: Access, instant: str) -> str:
        """Execute a plan, one file after the other; its time."""
        if self.kind is COMPACTION:
            Compaction(access, ALWAYS, compactor=self._compact).execute(instant)
        else:
            with executing(access, instant, self.kind) as execution:
                basis = access.timeline(self.table.properties)
                stage = access.random.below(STAGES)
                slices = [s for s in self._slices(access) if s.logs]
                write = self._compacted_log if self.kind is LOG_COMPACTION else self._clustered
                stats = [write(access, execution, slice_, stage) for slice_ in slices]
                metadata = self._metadata(instant, slices, stats)
                execution.commit(Prepared(metadata, basis, rewrites=True))
        self.table.model.acknowledge(instant, self.table.world.now)
        return instant

    def pending(self, access: Access) -> list[str]:
        """Plans of this kind that are not completed."""
        storage, properties = access.storage, self.table.properties
        pending = access.timeline(properties).pending()
        return [i.requested_time for i in pending if plan_kind(storage, properties, i) is self.kind]

    def execute_pending(self, access: Access) -> None:
        """Execute every plan that there is."""
        for instant in self.pending(access):
            self.execute(access, instant)

    def _metadata(
        self, instant: str, slices: Iterable[FileSlice], stats: Sequence[WriteStat]
    ) -> CommitMetadata:
        by_partition: dict[str, list[WriteStat]] = {}
        for stat in stats:
            by_partition.setdefault(stat.partition_path or "", []).append(stat)
        replaced: dict[str, list[str]] = {}
        if self.kind is CLUSTERING:
            for slice_ in slices:
                replaced.setdefault(slice_.group.partition, []).append(slice_.group.file_id)
        else:
            self.table.model.intend(instant, Effect())
        return CommitMetadata(
            partition_to_write_stats=by_partition,
            operation_type=self.kind.operation,
            partition_to_replace_file_ids=replaced or None,
        )

    def _rows(self, access: Access, slice_: FileSlice, *, latest: str | None = None) -> Rows:
        properties = self.table.properties
        timeline = access.timeline(properties)
        return slice_rows(access.storage, properties, timeline, slice_, latest=latest)

    def _compact(self, access: Access, work: SliceWork) -> list[WriteStat]:
        context = work.compactor.context
        self.table.model.intend(context.instant, Effect())
        stats = []
        for slice_ in work.slices:
            rows = self._rows(access, slice_, latest=context.instant)
            token = f"0-{work.stage}-1"
            name = BaseFileName(slice_.group.file_id, token, context.instant).text
            marker = Marker(slice_.group.partition, name, MarkerType.MERGE)
            content = base_content(rows)
            publish(access, context.fence, marker, content)
            stats.append(_stat(slice_.group, marker, slice_.base_instant, rows, content))
        return stats

    def _compacted_log(
        self, access: Access, execution: Execution, slice_: FileSlice, stage: int
    ) -> WriteStat:
        group, by_delta = slice_.group, self.table.properties.version.log_name_has_delta_instant
        blocks = self._blocks(access, slice_)
        rows: dict[str, str] = {}
        sources: set[str] = set()
        for block in blocks:
            rows.update(rows_of_base(block.content))
            sources |= {block.instant or "", *block.compacted_times}
        headers = {
            HeaderKey.INSTANT_TIME: execution.instant,
            HeaderKey.SCHEMA: '"null"',
            HeaderKey.COMPACTED_BLOCK_TIMES: ",".join(sorted(sources, reverse=True)),
        }
        content = encode_block(BlockType.AVRO_DATA, headers, base_content(rows))
        named = execution.instant if by_delta else slice_.base_instant
        version = 1 if by_delta else next_log_version(access, group, named)
        name = LogFileName(group.file_id, named, version, f"0-{stage}-1").text
        kind = MarkerType.CREATE if by_delta else MarkerType.APPEND
        marker = Marker(group.partition, name, kind)
        publish(access, execution.fence, marker, content)
        return _stat(group, marker, slice_.base_instant, rows, content)

    def _seen(self, access: Access, slice_: FileSlice) -> FileSlice:
        """A slice with the logs that readers see something of: of others it is not sure that they
        stay."""
        logs = [log for log in slice_.logs if self._blocks(access, replace(slice_, logs=(log,)))]
        return replace(slice_, logs=tuple(logs))

    def _blocks(self, access: Access, slice_: FileSlice) -> Sequence[LogBlock]:
        """The blocks of a slice that readers see."""
        storage, properties = access.storage, self.table.properties
        visible = block_visibility(properties, access.timeline(properties))
        found = [
            b for log in slice_.logs for b in read_blocks(storage.read(log.path), path=log.path)
        ]
        return select_blocks(found, is_visible=visible, latest=None).blocks

    def _clustered(
        self, access: Access, execution: Execution, slice_: FileSlice, stage: int
    ) -> WriteStat:
        made = SeededRandom(f"{execution.instant}/{slice_.group.file_id}").uuid()
        group = FileGroupId(slice_.group.partition, f"{made}-0")
        rows = self._rows(access, slice_)
        name = BaseFileName(group.file_id, f"0-{stage}-1", execution.instant).text
        marker = Marker(group.partition, name, MarkerType.CREATE)
        content = base_content(rows)
        publish(access, execution.fence, marker, content)
        self._tell(execution.instant, slice_.group, group, rows)
        return _stat(group, marker, "null", rows, content)

    def _tell(self, instant: str, old: FileGroupId, new: FileGroupId, rows: Rows) -> None:
        """Let the model know which group takes the place of which."""
        known = self.table.model.intended(instant)
        adds = {**known.adds, new: rows}
        self.table.model.intend(instant, Effect(adds, known.replaces | {old}))


def _stat(
    group: FileGroupId, marker: Marker, previous: str, rows: Rows, content: bytes
) -> WriteStat:
    return WriteStat(
        file_id=group.file_id,
        path=marker.data_path,
        partition_path=group.partition,
        prev_commit=previous,
        num_writes=len(rows),
        file_size_in_bytes=len(content),
    )
