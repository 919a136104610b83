"""Scratch space: spilled batches read the same, and the files go away."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakewright.storage.scratch import Scratch


def batch(n: int) -> pa.RecordBatch:
    return pa.record_batch({"a": pa.array(range(n)), "s": pa.array([f"v{i}" for i in range(n)])})


def test_batches_above_the_budget_are_spilled_and_read_the_same(tmp_path: Path) -> None:
    rows = batch(1000)
    with Scratch(rows.get_total_buffer_size(), folder=str(tmp_path)) as scratch:
        first, second = scratch.hold(rows), scratch.hold(rows)
        assert first is rows
        assert second is not rows and second.equals(rows)
        assert scratch.spilled_bytes > 0
        assert len(list(tmp_path.rglob("*.arrow"))) == 1
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_within_the_budget(tmp_path: Path) -> None:
    with Scratch(1 << 20, folder=str(tmp_path)) as scratch:
        scratch.hold(batch(10))
        assert list(tmp_path.iterdir()) == []
        assert scratch.spilled_bytes == 0
