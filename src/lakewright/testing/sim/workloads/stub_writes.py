"""Writes with stub data, through the real transaction code: what a writing process does.

Each kind of write takes the road of the real one: begin, basis, inflight file, tasks that check the
fence, leave a marker and publish, then the commit. Some tasks are tried twice: the first attempt
fails after it published, or goes on beside the second one and publishes late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from lakewright.errors import LakewrightError, OutcomeUnknownError
from lakewright.format.file_names import BaseFileName, LogFileName, parse_data_file
from lakewright.format.file_slices import FileGroupId
from lakewright.format.partitions import list_files
from lakewright.format.records import CommitMetadata, RequestedReplaceMetadata, WriteStat
from lakewright.format.timeline import Timeline
from lakewright.format.view_inputs import load_view
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.model import Effect
from lakewright.testing.sim.stub_rows import Rows, base_content, log_content, slice_rows
from lakewright.testing.sim.tables import SimTable
from lakewright.txn.access import Access
from lakewright.txn.markers import Marker, MarkerType
from lakewright.txn.publishing import publish_file
from lakewright.txn.transaction import Prepared, Transaction, begin

__all__ = ["KINDS", "Writer"]

KINDS = ("append", "append", "rewrite", "rewrite", "log", "overwrite", "delete_partition")

_Task = Callable[[Transaction], None]


@dataclass(slots=True)
class _Work:
    """What one write has done so far."""

    stats: list[WriteStat] = field(default_factory=list)
    adds: dict[FileGroupId, Rows] = field(default_factory=dict)
    replaced: dict[str, list[str]] = field(default_factory=dict)
    overwritten: frozenset[str] = frozenset()

    def metadata(self, operation: str, *, replaces: bool) -> CommitMetadata:
        """The commit's content."""
        by_partition: dict[str, list[WriteStat]] = {}
        for stat in self.stats:
            by_partition.setdefault(stat.partition_path or "", []).append(stat)
        return CommitMetadata(
            partition_to_write_stats=by_partition,
            operation_type=operation,
            partition_to_replace_file_ids=self.replaced if replaces else None,
        )


class Writer:
    """One process that writes a table again and again."""

    def __init__(
        self, actor: Actor, table: SimTable, access: Access, *, late: bool = False
    ) -> None:
        self._actor = actor
        self._table = table
        self._access = access
        self._late_attempts = late
        """Whether attempts may go on after their task was tried again."""
        self._random = actor.random.fork("writes")
        self._written = 0

    def write(self, kind: str) -> bool:
        """One write of a kind; whether it was committed."""
        world, model = self._table.world, self._table.model
        replaces = kind in ("overwrite", "delete_partition")
        merge_on_read = self._table.properties.is_merge_on_read
        action = "replacecommit" if replaces else "deltacommit" if merge_on_read else "commit"
        requested = b""
        if replaces:
            requested = RequestedReplaceMetadata().write(self._table.properties.version)
        basis = self._access.timeline(self._table.properties)
        work = _Work()
        tasks = self._plan(kind, basis, work)
        transaction = begin(self._access, action=action, requested=requested)
        try:
            committed = self._run(transaction, kind, basis, work, tasks)
        except LakewrightError as error:
            world.count(f"refused.{error.code}")
            if not isinstance(error, OutcomeUnknownError):
                model.refuse(transaction.instant, error.code)
            self._abort(transaction)
            return False
        model.acknowledge(committed, world.now)
        world.count(f"committed.{kind}")
        return True

    def _abort(self, transaction: Transaction) -> None:
        try:
            transaction.abort()
        except LakewrightError as error:
            self._table.world.count(f"abort failed.{error.code}")

    def _run(
        self, transaction: Transaction, kind: str, basis: Timeline, work: _Work, tasks: list[_Task]
    ) -> str:
        replaces = kind in ("overwrite", "delete_partition")
        profile = CommitMetadata(operation_type="INSERT")
        transaction.start(None if self._random.below(4) == 0 else profile)
        for task in tasks:
            task(transaction)
        named = {FileGroupId(p, file_id) for p, ids in work.replaced.items() for file_id in ids}
        effect = Effect(dict(work.adds), frozenset(named), work.overwritten)
        self._table.model.intend(transaction.instant, effect)
        operation = {"overwrite": "INSERT_OVERWRITE", "delete_partition": "DELETE_PARTITION"}
        metadata = work.metadata(operation.get(kind, "INSERT"), replaces=replaces)
        overwritten = work.overwritten if replaces else None
        prepared = Prepared(metadata, basis, overwritten=overwritten)
        return transaction.commit(prepared).instant

    # ---- what each kind does -------------------------------------------------------------------

    def _plan(self, kind: str, basis: Timeline, work: _Work) -> list[_Task]:
        """The tasks of a write; nothing is written yet."""
        partition = f"p{self._random.below(2)}"
        if kind == "append":
            return [self._new_group(partition, work) for _ in range(1 + self._random.below(2))]
        storage, properties = self._access.storage, self._table.properties
        listing = {partition: list_files(storage, partition)}
        view = load_view(storage, properties, basis, listing=listing)
        slices = {slice_.group: slice_ for slice_ in view.latest_merged_slices()}
        groups = sorted(slices)
        if kind in ("rewrite", "log"):
            if not groups:
                return [self._new_group(partition, work)]
            group = groups[self._random.below(len(groups))]
            found = view.groups[group]
            previous = max(slice_.base_instant for slice_ in found.slices)
            planned = found.pending_compaction is not None
            rows = self._rows()
            if (kind == "log" and properties.is_merge_on_read) or planned:
                return [lambda t: self._publish_log(t, group, rows, previous, work)]
            whole = {**slice_rows(storage, properties, basis, slices[group]), **rows}
            return [lambda t: self._publish_base(t, group, rows, whole, previous, work)]
        work.overwritten = frozenset({partition})
        work.replaced = {partition: [g.file_id for g in groups]}
        return [self._new_group(partition, work)] if kind == "overwrite" else []

    def _rows(self) -> dict[str, str]:
        self._written += 1
        return {f"{self._actor.name}-{self._written}": self._actor.name}

    def _new_group(self, partition: str, work: _Work) -> _Task:
        group = FileGroupId(partition, f"{self._random.uuid()}-0")
        rows = self._rows()
        return lambda t: self._publish_base(t, group, rows, rows, "null", work)

    # ---- tasks ---------------------------------------------------------------------------------

    def _publish_base(
        self,
        transaction: Transaction,
        group: FileGroupId,
        adds: Rows,
        rows: Rows,
        previous: str,
        work: _Work,
    ) -> None:
        kind = MarkerType.CREATE if previous == "null" else MarkerType.MERGE
        content = base_content(rows)

        def attempt(number: int) -> str:
            name = BaseFileName(group.file_id, f"0-1-{number}", transaction.instant).text
            self._publish(transaction, Marker(group.partition, name, kind), content)
            return name

        name = self._tried(attempt)
        self._done(group, name, adds, len(content), previous, work)

    def _publish_log(
        self,
        transaction: Transaction,
        group: FileGroupId,
        rows: Rows,
        previous: str,
        work: _Work,
    ) -> None:
        content = log_content(transaction.instant, rows)
        by_delta = self._table.properties.version.log_name_has_delta_instant
        instant = transaction.instant if by_delta else previous
        kind = MarkerType.CREATE if by_delta else MarkerType.APPEND
        version = 1 if by_delta else self._next_version(group, previous)
        name = LogFileName(group.file_id, instant, version, f"0-1-{self._random.below(999)}").text
        self._publish(transaction, Marker(group.partition, name, kind), content)
        self._done(group, name, rows, len(content), previous, work)

    def _next_version(self, group: FileGroupId, instant: str) -> int:
        files = list_files(self._access.storage, group.partition)
        names = (parse_data_file(file.name) for file in files)
        taken = [
            n.version
            for n in names
            if isinstance(n, LogFileName) and (n.file_id, n.instant) == (group.file_id, instant)
        ]
        return max(taken, default=0) + 1

    def _tried(self, attempt: Callable[[int], str]) -> str:
        """Run a task, sometimes after or beside an attempt whose result is thrown away."""
        draw = self._random.below(6)
        if draw == 0:
            attempt(0)
        elif draw == 1 and self._late_attempts:
            self._actor.spawn(lambda: self._late(attempt), "late attempt")
        return attempt(1)

    def _late(self, attempt: Callable[[int], str]) -> None:
        """An attempt that nobody waits for."""
        self._actor.clock.sleep(self._random.uniform(0.0, 3.0))
        self._table.world.count("late attempts")
        try:
            attempt(0)
        except LakewrightError as error:
            self._table.world.count(f"late.{error.code}")

    def _publish(self, transaction: Transaction, marker: Marker, content: bytes) -> None:
        """What every task does for every file."""
        fence = replace(transaction.fence, own=not self._late_attempts)
        publish_file(self._access.storage, fence, marker, lambda sink: sink.write(content))

    def _done(
        self,
        group: FileGroupId,
        name: str,
        adds: Mapping[str, str],
        size: int,
        previous: str,
        work: _Work,
    ) -> None:
        work.adds[group] = adds
        work.stats.append(
            WriteStat(
                file_id=group.file_id,
                path=f"{group.partition}/{name}",
                partition_path=group.partition,
                prev_commit=previous,
                num_writes=len(adds),
                num_inserts=len(adds),
                file_size_in_bytes=size,
            )
        )
