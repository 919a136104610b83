"""Reading the Avro payload of delete blocks (`HoodieDeleteRecordList`) into columns.

The payload has no schema of its own; Hudi decodes it with a compiled one, so field and union order
are fixed here. Records are not length-prefixed: finding them is one serial pass over a handful of
bytes per record, after which keys, partitions and ordering values are cut out in columns.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakewright.format.delete_ordering import (
    Int64s,
    OrderingBranch,
    OrderingValues,
)

_RECORD_BYTES_MIN = 3
_VARINT_BYTES_MAX = 10
_CONTINUED = re.compile(rb"[\x80-\xff]+").match
_ARRAY = int(OrderingBranch.ARRAY)
"""Inside an array this index is a date instead."""
_ARRAY_OCTET = _ARRAY << 1
_INT_OCTET = OrderingBranch.INT << 1
_FIXED_BYTES = {
    int(OrderingBranch.NULL): 0,
    int(OrderingBranch.BOOLEAN): 1,
    int(OrderingBranch.FLOAT): 4,
    int(OrderingBranch.DOUBLE): 8,
}
_VARINTS = frozenset(
    map(
        int,
        (
            OrderingBranch.INT,
            OrderingBranch.LONG,
            OrderingBranch.DATE,
            OrderingBranch.TIME_MICROS,
            OrderingBranch.TIMESTAMP_MICROS,
        ),
    )
)
_PREFIXED = frozenset(
    map(int, (OrderingBranch.BYTES, OrderingBranch.STRING, OrderingBranch.DECIMAL))
)


class DeleteScan:
    """Collects the records of payloads, one after the other, and turns them into columns.

    `add` raises `ValueError` or `IndexError` for bytes that do not decode.
    """

    def __init__(self) -> None:
        self._payloads: list[bytes] = []
        self._cuts: list[Int64s] = []
        """Per record: start and end of the key, start and end of the partition path."""
        self._branches: list[npt.NDArray[np.int8]] = []
        self._null_partitions: list[int] = []
        self._arrays = _PartScan()
        self._bytes = 0
        self._rows = 0

    def add(self, payload: bytes) -> None:
        """Scan one payload to its end."""
        cuts: list[int] = []
        branches: list[int] = []
        cursor = 0
        while True:
            count, cursor = _array_block(payload, cursor, _RECORD_BYTES_MIN)
            if count == 0:
                break
            cursor = self._scan_records(payload, cursor, count, cuts, branches)
        if cursor != len(payload):
            raise ValueError(f"{len(payload) - cursor} bytes after the last record")
        self._cuts.append(np.fromiter(cuts, dtype=np.int64, count=len(cuts)) + self._bytes)
        self._branches.append(np.fromiter(branches, dtype=np.int8, count=len(branches)) >> 1)
        self._payloads.append(payload)
        self._bytes += len(payload)
        self._rows += len(branches)

    def finish(self) -> tuple[pa.StringArray, pa.StringArray, OrderingValues]:
        """Keys, partition paths and ordering values of all records."""
        payload = b"".join(self._payloads)
        cuts = np.concatenate((np.zeros(0, dtype=np.int64), *self._cuts))
        branches = np.concatenate((np.zeros(0, dtype=np.int8), *self._branches))
        pieces = cut_pieces(payload, cuts)
        slots = np.arange(0, len(cuts), 4)
        keys = pieces.take(pa.array(slots)).cast(pa.string())
        missing = np.zeros(len(slots), dtype=bool)
        missing[self._null_partitions] = True
        partitions = pieces.take(pa.array(slots + 2, mask=missing)).cast(pa.string())
        ordering = _columns(payload, branches, cuts[3::4] + 1)
        return keys, partitions, self._arrays.attach(payload, ordering)

    def _scan_records(
        self, payload: bytes, cursor: int, count: int, cuts: list[int], branches: list[int]
    ) -> int:
        """Find every part of `count` records, a number bounded by the payload's length.

        The loop only looks at lengths and branches; values are decoded in columns afterwards.
        """
        cut = cuts.append
        add_branch = branches.append
        for _ in repeat(None, count):
            if payload[cursor] != 2:
                raise ValueError("a record without a key")
            length = payload[cursor + 1]
            if length & 0x81:
                cursor, end = _span(payload, cursor + 1)
            else:
                cursor += 2
                end = cursor + (length >> 1)
            cut(cursor)
            cut(end)
            branch = payload[end]
            if branch == 2:
                length = payload[end + 1]
                if length & 0x81:
                    cursor, end = _span(payload, end + 1)
                else:
                    cursor = end + 2
                    end = cursor + (length >> 1)
            elif branch == 0:
                self._null_partitions.append(self._rows + len(branches))
                cursor = end = end + 1
            else:
                raise ValueError(f"partition path branch {branch}")
            cut(cursor)
            cut(end)
            branch = payload[end]
            if branch == _INT_OCTET and payload[end + 1] < 0x80:
                cursor = end + 2
            elif branch == _ARRAY_OCTET:
                row = self._rows + len(branches)
                cursor = self._arrays.scan(payload, end + 1, row, self._bytes)
            else:
                cursor = _value_end(payload, branch, end + 1)
            add_branch(branch)
        return cursor


def _value_end(payload: bytes, branch_octet: int, cursor: int) -> int:
    """Where the value that begins at `cursor` ends; the octet is the encoded branch."""
    branch = branch_octet >> 1
    if branch_octet & 1 == 0:
        if branch in _VARINTS:
            continued = _CONTINUED(payload, cursor)
            return continued.end() + 1 if continued else cursor + 1
        if branch in _FIXED_BYTES:
            return cursor + _FIXED_BYTES[branch]
        if branch in _PREFIXED:
            return _span(payload, cursor)[1]
    raise ValueError(f"ordering value branch {branch}")


class _PartScan:
    """Collects the values of array branches (several ordering columns)."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._lengths: list[int] = []
        self._branches: list[int] = []
        self._starts: list[int] = []

    def scan(self, payload: bytes, cursor: int, row: int, base: int) -> int:
        """Scan the array of one row; where it ends."""
        present = payload[cursor]
        cursor += 1
        if present not in (0, 2):
            raise ValueError(f"ordering array branch {present}")
        before = len(self._branches)
        while present:
            count, cursor = _array_block(payload, cursor, 1)
            if count == 0:
                break
            for _ in repeat(None, count):
                octet = payload[cursor]
                if octet >> 1 == _ARRAY:
                    octet = OrderingBranch.DATE << 1 | octet & 1
                self._branches.append(octet >> 1)
                self._starts.append(base + cursor + 1)
                cursor = _value_end(payload, octet, cursor + 1)
        self._rows.append(row)
        self._lengths.append(len(self._branches) - before)
        return cursor

    def attach(self, payload: bytes, ordering: OrderingValues) -> OrderingValues:
        """The rows' ordering values with the parts of their arrays."""
        if not self._rows:
            return ordering
        lengths = np.zeros(len(ordering), dtype=np.int64)
        lengths[self._rows] = self._lengths
        branches = np.array(self._branches, dtype=np.int8)
        parts = _columns(payload, branches, np.array(self._starts, dtype=np.int64))
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        return replace(ordering, parts=parts, part_offsets=offsets)


def _columns(payload: bytes, branches: npt.NDArray[np.int8], starts: Int64s) -> OrderingValues:
    """Decode the values that begin at `starts`, branch by branch."""
    octets = np.frombuffer(payload, dtype=np.uint8)
    integers = np.zeros(len(branches), dtype=np.int64)
    reals = np.zeros(len(branches), dtype=np.float64)
    slots = np.full(len(branches), -1, dtype=np.int64)
    cuts: list[Int64s] = []
    filled = 0
    for branch in np.unique(branches).tolist():
        rows = np.flatnonzero(branches == branch)
        at = starts[rows]
        if branch in _VARINTS:
            integers[rows] = _decoded_varints(octets, at)[0]
        elif branch == OrderingBranch.BOOLEAN:
            integers[rows] = octets[at] != 0
        elif branch in (OrderingBranch.FLOAT, OrderingBranch.DOUBLE):
            width = _FIXED_BYTES[branch]
            stored = octets[at[:, None] + np.arange(width)]
            reals[rows] = stored.view(f"<f{width}").ravel()
        elif branch in _PREFIXED:
            lengths, begin = _decoded_varints(octets, at)
            cuts.append(np.column_stack((begin, begin + lengths)).ravel())
            slots[rows] = filled + 2 * np.arange(len(rows))
            filled += 2 * len(rows)
    raw = _scattered_pieces(payload, cuts, slots)
    return OrderingValues(branches=branches, integers=integers, reals=reals, raw=raw)


def _scattered_pieces(payload: bytes, cuts: list[Int64s], slots: Int64s) -> pa.BinaryArray:
    """Piece `slots[i]` for each row, null where it is negative."""
    if not cuts:
        return pa.nulls(len(slots), pa.binary())
    joined = np.concatenate(cuts)
    order = np.argsort(joined[0::2], kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    sorted_cuts = joined.reshape(-1, 2)[order].ravel()
    present = slots >= 0
    index = np.where(present, rank[np.where(present, slots // 2, 0)] * 2, 0)
    return cut_pieces(payload, sorted_cuts).take(pa.array(index, mask=~present))


def _decoded_varints(octets: npt.NDArray[np.uint8], starts: Int64s) -> tuple[Int64s, Int64s]:
    """The zigzag integers that begin at `starts`, and where they end."""
    bits = np.zeros(len(starts), dtype=np.uint64)
    ends = starts.copy()
    rows = np.arange(len(starts))
    for k in range(_VARINT_BYTES_MAX):
        octet = octets[ends[rows]].astype(np.uint64)
        if k == _VARINT_BYTES_MAX - 1 and np.any(octet > 1):
            raise ValueError("integer of more than 64 bits")
        bits[rows] |= (octet & np.uint64(0x7F)) << np.uint64(7 * k)
        ends[rows] += 1
        rows = rows[octet >= 0x80]
        if not len(rows):
            break
    values = (bits >> np.uint64(1)).view(np.int64) ^ -(bits & np.uint64(1)).view(np.int64)
    return values, ends


def _array_block(data: bytes, cursor: int, item_bytes_min: int) -> tuple[int, int]:
    """The item count of an Avro array block, bounded by the bytes that are left."""
    count, cursor = _read_long(data, cursor)
    if count < 0:
        count = -count
        _, cursor = _read_long(data, cursor)
    if count * item_bytes_min > len(data) - cursor:
        raise ValueError(f"{count} items in {len(data) - cursor} bytes")
    return count, cursor


def cut_pieces(payload: bytes, cuts: Int64s) -> pa.BinaryArray:
    """A view of the payload cut at every offset: piece k is `payload[cuts[k]:cuts[k + 1]]`."""
    if len(payload) > np.iinfo(np.int32).max:
        raise ValueError("delete blocks of more than 2 GiB at once")
    offsets = cuts.astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    return pa.Array.from_buffers(pa.binary(), max(len(cuts) - 1, 0), buffers)


def _span(data: bytes, cursor: int) -> tuple[int, int]:
    """Start and end of length-prefixed bytes; that they end inside the data shows later."""
    length = data[cursor]
    if length & 0x81:
        length, cursor = _read_long(data, cursor)
        if not 0 <= length <= len(data):
            raise ValueError(f"text of {length} bytes")
        return cursor, cursor + length
    return cursor + 1, cursor + 1 + (length >> 1)


def _read_long(data: bytes, cursor: int) -> tuple[int, int]:
    """A zigzag variable-length integer of at most 64 bits, and where it ends."""
    octet = data[cursor]
    cursor += 1
    bits = octet & 0x7F
    shift = 7
    while octet & 0x80:
        octet = data[cursor]
        cursor += 1
        bits |= (octet & 0x7F) << shift
        shift += 7
        if shift > 70 or bits >> 64:
            raise ValueError("integer of more than 64 bits")
    return (bits >> 1) ^ -(bits & 1), cursor
