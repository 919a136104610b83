"""The last look before a commit: whether others have added the same keys, or changed what was read.

Hudi lets two writers insert the same new key, because new file groups never meet. Here the base
files that were committed since the write looked at the table are asked for the keys that it did not
find, under the lock: a hit is a conflict, and the write can be done again on the new state. Deletes
of keys that were not there ask as well; otherwise they would come before what they followed. Files
that were asked once are not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakewright.engine.keyed.lookup import Hits, KeyLookup
from lakewright.engine.write_job import Guard
from lakewright.errors import WriteConflictError
from lakewright.format.buckets import bucket_of_file
from lakewright.format.file_names import BaseFileName, parse_data_file
from lakewright.format.file_slices import BaseFile, FileGroupId
from lakewright.format.instant import Instant
from lakewright.format.key_spec import KeySpec
from lakewright.format.records import CommitMetadata, load_commit_metadata
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import Timeline
from lakewright.storage.base import Storage
from lakewright.txn.conflict import completed_since, groups_of_commit

__all__ = ["BucketGuard", "GroupGuard", "InsertGuard", "ReadGuard", "all_of"]


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
    spec: KeySpec | None = None
    """Forms the keys of tables that do not store them."""
    _asked: set[str] = field(default_factory=set)

    def __call__(self, timeline: Timeline) -> None:
        """Look into what was committed since."""
        for instant, base in self._added(timeline):
            if base.path in self._asked:
                continue
            for scope in (base.partition, None):
                keys = self.absent.get(scope)
                if keys is not None and len(keys):
                    self._refuse(instant, base, keys)
            self._asked.add(base.path)

    def _added(self, timeline: Timeline) -> Iterator[tuple[Instant, BaseFile]]:
        for instant in completed_since(self.basis, timeline):
            metadata = load_commit_metadata(self.storage, self.properties, instant)
            for base in _base_files(metadata):
                yield instant, base

    def _refuse(self, instant: Instant, base: BaseFile, keys: pa.Array) -> None:
        lookup = KeyLookup(self.storage, keys, spec=self.spec, filters=self.spec is None)
        hits = Hits.joined(list(lookup.in_file(0, base)))
        if not len(hits.codes):
            return
        raise WriteConflictError(
            f"The write {instant.requested_time} added {len(hits.codes)} of the keys that this "
            "write inserts or deletes.",
            hint="Nothing was published. Run the write again: it will find them.",
            context={
                "other": instant.requested_time,
                "path": base.path,
                "key": keys[int(hits.codes[0])].as_py(),
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
