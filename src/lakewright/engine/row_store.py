"""Rows of many partitions in any order, kept so that each partition can be read on its own.

Rows are taken in chunks; a chunk is arranged by partition with one stable sort and handed to the
scratch space, which keeps it in memory or in a local file. Memory is about three chunks while rows
come in, and the scratch budget; it does not grow with rows or partitions. Rows of a partition come
back in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import pyarrow as pa

from lakewright.engine.write_context import PARTITION_PATH
from lakewright.storage.scratch import Scratch

__all__ = ["RowStore", "collect_rows", "in_chunks"]

READ_ROWS = 65_536
JOIN_ROWS = 4096
"""Fewer rows of a chunk are joined with those of the next, because each batch costs time."""
CHUNKS_IN_MEMORY = 6
"""Parts of the memory budget that one chunk takes: as it came, as it is arranged, and room for
the scratch space."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    rows: pa.RecordBatch
    places: Mapping[str, tuple[int, int]]
    """First row and number of rows of each partition."""


class RowStore:
    """Collected rows; close it when they are written."""

    def __init__(self, chunks: list[_Chunk], scratch: Scratch) -> None:
        self._chunks = chunks
        self._scratch = scratch
        counts: dict[str, int] = {}
        for chunk in chunks:
            for partition, (_, rows) in chunk.places.items():
                counts[partition] = counts.get(partition, 0) + rows
        self.counts: Mapping[str, int] = dict(sorted(counts.items()))
        """Rows of each partition, by partition path."""

    @property
    def spilled_bytes(self) -> int:
        """Bytes that went to local files."""
        return self._scratch.spilled_bytes

    def rows(
        self, partition: str, start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a partition from `start` up to, not including, `stop`."""
        before, end = 0, self.counts.get(partition, 0) if stop is None else stop
        few: list[pa.RecordBatch] = []
        for chunk in self._chunks:
            first, count = chunk.places.get(partition, (0, 0))
            low, high = max(start - before, 0), min(end - before, count)
            for at in range(low, high, READ_ROWS):
                few.append(chunk.rows.slice(first + at, min(READ_ROWS, high - at)))
                if sum(map(len, few)) >= JOIN_ROWS:
                    yield _joined(few)
                    few = []
            before += count
        if few:
            yield _joined(few)

    def close(self) -> None:
        """Give the space back."""
        self._chunks.clear()
        self._scratch.close()

    def __enter__(self) -> RowStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def collect_rows(
    batches: Iterable[pa.RecordBatch], *, memory_bytes: int, folder: str | None = None
) -> RowStore:
    """Take all rows; batches have a `_hoodie_partition_path` column without nulls."""
    scratch = Scratch(memory_bytes // 2, folder=folder)
    try:
        chunks = [
            _arranged(chunk, scratch)
            for chunk in in_chunks(batches, memory_bytes // CHUNKS_IN_MEMORY)
        ]
    except BaseException:
        scratch.close()
        raise
    return RowStore(chunks, scratch)


def in_chunks(batches: Iterable[pa.RecordBatch], chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about `chunk_bytes`, or larger where they came so."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if size + batch.nbytes > chunk_bytes and waiting:
            yield pa.concat_batches(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _arranged(chunk: pa.RecordBatch, scratch: Scratch) -> _Chunk:
    encoded = chunk.column(PARTITION_PATH).dictionary_encode()
    codes = encoded.indices.to_numpy()
    if (np.diff(codes) < 0).any():
        order = np.argsort(codes, kind="stable")
        chunk = chunk.take(pa.array(order))
    counts = np.bincount(codes, minlength=len(encoded.dictionary))
    starts = np.cumsum(counts) - counts
    names = encoded.dictionary.to_pylist()  # bounded by the partitions of one chunk
    places = dict(zip(names, zip(starts.tolist(), counts.tolist(), strict=True), strict=True))
    return _Chunk(scratch.hold(chunk), places)
