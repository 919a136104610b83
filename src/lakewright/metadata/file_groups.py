"""File groups of the metadata table: their names, and which of them a record belongs to.

An index is a partition of the metadata table with a fixed number of file groups, which is stored
nowhere: readers count the groups that they find. So every group, also one without records, begins
with a stub, a log file that deletes nothing.

A record index may be kept per partition of the table: each has file groups of its own, among which
its keys are spread, and gets them with its first rows. All of them have one number after the other
here, whether they are of one partition or of the whole table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakewright.codec.byte_order import byte_order
from lakewright.errors import MetadataTableError, UnsupportedTableError
from lakewright.format.file_names import BaseFileName, LogFileName
from lakewright.format.log_block import BlockType, HeaderKey, encode_block
from lakewright.format.log_content import encode_delete_rows
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.keys import file_group_index

__all__ = [
    "BLOOM_FILTERS",
    "COLUMN_STATS",
    "EXPRESSION_PREFIX",
    "FILES",
    "NEW_PARTITION_GROUPS",
    "PARTITION_GROUPS_MOST",
    "PARTITION_STATS",
    "RECORD_INDEX",
    "SECONDARY_PREFIX",
    "STUB_ATTEMPT",
    "IndexGroups",
    "base_file_name",
    "file_id",
    "log_file_name",
    "record_index_group_count",
    "split_by_group",
    "stub_block",
]

FILES: Final = "files"
COLUMN_STATS: Final = "column_stats"
PARTITION_STATS: Final = "partition_stats"
RECORD_INDEX: Final = "record_index"
BLOOM_FILTERS: Final = "bloom_filters"
SECONDARY_PREFIX: Final = "secondary_index_"
EXPRESSION_PREFIX: Final = "expr_index_"

STUB_ATTEMPT: Final = "0-0-0"
"""Write token of the log file that a group begins with."""

_ID_PREFIXES: Final = {
    FILES: "files",
    COLUMN_STATS: "col-stats",
    PARTITION_STATS: "partition-stats",
    RECORD_INDEX: "record-index",
    BLOOM_FILTERS: "bloom-filters",
}
NEW_PARTITION_GROUPS: Final = 1
"""File groups that a partition gets when its first rows come, as Hudi's do."""
PARTITION_GROUPS_MOST: Final = 10
_RECORD_BYTES: Final = 48
_EXTENSION: Final = ".hfile"
_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{[]^_-")
_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")
_PARTED_DASHES: Final = 3
"""Behind the prefix of a file id: of the partition, the number and the file index."""


def file_id(index: str, number: int, partition: str | None = None) -> str:
    """The file id of a group: `col-stats-0001-0` is number 1 of `column_stats`; one of the record
    index of a partition names that too."""
    prefix = _ID_PREFIXES.get(index)
    if prefix is None:
        if not index.startswith((SECONDARY_PREFIX, EXPRESSION_PREFIX)):
            raise UnsupportedTableError(
                f"The metadata table's index {index} is unknown.",
                hint="A newer Hudi wrote it; drop that index with Hudi, or write with that Hudi.",
                context={"index": index},
            )
        prefix = index.replace("_", "-")
    if partition is not None:
        prefix = f"{prefix}-{_escaped(partition)}"
    return f"{prefix}-{number:04d}-0"


def _escaped(partition: str) -> str:
    """A partition path as a part of a file id, which has its own use for `-` and `_`."""
    return "".join(f"%{ord(c):02X}" if c < " " or c in _ESCAPED else c for c in partition)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


@dataclass(frozen=True, slots=True)
class IndexGroups:
    """The file groups of an index, numbered one after the other."""

    index: str
    counts: tuple[tuple[str | None, int], ...]
    """How many there are for keys of each partition; under None, alone, for all keys."""

    @classmethod
    def whole(cls, index: str, count: int) -> IndexGroups:
        """So many for all keys."""
        return cls(index, ((None, count),))

    @classmethod
    def parted(cls, index: str, counts: Mapping[str, int]) -> IndexGroups:
        """So many for each partition."""
        return cls(index, tuple(sorted(counts.items())))

    @classmethod
    def named(cls, index: str, file_ids: Collection[str]) -> IndexGroups:
        """Those of these names; `MetadataTableError` if one is missing, or is not of the index."""
        counts: dict[str | None, int] = {}
        for name in file_ids:
            partition = _partition_of(index, name)
            counts[partition] = counts.get(partition, 0) + 1
        groups = cls(index, tuple(sorted(counts.items(), key=lambda each: each[0] or "")))
        mixed = None in counts and len(counts) > 1
        if mixed or not counts or {*groups.file_ids} != {*file_ids}:
            raise MetadataTableError(
                f"The file groups of {index} are not numbered one after the other.",
                hint="A stray file is in the folder, or one is lost; rebuild the index.",
                context={"index": index},
            )
        return groups

    def __len__(self) -> int:
        return sum(count for _, count in self.counts)

    @property
    def is_parted(self) -> bool:
        """Whether keys of each partition have file groups of their own."""
        return not self.counts or self.counts[0][0] is not None

    @property
    def file_ids(self) -> Sequence[str]:
        """The names, by number."""
        return _laid_out(self).file_ids

    @property
    def partitions(self) -> Sequence[str | None]:
        """The partition of each group, by number."""
        return _laid_out(self).partitions

    def scope(self, partition: str) -> str | None:
        """Under what the groups for keys of a partition are counted."""
        return partition if self.is_parted else None

    def numbers_of(self, keys: Any, scope: str | None) -> npt.NDArray[np.int64]:
        """The number of the group of each key of one scope."""
        laid_out = _laid_out(self)
        if scope not in laid_out.firsts:
            raise MetadataTableError(
                f"The index {self.index} has no file groups for the partition '{scope}'.",
                hint="Nothing was published. Rebuild the index.",
                context={"index": self.index, "partition": scope or ""},
            )
        first, count = laid_out.firsts[scope]
        return first + file_group_index(keys, count)

    def with_partitions(self, partitions: Iterable[str]) -> IndexGroups:
        """With groups for these partitions, as many as a new one gets; as they are if all keys
        share them."""
        if not self.is_parted:
            return self
        new = dict.fromkeys(partitions, NEW_PARTITION_GROUPS)
        return IndexGroups.parted(self.index, {**new, **{p or "": n for p, n in self.counts}})

    def agrees(self, now: IndexGroups) -> bool:
        """Whether what was spread among these is right where the table has those `now`: partitions
        that it does not have yet begin with it."""
        if not (self.is_parted and now.is_parted):
            return self == now
        there = dict(now.counts)
        return all(there.get(partition, count) == count for partition, count in self.counts)


@dataclass(frozen=True, slots=True)
class _LaidOut:
    """What is asked of file groups again and again: there may be thousands."""

    file_ids: tuple[str, ...]
    partitions: tuple[str | None, ...]
    firsts: Mapping[str | None, tuple[int, int]]
    """The first number and the count of each scope."""


@lru_cache(maxsize=16)
def _laid_out(groups: IndexGroups) -> _LaidOut:
    firsts = accumulate((count for _, count in groups.counts), initial=0)
    return _LaidOut(
        tuple(file_id(groups.index, n, p) for p, count in groups.counts for n in range(count)),
        tuple(partition for partition, count in groups.counts for _ in range(count)),
        {p: (first, n) for first, (p, n) in zip(firsts, groups.counts, strict=False)},
    )


def _partition_of(index: str, name: str) -> str | None:
    """The partition that a file group is for; None if it is for all."""
    prefix = _ID_PREFIXES[RECORD_INDEX]
    if index != RECORD_INDEX or name.count("-") != prefix.count("-") + _PARTED_DASHES:
        return None
    return _unescaped(name.removeprefix(f"{prefix}-").rsplit("-", 2)[0])


def base_file_name(group: str, *, write_token: str, instant: str) -> str:
    """Name of a base file of a group."""
    return BaseFileName(group, write_token, instant, _EXTENSION).text


def log_file_name(group: str, *, instant: str, version: int = 1, write_token: str) -> str:
    """Name of a log file of a group.

    `instant` is the delta commit's, or where log files carry their slice's, that of its base file.
    """
    return LogFileName(group, instant, version, write_token).text


def stub_block(instant: str) -> bytes:
    """The content of the log file that a group begins with."""
    none = pa.array([], pa.string())
    headers = {HeaderKey.INSTANT_TIME: instant}
    return encode_block(BlockType.DELETE, headers, encode_delete_rows(none, none))


def split_by_group(records: MetadataRecords, groups: int) -> list[MetadataRecords]:
    """The records of each file group, sorted by key."""
    if groups == 1:
        return [records.sorted()]
    numbers = file_group_index(records.keys.cast(pa.string()), groups).astype(np.uint16)
    order = byte_order(records.keys)
    arranged = records.take(pa.array(order[np.argsort(numbers[order], kind="stable")]))
    ends = np.cumsum(np.bincount(numbers, minlength=groups)).tolist()
    return [
        MetadataRecords(arranged.keys[a:b], arranged.values[a:b]) for a, b in pairwise([0, *ends])
    ]


def record_index_group_count(
    records: int,
    *,
    least: int = 10,
    most: int = 10_000,
    growth: float = 2.0,
    group_bytes: int = 1 << 30,
) -> int:
    """File groups of a new record index (or secondary index) for so many records.

    The number stays for the life of the index, so there is room to grow.
    """
    if least == most and least:
        return least
    wanted = int(np.ceil(records * growth)) // max(group_bytes // _RECORD_BYTES, 1)
    return min(max(wanted, least), most)
