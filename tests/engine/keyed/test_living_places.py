"""A key that a record index forgot, and that files still have below its delete."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.engine.keyed.living_places import living_places
from lakewright.engine.keyed.log_lookup import LogQuestion
from lakewright.engine.keyed.lookup import Hits
from lakewright.format.file_slices import FileGroupId, FileSlice
from tests.engine.keyed.tables import QuickTable, Shape, new_table, rows

OTHERS = ("BLOOM", "SIMPLE", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", "RECORD_INDEX")


def placed_twice(version: int) -> tuple[Shape, QuickTable]:
    """A table in which k0 was deleted and came back into another file group."""
    shape = Shape(
        type="mor",
        version=version,
        index="RECORD_INDEX",
        partitioned=True,
        merging="event",
        ordering=pa.int64(),
        meta=True,
        small_files=False,
        moves=True,
        parquet_logs=False,
    )
    table = new_table(shape)
    table.upsert(
        rows(shape, [("k0", "a", 1, 0, None), ("k1", "a", 1, 0, None)]), options=shape.options
    )
    table.delete(pa.table({"id": ["k0"], "p": ["a"]}), options=shape.options)
    table.upsert(rows(shape, [("k0", "a", 1, 1, None)]), options=shape.options)
    return shape, table


@pytest.mark.parametrize("index", OTHERS)
@pytest.mark.parametrize("version", [6, 8])
def test_a_row_that_came_back_lives_once_whatever_index_finds_it(version: int, index: str) -> None:
    shape, table = placed_twice(version)
    options = {**shape.options, "hoodie.index.type": index}

    def seen() -> list[tuple[str, int]]:
        found = table.scan(columns=["id", "v"]).to_arrow().to_pylist()
        return sorted((row["id"], row["v"]) for row in found)

    assert seen() == [("k0", 1), ("k1", 0)]
    changed = table.upsert(rows(shape, [("k0", "a", 2, 2, None)]), options=options)
    assert (changed.updated, changed.inserted) == (1, 0)
    assert seen() == [("k0", 2), ("k1", 0)]
    table.delete(pa.table({"id": ["k0"], "p": ["a"]}), options=options)
    assert seen() == [("k1", 0)]
    table.upsert(rows(shape, [("k0", "a", 3, 3, None)]), options=options)
    assert seen() == [("k0", 3), ("k1", 0)]


PLACES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=12)


@given(PLACES, st.sets(st.tuples(st.integers(0, 4), st.integers(0, 3))), st.booleans())
def test_of_the_places_of_a_key_the_living_ones_stay_or_one(
    places: list[tuple[int, int]], alive: set[tuple[int, int]], scoped: bool
) -> None:
    scope_of = [0, 0, 1, 1] if scoped else [0, 0, 0, 0]
    logs = [False, True, True, True]
    slices = [slice_with(n, logs[n]) for n in range(4)]
    hits = Hits(
        np.array([code for code, _ in places], np.int32),
        np.array([file for _, file in places], np.int32),
        np.arange(len(places)),
    )

    def ask(questions: Sequence[LogQuestion]) -> Hits:
        assert all(question.whole and logs[question.number] for question in questions)
        return Hits.joined(
            [
                q.hits(np.array([n for n, c in enumerate(q.codes) if (c, q.number) in alive], int))
                for q in questions
            ]
        )

    left = living_places(hits, slices, ask, scopes=np.array(scope_of, np.int32) if scoped else None)
    stay = {(int(c), int(f)) for c, f in zip(left.codes, left.files, strict=True)}
    for code in range(5):
        for scope in {*scope_of}:
            given_ = {f for c, f in places if c == code and scope_of[f] == scope}
            kept = {f for c, f in stay if c == code and scope_of[f] == scope}
            living = {f for f in given_ if not logs[f] or (code, f) in alive}
            if len(given_) < 2:
                assert kept == given_
            else:
                assert kept == living if living else len(kept) == 1 and kept <= given_
    told = [(code, file) for code, file in places if (code, file) in stay]
    assert len(told) == len(left.codes), "a row of a file that has a key twice was lost"


def slice_with(number: int, logs: bool) -> FileSlice:
    group = FileGroupId("", str(number))
    some = ("log",) if logs else ()
    return FileSlice(group, "0", None, some)  # type: ignore[arg-type]
