"""Writes in stories: one write of stub data, exactly as the story says.

Unlike the writers of random worlds these choose nothing: partition, file group and kind are told,
every task is tried once, and whatever goes wrong is raised after the write was given up.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakewright.errors import LakewrightError, OutcomeUnknownError
from lakewright.format.file_names import BaseFileName, LogFileName, parse_data_file
from lakewright.format.file_slices import FileGroupId
from lakewright.format.partitions import list_files
from lakewright.format.records import CommitMetadata, RequestedReplaceMetadata, WriteStat
from lakewright.format.timeline import Timeline
from lakewright.format.view_inputs import load_view
from lakewright.testing.sim.model import Effect
from lakewright.testing.sim.stub_rows import Rows, base_content, log_content, rows_at
from lakewright.testing.sim.tables import SimTable
from lakewright.txn.access import Access
from lakewright.txn.fence import Fence
from lakewright.txn.markers import Marker, MarkerType
from lakewright.txn.publishing import publish_file
from lakewright.txn.transaction import Prepared, Transaction, begin

__all__ = ["Write", "next_log_version", "publish"]


def publish(access: Access, fence: Fence, marker: Marker, content: bytes) -> None:
    """What every task does for every file."""
    publish_file(access.storage, fence, marker, lambda sink: sink.write(content))


def next_log_version(access: Access, group: FileGroupId, instant: str) -> int:
    """A log version that the slice of an instant does not have."""
    names = (parse_data_file(f.name) for f in list_files(access.storage, group.partition))
    taken = [
        n.version
        for n in names
        if isinstance(n, LogFileName) and (n.file_id, n.instant) == (group.file_id, instant)
    ]
    return max(taken, default=0) + 1


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a table; calling it does it and returns its instant."""

    table: SimTable
    rows: Rows
    """For every file group that it changes."""
    groups: tuple[FileGroupId, ...]
    """Those that it changes, or makes if they are not there."""
    rewrites: bool = False
    """Existing groups get a new base file although the table has logs."""
    overwrites: frozenset[str] | None = None
    """Partitions whose file groups it replaces."""
    failed_attempts: int = 0
    """How many attempts at a base file fail after they published it."""
    takes_s: float = 0.0
    """How long it works between its files and its commit."""

    def __call__(self, access: Access) -> str:
        """Write and commit; the instant."""
        table = self.table
        basis = access.timeline(table.properties)
        there = rows_at(access.storage, table.properties, basis)
        requested = b""
        action = "deltacommit" if table.properties.is_merge_on_read else "commit"
        if self.overwrites is not None:
            action = "replacecommit"
            requested = RequestedReplaceMetadata().write(table.properties.version)
        transaction = begin(access, action=action, requested=requested)
        try:
            transaction.start(CommitMetadata(operation_type="INSERT"))
            stats = [
                self._written(access, transaction, basis, g, there.get(g)) for g in self.groups
            ]
            access.clock.sleep(self.takes_s)
            prepared = self._prepared(transaction, basis, stats, there)
            transaction.commit(prepared)
        except LakewrightError as error:
            if not isinstance(error, OutcomeUnknownError):
                table.model.refuse(transaction.instant, error.code)
            transaction.abort()
            raise
        table.model.acknowledge(transaction.instant, table.world.now)
        return transaction.instant

    def _prepared(
        self,
        transaction: Transaction,
        basis: Timeline,
        stats: list[WriteStat],
        there: dict[FileGroupId, Rows],
    ) -> Prepared:
        by_partition: dict[str, list[WriteStat]] = {}
        for stat in stats:
            by_partition.setdefault(stat.partition_path or "", []).append(stat)
        replaced: dict[str, list[str]] = {p: [] for p in self.overwrites or ()}
        for group in there:
            if group.partition in replaced:
                replaced[group.partition].append(group.file_id)
        named = {FileGroupId(p, i) for p, ids in replaced.items() for i in ids}
        adds = dict.fromkeys(self.groups, self.rows)
        effect = Effect(adds, frozenset(named), self.overwrites or frozenset())
        self.table.model.intend(transaction.instant, effect)
        metadata = CommitMetadata(
            partition_to_write_stats=by_partition,
            operation_type="INSERT" if self.overwrites is None else "INSERT_OVERWRITE",
            partition_to_replace_file_ids=None if self.overwrites is None else replaced,
        )
        return Prepared(metadata, basis, overwritten=self.overwrites)

    def _written(
        self,
        access: Access,
        transaction: Transaction,
        basis: Timeline,
        group: FileGroupId,
        there: Rows | None,
    ) -> WriteStat:
        previous = "null" if there is None else self._slice_instant(access, basis, group)
        logs = self.table.properties.is_merge_on_read and not self.rewrites
        if there is not None and logs:
            content = log_content(transaction.instant, self.rows)
            marker = self._log_marker(access, transaction.instant, group, previous)
        else:
            content = base_content({**(there or {}), **self.rows})
            kind = MarkerType.CREATE if there is None else MarkerType.MERGE
            for attempt in range(self.failed_attempts):
                name = BaseFileName(group.file_id, f"0-1-{2 + attempt}", transaction.instant).text
                publish(access, transaction.fence, Marker(group.partition, name, kind), content)
            name = BaseFileName(group.file_id, "0-1-1", transaction.instant).text
            marker = Marker(group.partition, name, kind)
        publish(access, transaction.fence, marker, content)
        return WriteStat(
            file_id=group.file_id,
            path=marker.data_path,
            partition_path=group.partition,
            prev_commit=previous,
            num_writes=len(self.rows),
            num_inserts=len(self.rows),
            file_size_in_bytes=len(content),
        )

    def _slice_instant(self, access: Access, basis: Timeline, group: FileGroupId) -> str:
        listing = {group.partition: list_files(access.storage, group.partition)}
        view = load_view(access.storage, self.table.properties, basis, listing=listing)
        return max(slice_.base_instant for slice_ in view.groups[group].slices)

    def _log_marker(
        self, access: Access, instant: str, group: FileGroupId, previous: str
    ) -> Marker:
        by_delta = self.table.properties.version.log_name_has_delta_instant
        named = instant if by_delta else previous
        version = 1 if by_delta else next_log_version(access, group, previous)
        token = f"0-{access.random.below(999)}-1"
        name = LogFileName(group.file_id, named, version, token).text
        kind = MarkerType.CREATE if by_delta else MarkerType.APPEND
        return Marker(group.partition, name, kind)
