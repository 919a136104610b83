"""Keys are ordered by their bytes, however long, alike or odd they are."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.byte_order import byte_order


def ordered(keys: list[bytes]) -> list[bytes]:
    return [keys[i] for i in byte_order(pa.array(keys, pa.binary()))]


@settings(max_examples=40, deadline=None)
@given(
    st.binary(max_size=5),
    st.lists(st.binary(max_size=12), max_size=40),
    st.sampled_from([1, 20]),
)
def test_keys_come_in_the_order_of_their_bytes(
    prefix: bytes, some: list[bytes], times: int
) -> None:
    keys = [prefix + key + bytes([n % 7]) * (n % 3) for n in range(times) for key in some]
    assert ordered(keys) == sorted(keys)


@pytest.mark.parametrize("width", [1, 2, 9, 30])
@pytest.mark.parametrize("prefix", [b"", b"key-", b"a" * 40])
def test_many_keys_with_a_common_beginning(width: int, prefix: bytes) -> None:
    rng = random.Random(width)
    keys = [prefix + rng.randbytes(rng.randrange(width + 1)) for _ in range(2000)]
    assert ordered(keys) == sorted(keys)


def test_texts_and_parts_of_columns_are_taken() -> None:
    column = pa.array([f"{n * 7919 % 1000:04}" for n in range(1000)])[10:900]
    keys = column.to_pylist()
    assert [keys[i] for i in byte_order(column)] == sorted(keys)
    assert len(byte_order(column[:0])) == 0
