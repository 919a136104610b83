"""Record positions: the vectors of real tables, equality both ways, and bad bytes."""

from __future__ import annotations

import base64
import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.codec.roaring import decode_positions, encode_positions
from lakewright.errors import CorruptFileError

VECTORS = {
    "AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAAAEAAAAAIA": [2],
    "AQAAAAAAAAAAAAAAOzAAAAEAAGIAAQAAAGIA": list(range(99)),
    "AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAQAEAAAAAAAAQACAAQABQA=": [0, 1, 2, 4, 5],
}


@pytest.mark.parametrize(("text", "positions"), VECTORS.items())
def test_text_of_real_log_blocks_is_read_and_written(text: str, positions: list[int]) -> None:
    assert decode_positions(text).tolist() == positions
    assert encode_positions(np.array(positions)) == text


position = st.one_of(
    st.integers(0, 300), st.integers(0, 200_000), st.integers(0, 2**33), st.integers(0, 2**63 - 1)
)


@given(st.sets(position, max_size=200))
def test_what_is_written_is_read_again(positions: set[int]) -> None:
    assert decode_positions(encode_positions(sorted(positions))).tolist() == sorted(positions)


@pytest.mark.parametrize(
    "positions",
    [
        np.arange(0, 200_000, 3),
        np.arange(0, 10_000, 2),
        np.arange(70_000, 300_000),
        np.concatenate([np.arange(5000), np.arange(6000, 140_000, 2), [1 << 40, 1 << 62]]),
        np.arange(4096) * 2,
        np.arange(4097) * 2,
        np.zeros(0, np.int64),
    ],
    ids=["bitmaps", "bitmap", "runs", "mixed", "fullest-array", "smallest-bitmap", "empty"],
)
def test_every_kind_of_container_survives(positions: np.ndarray) -> None:
    assert np.array_equal(decode_positions(encode_positions(positions)), positions)


@pytest.mark.parametrize("positions", [[2, 1], [1, 1], [-1, 2]])
def test_positions_out_of_order_are_not_written(positions: list[int]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        encode_positions(positions)


def text(*parts: bytes) -> str:
    return base64.b64encode(b"".join(parts)).decode()


ONE = struct.pack("<QI", 1, 0)


@pytest.mark.parametrize(
    "broken",
    [
        "not base64!",
        text(b"\x01"),
        text(struct.pack("<Q", 1 << 60)),
        text(ONE, struct.pack("<I", 99)),
        text(ONE, struct.pack("<II", 12346, 1 << 30)),
        text(ONE, struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 5), b"left"),
        text(ONE, struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 5, 5)),
        text(ONE, struct.pack("<IIHHHHII", 12346, 2, 3, 0, 3, 0, 0, 0), bytes(4)),
        text(ONE, struct.pack("<IBHHHHH", 12347, 1, 0, 9, 1, 0, 3)),
        text(ONE, struct.pack("<IBHHHHHHH", 12347, 1, 0, 9, 2, 0, 5, 3, 3)),
        text(ONE, struct.pack("<IBHHHHH", 12347, 1, 0, 9, 1, 65535, 9)),
        text(struct.pack("<QI", 1, 1 << 31), struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 5)),
    ],
)
def test_broken_text_is_an_error(broken: str) -> None:
    with pytest.raises(CorruptFileError):
        decode_positions(broken)


def test_a_small_text_cannot_claim_more_positions_than_the_caller_expects() -> None:
    many = encode_positions(np.arange(1 << 20))
    assert len(many) < 400
    with pytest.raises(CorruptFileError, match="more than 1000"):
        decode_positions(many, limit=1000)


def test_mutated_text_gives_positions_or_an_error() -> None:
    rng = random.Random(11)
    seeds = [*VECTORS, encode_positions(np.concatenate([np.arange(0, 9000, 2), [70_000, 1 << 40]]))]
    for _ in range(1000):
        data = bytearray(base64.b64decode(rng.choice(seeds)))
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(min(len(data), 64))] = rng.randrange(256)
        try:
            found = decode_positions(base64.b64encode(bytes(data)).decode(), limit=1 << 20)
        except CorruptFileError:
            continue
        assert (np.diff(found) > 0).all()
