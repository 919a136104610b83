"""Keyed writes on Spark: the engine's own way, with tasks where there is much to do.

Everything that is decided is decided by the engine on the driver: which version of a key counts,
where keys are, where new rows go. It needs keys and the few columns that decide, never whole rows.
What is heavy is done by tasks: looking into many base files, moving rows that are not here, and
writing. Rows of a small write are here; they are sent to the tasks that rewrite base files, or, if
there is little to write at all, written by the driver without a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from lakewright.engine.keyed.base_merge import MergeRules
from lakewright.engine.keyed.incoming import IncomingRows, as_deletes, collect_incoming
from lakewright.engine.keyed.index_type import IndexType
from lakewright.engine.keyed.planning import GroupWork, KeyedPlan
from lakewright.engine.keyed.writer import KeyedWriter, rows_of
from lakewright.engine.write_job import BegunWrite
from lakewright.engine.write_result import WriteResult
from lakewright.errors import InputError
from lakewright.format.records import WriteStat
from lakewright.format.row_keys import PARTITION_PATH, RECORD_KEY
from lakewright.merge.answers import needed_columns
from lakewright.merge.columns import Bools, Int64s, top_level
from lakewright.merge.commit_time import CommitTimeMerger
from lakewright.merge.deletes import DeleteRule, delete_rule
from lakewright.merge.protocol import MergeContext, Phase
from lakewright.spark.keyed_chunks import GONE, INSERTED, Keying, Route
from lakewright.spark.keyed_lookup import SparkPlanner
from lakewright.spark.keyed_rows import Chunk, Routes, WaitingRows
from lakewright.spark.keyed_tasks import GroupTask, KeyedWork, Partial, sent_shares, spread
from lakewright.spark.tasks import PinnedSnapshot
from lakewright.spark.write_run import run_tasks
from lakewright.storage.resolve import StorageRef
from lakewright.storage.scratch import Scratch

__all__ = ["DELETES", "SOURCE", "SparkKeyedWriter"]

DELETES, SOURCE = "_lakewright_deletes", "_lakewright_source"
"""Columns of marks: whether a row deletes, and the number of the source row."""

LIGHT_BYTES = 128 << 20
"""So many bytes, of rows and of the base files that are written anew, need no tasks."""
SAMPLE = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """The rows of keys that have several of them, which only a task can merge."""

    rows: Int64s
    """Numbers of all rows, key by key."""
    starts: Int64s
    """Where the rows of every key begin in `rows`; one more at the end."""

    @classmethod
    def of(cls, codes: npt.NDArray[np.int32], keys: int) -> Repeats:
        """From the key of every row."""
        order = np.argsort(codes, kind="stable")
        return cls(order, np.searchsorted(codes[order], np.arange(keys + 1)))

    @property
    def counts(self) -> Int64s:
        """How many rows every key has."""
        return np.diff(self.starts)

    def rows_of(self, codes: Int64s) -> tuple[Int64s, Int64s]:
        """Numbers of the rows of some keys, and for each the place of its key in `codes`."""
        counts = self.counts[codes]
        places = np.repeat(np.arange(len(codes)), counts)
        within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.rows[self.starts[codes][places] + within], places


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """Rows that are not here, and what is known of them."""

    rows: WaitingRows
    keying: Keying
    chunks: Sequence[Chunk]
    repeats: Repeats | None = None
    """Where tasks must merge rows of one key."""


class Marks:
    """What a merge says of its rows: which of them delete, and of which source row they come."""

    def __init__(self) -> None:
        self._deletes: list[pa.Array] = []
        self._sources: list[pa.Array] = []

    def taken(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows without their marks."""
        for batch in batches:
            self._deletes.append(batch.column(DELETES))
            self._sources.append(batch.column(SOURCE))
            yield batch.drop_columns([DELETES, SOURCE])

    def applied(self, incoming: IncomingRows) -> IncomingRows:
        """The rows of a merge; `InputError` where rows of source and table do not meet in pairs."""
        sources = pa.chunked_array(self._sources, pa.int64())
        several = len(sources) - len(sources.unique())
        if several:
            raise InputError(
                f"{several} rows of the source meet more than one row of the table.",
                hint="Name columns in on= that tell the rows of the table apart. Nothing was "
                "written.",
                context={"rows": len(sources)},
            )
        again = len(sources) - len(incoming)
        if again:
            raise InputError(
                f"{again} rows of the source meet, or would become, the same row of the table as "
                "another one.",
                hint="Give the source one row for each key. Nothing was written.",
                context={"rows": len(sources)},
            )
        deletes = pa.chunked_array(self._deletes, pa.bool_()).to_numpy()
        chosen, _ = incoming.state.chosen()
        return as_deletes(incoming, np.flatnonzero(deletes[chosen]))


@dataclass(frozen=True, kw_only=True)
class SparkKeyedWriter(KeyedWriter):
    """Writes the rows of one job to where their keys are."""

    spark: SparkSession
    ref: StorageRef
    waiting: Waiting | None = None
    """Rows that are not here."""

    # ---- rows that are not here ----------------------------------------------------------------

    def keying(self) -> Keying:
        """How rows get their keys, and what decides about them."""
        job, rules = self.job, self.rules()
        context = self._dedupe(rules)
        rule = getattr(rules.merger, "not_inserted", None)
        names = {
            *(needed_columns(rules.merger, context) or ()),
            *delete_rule(rules.merger, context).columns(self.schema),
            *(rule.columns(self.schema) if isinstance(rule, DeleteRule) else ()),
            *(top_level(path, self.schema) for path in rules.config.ordering_fields),
        }
        known = job.schema.rows.schema.names
        return Keying(job.schema.rows, job.keys, tuple(n for n in known if n in names))

    def decides_in_brief(self) -> bool:
        """Whether rows can wait elsewhere while it is decided about them.

        Where a merger must see whole rows, those of one key meet in a task, which can be found
        unless they may be in several partitions.
        """
        return self._chooses(self.rules()) or not self.index().is_global

    def upsert_waiting(
        self, rows: WaitingRows, keying: Keying, chunks: Sequence[Chunk]
    ) -> WriteResult:
        """Update the rows whose keys are there, insert the others; the rows wait elsewhere."""
        rules, index = self.rules(), self.index()
        config, merger = rules.config, rules.merger
        chooses = self._chooses(rules)
        if not chooses:
            merger = CommitTimeMerger(delete_rule(merger, self._dedupe(rules)))
        if self.columns is not None:
            config = replace(config, ordering_fields=())
        marks = Marks() if keying.marks else None
        briefs = [chunk.brief for chunk in chunks]
        with Scratch(self.memory_bytes) as scratch:
            incoming = collect_incoming(
                briefs if marks is None else marks.taken(briefs),
                keying.brief_schema,
                config,
                merger,
                within_partition=not index.is_global,
                combine=marks is not None or self.job.options.combine_before_upsert,
                hold=scratch.hold,
            )
            if marks is not None:
                incoming = marks.applied(incoming)
            repeats = None
            if not chooses and len(incoming) < sum(chunk.rows for chunk in chunks):
                repeats = Repeats.of(_codes(briefs), len(incoming))
            waiting = Waiting(rows, keying, chunks, repeats)
            return replace(self, waiting=waiting)._write(incoming, rules, index)  # noqa: SLF001

    def upsert_marked(self, batches: Iterable[pa.RecordBatch]) -> WriteResult:
        """Rows that are here and have marks (see `Marks`)."""
        rules, index, marks = self.rules(), self.index(), Marks()
        with Scratch(self.memory_bytes) as scratch:
            incoming = collect_incoming(
                marks.taken(batches),
                self.schema,
                rules.config,
                rules.merger,
                within_partition=not index.is_global,
                hold=scratch.hold,
            )
            return self._write(marks.applied(incoming), rules, index)

    def _chooses(self, rules: MergeRules) -> bool:
        """Whether versions of a key are told apart without seeing them whole."""
        return (
            self.columns is None and needed_columns(rules.merger, self._dedupe(rules)) is not None
        )

    def _dedupe(self, rules: MergeRules) -> MergeContext:
        return rules.config.context(self.schema, Phase.DEDUPE, key_column=RECORD_KEY)

    # ---- the way of every keyed write ----------------------------------------------------------

    def _gone(self, incoming: IncomingRows, rules: MergeRules) -> Bools:
        gone = KeyedWriter._gone(self, incoming, rules)  # noqa: SLF001 - its own
        if self.waiting is not None and self.waiting.repeats is not None:
            gone = gone & (self.waiting.repeats.counts == 1)  # only tasks can tell of the others
        return gone

    def _planner(self, rules: MergeRules, index: IndexType) -> SparkPlanner:
        job = self.job
        schema = self.schema if self.waiting is None else self.waiting.keying.brief_schema
        return SparkPlanner(
            job,
            rules,
            index,
            self.registry,
            schema,
            job.in_clustering(),
            spark=self.spark,
            ref=self.ref,
        )

    def _written(
        self,
        begun: BegunWrite,
        rules: MergeRules,
        incoming: IncomingRows,
        gone: Bools,
        plan: KeyedPlan,
    ) -> list[WriteStat]:
        if not plan.work:
            return []
        if self.waiting is not None:
            return self._moved(begun, rules, incoming, gone, plan, self.waiting)
        width = _width(incoming)
        costs = [_cost(work, width) for work in plan.work]
        if sum(costs) <= LIGHT_BYTES:
            return KeyedWriter._written(self, begun, rules, incoming, gone, plan)  # noqa: SLF001
        task_of = spread(costs, self._cores)
        groups = [GroupTask(w.target, task) for w, task in zip(plan.work, task_of, strict=True)]
        work = self._work(begun, rules, plan, groups)
        numbers: list[list[int]] = [[] for _ in range(max(task_of) + 1)]
        for number, task in enumerate(task_of):
            numbers[task].append(number)
        sent = [
            sent_shares([(n, rows_of(plan.work[n].share, incoming, gone)) for n in own])
            for own in numbers
        ]
        frame = self.spark.range(0, len(sent), 1, len(sent))
        return run_tasks(self.job.access, frame, work, sent=sent)

    def _moved(
        self,
        begun: BegunWrite,
        rules: MergeRules,
        incoming: IncomingRows,
        gone: Bools,
        plan: KeyedPlan,
        waiting: Waiting,
    ) -> list[WriteStat]:
        """Move the rows that wait elsewhere to the tasks that write them."""
        steps = [_steps(work, incoming, gone, waiting) for work in plan.work]
        width = _chunk_width(waiting.chunks)
        costs = [_cost(work, width) for work in plan.work]
        task_of = spread(costs, self._cores)
        groups = [
            GroupTask(work.target, task, len(step.rows), step.removed)
            for work, task, step in zip(plan.work, task_of, steps, strict=True)
        ]
        work = replace(
            self._work(begun, rules, plan, groups), arrives=True, folds=waiting.repeats is not None
        )
        places = np.asarray(task_of, dtype=np.int32)
        routes = Routes(_routes(steps, waiting.chunks), places, max(task_of) + 1)
        return run_tasks(self.job.access, waiting.rows.split(routes), work, batch_rows=1)

    def _work(
        self, begun: BegunWrite, rules: MergeRules, plan: KeyedPlan, groups: Sequence[GroupTask]
    ) -> KeyedWork:
        context = begun.context if plan.rolls else replace(begun.context, max_file_bytes=None)
        tasks = len({group.task for group in groups})
        return KeyedWork(
            self.ref,
            context,
            rules,
            self.schema,
            tuple(groups),
            arrives=False,
            partial=self._partial(rules),
            idle=tasks < self._cores,
        )

    def _partial(self, rules: MergeRules) -> Partial | None:
        if self.columns is None:
            return None
        stored = self._partial_columns(rules, self.index()) is not None
        pinned = PinnedSnapshot.of(self.job.snapshot, self.ref)
        return Partial(self.columns, stored, pinned, self.registry)

    @property
    def _cores(self) -> int:
        return int(self.spark.sparkContext.defaultParallelism)


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """The rows of one file group, by their numbers."""

    rows: Int64s
    flags: npt.NDArray[np.uint8]
    positions: Int64s | None
    removed: pa.Array | None
    """Keys that go without a row."""


def _steps(work: GroupWork, incoming: IncomingRows, gone: Bools, waiting: Waiting) -> _Steps:
    share = work.share
    codes = np.concatenate([share.updates, share.inserts])
    flags = np.zeros(len(codes), dtype=np.uint8)
    flags[len(share.updates) :] = INSERTED
    flags[gone[codes]] |= GONE
    chosen, _ = incoming.state.chosen()
    bare = chosen[codes] < 0
    removed = np.concatenate([codes[bare], share.removals])
    places = np.flatnonzero(~bare)
    rows = chosen[codes[places]]
    if waiting.repeats is not None:
        rows, of_keys = waiting.repeats.rows_of(codes[places])
        places = places[of_keys]
    positions = None
    if share.positions is not None and work.target.as_log and not len(share.inserts):
        positions = share.positions[places]
    keys = incoming.keys.take(pa.array(removed)) if len(removed) else None
    return _Steps(rows, flags[places], positions, keys)


def _routes(
    steps: Sequence[_Steps], chunks: Sequence[Chunk]
) -> dict[tuple[int, int], tuple[int, bytes]]:
    """The way of every chunk."""
    rows = np.concatenate([step.rows for step in steps])
    counts = [len(step.rows) for step in steps]
    slots = np.repeat(np.arange(len(steps), dtype=np.int32), counts)
    flags = np.concatenate([step.flags for step in steps])
    positions: Int64s | None = None
    if any(step.positions is not None for step in steps):
        unknown = [np.full(count, -1, dtype=np.int64) for count in counts]
        known = zip(steps, unknown, strict=True)
        positions = np.concatenate(
            [none if s.positions is None else s.positions for s, none in known]
        )
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    found: dict[tuple[int, int], tuple[int, bytes]] = {}
    start = 0
    for chunk in chunks:
        first, end = np.searchsorted(rows, [start, start + chunk.rows])
        at = order[first:end]
        own = (rows[first:end] - start).astype(np.int32)
        every = len(own) == chunk.rows and bool((own == np.arange(chunk.rows)).all())
        route = Route(
            None if every else own,
            slots[at],
            flags[at],
            None if positions is None else positions[at],
        )
        found[chunk.place] = (chunk.mark, route.packed())
        start += chunk.rows
    return found


def _codes(briefs: Sequence[pa.RecordBatch]) -> npt.NDArray[np.int32]:
    """The key of every row, numbered as the engine numbers them: as they come."""
    names = (PARTITION_PATH, RECORD_KEY)
    both = [
        pc.binary_join_element_wise(*(brief.column(name) for name in names), "\x00")
        for brief in briefs
    ]
    coded = pa.chunked_array(both).dictionary_encode()
    return np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks])


def _cost(work: GroupWork, width: int) -> int:
    """About how many bytes are to be read and written."""
    base = work.target.base
    rewritten = base.size if base is not None and not work.target.as_log else 0
    return rewritten + work.share.size * width


def _width(incoming: IncomingRows) -> int:
    """Bytes of a row that is here."""
    some = np.flatnonzero(incoming.state.chosen()[0] >= 0)[:SAMPLE]
    if not len(some):
        return int(incoming.keys.nbytes // max(1, len(incoming)))
    return max(1, int(incoming.rows(some).nbytes) // len(some))


def _chunk_width(chunks: Sequence[Chunk]) -> int:
    """Bytes of a row that waits, packed."""
    rows = sum(chunk.rows for chunk in chunks)
    size = sum(chunk.size or chunk.brief.nbytes for chunk in chunks)
    return max(1, size // max(1, rows))
