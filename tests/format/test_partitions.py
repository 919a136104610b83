"""Partitions and data files by listing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import CorruptFileError, FormatError, UnsupportedTableError
from lakewright.format.partitions import (
    ListedFile,
    PartitionMetadata,
    format_partition_metadata,
    list_files,
    list_partitions,
    list_table,
    partition_depth,
    read_partition_metadata,
)
from lakewright.storage.base import Storage
from lakewright.storage.local import LocalStorage
from lakewright.storage.memory import MemoryStorage

META = ".hoodie_partition_metadata"


def local(root: Path, *paths: str) -> Storage:
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    return LocalStorage(root)


def in_memory(*paths: str) -> Storage:
    storage = MemoryStorage()
    for path in paths:
        storage.create_if_absent(path, b"x")
    return storage


TREE = (
    ".hoodie/hoodie.properties",
    ".hoodie/metadata/files/.hoodie_partition_metadata",
    f"2024/01/{META}",
    "2024/01/a-0_0-1-2_1.parquet",
    f"2024/01/deeper/{META}",
    f"2024/02/{META}.parquet",
    f"2024/03/{META}_4711.parquet",
    f"2024/03/below/{META}.orc",
    "2024/04/a-0_0-1-2_1.parquet",
    f"plain/.hoodie/hidden/{META}",
    f"plain/deep/deeper/{META}",
)
PARTITIONS = ["2024/01", "2024/02", "2024/03", "2024/03/below", "plain/deep/deeper"]


def test_partitions_are_found_in_folders_and_in_object_stores_alike(tmp_path: Path) -> None:
    assert list_partitions(local(tmp_path, *TREE)) == PARTITIONS
    assert list_partitions(in_memory(*TREE)) == PARTITIONS


def test_a_table_without_partitions_is_its_own_partition(tmp_path: Path) -> None:
    paths = (META, ".hoodie/hoodie.properties", f"sub/{META}", "a-0_0-1-2_1.parquet")
    for storage in (local(tmp_path, *paths), in_memory(*paths)):
        assert list_partitions(storage) == ["", "sub"]
        assert [f.name for f in list_files(storage, "")] == ["a-0_0-1-2_1.parquet"]


def test_a_table_without_any_commit_has_no_partitions(tmp_path: Path) -> None:
    paths = (".hoodie/hoodie.properties",)
    assert list_partitions(local(tmp_path, *paths)) == []
    assert list_partitions(in_memory(*paths)) == []


NAMES = st.sampled_from([META, f"{META}.parquet", f"{META}_1.parquet", "a-0_0-1-2_1.parquet", "x"])
FOLDERS = st.lists(st.sampled_from(["a", "b", ".hoodie"]), max_size=3)


@settings(max_examples=30)
@given(st.sets(st.builds(lambda f, n: "/".join((*f, n)), FOLDERS, NAMES), max_size=12))
def test_both_ways_of_listing_agree_on_any_tree(
    tmp_path_factory: pytest.TempPathFactory, paths: set[str]
) -> None:
    root = tmp_path_factory.mktemp("table")
    by_folder = list_table(local(root, *paths))
    by_object = list_table(in_memory(*paths))
    assert by_folder.keys() == by_object.keys()
    for partition, files in by_folder.items():
        assert [f.name for f in files] == [f.name for f in by_object[partition]]
        assert files == list_files(LocalStorage(root), partition)


def test_only_data_files_are_listed(tmp_path: Path) -> None:
    kept = ["..odd.log", ".a-0_1.log.1_0-1-2", ".a-0_1.log.1_0-1-2.cdc", "a-0_0-1-2_1.parquet"]
    dropped = [
        META,
        f".{META}.crc",
        f"{META}_1.parquet",
        "..a-0_1.log.1_0-1-2.crc",
        ".a-0_0-1-2_1.parquet.crc",
        "._a-0_0-1-2_1.parquet",
        "_SUCCESS",
        "_temporary/b-0_0-1-2_1.parquet",
        "notes.txt",
        "parquet",
    ]
    storage = local(tmp_path, *(f"p/{n}" for n in kept + dropped))
    found = list_files(storage, "p")
    assert [f.name for f in found] == kept
    assert {f.size for f in found} == {1}
    assert all(f.modified_ms for f in found)


def test_a_vanished_folder_has_no_files(tmp_path: Path) -> None:
    assert list_files(LocalStorage(tmp_path), "gone") == []
    assert list_files(MemoryStorage(), "gone") == []


def test_listed_files_compare_by_value() -> None:
    assert ListedFile("a", 1) == ListedFile("a", 1, None)


def test_the_text_variant_is_written_as_the_jvm_writes_it_and_read_back() -> None:
    text = format_partition_metadata("20250713010139392", 2, now_ms=1752368500_000)
    assert text == (
        b"#partition metadata\n#Sun Jul 13 01:01:40 UTC 2025\n"
        b"commitTime=20250713010139392\npartitionDepth=2\n"
    )
    storage = MemoryStorage()
    storage.create_if_absent(f"p/q/{META}", text)
    found = read_partition_metadata(storage, "p/q")
    assert found == PartitionMetadata("20250713010139392", 2)


def test_the_parquet_variant_is_read_from_its_footer() -> None:
    pairs = {"commitTime": "20250713010139392", "partitionDepth": "0"}
    empty = pa.schema([("dummyint", pa.int64())]).with_metadata(pairs).empty_table()
    sink = pa.BufferOutputStream()
    pq.write_table(empty, sink)
    storage = MemoryStorage()
    storage.create_if_absent(f"{META}.parquet", sink.getvalue().to_pybytes())
    assert read_partition_metadata(storage, "") == PartitionMetadata("20250713010139392", 0)


def test_the_text_variant_comes_first() -> None:
    storage = in_memory(f"p/{META}.parquet")
    storage.create_if_absent(f"p/{META}", b"commitTime=1\n")
    assert read_partition_metadata(storage, "p") == PartitionMetadata("1", None)


def test_unreadable_partition_metadata_says_why() -> None:
    storage = in_memory(f"a/{META}.parquet", f"b/{META}.orc", "c/x")
    storage.create_if_absent(f"d/{META}", b"partitionDepth=two\n")
    with pytest.raises(CorruptFileError, match="cannot be read"):
        read_partition_metadata(storage, "a")
    with pytest.raises(UnsupportedTableError, match="ORC"):
        read_partition_metadata(storage, "b")
    assert read_partition_metadata(storage, "c") is None
    with pytest.raises(FormatError, match="'two'"):
        read_partition_metadata(storage, "d")


def test_depth_counts_segments() -> None:
    assert [partition_depth(p) for p in ("", "a", "a=1/b=2")] == [0, 1, 2]
