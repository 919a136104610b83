"""Looking for the keys of a write in Spark's workers.

Base files are divided among tasks; the keys are the hash side and travel to every worker once. What
comes back are places, as numbers. Where few bytes have to be looked at, the driver does it itself,
because a job would take longer. The same goes for rows that would change their partition and must
win against what is stored there first.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from lakewright.engine.keyed.base_merge import MergeRules
from lakewright.engine.keyed.incoming import IncomingRows, codes_by_partition
from lakewright.engine.keyed.log_lookup import LogLookup, LogQuestion
from lakewright.engine.keyed.lookup import Hits, Int32s, KeyLookup
from lakewright.engine.keyed.moves import Moves
from lakewright.engine.keyed.planning import KeyedPlanner
from lakewright.engine.keyed.record_places import codes_by_place
from lakewright.engine.runner import Runner
from lakewright.errors import LakewrightError
from lakewright.format.file_slices import BaseFile, FileSlice
from lakewright.format.key_spec import KeySpec
from lakewright.merge.columns import Bools, Int64s
from lakewright.merge.registry import MergerRegistry
from lakewright.spark.keyed_chunks import decoded, encoded
from lakewright.spark.keyed_rows import arrow_rows, may_pass
from lakewright.spark.keyed_tasks import spread
from lakewright.spark.tasks import PinnedSnapshot, pack
from lakewright.spark.write_run import attempt_here, attempts
from lakewright.storage.resolve import StorageRef
from lakewright.txn.access import Access

__all__ = ["SparkPlanner"]

HERE_BYTES = 512 << 20
HERE_FILES = 64
"""Base files of so many bytes, and so many of them, are looked at by the driver."""
LOOKUPS_KEPT = 2
ANSWER_SCHEMA = "answer binary, error binary"
_InLogs = tuple[int, bytes, FileSlice, bool]
"""A question's number, its keys, its slice, and whether that is asked for whole."""


@dataclass(frozen=True, kw_only=True)
class SparkPlanner(KeyedPlanner):
    """Plans keyed writes, and lets workers look into base files."""

    spark: SparkSession
    ref: StorageRef

    def _hits(
        self,
        incoming: IncomingRows,
        files: Sequence[BaseFile],
        runner: Runner,
        places: Int32s | None,
    ) -> Hits:
        if len(files) <= HERE_FILES and sum(base.size for base in files) <= HERE_BYTES:
            return KeyedPlanner._hits(self, incoming, files, runner, places)  # noqa: SLF001 - its own
        scopes, codes_of, questions = self._questions(incoming, files, places)
        if not questions:
            return Hits.joined([])
        work = _Lookups(self.ref, scopes, self._key_spec, self.index.uses_filters)
        each = self._spread(questions, [base.size for _, _, base in questions])
        found: list[Hits] = []
        for scope, hits in self._answers(work, each):
            codes = codes_of[scope]
            chosen = hits.codes if codes is None else codes[hits.codes].astype(np.int32)
            found.append(Hits(chosen, hits.files, hits.positions))
        return Hits.joined(found)

    def _in_logs(
        self, incoming: IncomingRows, questions: Sequence[LogQuestion], runner: Runner
    ) -> Iterator[Hits]:
        sizes = [_bytes(q.slice_ if q.whole else replace(q.slice_, base=None)) for q in questions]
        if not questions or sum(sizes) <= HERE_BYTES:
            yield from KeyedPlanner._in_logs(self, incoming, questions, runner)  # noqa: SLF001 - its own
            return
        work = _LogLookups(PinnedSnapshot.of(self.job.snapshot, self.ref), self.registry)
        sent = [
            (n, _packed_keys(incoming.keys.take(pa.array(q.codes))), q.slice_, q.whole)
            for n, q in enumerate(questions)
        ]
        for n, found in self._answers(work, self._spread(sent, sizes)):
            yield questions[n].hits(found)

    def _questions(
        self, incoming: IncomingRows, files: Sequence[BaseFile], places: Int32s | None
    ) -> tuple[tuple[bytes, ...], list[np.ndarray | None], list[tuple[int, int, BaseFile]]]:
        """Sets of keys, their numbers in the write, and which of them to look for in which file."""
        if places is None and self.index.is_global:
            every = [(0, number, base) for number, base in enumerate(files)]
            return (_packed_keys(incoming.keys),), [None], every if len(incoming) else []
        scopes: list[bytes] = []
        codes_of: list[np.ndarray | None] = []
        questions: list[tuple[int, int, BaseFile]] = []
        if places is not None:
            for number, codes in codes_by_place(places).items():
                if number < len(files):
                    questions.append((len(scopes), number, files[number]))
                    scopes.append(_packed_keys(incoming.keys.take(pa.array(codes))))
                    codes_of.append(codes)
            return tuple(scopes), codes_of, questions
        by_partition: dict[str, list[tuple[int, BaseFile]]] = {}
        for number, base in enumerate(files):
            by_partition.setdefault(base.partition, []).append((number, base))
        for partition, codes in codes_by_partition(incoming).items():
            if len(codes) and partition in by_partition:
                questions += [(len(scopes), n, base) for n, base in by_partition[partition]]
                scopes.append(_packed_keys(incoming.keys.take(pa.array(codes))))
                codes_of.append(codes)
        return tuple(scopes), codes_of, questions

    def _losers(
        self, incoming: IncomingRows, moved: Hits, slices: Mapping[int, FileSlice]
    ) -> Bools:
        size = sum(_bytes(slice_) for slice_ in slices.values())
        decide = Moves(self.job.snapshot, self.rules, self.registry, self.schema)
        if size <= HERE_BYTES or not len(moved.codes) or decide.newer_wins():
            return KeyedPlanner._losers(self, incoming, moved, slices)  # noqa: SLF001 - its own
        lost = np.zeros(len(incoming), dtype=np.bool_)
        codes_of = {n: np.unique(moved.codes[moved.files == n]) for n in slices}
        pinned = PinnedSnapshot.of(self.job.snapshot, self.ref)
        work = _Meetings(pinned, self.rules, self.registry, self.schema)
        meetings = [(n, encoded(incoming.rows(codes_of[n])), slices[n]) for n in slices]
        each = self._spread(meetings, [_bytes(slices[n]) for n in slices])
        for number, stays in self._answers(work, each):
            lost[codes_of[number][stays]] = True
        return lost

    def _spread(self, work: Sequence[Any], costs: Sequence[int]) -> list[list[Any]]:
        """Pieces of work by task."""
        tasks = spread(costs, self.spark.sparkContext.defaultParallelism)
        each: list[list[Any]] = [[] for _ in range(max(tasks) + 1)]
        for task, piece in zip(tasks, work, strict=True):
            each[task].append(piece)
        return each

    def _answers(self, work: Any, each: Sequence[list[Any]]) -> Iterator[Any]:
        yield from asked(self.job.access, self.spark, work, each)


def asked(
    access: Access, spark: SparkSession, work: Any, each: Sequence[list[Any]]
) -> Iterator[Any]:
    """Let one task for each list of questions answer them; `work.open()` gives what answers."""
    shared, packed, tries = pack(work), [pack(own) for own in each], attempts(spark.sparkContext)

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass  # of a frame that is there for its tasks only
        attempt = attempt_here(tries)
        try:
            reply = _opened(shared)
            for question in pickle.loads(packed[attempt.task]):  # noqa: S301 - made by `pack`
                for said in reply(question):
                    yield _row(pickle.dumps(said), None)
        except LakewrightError as error:
            if may_pass(error) and not attempt.is_last:
                raise
            yield _row(None, pickle.dumps(error))

    frame = spark.range(0, len(each), 1, len(each)).mapInArrow(answer, ANSWER_SCHEMA)
    for batch in arrow_rows(access, frame):
        for said, error in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if error is not None:
                raise pickle.loads(error)  # noqa: S301 - made by a task of ours
            yield pickle.loads(said)  # noqa: S301 - as above


@lru_cache(maxsize=LOOKUPS_KEPT)
def _opened(work: bytes) -> Callable[[Any], Iterator[Any]]:
    opened: Callable[[Any], Iterator[Any]] = pickle.loads(work).open()  # noqa: S301 - made by `pack`
    return opened


@dataclass(frozen=True, slots=True)
class _Lookups:
    """Sets of keys to look for; travels to tasks."""

    storage: StorageRef
    scopes: tuple[bytes, ...]
    spec: KeySpec | None
    filters: bool

    def open(self) -> Callable[[tuple[int, int, BaseFile]], Iterator[tuple[int, Hits]]]:
        """What looks for a set of keys in a file."""
        storage = self.storage.open()
        lookups: dict[int, KeyLookup] = {}

        def look(question: tuple[int, int, BaseFile]) -> Iterator[tuple[int, Hits]]:
            scope, number, base = question
            if scope not in lookups:
                keys = decoded(self.scopes[scope]).column(0)
                lookups[scope] = KeyLookup(storage, keys, spec=self.spec, filters=self.filters)
            hits = Hits.joined(list(lookups[scope].in_file(number, base)))
            if len(hits.codes):
                yield scope, hits

        return look


@dataclass(frozen=True, slots=True)
class _LogLookups:
    """Logs to look for keys in; travels to tasks."""

    snapshot: PinnedSnapshot
    registry: MergerRegistry

    def open(self) -> Callable[[_InLogs], Iterator[tuple[int, Int64s]]]:
        """What looks for keys in the logs of a slice, or in all of it."""
        lookup = LogLookup(self.snapshot.open(), self.registry)

        def look(question: _InLogs) -> Iterator[tuple[int, Int64s]]:
            number, keys, slice_, whole = question
            yield number, lookup.answer(decoded(keys).column(0), slice_, whole=whole)

        return look


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Rows that meet what slices have; travels to tasks."""

    snapshot: PinnedSnapshot
    rules: MergeRules
    registry: MergerRegistry
    schema: pa.Schema

    def open(self) -> Callable[[tuple[int, bytes, FileSlice]], Iterator[tuple[int, Bools]]]:
        """What tells which rows lose against a slice."""
        moves = Moves(self.snapshot.open(), self.rules, self.registry, self.schema)

        def meet(meeting: tuple[int, bytes, FileSlice]) -> Iterator[tuple[int, Bools]]:
            number, rows, slice_ = meeting
            yield number, moves.lost_in(decoded(rows), slice_)

        return meet


def _packed_keys(keys: pa.Array) -> bytes:
    return encoded(pa.RecordBatch.from_arrays([keys], names=["key"]))


def _bytes(slice_: FileSlice) -> int:
    base = slice_.base.size if slice_.base is not None else 0
    return base + sum(log.size for log in slice_.logs)


def _row(answer: bytes | None, error: bytes | None) -> pa.RecordBatch:
    columns = [pa.array([value], pa.binary()) for value in (answer, error)]
    return pa.RecordBatch.from_arrays(columns, names=["answer", "error"])
