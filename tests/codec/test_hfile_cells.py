"""Blocks that are cut where cells seem to begin give the cells of a plain walk, or its error."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.hfile import cells as walking
from lakewright.codec.hfile.blocks import Payloads
from lakewright.codec.hfile.layout import Site
from lakewright.errors import CorruptFileError

END = b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x04"
LURE = struct.pack(">iiH", 15, 1, 3) + b"abc" + END
"""The beginning of a cell, as it may stand in a value."""
SITE = Site("t")


def cell(row: bytes, value: bytes, end: bytes = END) -> bytes:
    key = struct.pack(">H", len(row)) + row + end
    return struct.pack(">ii", len(key), len(value)) + key + value + b"\x00"


def payloads(blocks: list[bytes]) -> Payloads:
    ends = np.cumsum([len(b) for b in blocks]).astype(np.int64)
    starts = np.append(0, ends[:-1]).astype(np.int64)
    return Payloads(np.frombuffer(b"".join(blocks), np.uint8), starts, ends)


def both(made: Payloads) -> None:
    offsets = np.arange(len(made.starts), dtype=np.int64)
    plain = walking._walk_one_by_one(made, offsets, SITE)
    together = walking._walk_together(made, offsets, SITE)
    for ours, theirs in zip(together, plain, strict=True):
        np.testing.assert_array_equal(ours, theirs)


CELLS = st.builds(
    cell,
    st.binary(min_size=0, max_size=40) | st.just(b"k" * 300) | st.just(LURE),
    st.binary(max_size=30) | st.just(LURE) | st.just(LURE * 40) | st.just(END),
    st.sampled_from([END, END, END, b""]),
)


@settings(max_examples=25)
@given(st.lists(CELLS, min_size=5, max_size=12), st.integers(0, 2**32 - 1))
def test_cells_are_those_of_a_plain_walk(kinds: list[bytes], seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(kinds), (33, 260))
    blocks = [b"".join(kinds[n] for n in row) for row in chosen]
    made = payloads([b if len(b) >= 8192 else b * (1 + 8192 // max(1, len(b))) for b in blocks])
    both(made)


def test_most_blocks_are_cut_where_rows_are_alike() -> None:
    blocks = [b"".join(cell(b"%08d" % n, b"v" * (n % 50)) for n in range(300))] * 40
    starts, ends, owners = walking._stretches(payloads(blocks), np.arange(40))
    assert len(starts) == len(ends) == len(owners) > 40 * 7
    both(payloads(blocks))


def test_a_block_that_does_not_end_with_a_cell_is_an_error_with_and_without_cuts() -> None:
    blocks = [b"".join(cell(b"%08d" % n, b"v" * 20) for n in range(300))] * 40
    blocks[17] = blocks[17][:-1]
    made = payloads(blocks)
    offsets = np.arange(40, dtype=np.int64)
    for walk in (walking._walk_together, walking._walk_one_by_one):
        with pytest.raises(CorruptFileError) as caught:
            walk(made, offsets, SITE)
        assert caught.value.context["offset"] == 17
