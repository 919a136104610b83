"""Free memory goes back to the system."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lakewright.runtime.memory import give_memory_back

MB = 1 << 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_what_was_freed_is_given_back() -> None:
    pool = pa.default_memory_pool()
    blocks = [pa.allocate_buffer(MB, memory_pool=pool) for _ in range(256)]
    for block in blocks:
        memoryview(block).cast("B")[::4096] = b"x" * len(range(0, MB, 4096))
    held = resident()
    del block, blocks
    give_memory_back()
    assert resident() < held - 128 * MB
