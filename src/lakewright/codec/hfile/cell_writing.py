"""Cells as columns of keys and values, on their way into the data blocks of an HFile.

The bytes of all cells of a batch are put together at once; per cell nothing is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.hfile.layout_writing import CELL_SUFFIX
from lakewright.errors import FormatError

__all__ = ["CellBatch", "Int64s", "misfit", "no_cells"]

Int64s = npt.NDArray[np.int64]

_HEAD: Final = np.dtype([("key", ">i4"), ("value", ">i4"), ("row", ">u2")])
_VERSION: Final = b"\x00"
_RAW_AT_ONCE: Final = 4 << 20
"""Bytes of cells that are put together at a time."""


@dataclass(frozen=True, slots=True)
class CellBatch:
    """Keys and values, aligned and without nulls."""

    keys: pa.Array
    values: pa.Array

    @classmethod
    def of(cls, keys: Any, values: Any) -> CellBatch:
        """The cells of two columns, whatever kind of text or bytes they are."""
        if len(keys) != len(values) or keys.null_count or values.null_count:
            raise misfit(f"there are {len(keys)} keys and {len(values)} values, or nulls")
        return cls(_binary(keys), _binary(values))

    def __len__(self) -> int:
        return len(self.keys)

    def row(self, at: int) -> bytes:
        """One key."""
        row: bytes = self.keys[at].as_py()
        return row

    def sizes(self) -> tuple[Int64s, Int64s]:
        """Bytes of the cell keys, and of the values."""
        key, value = (
            pc.binary_length(c).to_numpy().astype(np.int64) for c in (self.keys, self.values)
        )
        return key + 2 + len(CELL_SUFFIX), value

    def slice(self, first: int, last: int) -> CellBatch:
        """Cells `first` to `last` (exclusive)."""
        count = last - first
        return CellBatch(self.keys.slice(first, count), self.values.slice(first, count))

    def followed_by(self, other: CellBatch) -> CellBatch:
        """The cells of both."""
        if not len(self):
            return other
        return CellBatch(
            pa.concat_arrays([self.keys, other.keys]), pa.concat_arrays([self.values, other.values])
        )

    def parts(self) -> Iterator[CellBatch]:
        """Pieces of some MiB, or of one cell; large offsets are narrow in them."""
        key, value = self.sizes()
        ends = np.cumsum(key + value)
        first = 0
        while first < len(self):
            begin = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, begin + _RAW_AT_ONCE)), first + 1)
            part = self.slice(first, last)
            yield CellBatch(part.keys.cast(pa.binary()), part.values.cast(pa.binary()))
            first = last

    def cells(self) -> pa.LargeBinaryArray:
        """The bytes of each cell."""
        key, value = self.sizes()
        heads = np.empty(len(self), _HEAD)
        heads["key"], heads["value"] = key, value
        heads["row"] = key - 2 - len(CELL_SUFFIX)
        fixed = pa.binary(_HEAD.itemsize)
        head = pa.Array.from_buffers(fixed, len(self), [None, pa.py_buffer(heads)])
        wide = pa.large_binary()
        return pc.binary_join_element_wise(
            head.cast(wide),
            self.keys.cast(wide),
            pa.scalar(CELL_SUFFIX, wide),
            self.values.cast(wide),
            pa.scalar(_VERSION, wide),
            pa.scalar(b"", wide),
        )


def no_cells() -> CellBatch:
    """A batch without cells."""
    return CellBatch(pa.array([], pa.binary()), pa.array([], pa.binary()))


def _binary(column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    return column.cast(pa.large_binary() if wide else pa.binary())


def misfit(why: str, *, key: bytes | None = None) -> FormatError:
    """The error for cells that cannot be written."""
    told = {} if key is None else {"key": key.decode("utf-8", "replace")}
    return FormatError(
        f"Cells cannot be written into an HFile: {why}.",
        hint="Give every key once, sorted by its bytes, with a value; at most 32767 bytes long.",
        context=told,
    )
