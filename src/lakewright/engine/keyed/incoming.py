"""The rows of a keyed write, one version per key.

Rows come keyed: record key and partition path in front of the table's columns. Several rows of one
key are merged with each other by the table's own merger, in the order in which they came; a key is
a record key within its partition, or within the whole table for global indexes. Keys, ordering
values and masks stay in memory, rows above the budget go to scratch files.

Rows that are marked as deleted stay rows until they meet what is stored. Deletes by key bring no
row at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.engine.write_context import PARTITION_PATH, RECORD_KEY
from lakewright.errors import InputError
from lakewright.merge.columns import Bools, Int64s, path_type
from lakewright.merge.config import MergeConfig
from lakewright.merge.fold import LogVersions
from lakewright.merge.ordering import ordering_values
from lakewright.merge.pool import Hold, in_memory
from lakewright.merge.protocol import Phase, RecordMerger
from lakewright.merge.state import LogState

__all__ = [
    "GLOBAL_KEY",
    "KEYED",
    "IncomingRows",
    "as_deletes",
    "codes_by_partition",
    "collect_deletes",
    "collect_incoming",
    "of_rows",
]

KEYED = (RECORD_KEY, PARTITION_PATH)
GLOBAL_KEY = "_lakewright_key"
"""Tells the rows of one partitioned table apart: partition path and record key in one text."""
_BETWEEN = "\x00"
_SAMPLE = 3


@dataclass(frozen=True, slots=True, eq=False)
class IncomingRows:
    """One version of each key, by its number."""

    state: LogState
    keys: pa.Array
    """Record keys."""
    partitions: pa.Array
    """Partition paths; dictionary-encoded."""
    deleted: Bools
    ordering_columns: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, codes: npt.NDArray[np.integer]) -> pa.RecordBatch:
        """The rows of these keys: record key, partition path, the table's columns."""
        found = self.state.rows(codes)
        if GLOBAL_KEY in found.schema.names:
            found = found.drop_columns([GLOBAL_KEY])
        return found

    def ordering_of(self, codes: Int64s) -> list[pa.Array]:
        """Ordering values of these keys, one array per ordering column."""
        return ordering_values(self.state.rows(codes), self.ordering_columns)

    def partition_codes(self) -> tuple[list[str], npt.NDArray[np.int32]]:
        """Distinct partition paths, and for every key the index of its own."""
        return (
            self.partitions.dictionary.to_pylist(),
            self.partitions.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False),
        )


def collect_incoming(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    merge: MergeConfig,
    merger: RecordMerger,
    *,
    within_partition: bool,
    combine: bool = True,
    columns: frozenset[str] | None = None,
    hold: Hold = in_memory,
) -> IncomingRows:
    """Reduce keyed rows of `schema` to one version per key.

    `within_partition`: the same record key in two partitions means two rows. Without `combine` a
    key that comes twice is an `InputError`, and so is a row without an ordering value where the
    table has an ordering field. `columns`: those that the rows really bring along, where a write
    is partial.
    """
    held = schema.append(pa.field(GLOBAL_KEY, pa.string())) if within_partition else schema
    key = GLOBAL_KEY if within_partition else RECORD_KEY
    context = merge.context(held, Phase.DEDUPE, key_column=key)
    versions = LogVersions(context, merger, hold=hold)
    count = 0
    for batch in batches:
        if columns is None:
            _refuse_unordered(batch, merge.ordering_fields)
        rows = _with_global_key(batch) if within_partition else batch
        versions.add_rows(rows, columns=columns and columns | set(KEYED) | {GLOBAL_KEY})
        count += batch.num_rows
    state = versions.finish()
    if not combine and state.size < count:
        raise _repeated(state, count)
    return of_rows(state, merge)


def collect_deletes(
    batches: Iterable[pa.RecordBatch],
    merge: MergeConfig,
    merger: RecordMerger,
    schema: pa.Schema,
    *,
    within_partition: bool,
) -> IncomingRows:
    """Deletes by key: batches of record keys and partition paths; repeated keys count once.

    Whatever is stored goes, whatever its ordering value; in whatever partition it is, unless
    `within_partition`.
    """
    held = schema.append(pa.field(GLOBAL_KEY, pa.string()))
    context = merge.context(held, Phase.DEDUPE, key_column=GLOBAL_KEY)
    versions = LogVersions(context, merger)
    types = [path_type(schema, path) for path in merge.ordering_fields]
    for batch in batches:
        if not within_partition:
            nowhere = pa.repeat(pa.scalar("", pa.string()), batch.num_rows)
            at = batch.schema.get_field_index(PARTITION_PATH)
            batch = batch.set_column(at, PARTITION_PATH, nowhere)
        keys = _with_global_key(batch).column(GLOBAL_KEY)
        none = [pa.nulls(len(keys), kind) for kind in types]
        versions.add_deletes(keys, none, np.ones(len(keys), dtype=np.bool_))
    state = versions.finish()
    partitions, keys = _split(state.keys)
    deleted = np.ones(state.size, dtype=np.bool_)
    return IncomingRows(state, keys, partitions, deleted, merge.ordering_fields)


def of_rows(state: LogState, merge: MergeConfig) -> IncomingRows:
    """Reduced rows with their keys and paths at hand."""
    _, deleted = state.chosen()
    every = np.arange(state.size)
    told = state.rows(every, list(KEYED))
    return IncomingRows(
        state,
        told.column(RECORD_KEY),
        told.column(PARTITION_PATH).dictionary_encode(),
        deleted,
        merge.ordering_fields,
    )


def as_deletes(incoming: IncomingRows, codes: Int64s) -> IncomingRows:
    """The same, but the versions of these keys are deletes by key; what was given is used up."""
    if len(codes):
        incoming.state.as_deletes(codes)
    return replace(incoming, deleted=incoming.state.chosen()[1])


def codes_by_partition(incoming: IncomingRows, codes: Int64s | None = None) -> Mapping[str, Int64s]:
    """The numbers of keys by the partition they are for; of all keys unless told of which."""
    partitions, partition_of = incoming.partition_codes()
    chosen = np.arange(len(incoming)) if codes is None else codes
    if len(partitions) == 1:
        return {partitions[0]: chosen}
    order = chosen[np.argsort(partition_of[chosen], kind="stable")]
    cuts = np.searchsorted(partition_of[order], np.arange(len(partitions) + 1))
    return {path: order[cuts[k] : cuts[k + 1]] for k, path in enumerate(partitions)}


def _with_global_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    path, key = batch.column(PARTITION_PATH), batch.column(RECORD_KEY)
    both = pc.binary_join_element_wise(path.cast(pa.string()), key, _BETWEEN)
    return batch.append_column(pa.field(GLOBAL_KEY, pa.string()), both)


def _split(both: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Partition paths, dictionary-encoded, and record keys."""
    parts = pc.split_pattern(both, _BETWEEN, max_splits=1)
    flat = parts.flatten()
    every = np.arange(len(both)) * 2
    return flat.take(pa.array(every)).dictionary_encode(), flat.take(pa.array(every + 1))


def _refuse_unordered(batch: pa.RecordBatch, fields: tuple[str, ...]) -> None:
    """Rows that nobody could put in order: Hudi's writers refuse them as well."""
    for path, values in zip(fields, ordering_values(batch, fields), strict=True):
        if values.null_count and not pa.types.is_null(values.type):
            keys = batch.column(RECORD_KEY).filter(values.is_null())
            raise InputError(
                f"The ordering field {path} has no value in {values.null_count} of "
                f"{batch.num_rows} rows.",
                hint="Fill it or leave such rows out; nothing was written.",
                context={"field": path, "sample": keys[:_SAMPLE].to_pylist()},
            )


def _repeated(state: LogState, count: int) -> InputError:
    sample = [str(key).rpartition(_BETWEEN)[2] for key in state.keys[:_SAMPLE].to_pylist()]
    return InputError(
        f"{count - state.size} rows have the key of another row of the same write.",
        hint="Give each key once, or let rows of one key be combined "
        "(hoodie.combine.before.upsert=true). Nothing was written.",
        context={"rows": count, "keys": state.size, "sample": sample},
    )
