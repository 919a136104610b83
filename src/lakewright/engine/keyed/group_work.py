"""Writing the share of one file group: a merged base file, a log file, or new base files.

The unit of work of every keyed write, here and in tasks elsewhere. Rows come with the share; the
decision which kind of file they become follows from the table type and the share alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakewright.engine.base_writer import write_base_files
from lakewright.engine.keyed.base_merge import Changes, MergeRules, merge_into_base_file
from lakewright.engine.keyed.log_writer import LogEntries, write_log_file
from lakewright.engine.write_context import RECORD_KEY, WriteContext, WriteToken
from lakewright.format.file_slices import BaseFile, FileSlice
from lakewright.format.log_writing import BlockPositions
from lakewright.format.records.commit import WriteStat
from lakewright.merge.columns import Bools, Int64s
from lakewright.merge.ordering import ordering_values
from lakewright.runtime.clock import Clock
from lakewright.runtime.spawn import Spawner
from lakewright.storage.base import Storage

__all__ = ["GroupRows", "GroupTarget", "write_group"]


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """A file group that gets rows; travels to tasks."""

    partition: str
    file_id: str
    """Of a new group of base files: what its ids begin with."""
    slice_: FileSlice | None
    """The newest slice; None for a new group."""
    base: BaseFile | None
    """The newest base file, which is that of an older slice while a compaction is pending."""
    as_log: bool
    """Whether changes are appended; otherwise the base file is written anew."""
    merged: FileSlice | None = None
    """What readers see of the group: the slices before and after a planned compaction as one."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupRows:
    """The rows of a share, one version per key."""

    rows: pa.RecordBatch
    """Record key, partition path and the table's columns."""
    gone: Bools
    """Which of the rows are deletes."""
    inserts: int
    """How many of the rows are new, as far as is known; they come last."""
    positions: Int64s | None = None
    """Rows of the base file that the others are versions of, where known."""
    deleted_keys: pa.Array | None = None
    """Keys that go, whatever is stored."""
    deleted_positions: Int64s | None = None
    columns: frozenset[str] | None = None


def write_group(
    storage: Storage,
    context: WriteContext,
    rules: MergeRules,
    target: GroupTarget,
    share: GroupRows,
    *,
    token: WriteToken,
    clock: Clock,
    spawner: Spawner | None = None,
) -> list[WriteStat]:
    """Write what one file group gets; what the commit says about it."""
    if target.as_log:
        entries = _entries(context, rules, target, share)
        if not entries.rows.num_rows and not entries.deletes:
            return []
        return [
            write_log_file(
                storage,
                context,
                partition=target.partition,
                file_id=target.file_id,
                slice_=target.slice_,
                entries=entries,
                token=token,
                clock=clock,
            )
        ]
    if target.base is not None:
        return [
            merge_into_base_file(
                storage,
                context,
                rules,
                partition=target.partition,
                base=target.base,
                changes=Changes(share.rows, share.deleted_keys, share.columns),
                token=token,
                clock=clock,
                spawner=spawner,
            )
        ]
    alive = share.rows.filter(pa.array(~share.gone)) if share.gone.any() else share.rows
    return write_base_files(
        storage,
        context,
        partition=target.partition,
        file_id_prefix=target.file_id,
        token=token,
        batches=[alive.select(context.incoming_schema.names)],
        clock=clock,
        spawner=spawner,
    )


def _entries(
    context: WriteContext, rules: MergeRules, target: GroupTarget, share: GroupRows
) -> LogEntries:
    """What goes into the log: rows that live, then deletes with what is known of their order."""
    rows, gone = share.rows, share.gone
    alive = np.flatnonzero(~gone)
    dead = np.flatnonzero(gone)
    ordering = None
    keys: list[pa.Array] = []
    if len(dead):
        marked = rows.take(pa.array(dead))
        keys.append(marked.column(RECORD_KEY))
        columns = ordering_values(marked, rules.config.ordering_fields)
        ordering = columns[0] if columns else None
    if share.deleted_keys is not None and len(share.deleted_keys):
        keys.append(share.deleted_keys)
        if ordering is not None:
            ordering = pa.concat_arrays([ordering, pa.nulls(len(keys[-1]), ordering.type)])
    base = target.base.instant if target.base is not None else None
    first_new = rows.num_rows - share.inserts
    incoming = context.incoming_schema.names
    living = rows if not len(dead) else rows.take(pa.array(alive))
    return LogEntries(
        rows=living.select(incoming),
        positions=_placed(base, share.positions, alive, rows.num_rows),
        inserts=int((alive >= first_new).sum()),
        deleted_keys=pa.concat_arrays(keys) if keys else None,
        delete_ordering=ordering,
        delete_positions=_placed_deletes(base, share, dead),
        columns=share.columns,
    )


def _placed(
    base: str | None, positions: Int64s | None, places: Int64s, rows: int
) -> BlockPositions | None:
    """Positions of a block, if all of its rows have one."""
    if base is None or positions is None or len(positions) != rows or not len(places):
        return None
    chosen = positions[places]
    if (chosen < 0).any():
        return None
    return BlockPositions(base, chosen)


def _placed_deletes(base: str | None, share: GroupRows, dead: Int64s) -> BlockPositions | None:
    marked = _placed(base, share.positions, dead, share.rows.num_rows)
    if share.deleted_keys is None or not len(share.deleted_keys):
        return marked
    if base is None or share.deleted_positions is None or (len(dead) and marked is None):
        return None
    both = share.deleted_positions
    if marked is not None:
        both = np.concatenate([marked.positions, both])
    return BlockPositions(base, both)
