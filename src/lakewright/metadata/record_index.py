"""Look-ups of records: where a key is (`record_index`), which keys have a value (secondary index).

An answer is complete or an error: a reader that cannot read an index must never be taken for one
that found nothing, because a writer would then insert the record again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.hashing import ByteRows
from lakewright.codec.hfile.cells import gather
from lakewright.errors import MetadataTableError
from lakewright.metadata.file_groups import IndexGroups
from lakewright.metadata.keys import file_group_index, secondary_prefix, unescaped
from lakewright.metadata.record_schema import RECORD_INDEX, SECONDARY_INDEX, RecordKind
from lakewright.metadata.records import (
    Decoded,
    FileGroupReader,
    Keys,
    Part,
    Prefixes,
    broken,
    decoded,
    living,
)
from lakewright.runtime.lanes import in_lanes
from lakewright.runtime.spawn import Spawner

__all__ = [
    "NO_FILE_INDEX",
    "RECORD_LOCATIONS",
    "TEXT_ENCODING",
    "UUID_ENCODING",
    "located",
    "record_locations",
    "require_placed",
    "secondary_keys",
    "without_deleted",
]

UUID_ENCODING: Final = 0
TEXT_ENCODING: Final = 1
NO_FILE_INDEX: Final = -1
"""How file ids are stored: as the numbers of a UUID with a file index or none, or as text."""

LANES: Final = 2
"""File groups of the index that are read at a time; most of the work is on the processor."""

RECORD_LOCATIONS: Final = pa.schema(
    [
        ("key", pa.string()),
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("instant_ms", pa.int64()),
    ]
)
"""`instant_ms` is the commit's time as epoch milliseconds, read in the writing JVM's zone."""


def record_locations(
    readers: Sequence[FileGroupReader],
    layout: IndexGroups,
    keys: pa.StringArray,
    partitions: pa.StringArray | None = None,
    *,
    spawner: Spawner | None = None,
    lanes: int = LANES,
) -> pa.Table:
    """For each key the file group that holds it, aligned with `keys`; null where there is none.

    `partitions` has that of each key, if the index is kept per partition; keys of one that it does
    not have are nowhere. With a spawner, `lanes` file groups of the index are read at a time.
    """
    asked = _asked(layout, keys, partitions)

    def read(number: int) -> list[Part]:
        require_placed([readers[number]], layout, first=number)
        return living(readers[number].read(Keys(asked[number].cast(pa.binary()))), newest_only=True)

    numbers = sorted(asked)
    if spawner is None:
        found = [read(number) for number in numbers]
    else:
        found = in_lanes(read, numbers, spawner=spawner, lanes=lanes, few=1)
    if partitions is None:
        table = located([part for parts in found for part in parts])
        at = pc.index_in(keys, value_set=table["key"].combine_chunks())
    else:
        owners = layout.partitions
        tables = [_of_partition(owners[n], p) for n, p in zip(numbers, found, strict=True)]
        table = pa.concat_tables([RECORD_LOCATIONS.empty_table(), *tables]).combine_chunks()
        told = _within(table["partition"].combine_chunks(), table["key"].combine_chunks())
        at = pc.index_in(_within(partitions, keys), value_set=told)
    return table.take(at).set_column(0, "key", keys)


def _asked(
    layout: IndexGroups, keys: pa.StringArray, partitions: pa.StringArray | None
) -> dict[int, pa.StringArray]:
    """The keys that each file group is asked for, once each."""
    scopes: Iterable[tuple[str | None, pa.StringArray]] = [(None, keys)]
    if partitions is not None:
        there = {scope for scope, _ in layout.counts}
        named = [p for p in pc.unique(partitions).to_pylist() if p in there]
        scopes = ((p, keys.filter(pc.equal(partitions, p))) for p in named)
    asked: dict[int, pa.StringArray] = {}
    for scope, some in scopes:
        wanted = pc.unique(some.drop_null())
        of_keys = layout.numbers_of(wanted, scope)
        arranged = wanted.take(pa.array(np.argsort(of_keys, kind="stable")))
        numbers, counts = np.unique(of_keys, return_counts=True)
        ends = np.cumsum(counts).tolist()
        for number, (begin, end) in zip(numbers.tolist(), pairwise([0, *ends]), strict=True):
            asked[number] = arranged.slice(begin, end - begin)
    return asked


def _within(partitions: pa.StringArray, keys: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise(partitions, keys, "\0")


def _of_partition(partition: str | None, parts: Sequence[Part]) -> pa.Table:
    """The places of keys that a file group of a partition has; `MetadataTableError` if one is
    elsewhere."""
    table = located(parts)
    right = pc.fill_null(pc.equal(table["partition"], partition), False)
    if not pc.all(right, min_count=0).as_py():
        raise broken(f"keys of the partition '{partition}' are told to be elsewhere", parts[0].path)
    return table


def require_placed(
    readers: Sequence[FileGroupReader], layout: IndexGroups, *, first: int = 0
) -> None:
    """Raise `MetadataTableError` if keys of file groups, from number `first` on, do not belong into
    them.

    The number of file groups is stored nowhere. Where one of them is lost, all keys are looked for
    in the wrong place and none is found; but what is stored still tells where it was put.
    """
    scopes = layout.partitions
    for number, reader in enumerate(readers, first):
        found = pa.array(reader.first_keys(), pa.binary())
        if len(found):
            belongs = layout.numbers_of(_as_keys(found, reader.path), scopes[number])
            if (belongs != number).any():
                raise broken(
                    f"keys of file group {number} of {len(layout)} belong into another",
                    reader.path,
                )


def located(parts: Sequence[Part]) -> pa.Table:
    """The keys of records of the index with their places."""
    found = [RECORD_LOCATIONS.empty_table()]
    for run in decoded(parts, ("type", RECORD_INDEX)):
        _require_type(run, RecordKind.RECORD_INDEX)
        info = run.rows.column(RECORD_INDEX)
        fields = dict(zip([f.name for f in info.type], info.flatten(), strict=True))
        columns = [
            _as_keys(run.keys, run.path),
            fields["partitionName"],
            _file_ids(fields, run.path),
            fields["instantTime"],
        ]
        found.append(pa.table(columns, schema=RECORD_LOCATIONS))
    return pa.concat_tables(found).combine_chunks()


def _file_ids(fields: dict[str, pa.Array], path: str) -> pa.StringArray:
    """Text of the file ids; each distinct one is formed once."""
    parts = {
        "encoding": fields["fileIdEncoding"],
        "high": fields["fileIdHighBits"],
        "low": fields["fileIdLowBits"],
        "index": fields["fileIndex"],
        "text": fields["fileId"],
    }
    told = pa.RecordBatch.from_pydict(parts)
    codes, distinct = np.zeros(len(told), np.int64), min(len(told), 1)
    for column in told.columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        both = pa.array(codes * len(encoded.dictionary) + np.asarray(encoded.indices))
        codes, distinct = _numbered(both)
    firsts = np.empty(distinct, np.int64)
    firsts[codes[::-1]] = np.arange(len(told))[::-1]
    names = [_file_id(row, path) for row in told.take(pa.array(firsts)).to_pylist()]
    return pa.array(names, pa.string()).take(pa.array(codes))


def _numbered(values: pa.Array) -> tuple[npt.NDArray[np.int64], int]:
    """The number of each value among the distinct ones, and how many these are."""
    encoded = values.dictionary_encode()
    return np.asarray(encoded.indices).astype(np.int64), len(encoded.dictionary)


def _file_id(row: dict[str, Any], path: str) -> str | None:
    if row["encoding"] == TEXT_ENCODING:
        if row["text"] is None:
            raise broken("a record has no file id", path)
        return str(row["text"])
    if row["encoding"] != UUID_ENCODING or row["high"] is None or row["low"] is None:
        raise MetadataTableError(
            f"The record index has a file id of the unknown encoding {row['encoding']}.",
            hint="A newer release wrote it; look keys up without the record index.",
            context={"path": path, "offset": 0},
        )
    bits = (row["high"] % (1 << 64)) << 64 | row["low"] % (1 << 64)
    index = row["index"]
    return str(UUID(int=bits)) + ("" if index in (None, NO_FILE_INDEX) else f"-{index}")


def secondary_keys(
    readers: Sequence[FileGroupReader],
    values: Sequence[str | None],
    *,
    by_value: bool,
) -> pa.Table:
    """Record keys that have one of the values (as text): columns value, key.

    `by_value` tells that the index spreads its entries by the value (version 2), so that only the
    file groups of the asked values are read.
    """
    asked = list(dict.fromkeys(values))
    prefixes = secondary_prefix(asked)
    groups: npt.NDArray[np.int64] | None = None
    if by_value:
        groups = file_group_index(pa.array(prefixes, pa.binary()).cast(pa.string()), len(readers))
    parts: list[Part] = []
    for number, reader in enumerate(readers):
        mine = (
            prefixes if groups is None else [prefixes[i] for i in np.flatnonzero(groups == number)]
        )
        if mine:
            parts += living(reader.read(Prefixes(tuple(mine))), newest_only=True)
    return _split(without_deleted(parts), asked, prefixes)


def without_deleted(parts: Sequence[Part]) -> pa.BinaryArray:
    """Keys of the live entries of a secondary index."""
    keys: list[pa.BinaryArray] = [pa.array([], pa.binary())]
    for run in decoded(parts, ("type", SECONDARY_INDEX)):
        _require_type(run, RecordKind.SECONDARY_INDEX)
        deleted = pc.struct_field(run.rows.column(SECONDARY_INDEX), "isDeleted")
        kept = run.keys.filter(pc.invert(pc.fill_null(deleted, False)))
        _as_keys(kept, run.path)
        keys.append(kept)
    return pa.concat_arrays(keys)


def _split(keys: pa.BinaryArray, values: Sequence[str | None], prefixes: list[bytes]) -> pa.Table:
    """The value and the record key of each index key; one pass per asked value."""
    schema = pa.schema([("value", pa.string()), ("key", pa.string())])
    tables = [schema.empty_table()]
    for value, prefix in zip(values, prefixes, strict=True):
        mine = keys.filter(pc.starts_with(keys, pattern=prefix))
        rows = ByteRows.of(mine)
        behind = gather(rows.data, rows.starts + len(prefix), rows.starts + rows.lengths)
        records = unescaped(behind.cast(pa.string()))
        column = pa.array([value], pa.string()).take(pa.array(np.zeros(len(mine), np.int64)))
        tables.append(pa.table([column, records], schema=schema))
    return pa.concat_tables(tables).combine_chunks()


def _require_type(run: Decoded, wanted: RecordKind) -> None:
    found = pc.unique(run.rows.column("type")).to_pylist()
    if found not in ([], [wanted]):
        raise broken(f"there are types {found} where type {wanted.value} belongs", run.path)


def _as_keys(keys: pa.BinaryArray, path: str) -> pa.StringArray:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise broken("a key is not UTF-8", path) from error
