"""Scratch space: columns that do not fit the memory budget, kept in memory-mapped Arrow files.

A `Scratch` owns one temporary folder, made on first use and removed by `close`. Held batches stay
valid until then: their pages are backed by the files and given back by the kernel under pressure.
Guarantee: `hold` returns a batch equal to its argument, whether it was spilled or not.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType

import pyarrow as pa


class Scratch:
    """Keeps record batches in memory up to `budget_bytes` and spills the rest to local files."""

    def __init__(self, budget_bytes: int, *, folder: str | None = None) -> None:
        self._budget = budget_bytes
        self._parent = folder
        self._folder: Path | None = None
        self._held = 0
        self._files: list[pa.MemoryMappedFile] = []
        self.spilled_bytes = 0

    def hold(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take charge of a batch; the returned one reads the same rows."""
        size = batch.get_total_buffer_size()
        if self._held + size <= self._budget:
            self._held += size
            return batch
        return self._spill(batch)

    def _spill(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="lakewright-", dir=self._parent))
        path = self._folder / f"{len(self._files)}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        source = pa.memory_map(str(path))
        self._files.append(source)
        self.spilled_bytes += path.stat().st_size
        return pa.ipc.open_file(source).get_batch(0)

    def close(self) -> None:
        """Remove the files. Batches still referenced keep their mapping until they are dropped."""
        self._files.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
