"""The bucket of a record key: as Hudi 0.15.0 and 1.0.2 compute it, and as it is written down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakewright as lw
from lakewright.format.buckets import FIXED_TAIL, bucket_of_file, bucket_prefix, buckets
from tests.corpus import committed_tables
from tests.format.java_hash import slow_bucket

Vector = tuple[str, tuple[str, ...], int, int, int]


def vectors() -> list[Vector]:
    """Recorded answers: key, index fields, buckets, bucket in Hudi 0.15.0, bucket in 1.0.2."""
    found = []
    text = Path(__file__).with_name("bucket_vectors.tsv").read_text()
    for line in text.rstrip("\n").split("\n"):
        key, fields, *numbers = line.split("\t")
        found.append((key, tuple(fields.split(",")), *map(int, numbers)))
    return found


@pytest.mark.parametrize("spans", [False, True], ids=["0.15.0", "1.0.2"])
def test_hudis_own_answers_are_ours(spans: bool) -> None:
    known = vectors()
    assert len(known) > 300
    wrong = []
    for key, fields, count, old, new in known:
        ours = int(buckets(pa.array([key]), fields, count, values_span_commas=spans)[0])
        slow = slow_bucket(key, fields, count, spans=spans)
        if not ours == slow == (new if spans else old):
            wrong.append((key, fields, count, ours, slow, new if spans else old))
    assert wrong == []


PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=":,"), max_size=6)
NASTY = st.text("ab:,_é😀", max_size=6)
VALUE = st.one_of(PLAIN, NASTY, st.sampled_from(["__null__", "__empty__", "12:30:00", "x,y"]))
KEY = st.one_of(
    VALUE,
    VALUE.map(lambda a: f"a:{a}"),
    st.tuples(PLAIN, PLAIN).map(lambda v: f"a:{v[0]},b:{v[1]}"),
    st.tuples(VALUE, VALUE, VALUE).map(lambda v: f"a:{v[0]},b:{v[1]},c:{v[2]}"),
)


@given(
    st.lists(KEY, max_size=8),
    st.sampled_from([("a",), ("b",), ("a", "b"), ("c", "a"), ("x",)]),
    st.sampled_from([1, 2, 7, 256, 1_000_003]),
    st.booleans(),
)
@settings(max_examples=80)
def test_columns_of_keys_fall_as_each_key_alone(
    keys: list[str], fields: Sequence[str], count: int, spans: bool
) -> None:
    found = buckets(pa.array(keys, pa.string()), fields, count, values_span_commas=spans)
    assert found.dtype == np.int32
    assert found.tolist() == [slow_bucket(key, fields, count, spans=spans) for key in keys]


def test_rows_of_a_real_table_are_in_the_buckets_of_their_keys(tmp_path: Path) -> None:
    real = next(t for t in committed_tables() if t.name.endswith("_bucket"))
    rows = lw.Table.open(real.unpack(tmp_path)).scan().to_arrow()
    there = [bucket_of_file(name) for name in rows["_hoodie_file_name"].to_pylist()]
    keys = rows["_hoodie_record_key"].combine_chunks()
    assert len(set(there)) == 2 and any("," in key for key in keys.to_pylist())
    assert buckets(keys, ("id",), 2, values_span_commas=False).tolist() == there


def test_file_ids_tell_their_bucket_or_that_they_have_none() -> None:
    assert bucket_prefix(3) == "00000003"
    assert bucket_of_file(f"{bucket_prefix(255)}{FIXED_TAIL}-0") == 255
    assert bucket_of_file("00000003-8f5c-4c7e-9a52-3f0f6f0c1d2e-0") == 3
    for other in ("0000000a-8f5c-4c7e-9a52-3f0f6f0c1d2e-0", "00000003", "3-0", ""):
        assert bucket_of_file(other) is None
