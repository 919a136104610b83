"""File groups of the metadata table as they are written: names, stubs, log blocks, base files."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.bloom import BloomBuilder
from lakewright.codec.hfile import HFile, HFilePolicy
from lakewright.errors import MetadataTableError, UnsupportedTableError
from lakewright.format.file_names import parse_data_file
from lakewright.format.log_block import BlockType, HeaderKey, read_blocks
from lakewright.format.version import TableVersion
from lakewright.metadata.containers import BaseFileWriter, delete_block, log_blocks
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.file_groups import (
    STUB_ATTEMPT,
    IndexGroups,
    base_file_name,
    file_id,
    log_file_name,
    record_index_group_count,
    split_by_group,
    stub_block,
)
from lakewright.metadata.keys import file_group_index, file_group_number
from lakewright.metadata.payloads import partition_list_record, secondary_index_records
from lakewright.metadata.record_index import secondary_keys
from lakewright.metadata.record_schema import written_schema
from lakewright.metadata.records import FileGroupReader
from lakewright.storage.local import LocalStorage

SIX, EIGHT = TableVersion.of(6), TableVersion.of(8)


@pytest.mark.parametrize(
    ("index", "number", "expected"),
    [
        ("files", 0, "files-0000-0"),
        ("column_stats", 1, "col-stats-0001-0"),
        ("partition_stats", 0, "partition-stats-0000-0"),
        ("bloom_filters", 3, "bloom-filters-0003-0"),
        ("record_index", 12345, "record-index-12345-0"),
        ("secondary_index_rider_idx", 0, "secondary-index-rider-idx-0000-0"),
        ("expr_index_idx_ts", 1, "expr-index-idx-ts-0001-0"),
    ],
)
def test_file_groups_have_the_names_that_hudi_gives_them(
    index: str, number: int, expected: str
) -> None:
    assert file_id(index, number) == expected
    assert file_group_number(expected) == number


def test_an_index_of_a_newer_release_has_no_name_here() -> None:
    with pytest.raises(UnsupportedTableError, match="vector_index"):
        file_id("vector_index", 0)


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        ("x", "record-index-x-0000-0"),
        ("a-b/c_d", "record-index-a%2Db%2Fc%5Fd-0000-0"),
        ("city=san francisco", "record-index-city%3Dsan francisco-0000-0"),
        ("", "record-index--0000-0"),
        ("Zürich/v1.2", "record-index-Zürich%2Fv1.2-0000-0"),
    ],
)
def test_file_groups_of_partitions_have_the_names_that_hudi_gives_them(
    partition: str, expected: str
) -> None:
    assert file_id("record_index", 0, partition) == expected
    assert IndexGroups.named("record_index", [expected]).counts == ((partition, 1),)
    named_after(expected)


def named_after(group: str) -> None:
    """Files of a file group are known as such."""
    files = (
        base_file_name(group, write_token="0-1-0", instant="20251220210108078"),
        log_file_name(group, instant="20251220210108078", write_token=STUB_ATTEMPT),
    )
    for name in files:
        parsed = parse_data_file(name)
        assert parsed is not None and parsed.file_id == group


PATHS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(PATHS, st.integers(1, 3), max_size=4), st.lists(st.text(max_size=6)))
def test_file_groups_are_known_again_by_their_names(
    counts: dict[str, int], keys: list[str]
) -> None:
    groups = IndexGroups.parted("record_index", counts)
    assert groups.is_parted and len(groups) == len(groups.file_ids) == sum(counts.values())
    for group in groups.file_ids:
        named_after(group)
    if counts:
        assert IndexGroups.named("record_index", groups.file_ids) == groups
    for partition, count in counts.items():
        found = groups.numbers_of(pa.array(keys, pa.string()), groups.scope(partition))
        inside = [file_group_index([key], count).item() for key in keys]
        assert [groups.file_ids[n] for n in found.tolist()] == [
            file_id("record_index", n, partition) for n in inside
        ]
        assert {groups.partitions[n] for n in found.tolist()} <= {partition}


def test_what_was_spread_among_file_groups_is_right_only_where_they_are_the_same() -> None:
    of = IndexGroups.parted
    made = of("record_index", {"a": 2}).with_partitions(["a", "new"])
    assert dict(made.counts) == {"a": 2, "new": 1}
    assert made.agrees(of("record_index", {"a": 2, "other": 3}))
    assert made.agrees(of("record_index", {"a": 2, "new": 1}))
    assert not made.agrees(of("record_index", {"a": 2, "new": 3}))
    whole = IndexGroups.whole("record_index", 10)
    assert not made.agrees(whole) and not whole.agrees(made)
    assert whole.agrees(whole) and not whole.agrees(IndexGroups.whole("record_index", 9))
    assert whole.with_partitions(["new"]) == whole


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("record-index-0001-0",),
        ("record-index-0000-0", "record-index-0002-0"),
        ("record-index-a-0000-0", "record-index-a-0002-0"),
        ("record-index-0000-0", "record-index-a-0000-0"),
    ],
)
def test_file_groups_that_are_lost_are_noticed(names: tuple[str, ...]) -> None:
    with pytest.raises(MetadataTableError, match="one after the other"):
        IndexGroups.named("record_index", names)


def test_files_have_the_names_of_real_ones() -> None:
    base = base_file_name("files-0000-0", write_token="0-955-2690", instant="00000000000000000")
    assert base == "files-0000-0_0-955-2690_00000000000000000.hfile"
    log = log_file_name("files-0000-0", instant="20251220210108078", write_token="10-999-2838")
    assert log == ".files-0000-0_20251220210108078.log.1_10-999-2838"
    third = log_file_name(
        "record-index-0007-0", instant="20250922132143658001", version=3, write_token=STUB_ATTEMPT
    )
    assert third == ".record-index-0007-0_20250922132143658001.log.3_0-0-0"
    assert all(parse_data_file(name) is not None for name in (base, log, third))


def test_a_stub_is_the_empty_delete_block_of_java() -> None:
    expected = (
        "23 48 55 44 49 23 00 00 00 00 00 00 00 42 00 00 00 01 00 00 00 01 00 00 00 01"
        "00 00 00 00 00 00 00 11" + "30" * 17 + "00 00 00 00 00 00 00 09"
        "00 00 00 03 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 48"
    )
    assert stub_block("00000000000000000") == bytes.fromhex(expected)


@pytest.mark.parametrize(
    ("records", "expected"), [(0, 10), (2_000_000, 10), (10**9, 89), (10**12, 10_000)]
)
def test_an_index_of_records_has_room_to_grow(records: int, expected: int) -> None:
    assert record_index_group_count(records) == expected
    assert record_index_group_count(records, least=4, most=4) == 4


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=40), st.integers(1, 5))
def test_every_record_is_in_the_group_where_readers_look(keys: list[str], groups: int) -> None:
    column = pa.array([k.encode() for k in keys], pa.binary())
    split = split_by_group(MetadataRecords(column, column), groups)
    assert len(split) == groups
    assert sorted(k for part in split for k in part.keys.to_pylist()) == sorted(column.to_pylist())
    for number, part in enumerate(split):
        rows = part.keys.to_pylist()
        assert rows == sorted(rows) and part.keys.equals(part.values)
        assert (file_group_index(part.keys.cast(pa.string()), groups) == number).all()


def entries(count: int) -> MetadataRecords:
    values = pa.array([f"v{n % 3}" for n in range(count)])
    keys = pa.array([f"key-{n:05}" for n in range(count)])
    return secondary_index_records(values, keys, version=EIGHT).sorted()


def test_a_delta_commit_is_read_back_records_first_then_deletes(tmp_path: Path) -> None:
    records = entries(30)
    gone = records.keys[:10]
    blocks = [
        *log_blocks(
            records, gone[:0], index="secondary_index_a", instant="001", version=EIGHT, policy=None
        ),
        *log_blocks(
            records.take(pa.array([10])),
            gone,
            index="secondary_index_a",
            instant="002",
            version=EIGHT,
            policy=HFilePolicy(codec="none"),
        ),
    ]
    read = read_blocks(stub_block("000") + b"".join(blocks), path="x.log")
    assert [b.type for b in read] == [
        BlockType.DELETE,
        BlockType.HFILE_DATA,
        BlockType.HFILE_DATA,
        BlockType.DELETE,
    ]
    for block in read[1:]:
        assert set(block.headers) == {HeaderKey.INSTANT_TIME, HeaderKey.SCHEMA}
        assert block.schema == written_schema(EIGHT)
    info = HFile(read[1].content, path="x").file_info
    assert info["schema"].decode() == written_schema(EIGHT) and "minRecordKey" not in info
    reader = FileGroupReader(LocalStorage(str(tmp_path)), None, read)
    found = secondary_keys([reader], ["v0", "v1", "v2"], by_value=False)
    assert len(found) == 20


def test_deletes_of_an_index_are_those_of_hudi() -> None:
    keys = pa.array([b"TXN-004"], pa.binary())
    block = delete_block(keys, index="record_index", instant="001", version=EIGHT)
    (read,) = read_blocks(block, path="x")
    payload = "02 02 0e 54584e2d303034 02 18 7265636f72645f696e646578 04 00 00"
    told = bytes.fromhex("00000003 0000001b" + payload)
    assert bytes(read.content) == told


@pytest.mark.parametrize("version", [SIX, EIGHT], ids=str)
def test_base_files_carry_schema_bounds_and_on_request_a_filter(version: TableVersion) -> None:
    records = partition_list_record(["a", "b"], version=version)
    for bloom in (None, BloomBuilder(entries=10, fpp=0.1)):
        out = io.BytesIO()
        writer = BaseFileWriter(out, version=version, bloom=bloom)
        writer.write(records)
        summary = writer.close()
        file = HFile(out.getvalue(), path="x")
        assert summary.size == writer.size == len(out.getvalue())
        assert file.file_info["schema"].decode() == written_schema(version)
        assert file.file_info["minRecordKey"] == file.file_info["maxRecordKey"]
        assert file.file_info["minRecordKey"] == b"__all_partitions__"
        assert (file.meta_block("bloomFilter") is None) == (bloom is None)
        assert ("bloomFilterTypeCode" in file.file_info) == (bloom is not None)


def test_an_empty_base_file_has_empty_bounds() -> None:
    out = io.BytesIO()
    BaseFileWriter(out, version=EIGHT).close()
    file = HFile(out.getvalue(), path="x")
    assert file.file_info["minRecordKey"] == file.file_info["maxRecordKey"] == b""
