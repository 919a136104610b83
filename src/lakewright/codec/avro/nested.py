"""Readers of the types that are made of other types: optionals, unions, records, arrays, maps.

They select the lanes that hold a value, let the inner reader move those, and put the result back in
its place; inner readers see only lanes that hold a value of their type.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from lakewright.codec.avro.blocks import BlockWalker, ItemShape
from lakewright.codec.avro.cursor import Flags, Lanes, Positions
from lakewright.codec.avro.readers import MaskedReader, Reader, TextReader, bitmap
from lakewright.codec.avro.scalar import Skipper, skip_entry
from lakewright.errors import FormatError

__all__ = [
    "ArrayReader",
    "MapReader",
    "MergedReader",
    "OptionalReader",
    "RecordReader",
    "UnionReader",
]

_INT32_MAX: Final = (1 << 31) - 1
_NUMBER_BYTES: Final = 32


def _expand(values: pa.Array, present: Flags) -> pa.Array:
    """The values in the places that are present, null elsewhere."""
    index = np.cumsum(present) - 1
    return values.take(pa.array(index, mask=~present))


def _fixed_width(dtype: pa.DataType) -> int:
    """Bytes that a null of this type takes beyond those of a number."""
    if pt.is_struct(dtype):
        return sum(_fixed_width(field.type) for field in dtype)
    wide = pt.is_fixed_size_binary(dtype) and dtype.byte_width > _NUMBER_BYTES
    return int(dtype.byte_width) if wide else 0


class OptionalReader(Reader):
    """`[null, T]` and `[T, null]`."""

    def __init__(self, inner: Reader, null_index: int) -> None:
        self.type = inner.type
        self._inner = inner
        self._null_index = null_index
        self._width = _fixed_width(inner.type)

    def _present(self, lanes: Lanes) -> Flags:
        index = lanes.unsigned(None)
        bad = (index != 0) & (index != 2)
        if bad.any():
            lanes.fail(bad, "there is no union branch with that index")
        present: Flags = index == (2 if self._null_index == 0 else 0)
        return present

    def read(self, lanes: Lanes) -> pa.Array:
        """Values where the flag tells of one, null elsewhere."""
        present = self._present(lanes)
        if present.all():
            return self._inner.read(lanes)
        if self._width:
            lanes.spread(self._width)
        if not present.any():
            return pa.nulls(len(lanes), self.type)
        if isinstance(self._inner, MaskedReader):
            return self._inner.read(lanes, present)
        index = np.flatnonzero(present)
        chosen = lanes.select(index)
        values = self._inner.read(chosen)
        lanes.merge(index, chosen)
        return _expand(values, present)

    def skip(self, lanes: Lanes) -> None:
        """The flag and the value that it tells of."""
        present = self._present(lanes)
        if present.all():
            self._inner.skip(lanes)
        elif isinstance(self._inner, MaskedReader):
            self._inner.skip(lanes, present)
        else:
            index = np.flatnonzero(present)
            chosen = lanes.select(index)
            self._inner.skip(chosen)
            lanes.merge(index, chosen)


def _branches(lanes: Lanes, count: int) -> npt.NDArray[np.signedinteger[np.typing.NBitBase]]:
    index = lanes.varint(None)
    bad = (index < 0) | (index >= count)
    if bad.any():
        lanes.fail(bad, "there is no union branch with that index")
    return index


def _skip_branches(lanes: Lanes, branches: list[Reader]) -> None:
    index = _branches(lanes, len(branches))
    for number, branch in enumerate(branches):
        lane_index = np.flatnonzero(index == number)
        if len(lane_index):
            chosen = lanes.select(lane_index)
            branch.skip(chosen)
            lanes.merge(lane_index, chosen)


class UnionReader(Reader):
    """Any union as a struct with one nullable member per branch, null for the null branch.

    With a single branch the union is that branch.
    """

    def __init__(self, dtype: pa.DataType, branches: list[Reader], null_index: int | None) -> None:
        self.type = dtype
        self._branches = branches
        self._null_index = null_index
        self._width = sum(_fixed_width(branch.type) for branch in branches)

    def read(self, lanes: Lanes) -> pa.Array:
        """Each branch read from the lanes that chose it."""
        index = _branches(lanes, len(self._branches))
        if len(self._branches) == 1:
            return self._branches[0].read(lanes)
        if self._width:
            lanes.spread(self._width)
        members = []
        for number, branch in enumerate(self._branches):
            if number == self._null_index:
                continue
            present = index == number
            where = np.flatnonzero(present)
            if not len(where):
                members.append(pa.nulls(len(lanes), branch.type))
                continue
            chosen = lanes.select(where)
            values = branch.read(chosen)
            lanes.merge(where, chosen)
            members.append(_expand(values, present))
        validity = None if self._null_index is None else bitmap(index != self._null_index)
        return pa.Array.from_buffers(self.type, len(lanes), [validity], children=members)

    def skip(self, lanes: Lanes) -> None:
        """The index and the branch that it chose."""
        _skip_branches(lanes, self._branches)


class MergedReader(Reader):
    """`[int, long]` read as long and `[float, double]` read as double, with or without null."""

    def __init__(self, dtype: pa.DataType, branches: list[Reader], null_index: int | None) -> None:
        self.type = dtype
        self._branches = branches
        self._null_index = null_index

    def read(self, lanes: Lanes) -> pa.Array:
        """Both branches into one array of the wider type."""
        index = _branches(lanes, len(self._branches))
        merged = np.zeros(len(lanes), self.type.to_pandas_dtype())
        for number, branch in enumerate(self._branches):
            where = np.flatnonzero(index == number)
            if number == self._null_index or not len(where):
                continue
            chosen = lanes.select(where)
            merged[where] = branch.read(chosen).to_numpy(zero_copy_only=False)
            lanes.merge(where, chosen)
        validity = None if self._null_index is None else bitmap(index != self._null_index)
        return pa.Array.from_buffers(self.type, len(lanes), [validity, pa.py_buffer(merged)])

    def skip(self, lanes: Lanes) -> None:
        """The index and the branch that it chose."""
        _skip_branches(lanes, self._branches)


class RecordReader(Reader):
    """A nested record as a struct."""

    def __init__(self, dtype: pa.DataType, fields: list[Reader]) -> None:
        self.type = dtype
        self._fields = fields

    def read(self, lanes: Lanes) -> pa.Array:
        """Field after field."""
        columns = [field.read(lanes) for field in self._fields]
        return pa.Array.from_buffers(self.type, len(lanes), [None], children=columns)

    def skip(self, lanes: Lanes) -> None:
        """Field after field."""
        for field in self._fields:
            field.skip(lanes)


def _offsets(counts: Positions, lanes: Lanes) -> pa.Buffer:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    if offsets[-1] > _INT32_MAX:
        raise FormatError(
            f"The arrays of one column hold {offsets[-1]} items, more than an Arrow list can.",
            hint="Leave the column out, or decode fewer records at once.",
            context={"path": lanes.chunk.path, "column": lanes.chunk.column},
        )
    return pa.py_buffer(offsets.astype(np.int32))


class ArrayReader(MaskedReader):
    """An array as a list."""

    def __init__(self, dtype: pa.DataType, item: Reader, step: Skipper, shape: ItemShape) -> None:
        self.type = dtype
        self._item = item
        self._walker = BlockWalker(item, step, shape)

    def read(self, lanes: Lanes, active: Flags | None = None) -> pa.Array:
        """Offsets from the item counts, items from their own lanes."""
        counts, items = self._walker.locate(lanes, active)
        buffers = [bitmap(active), _offsets(counts, lanes)]
        values = self._item.read(items)
        return pa.Array.from_buffers(self.type, len(lanes), buffers, children=[values])

    def skip(self, lanes: Lanes, active: Flags | None = None) -> None:
        """All blocks."""
        self._walker.skip(lanes, active)


class MapReader(MaskedReader):
    """A map as a map; keys are kept in their order, and kept twice where they come twice."""

    def __init__(self, dtype: pa.DataType, value: Reader, step: Skipper, shape: ItemShape) -> None:
        self.type = dtype
        entries = pa.struct([dtype.key_field, dtype.item_field])
        self._entry = RecordReader(entries, [TextReader(pa.string()), value])
        self._walker = BlockWalker(self._entry, skip_entry(step), shape)

    def read(self, lanes: Lanes, active: Flags | None = None) -> pa.Array:
        """Offsets from the entry counts, entries from their own lanes."""
        counts, items = self._walker.locate(lanes, active)
        buffers = [bitmap(active), _offsets(counts, lanes)]
        entries = self._entry.read(items)
        return pa.Array.from_buffers(self.type, len(lanes), buffers, children=[entries])

    def skip(self, lanes: Lanes, active: Flags | None = None) -> None:
        """All blocks."""
        self._walker.skip(lanes, active)
