"""The index of a log file that is read in windows: as of the whole file, without contents."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import LakewrightError
from lakewright.format import log_index
from lakewright.format.log_block import (
    MAGIC,
    BlockType,
    HeaderKey,
    LogBlock,
    encode_block,
    read_blocks,
)
from lakewright.format.log_index import ReadRange, index_blocks
from tests.format.test_log_block import BLOCKS

Block = tuple[BlockType, dict[HeaderKey, str], bytes]


def reading(data: bytes) -> ReadRange:
    return lambda offset, length: data[offset : offset + length]


def outcome(read: Callable[[], list[LogBlock]]) -> list[LogBlock] | type[LakewrightError]:
    try:
        return [block.without_content() for block in read()]
    except LakewrightError as error:
        return type(error)


def check_same(data: bytes, window: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_index, "WINDOW_BYTES", window)
        found = outcome(lambda: index_blocks(reading(data), len(data), path="f"))
    assert found == outcome(lambda: read_blocks(data, path="f"))


@given(st.lists(BLOCKS, max_size=6), st.sampled_from([12, 100, 1 << 20]))
def test_blocks_are_those_of_the_whole_file(blocks: list[Block], window: int) -> None:
    check_same(b"".join(encode_block(*block) for block in blocks), window)


@given(st.lists(BLOCKS, min_size=1, max_size=4), st.data())
def test_damage_is_seen_in_the_same_way(blocks: list[Block], data: st.DataObject) -> None:
    raw = bytearray(b"".join(encode_block(*block) for block in blocks))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 9))] = data.draw(
            st.one_of(st.binary(max_size=12), st.just(MAGIC))
        )
    check_same(bytes(raw), data.draw(st.sampled_from([12, 50, 1 << 20])))


def test_contents_are_not_read() -> None:
    headers = {HeaderKey.INSTANT_TIME: "1"}
    data = b"".join(encode_block(BlockType.AVRO_DATA, headers, bytes(5 << 20)) for _ in range(3))
    asked: list[int] = []

    def read(offset: int, length: int) -> bytes:
        asked.append(length)
        return data[offset : offset + length]

    assert len(index_blocks(read, len(data), path="f")) == 3
    assert max(asked) <= log_index.WINDOW_BYTES
    assert len(asked) == 1 + 3
