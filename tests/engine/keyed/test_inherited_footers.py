"""What a merged file says about its keys: the old footer gone on with equals one made at once."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.bloom import DYNAMIC, SIMPLE, BloomBuilder, BloomFilter
from lakewright.engine.base_footer import BLOOM, BLOOM_TYPE, MAXIMUM, MINIMUM, FooterKeys
from lakewright.engine.write_context import BloomPolicy, WriteContext
from lakewright.runtime import ThreadSpawner
from lakewright.storage.memory import MemoryStorage
from tests.engine.writing import context

KEY = st.text(st.sampled_from("abc\ue000\uffff😀"), min_size=1, max_size=4)
KEYS = st.lists(KEY, min_size=1, max_size=40)
POLICIES = [
    BloomPolicy(kind=SIMPLE, entries=10),
    BloomPolicy(kind=DYNAMIC, entries=10, max_entries=30),
    BloomPolicy(kind=DYNAMIC, entries=7, max_entries=1000),
]


def footer(written: WriteContext, *parts: list[str]) -> dict[str, str]:
    keys = FooterKeys(written)
    for part in parts:
        keys.add(pa.array(part, pa.string()))
    return keys.values()


@pytest.mark.parametrize("policy", POLICIES, ids=["simple", "dynamic-full", "dynamic"])
@settings(max_examples=40)
@given(old=KEYS, new=st.lists(KEYS, max_size=3))
def test_old_keys_and_new_ones_make_the_footer_of_all_of_them(
    policy: BloomPolicy, old: list[str], new: list[list[str]]
) -> None:
    written = context(MemoryStorage(), bloom=policy)
    inherited = FooterKeys.inherited(written, footer(written, old))
    assert inherited is not None
    for part in new:
        inherited.add(pa.array(part, pa.string()))
    told, whole = inherited.values(), footer(written, old, *new)
    for name in (MINIMUM, MAXIMUM, BLOOM_TYPE):
        assert told.get(name) == whole.get(name)
    every = [*old, *(key for part in new for key in part)]
    known = BloomFilter.decode(told[BLOOM], policy.kind)
    assert known.might_contain(every).all()
    if policy.kind == SIMPLE or len(old) <= (policy.max_entries or 0):
        assert told == whole


@settings(max_examples=60)
@given(KEYS, KEYS, st.sampled_from(POLICIES))
def test_a_filter_goes_on_where_it_was_left(
    old: list[str], new: list[str], policy: BloomPolicy
) -> None:
    first = policy.builder()
    first.add(old)
    left = BloomFilter.decode(first.finish().encode(), policy.kind)
    resumed = BloomBuilder.resumed(left, max_entries=policy.max_entries)
    resumed.add(new)
    first.add(new)
    assert resumed.finish().might_contain([*old, *new]).all()
    if policy.kind == SIMPLE or len(old) <= policy.max_entries:
        assert resumed.finish().encode() == first.finish().encode()


def test_filters_filled_beside_the_writer_are_the_same() -> None:
    written = context(MemoryStorage(), bloom=POLICIES[2])
    old, new = [f"k{i}" for i in range(30)], [f"n{i}" for i in range(30)]
    inherited = FooterKeys.inherited(written, footer(written, old), spawner=ThreadSpawner())
    assert inherited is not None
    inherited.add(pa.array(new))
    assert inherited.values() == footer(written, old, new)


@pytest.mark.parametrize(
    "change",
    [
        {BLOOM: None},
        {MINIMUM: None},
        {MAXIMUM: None},
        {BLOOM: "no filter"},
        {BLOOM_TYPE: None},
    ],
    ids=["no filter", "no least key", "no greatest key", "broken", "of another kind"],
)
def test_footers_that_do_not_tell_are_made_anew(change: dict[str, str | None]) -> None:
    written = context(MemoryStorage(), bloom=POLICIES[2])
    told = {k: v for k, v in (footer(written, ["a"]) | change).items() if v is not None}
    assert FooterKeys.inherited(written, told) is None


def test_tables_without_keys_or_filters_inherit_nothing() -> None:
    made = footer(context(MemoryStorage(), bloom=POLICIES[2]), ["a"])
    for written in (
        context(MemoryStorage(), bloom=None),
        context(MemoryStorage(), bloom=POLICIES[2], populate_meta=False),
    ):
        assert FooterKeys.inherited(written, made) is None
