"""A new base file says what base file and logs said together, in the schema that is written."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.bloom import BloomFilter
from lakewright.errors import MetadataTableError, UnsupportedTableError
from lakewright.format.version import TableVersion
from lakewright.metadata.bloom_index import bloom_filters
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.file_groups import IndexGroups
from lakewright.metadata.files import file_table, listed_partitions
from lakewright.metadata.keys import ALL_PARTITIONS
from lakewright.metadata.merging import merged_records
from lakewright.metadata.payloads import bloom_filter_records
from lakewright.metadata.record_index import record_locations
from lakewright.metadata.records import Everything, FileGroupReader
from lakewright.metadata.statistics import column_statistics
from lakewright.metadata.statistics_payloads import statistics_records
from tests.metadata import mdt_builder as plain

ONE = IndexGroups.whole("record_index", 1)
SIX, EIGHT = TableVersion.of(6), TableVersion.of(8)


def cells(records: MetadataRecords) -> dict[bytes, bytes]:
    keys = records.keys.to_pylist()
    assert keys == sorted(keys) and len(set(keys)) == len(keys)
    return dict(zip(keys, records.values.to_pylist(), strict=True))


def merged(
    reader: FileGroupReader, index: str, version: TableVersion = EIGHT
) -> dict[bytes, bytes]:
    return cells(merged_records(index, reader.read(Everything()), version=version))


files = st.dictionaries(st.sampled_from("abcd"), st.none() | st.integers(1, 9), max_size=4)
lists = st.dictionaries(st.sampled_from([b"p", b"q", b"."]), files, max_size=3)


@settings(max_examples=15, deadline=None)
@given(base=lists, steps=st.lists(lists, max_size=4))
def test_lists_of_files_say_the_same_after_merging(
    base: dict[bytes, dict[str, int | None]],
    steps: list[dict[bytes, dict[str, int | None]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("lists")
    partitions = plain.files_value({"p": 1, "q": 1, ".": 1, "gone": None}, 1)
    logged = [{k: plain.files_value(v) for k, v in step.items()} for step in steps]
    everything = {k: plain.files_value(v) for k, v in base.items()} | {ALL_PARTITIONS: partitions}
    reader = plain.reader(folder, everything, logged)
    told = merged(reader, "files")
    known = sorted({k for step in (base, *steps) for k in step})
    assert sorted(told) == sorted([*known, ALL_PARTITIONS])
    again = plain.reader(tmp_path_factory.mktemp("again"), told)
    assert listed_partitions(again) == listed_partitions(reader) == ["", "p", "q"]
    paths = ["" if k == b"." else k.decode() for k in known]
    assert sorted_rows(again, paths) == sorted_rows(reader, paths)
    assert all(b"gone" not in value for value in told.values())


def sorted_rows(reader: FileGroupReader, paths: list[str]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in file_table(reader, paths).to_pylist())


def place(number: int, generation: str = "D") -> bytes:
    info = {
        "partitionName": "p",
        "fileIdHighBits": number,
        "fileIdLowBits": 2,
        "fileIndex": 0,
        "fileId": "",
        "instantTime": 5,
        "fileIdEncoding": 0,
    } | ({} if generation == "B" else {"position": None})
    return plain.value(5, generation, recordIndexMetadata=info)


def test_the_newest_place_of_a_record_wins_and_deleted_ones_are_gone(tmp_path: Path) -> None:
    base = {b"a": place(1), b"b": place(1), b"c": place(1)}
    reader = plain.reader(
        tmp_path, base, [{b"b": place(2), b"d": place(2)}, ["c", "d"], {b"d": place(3)}]
    )
    assert merged(reader, "record_index") == {b"a": place(1), b"b": place(2), b"d": place(3)}


def test_the_name_of_the_old_file_is_left_out(tmp_path: Path) -> None:
    info = {"partitionName": "p", "fileIdHighBits": 1, "fileIdLowBits": 2, "fileIndex": 0}
    info |= {"fileId": "", "instantTime": 5, "fileIdEncoding": 0, "position": None}
    base = {
        f"k{size}".encode(): plain.value(
            5, recordIndexMetadata=info, _hoodie_file_name="n" * size, _hoodie_commit_time="1"
        )
        for size in (1, 63, 64, 8191, 8192)
    }
    base[b"bare"] = plain.value(5, recordIndexMetadata=info)
    told = merged(plain.reader(tmp_path, base), "record_index")
    assert set(told.values()) == {base[b"bare"]} and told.keys() == base.keys()


@pytest.mark.parametrize(("written", "kept"), [("B", EIGHT), ("D", SIX), ("F", EIGHT)])
def test_records_of_other_generations_are_written_in_this_one(
    written: str, kept: TableVersion, tmp_path: Path
) -> None:
    reader = plain.reader(tmp_path, {b"k": place(7, written)}, generation=written)
    told = merged(reader, "record_index", kept)
    assert told == {b"k": place(7, "B" if kept is SIX else "D")}
    again = plain.reader(tmp_path, told, generation="B" if kept is SIX else "D")
    keys = pa.array(["k"])
    assert record_locations([again], ONE, keys).equals(record_locations([reader], ONE, keys))


def test_filters_that_were_taken_back_are_gone(tmp_path: Path) -> None:
    table = pa.table({"partition": ["p", "p"], "name": ["a", "b"]})
    one = BloomFilter.build(pa.array(["1"]), entries=10, fpp=0.1)
    base = cells(bloom_filter_records(table, [one, one], instant="1", version=SIX).sorted())
    back = cells(bloom_filter_records(table.slice(1), [None], instant="2", version=SIX).sorted())
    reader = plain.reader(tmp_path, base, [back], generation="B")
    told = merged(reader, "bloom_filters", SIX)
    assert len(told) == 1 and told.items() <= base.items()
    assert list(bloom_filters([plain.reader(tmp_path, told, generation="B")], "p", "ab")) == ["a"]


def statistics(
    low: tuple[str, Any] | None,
    high: tuple[str, Any] | None,
    *,
    values: int = 10,
    generation: str = "D",
    deleted: bool = False,
    **more: Any,
) -> bytes:
    stats = {
        "fileName": "f",
        "columnName": "c",
        "minValue": None if low is None else plain.wrapper(*low),
        "maxValue": None if high is None else plain.wrapper(*high),
        "valueCount": values,
        "nullCount": 1,
        "totalSize": 100,
        "totalUncompressedSize": 200,
        "isDeleted": deleted,
    }
    if generation != "B":
        stats["isTightBound"] = more.pop("tight", False)
    return plain.value(3, generation, ColumnStatsMetadata=stats | more)


def test_ranges_widen_counts_add_up_and_a_tight_record_starts_anew(tmp_path: Path) -> None:
    def told(low: int, high: int, **more: Any) -> bytes:
        return statistics(("IntWrapper", low), ("IntWrapper", high), **more)

    base = {b"alone": told(1, 2), b"gone": told(1, 2), b"wide": told(5, 6), b"tight": told(0, 9)}
    steps = [
        {b"wide": told(3, 4, values=5), b"tight": told(4, 4, tight=True)},
        {b"wide": told(8, 9, values=1), b"gone": statistics(None, None, values=0, deleted=True)},
    ]
    found = merged(plain.reader(tmp_path, base, steps), "column_stats")
    wide = told(3, 9, values=16, nullCount=3, totalSize=300, totalUncompressedSize=600)
    assert found == {b"alone": told(1, 2), b"tight": told(4, 4, tight=True), b"wide": wide}


MIXED = [
    (("IntWrapper", 5), ("DateWrapper", 3), ("DateWrapper", 3), ("DateWrapper", 5)),
    (("LocalDateWrapper", 5), ("DateWrapper", 3), ("DateWrapper", 3), ("DateWrapper", 5)),
    (("IntWrapper", -7), ("LongWrapper", 2**40), ("LongWrapper", -7), ("LongWrapper", 2**40)),
    (("FloatWrapper", 0.5), ("DoubleWrapper", 0.1), ("DoubleWrapper", 0.1), ("DoubleWrapper", 0.5)),
    (
        ("BytesWrapper", bytes.fromhex("0341 5313 c684 0000")),
        ("DecimalWrapper", decimal.Decimal("7.5")),
        ("DecimalWrapper", decimal.Decimal("7.5")),
        ("DecimalWrapper", decimal.Decimal("234.56")),
    ),
    (
        ("StringWrapper", "b"),
        ("StringWrapper", "a"),
        ("StringWrapper", "a"),
        ("StringWrapper", "b"),
    ),
    (
        ("BytesWrapper", b"\xff"),
        ("BytesWrapper", b"\x01"),
        ("BytesWrapper", b"\x01"),
        ("BytesWrapper", b"\xff"),
    ),
    (
        ("BooleanWrapper", True),
        ("BooleanWrapper", False),
        ("BooleanWrapper", False),
        ("BooleanWrapper", True),
    ),
]


@pytest.mark.parametrize(("older", "newer", "low", "high"), MIXED, ids=lambda m: str(m[0]))
def test_bounds_of_one_key_are_brought_to_one_wrapper(
    older: Any, newer: Any, low: Any, high: Any, tmp_path: Path
) -> None:
    base = {b"k": statistics(older, older), b"other": statistics(older, older)}
    found = merged(plain.reader(tmp_path, base, [{b"k": statistics(newer, newer)}]), "column_stats")
    both: dict[str, Any] = {
        "values": 20,
        "nullCount": 2,
        "totalSize": 200,
        "totalUncompressedSize": 400,
    }
    assert found == {b"k": statistics(low, high, **both), b"other": base[b"other"]}


def test_bounds_that_do_not_compare_are_an_error(tmp_path: Path) -> None:
    base = {b"k": statistics(("IntWrapper", 1), ("IntWrapper", 1))}
    step = {b"k": statistics(("StringWrapper", "a"), ("StringWrapper", "a"))}
    with pytest.raises(MetadataTableError, match="do not compare"):
        merged(plain.reader(tmp_path, base, [step]), "column_stats")


def test_statistics_read_the_same_after_merging(tmp_path: Path) -> None:
    table = pa.table(
        {
            "partition": ["p", "q"],
            "file_name": ["p", "q"],
            "min": pa.array([3, 4], pa.int64()),
            "max": pa.array([5, 6], pa.int64()),
            "value_count": pa.array([1, 1], pa.int64()),
            "null_count": pa.array([0, 0], pa.int64()),
            "total_size": pa.array([9, 9], pa.int64()),
            "total_uncompressed_size": pa.array([9, 9], pa.int64()),
            "is_tight": [False, True],
        }
    )
    records = cells(statistics_records({"c": table}, of_partitions=True, version=EIGHT).sorted())
    reader = plain.reader(tmp_path, records, [records, records])
    schema = pa.schema([("c", pa.int64())])
    before = column_statistics([reader], schema, ["p", "q"], all_partitions=True)
    told = merged(reader, "partition_stats")
    again = plain.reader(tmp_path / ".", told)
    after = column_statistics([again], schema, ["p", "q"], all_partitions=True)
    rows = [sorted(t["c"].to_pylist(), key=str) for t in (before, after)]
    assert rows[0] == rows[1] and [r["value_count"] for r in rows[0]] in ([3, 1], [1, 3])


def test_statistics_of_index_version_2_are_not_told_in_older_words(tmp_path: Path) -> None:
    newer = statistics(
        ("IntWrapper", 1),
        ("IntWrapper", 1),
        generation="F",
        valueType={"typeOrdinal": 12, "additionalInfo": None},
    )
    reader = plain.reader(tmp_path, {b"k": newer}, generation="F")
    with pytest.raises(UnsupportedTableError, match="index version 2"):
        merged(reader, "column_stats")
    older = statistics(("IntWrapper", 1), ("IntWrapper", 2), generation="F", valueType=None)
    found = merged(plain.reader(tmp_path, {b"k": older}, generation="F"), "column_stats")
    assert found == {b"k": statistics(("IntWrapper", 1), ("IntWrapper", 2))}


def test_records_of_another_index_are_an_error(tmp_path: Path) -> None:
    for generation in "DF":
        base = {b"k": place(1, generation)}
        reader = plain.reader(tmp_path, base, generation=generation)
        with pytest.raises(MetadataTableError):
            merged(reader, "column_stats")


def test_indexes_that_are_not_maintained_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError, match="expr_index_a"):
        merged(plain.reader(tmp_path, {}), "expr_index_a")
    for index in ("files", "record_index", "column_stats", "bloom_filters", "secondary_index_a"):
        assert merged(plain.reader(tmp_path, None), index) == {}
