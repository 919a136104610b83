"""The files index is folded in commit order, for any history of records."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import MetadataTableError
from lakewright.format.partitions import ListedFile
from lakewright.metadata.files import (
    file_table,
    listed_files,
    listed_partitions,
)
from tests.metadata.mdt_builder import files_value, reader

Entries = dict[str, int | None]


def plain_fold(history: list[Entries]) -> dict[str, int]:
    live: dict[str, int] = {}
    for entries in history:
        for name, size in entries.items():
            if size is None:
                live.pop(name, None)
            else:
                live[name] = max(size, live.get(name, 0))
    return live


names = st.sampled_from([f"f{i}.parquet" for i in range(5)])
entries_ = st.dictionaries(names, st.one_of(st.none(), st.integers(1, 99)), max_size=5)
histories = st.lists(st.dictionaries(st.sampled_from(["a", "b"]), entries_), max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b"]), entries_), histories)
def test_any_history_lists_what_folding_it_in_order_gives(
    base: dict[str, Entries], logs: list[dict[str, Entries]]
) -> None:
    steps = [base, *logs]
    known = sorted({p for step in steps for p in step})
    with tempfile.TemporaryDirectory() as folder:
        group = reader(
            Path(folder),
            {p.encode(): files_value(e) for p, e in base.items()},
            [{p.encode(): files_value(e) for p, e in step.items()} for step in logs if step],
        )
        found = listed_files(group, known)
    for partition in known:
        expected = plain_fold([step[partition] for step in steps if partition in step])
        assert {f.name: f.size for f in found[partition]} == expected
        assert [f.name for f in found[partition]] == sorted(expected)


def test_a_file_written_and_removed_after_compaction_does_not_come_back(tmp_path: Path) -> None:
    # The JVM merges the two log records first, loses the tombstone and lists the file again.
    group = reader(
        tmp_path,
        {b"p": files_value({"x": 5, "y": 1})},
        [{b"p": files_value({"x": 6})}, {b"p": files_value({"x": None})}],
    )
    assert listed_files(group, ["p"]) == {"p": [ListedFile("y", 1)]}


def test_a_tombstone_without_a_file_is_ignored(tmp_path: Path) -> None:
    group = reader(tmp_path, {b"p": files_value({"x": None})})
    assert listed_files(group, ["p"]) == {"p": []}


def test_partitions_are_listed_without_the_dropped_ones(tmp_path: Path) -> None:
    group = reader(
        tmp_path,
        {b"__all_partitions__": files_value({"a=1": 0, "b/2": 0}, 1)},
        [{b"__all_partitions__": files_value({"a=1": None, "c": 0}, 1)}],
    )
    assert listed_partitions(group) == ["b/2", "c"]


def test_a_table_without_partitions_has_the_root(tmp_path: Path) -> None:
    group = reader(
        tmp_path,
        {b"__all_partitions__": files_value({".": 0}, 1), b".": files_value({"x": 3})},
    )
    assert listed_partitions(group) == [""]
    assert listed_files(group, [""]) == {"": [ListedFile("x", 3)]}
    assert listed_files(group, []) == {}


def test_an_empty_table_has_no_partitions(tmp_path: Path) -> None:
    assert listed_partitions(reader(tmp_path, {b"__all_partitions__": files_value({}, 1)})) == []


def test_a_missing_list_is_an_error_and_not_an_empty_answer(tmp_path: Path) -> None:
    group = reader(tmp_path, {b"p": files_value({"x": 1})})
    with pytest.raises(MetadataTableError, match="no list of partitions"):
        listed_partitions(group)
    with pytest.raises(MetadataTableError, match="partition 'q'"):
        listed_files(group, ["p", "q"])
    nothing = reader(tmp_path, None)
    with pytest.raises(MetadataTableError, match="no list of partitions"):
        listed_partitions(nothing)


def test_a_record_of_another_type_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MetadataTableError, match="type 1"):
        listed_files(reader(tmp_path, {b"p": files_value({"x": 1}, 1)}), ["p"])


def test_a_deleted_record_begins_anew(tmp_path: Path) -> None:
    group = reader(
        tmp_path,
        {b"p": files_value({"x": 5})},
        [["p"], {b"p": files_value({"y": 2})}],
    )
    assert listed_files(group, ["p"]) == {"p": [ListedFile("y", 2)]}


def test_many_partitions_are_listed_as_columns(tmp_path: Path) -> None:
    partitions = [f"dt={i:04}" for i in range(500)]
    content = {p.encode(): files_value({f"f{j}": j + 1 for j in range(7)}) for p in partitions}
    table = file_table(reader(tmp_path, content), partitions)
    assert table.num_rows == 3500
    assert table["partition"].to_pylist()[::7] == partitions
    assert np.asarray(table["size"]).sum() == 500 * 28
