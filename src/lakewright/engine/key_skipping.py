"""Skipping by the indexes of records: only file groups that hold one of the asked keys are read.

A filter that names record keys (`_hoodie_record_key`, or values of all key fields), or values of a
column with a secondary index, names file groups through the record index. The index has one place
per key. A table may have a key in several rows all the same: appends do not look keys up, and keys
of one partition may come back in another. So the index decides only if it is known that no key has
two rows: the table has as many rows as the index has keys, and as many with a value as a secondary
index has entries, or the caller says so. That also guards against an index that lost a part of
itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.engine.listing import UNTRUSTED
from lakewright.engine.snapshot import Snapshot
from lakewright.expr import Expr
from lakewright.expr.coerce import is_text
from lakewright.expr.logic import asked_values
from lakewright.format.file_slices import FileSlice
from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.keys import KeySpec, record_keys
from lakewright.merge.config import RECORD_KEY_COLUMN
from lakewright.metadata.file_groups import COLUMN_STATS, RECORD_INDEX, SECONDARY_PREFIX
from lakewright.metadata.secondary_text import secondary_texts
from lakewright.metadata.table import MetadataTable

__all__ = ["slices_by_keys"]

Mask = npt.NDArray[np.bool_]
KEYS_MAX: Final = 100_000
"""Keys that are looked up for one filter; more would touch most file groups anyway."""
GROUPS_MAX: Final = 256
"""File groups of a record index whose keys are counted."""


def slices_by_keys(
    slices: Sequence[FileSlice],
    snapshot: Snapshot,
    where: Expr | None,
    *,
    keys_are_unique: bool,
    every: Sequence[FileSlice] | None = None,
) -> Mask:
    """True for slices that may hold a row of the keys or indexed values that the filter names.

    `every` are all slices of the snapshot, if the caller knows them.
    """
    everything = np.ones(len(slices), np.bool_)
    metadata = snapshot.opened.metadata
    if where is None or metadata is None or len(slices) < 2 or snapshot.bound is not None:
        return everything
    if RECORD_INDEX not in metadata.indexes:
        return everything
    try:
        named = _named_keys(where, snapshot, metadata)
        if named is None:
            return everything
        if not keys_are_unique:
            every = snapshot.live_slices() if every is None else every
            if not _is_whole(named, snapshot, metadata, every):
                return everything
        places = _places(named.keys, metadata, slices)
    except UNTRUSTED as error:
        snapshot.opened.warnings.left_aside("record index", error)
        return everything
    if places is None:
        return everything
    told = places.select(["partition", "file_id"]).to_pylist()
    found = {(row["partition"], row["file_id"]) for row in told}
    kept = [(s.group.partition, s.group.file_id) in found for s in slices]
    return np.array(kept, np.bool_)


def _places(
    keys: pa.Array, metadata: MetadataTable, slices: Sequence[FileSlice]
) -> pa.Table | None:
    """Where keys are, in whichever partition of the slices; None if they would be too many to look
    up in each."""
    if not metadata.layout(RECORD_INDEX).is_parted:
        return metadata.record_index(keys)
    partitions = sorted({slice_.group.partition for slice_ in slices})
    if len(keys) * len(partitions) > KEYS_MAX:
        return None
    of_keys = np.repeat(np.arange(len(keys)), len(partitions))
    within = np.tile(np.arange(len(partitions)), len(keys))
    named = pa.array(partitions, pa.string()).take(pa.array(within))
    return metadata.record_index(keys.take(pa.array(of_keys)), named)


@dataclass(frozen=True, slots=True)
class _NamedKeys:
    """Keys that every row that passes the filter has one of."""

    keys: pa.Array
    by: str | None = None
    """The secondary index that told them."""


def _named_keys(where: Expr, snapshot: Snapshot, metadata: MetadataTable) -> _NamedKeys | None:
    """The keys that a filter names; None if it names none, or too many."""
    for keys in (_stored_keys(where, snapshot), _formed_keys(where, snapshot)):
        if keys is not None and len(keys) <= KEYS_MAX:
            return _NamedKeys(keys)
    for named in _indexed_keys(where, metadata):
        if len(named.keys) <= KEYS_MAX:
            return named
    return None


def _stored_keys(where: Expr, snapshot: Snapshot) -> pa.Array | None:
    if not snapshot.properties.populate_meta_fields:
        return None
    values = asked_values(where, RECORD_KEY_COLUMN)
    return None if values is None else values.cast(pa.string())


def _formed_keys(where: Expr, snapshot: Snapshot) -> pa.Array | None:
    """Keys formed from the values of all key fields, in every way that writers form them."""
    spec = KeySpec.from_properties(snapshot.properties)
    fields = spec.record_key_fields
    if not fields or spec.generator is KeyGeneratorType.USER_PROVIDED:
        return None
    asked = [asked_values(where, name) for name in fields]
    known = [v for v in asked if v is not None and _has_one_text(v)]
    if len(known) < len(fields) or np.prod([len(v) for v in known]) > KEYS_MAX:
        return None
    rows = list(product(*(v.to_pylist() for v in known)))
    arrays = [pa.array(c, v.type) for c, v in zip(zip(*rows, strict=True), known, strict=True)]
    if not rows:
        return pa.array([], pa.string())
    batch = pa.RecordBatch.from_arrays(arrays, names=list(fields))
    if len(fields) == 1:
        bare = arrays[0].cast(pa.string())
        return pa.concat_arrays([bare, pc.binary_join_element_wise(fields[0], bare, ":")])
    return record_keys(batch, spec).cast(pa.string())


def _has_one_text(values: pa.Array) -> bool:
    """Whether all writers put these values into keys alike; of empty text they make a word."""
    if is_text(values.type):
        return not pc.any(pc.equal(values, "")).as_py()
    return bool(pt.is_integer(values.type))


def _indexed_keys(where: Expr, metadata: MetadataTable) -> Iterator[_NamedKeys]:
    """Keys of rows with one of the asked values, by each secondary index."""
    for index in metadata.indexes:
        definition = metadata.definitions.get(index)
        if not index.startswith(SECONDARY_PREFIX) or definition is None:
            continue
        if len(definition.source_fields) != 1:
            continue
        values = asked_values(where, definition.source_fields[0])
        texts = None if values is None else secondary_texts(values)
        if texts is not None:
            found = metadata.secondary_index(index, texts.to_pylist())
            yield _NamedKeys(found["key"].combine_chunks(), index)


def _is_whole(
    named: _NamedKeys, snapshot: Snapshot, metadata: MetadataTable, every: Sequence[FileSlice]
) -> bool:
    """Whether every row of the table has a key of its own in the indexes that are asked."""
    rows = _value_count(RECORD_KEY_COLUMN, snapshot, metadata, every)
    if rows is None or len(metadata.groups(RECORD_INDEX)) > GROUPS_MAX:
        return False
    if rows != metadata.record_index_size():
        return False
    if named.by is None:
        return True
    [column] = metadata.definitions[named.by].source_fields
    valued = _value_count(column, snapshot, metadata, every)
    return valued is not None and valued == metadata.secondary_index_size(named.by)


def _value_count(
    column: str, snapshot: Snapshot, metadata: MetadataTable, slices: Sequence[FileSlice]
) -> int | None:
    """Values of a column that are not null, by the statistics of its base files; None if they do
    not tell, or logs may add or take some."""
    if COLUMN_STATS not in metadata.indexes or any(s.logs for s in slices):
        return None
    schema = snapshot.schema.arrow
    if column not in metadata.statistics_columns() or column not in schema.names:
        return None
    told = metadata.column_stats(pa.schema([schema.field(column)]))[column]
    files = zip(told["partition"].to_pylist(), told["file_name"].to_pylist(), strict=True)
    values = pc.subtract(told["value_count"], told["null_count"]).to_pylist()
    counts = dict(zip(files, values, strict=True))
    found = [counts.get((s.group.partition, s.base.name)) for s in slices if s.base is not None]
    return None if None in found else sum(count for count in found if count is not None)
