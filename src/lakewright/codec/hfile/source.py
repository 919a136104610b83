"""Where the bytes of an HFile come from: a buffer in memory, or ranges of a stored object.

A source answers with `Region`s. A small object is fetched whole, a large one by its tail (trailer,
indexes, file info) and then by the blocks that are asked for, neighbours in one request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from lakewright.codec.hfile.blocks import Region
from lakewright.codec.hfile.layout import Site
from lakewright.storage.base import Storage

__all__ = ["MemorySource", "Source", "StoredSource", "stored_source"]

Int64s = npt.NDArray[np.int64]

WHOLE_BELOW: Final = 1 << 20
"""Objects up to this size are fetched in one request."""
_TAIL: Final = 1 << 18
_GAP: Final = 1 << 16
"""Unwanted bytes between two blocks that are fetched rather than asked around."""
_REQUEST: Final = 1 << 26


class Source(Protocol):
    """Random access to the bytes of one HFile."""

    @property
    def size(self) -> int:
        """Bytes of the HFile."""
        ...

    def region(self, begin: int, end: int) -> Region:
        """A region that covers at least `[begin, end)`, both inside the file."""
        ...

    def regions(self, offsets: Int64s, sizes: Int64s) -> Iterator[tuple[Region, slice]]:
        """Regions that together cover blocks given in file order; the slice tells which of them."""
        ...


class MemorySource:
    """All bytes are there already."""

    def __init__(self, data: Any) -> None:
        self._all = Region(np.frombuffer(data, np.uint8), 0)

    @property
    def size(self) -> int:
        """Bytes of the buffer."""
        return len(self._all.data)

    def region(self, begin: int, end: int) -> Region:  # noqa: ARG002
        """The whole buffer, whatever part is asked for."""
        return self._all

    def regions(self, offsets: Int64s, sizes: Int64s) -> Iterator[tuple[Region, slice]]:
        """The whole buffer, once."""
        if len(offsets) == len(sizes) != 0:
            yield self._all, slice(0, len(offsets))


class StoredSource:
    """Ranges of a large object; the tail is kept, blocks are not."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        self._storage = storage
        self._path = path
        self._size = size
        self._site = Site(path)
        self._tail = self._read(max(0, size - _TAIL), size)

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return self._size

    def region(self, begin: int, end: int) -> Region:
        """Part of the kept tail, or one request."""
        if begin >= self._tail.offset:
            return self._tail
        return self._read(begin, end)

    def regions(self, offsets: Int64s, sizes: Int64s) -> Iterator[tuple[Region, slice]]:
        """One request per run of near blocks, each of at most 64 MiB (or one block)."""
        first = 0
        ends = offsets + sizes
        for i in range(1, len(offsets) + 1):  # bounded by the number of blocks
            if i < len(offsets):
                near = offsets[i] - ends[i - 1] <= _GAP
                if near and ends[i] - offsets[first] <= _REQUEST:
                    continue
            yield self._read(int(offsets[first]), int(ends[i - 1])), slice(first, i)
            first = i

    def _read(self, begin: int, end: int) -> Region:
        data = self._storage.read_range(self._path, begin, end - begin)
        if len(data) != end - begin:
            raise self._site.corrupt(f"only {len(data)} of {end - begin} bytes are there", begin)
        return Region(np.frombuffer(data, np.uint8), begin)


def stored_source(storage: Storage, path: str, size: int | None) -> Source:
    """The source for an object of a known size, or of the size the storage tells."""
    known = storage.stat(path).size if size is None else size
    if known <= WHOLE_BELOW:
        return MemorySource(storage.read(path))
    return StoredSource(storage, path, known)
