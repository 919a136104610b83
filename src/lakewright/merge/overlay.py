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


def overlay(
    base: pa.RecordBatch,
    positions: Int64s,
    replacements: pa.RecordBatch,
    keep: Bools | None = None,
) -> pa.RecordBatch:
    """`base` with `replacements` at `positions`, then only the rows to keep (None: all).

    `positions` are distinct and belong to the replacements one by one; the schemas are equal.
    """
    if not len(positions):
        return base if keep is None else base.filter(pa.array(keep))
    mask = None if keep is None else pa.array(keep)
    gather: pa.Array | None = None
    columns = []
    for old, new in zip(base.columns, replacements.columns, strict=True):
        if _is_unchanged(old, positions, new):
            column = old
        elif _has_fixed_width(old.type):
            column = _scattered(old, positions, new)
        else:
            gather = _gather_index(len(base), positions, keep) if gather is None else gather
            columns.append(pa.concat_arrays([old, new]).take(gather))
            continue
        columns.append(column if mask is None else column.filter(mask))
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
