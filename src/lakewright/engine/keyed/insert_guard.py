"""The last look before a commit: whether others have added the same keys, or changed what was read.

Hudi lets two writers insert the same new key, because new file groups never meet. Here the base
files that were committed since the write looked at the table are asked for the keys that it did not
find, under the lock: a hit is a conflict, and the write can be done again on the new state. So are
late logs (`late_logs`), which bring back keys that a compaction took away. Deletes of keys that
were not there ask as well; otherwise they would come before what they followed. Files that were
asked once are not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakewright.engine.keyed.late_logs import LateLogs, written_logs
from lakewright.engine.keyed.log_lookup import LogLookup
from lakewright.engine.keyed.lookup import Hits, KeyLookup
from lakewright.engine.write_job import Guard
from lakewright.errors import WriteConflictError
from lakewright.format.buckets import bucket_of_file
from lakewright.format.file_names import BaseFileName, parse_data_file
from lakewright.format.file_slices import BaseFile, FileGroupId, FileSlice
from lakewright.format.instant import Instant
from lakewright.format.key_spec import KeySpec
from lakewright.format.records import CommitMetadata, load_commit_metadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage
from lakewright.txn.conflict import completed_since, groups_of_commit

__all__ = ["BucketGuard", "GroupGuard", "InsertGuard", "ReadGuard", "UpdateGuard", "all_of"]


def all_of(guards: Sequence[Guard | None]) -> Guard | None:
    """One guard for several; None if there is none."""
    there = [guard for guard in guards if guard is not None]
    if not there:
        return None

    def check(timeline: Timeline) -> None:
        for guard in there:
            guard(timeline)

    return check


@dataclass(frozen=True, slots=True, eq=False)
class InsertGuard:
    """Refuses a commit whose keys are there although it did not find them."""

    storage: Storage
    properties: TableProperties
    basis: Timeline
    absent: Mapping[str | None, pa.Array]
    """Record keys by partition; under None those that are nowhere in the whole table."""
    logs: LogLookup
    spec: KeySpec | None = None
    """Forms the keys of tables that do not store them."""
    _asked: set[str] = field(default_factory=set)

    def __call__(self, timeline: Timeline) -> None:
        """Look into what was committed since."""
        for instant in completed_since(self.basis, timeline):
            metadata = load_commit_metadata(self.storage, self.properties, instant)
            for base in _base_files(metadata):
                if base.path not in self._asked:
                    for keys in self._keys(base.partition):
                        lookup = KeyLookup(
                            self.storage, keys, spec=self.spec, filters=self.spec is None
                        )
                        hits = Hits.joined(list(lookup.in_file(0, base)))
                        self._refuse(instant, base.path, keys, hits.codes)
                    self._asked.add(base.path)
            for slice_ in self._late_logs(timeline, instant, metadata):
                logs = replace(self.logs, snapshot=replace(self.logs.snapshot, timeline=timeline))
                for keys in self._keys(slice_.group.partition):
                    found = logs.living(keys, slice_)
                    self._refuse(instant, slice_.logs[0].path, keys, found)

    def _keys(self, partition: str) -> Iterator[pa.Array]:
        for scope in (partition, None):
            keys = self.absent.get(scope)
            if keys is not None and len(keys):
                yield keys

    def _late_logs(
        self, timeline: Timeline, write: Instant, metadata: CommitMetadata
    ) -> Iterator[FileSlice]:
        """Logs of a write that may have looked before a compaction of their group."""
        written = [
            slice_ for slice_ in written_logs(metadata) if slice_.logs[0].path not in self._asked
        ]
        if not written:
            return
        compacted: frozenset[FileGroupId] = frozenset()
        late = LateLogs(self.storage, self.properties, timeline)
        for compaction in late.compactions_after(write.requested_time):
            done = load_commit_metadata(self.storage, self.properties, compaction)
            compacted |= groups_of_commit(done)
        for slice_ in written:
            if slice_.group in compacted:
                yield slice_
            self._asked.add(slice_.logs[0].path)

    def _refuse(
        self, instant: Instant, path: str, keys: pa.Array, found: npt.NDArray[np.integer]
    ) -> None:
        if not len(found):
            return
        raise WriteConflictError(
            f"The write {instant.requested_time} added {len(found)} of the keys that this "
            "write inserts or deletes.",
            hint="Nothing was published. Run the write again: it will find them.",
            context={
                "other": instant.requested_time,
                "path": path,
                "key": keys[int(found[0])].as_py(),
            },
            retryable=True,
        )


@dataclass(frozen=True, slots=True, eq=False)
class UpdateGuard:
    """Refuses a commit whose logs change rows that a compaction has left out meanwhile.

    The rows were deleted before the compaction was planned; a log that brings them back must be
    known as late, and this one began too late for that.
    """

    storage: Storage
    properties: TableProperties
    basis: Timeline
    changed: Mapping[FileGroupId, Callable[[], pa.Array]]
    """Distinct record keys, found in the base file of the group."""
    spec: KeySpec | None = None
    _asked: set[str] = field(default_factory=set)

    def __call__(self, timeline: Timeline) -> None:
        """Look into base files that compactions have made since."""
        for instant in completed_since(self.basis, timeline):
            if instant.action != "commit":
                continue
            metadata = load_commit_metadata(self.storage, self.properties, instant)
            for base in _base_files(metadata):
                changed = self.changed.get(FileGroupId(base.partition, base.file_id))
                if changed is not None and base.path not in self._asked:
                    self._refuse(instant, base, changed())
                    self._asked.add(base.path)

    def _refuse(self, instant: Instant, base: BaseFile, keys: pa.Array) -> None:
        lookup = KeyLookup(self.storage, keys, spec=self.spec)
        missing = np.ones(len(keys), dtype=np.bool_)
        for hits in lookup.in_file(0, base):
            missing[hits.codes] = False
        if missing.any():
            raise WriteConflictError(
                f"The compaction {instant.requested_time} removed {int(missing.sum())} deleted "
                "rows for good which this write brings back.",
                hint="Nothing was published. Run the write again: it will insert them.",
                context={
                    "other": instant.requested_time,
                    "path": base.path,
                    "key": keys[int(np.flatnonzero(missing)[0])].as_py(),
                },
                retryable=True,
            )


@dataclass(frozen=True, slots=True, eq=False)
class ReadGuard:
    """Refuses a commit that depends on rows which others have changed since."""

    storage: Storage
    properties: TableProperties
    basis: Timeline
    reads: Callable[[str], bool]
    """Whether rows of a partition were asked for, also if it was not there."""

    def __call__(self, timeline: Timeline) -> None:
        """Compare what was read with what was committed since."""
        for instant in completed_since(self.basis, timeline):
            metadata = load_commit_metadata(self.storage, self.properties, instant)
            touched = {
                *(stat.partition_path or "" for stat in metadata.write_stats),
                *(metadata.partition_to_replace_file_ids or {}),
            }
            changed = {partition for partition in touched if self.reads(partition)}
            if changed:
                raise WriteConflictError(
                    f"The write {instant.requested_time} changed partition {min(changed)!r}, which "
                    "this write has read.",
                    hint="Nothing was published. Run the write again: it will read the new rows.",
                    context={"other": instant.requested_time, "partition": min(changed)},
                    retryable=True,
                )


@dataclass(frozen=True, slots=True, eq=False)
class GroupGuard:
    """Refuses a commit that depends on file groups which others have changed since."""

    storage: Storage
    properties: TableProperties
    basis: Timeline
    groups: frozenset[FileGroupId]

    def __call__(self, timeline: Timeline) -> None:
        """Compare what was read with what was committed since."""
        for instant in completed_since(self.basis, timeline):
            metadata = load_commit_metadata(self.storage, self.properties, instant)
            changed = groups_of_commit(metadata) & self.groups
            if changed:
                first = min(changed)
                raise WriteConflictError(
                    f"The write {instant.requested_time} changed {len(changed)} of the file "
                    "groups that this write has read.",
                    hint="Nothing was published. Run the write again: it will read the new rows.",
                    context={
                        "other": instant.requested_time,
                        "partition": first.partition,
                        "file_id": first.file_id,
                    },
                    retryable=True,
                )


@dataclass(frozen=True, slots=True, eq=False)
class BucketGuard:
    """Refuses a commit if a bucket that was not there has got a file group of somebody else."""

    storage: Storage
    properties: TableProperties
    basis: Timeline
    absent: Mapping[tuple[str, int], str]
    """What the file ids of new groups begin with, by partition and bucket; empty where the write
    makes none, because it only deletes."""

    def __call__(self, timeline: Timeline) -> None:
        """Look at the file groups that were committed since."""
        for instant in completed_since(self.basis, timeline):
            metadata = load_commit_metadata(self.storage, self.properties, instant)
            for stat in metadata.write_stats:
                partition, file_id = stat.partition_path or "", stat.file_id or ""
                mine = self.absent.get((partition, bucket_of_file(file_id) or 0))
                if mine is not None and not (mine and file_id.startswith(mine)):
                    raise WriteConflictError(
                        f"The write {instant.requested_time} has created the file group of the "
                        f"same bucket in partition {partition!r}.",
                        hint="Nothing was published. Run the write again: it will use that one.",
                        context={"other": instant.requested_time, "file_id": file_id},
                        retryable=True,
                    )


def _base_files(metadata: CommitMetadata) -> Iterator[BaseFile]:
    for stat in metadata.write_stats:
        name = (stat.path or "").rpartition("/")[2]
        parsed = parse_data_file(name)
        if isinstance(parsed, BaseFileName):
            yield BaseFile(
                stat.partition_path or "",
                name,
                stat.file_size_in_bytes or 0,
                parsed.instant,
                parsed.file_id,
                parsed.write_token,
            )
