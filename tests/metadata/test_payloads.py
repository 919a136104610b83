"""Records are encoded as an independent encoder does it, and read back as what was written."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.bloom import BloomFilter
from lakewright.errors import FormatError, UnsupportedTableError
from lakewright.format.version import TableVersion
from lakewright.metadata.bloom_index import bloom_filters
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.file_groups import IndexGroups
from lakewright.metadata.files import listed_files, listed_partitions
from lakewright.metadata.keys import escaped, file_digest, name_hashes, secondary_entries
from lakewright.metadata.payloads import (
    bloom_filter_records,
    file_list_records,
    partition_list_record,
    record_index_records,
    secondary_index_records,
)
from lakewright.metadata.record_index import record_locations, secondary_keys
from lakewright.metadata.record_schema import written_schema
from lakewright.metadata.statistics import column_statistics
from lakewright.metadata.statistics_payloads import (
    deleted_statistics_records,
    statistics_records,
)
from lakewright.metadata.wrapping import wrapper_of
from tests.metadata import mdt_builder as plain

ONE = IndexGroups.whole("record_index", 1)
SIX, EIGHT = TableVersion.of(6), TableVersion.of(8)
GENERATIONS = {"B": SIX, "D": EIGHT}
BOTH = pytest.mark.parametrize("generation", GENERATIONS)


def cells(records: MetadataRecords) -> dict[bytes, bytes]:
    return dict(zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True))


@BOTH
def test_the_schema_is_the_one_that_the_release_knows(generation: str) -> None:
    assert json.loads(written_schema(GENERATIONS[generation])).keys() == {
        "type",
        "name",
        "namespace",
        "fields",
    }
    names = [f["name"] for f in plain.SCHEMAS[generation]["fields"]]
    ours = [f["name"] for f in json.loads(written_schema(GENERATIONS[generation]))["fields"]]
    assert ours == names


def test_tables_that_are_only_read_have_no_schema_to_write() -> None:
    with pytest.raises(UnsupportedTableError, match="version 9"):
        written_schema(TableVersion.of(9))


names = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=12)


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        names, st.dictionaries(names, st.none() | st.integers(1, 2**62), min_size=1, max_size=4)
    ),
    st.sampled_from("BD"),
)
def test_lists_of_files_are_those_of_another_encoder(
    told: dict[str, dict[str, int | None]], generation: str
) -> None:
    rows = [(p, n, s) for p, files in told.items() for n, s in files.items()]
    columns = {
        "partition": pa.array([r[0] for r in rows], pa.string()),
        "name": pa.array([r[1] for r in rows], pa.string()),
        "size": pa.array([r[2] for r in rows], pa.int64()),
    }
    found = cells(file_list_records(pa.table(columns), version=GENERATIONS[generation]))
    expected = {
        partition.encode(): plain.value(
            2,
            generation,
            filesystemMetadata={
                n: {"size": s or 0, "isDeleted": s is None} for n, s in files.items()
            },
        )
        for partition, files in told.items()
    }
    assert found == expected


def test_lists_are_read_as_they_were_written(tmp_path: Path) -> None:
    files = pa.table(
        {
            "partition": ["a", "", "a", "b"],
            "name": ["2.parquet", "0.parquet", "1.parquet", ".gone.log.1_0-1-1"],
            "size": pa.array([5, 7, 6, None], pa.int64()),
        }
    )
    listed = partition_list_record(["a", "", "b"], ["gone"], version=EIGHT)
    records = cells(listed) | cells(file_list_records(files, version=EIGHT))
    reader = plain.reader(tmp_path, records)
    assert listed_partitions(reader) == ["", "a", "b"]
    found = listed_files(reader, ["", "a", "b"])
    assert {p: [(f.name, f.size) for f in fs] for p, fs in found.items()} == {
        "": [("0.parquet", 7)],
        "a": [("1.parquet", 6), ("2.parquet", 5)],
        "b": [],
    }
    assert records[b"."] and len(cells(partition_list_record([], version=SIX))) == 1


@pytest.mark.parametrize("size", [0, -1])
def test_a_live_file_without_bytes_is_refused(size: int) -> None:
    files = pa.table({"partition": ["p"], "name": ["n"], "size": pa.array([size], pa.int64())})
    with pytest.raises(FormatError, match="no bytes"):
        file_list_records(files, version=EIGHT)


DAY = dt.date(2024, 2, 29)
MOMENT = dt.datetime(2024, 2, 29, 12, 30, 1, 2, tzinfo=dt.UTC)
BOUNDS: list[tuple[pa.DataType, Any, str, Any]] = [
    (pa.bool_(), True, "BooleanWrapper", True),
    (pa.int8(), -3, "IntWrapper", -3),
    (pa.int32(), 2**31 - 1, "IntWrapper", 2**31 - 1),
    (pa.int64(), -(2**63), "LongWrapper", -(2**63)),
    (pa.float32(), 1.5, "FloatWrapper", 1.5),
    (pa.float64(), -0.0, "DoubleWrapper", -0.0),
    (pa.string(), "ü", "StringWrapper", "ü"),
    (pa.large_string(), "x", "StringWrapper", "x"),
    (pa.binary(), b"\xff", "BytesWrapper", b"\xff"),
    (pa.date32(), DAY, "DateWrapper", 19782),
    (pa.decimal128(10, 2), decimal.Decimal("-1.25"), "DecimalWrapper", decimal.Decimal("-1.25")),
    (pa.timestamp("us", "UTC"), MOMENT, "LongWrapper", 1709209801000002),
    (pa.timestamp("ms"), MOMENT.replace(microsecond=0, tzinfo=None), "LongWrapper", 1709209801000),
    (pa.time32("ms"), dt.time(0, 0, 1), "IntWrapper", 1000),
    (pa.time64("us"), dt.time(0, 0, 1), "LongWrapper", 1000000),
]


def statistics(kind: pa.DataType, bound: Any, *, tight: bool = False) -> pa.Table:
    columns = {
        "partition": pa.array(["p", ""]),
        "file_name": pa.array(["f.parquet", ".g.log.1_0-1-1"]),
        "min": pa.array([bound, None], kind),
        "max": pa.array([bound, None], kind),
        "value_count": pa.array([9, 0], pa.int64()),
        "null_count": pa.array([1, 0], pa.int64()),
        "total_size": pa.array([700, 0], pa.int64()),
        "total_uncompressed_size": pa.array([800, 0], pa.int64()),
        "is_tight": pa.array([tight, tight]),
    }
    return pa.table(columns)


@BOTH
@pytest.mark.parametrize(("kind", "bound", "wrapper", "stored"), BOUNDS, ids=lambda b: str(b)[:24])
def test_bounds_are_wrapped_as_hudi_wraps_them(
    kind: pa.DataType, bound: Any, wrapper: str, stored: Any, generation: str, tmp_path: Path
) -> None:
    assert wrapper_of(kind) == wrapper
    version = GENERATIONS[generation]
    found = cells(statistics_records({"c": statistics(kind, bound)}, version=version))
    newer = {} if generation == "B" else {"isTightBound": False}
    wrapped = plain.wrapper(wrapper, stored)
    counts = ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")
    expected = {}
    for partition, name, told, numbers in (
        ("p", "f.parquet", wrapped, (9, 1, 700, 800)),
        (".", ".g.log.1_0-1-1", None, (0, 0, 0, 0)),
    ):
        column, place = name_hashes(["c", partition])
        stats: dict[str, Any] = {"fileName": name, "columnName": "c"}
        stats |= {"minValue": told, "maxValue": told}
        stats |= {**dict(zip(counts, numbers, strict=True)), "isDeleted": False, **newer}
        value = plain.value(3, generation, ColumnStatsMetadata=stats)
        expected[column + place + file_digest(name)] = value
    assert found == expected
    if kind == pa.timestamp("ms"):
        return  # milliseconds without a value type are not trusted on reading
    read = column_statistics(
        [plain.reader(tmp_path, found, generation=generation)],
        pa.schema([("c", kind)]),
        ["p", ""],
        all_partitions=True,
    )["c"].to_pylist()
    assert [r["min"] for r in read if r["partition"] == "p"] == [bound]


def test_statistics_of_partitions_have_their_own_type_and_keys() -> None:
    told = {"a": statistics(pa.int64(), 1, tight=True), "b": statistics(pa.string(), "x")}
    found = cells(statistics_records(told, of_partitions=True, version=EIGHT))
    a, b, root = name_hashes(["a", "b", "."])
    assert len(found) == 4 and {k[:12] for k in found} == {a, b}
    assert {k[12:] for k in found} >= {root} and {len(k) for k in found} == {24}
    assert {v[6] for v in found.values()} == {6 << 1}


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int32()),
        pa.struct({"a": pa.int32()}),
        pa.decimal128(38, 10),
        pa.decimal128(20, 18),
        pa.uint32(),
        pa.binary(4),
    ],
    ids=str,
)
def test_types_without_a_wrapper_have_no_statistics(kind: pa.DataType) -> None:
    assert wrapper_of(kind) is None


def test_a_missing_bound_of_a_file_with_values_is_refused() -> None:
    table = statistics(pa.int64(), None)
    with pytest.raises(FormatError, match="lack a bound"):
        statistics_records({"c": table}, version=EIGHT)


@BOTH
def test_statistics_that_are_taken_back_say_so(generation: str) -> None:
    files = pa.table({"partition": ["p"], "name": ["f"]})
    found = cells(deleted_statistics_records(["a"], files, version=GENERATIONS[generation]))
    newer = {} if generation == "B" else {"isTightBound": False}
    stats: dict[str, Any] = {"fileName": "f", "columnName": "a", "minValue": None, "maxValue": None}
    stats |= dict.fromkeys(("valueCount", "nullCount", "totalSize", "totalUncompressedSize"), 0)
    stats |= {"isDeleted": True, **newer}
    assert list(found.values()) == [plain.value(3, generation, ColumnStatsMetadata=stats)]


FILE_IDS = [
    ("036ded81-9ed4-479f-bcea-7145dfa0079b-0", 0, 0),
    ("ffffffff-9ed4-479f-bcea-7145dfa0079b-12", 0, 12),
    ("036ded81-9ed4-479f-bcea-7145dfa0079b", 0, -1),
    ("00000003-bucket", 1, -1),
    ("036DED81-9ed4-479f-bcea-7145dfa0079b-0", 1, -1),
    ("036ded81-9ed4-479f-bcea-7145dfa0079b-07", 1, -1),
    ("036ded81-9ed4-479f-bcea-7145dfa0079b-x", 1, -1),
    ("", 1, -1),
]


@BOTH
def test_places_of_records_are_those_of_another_encoder(generation: str, tmp_path: Path) -> None:
    count = 3 * len(FILE_IDS)
    rows = [FILE_IDS[n % len(FILE_IDS)] for n in range(count)]
    columns = {
        "key": [f"key-{n:03}" for n in range(count)],
        "partition": [("", "p=1")[n % 2] for n in range(count)],
        "file_id": [r[0] for r in rows],
        "instant_ms": pa.array([1766264468078 + n // 9 for n in range(count)], pa.int64()),
    }
    table = pa.table(columns)
    found = cells(record_index_records(table, version=GENERATIONS[generation]))
    for row, (file_id, encoding, index) in zip(table.to_pylist(), rows, strict=True):
        high = low = -1
        if encoding == 0:
            raw = UUID(file_id[:36]).bytes
            high, low = (int.from_bytes(raw[i : i + 8], "big", signed=True) for i in (0, 8))
        info = {
            "partitionName": row["partition"],
            "fileIdHighBits": high,
            "fileIdLowBits": low,
            "fileIndex": index,
            "fileId": file_id if encoding else "",
            "instantTime": row["instant_ms"],
            "fileIdEncoding": encoding,
        } | ({} if generation == "B" else {"position": None})
        assert found[row["key"].encode()] == plain.value(5, generation, recordIndexMetadata=info)
    reader = plain.reader(tmp_path, found, generation=generation)
    assert record_locations([reader], ONE, table["key"].combine_chunks()).equals(
        table.cast(record_locations([reader], ONE, table["key"].combine_chunks()).schema)
    )
    assert len(record_index_records(table.slice(0, 0), version=EIGHT)) == 0


texts = st.text(st.sampled_from("a$\\\0ü😀"), max_size=6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.none() | texts, texts), min_size=1, max_size=8))
def test_secondary_keys_escape_what_separates(pairs: list[tuple[str | None, str]]) -> None:
    values, keys = (pa.array([p[i] for p in pairs], pa.string()) for i in (0, 1))
    expected = [(escaped(v) + "$" + escaped(k)).encode() for v, k in pairs]
    assert secondary_entries(values, keys).to_pylist() == expected


def test_secondary_entries_are_read_back(tmp_path: Path) -> None:
    values, keys = ["a$b", None, "a"], ["k\\1", "k2", "k$3"]
    records = secondary_index_records(pa.array(values), pa.array(keys), version=EIGHT)
    assert set(records.values.to_pylist()) == {
        plain.value(7, SecondaryIndexMetadata={"isDeleted": False})
    }
    found = secondary_keys([plain.reader(tmp_path, cells(records))], values, by_value=False)
    assert found["value"].to_pylist() == values and found["key"].to_pylist() == keys
    with pytest.raises(FormatError, match="version 6"):
        secondary_index_records(pa.array(values), pa.array(keys), version=SIX)


def test_filters_are_read_back_and_taken_back(tmp_path: Path) -> None:
    filters = [BloomFilter.build(pa.array([str(n)]), entries=10, fpp=0.1) for n in range(2)]
    files = pa.table({"partition": ["p", "p", "p"], "name": ["a", "b", "gone"]})
    records = bloom_filter_records(files, [*filters, None], instant="20240101", version=SIX)
    told = cells(records)
    (gone,) = name_hashes(["p"])
    deleted = {"type": "", "timestamp": "20240101", "bloomFilter": b"", "isDeleted": True}
    assert told[gone + file_digest("gone")] == plain.value(4, "B", BloomFilterMetadata=deleted)
    reader = plain.reader(tmp_path, told, generation="B")
    found = bloom_filters([reader], "p", ["a", "b", "gone"])
    assert {n: f.encode() for n, f in found.items()} == {
        n: f.encode() for n, f in zip("ab", filters, strict=True)
    }
