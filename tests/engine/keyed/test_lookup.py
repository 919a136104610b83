"""Finding keys in base files: as a dict would, whatever the files are like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.bloom import DYNAMIC, SIMPLE
from lakewright.codec.parquet_writer import ParquetPolicy
from lakewright.engine.base_writer import write_base_files
from lakewright.engine.keyed import lookup as lookup_module
from lakewright.engine.keyed.lookup import Hits, KeyLookup
from lakewright.engine.write_context import BloomPolicy, WriteToken
from lakewright.errors import NotFoundError
from lakewright.format.file_slices import BaseFile
from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.keys import KeySpec
from lakewright.runtime import ManualClock
from lakewright.storage.memory import MemoryStorage
from tests.engine.writing import base_of, context, incoming


def write(
    storage: MemoryStorage,
    keys: Sequence[str],
    *,
    number: int = 0,
    bloom: BloomPolicy | None = None,
    populate_meta: bool = True,
) -> BaseFile:
    """A base file with row groups of three rows."""
    parquet = ParquetPolicy(row_group_rows=3)
    written = context(storage, populate_meta=populate_meta, parquet=parquet, bloom=bloom)
    batch = incoming(written, keys, id=list(keys), n=list(range(len(keys))))
    [stat] = write_base_files(
        storage,
        written,
        partition="",
        file_id_prefix=f"{number:08d}-0000-0000-0000-000000000000",
        token=WriteToken(0, 0, 0),
        batches=iter([batch]),
        clock=ManualClock(),
    )
    return base_of(stat)


def places(hits: Hits) -> list[tuple[int, int, int]]:
    return sorted(
        zip(hits.codes.tolist(), hits.files.tolist(), hits.positions.tolist(), strict=True)
    )


def expected(asked: Sequence[str], files: Sequence[Sequence[str]]) -> list[tuple[int, int, int]]:
    code = {key: number for number, key in enumerate(asked)}
    return sorted(
        (code[key], file, row)
        for file, keys in enumerate(files)
        for row, key in enumerate(keys)
        if key in code
    )


KEY = st.text(st.sampled_from("ab\ue000\uffffé😀z"), min_size=1, max_size=3)
BLOOMS = st.sampled_from(
    [None, BloomPolicy(kind=SIMPLE, entries=20), BloomPolicy(kind=DYNAMIC, entries=5)]
)


@settings(max_examples=40)
@given(
    st.lists(KEY, unique=True, max_size=12),
    st.lists(st.lists(KEY, min_size=1, max_size=10), max_size=3),
    st.booleans(),
    BLOOMS,
)
def test_every_place_of_every_key_is_found_and_no_other(
    asked: list[str], files: list[list[str]], filters: bool, bloom: BloomPolicy | None
) -> None:
    storage = MemoryStorage()
    bases = [write(storage, keys, number=n, bloom=bloom) for n, keys in enumerate(files)]
    lookup = KeyLookup(storage, pa.array(asked, pa.string()), filters=filters)
    found = Hits.joined([h for n, base in enumerate(bases) for h in lookup.in_file(n, base)])
    assert len(lookup) == len(asked)
    assert places(found) == expected(asked, files)


def test_keys_of_tables_that_do_not_store_them_are_formed() -> None:
    storage = MemoryStorage()
    base = write(storage, ["a", "b", "c", "d", "b"], populate_meta=False)
    spec = KeySpec(("id",), (), KeyGeneratorType.SIMPLE)
    lookup = KeyLookup(storage, pa.array(["b", "x", "d"]), spec=spec)
    assert places(Hits.joined(list(lookup.in_file(4, base)))) == [(0, 4, 1), (0, 4, 4), (2, 4, 3)]


def test_files_that_cannot_have_the_keys_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    base = write(storage, ["b", "c", "d"], bloom=BloomPolicy(entries=20))
    read: list[int] = []

    def noted(file: Any, group: int, **how: Any) -> Any:
        read.append(group)
        return real(file, group, **how)

    real = lookup_module.read_row_group
    monkeypatch.setattr(lookup_module, "read_row_group", noted)
    for asked, filters, groups in (
        (["a", "e"], True, []),
        (["cc"], True, []),
        (["cc", "c"], True, [0]),
        (["cc"], False, [0]),
    ):
        read.clear()
        lookup = KeyLookup(storage, pa.array(asked), filters=filters)
        assert len(list(lookup.in_file(0, base))) == ("c" in asked)
        assert read == groups


def test_a_base_file_that_was_cleaned_away_asks_for_another_try() -> None:
    storage = MemoryStorage()
    base = write(storage, ["a"])
    storage.delete(base.path)
    with pytest.raises(NotFoundError, match="cleaned") as gone:
        list(KeyLookup(storage, pa.array(["a"])).in_file(0, base))
    assert gone.value.retryable and gone.value.hint


def test_hits_of_nothing_are_empty_and_some_can_be_taken() -> None:
    none = Hits.joined([])
    assert (len(none.codes), len(none.files), len(none.positions)) == (0, 0, 0)
    some = Hits(np.array([4, 5, 6], np.int32), np.array([0, 0, 1], np.int32), np.array([7, 8, 9]))
    assert places(some.at(np.array([2, 0]))) == [(4, 0, 7), (6, 1, 9)]
    assert places(Hits.joined([none, some, some.at(np.array([1]))])) == [
        (4, 0, 7),
        (5, 0, 8),
        (5, 0, 8),
        (6, 1, 9),
    ]
