"""Putting replacement rows into a batch, column by column.

Columns of fixed width are copied once and written at the replaced positions; the others are
gathered from both sides in one pass. A column whose replacements equal what they replace, as keys
and partition paths do, is not touched at all; `touched_columns` tells the others.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from lakewright.merge.columns import Bools, Int64s

_WORDS: Final = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_DOUBLE_WORD: Final = 128
_SAMPLE: Final = 16
"""Replacements that are looked at before a whole column is compared."""


class Placing:
    """Where replacement rows go among base rows, and which rows are kept then (None: all)."""

    def __init__(self, size: int, positions: Int64s, keep: Bools | None = None) -> None:
        """`positions` are distinct, and among `size` rows."""
        self._size = size
        self._positions = positions
        self._keep = keep
        self.mask = None if keep is None else pa.array(keep)
        """Which rows are kept."""
        self._gather: pa.Array | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether all rows stay as they are."""
        return self._keep is None and not len(self._positions)

    @property
    def rows(self) -> int:
        """How many there are then."""
        return self._size if self._keep is None else int(self._keep.sum())

    @property
    def removed(self) -> int:
        """How many go."""
        return self._size - self.rows

    @property
    def replaced(self) -> int:
        """How many get other values."""
        return len(self._positions)

    def kept(self, column: pa.Array) -> pa.Array:
        """A column of base rows, or of as many, without those that go."""
        return column if self.mask is None else column.filter(self.mask)

    def column(self, old: pa.Array, new: pa.Array) -> pa.Array:
        """A column with the `new` values at their positions; `old` itself if nothing changes."""
        if not len(self._positions) or _is_unchanged(old, self._positions, new):
            return self.kept(old)
        if _has_fixed_width(old.type):
            return self.kept(_scattered(old, self._positions, new))
        if self._gather is None:
            self._gather = _gather_index(self._size, self._positions, self._keep)
        return pa.concat_arrays([old, new]).take(self._gather)


def overlay(
    base: pa.RecordBatch,
    positions: Int64s,
    replacements: pa.RecordBatch,
    keep: Bools | None = None,
) -> pa.RecordBatch:
    """`base` with `replacements` at `positions`, then only the rows to keep (None: all).

    `positions` are distinct and belong to the replacements one by one; the schemas are equal.
    """
    placing = Placing(base.num_rows, positions, keep)
    if placing.changes_nothing:
        return base
    pairs = zip(base.columns, replacements.columns, strict=True)
    columns = [placing.column(old, new) for old, new in pairs]
    return pa.RecordBatch.from_arrays(columns, schema=base.schema)


def touched_columns(base: pa.RecordBatch, rows: pa.RecordBatch) -> frozenset[str] | None:
    """Columns of an overlaid batch that are not those of `base`; None if rows are missing."""
    if rows is base:
        return frozenset()
    if rows.num_rows != base.num_rows:
        return None
    columns = zip(rows.schema.names, base.columns, rows.columns, strict=True)
    return frozenset(name for name, old, new in columns if _places(old) != _places(new))


def _places(column: pa.Array) -> tuple[int, list[int | None]]:
    """Where the values of a column lie in memory."""
    return column.offset, [b if b is None else b.address for b in column.buffers()]


def _gather_index(size: int, positions: Int64s, keep: Bools | None) -> pa.Array:
    index = np.arange(size, dtype=np.int64)
    index[positions] = np.arange(size, size + len(positions))
    return pa.array(index if keep is None else index[keep])


def _has_fixed_width(kind: pa.DataType) -> bool:
    if not (pt.is_primitive(kind) or pt.is_decimal128(kind)):
        return False
    return kind.bit_width in _WORDS or kind.bit_width in (1, _DOUBLE_WORD)


def _is_unchanged(old: pa.Array, positions: Int64s, new: pa.Array) -> bool:
    if not old.take(pa.array(positions[:_SAMPLE])).equals(new[:_SAMPLE]):
        return False
    return bool(old.take(pa.array(positions)).equals(new))


def _scattered(old: pa.Array, positions: Int64s, new: pa.Array) -> pa.Array:
    width = old.type.bit_width
    if width == 1:
        bits = _bits(old, 1)
        bits[positions] = _bits(new, 1)
        values = pa.py_buffer(np.packbits(bits, bitorder="little"))
    else:
        words = _words(old, width).copy()
        words[positions] = _words(new, width)
        values = pa.py_buffer(words)
    validity = None
    if old.null_count or new.null_count:
        bits = _bits(old, 0)
        bits[positions] = _bits(new, 0)
        validity = pa.py_buffer(np.packbits(bits, bitorder="little"))
    return pa.Array.from_buffers(old.type, len(old), [validity, values])


def _words(column: pa.Array, width: int) -> npt.NDArray[np.unsignedinteger]:
    """The values of a column; two words in a row for values of 128 bits."""
    per_value = width // 64 if width == _DOUBLE_WORD else 1
    kind = np.dtype(_WORDS[min(width, 64)])
    words = np.frombuffer(
        column.buffers()[1],
        dtype=kind,
        count=len(column) * per_value,
        offset=column.offset * per_value * kind.itemsize,
    )
    return words if per_value == 1 else words.reshape(-1, per_value)


def _bits(column: pa.Array, buffer: int) -> npt.NDArray[np.uint8]:
    """A bitmap as one byte per row, to be written; all set if there is none."""
    bitmap = column.buffers()[buffer]
    if bitmap is None:
        return np.ones(len(column), dtype=np.uint8)
    first, skipped = divmod(column.offset, 8)
    octets = np.frombuffer(bitmap, dtype=np.uint8)[first:]
    return np.unpackbits(octets, count=skipped + len(column), bitorder="little")[skipped:]
