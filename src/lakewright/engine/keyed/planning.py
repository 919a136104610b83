"""Planning a keyed write: from reduced rows to the work of every file group.

Reads base files to find keys, decides, and changes nothing. The plan tells for each file group what
it is, which rows it gets, and what must hold at commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from lakewright.engine.keyed.base_merge import MergeRules
from lakewright.engine.keyed.group_work import GroupTarget
from lakewright.engine.keyed.incoming import IncomingRows, codes_by_partition
from lakewright.engine.keyed.index_type import IndexType
from lakewright.engine.keyed.insert_guard import (
    BucketGuard,
    GroupGuard,
    InsertGuard,
    UpdateGuard,
    all_of,
)
from lakewright.engine.keyed.late_logs import LateLogs
from lakewright.engine.keyed.living_places import living_places
from lakewright.engine.keyed.log_lookup import LogLookup, LogQuestion
from lakewright.engine.keyed.lookup import Hits, Int32s
from lakewright.engine.keyed.moves import Moves, moved_hits
from lakewright.engine.keyed.placing import (
    GroupShare,
    Unfound,
    shares_of_buckets,
    shares_of_hits,
    unfound,
)
from lakewright.engine.keyed.record_places import codes_by_place, record_places
from lakewright.engine.keyed.stored_filters import files_to_ask
from lakewright.engine.keyed.tagging import tag
from lakewright.engine.runner import Runner
from lakewright.engine.sizing import InsertPlan
from lakewright.engine.write_job import NON_BLOCKING, Guard, WriteJob
from lakewright.errors import ConflictError, OptionError
from lakewright.format.buckets import (
    FIXED_TAIL,
    Buckets,
    bucket_of_file,
    bucket_prefix,
    buckets,
)
from lakewright.format.file_slices import BaseFile, FileGroupId, FileSlice, FileSystemView
from lakewright.format.key_spec import KeySpec
from lakewright.merge.columns import Bools
from lakewright.merge.registry import MergerRegistry

__all__ = ["GroupWork", "KeyedPlan", "KeyedPlanner"]

DEFAULT_BUCKETS = 256


@dataclass(frozen=True, slots=True, eq=False)
class GroupWork:
    """One file group and the rows that it gets."""

    target: GroupTarget
    share: GroupShare


@dataclass(frozen=True, slots=True, eq=False)
class KeyedPlan:
    """Everything that a keyed write is going to do."""

    work: Sequence[GroupWork]
    plans: Sequence[InsertPlan] = ()
    """Where new rows go, for those who look at the inflight instant."""
    guard: Guard | None = None
    """What must hold at commit."""
    rolls: bool = True
    """Whether a base file that is large enough is followed by another one."""


@dataclass(frozen=True, slots=True)
class _Group:
    """The newest state of a file group."""

    slice_: FileSlice
    base: BaseFile | None
    merged: FileSlice | None


@dataclass(frozen=True, slots=True)
class KeyedPlanner:
    """Plans the keyed writes of one job."""

    job: WriteJob
    rules: MergeRules
    index: IndexType
    registry: MergerRegistry
    schema: pa.Schema
    """Record key, partition path and the table's columns."""
    in_clustering: frozenset[FileGroupId] = field(default=frozenset())

    def plan(self, incoming: IncomingRows, gone: Bools, runner: Runner) -> KeyedPlan:
        """Where every row goes; `gone` are rows that are deletes."""
        if self.index is IndexType.BUCKET:
            return self._by_hash(incoming, gone)
        return self._by_lookup(incoming, gone, runner)

    # ---- indexes that look ---------------------------------------------------------------------

    def _by_lookup(self, incoming: IncomingRows, gone: Bools, runner: Runner) -> KeyedPlan:
        job, index = self.job, self.index
        partitions, partition_of = incoming.partition_codes()
        view = job.view(None if index.is_global else partitions)
        groups = sorted(_newest(view).values(), key=lambda group: group.base is None)
        files = [group.base for group in groups if group.base is not None]
        places = self._places(incoming, [group.slice_.group for group in groups])
        hits = self._found(incoming, files, groups, runner, places)
        if places is not None and np.setdiff1d(np.flatnonzero(places >= 0), hits.codes).size:
            # The index names places where keys are not: they may be anywhere.
            hits = self._found(incoming, files, groups, runner, None)
        hits = self._living(incoming, hits, groups, runner)
        stay, leaving, lost = hits, None, np.zeros(len(incoming), dtype=np.bool_)
        unmoved: GroupGuard | None = None
        if index.is_global and job.options.moves_partition:
            stay, leaving, lost = self._moved(incoming, hits, groups)
            unmoved = self._group_guard(hits.at(np.flatnonzero(lost[hits.codes])), groups)
        fresh = unfound(stay, gone | lost, partitions, partition_of)
        plans = job.plan_inserts(fresh.counts, view)
        slices = [group.slice_ for group in groups]
        shares = shares_of_hits(stay, slices, fresh, plans, leaving=leaving)
        self._refuse_clustered(shares)
        known = {group.slice_.group: group for group in groups}
        work = [GroupWork(self._target(share, known), share) for share in shares]
        guards = [self._insert_guard(incoming, hits, fresh), unmoved]
        return KeyedPlan(work, plans, all_of([*guards, self._update_guard(incoming, work)]))

    def _found(
        self,
        incoming: IncomingRows,
        files: Sequence[BaseFile],
        groups: Sequence[_Group],
        runner: Runner,
        places: Int32s | None,
    ) -> Hits:
        """Where the keys are, in base files and in logs."""
        hits = self._filtered(incoming, files, runner, places)
        return Hits.joined([hits, self._log_hits(incoming, hits, groups, runner, places)])

    def _filtered(
        self,
        incoming: IncomingRows,
        files: Sequence[BaseFile],
        runner: Runner,
        places: Int32s | None,
    ) -> Hits:
        """Where the keys are in base files, as far as the metadata table does not exclude them."""
        job, index = self.job, self.index
        if not (index.uses_filters and job.options.filters_from_metadata and files):
            return self._hits(incoming, files, runner, places)
        asked = files_to_ask(job.snapshot, incoming, files, within_partition=not index.is_global)
        hits = self._hits(incoming, [files[n] for n in asked], runner, places)
        return Hits(hits.codes, asked[hits.files].astype(np.int32), hits.positions)

    def _places(self, incoming: IncomingRows, groups: Sequence[FileGroupId]) -> Int32s | None:
        """The only file groups that may have each key, if an index tells."""
        if not self.index.uses_records:
            return None
        job = self.job
        partitions = None if self.index.is_global else incoming.partitions
        return record_places(job.snapshot, incoming.keys, partitions, groups, job.access.spawner)

    def _hits(
        self,
        incoming: IncomingRows,
        files: Sequence[BaseFile],
        runner: Runner,
        places: Int32s | None,
    ) -> Hits:
        """Where the keys are; another engine looks in its own way."""
        job, index = self.job, self.index
        return tag(
            job.access.storage,
            incoming,
            files,
            runner=runner,
            within_partition=not index.is_global,
            filters=index.uses_filters,
            spec=self._key_spec,
            places=places,
        )

    def _log_hits(
        self,
        incoming: IncomingRows,
        hits: Hits,
        groups: Sequence[_Group],
        runner: Runner,
        places: Int32s | None,
    ) -> Hits:
        """Where the keys are that only logs have; they have no rows in base files."""
        snapshot = self.job.snapshot
        late = LateLogs(snapshot.storage, snapshot.properties, snapshot.timeline)
        slices = {
            n: group.merged
            for n, group in enumerate(groups)
            if group.merged is not None and (places is not None or late.in_slice(group.merged))
        }
        if not slices:
            return Hits.joined([])
        everywhere = np.arange(len(incoming)) if self.index.is_global else None
        codes_of = {} if everywhere is not None else codes_by_partition(incoming)
        located = None if places is None else codes_by_place(places)
        questions: list[LogQuestion] = []
        for n, slice_ in slices.items():
            within = codes_of.get(slice_.group.partition, everywhere)
            if located is not None:
                within = located.get(n)
            if within is not None and slice_.logs:
                codes = np.setdiff1d(within, hits.codes[hits.files == n])
                questions.append(LogQuestion(n, codes, slice_))
        asked = [question for question in questions if len(question.codes)]
        return Hits.joined(list(self._in_logs(incoming, asked, runner)))

    def _in_logs(
        self, incoming: IncomingRows, questions: Sequence[LogQuestion], runner: Runner
    ) -> Iterator[Hits]:
        """Answers of logs; as `_hits`."""
        lookup = LogLookup(self.job.snapshot, self.registry)

        def answer(question: LogQuestion) -> Iterator[Hits]:
            keys = incoming.keys.take(pa.array(question.codes))
            yield question.hits(lookup.answer(keys, question.slice_, whole=question.whole))

        return runner.stream(questions, answer)

    def _living(
        self, incoming: IncomingRows, hits: Hits, groups: Sequence[_Group], runner: Runner
    ) -> Hits:
        """Without places of deleted rows whose keys are elsewhere too."""
        scopes: Int32s | None = None
        if self.index.is_global and self.job.options.moves_partition:
            _, numbers = np.unique([g.slice_.group.partition for g in groups], return_inverse=True)
            scopes = numbers.astype(np.int32)

        def ask(questions: Sequence[LogQuestion]) -> Hits:
            return Hits.joined(list(self._in_logs(incoming, questions, runner)))

        return living_places(hits, [group.merged for group in groups], ask, scopes=scopes)

    @property
    def _key_spec(self) -> KeySpec | None:
        """Forms the keys of tables that do not store them."""
        stored = self.job.snapshot.properties.populate_meta_fields
        return None if stored else self.job.keys

    def _moved(
        self,
        incoming: IncomingRows,
        hits: Hits,
        groups: Sequence[_Group],
    ) -> tuple[Hits, Hits, Bools]:
        """Places of rows that stay, of rows that leave, and which keys change nothing at all."""
        moved = moved_hits(incoming, hits, [group.slice_.group.partition for group in groups])
        # A delete without a row is for whatever partition its key is in.
        moved &= incoming.state.chosen()[0][hits.codes] >= 0
        leaving = hits.at(np.flatnonzero(moved))
        slices = {
            int(n): slice_
            for n in np.unique(leaving.files)
            if (slice_ := groups[n].merged) is not None
        }
        lost = self._losers(incoming, leaving, slices)
        leaving = leaving.at(np.flatnonzero(~lost[leaving.codes]))
        # A file of the row's own partition may have its key too, of a version that was deleted.
        return hits.at(np.flatnonzero(~moved & ~lost[hits.codes])), leaving, lost

    def _losers(
        self, incoming: IncomingRows, moved: Hits, slices: Mapping[int, FileSlice]
    ) -> Bools:
        """Keys whose stored version wins against the one that would move; as `_hits`."""
        decide = Moves(self.job.snapshot, self.rules, self.registry, self.schema)
        return decide.losers(incoming, moved, slices)

    def _insert_guard(
        self, incoming: IncomingRows, hits: Hits, fresh: Unfound
    ) -> InsertGuard | None:
        """Keys that are inserted, and deletes of keys that are nowhere."""
        absent = np.ones(len(incoming), dtype=np.bool_)
        absent[hits.codes] = False
        absent[fresh.codes] = True
        codes = np.flatnonzero(absent)
        if not len(codes):
            return None
        keys: dict[str | None, pa.Array] = {None: incoming.keys.take(pa.array(codes))}
        if not self.index.is_global:
            keys = {
                path: incoming.keys.take(pa.array(some))
                for path, some in codes_by_partition(incoming, codes).items()
            }
        job, properties = self.job, self.job.snapshot.properties
        return InsertGuard(
            job.access.storage,
            properties,
            job.snapshot.timeline,
            keys,
            LogLookup(job.snapshot, self.registry),
            self._key_spec,
        )

    def _update_guard(
        self, incoming: IncomingRows, work: Sequence[GroupWork]
    ) -> UpdateGuard | None:
        """Keys of base files that logs change."""
        codes = {
            FileGroupId(each.target.partition, each.target.file_id): np.concatenate(
                [each.share.updates_in_base, each.share.removals]
            )
            for each in work
            if each.target.as_log
        }
        if not codes:
            return None
        job, properties = self.job, self.job.snapshot.properties
        keys = {id_: partial(incoming.keys.take, pa.array(some)) for id_, some in codes.items()}
        return UpdateGuard(
            job.access.storage, properties, job.snapshot.timeline, keys, self._key_spec
        )

    def _group_guard(self, lost: Hits, groups: Sequence[_Group]) -> GroupGuard | None:
        """File groups whose rows stay because they won."""
        read = frozenset(groups[n].slice_.group for n in np.unique(lost.files))
        snapshot = self.job.snapshot
        if not read:
            return None
        return GroupGuard(snapshot.storage, snapshot.properties, snapshot.timeline, read)

    # ---- the bucket index ----------------------------------------------------------------------

    def _by_hash(self, incoming: IncomingRows, gone: Bools) -> KeyedPlan:
        job = self.job
        count = self._bucket_count()
        partitions, partition_of = incoming.partition_codes()
        groups = _newest(job.view(partitions))
        slices = _bucket_slices(groups, count)
        bucket_of = self._buckets(incoming.keys, count)
        place_of = partition_of.astype(np.int64) * count + bucket_of
        wanted = {
            int(n): (partitions[int(n // count)], int(n % count)) for n in np.unique(place_of)
        }
        there = np.isin(place_of, [n for n, place in wanted.items() if place in slices])
        # Who does not block others leaves deletes to whatever comes before them in the end.
        left_out = ~there & gone & (job.options.concurrency_mode != NON_BLOCKING)
        absent = dict.fromkeys((place for place in wanted.values() if place not in slices), "")
        for n in np.unique(place_of[~there & ~left_out]):
            absent[wanted[int(n)]] = self._new_bucket(int(n % count))
        shares = shares_of_buckets(
            np.flatnonzero(~left_out), partition_of, partitions, bucket_of, slices, absent
        )
        self._refuse_clustered(shares)
        work = [GroupWork(self._target(share, groups), share) for share in shares]
        snapshot = job.snapshot
        guard = BucketGuard(job.access.storage, snapshot.properties, snapshot.timeline, absent)
        return KeyedPlan(work, guard=guard if absent else None, rolls=False)

    def _buckets(self, keys: pa.Array, count: int) -> Buckets:
        """The bucket of each key, by the rule of the releases that write the table."""
        told = self.job.options.bucket_keys_as_1x
        fields = self.job.options.bucket_fields or self.job.keys.record_key_fields
        as_1x = buckets(keys, fields, count, values_span_commas=True)
        if self.job.snapshot.properties.version.bucket_values_span_commas or told:
            return as_1x
        as_0x = buckets(keys, fields, count, values_span_commas=False)
        if told is None and (differ := np.flatnonzero(as_0x != as_1x)).size:
            raise OptionError(
                f"{len(differ)} keys, as {keys[int(differ[0])].as_py()!r}, fall into other buckets "
                "with Hudi 0.x than with 1.x, and a wrong bucket makes a key two rows.",
                hint="Tell bucket_keys_as_1x in the write options: True if Hudi 1.x writes the "
                "table, False if Hudi 0.x does or nobody else.",
                context={"option": "bucket_keys_as_1x"},
            )
        return as_0x

    def _bucket_count(self) -> int:
        told = self.job.options.bucket_count
        if told is None:
            raise OptionError(
                "The number of buckets is not known.",
                hint="Tell hoodie.bucket.index.num.buckets, the number that every writer of the "
                f"table uses (Hudi's default is {DEFAULT_BUCKETS}).",
                context={"option": "hoodie.bucket.index.num.buckets"},
            )
        return told

    def _new_bucket(self, bucket: int) -> str:
        prefix = bucket_prefix(bucket)
        if self.job.options.concurrency_mode == NON_BLOCKING:
            return prefix + FIXED_TAIL
        return prefix + str(self.job.access.random.uuid())[len(prefix) :]

    # ---- both ----------------------------------------------------------------------------------

    def _target(self, share: GroupShare, groups: Mapping[FileGroupId, _Group]) -> GroupTarget:
        merge_on_read = self.job.snapshot.properties.table_type == "MERGE_ON_READ"
        hashed = self.index is IndexType.BUCKET
        if share.slice_ is None:
            prefix = share.file_id or str(self.job.access.random.uuid())
            log = merge_on_read and hashed
            file_id = f"{prefix}-0" if log else prefix
            return GroupTarget(share.partition, file_id, None, None, as_log=log)
        group = groups[share.slice_.group]
        return GroupTarget(
            share.partition,
            share.slice_.group.file_id,
            share.slice_,
            group.base,
            as_log=merge_on_read and (hashed or not len(share.inserts)),
            merged=group.merged,
        )

    def _refuse_clustered(self, shares: Sequence[GroupShare]) -> None:
        for share in shares:
            if share.slice_ is not None and share.slice_.group in self.in_clustering:
                raise ConflictError(
                    f"File group {share.slice_.group.file_id} is about to be clustered.",
                    hint="Nothing was written. Let the clustering finish, or roll it back.",
                    context={
                        "partition": share.partition,
                        "file_id": share.slice_.group.file_id,
                    },
                    retryable=True,
                )


def _newest(view: FileSystemView) -> dict[FileGroupId, _Group]:
    """Live file groups with their newest slices and base files."""
    bases = {FileGroupId(b.partition, b.file_id): b for b in view.latest_base_files()}
    return {
        s.group: _Group(s, bases.get(s.group), view.merged_slice(s.group))
        for s in view.latest_slices()
    }


def _bucket_slices(
    groups: Mapping[FileGroupId, _Group], count: int
) -> dict[tuple[str, int], FileSlice]:
    """The file group of every bucket; `OptionError` for files that other buckets have made."""
    found: dict[tuple[str, int], FileSlice] = {}
    for id_, group in groups.items():
        bucket = bucket_of_file(id_.file_id)
        place = (id_.partition, -1 if bucket is None else bucket)
        if bucket is None or bucket >= count or place in found:
            raise OptionError(
                f"File group {id_.file_id} is none of {count} buckets of partition "
                f"{id_.partition!r}, or a second one of its bucket.",
                hint="Give the number of buckets that the table was written with "
                "(hoodie.bucket.index.num.buckets).",
                context={"partition": id_.partition, "file_id": id_.file_id},
            )
        found[place] = group.slice_
    return found
