"""Units of work of keyed writes: what a Python worker does for the file groups of its task.

`KeyedWork` travels once per task, as every work of a write (`write_tasks`); the engine's
`write_group` does for each file group what it does without Spark. Rows come in one of two ways: the
driver had them and sends each task the shares of its groups (`sent_shares`), or they come in parts
of chunks from the tasks that kept them. In the second way rows of one key may still be several,
where only a merger that sees whole rows can say what becomes of them; they meet here.

Files carry the number of their group instead of that of the task, so that sequence numbers do not
repeat; the attempt in their names is that of the task.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakewright.engine.keyed.base_merge import MergeRules
from lakewright.engine.keyed.completion import Completion
from lakewright.engine.keyed.group_work import GroupRows, GroupTarget, write_group
from lakewright.engine.keyed.incoming import collect_incoming
from lakewright.engine.keyed.placing import GroupShare
from lakewright.engine.keyed.writer import gone_rows, rows_of
from lakewright.engine.write_context import WriteContext, WriteToken
from lakewright.errors import LakewrightError
from lakewright.format.records import WriteStat
from lakewright.merge.registry import MergerRegistry
from lakewright.runtime.clock import SystemClock
from lakewright.runtime.spawn import ThreadSpawner
from lakewright.spark.keyed_chunks import RoutedRows, gathered, other_rows
from lakewright.spark.keyed_rows import ERROR_PART
from lakewright.spark.tasks import PinnedSnapshot
from lakewright.storage.base import Storage
from lakewright.storage.resolve import StorageRef

__all__ = ["GroupTask", "KeyedWork", "Partial", "sent_shares", "spread"]

TASKS_PER_CORE = 4
"""File groups are put together into about so many tasks, where there are more of them."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupTask:
    """One file group of a write."""

    target: GroupTarget
    task: int
    rows: int = 0
    """How many rows it gets from elsewhere."""
    deleted_keys: pa.Array | None = None
    """Keys that go, besides."""


@dataclass(frozen=True, slots=True)
class Partial:
    """What becomes of rows that bring only some columns along."""

    columns: frozenset[str]
    stored: bool
    """Whether they are stored as they are; otherwise they are completed first."""
    snapshot: PinnedSnapshot
    registry: MergerRegistry

    def apply(self, share: GroupRows, target: GroupTarget) -> GroupRows:
        """The rows of a file group as they are written."""
        if self.stored:
            updates = share.rows.num_rows > share.inserts
            return replace(share, columns=self.columns) if updates else share
        if target.merged is None or not share.rows.num_rows:
            return share
        completion = Completion(self.snapshot.open(), self.registry, self.columns)
        return replace(share, rows=completion.complete(share.rows, target.merged))


@dataclass(frozen=True, slots=True, eq=False)
class KeyedWork:
    """What all tasks of one keyed write share."""

    storage: StorageRef
    context: WriteContext
    rules: MergeRules
    schema: pa.Schema
    """Record key, partition path and the table's columns."""
    groups: tuple[GroupTask, ...]
    """By their numbers."""
    arrives: bool
    """Whether rows come in parts of chunks; otherwise the driver sends shares."""
    folds: bool = False
    """Whether rows of one key may be several."""
    partial: Partial | None = None
    idle: bool = False
    """Whether there are more cores than tasks."""

    def write(self, storage: Storage, batches: Iterable[Any], token: WriteToken) -> list[WriteStat]:
        """Write the file groups of one task."""
        shares = self._arrived(batches, token.task) if self.arrives else _received(batches)
        spawner = ThreadSpawner() if self.idle else None
        stats: list[WriteStat] = []
        for number, share in shares:
            target = self.groups[number].target
            made = share if self.partial is None else self.partial.apply(share, target)
            stats += write_group(
                storage,
                self.context,
                self.rules,
                target,
                made,
                token=replace(token, task=number),
                clock=SystemClock(),
                spawner=spawner,
            )
        return stats

    def _arrived(
        self, batches: Iterable[pa.RecordBatch], task: int
    ) -> Iterator[tuple[int, GroupRows]]:
        parts = [part for batch in batches for part in _parts(batch)]
        found = gathered(parts, self.schema)
        parts.clear()
        for number, group in enumerate(self.groups):
            if group.task != task:
                continue
            rows = found.pop(number, None)
            if (rows.rows.num_rows if rows else 0) != group.rows:
                raise other_rows()
            yield number, self._share(rows, group.deleted_keys)

    def _share(self, came: RoutedRows | None, deleted: pa.Array | None) -> GroupRows:
        if came is None:
            nothing = pa.RecordBatch.from_pylist([], self.schema)
            return GroupRows(nothing, np.zeros(0, np.bool_), 0, deleted_keys=deleted)
        if self.folds:
            return self._folded(came, deleted)
        known = came.positions is not None and not came.inserts
        return GroupRows(
            came.rows,
            came.gone,
            came.inserts,
            positions=came.positions if known else None,
            deleted_keys=deleted,
        )

    def _folded(self, came: RoutedRows, deleted: pa.Array | None) -> GroupRows:
        """One version per key; keys keep the order in which they came first."""
        updates = came.rows.num_rows - came.inserts
        both = [came.rows.slice(0, updates), came.rows.slice(updates)]
        columns = self.partial.columns if self.partial and self.partial.stored else None
        incoming = collect_incoming(
            both,
            self.schema,
            self.rules.config,
            self.rules.merger,
            within_partition=False,
            columns=columns,
        )
        known = len(both[0].column(0).unique())
        codes = np.arange(len(incoming))
        share = GroupShare("", None, updates=codes[:known], inserts=codes[known:])
        made = rows_of(share, incoming, gone_rows(incoming, self.rules))
        keys = [keys for keys in (made.deleted_keys, deleted) if keys is not None]
        return replace(made, deleted_keys=pa.concat_arrays(keys) if keys else None)


def sent_shares(shares: Sequence[tuple[int, GroupRows]]) -> bytes:
    """The shares of one task, for their way to it."""
    return pickle.dumps(shares, protocol=pickle.HIGHEST_PROTOCOL)


def spread(costs: Sequence[int], cores: int) -> list[int]:
    """A task for each of the given pieces of work: few tasks, about the same cost for each."""
    tasks = min(len(costs), cores * TASKS_PER_CORE)
    chosen, loads = [0] * len(costs), [0] * tasks
    for number in sorted(range(len(costs)), key=lambda n: -costs[n]):
        task = min(range(tasks), key=loads.__getitem__)
        chosen[number] = task
        loads[task] += max(1, costs[number])
    return chosen


def _received(pieces: Iterable[bytes]) -> Iterator[tuple[int, GroupRows]]:
    for piece in pieces:
        yield from pickle.loads(piece)  # noqa: S301 - made by `sent_shares`


def _parts(batch: pa.RecordBatch) -> Iterator[tuple[int, int, bytes]]:
    _, part, number, rows = (batch.column(k) for k in range(4))
    for k in range(batch.num_rows):
        if part[k].as_py() == ERROR_PART:
            error: LakewrightError = pickle.loads(rows[k].as_py())  # noqa: S301 - made by a task
            raise error
        yield part[k].as_py(), number[k].as_py(), rows[k].as_py()
