"""Incoming rows: whatever offers an Arrow stream, as batches that can be asked for again.

Tables, batches and data frames can be read any number of times; a reader or a generator only once,
so where a write may have to be repeated its rows are kept in scratch space while they pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lakewright.errors import InputError
from lakewright.storage.scratch import Scratch

__all__ = ["RowSource"]

BATCH_ROWS = 65_536


class RowSource:
    """The rows of one write."""

    def __init__(self, data: Any, *, keep_bytes: int | None = None) -> None:
        """`keep_bytes` is the memory for rows that can be had only once but may be needed again;
        None: they are not."""
        self._data = data
        self._reader: pa.RecordBatchReader | None = None
        self._scratch = Scratch(keep_bytes) if keep_bytes is not None else None
        self._kept: list[pa.RecordBatch] = []
        self.schema: pa.Schema | None = None
        """The columns of the rows; None for a write without rows."""
        if data is None:
            return
        if isinstance(data, pa.RecordBatch):
            self._data = pa.Table.from_batches([data])
        if isinstance(self._data, pa.Table):
            self.schema = self._data.schema
        else:
            self._reader = _reader(data)
            self.schema = self._reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows; a second time only where that is possible."""
        if isinstance(self._data, pa.Table):
            yield from self._data.to_batches(max_chunksize=BATCH_ROWS)
            return
        if self._reader is None:
            yield from self._kept
            return
        reader, self._reader = self._reader, None
        for batch in reader:
            yield self._keep(batch)

    def close(self) -> None:
        """Give the space of kept rows back."""
        self._kept.clear()
        if self._scratch is not None:
            self._scratch.close()

    def _keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._scratch is None:
            return batch
        held = self._scratch.hold(batch)
        self._kept.append(held)
        return held


def _reader(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    raise InputError(
        f"Rows cannot be read from {type(data).__name__}.",
        hint="Pass a pyarrow Table, RecordBatch or RecordBatchReader, or anything else that offers "
        "an Arrow stream (polars and pandas data frames, DuckDB relations).",
        context={"type": type(data).__name__},
    )
