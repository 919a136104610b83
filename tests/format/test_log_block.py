"""Log blocks: frames, corruption, real files."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import CorruptFileError, FormatError, UnsupportedTableError
from lakewright.format.log_block import (
    MAGIC,
    BlockType,
    HeaderKey,
    LogBlock,
    encode_block,
    read_blocks,
    rollback_block,
)
from tests.fixtures import SHARED, SHARED_ABSENT, shared_tables, unzip

WRITTEN_TYPES = [t for t in BlockType if t is not BlockType.CORRUPT]
HEADERS = st.dictionaries(st.sampled_from(HeaderKey), st.text(max_size=20), max_size=5)
BLOCKS = st.tuples(st.sampled_from(WRITTEN_TYPES), HEADERS, st.binary(max_size=60))

ROLLBACK_FILE = bytes.fromhex(
    "23485544492300000000000000"
    "5b000000010000000000000003"
    "00000000000000113230323530313236303430393336353738"
    "000000030000000130"
    "00000001000000113230323530313236303430383236383738"
    "00000000000000000000000000000000000000"
    "61"
)


def facts(block: LogBlock) -> tuple[BlockType, dict[HeaderKey, str], bytes]:
    return block.type, dict(block.headers), bytes(block.content)


def test_the_rollback_block_of_a_real_table_reads_and_writes_back() -> None:
    assert len(ROLLBACK_FILE) == 105
    (block,) = read_blocks(ROLLBACK_FILE, path="p")
    assert (block.offset, block.length) == (0, 105)
    assert block.type is BlockType.COMMAND
    assert block.instant == "20250126040936578"
    assert block.target_instant == "20250126040826878"
    assert block.headers[HeaderKey.COMMAND_BLOCK_TYPE] == "0"
    again = rollback_block(instant="20250126040936578", target="20250126040826878")
    assert again == ROLLBACK_FILE


def test_the_stub_of_a_metadata_file_group_is_written_as_java_writes_it() -> None:
    instant = "00000000000000000"
    stub = encode_block(
        BlockType.DELETE, {HeaderKey.INSTANT_TIME: instant}, bytes.fromhex("000000030000000100")
    )
    assert stub.hex() == (
        "234855444923"
        "0000000000000042"
        "00000001"
        "00000001"
        "00000001"
        "0000000000000011" + instant.encode().hex() + "0000000000000009"
        "0000000300000001"
        "00"
        "00000000"
        "0000000000000048"
    )


@given(st.lists(BLOCKS, max_size=6))
def test_what_is_written_is_read(
    blocks: list[tuple[BlockType, dict[HeaderKey, str], bytes]],
) -> None:
    data = b"".join(encode_block(*b) for b in blocks)
    read = read_blocks(data, path="p")
    assert [facts(b) for b in read] == blocks
    assert read_blocks(pa.py_buffer(data), path="p") == read
    assert sum(b.length for b in read) == len(data)
    for block in read:
        own = data[block.offset : block.offset + block.length]
        (alone,) = read_blocks(own, path="p", file_offset=block.offset)
        assert alone == block


def test_contents_are_views_of_the_file() -> None:
    data = encode_block(BlockType.PARQUET_DATA, {HeaderKey.INSTANT_TIME: "1"}, b"abc")
    (block,) = read_blocks(data, path="p")
    assert block.content.obj is data
    assert block.has_content and not block.without_content().has_content
    assert block.without_content().content.obj is not data


def test_equal_schemas_are_one_string() -> None:
    one = encode_block(BlockType.AVRO_DATA, {HeaderKey.SCHEMA: "s" * 1000}, b"")
    first, second = read_blocks(one * 2, path="p")
    (other,) = read_blocks(bytearray(one), path="q")
    assert first.schema is second.schema and first.schema is other.schema


def test_a_file_cut_anywhere_gives_whole_blocks_and_one_corrupt_tail() -> None:
    pieces = [
        encode_block(t, {HeaderKey.INSTANT_TIME: "17", HeaderKey.SCHEMA: "{}"}, b"x" * n)
        for t, n in ((BlockType.AVRO_DATA, 5), (BlockType.DELETE, 0), (BlockType.PARQUET_DATA, 9))
    ]
    data = b"".join(pieces)
    ends = [sum(map(len, pieces[:k])) for k in range(len(pieces) + 1)]
    whole = [facts(b) for b in read_blocks(data, path="p")]
    for cut in range(len(data) + 1):
        read = read_blocks(data[:cut], path="p")
        kept = sum(end <= cut for end in ends) - 1
        tail = cut - ends[kept]
        assert [facts(b) for b in read[:kept]] == whole[:kept]
        corrupt = read[kept:]
        assert len(corrupt) == (tail >= len(MAGIC))
        for block in corrupt:
            assert block.type is BlockType.CORRUPT
            assert (block.offset, block.length) == (ends[kept], tail)


@given(st.lists(BLOCKS, min_size=1, max_size=4), st.data())
def test_garbage_between_blocks_never_hides_the_others(
    blocks: list[tuple[BlockType, dict[HeaderKey, str], bytes]], data: st.DataObject
) -> None:
    garbage = data.draw(st.binary(min_size=6, max_size=40).filter(lambda b: MAGIC not in b))
    at = data.draw(st.integers(1, len(blocks)))
    encoded = [encode_block(*b) for b in blocks]
    encoded.insert(at, MAGIC + garbage)
    read = read_blocks(b"".join(encoded), path="p")
    sound = [facts(b) for b in read if b.type is not BlockType.CORRUPT]
    assert sound == blocks
    assert sum(b.type is BlockType.CORRUPT for b in read) == 1


@given(st.lists(BLOCKS, min_size=2, max_size=4), st.binary(min_size=1, max_size=20))
def test_bytes_inserted_without_magic_cost_the_block_before_them(
    blocks: list[tuple[BlockType, dict[HeaderKey, str], bytes]], garbage: bytes
) -> None:
    encoded = [encode_block(*b) for b in blocks]
    if MAGIC in encoded[0][-20:] + garbage + MAGIC[:5]:
        return
    read = read_blocks(b"".join((encoded[0], garbage, *encoded[1:])), path="p")
    assert read[0].type is BlockType.CORRUPT
    assert [facts(b) for b in read[1:]] == blocks[1:]


@settings(max_examples=150)
@given(st.lists(BLOCKS, min_size=1, max_size=3), st.data())
def test_a_flipped_byte_is_found_or_harmless_and_never_crashes(
    blocks: list[tuple[BlockType, dict[HeaderKey, str], bytes]], data: st.DataObject
) -> None:
    raw = bytearray(b"".join(encode_block(*b) for b in blocks))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    try:
        read = read_blocks(bytes(raw), path="p")
    except (FormatError, UnsupportedTableError) as error:
        located = error.context.keys() >= {"path", "offset"}
    else:
        located = sum(b.length for b in read) <= len(raw)
    assert located


@given(st.binary(max_size=200))
def test_any_bytes_after_the_magic_end_without_a_crash(tail: bytes) -> None:
    read = read_blocks(MAGIC + tail, path="p")
    assert all(b.type is BlockType.CORRUPT for b in read)


def test_a_file_that_does_not_begin_with_a_block_is_an_error() -> None:
    with pytest.raises(CorruptFileError, match="begin"):
        read_blocks(b"PAR1PAR1", path="p")
    assert read_blocks(b"#HU", path="p") == []
    assert read_blocks(b"", path="p") == []


def test_a_million_magics_are_one_corrupt_region() -> None:
    (block,) = read_blocks(MAGIC * 100_000, path="p")
    assert block.type is BlockType.CORRUPT and block.length == 600_000


@pytest.mark.parametrize("size", [-1, 0, 1, 31, 2**40, 2**63 - 1, -(2**63)])
def test_impossible_sizes_are_corruption(size: int) -> None:
    sound = encode_block(BlockType.DELETE, {}, b"")
    broken = MAGIC + struct.pack(">q", size) + b"\0" * 50
    first, second = read_blocks(broken + sound, path="p")
    assert first.type is BlockType.CORRUPT and second.type is BlockType.DELETE
    assert second.offset == len(broken)


def test_unknown_types_headers_and_versions_are_errors_that_name_them() -> None:
    sound = encode_block(BlockType.AVRO_DATA, {HeaderKey.INSTANT_TIME: "1"}, b"")

    def patched(offset: int, value: int) -> bytes:
        return sound[:offset] + struct.pack(">i", value) + sound[offset + 4 :]

    with pytest.raises(FormatError, match="type 7"):
        read_blocks(patched(18, 7), path="p")
    with pytest.raises(FormatError, match="type 2"):
        read_blocks(patched(18, 2), path="p")
    with pytest.raises(FormatError, match="header 10"):
        read_blocks(patched(26, 10), path="p")
    with pytest.raises(UnsupportedTableError, match="version 2"):
        read_blocks(patched(14, 2), path="p")
    with pytest.raises(CorruptFileError, match="header"):
        read_blocks(patched(22, 2**31 - 1), path="p")
    with pytest.raises(CorruptFileError, match="header"):
        read_blocks(patched(30, -1), path="p")


def test_a_block_without_schema_says_so_when_asked() -> None:
    (block,) = read_blocks(encode_block(BlockType.AVRO_DATA, {}, b""), path="p")
    with pytest.raises(FormatError, match="schema"):
        _ = block.schema


def test_headers_have_typed_readings() -> None:
    headers = {HeaderKey.COMPACTED_BLOCK_TIMES: "1,2", HeaderKey.IS_PARTIAL: "true"}
    (block,) = read_blocks(encode_block(BlockType.AVRO_DATA, headers, b""), path="p")
    assert block.compacted_times == ("1", "2") and block.is_partial
    (plain,) = read_blocks(encode_block(BlockType.AVRO_DATA, {}, b""), path="p")
    assert plain.compacted_times == () and not plain.is_partial


@pytest.mark.skipif(not shared_tables(), reason=SHARED_ABSENT)
def test_every_log_file_of_the_real_tables_reads_whole_and_writes_back(tmp_path: Path) -> None:
    counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    for archive in sorted(SHARED.glob("*.zip")):
        root = unzip(archive, tmp_path / archive.stem)
        for file in root.rglob(".*.log.*"):
            if file.suffix == ".crc" or file.name.startswith("._"):
                continue
            data = file.read_bytes()
            blocks = read_blocks(data, path=file.name)
            assert b"".join(encode_block(b.type, b.headers, b.content) for b in blocks) == data
            counts["metadata" in file.parts].update(b.type.name for b in blocks)
    assert counts[False] >= Counter(AVRO_DATA=50, DELETE=11, PARQUET_DATA=7, COMMAND=1)
    assert counts[True] >= Counter(HFILE_DATA=494, DELETE=236)
    assert not counts[False]["CORRUPT"] and not counts[True]["CORRUPT"]
