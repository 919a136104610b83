"""Look-ups in the record index, in secondary indexes and for bloom filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakewright.codec.bloom import BloomFilter
from lakewright.errors import MetadataTableError
from lakewright.metadata.bloom_index import bloom_filters
from lakewright.metadata.definitions import parse_definitions
from lakewright.metadata.file_groups import IndexGroups
from lakewright.metadata.keys import file_digest, file_group_index, name_hashes, secondary_prefix
from lakewright.metadata.record_index import record_locations, secondary_keys
from lakewright.metadata.records import FileGroupReader
from tests.metadata.mdt_builder import reader, value

ONE = IndexGroups.whole("record_index", 1)


def location(**fields: Any) -> bytes:
    content = {
        "partitionName": "city=san_francisco",
        "fileIdHighBits": 247114695546521503,
        "fileIdLowBits": -4833926705110317157,
        "fileIndex": 0,
        "fileId": "",
        "instantTime": 1766264468078,
        "fileIdEncoding": 0,
        "position": None,
    }
    return value(5, recordIndexMetadata=content | fields)


def spread(
    folder: Path, content: dict[str, bytes], groups: int, **more: Any
) -> list[FileGroupReader]:
    readers = []
    for number in range(groups):
        mine = {
            k.encode(): v
            for k, v in content.items()
            if file_group_index([k], groups).tolist() == [number]
        }
        (folder / str(number)).mkdir()
        readers.append(reader(folder / str(number), mine, **more))
    return readers


def test_locations_are_found_in_their_file_groups(tmp_path: Path) -> None:
    content = {f"key-{i}": location(fileIndex=i % 3) for i in range(40)}
    content["bare"] = location(fileIndex=-1)
    content["flink"] = location(
        fileIdEncoding=1, fileId="00000003-x", fileIdHighBits=-1, fileIdLowBits=-1, fileIndex=-1
    )
    groups = spread(tmp_path, content, 4)
    asked = pa.array(["key-7", "absent", None, "key-7", "bare", "flink", ""])
    found = record_locations(groups, IndexGroups.whole("record_index", 4), asked)
    assert found["key"].to_pylist() == asked.to_pylist()
    uuid = "036ded81-9ed4-479f-bcea-7145dfa0079b"
    ids = [f"{uuid}-1", None, None, f"{uuid}-1", uuid, "00000003-x", None]
    assert found["file_id"].to_pylist() == ids
    assert found["partition"].to_pylist()[:2] == ["city=san_francisco", None]
    assert found["instant_ms"].to_pylist()[0] == 1766264468078


def test_the_newest_location_wins_and_deleted_keys_are_gone(tmp_path: Path) -> None:
    group = reader(
        tmp_path,
        {b"a": location(), b"b": location(), b"c": location()},
        [{b"a": location(partitionName="new")}, ["b"], ["c"], {b"c": location(partitionName="")}],
    )
    found = record_locations([group], ONE, pa.array(["a", "b", "c"]))
    assert found["partition"].to_pylist() == ["new", None, ""]


def test_nothing_asked_or_nothing_there_is_an_empty_answer(tmp_path: Path) -> None:
    group = reader(tmp_path, None)
    assert record_locations([group], ONE, pa.array(["a"]))["file_id"].to_pylist() == [None]
    assert record_locations([group], ONE, pa.array([], pa.string())).num_rows == 0


def test_an_unknown_encoding_or_type_is_an_error(tmp_path: Path) -> None:
    odd = reader(tmp_path, {b"a": location(fileIdEncoding=7)})
    with pytest.raises(MetadataTableError, match="encoding 7"):
        record_locations([odd], ONE, pa.array(["a"]))
    other = reader(tmp_path, {b"a": value(3)})
    with pytest.raises(MetadataTableError, match="type"):
        record_locations([other], ONE, pa.array(["a"]))


ENTRY = value(7, SecondaryIndexMetadata={"isDeleted": False})
GONE = value(7, SecondaryIndexMetadata={"isDeleted": True})


def test_a_secondary_index_gives_the_keys_of_values(tmp_path: Path) -> None:
    group = reader(
        tmp_path,
        {b"x$1": ENTRY, b"x$2": ENTRY, b"x\\$y$3": ENTRY, b"\0$4": ENTRY, b"x$5\\$6": ENTRY},
        [{b"x$2": GONE}, ["x$9"]],
    )
    found = secondary_keys([group], ["x", "x$y", None, "none", "x"], by_value=False)
    pairs = zip(found["value"].to_pylist(), found["key"].to_pylist(), strict=True)
    assert list(pairs) == [("x", "1"), ("x", "5$6"), ("x$y", "3"), (None, "4")]


def test_an_index_spread_by_value_is_read_only_where_the_value_is(tmp_path: Path) -> None:
    groups = 5
    prefix = secondary_prefix(["x"])[0]
    (number,) = file_group_index(pa.array([prefix], pa.binary()).cast(pa.string()), groups).tolist()
    readers = []
    for i in range(groups):
        (tmp_path / str(i)).mkdir()
        readers.append(reader(tmp_path / str(i), {b"x$%d" % i: ENTRY}))
    assert secondary_keys(readers, ["x"], by_value=True)["key"].to_pylist() == [str(number)]
    assert secondary_keys(readers, ["x"], by_value=False).num_rows == groups


def test_bloom_filters_are_found_by_file_name(tmp_path: Path) -> None:
    text = BloomFilter.build(["k"], entries=10).encode()

    def stored(content: str, *, deleted: bool = False) -> bytes:
        fields = {"type": "DYNAMIC_V0", "timestamp": "1", "bloomFilter": content.encode()}
        return value(4, BloomFilterMetadata=fields | {"isDeleted": deleted})

    place = name_hashes(["p"])[0]
    content = {
        (place + file_digest("a.parquet")).decode(): stored(text),
        (place + file_digest("b.parquet")).decode(): stored("", deleted=True),
    }
    groups = spread(tmp_path, content, 2)
    found = bloom_filters(groups, "p", ["b.parquet", "a.parquet", "c.parquet"])
    assert list(found) == ["a.parquet"]
    assert found["a.parquet"].encode() == text


def test_definitions_tell_columns_and_versions() -> None:
    text = b"""{"indexDefinitions": {
      "column_stats": {"indexName": "column_stats", "indexType": "column_stats",
        "indexFunction": "column_stats", "sourceFields": ["a", "b"], "indexOptions": {}},
      "record_index": {"indexName": "record_index", "indexType": "record_index",
        "sourceFields": [], "indexOptions": {"isPartitioned": "true"}, "version": "V2"}}}"""
    found = parse_definitions(text)
    assert found["column_stats"].source_fields == ("a", "b")
    assert not found["column_stats"].hashes_secondary_key_only
    assert found["record_index"].is_partitioned and found["record_index"].version == "V2"
    assert parse_definitions(b" ") == {}
    for broken in (b"{", b"{}", b'{"indexDefinitions": {"x": 5}}', b"[]"):
        with pytest.raises(MetadataTableError):
            parse_definitions(broken)
