"""Hashes are bit-exact with the JVM's, for any bytes, in any position of a column."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.codec.hashing import (
    ByteRows,
    MurmurChain,
    crc32c,
    crc32c_chunks,
    java_list_hash,
    java_string_hash,
    murmur2,
    xxh64,
)

MASK = 0xFFFFFFFF
COLUMN_STATS_SEED = 0xFFFFFFFFDABADABA


def plain_murmur2(data: bytes, seed: int) -> int:
    h = (seed ^ len(data)) & MASK
    whole = len(data) // 4
    for i in range(whole):
        k = int.from_bytes(data[4 * i : 4 * i + 4], "little") * 0x5BD1E995 & MASK
        k = (k ^ k >> 24) * 0x5BD1E995 & MASK
        h = h * 0x5BD1E995 & MASK ^ k
    tail = [b - 256 if b > 127 else b for b in data[4 * whole :]]
    for place, value in enumerate(reversed(tail)):
        h ^= (value << 8 * place) & MASK
    if tail:
        h = h * 0x5BD1E995 & MASK
    h = (h ^ h >> 13) * 0x5BD1E995 & MASK
    return h ^ h >> 15


def plain_java_hash(text: str) -> int:
    units = text.encode("utf-16-be")
    h = 0
    for i in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[i : i + 2], "big")) & MASK
    return h - (1 << 32) if h >> 31 else h


def plain_crc32c(data: bytes) -> int:
    register = MASK
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ MASK


@pytest.mark.parametrize(
    ("text", "expected"),
    [("driver", "AjpJ7N1gBZc="), ("city=sao_paulo", "6Hj+sBy+gvM="), (".", "FXThHwelITM=")],
)
def test_xxh64_gives_the_keys_of_real_column_statistics(text: str, expected: str) -> None:
    digest = int(xxh64([text], COLUMN_STATS_SEED)[0]).to_bytes(8, "big")
    assert base64.b64encode(digest).decode() == expected


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Call me Ishmael. Some years ago--never mind how long precisely-", 0, 0x02A2E85470D6FD96),
    ],
)
def test_xxh64_agrees_with_published_vectors(data: bytes, seed: int, expected: int) -> None:
    assert int(xxh64([data], seed)[0]) == expected


@given(st.lists(st.binary(max_size=80), max_size=30), st.integers(0, 2**64 - 1))
def test_xxh64_of_a_row_does_not_depend_on_its_neighbours(rows: list[bytes], seed: int) -> None:
    together = xxh64(pa.array(rows, pa.binary()), seed)
    assert together.tolist() == [int(xxh64([r], seed)[0]) for r in rows]


def test_murmur2_gives_the_documented_value() -> None:
    assert int(murmur2(["id3"])[0]) == 0x9C0F924E


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, MASK))
def test_murmur2_sign_extends_tail_bytes_as_java_does(rows: list[bytes], seed: int) -> None:
    expected = [plain_murmur2(r, seed) for r in rows]
    assert murmur2(pa.array(rows, pa.binary()), seed).tolist() == expected


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=10))
def test_a_murmur_chain_uses_each_hash_as_the_next_seed(rows: list[bytes]) -> None:
    chain = MurmurChain(ByteRows.of(pa.array(rows, pa.binary())))
    seeds = [0] * len(rows)
    for _ in range(5):
        seeds = [plain_murmur2(r, s) for r, s in zip(rows, seeds, strict=True)]
        assert chain.next().tolist() == seeds


@given(st.lists(st.one_of(st.none(), st.text(max_size=20)), max_size=30), st.integers(0, 5))
def test_java_string_hash_counts_surrogates_as_two_units(
    rows: list[str | None], first: int
) -> None:
    column = pa.array(rows, pa.string())[first:]
    assert java_string_hash(column).tolist() == [plain_java_hash(r or "") for r in rows[first:]]


@pytest.mark.parametrize(
    "rows",
    [
        [f"key-{n:09}" for n in range(20_000)],
        ["", "ü" * 140_000, "", "a", "b" * 200_000, "", ""],
        [str(n) * (n % 5) for n in range(30_000)],
    ],
    ids=["alike", "long", "unlike"],
)
def test_java_string_hash_of_more_than_is_summed_at_once(rows: list[str]) -> None:
    some = range(0, len(rows), max(1, len(rows) // 300))
    hashes = java_string_hash(pa.array(rows))
    assert [hashes[i] for i in some] == [plain_java_hash(rows[i]) for i in some]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([["a1"]], 3087),
        ([["1"], ["abc"]], 98834),
        ([["1"], [""]], 2480),
        ([["1"], [None]], 2480),
        ([["héllo"]], 103094765),
        ([["😀k"]], 54960007),
    ],
)
def test_java_list_hash_gives_the_buckets_of_the_jvm(
    columns: list[list[str | None]], expected: int
) -> None:
    arrays = [pa.array(c, pa.string()) for c in columns]
    assert int(java_list_hash(arrays)[0]) == expected


def test_a_list_hash_of_no_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        java_list_hash([])


def test_crc32c_gives_the_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@pytest.mark.parametrize("size", [1, 3, 4, 63, 64, 65, 2047, 2048, 2049, 16384, 16385, 40000])
def test_crc32c_agrees_with_the_bitwise_definition(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
    assert crc32c(data) == plain_crc32c(data)


def test_chunks_of_any_length_are_summed_together() -> None:
    rng = np.random.default_rng(7)
    data = rng.integers(0, 256, 30_000, dtype=np.uint8)
    starts = rng.integers(0, 20_000, 50)
    lengths = rng.integers(0, 5_000, 50)
    lengths[:4] = [0, 1, 2, 3]
    found = crc32c_chunks(data, starts, lengths)
    assert found.tolist() == [
        plain_crc32c(data[s : s + n].tobytes()) for s, n in zip(starts, lengths, strict=True)
    ]
    assert found[4] != zlib.crc32(data[starts[4] : starts[4] + lengths[4]].tobytes())


@pytest.mark.parametrize(
    "column",
    [
        ["x", "yy"],
        pa.array(["x", "yy"], pa.large_string()),
        pa.array([b"x", b"yy"], pa.large_binary()),
        pa.chunked_array([["x"], ["yy"]]),
        pa.array(["x", "yy"]).dictionary_encode(),
        pa.array(["z", "x", "yy"])[1:],
    ],
)
def test_every_kind_of_text_column_gives_the_same_bytes(column: object) -> None:
    rows = ByteRows.of(column)
    parts = [rows.data[s : s + n].tobytes() for s, n in zip(rows.starts, rows.lengths, strict=True)]
    assert parts == [b"x", b"yy"]


def test_a_column_of_nulls_hashes_like_empty_text() -> None:
    assert java_string_hash(pa.array([None, None], pa.null())).tolist() == [0, 0]
    assert len(ByteRows.of(pa.array([], pa.string()))) == 0
