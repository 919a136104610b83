"""Keys of the metadata table are those the JVM makes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.metadata.keys import (
    column_prefixes,
    escaped,
    file_digest,
    file_group_index,
    file_group_number,
    name_hashes,
    partition_identifier,
    partition_path,
    secondary_prefix,
    unescaped,
)


def test_a_key_of_real_column_statistics_is_formed() -> None:
    name = "8aa68f7e-afd6-4c94-b86c-8a886552e08d-0_2-1112-3192_20251220210129235.parquet"
    (prefix,) = column_prefixes(["driver"], ["city=sao_paulo"])
    assert prefix + file_digest(name) == b"AjpJ7N1gBZc=6Hj+sBy+gvM=0VV0SYFvRHPGdIGkp/dZ+A=="
    assert column_prefixes(["driver"], None) == [b"AjpJ7N1gBZc="]
    assert name_hashes(["."]) == [b"FXThHwelITM="]


def test_the_root_partition_has_an_identifier() -> None:
    assert [partition_identifier(p) for p in ("", "a=1")] == [".", "a=1"]
    assert [partition_path(p) for p in (".", "a=1")] == ["", "a=1"]


def java_index(text: str, groups: int) -> int:
    units = text.encode("utf-16-be")
    h = 0
    for i in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[i : i + 2], "big")) & 0xFFFFFFFF
    signed = h - (1 << 32) if h >> 31 else h
    absolute = signed if signed == -(1 << 31) else abs(signed)
    return abs(absolute) % groups


def test_a_key_goes_to_the_file_group_of_the_jvm() -> None:
    assert file_group_index(["e96c4396-3fad-413a-a942-4cb36106d721"], 10).tolist() == [1]


def test_the_smallest_hash_has_a_file_group_too() -> None:
    smallest = "polygenelubricants"  # its String.hashCode is Integer.MIN_VALUE
    assert file_group_index([smallest], 10).tolist() == [(1 << 31) % 10]


@given(st.lists(st.text(max_size=12), max_size=20), st.integers(1, 50))
def test_every_key_goes_where_java_puts_it(keys: list[str], groups: int) -> None:
    found = file_group_index(pa.array(keys, pa.string()), groups)
    assert found.tolist() == [java_index(k, groups) for k in keys]


@pytest.mark.parametrize(
    ("file_id", "number"),
    [
        ("files-0000-0", 0),
        ("col-stats-0001-0", 1),
        ("secondary-index-rider-idx-0012-0", 12),
        ("files-0000", 0),
        ("stray", None),
    ],
)
def test_file_ids_tell_their_number(file_id: str, number: int | None) -> None:
    assert file_group_number(file_id) == number


@given(st.lists(st.text(alphabet=st.sampled_from("a$\\\0\né"), max_size=8), max_size=10))
def test_parts_of_secondary_keys_survive_escaping(values: list[str]) -> None:
    parts = pa.array([escaped(v) for v in values], pa.string())
    assert unescaped(parts).to_pylist() == values


def test_a_null_value_has_its_own_secondary_key() -> None:
    assert secondary_prefix([None, "a$b", "x"]) == [b"\0$", b"a\\$b$", b"x$"]
