"""Damaged keys in the index of an HFile: a key that is there is found, or the file is refused."""

from __future__ import annotations

import pytest

from lakewright.codec.hfile import HFile
from lakewright.errors import CorruptFileError
from tests.codec.hfile_builder import HBASE, Producer, build

CELLS = [(f"k{n:03}".encode(), f"v{n}".encode()) for n in range(40)]
BARE = Producer("bare", gz=False, checksum=0, checksum_bytes=False, cell_suffix=False)


def _with_index_key(data: bytes, number: int, step: int) -> bytes:
    """The file with the last byte of one key of its root index changed."""
    key = HFile(data, path="f")._index.keys[number]
    at = data.index(key, data.index(b"IDXROOT2")) + len(key) - 1
    return data[:at] + bytes([data[at] + step]) + data[at + 1 :]


@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize("number", [0, 1, 5, 9])
def test_no_damaged_key_of_an_index_hides_a_cell(number: int, step: int) -> None:
    data = build(CELLS, BARE, block_size=75)
    assert HFile(data, path="f").block_count >= 10
    damaged = _with_index_key(data, number, step)
    refused = []
    for key, value in CELLS:
        for ask in (lambda f, k=key: f.lookup([k]), lambda f, k=key: f.prefix(k)[1]):
            try:
                assert ask(HFile(damaged, path="f")).to_pylist() == [value]
            except CorruptFileError as error:
                refused.append(error)
    assert refused or step < 0
    assert all(0 <= int(str(e.context["offset"])) <= len(data) for e in refused)


@pytest.mark.parametrize(("producer", "read"), [(BARE, {0, 1}), (HBASE, {0})])
def test_only_an_index_with_checksums_is_trusted_that_a_key_is_missing(
    producer: Producer, read: set[int]
) -> None:
    data = build(CELLS, producer, block_size=75)
    first = HFile(data, path="f")
    assert first.lookup([b"k000", b"k039"]).to_pylist() == [b"v0", b"v39"]
    between = first._edges[0][1] + b"!"
    file = HFile(data, path="f")
    assert file.lookup([between]).null_count == 1
    assert set(file._edges) == read
    assert file.lookup([b"a", b"z"]).null_count == 2
