"""Ordering values of delete records: a union on disk, typed columns in memory.

A delete carries its ordering value in one of twelve wrappers, chosen by its writer, not by the
table's schema. `OrderingValues` keeps branch and value per row in columns and converts them to the
type of the ordering column. A delete without a value (null, or the int 0 that writers put there)
is unordered: it wins over everything earlier, and its converted value is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from lakewright.errors import SchemaError

Int8s = npt.NDArray[np.int8]
Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

DECIMAL_WRAPPER_TYPE: Final = pa.decimal128(30, 15)
MILLIS_MAX: Final = 9_999_999_999_999
"""A long on a millisecond column above this was written in microseconds."""
_DECIMAL_BYTES = 16


class OrderingBranch(IntEnum):
    """Branches of `orderingVal` by their index in the union."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    STRING = 7
    DATE = 8
    DECIMAL = 9
    TIME_MICROS = 10
    TIMESTAMP_MICROS = 11
    ARRAY = 12
    """Several ordering fields; inside an array the same index is a date."""


_NUMBER_BRANCH: Final = {
    pa.int32(): OrderingBranch.INT,
    pa.int64(): OrderingBranch.LONG,
    pa.float32(): OrderingBranch.FLOAT,
    pa.float64(): OrderingBranch.DOUBLE,
}
_REALS = (OrderingBranch.FLOAT, OrderingBranch.DOUBLE)


@dataclass(frozen=True, slots=True, eq=False)
class OrderingValues:
    """One ordering value per row: `branches[i]` says which of the columns holds it."""

    branches: Int8s
    integers: Int64s
    """Values of the boolean, int, long, date, time and timestamp branches."""
    reals: Float64s
    """Values of the float and double branches."""
    raw: pa.BinaryArray
    """Bytes of the bytes, string and decimal branches."""
    parts: OrderingValues | None = None
    """Values of all array branches, one after the other, if there are any."""
    part_offsets: Int64s | None = None
    """Row i's parts are `parts[part_offsets[i]:part_offsets[i + 1]]`."""

    def __len__(self) -> int:
        return len(self.branches)

    @property
    def unordered(self) -> Bools:
        """Rows without an ordering value: null, or int 0. Zeros of other types are values."""
        is_int = self.branches == OrderingBranch.INT
        unordered: Bools = (self.branches == OrderingBranch.NULL) | (is_int & (self.integers == 0))
        return unordered

    def of_other_class(self, target: pa.DataType) -> Bools:
        """Rows whose number has another width than the ordering column.

        Every Hudi release lets such a delete win, because it compares only values of one class;
        they arise when an ordering column was promoted after the delete was written.
        """
        expected = _NUMBER_BRANCH.get(target)
        if expected is None:
            return np.zeros(len(self), dtype=np.bool_)
        numbers = np.isin(self.branches, list(_NUMBER_BRANCH.values()))
        other: Bools = numbers & (self.branches != expected)
        return other

    def as_type(self, target: pa.DataType) -> pa.Array:
        """The values of a single ordering column of type `target`; null where unordered.

        Raises `SchemaError` if a value cannot be represented in that type without loss.
        """
        return self.values_where(~self.unordered, target)

    def as_types(self, targets: Sequence[pa.DataType]) -> list[pa.Array]:
        """The values of several ordering columns; null where unordered or null in the array."""
        if len(targets) == 1 and self.parts is None:
            return [self.as_type(targets[0])]
        if not targets:
            return []
        rows = np.flatnonzero(~self.unordered)
        if len(rows) and (self.parts is None or self.part_offsets is None):
            raise self._mismatch(self.branches[rows[0]], f"{len(targets)} ordering columns")
        starts = self._part_starts(rows, len(targets))
        index = np.full(len(self), -1, dtype=np.int64)
        index[rows] = np.arange(len(rows))
        spread = pa.array(index, mask=index < 0)
        return [self._part_column(starts + k, t).take(spread) for k, t in enumerate(targets)]

    def _part_column(self, at: Int64s, target: pa.DataType) -> pa.Array:
        if self.parts is None:
            return pa.nulls(len(at), target)
        column = OrderingValues(
            self.parts.branches[at],
            self.parts.integers[at],
            self.parts.reals[at],
            self.parts.raw.take(pa.array(at)),
        )
        return column.values_where(column.present_for(target), target)

    def _part_starts(self, rows: Int64s, width: int) -> Int64s:
        if self.part_offsets is None:
            return np.zeros(0, dtype=np.int64)
        scalar = rows[self.branches[rows] != OrderingBranch.ARRAY]
        if len(scalar):
            raise self._mismatch(self.branches[scalar[0]], f"{width} ordering columns")
        lengths = np.diff(self.part_offsets)[rows]
        if np.any(lengths != width):
            raise SchemaError(
                f"A delete has {int(lengths[lengths != width][0])} ordering values where the "
                f"table has {width} ordering columns.",
                hint="The ordering columns of the table changed after the delete was written; "
                "compact the table with the old setting first.",
            )
        return self.part_offsets[rows]

    def present_for(self, target: pa.DataType) -> Bools:
        """Parts that hold a value: int 0 stands for null where the column is not a number."""
        if _fits(OrderingBranch.INT, target):
            present: Bools = self.branches != OrderingBranch.NULL
            return present
        return ~self.unordered

    def values_where(self, wanted: Bools, target: pa.DataType) -> pa.Array:
        """The wanted rows converted to `target`, null elsewhere."""
        pieces: list[pa.Array] = []
        index = np.full(len(self), -1, dtype=np.int64)
        filled = 0
        for branch in np.unique(self.branches[wanted]).tolist():
            rows = np.flatnonzero(wanted & (self.branches == branch))
            try:
                pieces.append(self._branch_values(OrderingBranch(branch), rows, target))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
                raise self._mismatch(branch, f"a column of type {target}") from cause
            index[rows] = np.arange(filled, filled + len(rows))
            filled += len(rows)
        if not pieces:
            return pa.nulls(len(self), target)
        joined = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        if filled == len(self) and len(pieces) == 1:
            return joined
        return joined.take(pa.array(index, mask=index < 0))

    def _branch_values(self, branch: OrderingBranch, rows: Int64s, target: pa.DataType) -> pa.Array:
        if not _fits(branch, target):
            raise self._mismatch(branch, f"a column of type {target}")
        if branch in _REALS:
            return pa.array(self.reals[rows]).cast(target)
        if branch is OrderingBranch.DECIMAL:
            return _decimals(self.raw.take(pa.array(rows))).cast(target)
        if branch in (OrderingBranch.BYTES, OrderingBranch.STRING):
            return self.raw.take(pa.array(rows)).cast(target)
        return _from_integers(self.integers[rows], branch, target)

    @staticmethod
    def _mismatch(branch: int, wanted: str) -> SchemaError:
        kind = OrderingBranch(branch).name
        return SchemaError(
            f"A delete's ordering value of kind {kind} does not fit {wanted}.",
            hint="The ordering column changed its type after the delete was written; compact the "
            "table with the engine that wrote it.",
        )


def _fits(branch: OrderingBranch, target: pa.DataType) -> bool:
    """Whether Hudi compares a value of this branch with a column of this type."""
    number = pt.is_integer(target) or pt.is_floating(target) or pt.is_decimal(target)
    temporal = pt.is_temporal(target) and not pt.is_interval(target)
    match branch:
        case OrderingBranch.BOOLEAN:
            return bool(pt.is_boolean(target))
        case OrderingBranch.INT | OrderingBranch.LONG:
            return bool(number or temporal)
        case OrderingBranch.FLOAT | OrderingBranch.DOUBLE | OrderingBranch.DECIMAL:
            return bool(number)
        case OrderingBranch.BYTES:
            return bool(
                pt.is_binary(target)
                or pt.is_large_binary(target)
                or pt.is_fixed_size_binary(target)
            )
        case OrderingBranch.STRING:
            return bool(pt.is_string(target) or pt.is_large_string(target))
        case OrderingBranch.DATE:
            return bool(pt.is_date(target) or pt.is_integer(target))
        case OrderingBranch.TIME_MICROS:
            return bool(pt.is_time(target) or pt.is_integer(target))
        case OrderingBranch.TIMESTAMP_MICROS:
            return bool(pt.is_timestamp(target) or pt.is_integer(target))
    return False


def _from_integers(values: Int64s, branch: OrderingBranch, target: pa.DataType) -> pa.Array:
    if pt.is_timestamp(target):
        micros = branch is OrderingBranch.TIMESTAMP_MICROS
        if target.unit == "ms" and not micros:
            values = np.where(values > MILLIS_MAX, values // 1000, values)
        source = pa.timestamp("us" if micros else target.unit, target.tz)
        return pa.array(values).cast(source).cast(target, safe=target.unit == "ns")
    if pt.is_time(target):
        if branch is OrderingBranch.TIME_MICROS:
            return pa.array(values).cast(pa.time64("us")).cast(target, safe=False)
        return _resized(values, target).cast(target)
    if pt.is_date(target):
        return pa.array(values).cast(pa.int32()).cast(pa.date32()).cast(target)
    if pt.is_decimal(target):
        return pa.array(values).cast(pa.decimal256(38 + target.scale, target.scale)).cast(target)
    if pt.is_floating(target):
        return pa.array(values).cast(target, safe=False)
    return pa.array(values).cast(target)


def _resized(values: Int64s, target: pa.DataType) -> pa.Array:
    return pa.array(values).cast(pa.int32() if target.bit_width == 32 else pa.int64())


def _decimals(raw: pa.BinaryArray) -> pa.Array:
    """Big-endian two's complement of any length up to 16 bytes as decimals of scale 15."""
    offsets = np.frombuffer(raw.buffers()[1], dtype=np.int32)[raw.offset :][: len(raw) + 1]
    starts, ends = offsets[:-1], offsets[1:]
    lengths = ends - starts
    if len(raw) and (lengths.min() < 1 or lengths.max() > _DECIMAL_BYTES):
        raise pa.ArrowInvalid("decimal of an impossible length")
    octets = np.frombuffer(raw.buffers()[2], dtype=np.uint8)
    little_endian = np.zeros((len(raw), _DECIMAL_BYTES), dtype=np.uint8)
    if len(raw):
        little_endian[octets[starts] >= 0x80] = 0xFF
        for k in range(int(lengths.max())):
            rows = np.flatnonzero(lengths > k)
            little_endian[rows, k] = octets[ends[rows] - 1 - k]
    values = pa.Array.from_buffers(
        DECIMAL_WRAPPER_TYPE, len(raw), [None, pa.py_buffer(little_endian)]
    )
    values.validate(full=True)
    return values
