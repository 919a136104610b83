"""Bloom filters are byte-equal to the JVM's and never deny a key that was added."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.bloom import DYNAMIC, SIMPLE, BloomFilter, bits_for, hashes_for
from lakewright.errors import CorruptFileError, FormatError
from tests.codec.test_hashing import plain_murmur2
from tests.fixtures import SHARED_ABSENT, SharedTable, shared_tables, unpack

# Footer of 5899d3f1-34e5-4f9a-839e-75806f0b6db9-0_1-13-27_20250802170336053.parquet, version 6.
REAL = (
    "/////wAAAB4BAAADXwAAABQAAAACAAAAAf////8AAAAeAQAAA18oAAAIAAAAIAADCEAACCCCAIAgAAAMQAAAACAAEBgA"
    "gABABAABAAAAABAAAAAAAIAAACBAQQAEQECAAAgQACAEAAAAAhgAABBAAAAAAFQAIAEAAIAABAAABQQABAAEAAAQAAQA"
    "AAABAAAQAAA="
)


def positions(key: str, hashes: int, bits: int) -> list[int]:
    seed, out = 0, []
    for _ in range(hashes):
        seed = plain_murmur2(key.encode(), seed)
        out.append(abs(seed - (1 << 32) if seed >> 31 else seed) % bits)
    return out


def plain_dynamic(keys: list[str], entries: int, fpp: float, most: int) -> str:
    """The documented growth rule, key by key."""
    bits = bits_for(entries, fpp)
    hashes = hashes_for(bits, entries)
    rows, current, full, turn = [bytearray((bits + 7) // 8)], 0, False, 0
    for key in keys:
        if full:
            row = rows[turn % len(rows)]
            turn += 1
        elif current >= entries and len(rows) * entries < most:
            rows.append(bytearray((bits + 7) // 8))
            row, current = rows[-1], 0
        elif current >= entries:
            full, row = True, rows[0]
        else:
            row = rows[-1]
        for p in positions(key, hashes, bits):
            row[p >> 3] |= 1 << (p & 7)
        current += 1
    head = struct.pack(">iibi", -1, hashes, 1, bits)
    body = struct.pack(">iii", entries, current, len(rows)) + b"".join(head + r for r in rows)
    return base64.b64encode(head + body).decode()


def test_sizes_are_the_documented_ones() -> None:
    assert (bits_for(60_000, 1e-9), hashes_for(2_587_966, 60_000)) == (2_587_966, 30)
    assert (bits_for(20, 1e-9), hashes_for(863, 20)) == (863, 30)
    assert positions("é", 3, 863) == [155, 252, 518]


def test_a_real_footer_is_rebuilt_from_its_keys() -> None:
    assert BloomFilter.build(["id3", "id4"], entries=20).encode() == REAL
    assert BloomFilter.decode(REAL, DYNAMIC).encode() == REAL


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=12), max_size=40),
    st.integers(1, 12),
    st.integers(1, 40),
    st.sampled_from([1e-9, 1e-3, 0.1]),
)
def test_growth_is_byte_equal_to_adding_one_key_after_the_other(
    keys: list[str], entries: int, most: int, fpp: float
) -> None:
    built = BloomFilter.build(
        pa.array(keys, pa.string()), entries=entries, fpp=fpp, max_entries=most
    )
    assert built.encode() == plain_dynamic(keys, entries, fpp, most)
    assert (
        BloomFilter.decode(built.encode(), DYNAMIC).might_contain(pa.array(keys, pa.string())).all()
    )


def test_a_simple_filter_holds_its_keys_and_little_else() -> None:
    keys = [f"key-{i}" for i in range(500)]
    built = BloomFilter.build(keys, kind=SIMPLE, entries=500, fpp=1e-6)
    again = BloomFilter.decode(built.encode(), SIMPLE)
    assert again.encode() == built.encode()
    assert again.might_contain(keys).all()
    assert not again.might_contain([f"other-{i}" for i in range(2000)]).any()


def test_a_filter_with_few_hashes_and_one_for_no_keys_work() -> None:
    few = BloomFilter.build(["a"], entries=10, fpp=0.2)
    assert few.hashes <= 4 and few.might_contain(["a"]).all()
    empty = BloomFilter.build(pa.array([], pa.string()), entries=10)
    assert empty.current_entries == 0 and not empty.might_contain(["a"]).any()


def test_no_filter_can_deny_an_empty_key_and_none_takes_one() -> None:
    assert BloomFilter.decode(REAL, DYNAMIC).might_contain(["", "nope"]).tolist() == [True, False]
    with pytest.raises(FormatError, match="empty"):
        BloomFilter.build(["a", ""])


HEAD = struct.pack(">iibi", -1, 30, 1, 16)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", SIMPLE),
        (HEAD, SIMPLE),
        (HEAD + b"x", SIMPLE),
        (struct.pack(">iibi", 7, 30, 1, 16) + bytes(2), SIMPLE),
        (struct.pack(">iibi", -1, 30, 0, 16) + bytes(2), SIMPLE),
        (struct.pack(">iibi", -1, 0, 1, 16) + bytes(2), SIMPLE),
        (struct.pack(">iibi", -1, 30, 1, 2**31 - 1) + bytes(2), SIMPLE),
        (HEAD + bytes(2), DYNAMIC),
        (HEAD + struct.pack(">iii", 10, 0, 2**31 - 1) + HEAD + bytes(2), DYNAMIC),
        (HEAD + struct.pack(">iii", 10, 0, 0), DYNAMIC),
        (
            HEAD + struct.pack(">iii", 10, 0, 1) + struct.pack(">iibi", -1, 9, 1, 16) + b"xy",
            DYNAMIC,
        ),
    ],
)
def test_broken_filters_are_errors(data: bytes, kind: str) -> None:
    with pytest.raises(CorruptFileError):
        BloomFilter.decode(base64.b64encode(data), kind)


def test_text_that_is_no_base64_and_unknown_types_are_errors() -> None:
    with pytest.raises(CorruptFileError, match="Base64"):
        BloomFilter.decode("?", SIMPLE)
    with pytest.raises(FormatError, match="CUCKOO"):
        BloomFilter.decode(REAL, "CUCKOO")


TABLES = [
    t
    for t in shared_tables()
    if t.zip in ("mor_v6_services.zip", "cow_v8_logical_types.zip", "cow_v9_simple_meta.zip")
]


@pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)
@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.id)
def test_footers_of_real_base_files_are_rebuilt_from_their_keys(
    table: SharedTable, tmp_path: Path
) -> None:
    checked = 0
    for path in unpack(table, tmp_path).rglob("*.parquet"):
        footer = pq.read_metadata(path).metadata or {}
        if b"org.apache.hudi.bloomfilter" not in footer:
            continue
        stored = footer[b"org.apache.hudi.bloomfilter"].decode()
        kind = footer[b"hoodie_bloom_filter_type_code"].decode()
        keys = pq.read_table(path, columns=["_hoodie_record_key"])[0]
        filter_ = BloomFilter.decode(stored, kind, path=str(path))
        rebuilt = BloomFilter.build(keys, kind=kind, entries=filter_.row_entries)
        assert rebuilt.encode() == stored
        assert filter_.might_contain(keys).all()
        checked += 1
    assert checked
